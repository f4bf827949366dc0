//! What a client does in the handshake: which servers it trusts by which clock, and what it shows them.

use super::{CertificateSwap, Error, verifier};
use crate::time::SharedClock;
use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// TLS as a client. Clones share everything.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    /// That of the configuration, which does not give it out.
    verifier: Arc<dyn ServerCertVerifier>,
}

impl ClientTls {
    /// Trusts servers of `roots` alone, by the time of `clock`, and shows them `identity`.
    pub fn new(
        roots: &[CertificateDer<'_>],
        identity: Option<CertificateSwap>,
        clock: &SharedClock,
    ) -> Result<Self, Error> {
        Self::with_verifier(verifier(roots)?, identity, clock)
    }

    /// The same with a verifier of the caller's.
    pub fn with_verifier(
        verifier: Arc<dyn ServerCertVerifier>,
        identity: Option<CertificateSwap>,
        clock: &SharedClock,
    ) -> Result<Self, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Error::Key)?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let mut config = match identity {
            Some(swap) => builder.with_client_cert_resolver(Arc::new(swap)),
            None => builder.with_no_client_auth(),
        };
        // A resumed session would carry the client certificate of the first one past its exchange.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.time_provider = Arc::new(ClockTime(clock.clone()));
        Ok(Self {
            config: Arc::new(config),
            verifier,
        })
    }

    /// The same, with these protocols offered to the server and no others.
    #[must_use]
    pub fn offering(mut self, protocols: Vec<Vec<u8>>) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = protocols;
        self
    }

    /// What the TLS library works by.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The handshake without its bytes, for connections that have none: judges what the server at `name`
    /// shows, its own certificate first, as on a socket, and returns what is shown to it; nothing without an
    /// identity.
    pub fn meet(
        &self,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> Result<Vec<CertificateDer<'static>>, rustls::Error> {
        let (own, others) = shown
            .split_first()
            .ok_or(rustls::Error::NoCertificatesPresented)?;
        let now = self.config.time_provider.current_time();
        let now = now.ok_or(rustls::Error::FailedToGetCurrentTime)?;
        self.verifier
            .verify_server_cert(own, others, name, &[], now)?;
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
        let mine = self.config.client_auth_cert_resolver.resolve(&[], &schemes);
        Ok(mine.map_or_else(Vec::new, |mine| mine.cert.clone()))
    }
}

/// TLS by our clock, so that tests can turn it.
struct ClockTime(SharedClock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().timestamp()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

impl fmt::Debug for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockTime")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{SharedClock, SimClock, SystemClock};
    use crate::tls::certificates;
    use crate::tls::testing::{authority, leaf};

    fn der(pem: &str) -> Vec<CertificateDer<'static>> {
        certificates(pem.as_bytes()).expect("a certificate")
    }

    #[tokio::test(start_paused = true)]
    async fn what_meets_judges_as_a_handshake_does() {
        let (ca, other) = (authority("hub"), authority("hub"));
        let (chain, _) = leaf(&ca, &["hub.test"]);
        let (mine, key) = leaf(&ca, &["m1"]);
        let swap = CertificateSwap::empty();
        swap.set(mine.as_bytes(), key.as_bytes()).expect("a pair");
        let name = |name: &str| ServerName::try_from(name.to_owned()).expect("a name");
        let now: SharedClock = Arc::new(SystemClock);
        let long_ago: SharedClock = Arc::new(SimClock::starting_at(
            "1971-01-01T00:00:00Z".parse().expect("a time"),
        ));
        let tls = |ca: &str, clock| ClientTls::new(&der(ca), Some(swap.clone()), clock);
        let tls = |ca: &str, clock| tls(ca, clock).expect("usable");
        let ours = tls(&ca.pem(), &now);
        let shown = ours.meet(&der(&chain), &name("hub.test"));
        assert_eq!(shown.expect("trusted"), der(&mine));
        assert!(ours.meet(&der(&chain), &name("other.test")).is_err());
        assert!(ours.meet(&[], &name("hub.test")).is_err());
        for refuses in [tls(&other.pem(), &now), tls(&ca.pem(), &long_ago)] {
            assert!(refuses.meet(&der(&chain), &name("hub.test")).is_err());
        }
        let nobody = ClientTls::new(&der(&ca.pem()), None, &now).expect("usable");
        let shown = nobody.meet(&der(&chain), &name("hub.test"));
        assert_eq!(shown.expect("trusted"), Vec::new());
    }
}
