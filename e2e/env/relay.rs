//! A TCP relay with faults, and an HTTP CONNECT proxy, for what networks do to connections.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::signal;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What a relay does to the connections that go through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Faults {
    /// Connections of this generation and older are black holes: bytes are taken and forgotten,
    /// nothing is closed.
    silent_up_to: u64,
    /// New connections are closed at once.
    refuse: bool,
    /// Connections of this generation and older are closed.
    closed_up_to: u64,
    /// New connections are black holes from the start.
    silent_new: bool,
    /// What connections carry waits.
    held: bool,
}

struct Shared {
    faults: signal::Sender<Faults>,
    generation: AtomicU64,
    accepted: AtomicU64,
}

/// A relay on loopback; dropped, it ends with every connection.
pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 and leads to `target` (`host:port`).
    pub(crate) async fn start(target: &str) -> Result<Self> {
        Self::start_on((Ipv4Addr::LOCALHOST, 0).into(), target).await
    }

    /// Listens on an address of the caller's choice, such as `[::1]:0`.
    pub(crate) async fn start_on(listen: SocketAddr, target: &str) -> Result<Self> {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("failed to listen on {listen}"))?;
        let address = listener
            .local_addr()
            .context("failed to read the relay's address")?;
        let faults = Faults {
            silent_up_to: 0,
            refuse: false,
            closed_up_to: 0,
            silent_new: false,
            held: false,
        };
        let shared = Arc::new(Shared {
            faults: signal::Sender::new(faults),
            generation: AtomicU64::new(1),
            accepted: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept(listener, target.to_owned(), Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has taken.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Turns every connection of now into a black hole; later ones work.
    pub(crate) fn silence_established(&self) {
        let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed);
        self.shared
            .faults
            .send_modify(|faults| faults.silent_up_to = generation);
    }

    /// Turns every connection of now and later into a black hole, or lets later ones work again.
    pub(crate) fn black_hole(&self, on: bool) {
        if on {
            self.silence_established();
        }
        self.shared
            .faults
            .send_modify(|faults| faults.silent_new = on);
    }

    /// Closes every connection of now; later ones work.
    pub(crate) fn close_established(&self) {
        let generation = self.shared.generation.fetch_add(1, Ordering::Relaxed);
        self.shared
            .faults
            .send_modify(|faults| faults.closed_up_to = generation);
    }

    /// Keeps back what every connection carries, of now and later, or has it go on; nothing is lost.
    pub(crate) fn hold(&self, on: bool) {
        self.shared.faults.send_modify(|faults| faults.held = on);
    }

    /// Closes new connections at once, or takes them again.
    pub(crate) fn refuse(&self, on: bool) {
        self.shared.faults.send_modify(|faults| faults.refuse = on);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The connections live in a set that ends with the task.
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: String, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            taken = listener.accept() => {
                let Ok((stream, _)) = taken else { continue };
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                let faults = *shared.faults.borrow();
                if faults.refuse {
                    continue;
                }
                let generation = shared.generation.load(Ordering::Relaxed);
                let watch = shared.faults.subscribe();
                let target = target.clone();
                connections.spawn(async move {
                    if faults.silent_new {
                        swallow(stream, generation, watch).await;
                    } else if let Ok(upstream) = TcpStream::connect(&target).await {
                        relay(stream, upstream, generation, watch).await;
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries bytes until a side ends or a fault befalls the connection.
async fn relay(
    mut near: TcpStream,
    mut far: TcpStream,
    generation: u64,
    mut faults: signal::Receiver<Faults>,
) {
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    {
        let mut carried = pin!(tokio::io::copy_bidirectional(&mut near, &mut far));
        loop {
            let now = *faults.borrow_and_update();
            if now.closed_up_to >= generation {
                return;
            }
            if now.silent_up_to >= generation {
                break;
            }
            tokio::select! {
                biased;
                changed = faults.changed() => if changed.is_err() {
                    return;
                },
                _ = &mut carried, if !now.held => return,
            }
        }
    }
    // The far side is held open as well: neither end is told.
    let _held = far;
    swallow(near, generation, faults).await;
}

/// Takes bytes and forgets them, until the other side gives up or the connection is closed.
async fn swallow(mut stream: TcpStream, generation: u64, mut faults: signal::Receiver<Faults>) {
    let mut buffer = [0; 4096];
    let forget = async {
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        () = forget => {}
        _ = faults.wait_for(|f| f.closed_up_to >= generation) => {}
    }
}

/// An HTTP CONNECT proxy on loopback, with basic authentication when asked for.
pub(crate) struct ConnectProxy {
    address: SocketAddr,
    tunnels: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl ConnectProxy {
    /// Starts one; `credentials` is `user:password`.
    pub(crate) async fn start(credentials: Option<&str>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("failed to listen for the proxy")?;
        let address = listener
            .local_addr()
            .context("failed to read the proxy's address")?;
        let tunnels = Arc::new(AtomicU64::new(0));
        let refused = Arc::new(AtomicU64::new(0));
        let expected = credentials.map(|c| format!("basic {}", STANDARD.encode(c)));
        let counters = (Arc::clone(&tunnels), Arc::clone(&refused));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    biased;
                    taken = listener.accept() => {
                        let Ok((stream, _)) = taken else { continue };
                        let expected = expected.clone();
                        let (tunnels, refused) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
                        connections.spawn(async move {
                            // A client that breaks off is the test's business, not the proxy's.
                            let _ = tunnel(stream, expected, &tunnels, &refused).await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            tunnels,
            refused,
            task,
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many tunnels it has opened.
    pub(crate) fn tunnels(&self) -> u64 {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// How many requests it has refused for want of credentials.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn tunnel(
    mut near: TcpStream,
    expected: Option<String>,
    tunnels: &AtomicU64,
    refused: &AtomicU64,
) -> Result<()> {
    let head = read_head(&mut near).await?;
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let ["CONNECT", target, _] = request[..] else {
        near.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
            .await?;
        return Ok(());
    };
    let given = lines
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| {
            let value = value.trim();
            let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
            key.eq_ignore_ascii_case("proxy-authorization")
                .then(|| format!("{} {}", scheme.to_ascii_lowercase(), rest.trim()))
        });
    if expected.is_some() && given != expected {
        refused.fetch_add(1, Ordering::Relaxed);
        near.write_all(
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\
              proxy-authenticate: Basic realm=\"lab\"\r\ncontent-length: 0\r\n\r\n",
        )
        .await?;
        return Ok(());
    }
    let Ok(mut far) = TcpStream::connect(target).await else {
        near.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            .await?;
        return Ok(());
    };
    tunnels.fetch_add(1, Ordering::Relaxed);
    near.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n")
        .await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}

/// Reads up to the empty line; a byte at a time, so that nothing of the tunnel is taken.
async fn read_head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(head.len() < 16_384, "the proxy request has no end");
        head.push(stream.read_u8().await.context("no proxy request")?);
    }
    String::from_utf8(head).context("the proxy request is not text")
}
