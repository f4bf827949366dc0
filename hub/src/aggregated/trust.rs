//! Whose certificates are believed: what the hub's API server says of itself in ConfigMap
//! `kube-system/extension-apiserver-authentication`, read again and again.
//!
//! [`Trust::parse`] and what follows from it is pure.

use chrono::{DateTime, Utc};
use common::errors::chain;
use common::identity::AgentSubject;
use common::lock::lock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Where the API server says it.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// How often it is read.
const EVERY: Duration = Duration::from_secs(30);

/// Why nobody can be believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read ConfigMap {NAMESPACE}/{NAME} of the hub's API server")]
    Read(#[source] Box<kube::Error>),
    /// The file of `--access-client-ca-file` cannot be read.
    #[error("failed to read {0}")]
    File(PathBuf, #[source] std::io::Error),
    /// It does not say what is needed.
    #[error("ConfigMap {NAMESPACE}/{NAME} of the hub's API server {0}")]
    Unusable(String),
}

/// Who is believed.
pub struct Trust {
    agents: Arc<dyn ClientCertVerifier>,
    fronts: Arc<dyn ClientCertVerifier>,
    /// Common names of front proxies; none where every certificate of their authority is one.
    names: Option<BTreeSet<String>>,
    headers: Headers,
}

/// The headers in which a front proxy says who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// Their names, in the order in which they are looked at.
    pub user: Vec<String>,
    /// Of the UID.
    pub uid: Vec<String>,
    /// Of groups.
    pub group: Vec<String>,
    /// What the names of extra fields begin with.
    pub extra: Vec<String>,
}

impl Trust {
    /// Reads what an API server says of itself. `client_ca` stands in the place of the authority of clients that it
    /// names.
    pub fn parse(data: &BTreeMap<String, String>, client_ca: Option<&str>) -> Result<Self, String> {
        let certificates = |key: &str, text: Option<&str>| {
            let text = text.filter(|text| !text.trim().is_empty());
            let text = text.ok_or_else(|| format!("has no {key:?}"))?;
            let read = common::tls::certificates(text.as_bytes());
            read.map_err(|error| format!("has a {key:?} that cannot be read: {}", chain(&error)))
        };
        let (client_key, front_key) = ("client-ca-file", "requestheader-client-ca-file");
        let said = |key: &str| data.get(key).map(String::as_str);
        let clients = certificates(client_key, client_ca.or(said(client_key)))?;
        let front = said(front_key);
        let fronts = certificates(front_key, front).map_err(|error| {
            format!("{error}: its kube-apiserver must run with --requestheader-client-ca-file and --proxy-client-cert-file")
        })?;
        let list = |key: &str| match said(key).filter(|text| !text.is_empty()) {
            None => Ok(Vec::new()),
            Some(text) => serde_json::from_str::<Vec<String>>(text)
                .map_err(|error| format!("has a {key:?} that cannot be read: {error}")),
        };
        let names: BTreeSet<String> = list("requestheader-allowed-names")?.into_iter().collect();
        // Without names every certificate of the authority is a front proxy's; where it is that of clients too, each of
        // them could say that it is whoever it likes.
        if names.is_empty() && fronts.iter().any(|der| clients.contains(der)) {
            return Err(format!(
                "allows every name to front proxies, whose authority is that of clients too: its kube-apiserver must \
                 run with --requestheader-allowed-names, or with another --{front_key}"
            ));
        }
        let headers = Headers {
            user: list("requestheader-username-headers")?,
            uid: list("requestheader-uid-headers")?,
            group: list("requestheader-group-headers")?,
            extra: list("requestheader-extra-headers-prefix")?,
        };
        if headers.user.is_empty() {
            return Err("names no header in which a front proxy says who asks".to_owned());
        }
        Ok(Self {
            agents: verifier(client_key, &clients)?,
            fronts: verifier(front_key, &fronts)?,
            names: (!names.is_empty()).then_some(names),
            headers,
        })
    }

    /// The headers in which a front proxy says who asks.
    pub(super) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The headers of a front proxy, unless this certificate is none of one.
    pub fn front(
        &self,
        chain: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Result<&Headers, String> {
        let subject = Subject::of(&*self.fronts, chain, now)?;
        match (&self.names, subject.only_name()) {
            (None, _) => Ok(&self.headers),
            (Some(names), Some(name)) if names.contains(name) => Ok(&self.headers),
            (Some(_), _) => Err("its name is none that a front proxy may have".to_owned()),
        }
    }

    /// Whose agent shows this certificate, by its whole subject, and when it ends.
    pub fn agent(
        &self,
        chain: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Result<(AgentSubject, DateTime<Utc>), String> {
        let subject = Subject::of(&*self.agents, chain, now)?;
        let name = subject.only_name().filter(|_| !subject.has_more);
        let agent = name.and_then(|name| AgentSubject::parse(name, &subject.organizations));
        let agent = agent.ok_or("its subject is not that of an agent")?;
        Ok((agent, subject.until))
    }
}

/// Whether this certificate holds by an authority and has this name, and says nothing else.
pub(super) fn is_named(
    name: &str,
    by: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: DateTime<Utc>,
) -> bool {
    let subject = Subject::of(by, chain, now);
    subject
        .is_ok_and(|it| it.only_name() == Some(name) && it.organizations.is_empty() && !it.has_more)
}

/// The subject of a certificate that holds.
struct Subject {
    names: Vec<String>,
    organizations: Vec<String>,
    /// Whether it says anything else.
    has_more: bool,
    until: DateTime<Utc>,
}

impl Subject {
    fn of(
        verifier: &dyn ClientCertVerifier,
        shown: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Result<Self, String> {
        let (leaf, rest) = shown.split_first().ok_or("it shows no certificate")?;
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = verifier.verify_client_cert(leaf, rest, at);
        verified.map_err(|error| error.to_string())?;
        let unreadable = || "its certificate cannot be read".to_owned();
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| unreadable())?;
        let (_, until) = common::tls::validity(leaf).map_err(|_| unreadable())?;
        let mut subject = Self {
            names: Vec::new(),
            organizations: Vec::new(),
            has_more: false,
            until,
        };
        for attribute in certificate.subject().iter_attributes() {
            let oid = attribute.attr_type();
            let into = match oid {
                _ if *oid == OID_X509_COMMON_NAME => &mut subject.names,
                _ if *oid == OID_X509_ORGANIZATION_NAME => &mut subject.organizations,
                _ => {
                    subject.has_more = true;
                    continue;
                }
            };
            let text = attribute.as_str().map_err(|_| unreadable())?;
            into.push(text.to_owned());
        }
        Ok(subject)
    }

    fn only_name(&self) -> Option<&str> {
        match self.names.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }
}

/// Judges client certificates by authorities, which are those of `key`.
pub(super) fn verifier(
    key: &str,
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| format!("has a {key:?} that is no authority: {error}"))?;
    }
    let provider = Arc::new(ring::default_provider());
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let built = built.map_err(|error| format!("has a {key:?} that cannot be used: {error}"))?;
    Ok(built)
}

/// What is believed now. Clones share it.
#[derive(Clone)]
pub(super) struct Trusted {
    client: Client,
    client_ca: Option<PathBuf>,
    now: Arc<Mutex<Arc<Trust>>>,
}

impl Trusted {
    /// Reads it for the first time.
    pub(super) async fn read(client: Client, client_ca: Option<PathBuf>) -> Result<Self, Error> {
        let trust = read(&client, client_ca.as_ref()).await?;
        Ok(Self {
            client,
            client_ca,
            now: Arc::new(Mutex::new(Arc::new(trust))),
        })
    }

    /// Who is believed now.
    pub(super) fn now(&self) -> Arc<Trust> {
        lock(&self.now).clone()
    }

    /// Reads it again and again. What cannot be read changes nothing.
    pub(super) async fn follow(&self) {
        loop {
            sleep(EVERY).await;
            match read(&self.client, self.client_ca.as_ref()).await {
                Ok(trust) => *lock(&self.now) = Arc::new(trust),
                Err(error) => {
                    let error = chain(&error).to_string();
                    tracing::warn!(error, "who may come in is as it was known before");
                }
            }
        }
    }
}

async fn read(client: &Client, client_ca: Option<&PathBuf>) -> Result<Trust, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get(NAME).await;
    let map = map.map_err(|error| Error::Read(Box::new(error)))?;
    let file = client_ca.map(|path| {
        let read = std::fs::read_to_string(path);
        read.map_err(|error| Error::File(path.clone(), error))
    });
    let file = file.transpose()?;
    let data = map.data.unwrap_or_default();
    Trust::parse(&data, file.as_deref()).map_err(Error::Unusable)
}

#[cfg(test)]
mod tests;
