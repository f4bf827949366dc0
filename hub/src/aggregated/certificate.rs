//! The certificate of the port: of an authority that lives as long as this process and signs nothing else. Its key is
//! nowhere but here; who it is, agents, the API server and other replicas are told over the hub's own API. To those
//! replicas it is shown too: its name is the [`id`] of the authority.

use super::announce::SERVICE_HOST;
use crate::apiserver::http::server::Tls;
use chrono::{DateTime, Datelike as _, Utc};
use common::chance::secret;
use common::discovery::CaPin;
use common::secret::Secret;
use common::tls::{self, CertificateSwap};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::sync::Arc;

/// For how long it holds, in years: longer than any process.
const YEARS: i32 = 10;

/// How much of the digest of its authority's key is in the name of a replica, in digits: 128 bits.
const DIGEST: usize = 32;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A name that no certificate may have, or no key.
    #[error(transparent)]
    Make(#[from] rcgen::Error),
    /// The key cannot be used.
    #[error(transparent)]
    Use(#[from] rustls::Error),
    /// What was made cannot be read.
    #[error(transparent)]
    Read(#[from] rustls::pki_types::pem::Error),
    /// The same of a certificate.
    #[error(transparent)]
    Parse(#[from] tls::Error),
}

/// What handshakes are made with, and whom they are verified by.
pub(super) struct Made {
    pub(super) tls: Tls,
    pub(super) ca_pem: String,
    /// The name of the replica.
    pub(super) id: String,
    /// What it shows to other replicas.
    pub(super) identity: CertificateSwap,
    /// The same without its key.
    #[cfg(test)]
    pub(super) certificate_pem: String,
}

/// The name of the replica whose port is verified by this authority: nobody has it without the authority's key.
pub(super) fn id(authority: &CertificateDer<'_>) -> Result<String, tls::Error> {
    let pin = CaPin::of_certificate(authority)?.to_string();
    let digest = pin.strip_prefix("sha256:").unwrap_or(&pin);
    let short: String = digest.chars().take(DIGEST).collect();
    Ok(format!("towline-hub-access-{short}"))
}

impl Made {
    /// One for these hosts, and for the name by which the API server asks for it.
    pub(super) fn new(hosts: &BTreeSet<String>, now: DateTime<Utc>) -> Result<Self, Error> {
        let mut ca = named("towline-hub-access-ca", now)?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(ca, secret::key_pair()?)?;
        let id = id(issuer.der())?;
        let mut leaf = named(&id, now)?;
        let hosts = hosts.iter().map(String::as_str).chain([SERVICE_HOST]);
        let hosts: BTreeSet<String> = hosts.map(str::to_owned).collect();
        leaf.subject_alt_names =
            CertificateParams::new(hosts.into_iter().collect::<Vec<_>>())?.subject_alt_names;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = secret::key_pair()?;
        let signed = leaf.signed_by(&key, &issuer)?;
        let key_pem = Secret::new(key.serialize_pem());
        let identity = CertificateSwap::empty();
        identity.set(signed.pem().as_bytes(), key_pem.expose().as_bytes())?;
        let private = PrivateKeyDer::from_pem_slice(key_pem.expose().as_bytes())?;
        let chain = vec![signed.der().clone()];
        let key = CertifiedKey::from_der(chain, private, &ring::default_provider())?;
        Ok(Self {
            tls: Tls::new(Arc::new(key), &[])?,
            ca_pem: issuer.pem(),
            id,
            identity,
            #[cfg(test)]
            certificate_pem: signed.pem(),
        })
    }
}

fn named(name: &str, now: DateTime<Utc>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // From the first day of this year: clocks differ.
    params.not_before = rcgen::date_time_ymd(now.year(), 1, 1) - DAY;
    params.not_after = rcgen::date_time_ymd(now.year() + YEARS, 1, 1);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Clocks differ at the turn of a year too.
const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use common::tls::ClientTls;

    #[test]
    fn whoever_is_told_the_authority_verifies_the_port() {
        tls::install_provider();
        let now: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let hosts = ["hub.example".to_owned(), "192.0.2.1".to_owned()].into();
        let made = Made::new(&hosts, now).expect("made");
        let roots = tls::certificates(made.ca_pem.as_bytes()).expect("PEM");
        assert_eq!(roots.len(), 1);
        let (from, until) = tls::validity(&roots[0]).expect("valid");
        assert!(from < now && until > now + chrono::Duration::days(3000));
        let clock: common::time::SharedClock = Arc::new(common::time::SystemClock);
        ClientTls::new(&roots, None, &clock).expect("it is an authority");
    }
}
