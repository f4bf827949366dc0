//! A hub on which all is well, and the ways in which it can be broken.

use crate::controller::detector::skip::Skips;
use crate::explain::template::{Bound, Referred, Seen};
use crate::propagation::Policy;
use chrono::{DateTime, Utc};
use common::api::binding::ResourceBinding;
use common::api::cluster::Cluster;
use common::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use common::api::work::Work;
use common::interpreter::custom::{Failed, Operation, Problem};
use serde_json::{Value, json};

pub(super) const MADE: &str = "2026-01-01T00:00:00Z";

pub(super) fn now() -> DateTime<Utc> {
    let made: DateTime<Utc> = MADE.parse().expect("a time");
    made + chrono::Duration::minutes(14)
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": MADE})
}

/// A PropagationPolicy of a namespace, or a cluster-wide one.
pub(super) fn policy(namespace: Option<&str>, name: &str, spec: &Value) -> Policy {
    let key = match namespace {
        Some(_) => "propagationpolicy.karmada.io/permanent-id",
        None => "clusterpropagationpolicy.karmada.io/permanent-id",
    };
    let metadata =
        json!({"name": name, "namespace": namespace, "labels": {key: format!("id-of-{name}")}});
    let mut whole =
        json!({"apiVersion": "policy.karmada.io/v1alpha1", "metadata": metadata, "spec": spec});
    if namespace.is_some() {
        whole["kind"] = json!("PropagationPolicy");
        let read: PropagationPolicy = serde_json::from_value(whole).expect("a policy");
        return Policy::of(&read.metadata, &read.spec);
    }
    whole["kind"] = json!("ClusterPropagationPolicy");
    let read: ClusterPropagationPolicy = serde_json::from_value(whole).expect("a policy");
    Policy::of(&read.metadata, &read.spec.0)
}

/// What the policy of the template says.
pub(super) fn spec(placement: &Value) -> Value {
    json!({"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "placement": placement})
}

pub(super) fn cluster(name: &str, changes: &Value) -> Cluster {
    let mut whole = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "creationTimestamp": MADE},
        "spec": {"syncMode": "Pull"},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
            "conditions": [condition("Ready", "True", "ClusterReady", "cluster is healthy and ready to accept workloads")],
            "resourceSummary": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "100"}},
            "agent": {"version": "0.1.0", "certificateExpirationTime": "2026-03-01T00:00:00Z"},
        },
    });
    json_patch::merge(&mut whole, changes);
    serde_json::from_value(whole).expect("a Cluster")
}

pub(super) fn template() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": MADE,
            "labels": {"propagationpolicy.karmada.io/permanent-id": "id-of-web"},
            "annotations": {"propagationpolicy.karmada.io/namespace": "shop",
                "propagationpolicy.karmada.io/name": "web"}},
        "spec": {"replicas": 6, "template": {"spec": {"containers": [{"name": "app", "image": "registry/web:1",
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "128Mi"}},
            "envFrom": [{"configMapRef": {"name": "settings"}}]}]}}}})
}

/// Half of the replicas in each of two clusters, and no third one.
pub(super) fn binding(changes: &Value) -> Bound {
    let mut whole = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop", "generation": 1,
            "labels": {"resourcebinding.karmada.io/permanent-id": "b"}},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u"},
            "replicas": 6, "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "clusters": [{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 2}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]}},
        },
        "status": {"conditions": [condition("Scheduled", "True", "Success", "done")]},
    });
    json_patch::merge(&mut whole, changes);
    let read: ResourceBinding = serde_json::from_value(whole).expect("a binding");
    Bound::from(read)
}

/// The Work of a cluster; `conditions` and `manifest` are what its member says.
pub(super) fn work(cluster: &str, conditions: &[Value], manifest: &Value) -> Work {
    let mut told = json!({"identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
        "resource": "", "namespace": "shop", "name": "web"}});
    json_patch::merge(&mut told, manifest);
    serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "web-1", "namespace": format!("karmada-es-{cluster}"),
            "annotations": {"resourcebinding.karmada.io/namespace": "shop",
                "resourcebinding.karmada.io/name": "web-deployment"}},
        "spec": {"workload": {"manifests": [template()]}},
        "status": {"conditions": conditions, "manifestStatuses": [told]},
    }))
    .expect("a Work")
}

pub(super) fn applied() -> Value {
    condition(
        "Applied",
        "True",
        "AppliedSuccessful",
        "Manifest has been successfully applied",
    )
}

pub(super) fn running(cluster: &str, replicas: i64) -> Work {
    let manifest = json!({"health": "Healthy", "status": {"readyReplicas": replicas}});
    work(cluster, &[applied()], &manifest)
}

/// All is well.
pub(super) fn healthy() -> Seen {
    Seen {
        now: now(),
        resource: "deployments.apps".into(),
        template: template(),
        skips: Skips::parse("", ["kube-.*"]).expect("flags"),
        policies: vec![policy(
            Some("shop"),
            "web",
            &spec(&json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}})),
        )],
        overrides: [].into(),
        priority_classes: [].into(),
        binding: Some(binding(&json!({}))),
        clusters: vec![
            cluster("m1", &json!({})),
            cluster("m2", &json!({})),
            cluster("m3", &json!({})),
        ],
        leases: ["m1", "m2", "m3"]
            .map(|it| (it.to_owned(), now() - chrono::Duration::seconds(5)))
            .into(),
        works: vec![running("m1", 4), running("m2", 2)],
        referred: Vec::new(),
        stays: false,
        scripts: Vec::new(),
        nameless: None,
        hub: None,
        unseen: Vec::new(),
    }
}

/// Nothing holds it.
pub(super) fn unclaimed() -> Seen {
    let mut seen = healthy();
    seen.policies.clear();
    seen.binding = None;
    seen.works.clear();
    for key in ["labels", "annotations"] {
        seen.template["metadata"]
            .as_object_mut()
            .expect("metadata")
            .remove(key);
    }
    seen
}

/// A policy with this placement holds it, and it could not be placed.
pub(super) fn unplaced(placement: &Value) -> Seen {
    let mut seen = healthy();
    seen.policies = vec![policy(Some("shop"), "web", &spec(placement))];
    let mut bound = binding(&json!({"status": {"conditions": [
        condition("Scheduled", "False", "NoClusterFit", "0/3 clusters are available: told.")]}}));
    bound.spec.clusters.clear();
    let placement = serde_json::from_value(placement.clone()).expect("a placement");
    bound.spec.placement = Some(std::sync::Arc::new(placement));
    seen.binding = Some(bound);
    seen.works.clear();
    seen
}

/// What m2 answered to its manifest.
pub(super) fn refused(message: &str) -> Seen {
    let mut seen = healthy();
    let text = format!("Failed to apply all manifests (0/1): {message}");
    let condition = condition("Applied", "False", "AppliedFailed", &text);
    seen.works[1] = work("m2", &[condition], &json!({"health": "Unknown"}));
    seen
}

/// Why the pods of m2 do not run, as its agent says it.
pub(super) fn diagnosed(reason: &str, message: &str) -> Seen {
    let mut seen = healthy();
    let told = condition("WorkloadHealthy", "False", reason, message);
    seen.works[1] = work(
        "m2",
        &[applied(), told],
        &json!({"health": "Unhealthy", "status": {"replicas": 2}}),
    );
    seen
}

/// What a script of the hub fails at.
pub(super) fn stopped(operation: Operation, problem: &str) -> Seen {
    let mut seen = healthy();
    seen.scripts = vec![Failed {
        customization: "webs".into(),
        operation,
        problem: Problem::Type(problem.into()),
    }];
    seen
}

pub(super) fn refers_to(seen: &mut Seen, exists: bool) {
    seen.referred = vec![Referred {
        kind: "ConfigMap".into(),
        name: "settings".into(),
        exists,
    }];
}
