//! Volumes and claims that are being deleted: nothing here uses them, so nothing protects them.

use super::follow::{Follow, News};
use super::{context_of, warn};
use crate::apiserver::registry::{PatchKind, Registry};
use crate::apiserver::store::Stored;
use crate::apiserver::strategies;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

/// Plural names of what is protected.
pub(super) const KINDS: [&str; 2] = ["persistentvolumes", "persistentvolumeclaims"];
const MANAGER: &str = "kube-controller-manager";

pub(super) async fn run(registry: Registry, plural: &'static str) {
    let mut follow = Follow::new(&registry, &format!("/{plural}"));
    while let Some(news) = follow.next().await {
        let concerned: Vec<Arc<Stored>> = match news {
            News::Anything(all) => all,
            News::One(event) => vec![event.object],
        };
        for stored in concerned.iter().filter(|stored| stored.deleting()) {
            release(&registry, plural, stored).await;
        }
    }
}

async fn release(registry: &Registry, plural: &str, stored: &Stored) {
    let Some(resource) = registry.catalogue().resource("", "v1", plural) else {
        return;
    };
    let Some(finalizer) = strategies::protection(&resource) else {
        return;
    };
    let metadata = stored.metadata();
    let all = metadata["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let rest: Vec<&Value> = all.iter().filter(|one| *one != finalizer).collect();
    if rest.len() == all.len() {
        return;
    }
    let patch = json!({"metadata": {
        "resourceVersion": stored.revision().to_string(),
        "finalizers": if rest.is_empty() { Value::Null } else { json!(rest) },
    }});
    let context = context_of(resource, stored, MANAGER);
    let bytes = Bytes::from(patch.to_string());
    let done = registry
        .patch(&context, PatchKind::Merge, bytes, None)
        .await;
    if let Err(error) = done {
        warn("the release of a volume", &error);
    }
}
