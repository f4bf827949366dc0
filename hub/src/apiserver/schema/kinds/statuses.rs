//! What is refused in the status of workloads: numbers below zero, and parts above their whole.

use super::check::{Errors, not_negative, number};
use crate::apiserver::error::FieldError;
use serde_json::{Value, json};

/// Numbers of a status, and those of them that are parts of others: with which, and how it is told.
struct Numbers {
    all: &'static [&'static str],
    parts: &'static [(&'static str, &'static str, &'static str)],
    /// Whether the count of collisions only grows.
    collisions: bool,
}

const OF_ALL: &str = "cannot be greater than status.replicas";
const OF_READY: &str = "cannot be greater than readyReplicas";

fn numbers(group: &str, kind: &str) -> Option<Numbers> {
    Some(match (group, kind) {
        ("apps", "Deployment") => Numbers {
            all: &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            parts: &[
                ("updatedReplicas", "replicas", OF_ALL),
                ("readyReplicas", "replicas", OF_ALL),
                ("availableReplicas", "replicas", OF_ALL),
                ("availableReplicas", "readyReplicas", OF_READY),
            ],
            collisions: true,
        },
        ("apps", "ReplicaSet") | ("", "ReplicationController") => Numbers {
            all: &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            parts: &[
                ("fullyLabeledReplicas", "replicas", OF_ALL),
                ("readyReplicas", "replicas", OF_ALL),
                ("availableReplicas", "replicas", OF_ALL),
                ("availableReplicas", "readyReplicas", OF_READY),
            ],
            collisions: false,
        },
        ("apps", "StatefulSet") => Numbers {
            all: &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            parts: &[
                ("readyReplicas", "replicas", OF_ALL),
                ("currentReplicas", "replicas", OF_ALL),
                ("updatedReplicas", "replicas", OF_ALL),
                ("availableReplicas", "replicas", OF_ALL),
                (
                    "availableReplicas",
                    "readyReplicas",
                    "cannot be greater than status.readyReplicas",
                ),
            ],
            collisions: true,
        },
        ("apps", "DaemonSet") => Numbers {
            all: &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            parts: &[],
            collisions: true,
        },
        ("policy", "PodDisruptionBudget") => Numbers {
            all: &[
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ],
            parts: &[],
            collisions: false,
        },
        ("autoscaling", "HorizontalPodAutoscaler") => Numbers {
            all: &["currentReplicas", "desiredReplicas"],
            parts: &[],
            collisions: false,
        },
        _ => return None,
    })
}

pub(super) fn check(group: &str, kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let Some(numbers) = numbers(group, kind) else {
        return;
    };
    let status = &new["status"];
    not_negative(status, numbers.all, "status", errors);
    let count = |status: &Value, key: &str| number(status, key).unwrap_or(0);
    for (part, whole, detail) in numbers.parts {
        let found = count(status, part);
        if found > count(status, whole) {
            let at = format!("status.{part}");
            errors.push(FieldError::invalid(at, json!(found), *detail));
        }
    }
    let before = number(&old["status"], "collisionCount");
    let now = number(status, "collisionCount");
    // What was never counted cannot go down.
    if numbers.collisions && before.is_some() && now < before {
        let detail = "cannot be decremented";
        let at = "status.collisionCount";
        errors.push(FieldError::invalid(at, json!(now.unwrap_or(0)), detail));
    }
}
