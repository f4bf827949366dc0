//! Reads the subject of a certificate that was issued, as the signer wrote it. Pure.

use super::der::{Malformed, Reader, enter, read_name, tag};
use super::pem;
use common::identity::AgentSubject;

/// Why an issued certificate is not one of an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOurCertificate {
    /// Not a PEM block CERTIFICATE.
    #[error("the signer did not return a certificate in PEM")]
    Pem,
    /// Not a certificate, or a subject with other attributes.
    #[error("the issued certificate is not readable as an agent's: {0}")]
    Der(String),
    /// Another subject.
    #[error("the issued certificate names {common_name:?} of {organizations:?}")]
    Subject {
        /// Its common name.
        common_name: String,
        /// Its organisations.
        organizations: Vec<String>,
    },
}

/// The subject of the first certificate in `text`.
pub fn issued_subject(text: &[u8]) -> Result<AgentSubject, NotOurCertificate> {
    let (der, _chain) = pem::decode_first(pem::CERTIFICATE, text).ok_or(NotOurCertificate::Pem)?;
    let name = read_subject(&der).map_err(|error| NotOurCertificate::Der(error.to_string()))?;
    AgentSubject::parse(&name.common_name, &name.organizations).ok_or({
        NotOurCertificate::Subject {
            common_name: name.common_name,
            organizations: name.organizations,
        }
    })
}

fn read_subject(der: &[u8]) -> Result<super::der::Name, Malformed> {
    let mut outside = Reader::new(der);
    let mut certificate = enter(&mut outside, tag::SEQUENCE)?;
    outside.end()?;
    let mut reader = enter(&mut certificate, tag::SEQUENCE)?;
    // Version, serial number, algorithm, issuer, validity; then the subject.
    reader.read(tag::CONTEXT_0)?;
    reader.read(tag::INTEGER)?;
    reader.read(tag::SEQUENCE)?;
    reader.read(tag::SEQUENCE)?;
    reader.read(tag::SEQUENCE)?;
    read_name(&mut reader)
}
