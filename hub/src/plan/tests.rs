//! Plans on hubs of a few objects. That plans come true is held elsewhere, on a hub with all its controllers.

mod clusters;
mod held;
mod orders;
mod shared;

use super::*;
use crate::snapshot;
use crate::world::{self, Record as _};
use common::api::policy::ClusterPurgeMode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn now() -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

pub(crate) fn options() -> Options {
    Options {
        skips: Skips::parse("", ["kube-.*"]).expect("sound"),
        eviction: eviction::Options {
            enabled: true,
            purge_mode: ClusterPurgeMode::Gracefully,
            rate: 3.0,
            timeout: Duration::from_secs(600),
            lost_share: 0.5,
        },
    }
}

pub(crate) fn apply(object: Value) -> Change {
    Change::Apply(Box::new(object))
}

pub(crate) fn delete(object: &Value) -> Change {
    Change::Delete(Subject::of(object).expect("sound"))
}

pub(crate) fn cluster(name: &str) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
    "metadata": {"name": name, "uid": name}, "spec": {"syncMode": "Pull"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "apiEnablements": [
            {"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]},
            {"groupVersion": "v1", "resources": [{"kind": "ConfigMap", "name": "configmaps"}]},
        ],
        "resourceSummary": {"allocatable": {"cpu": "8", "pods": "110"}},
    }})
}

pub(crate) fn tainted(name: &str, taints: Value) -> Value {
    let mut cluster = cluster(name);
    cluster["spec"]["taints"] = taints;
    cluster
}

pub(crate) fn deployment(name: &str, replicas: i32) -> Value {
    let container = json!({"name": "web", "image": "registry.io/web:1"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid of {name}")},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}})
}

pub(crate) fn policy(name: &str, placement: Value) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": placement}})
}

/// Divided by these weights.
pub(crate) fn weighed(weights: &[(&str, i64)]) -> Value {
    let weights = weights
        .iter()
        .map(|(name, weight)| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight}));
    let weights: Vec<Value> = weights.collect();
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": weights}}})
}

/// Divided by the room that clusters have.
fn by_room() -> Value {
    json!({"replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}})
}

pub(crate) fn image(cluster: &str, tag: &str) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "image", "namespace": "shop"},
        "spec": {"overrideRules": [{"targetCluster": {"clusterNames": [cluster]},
            "overriders": {"imageOverrider": [{"component": "Tag", "operator": "replace", "value": tag}]}}]}})
}

/// A hub with three clusters, after changes.
pub(crate) fn hub(changes: &[Change]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for name in ["m1", "m2", "m3"] {
        let object = cluster(name);
        let record = world::Cluster::read(&object.to_string());
        let record = Arc::new(record.expect("an object").expect("held"));
        let cluster = snapshot::Cluster { object, record };
        snapshot.clusters.insert(name.to_owned(), cluster);
    }
    for kind in [("apps/v1", "Deployment"), ("v1", "ConfigMap")] {
        let kind = Gvk::new(kind.0, kind.1).expect("sound");
        snapshot.kinds.insert(kind.group_kind(), None);
    }
    then(&snapshot, changes)
}

/// A hub as changes leave it.
pub(crate) fn then(snapshot: &Snapshot, changes: &[Change]) -> Snapshot {
    let options = options();
    let way = Way {
        groups: straight(changes.len()),
        ..Way::default()
    };
    let known = (State::of(snapshot), &BTreeMap::new());
    let (after, refused) = run(now(), &options, known, changes, &way);
    assert!(refused.is_empty(), "{refused:?}");
    let state = after.state;
    let templates = state.templates.iter().map(|(name, held)| {
        let read = world::Template::read(&held.object.to_string());
        (
            name.clone(),
            Arc::new(read.expect("an object").expect("held")),
        )
    });
    Snapshot {
        templates: templates.collect(),
        policies: state.policies,
        overrides: state.overrides,
        bindings: state.bindings.into_all(),
        clusters: state.clusters,
        customizations: state.customizations,
        shipped: state.shipped,
        ..snapshot.clone()
    }
}

pub(crate) fn planned(snapshot: &Snapshot, changes: &[Change]) -> Plan {
    plan(now(), &options(), snapshot, changes)
}

/// What becomes of each cluster of the only template that is told.
fn told(plan: &Plan) -> Vec<String> {
    let [template] = plan.templates.as_slice() else {
        panic!("{plan:?}");
    };
    let number = |it: Option<i32>| it.map_or("-".to_owned(), |it| it.to_string());
    let line = |it: &ClusterPlan| {
        let Step { before, after } = it.replicas;
        format!(
            "{} {:?} {} {}",
            it.cluster,
            it.verdict,
            number(before),
            number(after)
        )
    };
    template.clusters.iter().map(line).collect()
}

/// The policy of `web`.
fn placing_web() -> Value {
    policy("web", weighed(&[("m1", 2), ("m2", 1)]))
}

/// The same, with more said.
fn saying(field: &str, value: Value) -> Value {
    let mut policy = placing_web();
    policy["spec"][field] = value;
    policy
}

fn web() -> Vec<Change> {
    vec![apply(placing_web()), apply(deployment("web", 6))]
}

#[test]
fn a_new_template_comes_to_where_its_policy_places_it() {
    let plan = planned(&hub(&web()[..1]), &web()[1..]);
    assert!(plan.changes());
    assert_eq!(told(&plan), ["m1 Gained - 4", "m2 Gained - 2"]);
    let after = plan.templates[0].policy.after.as_deref();
    assert_eq!(after, Some("PropagationPolicy shop/web"));
}

#[test]
fn what_is_as_it_is_to_be_changes_nothing() {
    let hub = hub(&web());
    let plan = planned(&hub, &web());
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!((plan.templates.len(), plan.unchanged), (0, 1));
}

#[test]
fn a_change_of_weights_moves_replicas() {
    let change = apply(policy("web", weighed(&[("m2", 1), ("m3", 1)])));
    let plan = planned(&hub(&web()), &[change]);
    assert_eq!(
        told(&plan),
        ["m1 Lost 4 -", "m2 Changed 2 3", "m3 Gained - 3"]
    );
    let changes = &plan.templates[0].clusters[1].changes;
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].path, "spec.replicas");
}

#[test]
fn an_override_is_told_by_what_it_changes() {
    let plan = planned(&hub(&web()), &[apply(image("m1", "2"))]);
    assert_eq!(told(&plan), ["m1 Changed 4 4", "m2 Stays 2 2"]);
    let m1 = &plan.templates[0].clusters[0];
    let path = "spec.template.spec.containers[web].image";
    assert_eq!(
        (m1.changes[0].path.as_str(), m1.overridden.len()),
        (path, 1)
    );
    assert_eq!(m1.overrides, ["image"]);
}

#[test]
fn an_override_that_does_not_apply_leaves_the_cluster_as_it_was() {
    let mut broken = image("m1", "2");
    broken["spec"]["overrideRules"][0]["overriders"] =
        json!({"plaintext": [{"path": "/spec/none/such", "operator": "replace", "value": 1}]});
    let plan = planned(&hub(&web()), &[apply(broken)]);
    let m1 = &plan.templates[0].clusters[0];
    assert_eq!(m1.verdict, Verdict::Changed);
    let problem = m1.problem.as_deref().unwrap_or_default();
    assert!(problem.contains("override policy(shop/image)"), "{problem}");
}

#[test]
fn a_script_is_told_by_what_it_changes() {
    let script = "function ReviseReplica(obj, replicas) obj.spec.replicas = replicas obj.spec.paused = true return obj end";
    let script = json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": "paused"}, "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "customizations": {"replicaRevision": {"luaScript": script}}}});
    let plan = planned(&hub(&web()), &[apply(script)]);
    assert_eq!(told(&plan), ["m1 Changed 4 4", "m2 Changed 2 2"]);
    assert_eq!(plan.templates[0].clusters[0].changes[0].path, "spec.paused");
}

#[test]
fn objects_that_stay_when_a_template_goes_are_told() {
    let preserve = || saying("preserveResourcesOnDeletion", json!(true));
    let mut moved = policy("web", weighed(&[("m2", 1)]));
    moved["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let changes = [delete(&preserve()), delete(&deployment("web", 6))];
    for (policy, stay) in [(preserve(), true), (saying("priority", json!(1)), false)] {
        let hub = hub(&[apply(policy), apply(deployment("web", 6))]);
        for change in &changes {
            let plan = planned(&hub, std::slice::from_ref(change));
            assert_eq!(told(&plan), ["m1 Lost 4 -", "m2 Lost 2 -"]);
            let clusters = &plan.templates[0].clusters;
            assert!(clusters.iter().all(|it| it.preserved == stay), "{change:?}");
        }
        // What is said with the same write counts.
        let plan = planned(&hub, &[apply(moved.clone())]);
        let m1 = &plan.templates[0].clusters[0];
        assert_eq!((m1.verdict, m1.preserved), (Verdict::Lost, true));
    }
}

#[test]
fn a_deleted_policy_takes_its_templates_along() {
    let change = delete(&policy("web", json!({})));
    let plan = planned(&hub(&web()), &[change]);
    assert_eq!(told(&plan), ["m1 Lost 4 -", "m2 Lost 2 -"]);
}

#[test]
fn the_last_copy_stays_where_nothing_else_fits() {
    let nowhere = json!({"clusterAffinity": {"clusterNames": ["m9"]}});
    let plan = planned(&hub(&web()), &[apply(policy("web", nowhere))]);
    let template = &plan.templates[0];
    assert!(template.unplaced.after.is_some(), "{template:?}");
    assert!(
        template
            .clusters
            .iter()
            .all(|it| it.verdict == Verdict::Stays)
    );
}
