//! Clients from a kubeconfig, or from the service account of the pod this runs in.

mod file;

pub use file::{KubeconfigError, kubeconfigs, read_kubeconfig};

use super::authorization::Authorization;
use super::connect::{Connector, TlsSource};
use super::transport::{Identity, ResponseBody, Transport};
use super::{ClientOptions, Error, HostPort};
use crate::env::Env;
use crate::proxy::{InvalidProxy, ProxyChoice};
use crate::secret::Secret;
use crate::time::SharedClock;
use crate::tls::{self, CertificateSwap, ClientTls};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, Cluster};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use secrecy::ExposeSecret as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A client of a member, or of the hub by a file. Without a path it is `KUBECONFIG` or
/// `~/.kube/config` when there is one, else the pod's service account. A proxy is used only when the
/// kubeconfig says `proxy-url`. Must be called inside a tokio runtime.
pub async fn kubeconfig_client(
    path: Option<&Path>,
    context: Option<&str>,
    options: &ClientOptions,
    env: &Env,
) -> Result<(kube::Client, Config), Error> {
    kubeconfig_client_through(path, context, options, &ProxyChoice::direct(), env).await
}

/// The same for the way from an agent to its hub: through a proxy, unless the kubeconfig has its own.
pub async fn kubeconfig_client_through(
    path: Option<&Path>,
    context: Option<&str>,
    options: &ClientOptions,
    proxy: &ProxyChoice,
    env: &Env,
) -> Result<(kube::Client, Config), Error> {
    let loaded = load(path, context)?;
    let client = client_of(&loaded, options, proxy, env).await?;
    Ok((client, loaded.config))
}

/// Where a member is, and by which token it is spoken to.
#[derive(Debug, Clone)]
pub struct MemberTarget {
    /// URL of its API server.
    pub server: String,
    /// The certificates that are trusted, as PEM; without them those of the machine.
    pub ca_pem: Option<String>,
    /// Name in the server's certificate; the host of the URL without.
    pub server_name: Option<String>,
    /// The token.
    pub token: Secret<String>,
    /// The way out: a proxy's URL.
    pub proxy: Option<Secret<String>>,
    /// Headers that it is told.
    pub proxy_headers: Secret<BTreeMap<String, String>>,
}

/// A client of a member, by its target and by nothing but that; with what is told its proxy.
pub async fn member_client(
    target: &MemberTarget,
    options: &ClientOptions,
    env: &Env,
) -> Result<(kube::Client, Config, ProxyChoice), Error> {
    let server = &target.server;
    let url = server.parse();
    let mut config = Config::new(url.map_err(|_| Error::Server(server.clone()))?);
    config.default_retry = false;
    config.tls_server_name.clone_from(&target.server_name);
    if let Some(pem) = &target.ca_pem {
        let roots = tls::certificates(pem.as_bytes());
        let roots = roots.map_err(|error| Error::Tls(server.clone(), error))?;
        config.root_cert = Some(roots.iter().map(|root| root.to_vec()).collect());
    }
    if let Some(proxy) = &target.proxy {
        let url = proxy.expose().parse();
        config.proxy_url = Some(url.map_err(|_| Error::Proxy(InvalidProxy::Syntax))?);
    }
    config.auth_info.token = Some(target.token.expose().clone().into());
    let headers = ProxyChoice::direct().with_headers(target.proxy_headers.expose());
    let headers = headers.map_err(Error::Proxy)?;
    let loaded = Loaded {
        config,
        cluster: None,
        shown: "of a token".to_owned(),
    };
    let client = client_of(&loaded, options, &headers, env).await?;
    Ok((client, loaded.config, headers))
}

/// What the environment or the file says, and how that is called.
fn load(path: Option<&Path>, context: Option<&str>) -> Result<Loaded, Error> {
    let shown = path.map_or_else(
        || "of the environment".to_owned(),
        |p| p.display().to_string(),
    );
    let Some(kubeconfig) = read_kubeconfig(path)? else {
        let config = Config::incluster().map_err(Error::InCluster)?;
        return Ok(Loaded {
            config,
            cluster: None,
            shown: "of the service account".to_owned(),
        });
    };
    let wanted = context.or(kubeconfig.current_context.as_deref());
    let mut contexts: Vec<String> = kubeconfig.contexts.iter().map(|c| c.name.clone()).collect();
    let Some(wanted) = wanted.filter(|wanted| contexts.iter().any(|name| name == wanted)) else {
        contexts.sort();
        return Err(Error::Context {
            kubeconfig: shown,
            wanted: wanted.filter(|name| !name.is_empty()).map(str::to_owned),
            contexts,
        });
    };
    let meant = file::config(&kubeconfig, wanted);
    let (config, cluster) = meant.map_err(|error| Error::Kubeconfig(shown.clone(), error))?;
    Ok(Loaded {
        config,
        cluster: Some(cluster),
        shown,
    })
}

/// A context, read.
struct Loaded {
    config: Config,
    /// None for a service account.
    cluster: Option<Cluster>,
    shown: String,
}

async fn client_of(
    loaded: &Loaded,
    options: &ClientOptions,
    proxy: &ProxyChoice,
    env: &Env,
) -> Result<kube::Client, Error> {
    let config = &loaded.config;
    let server = server_of(config)?;
    let proxy = match &config.proxy_url {
        Some(url) => ProxyChoice::explicit(&url.to_string())
            .map_err(Error::Proxy)?
            .with_headers_of(proxy),
        None => proxy.clone(),
    };
    let source = tls_source(config, options.protocols(), &env.clock);
    // Tried once here, and so is the header below: a broken file is an error of the start, not of every request.
    source().map_err(|error| Error::Tls(server.to_string(), error))?;
    let server_name = config.tls_server_name.clone();
    let connector = Connector::with_server_name(vec![server], proxy, source, server_name, env);
    let user = &config.auth_info;
    let authorization = Authorization::of(user, loaded.cluster.as_ref(), &env.clock);
    let authorization = authorization.map_err(Error::Credentials)?;
    authorization.header().await.map_err(Error::Credentials)?;
    let identity = match is_in_file(user) {
        true => Identity::File,
        false => Identity::Fixed,
    };
    let transport = Transport::new(connector, options, authorization, identity);
    tracing::debug!(server = %config.cluster_url, kubeconfig = loaded.shown, "client made");
    let acting = config.extra_headers_layer();
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(acting.map_err(|error| Error::Acting(Box::new(error)))?)
        .service(transport);
    Ok(kube::Client::new::<_, ResponseBody, _>(
        service,
        config.default_namespace.clone(),
    ))
}

/// Where the API server is, if it is one that may be spoken to.
pub(super) fn server_of(config: &Config) -> Result<HostPort, Error> {
    if config.accept_invalid_certs {
        return Err(Error::Insecure);
    }
    let url = &config.cluster_url;
    match (url.scheme_str(), url.host()) {
        (Some("https"), Some(host)) => Ok(HostPort::new(host, url.port_u16().unwrap_or(443))),
        _ => Err(Error::Server(url.to_string())),
    }
}

/// Where distributions keep the CA certificates that everybody trusts.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS for each new connection; files are read anew, so that rotated ones are taken.
pub(super) fn tls_source(
    config: &Config,
    protocols: Vec<Vec<u8>>,
    clock: &SharedClock,
) -> TlsSource {
    let roots = config.root_cert.clone().unwrap_or_default();
    let roots_file = config.root_cert_file.clone();
    let auth = config.auth_info.clone();
    let clock = clock.clone();
    Arc::new(move || {
        let roots: Vec<CertificateDer<'static>> = match &roots_file {
            Some(path) => tls::certificates(&read(path)?)?,
            None if roots.is_empty() => system_roots()?,
            None => roots
                .iter()
                .map(|der| CertificateDer::from(der.clone()))
                .collect(),
        };
        let tls = ClientTls::new(&roots, identity(&auth)?, &clock)?;
        Ok(tls.offering(protocols.clone()))
    })
}

/// A kubeconfig without a CA means the ones of the machine, as it does to kubectl.
fn system_roots() -> Result<Vec<CertificateDer<'static>>, tls::Error> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = SYSTEM_ROOTS.iter().map(PathBuf::from);
    let found = named.into_iter().chain(known).find(|path| path.exists());
    let mut roots = tls::certificates(&read(&found.ok_or(tls::Error::NoSystemRoots)?)?)?;
    // Some bundles hold certificates that no verifier takes.
    roots.retain(|root| RootCertStore::empty().add(root.clone()).is_ok());
    Ok(roots)
}

fn identity(auth: &AuthInfo) -> Result<Option<CertificateSwap>, tls::Error> {
    let cert = pem(
        auth.client_certificate_data.as_deref(),
        auth.client_certificate.as_deref(),
    )?;
    let key = auth.client_key_data.as_ref().map(|key| key.expose_secret());
    let key = pem(key, auth.client_key.as_deref())?;
    let (Some(cert), Some(key)) = (cert, key) else {
        return Ok(None);
    };
    let swap = CertificateSwap::empty();
    swap.set(&cert, &key)?;
    Ok(Some(swap))
}

/// Whether [`identity`] may find another certificate the next time.
fn is_in_file(auth: &AuthInfo) -> bool {
    let is_filled = |text: &Option<String>| text.as_ref().is_some_and(|it| !it.is_empty());
    is_filled(&auth.client_certificate) && !is_filled(&auth.client_certificate_data)
}

/// The kubeconfig's rule: inline data in base64 comes before a file.
pub(super) fn pem(data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, tls::Error> {
    match (data, file) {
        (Some(data), _) if !data.is_empty() => {
            let compact: String = data.split_ascii_whitespace().collect();
            let decoded = BASE64_STANDARD.decode(compact);
            Ok(Some(decoded.map_err(|_| tls::Error::Base64)?))
        }
        (_, Some(file)) if !file.is_empty() => Ok(Some(read(Path::new(file))?)),
        _ => Ok(None),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, tls::Error> {
    std::fs::read(path).map_err(|source| tls::Error::File {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_in_a_file_may_be_renewed() {
        for (user, expected) in [
            ("{}", false),
            ("{token: a}", false),
            ("{client-certificate: a, client-key: b}", true),
            ("{client-certificate: a, client-key-data: Yg==}", true),
            ("{client-certificate: '', client-key: b}", false),
            ("{client-certificate-data: YQ==, client-key: b}", false),
            (
                "{client-certificate: a, client-certificate-data: YQ==}",
                false,
            ),
        ] {
            let auth: AuthInfo = serde_yaml::from_str(user).expect("a user");
            assert_eq!(is_in_file(&auth), expected, "{user}");
        }
    }
}
