//! Signs approved requests for client certificates.

pub mod form;
mod request;

use super::keys::Keys;
use super::keys::authority::pem;
use super::keys::client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, Utc};
use common::chance::Chance;
use common::controller::{Controller, Failure, Metrics, Reconcile, Requeue};
use common::env::Env;
use common::identity::SIGNER;
use common::queue::Queue;
use common::time::SharedClock;
use common::watch::{Collection, Event, WatchConfig};
use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use request::{Request, Unfit};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How long a certificate lives when nobody says, and at the longest.
const LIFETIME: Duration = Duration::days(365);
/// Whose status writes these are.
const MANAGER: &str = "towline-hub";

/// Requests that are signed at once.
const CONCURRENCY: usize = 2;

/// Signs what is approved, until `stop`. What could not be written, as while the disk is full, is tried again.
pub async fn run(client: Client, keys: Keys, env: Env, metrics: Metrics, stop: CancellationToken) {
    let (watched, chance) = (client.clone(), env.chance.clone());
    let signer = Signer {
        client,
        keys,
        clock: env.clock,
    };
    Controller::new(signer)
        .workers(CONCURRENCY)
        .source(move |queue| source(watched.clone(), queue, chance.clone()))
        .run(metrics, env.chance, stop)
        .await;
}

/// Puts every request for our signer into `queue`, whenever it changes.
async fn source(client: Client, queue: Queue<Arc<str>>, chance: Chance) {
    let collection = Collection::of::<CertificateSigningRequest>(None);
    let config = WatchConfig {
        field_selector: Some(format!("spec.signerName={SIGNER}")),
        metadata_only: true,
        ..WatchConfig::new(&chance)
    };
    let events = common::watch::watch::<PartialObjectMeta<CertificateSigningRequest>>(
        client, collection, config,
    );
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        if let Event::Applied(request) = event {
            queue.add(request.name_any().into());
        }
    }
}

/// Why a request could not be settled; it is tried again.
#[derive(Debug, thiserror::Error)]
#[error("failed to {doing} CertificateSigningRequest {name:?}")]
struct Error {
    doing: &'static str,
    name: String,
    #[source]
    source: Box<kube::Error>,
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        "RequestFailed"
    }

    fn is_conflict(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if status.is_conflict())
    }
}

/// Signs; its keys are names of certificate requests.
struct Signer {
    client: Client,
    keys: Keys,
    clock: SharedClock,
}

impl Reconcile for Signer {
    const NAME: &'static str = "signer";
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Error> {
        let failed = |doing| {
            move |source| Error {
                doing,
                name: name.to_string(),
                source: Box::new(source),
            }
        };
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let Some(request) = requests.get_opt(name).await.map_err(failed("read"))? else {
            return Ok(Requeue::Never);
        };
        let Some(status) = decide(&request, &self.keys, self.clock.now()) else {
            return Ok(Requeue::Never);
        };
        let patch = json!({
            "metadata": {
                "uid": request.metadata.uid,
                "resourceVersion": request.metadata.resource_version,
            },
            "status": status,
        });
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match requests
            .patch_status(name, &params, &Patch::Merge(patch))
            .await
        {
            Ok(_) => tracing::debug!(%name, "a certificate request was settled"),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(failed("settle")(error)),
        }
        Ok(Requeue::Never)
    }
}

/// The status that settles a request; `None` when there is nothing to do.
pub fn decide(
    request: &CertificateSigningRequest,
    keys: &Keys,
    now: DateTime<Utc>,
) -> Option<Value> {
    let status = request.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let has = |kind: &str| conditions.iter().any(|condition| condition.type_ == kind);
    let signed = status.and_then(|status| status.certificate.as_ref());
    if signed.is_some_and(|certificate| !certificate.0.is_empty())
        || !has("Approved")
        || has("Denied")
        || has("Failed")
        || request.spec.signer_name != SIGNER
    {
        return None;
    }
    match sign(request, keys, now) {
        Ok(certificate) => Some(json!({"certificate": STANDARD.encode(certificate)})),
        Err(unfit) => {
            let mut all: Vec<Value> = conditions.iter().map(|c| json!(c)).collect();
            let time = now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            all.push(json!({
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": unfit.to_string(),
                "lastUpdateTime": time,
                "lastTransitionTime": time,
            }));
            Some(json!({"conditions": all}))
        }
    }
}

fn sign(
    request: &CertificateSigningRequest,
    keys: &Keys,
    now: DateTime<Utc>,
) -> Result<String, Unfit> {
    let usages = request.spec.usages.clone().unwrap_or_default();
    let read = Request::read(&request.spec.request.0, &usages)?;
    let wanted = request.spec.expiration_seconds;
    let lifetime = wanted.map_or(LIFETIME, |seconds| Duration::seconds(seconds.into()));
    let authorities = keys.authorities();
    let subject = client::Subject {
        name: &read.name,
        public_key: &read.public_key,
        key_encipherment: read.key_encipherment,
    };
    let until = now + lifetime.min(LIFETIME);
    let certificate = client::sign(&authorities.signer(), &subject, now, until)
        .map_err(|error| Unfit::Sign(error.to_string()))?;
    Ok(pem("CERTIFICATE", &certificate))
}

#[cfg(test)]
mod tests;
