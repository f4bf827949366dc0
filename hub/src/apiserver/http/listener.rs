//! Where connections come from: a socket, or what a simulation has in its place.

use std::future::pending;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A source of connections.
pub trait Listener: Send + 'static {
    /// One of them.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and where it comes from. After an error it is asked again. Can be dropped while
    /// it waits, and no connection is lost.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, IpAddr)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, IpAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // One that is gone already is told apart when it is read.
        let _ = stream.set_nodelay(true);
        Ok((stream, address.ip()))
    }
}

/// Connections that are handed over by somebody in this process, who may hand over no more.
impl<S> Listener for mpsc::Receiver<(S, IpAddr)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = S;

    async fn accept(&mut self) -> io::Result<(S, IpAddr)> {
        match self.recv().await {
            Some(connection) => Ok(connection),
            None => pending().await,
        }
    }
}
