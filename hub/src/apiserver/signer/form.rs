//! Whether the bytes of a certificate request are one, signed by the key that it names, and those of a
//! certificate are one.

use crate::go::quote;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Organisations that the subject of a request names.
pub fn organizations(pem: &[u8]) -> Vec<String> {
    let Ok(der) = block(pem) else {
        return Vec::new();
    };
    let Ok((_, request)) = X509CertificationRequest::from_der(&der) else {
        return Vec::new();
    };
    let subject = &request.certification_request_info.subject;
    subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok())
        .map(str::to_owned)
        .collect()
}

/// What is wrong with a request in PEM.
pub fn check(pem: &[u8]) -> Result<(), String> {
    let der = block(pem)?;
    let (_, request) =
        X509CertificationRequest::from_der(&der).map_err(|why| format!("x509: {why}"))?;
    let info = &request.certification_request_info;
    let key = &info.subject_pki;
    let curve = key
        .algorithm
        .parameters
        .as_ref()
        .and_then(|parameters| parameters.as_oid().ok())
        .map(|oid| oid.to_id_string())
        .unwrap_or_default();
    let algorithm = algorithm(
        &request.signature_algorithm.algorithm.to_id_string(),
        &curve,
    )
    .ok_or("x509: cannot verify signature: algorithm unimplemented")?;
    UnparsedPublicKey::new(algorithm, key.subject_public_key.data.as_ref())
        .verify(info.raw, request.signature_value.data.as_ref())
        .map_err(|_| "x509: the signature does not match the public key".to_owned())
}

/// What is wrong with a certificate in PEM; none at all is fine.
pub fn check_certificate(pem: &[u8]) -> Result<(), String> {
    if pem.is_empty() {
        return Ok(());
    }
    let (mut rest, mut blocks) = (pem, 0);
    while let Ok((after, block)) = x509_parser::pem::parse_x509_pem(rest) {
        if block.label != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {}",
                quote(&block.label)
            ));
        }
        X509Certificate::from_der(&block.contents).map_err(|why| format!("x509: {why}"))?;
        blocks += 1;
        rest = after;
    }
    if blocks == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

fn block(pem: &[u8]) -> Result<Vec<u8>, String> {
    const WRONG: &str = "PEM block type must be CERTIFICATE REQUEST";
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| WRONG.to_owned())?;
    if pem.label == "CERTIFICATE REQUEST" {
        Ok(pem.contents)
    } else {
        Err(WRONG.to_owned())
    }
}

fn algorithm(signature: &str, curve: &str) -> Option<&'static dyn VerificationAlgorithm> {
    const P256: &str = "1.2.840.10045.3.1.7";
    const P384: &str = "1.3.132.0.34";
    Some(match (signature, curve) {
        ("1.2.840.10045.4.3.2", P256) => &signature::ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.2", P384) => &signature::ECDSA_P384_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", P256) => &signature::ECDSA_P256_SHA384_ASN1,
        ("1.2.840.10045.4.3.3", P384) => &signature::ECDSA_P384_SHA384_ASN1,
        ("1.2.840.113549.1.1.11", _) => &signature::RSA_PKCS1_2048_8192_SHA256,
        ("1.2.840.113549.1.1.12", _) => &signature::RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", _) => &signature::RSA_PKCS1_2048_8192_SHA512,
        ("1.3.101.112", _) => &signature::ED25519,
        _ => return None,
    })
}
