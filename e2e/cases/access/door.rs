//! Ways in that take bytes as they are, and what neighbours are answered meanwhile.

use super::rig::{LONG, Stage, ask, is_built_in, target};
use crate::env::FRONT_PROXY;
use anyhow::{Context as _, Result, ensure};
use common::client::{Credentials, Dialer, HostPort, HubTarget, Stream};
use common::env::Env;
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use hyper_util::rt::TokioIo;
use kube::Client;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// How long an answer to what is malformed is waited for; some servers wait for more of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests of a neighbour beside each attack.
const BESIDE: usize = 50;

/// A way in that takes bytes as they are: the hub's API server as Ann, and its port as the front proxy that says so.
pub(super) struct Door {
    dialer: Dialer,
    who: &'static str,
}

impl Door {
    pub(super) async fn all(stage: &Stage) -> Result<Vec<Self>> {
        let hub = &stage.lab.hub;
        let ann = hub.pki.client("ann", &[])?;
        let swap = CertificateSwap::empty();
        swap.set(ann.cert.as_bytes(), ann.key.as_bytes())?;
        let server = HubTarget {
            servers: vec![HostPort::new("127.0.0.1", hub.port)],
            ca_pem: hub.pki.ca_pem().into_bytes(),
            proxy: ProxyChoice::direct(),
            credentials: Credentials::Certificate(swap),
        };
        let mut targets = vec![(server, "")];
        if !is_built_in() {
            let front = hub.front.client(FRONT_PROXY, &[])?;
            let port = target(stage, &front).await?;
            targets.push((port, "X-Remote-User: ann\r\n"));
        }
        let made = targets.into_iter();
        made.map(|(target, who)| Self::to(&target, who)).collect()
    }

    /// One where a line of the head says who asks, or the certificate does.
    pub(super) fn to(target: &HubTarget, who: &'static str) -> Result<Self> {
        let dialer = Dialer::new(target, &[b"http/1.1"], &Env::system())?;
        Ok(Self { dialer, who })
    }

    /// Has a connection taken over for a WebSocket, whatever is said on it.
    pub(super) async fn take_over(&self, path: &str) -> Result<TokioIo<Stream>> {
        let mut stream = TokioIo::new(self.dialer.dial().await?);
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: hub\r\n{}Connection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.who
        );
        stream.write_all(head.as_bytes()).await?;
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\n") {
            let byte = timeout(LONG, stream.read_u8()).await?;
            said.push(byte.with_context(|| String::from_utf8_lossy(&said).into_owned())?);
        }
        let said = String::from_utf8_lossy(&said);
        ensure!(said.starts_with("HTTP/1.1 101"), "{said}");
        Ok(stream)
    }

    /// Sends what is not the whole of a request, as whoever the certificate says.
    pub(super) async fn begin(&self, text: &str) -> Result<TokioIo<Stream>> {
        let mut stream = TokioIo::new(self.dialer.dial().await?);
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    }

    /// Sends a head, in which `WHO` says who asks, with whatever follows it, and reads what is answered.
    pub(super) async fn send(&self, text: &str) -> Result<String> {
        let text = text.replace("WHO\r\n", self.who);
        let mut stream = TokioIo::new(self.dialer.dial().await?);
        let said = async {
            stream.write_all(text.as_bytes()).await?;
            stream.flush().await?;
            let mut all = Vec::new();
            let mut piece = [0; 4096];
            // Ends with the connection, broken or not, or once nothing more comes.
            while let Ok(Ok(read @ 1..)) = timeout(PATIENCE, stream.read(&mut piece)).await {
                all.extend_from_slice(&piece[..read]);
            }
            std::io::Result::Ok(String::from_utf8_lossy(&all).into_owned())
        };
        // One that hangs up at once has answered too.
        Ok(timeout(LONG, said).await?.unwrap_or_default())
    }
}

/// Answers of a neighbour, each in its time.
pub(super) async fn served(
    client: &Client,
    path: &str,
    headers: &[(&str, &str)],
    text: &str,
) -> Result<()> {
    for _ in 0..BESIDE {
        let answer = timeout(LONG, ask(client, "GET", path, headers)).await;
        answer.context("a neighbour waits")??.is(200, text)?;
    }
    Ok(())
}
