//! Volumes and claims that are being deleted: nothing here uses them, so nothing protects them.

use super::again::Again;
use super::follow::{Follow, News};
use super::{context_of, warn};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::PatchKind;
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
    let mut again = Again::usual(registry.chance());
    loop {
        let concerned: Vec<Arc<Stored>> = tokio::select! {
            biased;
            // Due once, and then not before it is worked on.
            () = again.due() => {
                let all = registry.store().snapshot(&format!("/{plural}"));
                all.table.iter().cloned().collect()
            }
            news = follow.next() => match news {
                None => return,
                Some(News::Anything(all)) => all,
                // While something waits for another attempt, it is looked at with the rest.
                Some(News::One(_)) if !again.is_due() => continue,
                Some(News::One(event)) => vec![event.object],
            },
        };
        let mut failed = false;
        for stored in concerned.iter().filter(|stored| stored.deleting()) {
            failed |= !release(&registry, plural, stored).await;
        }
        again.ended(failed);
    }
}

/// Whether nothing is left to do for it.
async fn release(registry: &Registry, plural: &str, stored: &Stored) -> bool {
    let Some(resource) = registry.scheme().resource("", "v1", plural) else {
        return true;
    };
    let Some(finalizer) = strategies::protection(&resource) else {
        return true;
    };
    let metadata = stored.metadata();
    let all = metadata["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let rest: Vec<&Value> = all.iter().filter(|one| *one != finalizer).collect();
    if rest.len() == all.len() {
        return true;
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
    match done {
        Ok(_) => true,
        Err(error) => !warn("the release of a volume", &error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::testing::{Refusing, Rig};

    #[tokio::test]
    async fn a_claim_whose_release_failed_is_released_later() {
        let rig = Rig::over(Refusing::updates("persistentvolumeclaims", 2)).await;
        let task = tokio::spawn(run(rig.registry.clone(), KINDS[1]));
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
