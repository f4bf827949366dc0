//! What makes Deployments Ready on a member that has no nodes: their status, as if pods ran.

use chrono::{DateTime, Utc};
use common::time::SharedClock;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::pin::pin;

/// Plays them until it is dropped.
pub(super) async fn run(client: Client, clock: SharedClock) {
    let all: Api<Deployment> = Api::all(client.clone());
    let changes = watcher(all, watcher::Config::default());
    let mut changes = pin!(changes.default_backoff().touched_objects());
    while let Some(change) = changes.next().await {
        let Ok(found) = change else { continue };
        let Some(status) = status(&found, clock.now()) else {
            continue;
        };
        let namespace = found.namespace().unwrap_or_default();
        let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let patch = Patch::Merge(json!({ "status": status }));
        // One that is gone needs no status, and one that changed comes again.
        let _ = api
            .patch_status(&found.name_any(), &PatchParams::default(), &patch)
            .await;
    }
}

/// The status that a Deployment has when all its pods are ready, unless it has it already.
fn status(found: &Deployment, now: DateTime<Utc>) -> Option<Value> {
    let wanted = found.spec.as_ref()?.replicas.unwrap_or(1);
    let generation = found.metadata.generation;
    let has = found.status.clone().unwrap_or_default();
    let ready = has.ready_replicas.unwrap_or(0) == wanted;
    if found.metadata.deletion_timestamp.is_some()
        || (ready && has.observed_generation == generation)
    {
        return None;
    }
    let now = now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "every pod is ready",
            "lastUpdateTime": now, "lastTransitionTime": now,
        })
    };
    Some(json!({
        "observedGeneration": generation,
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": wanted,
        "availableReplicas": wanted,
        "conditions": [
            condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable"),
        ],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(value: Value) -> Deployment {
        serde_json::from_value(value).expect("a Deployment")
    }

    #[test]
    fn a_deployment_becomes_ready_once() {
        let now = DateTime::UNIX_EPOCH;
        let mut found = json!({
            "metadata": {"name": "web", "generation": 2},
            "spec": {
                "replicas": 3, "selector": {},
                "template": {"spec": {"containers": []}},
            },
        });
        let made = status(&deployment(found.clone()), now).expect("not ready yet");
        assert_eq!(made["readyReplicas"], 3);
        assert_eq!(made["observedGeneration"], 2);
        found["status"] = made;
        assert_eq!(status(&deployment(found.clone()), now), None);
        found["metadata"]["generation"] = json!(3);
        assert!(status(&deployment(found), now).is_some(), "changed since");
    }
}
