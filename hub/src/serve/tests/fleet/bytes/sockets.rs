//! What hosts have in place of TCP.

use super::super::super::rig::Trace;
use super::note;
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
#[derive(Clone)]
pub(super) struct Simulated {
    of: Arc<str>,
    open: Arc<AtomicUsize>,
    trace: Trace,
}

impl Simulated {
    /// That of a process, which tells of its connections there.
    pub(super) fn new(of: &str, trace: &Trace) -> Self {
        Self {
            of: of.into(),
            open: Arc::default(),
            trace: trace.clone(),
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn note(&self, what: &str) {
        note(&self.trace, &format!("{} {what}", self.of));
    }
}

/// A connection that counts while it is there, and what passed on it: how often something was read, and written.
struct Counted(TcpStream, Simulated, [usize; 2]);

impl Counted {
    fn new(stream: TcpStream, of: Simulated) -> Self {
        of.open.fetch_add(1, Ordering::Relaxed);
        Self(stream, of, [0; 2])
    }

    fn count(&mut self, way: usize, is_ready: bool) {
        self.2[way] += usize::from(is_ready);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.open.fetch_sub(1, Ordering::Relaxed);
        let [read, written] = self.2;
        let told = format!("ends a connection of {read} reads, {written} writes");
        self.1.note(&told);
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(cx, buf);
        self.count(0, read.is_ready());
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(cx, buf);
        self.count(1, written.is_ready());
        written
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
            let stream = TcpStream::connect((to, port)).await;
            let told = match &stream {
                Ok(_) => "connects to".to_owned(),
                Err(error) => format!("fails ({}) to connect to", error.kind()),
            };
            of.note(&format!("{told} {to}"));
            let stream = stream?;
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
