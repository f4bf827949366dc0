//! A request for a certificate as the signer reads it. Pure.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

/// Why a request is not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// Not one block of PEM.
    #[error("the request is not one PEM block of type CERTIFICATE REQUEST")]
    Pem,
    /// Not a request.
    #[error("the request cannot be read as PKCS#10")]
    Der,
    /// Whoever made it does not have the key.
    #[error("the request is not signed by its own key")]
    Signature,
    /// No user.
    #[error("the subject of the request has no common name")]
    Nameless,
    /// A usage that a client's certificate does not have.
    #[error(
        "invalid usage for client certificate: only digital signature, key encipherment and client auth"
    )]
    Usages,
    /// A name beside the subject.
    #[error("a client certificate has no subject alternative names")]
    Names,
    /// Our own failure.
    #[error("failed to sign: {0}")]
    Sign(String),
}

/// What of a request goes into a certificate.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: Vec<u8>,
    pub(super) public_key: Vec<u8>,
    pub(super) key_encipherment: bool,
}

impl Request {
    pub(super) fn read(text: &[u8], usages: &[String]) -> Result<Self, Unfit> {
        let (rest, block) = x509_parser::pem::parse_x509_pem(text).map_err(|_| Unfit::Pem)?;
        if block.label != "CERTIFICATE REQUEST" || !rest.trim_ascii().is_empty() {
            return Err(Unfit::Pem);
        }
        let (rest, request) =
            X509CertificationRequest::from_der(&block.contents).map_err(|_| Unfit::Der)?;
        if !rest.is_empty() {
            return Err(Unfit::Der);
        }
        let body = &request.certification_request_info;
        if !signed_by_own_key(&request) {
            return Err(Unfit::Signature);
        }
        if body.subject.iter_common_name().next().is_none() {
            return Err(Unfit::Nameless);
        }
        if request.requested_extensions().is_some_and(|mut all| {
            all.any(|extension| {
                matches!(
                    extension,
                    x509_parser::extensions::ParsedExtension::SubjectAlternativeName(_)
                )
            })
        }) {
            return Err(Unfit::Names);
        }
        let known = ["digital signature", "key encipherment", "client auth"];
        if !usages.iter().any(|usage| usage == "client auth")
            || usages.iter().any(|usage| !known.contains(&usage.as_str()))
        {
            return Err(Unfit::Usages);
        }
        Ok(Self {
            name: body.subject.as_raw().to_vec(),
            public_key: body.subject_pki.raw.to_vec(),
            key_encipherment: usages.iter().any(|usage| usage == "key encipherment"),
        })
    }
}

fn signed_by_own_key(request: &X509CertificationRequest<'_>) -> bool {
    let body = &request.certification_request_info;
    let curve = body
        .subject_pki
        .algorithm
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.as_oid().ok())
        .map(|oid| oid.to_id_string())
        .unwrap_or_default();
    let algorithm = request.signature_algorithm.algorithm.to_id_string();
    let algorithm: &dyn VerificationAlgorithm = match (algorithm.as_str(), curve.as_str()) {
        ("1.2.840.10045.4.3.2", "1.2.840.10045.3.1.7") => &ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", "1.3.132.0.34") => &ECDSA_P384_SHA384_ASN1,
        ("1.3.101.112", _) => &ED25519,
        ("1.2.840.113549.1.1.11", _) => &RSA_PKCS1_2048_8192_SHA256,
        ("1.2.840.113549.1.1.12", _) => &RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", _) => &RSA_PKCS1_2048_8192_SHA512,
        _ => return false,
    };
    let key = &body.subject_pki.subject_public_key.data;
    UnparsedPublicKey::new(algorithm, key)
        .verify(body.raw, &request.signature_value.data)
        .is_ok()
}
