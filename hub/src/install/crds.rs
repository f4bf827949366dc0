//! The definitions of Karmada's kinds, and the wait until they are served.

use super::object::Desired;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);

/// Made once: deriving the schemas is the dearest thing that a hub does at its start.
static ALL: LazyLock<Vec<Desired>> =
    LazyLock::new(|| common::api::all_crds().iter().map(object).collect());

/// Every definition a hub needs.
pub fn desired() -> Vec<Desired> {
    ALL.clone()
}

/// Takes over what is kept in a live definition and is not ours to reset: the epoch in its description.
pub fn carry_epoch(live: &Value, desired: &mut Value) {
    let parse = |value: &Value| -> Option<CustomResourceDefinition> {
        serde_json::from_value(value.clone()).ok()
    };
    let (Some(live), Some(mut carried)) = (parse(live), parse(desired)) else {
        return;
    };
    crate::epoch::carry(&live, &mut carried);
    *desired = to_value(&carried);
}

/// Waits until all are served; returns the names of those that are not when patience ends.
pub async fn await_established(
    client: &Client,
    patience: Duration,
) -> Result<Vec<String>, kube::Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted: Vec<String> = ALL.iter().map(|d| d.key().name).collect();
    let deadline = Instant::now() + patience;
    loop {
        let live = crds.list(&ListParams::default()).await?.items;
        let missing: Vec<String> = wanted
            .iter()
            .filter(|name| {
                !live
                    .iter()
                    .any(|crd| crd.name_any() == **name && served(crd))
            })
            .cloned()
            .collect();
        if missing.is_empty() || Instant::now() >= deadline {
            return Ok(missing);
        }
        sleep(POLL).await;
    }
}

fn served(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions
        .unwrap_or_default()
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

fn object(crd: &CustomResourceDefinition) -> Desired {
    Desired::new(to_value(crd))
}

fn to_value(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(crd).expect("invariant: a definition is JSON")
}
