//! The identity in a client certificate, judged at every request: its time each time, its signature and
//! whether it is revoked whenever the keys have changed.

use crate::apiserver::caller::Caller;
use crate::apiserver::keys::Keys;
use crate::apiserver::keys::authority::Authorities;
use crate::apiserver::keys::revoked::{Named, Revoked};
use chrono::{DateTime, Utc};
use common::identity::{AGENTS_GROUP, CLUSTER_GROUP_PREFIX};
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

/// Where a credential is named among the extra values.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// What the other end of a connection showed, as far as it holds.
#[derive(Debug, Clone, Default)]
pub enum Peer {
    /// No certificate.
    #[default]
    Unknown,
    /// A certificate that does not hold, and why.
    Refused(String),
    /// One that holds in its time, with the authorities of the moment.
    Known {
        /// Whom it names.
        caller: Caller,
        /// From when to when it holds.
        valid: (DateTime<Utc>, DateTime<Utc>),
    },
    /// The server itself, in process.
    Itself,
}

/// A certificate that a client showed, judged anew whenever the keys have changed.
#[derive(Debug)]
pub struct Shown {
    chain: Vec<CertificateDer<'static>>,
    /// By which generation of the keys, and what it was worth.
    judged: Mutex<(u64, Arc<Peer>)>,
}

impl Shown {
    /// What a client showed.
    pub fn new(chain: &[CertificateDer<'_>], keys: &Keys, now: DateTime<Utc>) -> Self {
        let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
        let judged = judge(&chain, keys, now);
        Self {
            chain,
            judged: Mutex::new(judged),
        }
    }

    /// What it is worth now.
    pub fn peer(&self, keys: &Keys, now: DateTime<Utc>) -> Arc<Peer> {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.0 != keys.generation() {
            *judged = judge(&self.chain, keys, now);
        }
        judged.1.clone()
    }
}

/// The generation is read first: keys that change meanwhile make it judged again.
fn judge(
    chain: &Vec<CertificateDer<'static>>,
    keys: &Keys,
    now: DateTime<Utc>,
) -> (u64, Arc<Peer>) {
    let generation = keys.generation();
    let peer = Peer::of(chain, &keys.authorities(), &keys.revoked(), now);
    (generation, Arc::new(peer))
}

impl Peer {
    /// Judges what a client showed.
    pub fn of(
        chain: &[CertificateDer<'_>],
        authorities: &Authorities,
        revoked: &Revoked,
        now: DateTime<Utc>,
    ) -> Self {
        let Some((leaf, rest)) = chain.split_first() else {
            return Self::Unknown;
        };
        if let Err(error) = authorities.verify(leaf, rest, now) {
            return Self::Refused(error.to_string());
        }
        let Some((mut caller, valid, serial)) = read(leaf) else {
            return Self::Refused("its subject cannot be read".to_owned());
        };
        let named = Named {
            serial: &serial,
            user: &caller.user,
            groups: &caller.groups,
            begun: valid.0,
        };
        if revoked.names(&named) {
            return Self::Refused("it is revoked".to_owned());
        }
        // An agent whose registration was removed is somebody, as elsewhere, and may nothing, whatever
        // bindings of it come back.
        if revoked.has_group(&named) {
            let ours =
                |group: &String| group == AGENTS_GROUP || group.starts_with(CLUSTER_GROUP_PREFIX);
            caller
                .groups
                .retain(|group| !ours(group) && !revoked.is_group(group));
        }
        Self::Known { caller, valid }
    }

    /// Who it is now; `None` without a certificate.
    pub fn caller(&self, now: DateTime<Utc>) -> Option<Result<Caller, &str>> {
        match self {
            Self::Unknown => None,
            Self::Refused(problem) => Some(Err(problem)),
            Self::Known { caller, valid } if now >= valid.0 && now <= valid.1 => {
                Some(Ok(caller.clone()))
            }
            Self::Known { .. } => Some(Err("it is expired or not yet valid")),
            Self::Itself => Some(Ok(Caller::system())),
        }
    }

    /// When its certificate ends.
    pub fn ends(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Known { valid, .. } => Some(valid.1),
            _ => None,
        }
    }
}

/// From when, and until when.
type Validity = (DateTime<Utc>, DateTime<Utc>);

/// Whom a certificate names, its time and its serial number.
fn read(der: &[u8]) -> Option<(Caller, Validity, String)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let caller = subject(certificate.subject(), der)?;
    let serial = serial(&certificate);
    Some((caller, common::tls::validity(der).ok()?, serial))
}

/// The serial number of a certificate, in lower-case hex without leading zeros.
pub fn serial(certificate: &X509Certificate<'_>) -> String {
    format!("{:x}", certificate.serial)
}

/// The last common name is the user, every organisation a group.
fn subject(name: &X509Name<'_>, der: &[u8]) -> Option<Caller> {
    let user = name.iter_common_name().last()?.as_str().ok()?.to_owned();
    if user.is_empty() {
        return None;
    }
    let groups = name
        .iter_organization()
        .map(|o| o.as_str().map(str::to_owned));
    let mut id = String::from("X509SHA256=");
    for byte in digest(&SHA256, der).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    Some(Caller {
        user,
        uid: String::new(),
        groups: groups.collect::<Result<_, _>>().ok()?,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![id])]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::keys::client;
    use chrono::Duration;

    #[test]
    fn a_certificate_holds_for_its_time_and_its_authority() {
        let (ours, others) = (tempfile::tempdir(), tempfile::tempdir());
        let now: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let open = |dir: std::io::Result<tempfile::TempDir>| {
            Authorities::open(dir.expect("a folder").path(), now).expect("made")
        };
        let (ours, others) = (open(ours), open(others));
        let groups = ["a".to_owned(), "b".to_owned()];
        let until = now + Duration::hours(1);
        let (pem, _) = client::issue(&ours.signer(), "u", &groups, now, until).expect("issued");
        let chain = common::tls::certificates(pem.as_bytes()).expect("PEM");
        let none = Revoked::default();
        let peer = Peer::of(&chain, &ours, &none, now);
        let caller = peer.caller(now).expect("shown").expect("holds");
        assert_eq!(
            (caller.user.as_str(), caller.groups),
            ("u", groups.to_vec())
        );
        assert!(caller.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
        assert!(
            peer.caller(until + Duration::seconds(1))
                .expect("shown")
                .is_err()
        );
        let foreign = Peer::of(&chain, &others, &none, now);
        assert!(foreign.caller(now).expect("shown").is_err());
        assert!(Peer::of(&[], &ours, &none, now).caller(now).is_none());
    }
}
