//! Whoever asks a member: straight, or through the hub.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use common::client::{Credentials, Dialer, HostPort, HubTarget};
use common::env::Env;
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use http::Request;
use http::header::{CONNECTION, HOST, UPGRADE};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::env::Identity;

/// Windows as kubectl's.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// What is typed, in bytes.
const KEY: [u8; 16] = *b"0123456789abcdef";

/// Requests on one connection of HTTP/2.
pub(super) type Many = http2::SendRequest<Empty<Bytes>>;

/// A way to a member.
pub(super) struct Way {
    port: u16,
    ca_pem: String,
    identity: Identity,
    prefix: String,
}

impl Way {
    /// To a server at this port of 127.0.0.1; `prefix` comes before each path.
    pub(super) fn new(port: u16, ca_pem: String, identity: Identity, prefix: &str) -> Self {
        Self {
            port,
            ca_pem,
            identity,
            prefix: prefix.to_owned(),
        }
    }

    fn dialer(&self, protocol: &[u8]) -> Result<Dialer> {
        let swap = CertificateSwap::empty();
        swap.set(self.identity.cert.as_bytes(), self.identity.key.as_bytes())?;
        let target = HubTarget {
            servers: vec![HostPort::new("127.0.0.1", self.port)],
            ca_pem: self.ca_pem.clone().into_bytes(),
            proxy: ProxyChoice::direct(),
            credentials: Credentials::Certificate(swap),
        };
        Ok(Dialer::new(&target, &[protocol], &Env::system())?)
    }

    /// A request of this path.
    pub(super) fn get(&self, path: &str) -> Result<Request<Empty<Bytes>>> {
        let uri = format!("https://127.0.0.1:{}{}{path}", self.port, self.prefix);
        Ok(Request::get(uri).body(Empty::new())?)
    }

    /// A connection for many requests at once.
    pub(super) async fn many(&self) -> Result<Many> {
        let stream = self.dialer(b"h2")?.dial().await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW);
        builder.initial_connection_window_size(CONNECTION_WINDOW);
        builder.max_concurrent_reset_streams(10_000);
        let (sender, connection) = builder.handshake(stream).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// How long a small request takes, answer and all.
    pub(super) async fn time(&self, sender: &mut Many, path: &str) -> Result<Duration> {
        let request = self.get(path)?;
        let began = Instant::now();
        let answer = sender.send_request(request).await?;
        let code = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(code == 200, "{code} {}", String::from_utf8_lossy(&body));
        Ok(began.elapsed())
    }

    /// Reads a long answer to its end; returns how long it took.
    pub(super) async fn read(&self, path: &str, bytes: u64) -> Result<Duration> {
        let stream = self.dialer(b"http/1.1")?.dial().await?;
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection);
        let began = Instant::now();
        let request = Request::get(format!("{}{path}", self.prefix))
            .header(HOST, format!("127.0.0.1:{}", self.port))
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        let (mut body, mut seen) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            seen += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        ensure!(seen == bytes, "{seen} bytes of {bytes}");
        Ok(began.elapsed())
    }

    /// Opens a watch, hears its first word, and turns away.
    pub(super) async fn glance(&self, sender: &mut Many, path: &str) -> Result<()> {
        let answer = sender.send_request(self.get(path)?).await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        let first = answer.into_body().frame().await;
        first.context("the watch ended")??;
        Ok(())
    }

    /// A session in which what is typed comes back.
    pub(super) async fn session(&self, path: &str) -> Result<Session> {
        let stream = self.dialer(b"http/1.1")?.dial().await?;
        let (mut sender, connection) = http1::handshake(stream).await?;
        tokio::spawn(connection.with_upgrades());
        let uri = format!("{}{path}", self.prefix);
        let request = Request::get(uri)
            .header(HOST, format!("127.0.0.1:{}", self.port))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status() == 101, "{}", answer.status());
        let taken = hyper::upgrade::on(answer).await?;
        Ok(Session(TokioIo::new(taken)))
    }
}

/// A connection that was taken over.
pub(super) struct Session(TokioIo<Upgraded>);

impl Session {
    /// Types, and waits for what was typed.
    pub(super) async fn echo(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.0.write_all(&KEY).await?;
        self.0.flush().await?;
        let mut back = KEY.map(|_| 0);
        self.0.read_exact(&mut back).await?;
        ensure!(back == KEY, "something else came back");
        Ok(began.elapsed())
    }
}
