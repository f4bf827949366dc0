//! Signs approved requests for client certificates.

pub mod form;
mod request;

use super::keys::Keys;
use super::keys::authority::pem;
use super::keys::client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, Utc};
use common::identity::SIGNER;
use common::time::SharedClock;
use common::watch::{Collection, Event, WatchConfig};
use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use request::{Request, Unfit};
use serde_json::{Value, json};

/// How long a certificate lives when nobody says, and at the longest.
const LIFETIME: Duration = Duration::days(365);
/// Whose status writes these are.
const MANAGER: &str = "towline-hub";

/// Signs what is approved, for ever.
pub async fn run(client: Client, keys: Keys, clock: SharedClock) {
    let collection = Collection::of::<CertificateSigningRequest>(None);
    let config = WatchConfig {
        field_selector: Some(format!("spec.signerName={SIGNER}")),
        ..WatchConfig::default()
    };
    let events =
        common::watch::watch::<CertificateSigningRequest>(client.clone(), collection, config);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Event::Applied(request) = event else {
            continue;
        };
        let Some(status) = decide(&request, &keys, clock.now()) else {
            continue;
        };
        let name = request.metadata.name.clone().unwrap_or_default();
        let patch = json!({
            "metadata": {
                "uid": request.metadata.uid,
                "resourceVersion": request.metadata.resource_version,
            },
            "status": status,
        });
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match requests
            .patch_status(&name, &params, &Patch::Merge(patch))
            .await
        {
            Ok(_) => tracing::debug!(name, "a certificate request was settled"),
            // It changed, so it comes again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                tracing::warn!(name, error = %common::errors::chain(&error), "failed to settle a certificate request");
            }
        }
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
