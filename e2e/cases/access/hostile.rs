//! A member whose API server is the test's own, behind the agent's own code: it says what no API server says, and tells
//! what it was asked.

use super::rig::{LONG, Stage, apply, becomes, reach, target, to};
use crate::env::{Enrolled, Given, Identity, agent_config};
use anyhow::{Context as _, Result};
use common::client::{ClientOptions, Dialer, Stream, kubeconfig_client};
use common::env::Env;
use common::lock::lock;
use common::names::ClusterName;
use common::tls::install_provider;
use common::tunnel::Begins;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The cluster's name.
pub(super) const NAME: &str = "m2";
/// What `/endless` says that it is long.
pub(super) const ENDLESS: u64 = 1024 * 1024 * 1024;
/// Longest head of a request.
const HEAD_MAX: usize = 64 * 1024;

/// What it was asked, and what it said.
#[derive(Default)]
pub(super) struct Heard {
    /// Heads of requests, as they came, each with its body.
    requests: Mutex<Vec<String>>,
    /// How much of `/endless` was taken from it.
    pub(super) sent: AtomicU64,
}

impl Heard {
    /// Requests with this in their first line.
    pub(super) fn of(&self, path: &str) -> Vec<String> {
        let requests = lock(&self.requests);
        let first = |text: &String| text.lines().next().is_some_and(|line| line.contains(path));
        requests
            .iter()
            .filter(|text| first(text))
            .cloned()
            .collect()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<String> {
        lock(&self.requests).clone()
    }
}

/// The member; it ends when it is dropped.
pub(super) struct Hostile {
    pub(super) heard: Arc<Heard>,
    /// What requests to it name as their host.
    pub(super) host: String,
    enrolled: Enrolled,
    _serving: AbortOnDropHandle<()>,
    agent: Option<AbortOnDropHandle<()>>,
}

impl Hostile {
    /// Registers it, lets Ann reach it, and waits until it answers.
    pub(super) async fn start(stage: &Stage) -> Result<Self> {
        install_provider();
        let plane = &stage.lab.members[0];
        let shows = plane.pki.server(&["127.0.0.1".to_owned()])?;
        let chain = CertificateDer::from_pem_slice(shows.cert.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(shows.key.as_bytes())?;
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let host = listener.local_addr()?.to_string();
        let heard: Arc<Heard> = Arc::default();
        let serving = serve(listener, TlsAcceptor::from(Arc::new(server)), heard.clone());
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));

        let created = stage.fleet.cli(&["token", "create", "-o", "json"]).await?;
        let given = Given::read(&created.ok()?.stdout)?;
        let config = agent_config(&["--proxy=impersonate", "--registration-timeout=10m"])?;
        let env = Env::system();
        let name = ClusterName::parse(NAME)?;
        let enrolled = Enrolled::by(&given, name, &config, &env, stage.scratch.path()).await?;
        let options = ClientOptions::new("agent");
        let (client, mut reached) =
            kubeconfig_client(Some(&plane.kubeconfig), None, &options, &env).await?;
        reached.cluster_url = format!("https://{host}").parse()?;
        let stop = CancellationToken::new();
        let member = (client, reached);
        let context = enrolled.context(&config, &env, member, &stop, |way| Arc::new(way));
        let agent = tokio::spawn(agent::proxy::run(context.await?));
        let hub = stage.fleet.client().await?;
        let verbs = ["get", "create", "delete"];
        apply(&hub, reach("ann", &["m1", NAME], &verbs)).await?;
        let ann = stage.client("ann", &[]).await?;
        becomes(&ann, &to(NAME, "/plain"), 200, "plain").await?;
        Ok(Self {
            heard,
            host,
            enrolled,
            _serving: serving,
            agent: Some(AbortOnDropHandle::new(agent)),
        })
    }

    /// Its agent is gone: from now on it is whoever dials as it.
    pub(super) fn orphan(&mut self) {
        drop(self.agent.take());
    }

    /// A tunnel that speaks by hand.
    pub(super) async fn dial(&self, stage: &Stage) -> Result<Stream> {
        let registration = &self.enrolled.registration;
        let identity = Identity {
            cert: registration.certificate.clone().context("certified")?,
            key: registration.key.expose().to_owned(),
        };
        let target = target(stage, &identity).await?;
        let dialer = Dialer::new(&target, &[Begins::AtOnce.alpn()], &Env::system())?;
        Ok(dialer.dial().await?)
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, heard: Arc<Heard>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (acceptor, heard) = (acceptor.clone(), heard.clone());
        connections.spawn(async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                // Whoever hangs up has heard enough.
                let _ = answer(&mut stream, &heard).await;
                let _ = stream.shutdown().await;
            }
        });
    }
}

/// Answers requests of one connection, until one is answered by its end.
async fn answer<S>(stream: &mut S, heard: &Heard) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            anyhow::ensure!(head.len() < HEAD_MAX, "a head without end");
            head.push(stream.read_u8().await?);
        }
        let mut text = String::from_utf8_lossy(&head).into_owned();
        text.push_str(&body(stream, &text).await?);
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        lock(&heard.requests).push(text);
        let said = said(&path);
        stream.write_all(said.as_bytes()).await?;
        if path.starts_with("/endless") {
            let piece = vec![b'x'; 64 * 1024];
            let mut sent = 0;
            while sent < ENDLESS {
                stream.write_all(&piece).await?;
                sent += piece.len() as u64;
                heard.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
        }
        stream.flush().await?;
        if path.starts_with("/echo") {
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::io::copy(&mut from, &mut to).await?;
            return Ok(to.shutdown().await?);
        }
        if path.starts_with("/cut") || path.starts_with("/early") {
            return Ok(());
        }
    }
}

/// The body that a head says follows.
async fn body<S: AsyncRead + Unpin>(stream: &mut S, head: &str) -> Result<String> {
    let value = |name: &str| {
        let mut lines = head.lines();
        lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    if value("transfer-encoding").is_some() {
        let mut all = Vec::new();
        while !all.ends_with(b"0\r\n\r\n") {
            all.push(stream.read_u8().await?);
        }
        return Ok(String::from_utf8_lossy(&all).into_owned());
    }
    let length = value("content-length").map_or(Ok(0), |text| text.parse())?;
    let mut all = vec![0; length];
    timeout(LONG, stream.read_exact(&mut all)).await??;
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// What is answered at a path.
fn said(path: &str) -> String {
    let whole = |head: &str, body: &str| {
        format!(
            "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let path = path.split('?').next().unwrap_or_default();
    match path {
        "/redirect" => whole("302 Found\r\nLocation: https://elsewhere.example/", "there"),
        "/early" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
                     HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly"
                .to_owned()
        }
        "/echo" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                .to_owned()
        }
        "/early-other" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
                .to_owned()
        }
        "/headers" => whole(
            "200 OK\r\nContent-Type: text/plain\r\nSet-Cookie: a=b\r\nWWW-Authenticate: Basic\r\n\
             Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nLocation: https://elsewhere.example/\r\n\
             Strict-Transport-Security: max-age=1\r\nX-Remote-User: admin\r\nImpersonate-User: admin\r\nTowline-Tunnel: forged\r\n\
             Towline-Upgrade: forged\r\nTowline-Hop: forged\r\nRefresh: 0",
            "headers",
        ),
        "/two-lengths" => {
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nthree".to_owned()
        }
        "/cut" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.".to_owned(),
        "/cut-chunks" => {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nten bytes.\r\n".to_owned()
        }
        "/nothing" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nthere\r\n0\r\n\r\n"
            .to_owned(),
        "/refused" => whole("403 Forbidden\r\nContent-Type: text/plain", "refused"),
        "/endless" => format!("HTTP/1.1 200 OK\r\nContent-Length: {ENDLESS}\r\n\r\n"),
        _ => whole(
            "200 OK\r\nContent-Type: text/plain",
            path.trim_start_matches('/'),
        ),
    }
}
