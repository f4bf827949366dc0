//! Client certificates: for the administrator, and for whoever asked by an approved request.

use super::authority::Signer;
use super::der::{
    BIT_STRING, BOOLEAN, OCTET_STRING, OID, SEQUENCE, SET, UTF8_STRING, of, positive, time, value,
};
use super::files::Error;
use super::sec1;
use chrono::{DateTime, Duration, Utc};
use common::chance::secret;
use rand::Rng as _;
use rcgen::PublicKeyData as _;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Clocks differ.
const BACKDATE: Duration = Duration::minutes(5);

/// What is to be certified, in DER.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The distinguished name, as it is copied.
    pub name: &'a [u8],
    /// SubjectPublicKeyInfo.
    pub public_key: &'a [u8],
    /// Whether the key may also encipher keys.
    pub key_encipherment: bool,
}

/// Signs a certificate for clients, valid until `until` at the longest.
pub fn sign(
    signer: &Signer<'_>,
    subject: &Subject<'_>,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<Vec<u8>, Error> {
    let algorithm = of(SEQUENCE, &[&value(OID, ECDSA_WITH_SHA256)]);
    let mut serial: [u8; 16] = secret::rng().random();
    serial[0] = serial[0] & 0x3f | 0x40;
    // A certificate never outlives its issuer.
    let until = until.min(signer.not_after);
    let usage: &[u8] = if subject.key_encipherment {
        &[5, 0xa0]
    } else {
        &[7, 0x80]
    };
    let extensions = [
        extension(KEY_USAGE, true, &value(BIT_STRING, usage)),
        extension(
            EXTENDED_KEY_USAGE,
            false,
            &of(SEQUENCE, &[&value(OID, CLIENT_AUTH)]),
        ),
        extension(BASIC_CONSTRAINTS, true, &of(SEQUENCE, &[])),
        extension(
            AUTHORITY_KEY,
            false,
            &of(SEQUENCE, &[&value(0x80, signer.key_id)]),
        ),
    ]
    .concat();
    let body = of(
        SEQUENCE,
        &[
            &of(0xa0, &[&positive(&[2])]),
            &positive(&serial),
            &algorithm,
            signer.name,
            &of(SEQUENCE, &[&time(now - BACKDATE), &time(until)]),
            subject.name,
            subject.public_key,
            &of(0xa3, &[&value(SEQUENCE, &extensions)]),
        ],
    );
    let signature = signer.sign(&body)?;
    Ok(of(
        SEQUENCE,
        &[&body, &algorithm, &of(BIT_STRING, &[&[0], &signature])],
    ))
}

fn extension(id: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let critical = if critical {
        value(BOOLEAN, &[0xff])
    } else {
        Vec::new()
    };
    of(
        SEQUENCE,
        &[&value(OID, id), &critical, &value(OCTET_STRING, content)],
    )
}

/// A distinguished name of one user in some groups.
fn name(user: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |id: &[u8], text: &str| {
        let pair = of(
            SEQUENCE,
            &[&value(OID, id), &value(UTF8_STRING, text.as_bytes())],
        );
        of(SET, &[&pair])
    };
    let groups: Vec<Vec<u8>> = groups.iter().map(|g| attribute(ORGANIZATION, g)).collect();
    of(SEQUENCE, &[&groups.concat(), &attribute(COMMON_NAME, user)])
}

/// A certificate and its key, PEM, for a user in some groups.
pub fn issue(
    signer: &Signer<'_>,
    user: &str,
    groups: &[String],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<(String, String), Error> {
    let (key, key_pem) = sec1::make("a client key")?;
    let subject = Subject {
        name: &name(user, groups),
        public_key: &key.subject_public_key_info(),
        key_encipherment: true,
    };
    let certificate = sign(signer, &subject, now, until)?;
    let certificate = super::authority::pem("CERTIFICATE", &certificate);
    Ok((certificate, key_pem))
}

#[cfg(test)]
mod tests {
    use super::super::authority::Authorities;
    use super::*;
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    #[test]
    fn a_certificate_says_who_and_how_long_and_is_trusted() {
        let dir = tempfile::tempdir().expect("a folder");
        let now: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let authorities = Authorities::open(dir.path(), now).expect("made");
        let groups = ["a".to_owned(), "b".to_owned()];
        let until = now + Duration::hours(1);
        let (certificate, _) =
            issue(&authorities.signer(), "someone", &groups, now, until).expect("issued");
        let der = common::tls::certificates(certificate.as_bytes()).expect("PEM");
        let (rest, read) = X509Certificate::from_der(&der[0]).expect("DER");
        assert!(rest.is_empty());
        assert_eq!(read.subject().to_string(), "O=a, O=b, CN=someone");
        assert_eq!(read.validity().not_after.timestamp(), until.timestamp());
        let verified = authorities.verify(&der[0], &[], now);
        assert!(verified.is_ok(), "{verified:?}");
        assert!(
            authorities
                .verify(&der[0], &[], until + Duration::minutes(1))
                .is_err()
        );
        let other = tempfile::tempdir().expect("a folder");
        let others = Authorities::open(other.path(), now).expect("made");
        assert!(others.verify(&der[0], &[], now).is_err());
    }
}
