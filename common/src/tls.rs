//! TLS as a client: the one crypto provider, a certificate that can be exchanged while running, and
//! refusals that say who issued what the peer showed.

mod client;
mod verify;

pub use client::ClientTls;
#[cfg(test)]
pub(crate) use verify::testing;
pub use verify::{PeerProblem, verifier};

use crate::signal;
use chrono::{DateTime, Utc};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The PEM cannot be read.
    #[error("failed to read PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// No CA is named, and the machine has none either.
    #[error("no CA certificate is given and this machine has no bundle of them")]
    NoSystemRoots,
    /// The data are not base64.
    #[error("failed to decode base64 around a certificate or key")]
    Base64,
    /// The PEM holds no certificate.
    #[error("there is no certificate in the PEM")]
    NoCertificate,
    /// A certificate cannot be parsed.
    #[error("failed to parse a certificate: {0}")]
    Certificate(String),
    /// The key is unusable or is not the certificate's.
    #[error("failed to use the private key with its certificate")]
    Key(#[source] rustls::Error),
    /// A CA cannot be used as a root.
    #[error("failed to use a CA certificate as a root")]
    Root(#[source] rustls::Error),
    /// The verifier cannot be built.
    #[error("failed to build the certificate verifier")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// A file cannot be read.
    #[error("failed to read {path}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Makes ring the crypto provider of the process; may be called again.
pub fn install_provider() {
    // An error means that a provider is installed already.
    let _ = ring::default_provider().install_default();
}

/// Reads every certificate of a PEM.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(Error::Pem)?;
    if found.is_empty() {
        return Err(Error::NoCertificate);
    }
    Ok(found)
}

/// When the first certificate of a PEM ends.
pub fn not_after(pem: &[u8]) -> Result<DateTime<Utc>, Error> {
    let first = certificates(pem)?.swap_remove(0);
    Ok(validity(&first)?.1)
}

/// From when to when a certificate is valid.
pub fn validity(der: &[u8]) -> Result<(DateTime<Utc>, DateTime<Utc>), Error> {
    let cert = parse(der)?;
    let time = |t: x509_parser::time::ASN1Time| {
        DateTime::from_timestamp(t.timestamp(), 0)
            .ok_or_else(|| Error::Certificate("its validity is out of range".to_owned()))
    };
    Ok((
        time(cert.validity().not_before)?,
        time(cert.validity().not_after)?,
    ))
}

/// The issuer's name as people read it.
pub fn issuer(der: &[u8]) -> Result<String, Error> {
    Ok(parse(der)?.issuer().to_string())
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, Error> {
    X509Certificate::from_der(der)
        .map(|(_, cert)| cert)
        .map_err(|error| Error::Certificate(error.to_string()))
}

/// A client certificate that can be exchanged while connections use it. Clones share it.
#[derive(Clone)]
pub struct CertificateSwap(Arc<Shared>);

struct Shared {
    current: RwLock<Option<Current>>,
    version: signal::Sender<u64>,
}

struct Current {
    key: Arc<CertifiedKey>,
    validity: (DateTime<Utc>, DateTime<Utc>),
}

impl CertificateSwap {
    /// Holds no certificate yet.
    pub fn empty() -> Self {
        Self(Arc::new(Shared {
            current: RwLock::new(None),
            version: signal::Sender::new(0),
        }))
    }

    /// Puts a certificate chain and its key in place. New connections use them; clients made by
    /// [`crate::client`] open new connections at their next request.
    pub fn set(&self, chain_pem: &[u8], key_pem: &[u8]) -> Result<(), Error> {
        let chain = certificates(chain_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(Error::Pem)?;
        let validity = match chain.first() {
            Some(leaf) => validity(leaf)?,
            None => return Err(Error::NoCertificate),
        };
        let key =
            CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(Error::Key)?;
        let current = Current {
            key: Arc::new(key),
            validity,
        };
        *self
            .0
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(current);
        self.0.version.send_modify(|version| *version += 1);
        Ok(())
    }

    /// Tells of every exchange.
    pub fn changed(&self) -> signal::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Counts the exchanges.
    pub fn version(&self) -> u64 {
        *self.0.version.borrow()
    }

    /// From when to when the current certificate is valid.
    pub fn validity(&self) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let current = self
            .0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|c| c.validity)
    }

    /// When the current certificate ends.
    pub fn not_after(&self) -> Option<DateTime<Utc>> {
        self.validity().map(|(_, not_after)| not_after)
    }

    fn key(&self) -> Option<Arc<CertifiedKey>> {
        let current = self
            .0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|c| c.key.clone())
    }
}

impl fmt::Debug for CertificateSwap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateSwap")
            .field("version", &self.version())
            .field("not_after", &self.not_after())
            .finish_non_exhaustive()
    }
}

impl ResolvesClientCert for CertificateSwap {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _sigschemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.key()
    }

    fn has_certs(&self) -> bool {
        self.key().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::{authority, leaf};

    #[test]
    fn a_swap_takes_only_matching_pairs_and_tells_of_it() {
        let ca = authority("hub");
        let (cert, key) = leaf(&ca, &["m1"]);
        let (_, other_key) = leaf(&ca, &["m1"]);
        let swap = CertificateSwap::empty();
        assert!(!swap.has_certs());
        let changed = swap.changed();
        assert!(swap.set(cert.as_bytes(), other_key.as_bytes()).is_err());
        assert!(swap.set(b"", key.as_bytes()).is_err());
        assert_eq!(swap.version(), 0);
        swap.set(cert.as_bytes(), key.as_bytes()).expect("a pair");
        assert!(changed.has_changed().expect("open"));
        assert_eq!(
            swap.not_after(),
            Some(not_after(cert.as_bytes()).expect("parses"))
        );
        assert!(!format!("{swap:?}").contains("PRIVATE"));
    }
}
