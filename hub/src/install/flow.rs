//! Fair queuing on the hub: heartbeats have a level of their own, other requests of agents another.
//!
//! A fleet that comes back at once must not starve the hub's controllers or its operators, and a
//! cluster that lists and patches without end must not delay another's heartbeat.

use super::object::Desired;
use common::identity::{AGENTS_GROUP, BOOTSTRAP_GROUP};
use common::names::CLUSTER_NAMESPACE;
use serde_json::{Value, json};

/// Level and schema of the agents' Leases.
pub const LEASES: &str = "towline-leases";
/// Level and schema of everything else that agents and tokens ask.
pub const AGENTS: &str = "towline-agents";

/// Levels first, for a schema that names a missing level is not used.
pub fn desired() -> Vec<Desired> {
    let leases = json!({
        "subjects": [group(AGENTS_GROUP)],
        "resourceRules": [{
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["*"],
            "namespaces": [CLUSTER_NAMESPACE],
        }],
    });
    let rest = json!({
        "subjects": [group(AGENTS_GROUP), group(BOOTSTRAP_GROUP)],
        "resourceRules": [{
            "apiGroups": ["*"],
            "resources": ["*"],
            "verbs": ["*"],
            "namespaces": ["*"],
            "clusterScope": true,
        }],
        "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
    });
    [
        // A renewal takes about a millisecond: few seats carry thousands, a long queue a stampede.
        level(LEASES, 10, 0, 64),
        level(AGENTS, 30, 50, 128),
        // After the API server's own mandatory and leader-election schemas, before its general ones.
        schema(LEASES, 400, leases),
        schema(AGENTS, 450, rest),
    ]
    .map(Desired::new)
    .into()
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn level(name: &str, shares: u32, lendable_percent: u32, queues: u32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": shares,
                "lendablePercent": lendable_percent,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {"queues": queues, "handSize": 6, "queueLengthLimit": 50},
                },
            },
        },
    })
}

fn schema(name: &str, precedence: u32, rule: Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": name},
            // By user: one agent's flood fills its own queues.
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
        },
    })
}
