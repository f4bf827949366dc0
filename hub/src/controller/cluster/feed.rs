//! Watches Clusters and execution namespaces and wakes the controller when it matters.

use crate::controller::queue::Queue;
use common::api::cluster::{Cluster, QUARANTINED, READY, UNREGISTERING};
use common::labels::{MANAGED_VALUE, SYSTEM, UNREGISTER};
use common::names::EXECUTION_PREFIX;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use tokio_util::sync::CancellationToken;

const PAGE: u32 = 500;

/// What a decision looks at, raw, so that nothing in it can keep the Cluster from being served. The rest of
/// a status is long, and a page of it decoded would be tens of megabytes.
#[derive(Debug, Deserialize)]
struct Object {
    metadata: Value,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Value,
}

#[derive(Debug, Deserialize)]
struct NamespaceView {
    metadata: NameView,
}

#[derive(Debug, Deserialize)]
struct NameView {
    name: String,
}

/// Adds the names of Clusters to `queue` until `shutdown`.
pub async fn feed(client: Client, queue: Queue, shutdown: CancellationToken) {
    let config = WatchConfig {
        page_size: PAGE,
        ..WatchConfig::default()
    };
    let collection = Collection::of::<Cluster>(None);
    let mut clusters = pin!(watch::<Object>(client.clone(), collection, config.clone()));
    let config = WatchConfig {
        label_selector: Some(format!("{SYSTEM}={MANAGED_VALUE}")),
        metadata_only: true,
        ..config
    };
    let collection = Collection::of::<Namespace>(None);
    let mut namespaces = pin!(watch::<NamespaceView>(client, collection, config));
    let mut known = Known::default();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(event) = clusters.next() => {
                if let Some(name) = known.changed(&event) {
                    queue.add(&name);
                }
            }
            Some(event) = namespaces.next() => {
                if let Some(name) = owner(&event) {
                    queue.add(name);
                }
            }
        }
    }
}

/// What the controller has been woken for.
#[derive(Debug, Default)]
struct Known(HashMap<String, u64>);

impl Known {
    /// The Cluster that must be looked at after this event.
    fn changed(&mut self, event: &Event<Object>) -> Option<String> {
        match event {
            Event::Applied(object) => {
                let name = object.metadata["name"].as_str()?;
                let print = fingerprint(object);
                let before = self.0.insert(name.to_owned(), print);
                (before != Some(print)).then(|| name.to_owned())
            }
            Event::Undecodable(object) => Some(object.key.name.clone()),
            Event::Deleted(key) => {
                self.0.remove(&key.name);
                None
            }
            // A list may hide that a Cluster went and came; looking once more costs little.
            Event::Restarted => {
                self.0.clear();
                None
            }
            Event::Listed { .. } | Event::Disconnected { .. } | Event::Resumed { .. } => None,
        }
    }
}

/// Changes when a decision could.
fn fingerprint(object: &Object) -> u64 {
    let metadata = &object.metadata;
    let conditions = object.status.as_ref().map(|status| &status.conditions);
    let status = |type_: &str| {
        let found = conditions?
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == type_)?;
        Some(&found["status"])
    };
    let matters = json!([
        metadata["uid"],
        metadata["generation"],
        metadata["deletionTimestamp"],
        metadata["finalizers"],
        metadata["annotations"][UNREGISTER],
        status(READY),
        status(UNREGISTERING),
        status(QUARANTINED),
    ]);
    let mut hasher = DefaultHasher::new();
    matters.to_string().hash(&mut hasher);
    hasher.finish()
}

/// The Cluster whose namespace changed or went.
fn owner(event: &Event<NamespaceView>) -> Option<&str> {
    let name = match event {
        Event::Deleted(key) => &key.name,
        Event::Applied(namespace) => &namespace.metadata.name,
        _ => return None,
    };
    name.strip_prefix(EXECUTION_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_wakes_the_controller() {
        let mut known = Known::default();
        let cluster = |ready: &str, nodes: u32| {
            let object = json!({
                "metadata": {"name": "m1", "uid": "u", "generation": 1},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "nodeSummary": {"totalNum": nodes},
                },
            });
            Event::Applied(serde_json::from_value(object).expect("a Cluster"))
        };
        assert_eq!(known.changed(&cluster("True", 1)).as_deref(), Some("m1"));
        assert_eq!(known.changed(&cluster("True", 2)), None);
        assert_eq!(known.changed(&cluster("Unknown", 2)).as_deref(), Some("m1"));
        assert_eq!(known.changed(&Event::Restarted), None);
        assert_eq!(known.changed(&cluster("Unknown", 2)).as_deref(), Some("m1"));
    }
}
