//! Finds the hub's CA from a token and a pin: nothing that an unverified server says is used before the
//! token's signature and the pin have held, and then it must say the same over verified TLS.
//!
//! The first request accepts any certificate, because the CA is what is being looked for. Its answer is
//! only a document; the JWS that the token keys decides whether it is read, the pin which of its CAs are
//! kept. Redirects are never followed and no option skips a step.

mod error;
mod fetch;
mod jws;
mod pin;
mod published;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use jws::{sign_jws, verify_jws};
pub use pin::{CaPin, InvalidPin};
pub use published::{CLUSTER_INFO, PUBLIC_NAMESPACE, Published};

use crate::chance::secret;
use crate::client::{Attempt, HostPort, Problem};
use crate::env::Env;
use crate::labels::SERVERS_EXTENSION;
use crate::proxy::ProxyChoice;
use crate::tls::{self, ClientTls, PeerProblem};
use crate::token::BootstrapToken;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use fetch::Answer;
use k8s_openapi::api::core::v1::ConfigMap;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use std::time::Duration;

/// How long a new token's signature is waited for: the hub signs a moment after the token is made.
const SIGNATURE_WAIT: Duration = Duration::from_secs(5);
const SIGNATURE_RETRY: Duration = Duration::from_millis(500);

/// A hub whose CA is known for certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedHub {
    /// The pinned CA certificates, and no others.
    pub ca_pem: Vec<u8>,
    /// The addresses that the hub advertises.
    pub servers_from_cluster_info: Vec<HostPort>,
    /// By how much the hub's clock is ahead of the one here, to a second.
    pub clock_ahead: TimeDelta,
}

impl VerifiedHub {
    /// The addresses to use: those the user gave, then those the hub advertises.
    pub fn servers(&self, given: &[HostPort]) -> Vec<HostPort> {
        let mut all: Vec<HostPort> = Vec::new();
        for address in given.iter().chain(&self.servers_from_cluster_info) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }
}

/// Verifies the hub at the first of `servers` where that succeeds.
pub async fn discover(
    servers: &[HostPort],
    proxy: &ProxyChoice,
    token: &BootstrapToken,
    pins: &[CaPin],
    env: &Env,
) -> Result<VerifiedHub, Error> {
    discover_within(SIGNATURE_WAIT, servers, proxy, token, pins, env).await
}

async fn discover_within(
    signature_wait: Duration,
    servers: &[HostPort],
    proxy: &ProxyChoice,
    token: &BootstrapToken,
    pins: &[CaPin],
    env: &Env,
) -> Result<VerifiedHub, Error> {
    let mut unreachable = Vec::new();
    let mut furthest: Option<Error> = None;
    for address in servers {
        let at = Discovery {
            address,
            proxy,
            token,
            pins,
            env,
            signature_wait,
        };
        match at.run().await {
            Ok(hub) => return Ok(hub),
            Err(Error::Unreachable { attempts }) => unreachable.extend(attempts),
            Err(error) => {
                tracing::warn!(%address, %error, "the hub cannot be verified at this address");
                if furthest
                    .as_ref()
                    .is_none_or(|f| f.progress() < error.progress())
                {
                    furthest = Some(error);
                }
            }
        }
    }
    Err(furthest.unwrap_or(Error::Unreachable {
        attempts: unreachable,
    }))
}

/// Verifies the hub at `server` by its pin alone, as somebody who looks after the way to it and has no
/// token. Returns the pins of its authorities. Without a pin nothing is verified.
pub async fn look(
    server: &HostPort,
    proxy: &ProxyChoice,
    pins: &[CaPin],
    env: &Env,
) -> Result<Vec<CaPin>, Error> {
    // It opens nothing, and no signature for it is looked for.
    let nobodys = BootstrapToken::generate(&mut secret::rng());
    let at = Discovery {
        address: server,
        proxy,
        token: &nobodys,
        pins,
        env,
        signature_wait: Duration::ZERO,
    };
    let first = at.ask_unverified().await?;
    let Some((kubeconfig, _)) = first.document(nobodys.id()) else {
        return Err(at.not_a_hub(&first));
    };
    if !pins.is_empty() {
        at.verify(&first, &kubeconfig).await?;
    }
    let info = ClusterInfo::parse(&kubeconfig).map_err(|reason| at.unusable(reason))?;
    let authorities = info.authorities.iter();
    Ok(authorities
        .filter_map(|der| CaPin::of_certificate(der).ok())
        .collect())
}

struct Discovery<'a> {
    address: &'a HostPort,
    proxy: &'a ProxyChoice,
    token: &'a BootstrapToken,
    pins: &'a [CaPin],
    env: &'a Env,
    signature_wait: Duration,
}

impl Discovery<'_> {
    async fn run(&self) -> Result<VerifiedHub, Error> {
        let (first, kubeconfig) = self.signed_document().await?;
        self.verify(&first, &kubeconfig).await
    }

    /// Holds a document against the pins, then has the server say it again over verified TLS.
    async fn verify(&self, first: &Answer, kubeconfig: &str) -> Result<VerifiedHub, Error> {
        let info = ClusterInfo::parse(kubeconfig).map_err(|reason| self.unusable(reason))?;
        let kept = self.pinned(&info)?;
        let again = self.ask_verified(&kept, first.date).await?;
        if again
            .document(self.token.id())
            .map(|(document, _)| document)
            .as_deref()
            != Some(kubeconfig)
        {
            return Err(Error::Changed {
                address: self.address.clone(),
            });
        }
        Ok(VerifiedHub {
            ca_pem: pem(&kept),
            servers_from_cluster_info: info.servers,
            clock_ahead: again
                .date
                .map_or(TimeDelta::zero(), |date| date - self.env.clock.now()),
        })
    }

    /// Asks without knowing whom; what it returns has the token's signature.
    async fn signed_document(&self) -> Result<(Answer, String), Error> {
        let deadline = tokio::time::Instant::now() + self.signature_wait;
        loop {
            let answer = self.ask_unverified().await?;
            let Some((kubeconfig, signature)) = answer.document(self.token.id()) else {
                return Err(self.not_a_hub(&answer));
            };
            let token_id = self.token.id().to_owned();
            let address = self.address.clone();
            match signature {
                Some(jws) if verify_jws(self.token, &kubeconfig, &jws) => {
                    return Ok((answer, kubeconfig));
                }
                Some(_) => return Err(Error::JwsInvalid { address, token_id }),
                None if tokio::time::Instant::now() >= deadline => {
                    return Err(Error::JwsMissing { address, token_id });
                }
                None => tokio::time::sleep(SIGNATURE_RETRY).await,
            }
        }
    }

    async fn ask_unverified(&self) -> Result<Answer, Error> {
        fetch::unverified(self.address, self.proxy, self.env)
            .await
            .map_err(|problem| self.unreachable(problem))
    }

    async fn ask_verified(
        &self,
        kept: &[CertificateDer<'static>],
        hub_time_shown: Option<DateTime<Utc>>,
    ) -> Result<Answer, Error> {
        let tls = ClientTls::new(kept, None, &self.env.clock).map_err(Error::Tls)?;
        let address = self.address.clone();
        let problem = match fetch::with(&address, self.proxy, tls, self.env).await {
            Ok(answer) => return Ok(answer),
            Err(Problem::Certificate { problem, .. }) => problem,
            Err(problem) => return Err(self.unreachable(problem)),
        };
        Err(match problem {
            PeerProblem::ForeignIssuer { issuer } => Error::ForeignIssuer { address, issuer },
            PeerProblem::WrongName { .. } => Error::WrongName { address, problem },
            PeerProblem::NotYetValid { .. } | PeerProblem::Expired { .. } => Error::ClockSkew {
                address,
                problem,
                hub_time_shown,
            },
        })
    }

    /// Only certificates whose own key is pinned: with a bundle of which one match were enough, its
    /// other CA could impersonate the hub.
    fn pinned(&self, info: &ClusterInfo) -> Result<Vec<CertificateDer<'static>>, Error> {
        let mut kept = Vec::new();
        let mut found = Vec::new();
        for certificate in &info.authorities {
            let Ok(pin) = CaPin::of_certificate(certificate) else {
                continue;
            };
            if self.pins.contains(&pin) && pin::is_authority(certificate) {
                kept.push(certificate.clone());
            } else {
                found.push(pin);
            }
        }
        if kept.is_empty() {
            return Err(Error::PinMismatch {
                address: self.address.clone(),
                found,
            });
        }
        Ok(kept)
    }

    fn unreachable(&self, problem: Problem) -> Error {
        Error::Unreachable {
            attempts: vec![Attempt {
                address: self.address.clone(),
                problem,
            }],
        }
    }

    fn unusable(&self, reason: String) -> Error {
        Error::Unusable {
            address: self.address.clone(),
            reason,
        }
    }

    fn not_a_hub(&self, answer: &Answer) -> Error {
        let reason = match answer.status {
            200 => "the answer is no cluster-info".to_owned(),
            401 | 403 => format!(
                "it answered {}: anonymous requests for kube-public/cluster-info are refused",
                answer.status
            ),
            404 => "it answered 404: kube-public/cluster-info is missing; was the hub prepared with towline init?"
                .to_owned(),
            code => format!("it answered {code} to a request for kube-public/cluster-info"),
        };
        Error::NotAHub {
            address: self.address.clone(),
            reason,
            issuer: answer.issuer.clone(),
        }
    }
}

impl Answer {
    /// The signed text and the token's signature, when the answer is a cluster-info.
    fn document(&self, token_id: &str) -> Option<(String, Option<String>)> {
        if self.status != 200 {
            return None;
        }
        let map: ConfigMap = serde_json::from_slice(&self.body).ok()?;
        let mut data = map.data?;
        let kubeconfig = data.remove("kubeconfig")?;
        Some((
            kubeconfig,
            data.remove(&format!("jws-kubeconfig-{token_id}")),
        ))
    }
}

/// What cluster-info says.
struct ClusterInfo {
    authorities: Vec<CertificateDer<'static>>,
    servers: Vec<HostPort>,
}

impl ClusterInfo {
    fn parse(kubeconfig: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Document {
            clusters: Vec<Named>,
        }
        #[derive(Deserialize)]
        struct Named {
            cluster: Cluster,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Cluster {
            #[serde(default)]
            server: String,
            #[serde(default)]
            certificate_authority_data: String,
            #[serde(default)]
            extensions: Vec<Extension>,
        }
        #[derive(Deserialize)]
        struct Extension {
            name: String,
            extension: serde_yaml::Value,
        }
        let document: Document =
            serde_yaml::from_str(kubeconfig).map_err(|error| error.to_string())?;
        let (mut authorities, mut servers) = (Vec::new(), Vec::new());
        for Named { cluster } in document.clusters {
            let data: String = cluster
                .certificate_authority_data
                .split_ascii_whitespace()
                .collect();
            let pem = BASE64_STANDARD
                .decode(data)
                .map_err(|error| error.to_string())?;
            if !pem.is_empty() {
                authorities.extend(tls::certificates(&pem).map_err(|error| error.to_string())?);
            }
            servers.extend(HostPort::parse(&cluster.server).ok());
            // The one cluster has room for one address; all of them stand in an extension.
            let listed = cluster
                .extensions
                .iter()
                .filter(|e| e.name == SERVERS_EXTENSION);
            for address in listed
                .filter_map(|e| e.extension["servers"].as_sequence())
                .flatten()
            {
                let address = address.as_str().and_then(|text| HostPort::parse(text).ok());
                servers.extend(address.filter(|address| !servers.contains(address)));
            }
        }
        if authorities.is_empty() {
            return Err("it has no CA certificate".to_owned());
        }
        Ok(Self {
            authorities,
            servers,
        })
    }
}

fn pem(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut out = String::new();
    for certificate in certificates {
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = BASE64_STANDARD.encode(certificate);
        for line in text.as_bytes().chunks(64) {
            out.extend(line.iter().map(|&b| char::from(b)));
            out.push('\n');
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out.into_bytes()
}
