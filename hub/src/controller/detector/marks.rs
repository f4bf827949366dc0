//! What a policy itself carries: its permanent id, and the finalizer that keeps it until nothing is held by it.
//!
//! Pure. Where an admission webhook of Karmada's gives the id, nothing is left to do here.

use crate::propagation::{Policy, PolicyName};
use common::labels::{CLUSTER_POLICY_FINALIZER, POLICY_FINALIZER};
use serde_json::{Value, json};

/// The detector's finalizer on a policy.
pub fn finalizer(name: &PolicyName) -> &'static str {
    match name.namespace {
        Some(_) => POLICY_FINALIZER,
        None => CLUSTER_POLICY_FINALIZER,
    }
}

/// The merge patch of a policy that was seen at `resource_version` with these `finalizers`; none when nothing is
/// to change. `holds` says whether any template still shows it; a new id is `fresh_id`, a UUID that nobody has.
pub fn patch(
    policy: &Policy,
    resource_version: &str,
    finalizers: &[String],
    holds: bool,
    fresh_id: &str,
) -> Option<Value> {
    let ours = finalizer(&policy.name);
    let has = finalizers.iter().any(|it| it == ours);
    let mut metadata = json!({});
    if policy.deleting {
        if !has || holds {
            return None;
        }
        let others: Vec<&String> = finalizers.iter().filter(|it| *it != ours).collect();
        metadata["finalizers"] = json!(others);
    } else {
        if has && !policy.id.is_empty() {
            return None;
        }
        if policy.id.is_empty() {
            metadata["labels"] = json!({ policy.name.id_label(): fresh_id });
        }
        if !has {
            let mut all = finalizers.to_vec();
            all.push(ours.to_owned());
            metadata["finalizers"] = json!(all);
        }
    }
    metadata["resourceVersion"] = json!(resource_version);
    Some(json!({ "metadata": metadata }))
}
