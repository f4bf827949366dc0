//! A watch over WebSocket, as browsers and Java clients open it.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONNECTION, HOST, UPGRADE};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::server::{Raw, Watch};

/// Messages that wait for the case.
const MESSAGES: usize = 4096;

/// Opens one as the administrator of a kubeconfig; what is no handshake in `headers` is sent besides.
pub(crate) async fn open(
    kubeconfig: &Path,
    path: &str,
    headers: &[(String, String)],
) -> Result<Watch> {
    let file = Kubeconfig::read_from(kubeconfig).context("failed to read a kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let config = config.context("failed to use a kubeconfig")?;
    let mut tls = config.rustls_client_config().context("no TLS")?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let host = config.cluster_url.host().context("no host")?.to_owned();
    let port = config.cluster_url.port_u16().unwrap_or(443);
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let name = host.clone().try_into().context("no name for TLS")?;
    let stream = TlsConnector::from(Arc::new(tls))
        .connect(name, stream)
        .await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.context("failed to shake hands")?;
    tokio::spawn(connection.with_upgrades());
    let handshake = [
        (HOST.as_str(), format!("{host}:{port}")),
        (CONNECTION.as_str(), "Upgrade".to_owned()),
        (UPGRADE.as_str(), "websocket".to_owned()),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".to_owned()),
    ];
    let mut request = http::Request::get(path);
    for (name, value) in handshake {
        request = request.header(name, value);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let mut response = sender.send_request(request).await?;
    let shown = [
        "upgrade",
        "connection",
        "sec-websocket-accept",
        "sec-websocket-protocol",
    ];
    let said = response.headers().iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let mut head = Raw {
        code: response.status().as_u16(),
        headers: Vec::new(),
        body: Bytes::from(
            said.filter(|(name, _)| shown.contains(&name.as_str()))
                .map(|(name, value)| format!("{name}: {value}\n"))
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<String>(),
        ),
    };
    let (messages, lines) = mpsc::channel(MESSAGES);
    if head.code != 101 {
        let body = response.body_mut().collect().await?.to_bytes();
        head.body = Bytes::from([head.body.as_ref(), body.as_ref()].concat());
        return Ok(Watch { head, lines });
    }
    let connection = hyper::upgrade::on(response).await?;
    let connection = TokioIo::new(connection);
    tokio::spawn(async move {
        let mut socket = WebSocketStream::from_raw_socket(connection, Role::Client, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let line = match message {
                Message::Text(text) => Bytes::from(text),
                Message::Close(_) => return,
                other => Bytes::from(format!("{other:?}")),
            };
            if messages.send(line).await.is_err() {
                return;
            }
        }
    });
    Ok(Watch { head, lines })
}
