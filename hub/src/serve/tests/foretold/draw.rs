//! Objects and changes of them, from seeds. They have few names, so that changes meet what is there.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) const SPACES: [&str; 2] = ["a", "b"];
pub(super) const MEMBERS: [&str; 4] = ["m1", "m2", "m3", "m4"];

/// What somebody wants.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Wanted {
    /// An object of a file.
    Apply(Value),
    /// The object of this kind and name goes.
    Delete(Value),
}

impl Wanted {
    pub(super) fn object(&self) -> &Value {
        match self {
            Self::Apply(object) | Self::Delete(object) => object,
        }
    }

    pub(super) fn shown(&self) -> String {
        let object = self.object();
        match self {
            Self::Apply(_) => format!("applying {object}"),
            Self::Delete(_) => format!("deleting {} {}", object["kind"], object["metadata"]),
        }
    }
}

/// So many changes; `first` are those of a hub on which there is nothing yet.
pub(super) fn changes(rng: &mut StdRng, many: usize, first: bool) -> Vec<Wanted> {
    (0..many).map(|_| change(rng, first)).collect()
}

fn change(rng: &mut StdRng, first: bool) -> Wanted {
    let object = match rng.random_range(0..if first { 26 } else { 40 }) {
        0..14 => template(rng),
        14..26 => policy(rng),
        26..32 => override_policy(rng),
        32..39 => cluster(rng),
        _ => json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "high"}, "value": 7}),
    };
    let often = if first {
        0.0
    } else if object["kind"] == "Cluster" {
        0.12
    } else {
        0.2
    };
    match rng.random_bool(often) {
        true => Wanted::Delete(object),
        false => Wanted::Apply(object),
    }
}

fn one<'a>(rng: &mut StdRng, of: &[&'a str]) -> &'a str {
    of.choose(rng).copied().expect("some")
}

fn some<'a>(rng: &mut StdRng, of: &[&'a str], often: f64) -> Vec<&'a str> {
    let all: Vec<&str> = of
        .iter()
        .copied()
        .filter(|_| rng.random_bool(often))
        .collect();
    if all.is_empty() {
        vec![one(rng, of)]
    } else {
        all
    }
}

fn colour(rng: &mut StdRng) -> &'static str {
    one(rng, &["red", "dark"])
}

pub(super) fn template(rng: &mut StdRng) -> Value {
    let space = one(rng, &SPACES);
    let labels = json!({"colour": colour(rng), "app": one(rng, &["x", "y"])});
    let cpu = one(rng, &["100m", "1", "3"]);
    let image = format!("registry.io/web:{}", rng.random_range(1..4));
    let mut container = json!({"name": "web", "image": image, "args": ["serve"]});
    if rng.random_bool(0.4) {
        container["resources"] = json!({"requests": {"cpu": cpu}});
    }
    if rng.random_bool(0.5) {
        container["envFrom"] = json!([{"configMapRef": {"name": "conf"}}]);
    }
    let replicas = rng.random_range(0..9);
    match rng.random_range(0..10) {
        0..6 => {
            let name = one(rng, &["web", "api"]);
            let pod =
                json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}});
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": space, "labels": labels},
                "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pod}})
        }
        6..8 => json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": one(rng, &["conf", "other"]), "namespace": space, "labels": labels},
            "data": {"colour": colour(rng), "size": replicas.to_string()}}),
        8 => {
            let pod = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
            json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "sum", "namespace": space, "labels": labels},
                "spec": {"parallelism": 3, "completions": 7, "template": pod}})
        }
        _ => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reads", "labels": labels},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [one(rng, &["get", "list"])]}]}),
    }
}

fn selector(rng: &mut StdRng) -> Value {
    let (version, kind, names) = match rng.random_range(0..10) {
        0..6 => ("apps/v1", "Deployment", &["web", "api"]),
        6..8 => ("v1", "ConfigMap", &["conf", "other"]),
        8 => ("batch/v1", "Job", &["sum", "sum"]),
        _ => (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            &["reads", "reads"],
        ),
    };
    let mut selector = json!({"apiVersion": version, "kind": kind});
    match rng.random_range(0..4) {
        0 => selector["name"] = json!(one(rng, names)),
        1 => selector["labelSelector"] = json!({"matchLabels": {"colour": colour(rng)}}),
        _ => {}
    }
    selector
}

fn affinity(rng: &mut StdRng) -> Value {
    match rng.random_range(0..6) {
        0..2 => json!({"clusterNames": some(rng, &MEMBERS, 0.5)}),
        2 => json!({"exclude": [one(rng, &MEMBERS)]}),
        3 => json!({"labelSelector": {"matchLabels": {"tier": one(rng, &["gold", "tin"])}}}),
        4 => json!({"fieldSelector": {"matchExpressions": [
            {"key": "region", "operator": one(rng, &["In", "NotIn"]), "values": ["east"]}]}}),
        _ => json!({}),
    }
}

fn division(rng: &mut StdRng) -> Value {
    match rng.random_range(0..6) {
        0 => json!({"replicaSchedulingType": "Duplicated"}),
        1..3 => {
            let weights: Vec<Value> = some(rng, &MEMBERS, 0.7)
                .iter()
                .map(|name| json!({"targetCluster": {"clusterNames": [name]}, "weight": rng.random_range(1..4)}))
                .collect();
            json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": weights}})
        }
        3 => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}),
        4 => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
        _ => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}),
    }
}

fn placement(rng: &mut StdRng) -> Value {
    let mut placement = json!({});
    if rng.random_bool(0.15) {
        placement["clusterAffinities"] = json!(["first", "second"].map(|name| {
            let mut group = affinity(rng);
            group["affinityName"] = json!(name);
            group
        }));
    } else if rng.random_bool(0.7) {
        placement["clusterAffinity"] = affinity(rng);
    }
    if rng.random_bool(0.7) {
        placement["replicaScheduling"] = division(rng);
    }
    if rng.random_bool(0.25) {
        let least = rng.random_range(1..3);
        let by = one(rng, &["cluster", "cluster", "region"]);
        placement["spreadConstraints"] = json!([
            {"spreadByField": by, "minGroups": least, "maxGroups": rng.random_range(least..4)}]);
    }
    let mut tolerations = Vec::new();
    if rng.random_bool(0.3) {
        tolerations.push(json!({"key": "spare", "operator": "Exists"}));
    }
    if rng.random_bool(0.3) {
        tolerations.push(
            json!({"key": "drain", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": rng.random_range(10..20)}),
        );
    }
    placement["clusterTolerations"] = json!(tolerations);
    placement
}

fn policy(rng: &mut StdRng) -> Value {
    let mut selectors = vec![selector(rng)];
    if rng.random_bool(0.3) {
        selectors.push(selector(rng));
    }
    let mut spec = json!({"resourceSelectors": selectors, "priority": rng.random_range(0..3),
        "placement": placement(rng)});
    for (field, value, often) in [
        ("preemption", json!("Always"), 0.2),
        ("activationPreference", json!("Lazy"), 0.15),
        ("propagateDeps", json!(true), 0.4),
        ("conflictResolution", json!("Overwrite"), 0.2),
        ("preserveResourcesOnDeletion", json!(true), 0.2),
        ("dependentOverrides", json!(["one"]), 0.1),
        ("suspension", json!({"dispatching": true}), 0.1),
        (
            "failover",
            json!({"cluster": {"purgeMode": "Directly"}}),
            0.2,
        ),
        (
            "schedulePriority",
            json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}),
            0.05,
        ),
    ] {
        if rng.random_bool(often) {
            spec[field] = value;
        }
    }
    match rng.random_bool(0.7) {
        true => json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": one(rng, &["one", "two"]), "namespace": one(rng, &SPACES)}, "spec": spec}),
        false => {
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": one(rng, &["all", "more"])}, "spec": spec})
        }
    }
}

fn overriders(rng: &mut StdRng) -> Value {
    let mut overriders = json!({});
    for _ in 0..rng.random_range(1..3) {
        let (field, change) = match rng.random_range(0..7) {
            0 => (
                "imageOverrider",
                json!({"component": "Tag", "operator": "replace",
                    "value": rng.random_range(5..9).to_string()}),
            ),
            1 => (
                "imageOverrider",
                json!({"component": "Registry", "operator": "replace",
                    "value": one(rng, &["eu.registry.io", "us.registry.io"])}),
            ),
            2 => (
                "labelsOverrider",
                json!({"operator": "add", "value": {"over": colour(rng)}}),
            ),
            3 => (
                "annotationsOverrider",
                json!({"operator": "replace", "value": {"over": "x"}}),
            ),
            4 => (
                "argsOverrider",
                json!({"containerName": "web", "operator": "add",
                    "value": [one(rng, &["--fast", "--slow"])]}),
            ),
            5 => (
                "plaintext",
                json!({"path": "/data/colour", "operator": "replace", "value": "over"}),
            ),
            _ => (
                "plaintext",
                json!({"path": "/spec/replicas", "operator": "replace",
                    "value": rng.random_range(1..4)}),
            ),
        };
        overriders[field] = json!([change]);
    }
    overriders
}

fn override_policy(rng: &mut StdRng) -> Value {
    let target = match rng.random_range(0..3) {
        0 => json!({"clusterNames": some(rng, &MEMBERS, 0.5)}),
        1 => json!({"labelSelector": {"matchLabels": {"tier": "gold"}}}),
        _ => json!({}),
    };
    let spec = json!({"resourceSelectors": [selector(rng)],
        "overrideRules": [{"targetCluster": target, "overriders": overriders(rng)}]});
    match rng.random_bool(0.7) {
        true => json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"name": one(rng, &["one", "two"]), "namespace": one(rng, &SPACES)}, "spec": spec}),
        false => {
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterOverridePolicy",
            "metadata": {"name": "all"}, "spec": spec})
        }
    }
}

/// Taints and labels of a cluster that is there.
fn cluster(rng: &mut StdRng) -> Value {
    let taints = [
        json!({"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}),
        json!({"key": "spare", "effect": "NoSchedule"}),
        json!({"key": "drain", "effect": "NoExecute"}),
        json!({"key": "spare", "value": "1", "effect": "NoExecute"}),
    ];
    let taints: Vec<Value> = taints
        .into_iter()
        .filter(|_| rng.random_bool(0.2))
        .collect();
    let mut object = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": one(rng, &MEMBERS)}, "spec": {"taints": taints}});
    if rng.random_bool(0.3) {
        object["metadata"]["labels"] = json!({"tier": one(rng, &["gold", "tin"])});
    }
    object
}

/// What a member says of itself when it joins: some say nothing of their room.
pub(super) fn joining(rng: &mut StdRng, name: &str) -> (Value, Value) {
    let object = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "labels": {"tier": one(rng, &["gold", "tin"])}},
        "spec": {"syncMode": "Pull", "region": one(rng, &["east", "west"]), "provider": "p"}});
    let served = [
        ("apps/v1", &["Deployment"][..]),
        ("v1", &["ConfigMap", "Secret", "Namespace"]),
        ("batch/v1", &["Job"]),
        ("rbac.authorization.k8s.io/v1", &["ClusterRole"]),
    ];
    let served = served.map(|(version, kinds)| {
        let kinds: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"kind": kind, "name": kind.to_lowercase()}))
            .collect();
        json!({"groupVersion": version, "resources": kinds})
    });
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut status = json!({"conditions": [ready], "apiEnablements": served});
    if rng.random_bool(0.8) {
        let cpu = rng.random_range(1..12).to_string();
        status["resourceSummary"] =
            json!({"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "20"}});
    }
    (object, json!({ "status": status }))
}
