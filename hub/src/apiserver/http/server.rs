//! Connections: who may come in, TLS, and their orderly end.

use super::accepting::Accepting;
use super::connection::{Connection, place};
use super::listener::Listener;
use super::router::Router;
use super::speak::{Ended, Protocol};
use crate::apiserver::authn::{Peer, Shown};
use crate::apiserver::keys::Keys;
use crate::limit::InFlight;
use common::time::SharedClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::DigitallySignedStruct;
use rustls::DistinguishedName;
use rustls::SignatureScheme;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme as Scheme};
use std::fmt;
use std::future::pending;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Connections at once; more wait.
const CONNECTIONS: usize = 50_000;
/// Files that are no connections: where so many may be open that more connections fit not, fewer are let in.
const OTHER_FILES: usize = 128;
/// How many of them may have shown no certificate that holds: a crowd of strangers leaves room for agents.
const STRANGERS: usize = 5_000;
/// How many more, when that is full, and for how long each: probes and members that join get in between.
const BRIEF: usize = 500;
const BRIEF_FOR: Duration = Duration::from_secs(10);
/// How many of them may come from one address, if nothing else is said: many sit behind one.
pub const STRANGERS_OF_ADDRESS: usize = 250;
/// Longest chain of certificates that is looked at.
const CHAIN_MAX: usize = 16 * 1024;
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long connections may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// A connection after its handshake, at one place however often it is handed on.
type Shaken<S> = Box<TlsStream<S>>;

/// What handshakes are made with, exchanged while the server serves: its certificate, and the authorities
/// that clients are told, so that one with several certificates shows the right one. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// Shows this certificate, and takes those of these authorities.
    pub fn new(key: Arc<CertifiedKey>, names: &[DistinguishedName]) -> Result<Self, rustls::Error> {
        let config = tls(key, names)?;
        Ok(Self(Arc::new(RwLock::new(Arc::new(config)))))
    }

    /// Does so from now on.
    pub fn set(
        &self,
        key: Arc<CertifiedKey>,
        names: &[DistinguishedName],
    ) -> Result<(), rustls::Error> {
        let config = Arc::new(tls(key, names)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// One certificate for everybody.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Takes any certificate whose key the client has; what it is worth is judged by [`Peer::of`], so that
/// one that does not hold gets an answer rather than a broken handshake.
#[derive(Debug)]
struct AnyClient {
    algorithms: WebPkiSupportedAlgorithms,
    /// What clients are told to choose by.
    names: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AnyClient {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<Scheme> {
        let schemes: Vec<SignatureScheme> = self.algorithms.supported_schemes();
        schemes
    }
}

/// TLS 1.3, asking for a client certificate without wanting one.
fn tls(key: Arc<CertifiedKey>, names: &[DistinguishedName]) -> Result<ServerConfig, rustls::Error> {
    let provider = ring::default_provider();
    let verifier = AnyClient {
        algorithms: provider.signature_verification_algorithms,
        names: names.to_vec(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(Only(key)));
    config.alpn_protocols = Protocol::ALL.map(|it| it.name().to_vec()).to_vec();
    // A resumed session would bring the certificate of an older one.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A server of connections.
pub struct Server {
    /// Answers requests.
    pub router: Router,
    /// Judges certificates.
    pub keys: Keys,
    /// The time of day.
    pub clock: SharedClock,
    /// TLS.
    pub tls: Tls,
    /// Connections from one address that have shown no certificate that holds.
    pub strangers_of_address: usize,
}

/// Who may come in.
struct Doors {
    strangers: Semaphore,
    /// For a moment, when there is no other place.
    brief: Semaphore,
    /// The same of each address.
    of_address: InFlight,
}

impl Server {
    /// Serves until `stop`, then lets requests end.
    pub async fn run(self, listener: impl Listener, stop: CancellationToken) {
        let accepting = Accepting {
            most: CONNECTIONS.min(open_files().saturating_sub(OTHER_FILES)),
            end_within: END_WITHIN,
        };
        let doors = Arc::new(Doors {
            strangers: Semaphore::new(STRANGERS.min(accepting.most / 2)),
            brief: Semaphore::new(BRIEF.min(accepting.most / 8)),
            of_address: InFlight::of(self.strangers_of_address),
        });
        let (server, end) = (Arc::new(self), stop.clone());
        let serve = move |stream, address, handshake| {
            let (server, doors, end) = (server.clone(), doors.clone(), end.clone());
            async move {
                let shaken = server.shake_hands(stream).await;
                drop(handshake);
                server.serve(shaken?, address, &doors, end).await
            }
        };
        accepting.run(listener, stop, serve).await;
    }

    async fn shake_hands<S>(&self, stream: S) -> Result<Shaken<S>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.tls.now());
        let shaken = timeout(HANDSHAKE, Box::pin(acceptor.accept(stream))).await;
        let shaken = shaken.map_err(|e| e.to_string())?;
        shaken.map(Box::new).map_err(|e| e.to_string())
    }

    /// Serves one connection to its end. There are thousands that mostly lie still: what only their
    /// beginning or a request needs is boxed, and given back.
    async fn serve<S>(
        &self,
        stream: Shaken<S>,
        address: IpAddr,
        doors: &Doors,
        stop: CancellationToken,
    ) -> Ended
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().unwrap_or_default();
        if chain.iter().map(|der| der.len()).sum::<usize>() > CHAIN_MAX {
            return Err("its certificates are too long".to_owned());
        }
        let shown = Shown::new(chain, &self.keys, self.clock.now());
        let shown = (!chain.is_empty()).then_some(shown);
        let connection = Arc::new(Connection::new(address, shown));
        let peer = connection.peer(&self.keys, self.clock.now());
        let mut brief = false;
        let _room = match &*peer {
            Peer::Known { caller, .. } => {
                let ticket = self.router.shares().connection(caller);
                let ticket = ticket.map_err(|_| format!("{} has too many", caller.user))?;
                (None, ticket)
            }
            Peer::Itself => (None, None),
            Peer::Unknown | Peer::Refused(_) => {
                let of_address = doors.of_address.enter(&place(address));
                let of_address = of_address.ok_or("too many strangers at this address")?;
                let room = doors.strangers.try_acquire().or_else(|_| {
                    brief = true;
                    doors.brief.try_acquire()
                });
                (
                    Some(room.map_err(|_| "too many strangers")?),
                    Some(of_address),
                )
            }
        };
        let protocol = Protocol::of(session.alpn_protocol());
        let serving = self.router.speak(stream, protocol, &connection, stop);
        let over = async {
            match brief {
                true => sleep(BRIEF_FOR).await,
                false => pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = serving => ended,
            () = over => Err("there are too many strangers for it to stay".to_owned()),
            () = connection.unsent.overdue() => Err("an answer was not taken in time".to_owned()),
        }
    }
}

/// How many files may be open; first as many as the system lets this process have. With what shells and
/// systemd give, a thousand idle connections would be all.
pub(crate) fn open_files() -> usize {
    let most = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: most.maximum,
        ..most
    };
    let current = match setrlimit(Resource::Nofile, all) {
        Ok(()) => all.current,
        Err(_) => most.current,
    };
    current.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
mod tests;
