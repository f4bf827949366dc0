//! The server's certificate: made at the start when it does not fit, and again long before it ends.

use super::Keys;
use super::files::{self, Error};
use super::sec1;
use chrono::{DateTime, Duration, Utc};
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The file of the server's certificate.
pub const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";
const BACKDATE: Duration = Duration::minutes(5);

/// A certificate that serves, and when to make the next one.
#[derive(Debug, Clone)]
pub struct ServerCertificate {
    /// What TLS shows.
    pub key: Arc<CertifiedKey>,
    /// While it is shown: from when it is valid until two thirds of its life are over. A clock that was put
    /// back may be before that.
    pub serves: Range<DateTime<Utc>>,
}

/// Says from when to when a certificate is valid.
pub(super) fn valid(params: &mut CertificateParams, from: DateTime<Utc>, until: DateTime<Utc>) {
    let since_epoch = |time: DateTime<Utc>| {
        std::time::Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
    };
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(from);
    params.not_after = epoch + since_epoch(until);
}

/// The certificate on disk if it is of the authority that signs, has exactly these names, is valid
/// already, and two thirds of its life are not over; a new one otherwise.
pub fn current(
    keys: &Keys,
    names: &BTreeSet<String>,
    lifetime: Duration,
    now: DateTime<Utc>,
) -> Result<ServerCertificate, Error> {
    if let Some(found) = read(keys, names)?
        && found.serves.contains(&now)
    {
        return Ok(found);
    }
    make(keys, names, lifetime, now)
}

fn read(keys: &Keys, names: &BTreeSet<String>) -> Result<Option<ServerCertificate>, Error> {
    let certificate = files::read(&keys.folder().join(CERTIFICATE))?;
    let key = files::read(&keys.folder().join(KEY))?;
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(None);
    };
    // What cannot be read is made anew; nothing is lost with it.
    let Ok(chain) = common::tls::certificates(certificate.as_bytes()) else {
        return Ok(None);
    };
    let Some((issuer, listed, valid)) = chain.first().and_then(|der| facts(der)) else {
        return Ok(None);
    };
    let authorities = keys.authorities();
    if issuer != authorities.signer().name || listed != *names {
        return Ok(None);
    }
    Ok(certified(chain, &key).map(|key| ServerCertificate {
        key,
        serves: serves(valid),
    }))
}

fn serves((from, until): (DateTime<Utc>, DateTime<Utc>)) -> Range<DateTime<Utc>> {
    from..from + (until - from) * 2 / 3
}

fn certified(
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: &str,
) -> Option<Arc<CertifiedKey>> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider)
        .ok()
        .map(Arc::new)
}

type Facts = (Vec<u8>, BTreeSet<String>, (DateTime<Utc>, DateTime<Utc>));

/// Issuer, names and validity.
fn facts(der: &[u8]) -> Option<Facts> {
    let valid = common::tls::validity(der).ok()?;
    let (_, read) = X509Certificate::from_der(der).ok()?;
    let names =
        read.extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => Some(names),
                _ => None,
            })?;
    let names = names.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    });
    Some((
        read.issuer().as_raw().to_vec(),
        names.collect::<Option<_>>()?,
        valid,
    ))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn make(
    keys: &Keys,
    names: &BTreeSet<String>,
    lifetime: Duration,
    now: DateTime<Utc>,
) -> Result<ServerCertificate, Error> {
    const WHAT: &str = "the server's certificate";
    let failed = |error| Error::Make(WHAT, error);
    let authorities = keys.authorities();
    let from = now - BACKDATE.min(lifetime / 10);
    let until = (now + lifetime).min(authorities.not_after());
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "towline-hub");
    params.subject_alt_names = names
        .iter()
        .map(|name| match name.parse::<IpAddr>() {
            Ok(ip) => Ok(SanType::IpAddress(ip)),
            Err(_) => Ia5String::try_from(name.as_str()).map(SanType::DnsName),
        })
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid(&mut params, from, until);
    let (key, key_pem) = sec1::make(WHAT)?;
    let certificate = params
        .signed_by(&key, &authorities.issuer()?)
        .map_err(failed)?;
    files::secret_file(&keys.folder().join(KEY), key_pem.as_bytes())?;
    let text = super::authority::pem("CERTIFICATE", certificate.der());
    files::secret_file(&keys.folder().join(CERTIFICATE), text.as_bytes())?;
    let chain = vec![certificate.der().clone()];
    let key = certified(chain, &key_pem).ok_or(Error::Key(WHAT))?;
    Ok(ServerCertificate {
        key,
        serves: serves((from, until)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::authority::{Authorities, Step};
    use super::*;
    use common::time::{Clock, SharedClock};

    struct Fixed;
    impl Clock for Fixed {
        fn now(&self) -> DateTime<Utc> {
            "2026-01-01T00:00:00Z".parse().expect("a time")
        }
    }

    #[test]
    fn a_certificate_is_kept_while_it_fits() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(Fixed);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let names = |list: &[&str]| {
            list.iter()
                .map(|n| (*n).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let some = names(&["hub", "10.0.0.1", "::1"]);
        let life = Duration::days(90);
        let shown = |names: &BTreeSet<String>, now| {
            let current = current(&keys, names, life, now).expect("a certificate");
            current.key.cert[0].clone()
        };
        let now = Fixed.now();
        let first = shown(&some, now);
        assert_eq!(shown(&some, now + Duration::days(59)), first);
        let other = shown(&names(&["hub"]), now);
        assert!(other != first, "other names");
        let renewed = shown(&names(&["hub"]), now + Duration::days(61));
        assert!(renewed != other, "two thirds over");
        for step in [Step::Introduced, Step::Promoted] {
            Authorities::advance(keys.folder(), step, now).expect("a step");
        }
        assert!(keys.reload().expect("read"));
        let by_new = shown(&names(&["hub"]), now + Duration::days(61));
        assert!(by_new != renewed, "another authority");
    }

    #[test]
    fn a_certificate_of_a_clock_that_was_put_back_is_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(Fixed);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let names = BTreeSet::from(["hub".to_owned()]);
        let now = Fixed.now();
        let at = |now| current(&keys, &names, Duration::days(90), now).expect("a certificate");
        let ahead = at(now + Duration::days(1));
        assert!(!ahead.serves.contains(&now));
        let found = at(now);
        assert!(found.key.cert != ahead.key.cert && found.serves.contains(&now));
        let valid = common::tls::validity(&found.key.cert[0]).expect("read");
        assert!(valid.0 <= now);
    }
}
