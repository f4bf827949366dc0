//! Something between an agent and its hub that ends TLS, as inspecting proxies do.

use anyhow::{Context as _, Result};
use common::tls::install_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::pki::{Identity, Pki};

/// Shows a certificate of its own and passes everything on.
pub(crate) struct Middleman {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Middleman {
    /// Between whoever connects and the hub at `target`, whose CA is `pki`'s.
    pub(crate) async fn start(target: &str, pki: &Pki, shows: &Identity) -> Result<Self> {
        install_provider();
        let chain = CertificateDer::from_pem_slice(shows.cert.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(shows.key.as_bytes())?;
        let server = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(pki.ca_der()))?;
        let client = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let connector = TlsConnector::from(Arc::new(client));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let target = target.to_owned();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, connector) = (acceptor.clone(), connector.clone());
                let target = target.clone();
                tokio::spawn(async move {
                    // A client that does not like what it sees hangs up: that is the point.
                    let _ = pass_on(stream, &target, &acceptor, &connector).await;
                });
            }
        });
        Ok(Self { address, task })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Middleman {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(
    stream: TcpStream,
    target: &str,
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
) -> Result<()> {
    let mut near = acceptor.accept(stream).await?;
    let far = TcpStream::connect(target).await?;
    let name = ServerName::try_from("localhost").context("a name")?;
    let mut far = connector.connect(name, far).await?;
    tokio::io::copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}
