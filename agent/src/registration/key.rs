//! The agent's key, and the certificate request that is made with it.
//!
//! Pure but for the random numbers. The request is what the hub accepts and nothing else: one CN, two
//! O, no attributes, no extensions, PEM of 64 columns and LF.

use common::chance::secret;
use common::identity::{AgentSubject, RegistrationId};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use std::fmt;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

/// OID of organizationName; rcgen keeps one value a type, so the second O comes in by its OID.
const OID_ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// A failure to make or read a key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No key pair could be made.
    #[error("failed to generate a key pair")]
    Generate(#[source] rcgen::Error),
    /// Stored text is not a private key.
    #[error("failed to read the stored private key")]
    Read(#[source] rcgen::Error),
    /// The request could not be encoded or signed.
    #[error("failed to make the certificate request")]
    Request(#[source] rcgen::Error),
}

/// A private key as PEM, never shown.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct KeyPem(String);

impl KeyPem {
    /// The text, for the TLS layer and the store.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyPem(redacted)")
    }
}

/// Makes a new ECDSA P-256 key and the registration id that follows from it.
pub fn generate() -> Result<(KeyPem, RegistrationId), Error> {
    let pair = secret::key_pair().map_err(Error::Generate)?;
    let id = RegistrationId::of_public_key(&pair.subject_public_key_info());
    Ok((KeyPem(pair.serialize_pem()), id))
}

/// Makes the request for `subject`, signed by `key`.
pub fn request(key: &KeyPem, subject: &AgentSubject) -> Result<String, Error> {
    let pair = KeyPair::from_pem(&key.0).map_err(Error::Read)?;
    let [agents, cluster] = subject.organizations();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, agents);
    name.push(DnType::CustomDnType(OID_ORGANIZATION.to_vec()), cluster);
    name.push(DnType::CommonName, subject.common_name());
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    let request = params.serialize_request(&pair).map_err(Error::Request)?;
    request.pem().map_err(Error::Request)
}

/// The DER of the public key that belongs to `key`.
pub fn public_key(key: &KeyPem) -> Result<Vec<u8>, Error> {
    let pair = KeyPair::from_pem(&key.0).map_err(Error::Read)?;
    Ok(pair.subject_public_key_info())
}

/// Whether a request, as a CSR carries it, asks for the key `spki`. Its signature differs each time
/// it is made, so only the key tells whose it is.
pub fn is_request_for(request_pem: &[u8], spki: &[u8]) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(request_pem) else {
        return false;
    };
    X509CertificationRequest::from_der(&pem.contents)
        .is_ok_and(|(_, csr)| csr.certification_request_info.subject_pki.raw == spki)
}

/// Whether the first certificate of a chain carries the key `spki`.
pub fn is_certificate_for(certificate: &X509Certificate<'_>, spki: &[u8]) -> bool {
    certificate.public_key().raw == spki
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::names::ClusterName;

    #[test]
    fn request_is_the_canonical_one() {
        let (key, registration) = generate().expect("key");
        let spki = public_key(&key).expect("public key");
        assert_eq!(RegistrationId::of_public_key(&spki), registration);
        let subject = AgentSubject {
            cluster: ClusterName::parse("m1").expect("valid"),
            registration,
        };
        let text = request(&key, &subject).expect("request");
        assert!(is_request_for(text.as_bytes(), &spki));
        let (other, _) = generate().expect("key");
        assert!(!is_request_for(
            text.as_bytes(),
            &public_key(&other).expect("public key")
        ));

        let (rest, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).expect("PEM");
        assert!(rest.is_empty());
        assert_eq!(pem.label, "CERTIFICATE REQUEST");
        assert!(!text.contains('\r') && text.ends_with("-----END CERTIFICATE REQUEST-----\n"));
        let body: Vec<&str> = text.lines().filter(|l| !l.starts_with('-')).collect();
        let (last, full) = body.split_last().expect("a body");
        assert!(full.iter().all(|l| l.len() == 64) && (1..=64).contains(&last.len()));

        let (rest, csr) = X509CertificationRequest::from_der(&pem.contents).expect("DER");
        assert!(rest.is_empty());
        let info = csr.certification_request_info;
        assert_eq!(info.attributes().len(), 0);
        let text_of = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            a.as_str().expect("a string").to_owned()
        };
        let names: Vec<String> = info.subject.iter_common_name().map(text_of).collect();
        let orgs: Vec<String> = info.subject.iter_organization().map(text_of).collect();
        assert_eq!(info.subject.iter_attributes().count(), 3);
        assert_eq!(names, [subject.common_name()]);
        assert_eq!(AgentSubject::parse(&names[0], &orgs), Some(subject));
    }

    #[test]
    fn private_keys_are_not_shown() {
        let (key, _) = generate().expect("key");
        assert_eq!(format!("{key:?}"), "KeyPem(redacted)");
    }
}
