//! The way out of this process where it is not the machine's sockets: what a simulation has in their place.
//!
//! There are two: a [`Network`] carries requests and answers, so that a whole fleet costs little, and [`Sockets`]
//! carry bytes, with TLS and HTTP above them as they ship.
//! Everything above a connection is the same on all ways: which address is tried, whom a server's certificate
//! must be of, what is shown to it, deadlines, and what is done after a failure.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::BoxError;
use tower::util::BoxCloneService;

/// The body of an answer that came over a [`Line`].
pub type LineBody = UnsyncBoxBody<Bytes, BoxError>;

/// A connection that stands: requests go in, answers come out. Clones are the same connection. After an error
/// of its own it is given up, and the next request makes another one.
pub type Line = BoxCloneService<Request<Body>, Response<LineBody>, BoxError>;

/// Leads to servers that are no sockets.
pub trait Network: Send + Sync {
    /// Reaches a port of a host, or says why not as a socket would.
    fn reach(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Reached>>;
}

/// A connection that carries bytes, as one over TCP does.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// What is in the place of TCP.
pub trait Sockets: Send + Sync {
    /// Connects to a port of a host, or says why not as a socket would.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Wire>>>;
}

/// Makes the connection once both ends have seen what the other one shows. It is handed the client's
/// certificates, its own first; none when it has none.
pub type Open = Box<dyn FnOnce(Vec<CertificateDer<'static>>) -> Line + Send>;

/// A connection after a handshake, for what is more than requests and answers.
pub struct Agreed {
    /// What carries its bytes.
    pub wire: Box<dyn Wire>,
    /// What was agreed on, as ALPN has it; none where the server does not say.
    pub protocol: Option<Vec<u8>>,
}

/// Makes such a connection once both ends have seen what the other one shows. It is handed the client's
/// certificates, as [`Open`] is, and the protocols that the client offers; none where the server speaks none of them.
pub type Agree = Box<dyn FnOnce(Vec<CertificateDer<'static>>, &[Vec<u8>]) -> Option<Agreed> + Send>;

/// A server that was reached, in the middle of the handshake.
pub struct Reached {
    /// The certificates that it shows, its own first. That it has the key to them is taken for granted.
    pub shown: Vec<CertificateDer<'static>>,
    /// Goes on, if the client trusts them.
    pub open: Open,
    /// The same, for bytes.
    pub agree: Agree,
}

impl fmt::Debug for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reached")
            .field("shown", &self.shown.len())
            .finish_non_exhaustive()
    }
}
