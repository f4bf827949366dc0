//! Nodes and volumes: what the server writes beside what a body says.

use crate::apiserver::metadata;
use crate::apiserver::value::{copy, is_set, list, put, text};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A new node takes nothing until somebody says that it is ready.
pub(super) fn taint(node: &mut Value) {
    let mut taints = list(node, &["spec", "taints"]).to_vec();
    let there = |taint: &Value| {
        (text(taint, &["key"]), text(taint, &["effect"])) == (NOT_READY, "NoSchedule")
    };
    if !taints.iter().any(there) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        put(node, &["spec", "taints"], Some(json!(taints)));
    }
}

/// A kubelet does not take its configuration from the server any more.
pub(super) fn without_config(node: &mut Value, old: Option<&Value>) {
    put(node, &["spec", "configSource"], None);
    if !old.is_some_and(|old| is_set(old, &["status", "config"])) {
        put(node, &["status", "config"], None);
    }
}

/// A volume says since when it is in its phase.
pub(super) fn phase_time(volume: &mut Value, old: Option<&Value>, now: DateTime<Utc>) {
    const TIME: [&str; 2] = ["status", "lastPhaseTransitionTime"];
    const PHASE: [&str; 2] = ["status", "phase"];
    match old {
        Some(old) if text(old, &PHASE) == text(volume, &PHASE) => {
            // A writer may say another time for the phase that it is in.
            if text(volume, &TIME).is_empty() {
                copy(volume, old, &TIME);
            }
        }
        Some(old) if !text(volume, &TIME).is_empty() && text(volume, &TIME) != text(old, &TIME) => {
        }
        _ => put(volume, &TIME, Some(json!(metadata::timestamp(now)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_tainted_once() {
        let mut node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
        taint(&mut node);
        taint(&mut node);
        let taints = list(&node, &["spec", "taints"]);
        assert_eq!(taints.len(), 2);
        assert_eq!(taints[1]["key"], NOT_READY);
    }

    #[test]
    fn the_time_of_a_phase_moves_with_it() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("a time");
        let mut volume = json!({"status": {"phase": "Pending"}});
        phase_time(&mut volume, None, at(0));
        let old = volume.clone();
        phase_time(&mut volume, Some(&old), at(5));
        assert_eq!(volume, old);
        volume["status"]["phase"] = json!("Bound");
        phase_time(&mut volume, Some(&old), at(5));
        assert_eq!(
            volume["status"]["lastPhaseTransitionTime"],
            "1970-01-01T00:00:05Z"
        );
    }
}
