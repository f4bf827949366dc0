//! Verifies servers as webpki does and words the refusals for people.

use super::{Error, issuer};
use chrono::{DateTime, Utc};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// What is wrong with the certificate that a server showed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerProblem {
    /// Somebody else's CA issued it.
    #[error(
        "certificate issued by {issuer}, not the hub's CA: a TLS-inspecting proxy, or another server?"
    )]
    ForeignIssuer {
        /// Who issued it.
        issuer: String,
    },
    /// By this machine's clock it is not valid yet.
    #[error(
        "certificate not valid before {not_before} but the clock here shows {now}: clock skew?"
    )]
    NotYetValid {
        /// When it begins.
        not_before: DateTime<Utc>,
        /// What the clock showed.
        now: DateTime<Utc>,
    },
    /// By this machine's clock it is over.
    #[error("certificate expired {not_after} and the clock here shows {now}: clock skew?")]
    Expired {
        /// When it ended.
        not_after: DateTime<Utc>,
        /// What the clock showed.
        now: DateTime<Utc>,
    },
    /// It is for other names.
    #[error("certificate is not for {expected} but for {presented}")]
    WrongName {
        /// The name that was dialled.
        expected: String,
        /// The names in it.
        presented: String,
    },
}

/// A verifier that trusts `roots`.
pub fn verifier(roots: &[CertificateDer<'_>]) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone().into_owned()).map_err(Error::Root)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
        .build()
        .map_err(Error::Verifier)?;
    Ok(Arc::new(Explaining(inner)))
}

#[derive(Debug)]
struct Explaining(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Explaining {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| explain(error, end_entity))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Puts what is known into the error, which otherwise would not name the issuer.
fn explain(error: rustls::Error, end_entity: &CertificateDer<'_>) -> rustls::Error {
    let rustls::Error::InvalidCertificate(reason) = &error else {
        return error;
    };
    let problem = match reason {
        // A CA of the same name with another key shows as a bad signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            PeerProblem::ForeignIssuer {
                issuer: issuer(end_entity).unwrap_or_else(|_| "nobody readable".to_owned()),
            }
        }
        CertificateError::NotValidYetContext { time, not_before } => PeerProblem::NotYetValid {
            not_before: date(*not_before),
            now: date(*time),
        },
        CertificateError::ExpiredContext { time, not_after } => PeerProblem::Expired {
            not_after: date(*not_after),
            now: date(*time),
        },
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => PeerProblem::WrongName {
            expected: expected.to_str().into_owned(),
            presented: presented.join(", "),
        },
        _ => return error,
    };
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(problem))))
}

fn date(time: UnixTime) -> DateTime<Utc> {
    i64::try_from(time.as_secs())
        .ok()
        .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Certificates for tests.

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
        KeyUsagePurpose,
    };

    pub(crate) fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        CertifiedIssuer::self_signed(params, crate::chance::secret::key_pair().expect("a key"))
            .expect("a CA")
    }

    pub(crate) fn leaf(ca: &CertifiedIssuer<'static, KeyPair>, names: &[&str]) -> (String, String) {
        leaf_with(ca, names, |_| {})
    }

    pub(crate) fn leaf_with(
        ca: &CertifiedIssuer<'static, KeyPair>,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = crate::chance::secret::key_pair().expect("a key");
        let cert = params.signed_by(&key, ca).expect("signed");
        (cert.pem(), key.serialize_pem())
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{authority, leaf, leaf_with};
    use super::*;
    use crate::tls::certificates;

    fn judge(roots: &str, leaf_pem: &str, name: &'static str) -> Result<(), Option<PeerProblem>> {
        let verifier = verifier(&certificates(roots.as_bytes()).expect("roots")).expect("builds");
        let leaf = certificates(leaf_pem.as_bytes())
            .expect("leaf")
            .swap_remove(0);
        let name = ServerName::try_from(name).expect("a name");
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
        match verifier.verify_server_cert(&leaf, &[], &name, &[], now) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(e)))) => {
                Err(e.downcast_ref::<PeerProblem>().cloned())
            }
            Err(_) => Err(None),
        }
    }

    #[test]
    fn refusals_are_explained() {
        let (hub, other) = (authority("hub"), authority("Corp Inspection"));
        let roots = hub.pem();
        assert_eq!(
            judge(&roots, &leaf(&hub, &["hub.test"]).0, "hub.test"),
            Ok(())
        );
        let foreign = PeerProblem::ForeignIssuer {
            issuer: "CN=Corp Inspection".to_owned(),
        };
        assert_eq!(
            judge(&roots, &leaf(&other, &["hub.test"]).0, "hub.test"),
            Err(Some(foreign))
        );
        let impostor = authority("hub");
        assert!(matches!(
            judge(&roots, &leaf(&impostor, &["hub.test"]).0, "hub.test"),
            Err(Some(PeerProblem::ForeignIssuer { .. }))
        ));
        assert!(matches!(
            judge(&roots, &leaf(&hub, &["else.test"]).0, "hub.test"),
            Err(Some(PeerProblem::WrongName { .. }))
        ));
        let old = leaf_with(&hub, &["hub.test"], |p| {
            p.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        assert!(matches!(
            judge(&roots, &old.0, "hub.test"),
            Err(Some(PeerProblem::Expired { .. }))
        ));
        let early = leaf_with(&hub, &["hub.test"], |p| {
            p.not_before = rcgen::date_time_ymd(2090, 1, 1);
        });
        assert!(matches!(
            judge(&roots, &early.0, "hub.test"),
            Err(Some(PeerProblem::NotYetValid { .. }))
        ));
    }
}
