//! Bytes on a connection, as no well-behaved client would send them.

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{SOON, Told, USER};
use crate::env::Plane;

/// What connections of the user, or of a stranger, are made with.
#[derive(Clone)]
pub(super) struct Connector {
    address: String,
    config: Arc<ClientConfig>,
}

/// One that speaks `protocol`.
pub(super) fn connector(plane: &Plane, stranger: bool, protocol: &str) -> Result<Connector> {
    let mut roots = RootCertStore::empty();
    let authority = plane.pki.ca_pem();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = if stranger {
        builder.with_no_client_auth()
    } else {
        let identity = plane.pki.client(USER, &["devs"])?;
        let chain = vec![CertificateDer::from_pem_slice(identity.cert.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        builder.with_client_auth_cert(chain, key)?
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(Connector {
        address: plane.address(),
        config: Arc::new(config),
    })
}

impl Connector {
    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let connected = async {
            let stream = TcpStream::connect(&self.address).await?;
            let name = ServerName::try_from("127.0.0.1")?;
            let connector = TlsConnector::from(self.config.clone());
            anyhow::Ok(connector.connect(name, stream).await?)
        };
        let connected = timeout(SOON, connected).await.context("no connection")?;
        connected.context("failed to connect")
    }
}

/// A connection of the user, or of a stranger, that speaks `protocol`.
pub(super) async fn connect(
    plane: &Plane,
    stranger: bool,
    protocol: &str,
) -> Result<TlsStream<TcpStream>> {
    connector(plane, stranger, protocol)?.connect().await
}

/// Streams on an HTTP/2 connection that ask for a page and let nothing of its answer through. What the
/// server says is read until it has ended the connection.
pub(super) async fn stall(stream: &mut TlsStream<TcpStream>, path: &str, count: u32) -> Result<()> {
    // SETTINGS with an initial window of zero.
    let mut bytes =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0".to_vec();
    // GET, https, and a path that is not in the table.
    let head = [
        &[0x82, 0x87, 0x04, u8::try_from(path.len())?],
        path.as_bytes(),
    ]
    .concat();
    for id in (1..2 * count).step_by(2) {
        bytes.extend_from_slice(&[0, 0, u8::try_from(head.len())?, 1, 5]);
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&head);
    }
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    let mut buffer = [0; 8192];
    let mut seen = Vec::new();
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        seen.extend_from_slice(&buffer[..read]);
        // Whole frames are looked at, and answered as a client must that wants to keep the connection.
        while let Some(length) = seen.get(..3) {
            let length =
                usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
            if seen.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = seen.drain(..9 + length).collect();
            // PING, and SETTINGS that are no acknowledgement.
            match (frame[3], frame[4] & 1) {
                (6, 0) => {
                    let mut ack = frame.clone();
                    ack[4] = 1;
                    stream.write_all(&ack).await?;
                }
                (4, 0) => stream.write_all(b"\0\0\0\x04\x01\0\0\0\0").await?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Sends bytes as they are and reads the answer to its end. The server may answer, and end, before it has
/// read everything.
pub(super) async fn exchange(plane: &Plane, stranger: bool, request: &[u8]) -> Result<Told> {
    let shown: String = String::from_utf8_lossy(request).chars().take(200).collect();
    let mut stream = connect(plane, stranger, "http/1.1").await?;
    let asked = async {
        let _ = stream.write_all(request).await;
        let _ = stream.flush().await;
        told(&mut stream).await
    };
    let answer = timeout(SOON, asked)
        .await
        .with_context(|| format!("no answer to {shown}"))?;
    let (code, body) = answer.with_context(|| shown.clone())?;
    Ok(Told {
        what: shown,
        code,
        body,
    })
}

/// Reads until the server ends the connection. An end without an answer is code 0.
pub(super) async fn told(stream: &mut TlsStream<TcpStream>) -> Result<(u16, String)> {
    let mut all = Vec::new();
    let mut buffer = [0; 8192];
    // A connection that is cut off is an end like any other.
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        all.extend_from_slice(&buffer[..read]);
    }
    if all.is_empty() {
        return Ok((0, String::new()));
    }
    let text = String::from_utf8_lossy(&all).into_owned();
    let code = text.get(9..12).and_then(|code| code.parse().ok());
    ensure!(text.starts_with("HTTP/1.1 "), "not an answer: {text}");
    Ok((code.context("an answer without a code")?, text))
}

/// A request without a body, after which the connection ends.
pub(super) fn request(method: &str, target: &str, more: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n{more}\r\n")
        .into_bytes()
}
