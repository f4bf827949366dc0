//! Decodes a PKCS #10 request, and refuses every form but the one our agents send. Pure.

use super::der::{self, Malformed, Reader, enter, tag};
use super::pem;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey, VerificationAlgorithm,
};

/// A request that passed.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    /// SubjectPublicKeyInfo, DER.
    pub(super) public_key: Vec<u8>,
}

/// Why a request is not in the one form that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// Not one PEM block, or not written as everybody writes it.
    #[error(
        "the request must be one PEM block CERTIFICATE REQUEST of 64 columns with nothing around it"
    )]
    Pem,
    /// Not one DER value of the expected shape.
    #[error("the request is malformed: {0}")]
    Der(String),
    /// Extensions ask for more than a subject: alternative names, a CA, other usages.
    #[error("the request must have no attributes and no extensions")]
    Attributes,
    /// Another key.
    #[error("the request's key must be ECDSA P-256 with SHA-256, or P-384 with SHA-384")]
    Key,
    /// The holder of the key did not make this request.
    #[error("the request's signature does not match its key")]
    Signature,
}

/// A kind of key: the start of its SubjectPublicKeyInfo up to the point, its signature algorithm.
struct KeyKind {
    prefix: &'static [u8],
    point: usize,
    signature: &'static [u8],
    verifier: &'static dyn VerificationAlgorithm,
}

/// Uncompressed points on named curves, each with its hash; every byte but the point is fixed.
const KEY_KINDS: [KeyKind; 2] = [
    KeyKind {
        prefix: &[
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ],
        point: 65,
        signature: &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
        verifier: &ECDSA_P256_SHA256_ASN1,
    },
    KeyKind {
        prefix: &[
            0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06,
            0x05, 0x2b, 0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
        ],
        point: 97,
        signature: &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
        verifier: &ECDSA_P384_SHA384_ASN1,
    },
];

impl Request {
    /// Decodes PEM text.
    pub(super) fn decode(text: &[u8]) -> Result<Self, NotCanonical> {
        let der = pem::decode(pem::REQUEST, text).ok_or(NotCanonical::Pem)?;
        let mut outside = Reader::new(&der);
        let mut reader = enter(&mut outside, tag::SEQUENCE)?;
        outside.end()?;
        let info = reader.read(tag::SEQUENCE)?;
        let algorithm = reader.read(tag::SEQUENCE)?.content;
        let signature = reader.read(tag::BIT_STRING)?.content;
        reader.end()?;

        let mut reader = Reader::new(info.content);
        if reader.read(tag::INTEGER)?.content != [0] {
            return Err(Malformed::Tag.into());
        }
        let name = der::read_name(&mut reader)?;
        let key = reader.read(tag::SEQUENCE)?.raw;
        if !reader.read(tag::CONTEXT_0)?.content.is_empty() {
            return Err(NotCanonical::Attributes);
        }
        reader.end()?;

        let (kind, point) = KEY_KINDS
            .iter()
            .find_map(|kind| Some((kind, key.strip_prefix(kind.prefix)?)))
            .filter(|(kind, point)| {
                point.len() == kind.point && point[0] == 4 && algorithm == kind.signature
            })
            .ok_or(NotCanonical::Key)?;
        let signature = signature
            .strip_prefix(&[0])
            .ok_or(NotCanonical::Signature)?;
        UnparsedPublicKey::new(kind.verifier, point)
            .verify(info.raw, signature)
            .map_err(|_| NotCanonical::Signature)?;
        Ok(Self {
            common_name: name.common_name,
            organizations: name.organizations,
            public_key: key.to_vec(),
        })
    }
}

impl From<Malformed> for NotCanonical {
    fn from(malformed: Malformed) -> Self {
        Self::Der(malformed.to_string())
    }
}
