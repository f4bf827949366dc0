//! Where connections come from: a socket, or what a simulation has in its place.

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

/// Connections that may wait to be accepted, if the system allows so many (`net.core.somaxconn`): who finds no place asks
/// again after a second, then after three, and a fleet comes back at once.
const BACKLOG: u32 = 4096;
/// How long a connection is silent before the system asks whether the other end is there, how often then, and how many
/// times until it is given up. Longer than what lies between the signs of a tunnel, which needs no others.
const SILENT: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_secs(20);
const ASKED: u32 = 3;

/// Listens on an address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A server that is started again finds connections of the one before that are not over.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

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
        let _ = ask_for_signs(&stream);
        Ok((stream, address.ip()))
    }
}

/// Has the system ask the other end of a silent connection whether it is there. A session to which nobody has anything to
/// say would outlive a client that was switched off.
fn ask_for_signs(stream: &TcpStream) -> rustix::io::Result<()> {
    set_tcp_keepidle(stream, SILENT)?;
    set_tcp_keepintvl(stream, ASKED_EVERY)?;
    set_tcp_keepcnt(stream, ASKED)?;
    set_socket_keepalive(stream, true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::time::Duration;
    use tokio::time::timeout;

    /// More than a listener of the standard library lets wait.
    const MANY: usize = 1000;

    #[tokio::test]
    async fn a_fleet_that_comes_at_once_waits_until_it_is_accepted() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let allowed: usize = allowed
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(MANY);
        let mut listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = listener.local_addr().expect("bound");
        let many = MANY.min(allowed);
        let coming = join_all((0..many).map(|_| TcpStream::connect(address)));
        let there = timeout(Duration::from_secs(60), coming).await;
        let there = there.expect("nobody is turned away, though none is accepted yet");
        for one in &there {
            assert!(one.is_ok(), "{one:?}");
            Listener::accept(&mut listener).await.expect("accepted");
        }
    }
}
