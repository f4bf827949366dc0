//! Pins of CA certificates: `sha256:` and the digest of the public key, as kubeadm writes them. Pure.

use crate::tls;
use ring::digest::{SHA256, digest};
use std::fmt;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The SHA-256 of a CA certificate's SubjectPublicKeyInfo.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CaPin([u8; 32]);

/// Why a text is not a pin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CA pin {0:?} must be sha256: and 64 hexadecimal digits")]
pub struct InvalidPin(String);

impl CaPin {
    /// Reads `sha256:<hex>`.
    pub fn parse(text: &str) -> Result<Self, InvalidPin> {
        let invalid = || InvalidPin(text.to_owned());
        let hex = text.strip_prefix("sha256:").ok_or_else(invalid)?;
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut sum = [0; 32];
        for (n, byte) in sum.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(sum))
    }

    /// The pin of a certificate.
    pub fn of_certificate(der: &[u8]) -> Result<Self, tls::Error> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| tls::Error::Certificate(error.to_string()))?;
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, certificate.public_key().raw).as_ref());
        Ok(Self(sum))
    }

    /// The pins of every certificate in a PEM.
    pub fn of_pem(pem: &[u8]) -> Result<Vec<Self>, tls::Error> {
        tls::certificates(pem)?
            .iter()
            .map(|der| Self::of_certificate(der))
            .collect()
    }
}

/// Whether a certificate may issue others.
pub(super) fn is_authority(der: &[u8]) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| certificate.is_ca())
}

impl fmt::Display for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for CaPin {
    type Err = InvalidPin;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::authority;

    #[test]
    fn pins_read_back_and_belong_to_keys() {
        let (a, b) = (authority("hub"), authority("hub"));
        let pin = |pem: String| {
            CaPin::of_pem(pem.as_bytes())
                .expect("a certificate")
                .remove(0)
        };
        let (a, b) = (pin(a.pem()), pin(b.pem()));
        assert_ne!(a, b);
        assert_eq!(CaPin::parse(&a.to_string()), Ok(a));
        for bad in [
            "",
            "sha256:",
            "sha1:00",
            &format!("sha256:{}", "é".repeat(32)),
            "sha256:zz",
        ] {
            assert!(CaPin::parse(bad).is_err(), "{bad}");
        }
    }
}
