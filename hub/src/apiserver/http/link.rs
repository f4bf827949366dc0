//! A connection within this process, without a socket and without TLS: what is asked on it ends in the
//! router, as whoever is at its other end. It carries requests, or the bytes of a protocol.

use super::body::Incoming;
use super::connection::Connection;
use super::respond::Body;
use super::router::Router;
use super::speak::Protocol;
use crate::apiserver::authn::{Peer, Shown};
use futures::future::BoxFuture;
use http::{Request, Response};
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// One end of it: a service, over which any client works. Clones are the same connection. It takes no place
/// from connections that come over a socket, and needs none.
#[derive(Clone)]
pub struct Link {
    router: Router,
    end: End,
}

#[derive(Clone)]
enum End {
    /// Whoever this says.
    Of(Arc<Peer>),
    /// What was shown on it, judged at every request.
    Shown(Arc<Connection>),
}

impl Router {
    /// A connection of somebody whose identity is given, and holds as long as `peer` says.
    pub fn link_of(&self, peer: Peer) -> Link {
        Link {
            router: self.clone(),
            end: End::Of(Arc::new(peer)),
        }
    }

    /// A connection from `address` on which these certificates are shown, the client's own first; none by a
    /// stranger. That whoever shows them has the key is taken for granted; all else is judged as on a socket.
    pub fn link(&self, address: IpAddr, chain: &[CertificateDer<'_>]) -> Link {
        Link {
            router: self.clone(),
            end: End::Shown(self.shown_on(address, chain)),
        }
    }

    fn shown_on(&self, address: IpAddr, chain: &[CertificateDer<'_>]) -> Arc<Connection> {
        let authenticator = &self.parts().authenticator;
        let shown = Shown::new(chain, &authenticator.keys, authenticator.clock.now());
        let shown = (!chain.is_empty()).then_some(shown);
        Arc::new(Connection::new(address, shown))
    }

    /// Serves a connection of bytes that is no socket, with the same said of its other end, until it ends, or `stop`.
    pub async fn wire<S>(
        &self,
        address: IpAddr,
        chain: &[CertificateDer<'_>],
        protocol: Protocol,
        stream: S,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let connection = self.shown_on(address, chain);
        self.speak(stream, protocol, &connection, stop).await
    }

    /// A client in this process, with every right.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.link_of(Peer::Itself), "default")
    }
}

impl Link {
    async fn answer<B: Incoming>(self, mut request: Request<B>) -> Response<Body> {
        let peer = match self.end {
            End::Of(peer) => peer,
            End::Shown(connection) => {
                let authenticator = &self.router.parts().authenticator;
                let now = authenticator.clock.now();
                let peer = connection.peer(&authenticator.keys, now);
                request.extensions_mut().insert(connection);
                peer
            }
        };
        self.router.handle(request, &peer).await
    }
}

impl<B: Incoming + 'static> Service<Request<B>> for Link {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let link = self.clone();
        Box::pin(async move { Ok(link.answer(request).await) })
    }
}
