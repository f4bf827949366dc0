//! Volumes and claims that are being deleted: nothing here uses them, so nothing protects them.

use super::follow::{News, follow};
use super::node::Node;
use super::{Failed, context_of};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::PatchKind;
use crate::apiserver::store::Scope;
use crate::apiserver::strategies;
use bytes::Bytes;
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::{Value, json};
use std::sync::Arc;

/// Plural names of what is protected.
const KINDS: [&str; 2] = ["persistentvolumes", "persistentvolumeclaims"];
const MANAGER: &str = "kube-controller-manager";

/// Releases volumes and claims; its keys are where they lie.
pub(super) struct Protection(Registry);

pub(super) fn controller(registry: &Registry) -> Controller<Protection> {
    let controller = Controller::new(Protection(registry.clone()));
    KINDS.iter().fold(controller, |controller, plural| {
        let watched = registry.clone();
        controller.source(move |queue| source(watched.clone(), plural, queue))
    })
}

async fn source(registry: Registry, plural: &'static str, queue: Queue<Node>) {
    let kind: Arc<str> = format!("/{plural}").into();
    let deleting = |stored: &crate::apiserver::store::Stored| {
        if stored.deleting() {
            queue.add(Node::of(&kind, stored));
        }
    };
    follow(&registry, &kind, Scope::All, |news| match news {
        News::Anything(all) => all.iter().for_each(|stored| deleting(stored)),
        News::One(event) => deleting(&event.object),
    })
    .await;
}

impl Reconcile for Protection {
    const NAME: &'static str = "volume-protection-controller";
    type Key = Node;
    type Error = Failed;

    async fn reconcile(&self, node: &Node) -> Result<Requeue, Failed> {
        let Self(registry) = self;
        let plural = node.kind.trim_start_matches('/');
        let Some(resource) = registry.scheme().resource("", "v1", plural) else {
            return Ok(Requeue::Never);
        };
        let (Some(stored), Some(finalizer)) = (
            registry.store().get(&node.kind, &node.key),
            strategies::protection(&resource),
        ) else {
            return Ok(Requeue::Never);
        };
        let metadata = stored.metadata();
        let all = metadata["finalizers"].as_array();
        let all = all.map(Vec::as_slice).unwrap_or_default();
        let rest: Vec<&Value> = all.iter().filter(|one| *one != finalizer).collect();
        if !stored.deleting() || rest.len() == all.len() {
            return Ok(Requeue::Never);
        }
        let patch = json!({"metadata": {
            "resourceVersion": stored.revision().to_string(),
            "finalizers": if rest.is_empty() { Value::Null } else { json!(rest) },
        }});
        let context = context_of(resource, &stored, MANAGER);
        let bytes = Bytes::from(patch.to_string());
        let done = registry.patch(&context, PatchKind::Merge, bytes, None);
        done.await.map_err(Failed::to("release a volume"))?;
        Ok(Requeue::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::control::testing::start;
    use crate::apiserver::registry::testing::{Refusing, Rig};

    #[tokio::test]
    async fn a_claim_whose_release_failed_is_released_later() {
        let rig = Rig::over(Refusing::updates("persistentvolumeclaims", 2)).await;
        let task = start(&rig, controller(&rig.registry));
        let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}});
        rig.create("v1/ns:persistentvolumeclaims", claim).await;
        let path = "v1/ns:persistentvolumeclaims/c";
        rig.delete(path, json!({})).await.expect("begins");
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while let Ok(claim) = rig.get(path).await {
            assert!(tokio::time::Instant::now() < deadline, "{claim}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        task.abort();
    }
}
