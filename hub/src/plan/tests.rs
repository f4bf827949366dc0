//! Plans on hubs of a few objects. That plans come true is held elsewhere, on a hub with all its controllers.

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
    let (after, refused) = run(now(), &options, State::of(snapshot), changes, &way);
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

fn web() -> Vec<Change> {
    vec![
        apply(policy("web", weighed(&[("m1", 2), ("m2", 1)]))),
        apply(deployment("web", 6)),
    ]
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

/// The policy of `web`, with more said.
fn saying(field: &str, value: Value) -> Value {
    let mut policy = policy("web", weighed(&[("m1", 2), ("m2", 1)]));
    policy["spec"][field] = value;
    policy
}

#[test]
fn what_is_edited_while_its_policy_suspends_dispatching_changes_in_no_member() {
    let suspended = saying("suspension", json!({"dispatching": true}));
    let hub = hub(&[apply(suspended), apply(deployment("web", 6))]);
    let mut edited = deployment("web", 6);
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.io/web:2");
    let plan = planned(&hub, &[apply(edited)]);
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Stays 4 4", "m2 Stays 2 2"]);
    let clusters = &plan.templates[0].clusters;
    assert!(clusters.iter().all(|it| it.held && it.changes.is_empty()));
    assert_eq!(plan.unchanged, 1);
}

#[test]
fn what_was_held_back_goes_where_it_is_so_no_longer() {
    let some = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
    let hub = hub(&[
        apply(saying("suspension", some)),
        apply(deployment("web", 6)),
    ]);
    let plan = planned(&hub, &web()[..1]);
    assert!(plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Changed 4 4", "m2 Stays 2 2"]);
    let clusters = plan.templates[0].clusters.iter();
    let released: Vec<bool> = clusters.map(|it| it.released).collect();
    assert_eq!(released, [true, false]);
    let [unknown] = plan.unknown.as_slice() else {
        panic!("{plan:?}");
    };
    assert!(unknown.contains("held back from m1"), "{unknown}");
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
fn a_cordon_moves_nothing_and_a_cluster_that_goes_moves_what_is_there() {
    let everywhere = json!({"clusterAffinity": {"clusterNames": ["m1", "m2", "m3"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    let hub = hub(&[
        apply(policy("web", everywhere)),
        apply(deployment("web", 6)),
    ]);
    let taint = json!([{"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}]);
    let plan = planned(&hub, &[apply(tainted("m1", taint))]);
    assert!(!plan.changes(), "{plan:?}");
    let plan = planned(&hub, &[delete(&cluster("m1"))]);
    assert_eq!(
        told(&plan),
        ["m1 Lost 2 -", "m2 Changed 2 3", "m3 Changed 2 3"]
    );
}

#[test]
fn what_does_not_tolerate_a_taint_leaves_and_what_does_for_a_while_later() {
    let drain = json!([{"key": "drain", "effect": "NoExecute"}]);
    let plan = planned(&hub(&web()), &[apply(tainted("m1", drain.clone()))]);
    assert_eq!(told(&plan), ["m1 Lost 4 -", "m2 Changed 2 6"]);
    let mut placement = weighed(&[("m1", 2), ("m2", 1)]);
    placement["clusterTolerations"] = json!([{"key": "drain", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    let hub = hub(&[apply(policy("web", placement)), apply(deployment("web", 6))]);
    let plan = planned(&hub, &[apply(tainted("m1", drain))]);
    let template = &plan.templates[0];
    assert!(
        template.after_seconds.is_some_and(|it| it >= 60),
        "{template:?}"
    );
}

#[test]
fn a_tie_that_a_uid_settles_is_told() {
    let mut new = deployment("web", 3);
    new["metadata"]
        .as_object_mut()
        .expect("an object")
        .remove("uid");
    let hub = hub(&[apply(policy("web", weighed(&[("m1", 1), ("m2", 1)])))]);
    let plan = planned(&hub, &[apply(new)]);
    let template = &plan.templates[0];
    assert_eq!(template.or.len(), 1, "{template:?}");
    let sum = |shares: &[Share]| -> i32 { shares.iter().filter_map(|it| it.replicas).sum() };
    assert_eq!(sum(&template.or[0]), 3);
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

#[test]
fn a_policy_that_waits_for_an_override_says_so() {
    let mut waiting = policy("web", json!({}));
    waiting["spec"]["dependentOverrides"] = json!(["image"]);
    let hub = hub(&[apply(deployment("web", 1))]);
    let plan = planned(&hub, &[apply(waiting)]);
    assert!(plan.changes());
    let waits = plan.templates[0].waits.after.as_deref();
    assert_eq!(waits, Some("waiting for dependent overrides: image"));
}

#[test]
fn what_waits_already_is_told_where_it_stays() {
    let waiting = |weights| {
        let mut waiting = policy("web", weighed(weights));
        waiting["spec"]["dependentOverrides"] = json!(["image"]);
        apply(waiting)
    };
    let hub = then(&hub(&web()), &[waiting(&[("m1", 2), ("m2", 1)])]);
    let plan = planned(&hub, &[waiting(&[("m3", 1)])]);
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Stays 4 4", "m2 Stays 2 2"]);
    let waits = &plan.templates[0].waits;
    assert_eq!(waits.before, waits.after);
    assert!(waits.after.is_some());
    assert_eq!(plan.unchanged, 1);
}

#[test]
fn what_is_edited_while_its_policy_waits_goes_along_only_with_what_is_written_of_it() {
    let mut waiting = policy("web", weighed(&[("m1", 2), ("m2", 1)]));
    waiting["spec"]["dependentOverrides"] = json!(["missing"]);
    let hub = then(&hub(&web()), &[apply(waiting)]);
    let mut edited = deployment("web", 6);
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.io/web:2");
    let taint = json!([{"key": "spare", "effect": "NoSchedule"}]);
    let labelled = |name: &str| {
        let mut cluster = cluster(name);
        cluster["metadata"]["labels"] = json!({"tier": "gold"});
        cluster
    };
    let stays = ["m1 Stays 4 4", "m2 Stays 2 2"];
    // What changes with it, and what becomes of the template.
    let cases = [
        (tainted("m1", taint.clone()), stays),
        (tainted("m3", taint), stays),
        (labelled("m3"), stays),
        (labelled("m1"), ["m1 Changed 4 4", "m2 Changed 2 2"]),
    ];
    for (other, wanted) in cases {
        let plan = planned(&hub, &[apply(other.clone()), apply(edited.clone())]);
        assert_eq!(told(&plan), wanted, "{other}");
    }
}

#[test]
fn a_cluster_that_goes_while_a_template_is_edited_is_told_in_whatever_order_it_is_asked() {
    let roomy = |name: &str, pods: u32| {
        let mut cluster = cluster(name);
        cluster["status"]["resourceSummary"]["allocatable"] = json!({"pods": pods.to_string()});
        apply(cluster)
    };
    let by_room = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}});
    let hub = hub(&[
        roomy("m1", 2),
        roomy("m2", 2),
        roomy("m3", 0),
        apply(policy("web", by_room)),
        apply(deployment("web", 4)),
        roomy("m1", 1),
        roomy("m2", 3),
        roomy("m3", 1),
    ]);
    let ends = |changes: &[Change]| -> BTreeSet<Vec<Share>> {
        let plan = planned(&hub, changes);
        let [template] = plan.templates.as_slice() else {
            panic!("{plan:?}");
        };
        let clusters = template.clusters.iter();
        let placed = clusters.filter(|it| it.verdict != Verdict::Lost);
        let first = placed.map(|it| Share {
            cluster: it.cluster.clone(),
            replicas: it.replicas.after,
        });
        let others = template.or.iter().cloned();
        others.chain([first.collect()]).collect()
    };
    let (goes, edited) = (delete(&cluster("m1")), apply(deployment("web", 7)));
    let named = ends(&[goes.clone(), edited.clone()]);
    assert_eq!(named, ends(&[edited, goes]));
    // At once: five more are wanted, and there is room for four.
    let stays = vec![Share {
        cluster: "m2".to_owned(),
        replicas: Some(2),
    }];
    assert!(named.len() > 1 && named.contains(&stays), "{named:?}");
}

/// `many` Deployments that all refer to one ConfigMap, of which nothing is placed yet.
fn sharing(many: usize) -> Snapshot {
    let conf = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "conf", "namespace": "shop", "uid": "c"}, "data": {"a": "b"}});
    let one = |number: usize| {
        let mut web = deployment(&format!("web-{number:03}"), 1);
        web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "conf"}}]);
        apply(web)
    };
    let changes: Vec<Change> = (0..many).map(one).chain([apply(conf)]).collect();
    hub(&changes)
}

/// What the policy `web` places on a cluster goes there with what it refers to.
fn along(cluster: &str) -> Value {
    let mut policy = policy(
        "web",
        json!({"clusterAffinity": {"clusterNames": [cluster]}}),
    );
    policy["spec"]["propagateDeps"] = json!(true);
    policy
}

#[test]
fn eight_times_as_many_bindings_are_looked_at_some_eight_times_as_often() {
    let looked = |many: usize| {
        let hub = then(&sharing(many), &[apply(along("m1"))]);
        let before = looks::all();
        let plan = planned(&hub, &[apply(along("m3"))]);
        let looked = looks::all() - before;
        assert_eq!(plan.templates.len(), many + 1);
        // However many share the ConfigMap, it follows all of them.
        assert_eq!(plan.unknown, Vec::<String>::new());
        for template in &plan.templates {
            let clusters = template.clusters.iter();
            let clusters: Vec<_> = clusters
                .map(|it| (it.cluster.as_str(), it.verdict))
                .collect();
            let moves = [("m1", Verdict::Lost), ("m3", Verdict::Gained)];
            assert_eq!(clusters, moves, "{}", template.name);
        }
        looked
    };
    let (few, many) = (looked(20), looked(160));
    assert!(few > 20, "nothing is counted");
    assert!(many < 12 * few, "{few} and {many}");
}

#[test]
fn whoever_takes_a_template_first_keeps_it_and_another_may_be_first() {
    let selecting = |mut policy: Value, selector: Value| {
        policy["spec"]["resourceSelectors"] = json!([selector]);
        policy
    };
    let mut everything = policy("all", json!({}));
    everything["kind"] = json!("ClusterPropagationPolicy");
    everything["metadata"] = json!({"name": "all"});
    let red = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "labelSelector": {"matchLabels": {"colour": "red"}}});
    let one = selecting(policy("one", json!({})), red);
    let mut painted = deployment("web", 1);
    painted["metadata"]["labels"] = json!({"colour": "red"});
    let hub = hub(&[apply(one), apply(deployment("web", 1))]);
    let plan = planned(&hub, &[apply(everything), apply(painted)]);
    let template = &plan.templates[0];
    let after = template.policy.after.as_deref();
    assert_eq!(after, Some("ClusterPropagationPolicy all"));
    assert_eq!(template.or, Vec::<Vec<Share>>::new());
    let held = "held by PropagationPolicy shop/one".to_owned();
    assert!(template.otherwise.contains(&held), "{template:?}");
}

#[test]
fn few_changes_come_in_every_order_and_many_in_some() {
    let counts: Vec<usize> = (0..5).map(|many| orders(many).len()).collect();
    assert_eq!(counts, [1, 1, 3, 13, 3]);
    for many in 0..5 {
        let orders = orders(many);
        assert_eq!(orders[0], straight(many));
        for order in &orders {
            let mut all: Vec<usize> = order.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..many).collect::<Vec<_>>(), "{order:?}");
        }
        let different: BTreeSet<_> = orders.iter().collect();
        assert_eq!(different.len(), orders.len());
    }
}

#[test]
fn what_a_template_refers_to_goes_along() {
    let mut policy = policy("web", json!({"clusterAffinity": {"clusterNames": ["m3"]}}));
    policy["spec"]["propagateDeps"] = json!(true);
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "conf"}}]);
    let conf = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "conf", "namespace": "shop", "uid": "c"}, "data": {"a": "b"}});
    let plan = planned(&hub(&[apply(policy)]), &[apply(conf), apply(web)]);
    let told: Vec<String> = plan
        .templates
        .iter()
        .map(|it| {
            format!(
                "{} {} {:?}",
                it.kind, it.clusters[0].cluster, it.policy.after
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "ConfigMap m3 None",
            "Deployment m3 Some(\"PropagationPolicy shop/web\")"
        ]
    );
}
