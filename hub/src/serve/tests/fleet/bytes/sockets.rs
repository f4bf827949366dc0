//! What hosts have in place of TCP.

use crate::apiserver::http::listener::Listener;
use common::network::{Sockets, Wire};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// The way out of a host, and how many connections it has made that are still there. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Simulated(Arc<AtomicUsize>);

impl Simulated {
    pub(super) fn connections(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection that counts while it is there.
struct Counted(TcpStream, Simulated);

impl Counted {
    fn new(stream: TcpStream, of: Simulated) -> Self {
        of.0.fetch_add(1, Ordering::Relaxed);
        Self(stream, of)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Sockets for Simulated {
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Wire>>> {
        let (to, of) = (host.parse::<IpAddr>(), self.clone());
        async move {
            let to = to.map_err(|_| io::ErrorKind::NotFound)?;
            let stream = TcpStream::connect((to, port)).await?;
            Ok(Box::new(Counted::new(stream, of)) as Box<dyn Wire>)
        }
        .boxed()
    }
}

/// The way into a host.
pub(super) struct Door(TcpListener);

impl Door {
    pub(super) async fn open(port: u16) -> io::Result<Self> {
        let at = (Ipv4Addr::UNSPECIFIED, port);
        Ok(Self(TcpListener::bind(at).await?))
    }
}

impl Listener for Door {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, from) = self.0.accept().await?;
        Ok((stream, from.ip()))
    }
}
