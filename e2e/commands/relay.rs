//! `relay`: leads connections between TCP and sockets in the file system, and so in and out of a
//! sandbox's network.

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Relays until it is killed; an end is `host:port` or `unix:/path`.
pub(crate) async fn relay(listen: &str, to: &str) -> Result<()> {
    let listener = match listen.strip_prefix("unix:") {
        Some(path) => UnixListener::bind(path).map(Listener::Unix),
        None => TcpListener::bind(listen).await.map(Listener::Tcp),
    }
    .with_context(|| format!("failed to listen on {listen}"))?;
    loop {
        let near: Box<dyn Stream> = match &listener {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await.context("failed to accept")?;
                stream
                    .set_nodelay(true)
                    .context("failed to set a socket up")?;
                Box::new(stream)
            }
            Listener::Unix(listener) => {
                Box::new(listener.accept().await.context("failed to accept")?.0)
            }
        };
        let to = to.to_owned();
        tokio::spawn(async move {
            if let Err(error) = carry(near, &to).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn carry(mut near: Box<dyn Stream>, to: &str) -> Result<()> {
    let far: std::io::Result<Box<dyn Stream>> = match to.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path).await.map(|s| Box::new(s) as _),
        None => TcpStream::connect(to).await.map(|s| Box::new(s) as _),
    };
    let mut far = far.with_context(|| format!("failed to connect to {to}"))?;
    // A connection that breaks is the business of its ends.
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    Ok(())
}
