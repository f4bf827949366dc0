//! Scripts that answer as they are asked, and which of them is asked.

mod wrong;

use super::*;
use crate::api::binding::AggregatedStatusItem;
use crate::api::interpreter::{CustomizationTarget, Script as Text};
use crate::api::work::ResourceHealth;
use serde_json::{Value, json};

fn spec(scripts: &[(Operation, &str)]) -> CustomizationSpec {
    let mut rules = CustomizationRules::default();
    for (operation, script) in scripts {
        let slot = match operation {
            Operation::Retain => &mut rules.retention,
            Operation::Replica => &mut rules.replica_resource,
            Operation::Component => &mut rules.component_resource,
            Operation::ReviseReplica => &mut rules.replica_revision,
            Operation::Status => &mut rules.status_reflection,
            Operation::AggregateStatus => &mut rules.status_aggregation,
            Operation::Health => &mut rules.health_interpretation,
            Operation::Dependency => &mut rules.dependency_interpretation,
        };
        let lua_script = (*script).to_owned();
        *slot = Some(Text { lua_script });
    }
    CustomizationSpec {
        target: CustomizationTarget {
            api_version: "shop.example.com/v1".to_owned(),
            kind: "Till".to_owned(),
        },
        customizations: rules,
    }
}

pub(super) fn rules(scripts: &[(Operation, &str)]) -> Arc<Rules> {
    let spec = spec(scripts);
    let all = Customizations::new([("tills", &spec)]);
    Arc::clone(all.of(&till()).expect("known"))
}

fn till() -> Gvk {
    Gvk::new("shop.example.com/v1", "Till").expect("sound")
}

fn object() -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"name": "a", "namespace": "shop", "labels": {"x": "y", "towline.dev/mark": "m"}, "annotations": {}},
        "spec": {"tills": 4, "args": [], "big": 9_007_199_254_740_993_i64, "template": {"spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "conf"}}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}},
        "status": {"ready": 3, "phase": "Open", "notes": []}})
}

#[test]
fn every_operation_is_asked() {
    let rules = rules(&[
        (
            Operation::Replica,
            "local kube = require('kube')
             function GetReplicas(obj) return obj.spec.tills, kube.accuratePodRequirements(obj.spec.template) end",
        ),
        (
            Operation::ReviseReplica,
            "function ReviseReplica(obj, n) obj.spec.tills = n return obj end",
        ),
        (
            Operation::Retain,
            "function Retain(desired, observed) desired.spec.tills = observed.spec.tills return desired end",
        ),
        (
            Operation::Status,
            "function ReflectStatus(o) return {ready = o.status.ready, notes = o.status.notes, none = {}} end",
        ),
        (
            Operation::AggregateStatus,
            "function AggregateStatus(obj, items)
               obj.status = {ready = 0, clusters = {}}
               for _, item in ipairs(items) do
                 obj.status.ready = obj.status.ready + item.status.ready
                 table.insert(obj.status.clusters, item.clusterName .. '=' .. item.health)
               end
               return obj
             end",
        ),
        (
            Operation::Health,
            "function InterpretHealth(o) return o.status.phase == 'Open' end",
        ),
        (
            Operation::Dependency,
            "local kube = require('kube')
             function GetDependencies(o) return kube.getPodDependencies(o.spec.template, o.metadata.namespace) end",
        ),
        (
            Operation::Component,
            "function GetComponents(o) return {{name = 'till', replicas = o.spec.tills}} end",
        ),
    ]);
    let got = rules.replicas(&object()).expect("asked").expect("answers");
    assert_eq!(got.replicas, 4);
    let needs = serde_json::to_value(got.requirements).expect("JSON");
    assert_eq!(
        needs,
        json!({"nodeClaim": {"nodeSelector": {"disk": "ssd"}}, "resourceRequest": {"cpu": "100m", "memory": "64Mi"}})
    );

    let mut want = object();
    want["spec"]["tills"] = json!(7);
    let revised = rules.revise(&object(), 7).expect("asked").expect("answers");
    assert_eq!(revised, want);

    let mut live = object();
    live["spec"]["tills"] = json!(9);
    want["spec"]["tills"] = json!(9);
    let retained = rules.retain(&object(), &live).expect("asked");
    assert_eq!(retained.expect("answers"), want);

    let status = rules.reflect(&object()).expect("asked").expect("answers");
    assert_eq!(status, json!({"ready": 3, "notes": []}));

    let item = |name: &str, ready: i64, health| AggregatedStatusItem {
        cluster_name: name.to_owned(),
        status: Some(json!({"ready": ready})),
        health: Some(health),
        ..AggregatedStatusItem::default()
    };
    let items = [
        item("m1", 3, ResourceHealth::Healthy),
        item("m2", 2, ResourceHealth::Unhealthy),
    ];
    let status = rules.aggregate(&object(), &items).expect("asked");
    let want = json!({"ready": 5, "clusters": ["m1=Healthy", "m2=Unhealthy"]});
    assert_eq!(status.expect("answers"), want);

    let health = rules.health(&object()).expect("asked");
    assert_eq!(health.expect("answers"), ResourceHealth::Healthy);
    let needs = rules.dependencies(&object()).expect("asked");
    let needs = serde_json::to_value(needs.expect("answers")).expect("JSON");
    assert_eq!(
        needs,
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "conf"}])
    );
    let parts = rules.components(&object()).expect("asked");
    let want = json!([{"name": "till", "replicas": 4}]);
    assert_eq!(parts.expect("answers"), want);
}

#[test]
fn the_first_by_name_wins_and_dependencies_are_united() {
    let needs = |name: &str| {
        format!(
            "function GetDependencies() return {{{{apiVersion = 'v1', kind = 'Secret', name = '{name}'}}}} end"
        )
    };
    let first = spec(&[
        (
            Operation::Health,
            "function InterpretHealth() return true end",
        ),
        (Operation::Dependency, &needs("z")),
        (Operation::Replica, ""),
    ]);
    let second = spec(&[
        (
            Operation::Health,
            "function InterpretHealth() return false end",
        ),
        (Operation::Dependency, &needs("a")),
        (Operation::Replica, "function GetReplicas() return 2 end"),
    ]);
    let all = Customizations::new([("b", &second), ("a", &first)]);
    let rules = all.of(&till()).expect("known");
    let health = rules.health(&json!({})).expect("asked");
    assert_eq!(health.expect("answers"), ResourceHealth::Healthy);
    let found = rules
        .dependencies(&json!({}))
        .expect("asked")
        .expect("answers");
    let names: Vec<_> = found.iter().filter_map(|it| it.name.as_deref()).collect();
    assert_eq!(names, ["a", "z"]);
    let replicas = rules.replicas(&json!({})).expect("asked").expect("answers");
    assert_eq!(replicas.replicas, 2);
    assert!(rules.revise(&json!({}), 1).is_none());
    assert!(
        all.of(&Gvk::new("shop.example.com/v2", "Till").expect("sound"))
            .is_none()
    );
}

#[test]
fn what_many_parts_need_is_one_dependency() {
    let script = "function GetDependencies() local t = {}
        for i = 1, 300 do t[i] = {apiVersion = 'v1', kind = 'Secret', name = 'same'} end return t end";
    let found = rules(&[(Operation::Dependency, script)]).dependencies(&json!({}));
    assert_eq!(found.expect("asked").expect("answers").len(), 1);
}

/// The object that comes with it may be as large as an API server takes.
#[test]
fn only_the_status_is_read_of_what_aggregates() {
    let script = "function AggregateStatus(o) o.spec = {print} o.status.notes = {} o.status.now = {} return o end";
    let status = rules(&[(Operation::AggregateStatus, script)]).aggregate(&object(), &[]);
    let want = json!({"ready": 3, "phase": "Open", "notes": []});
    assert_eq!(status.expect("asked").expect("answers"), want);
}

#[test]
fn an_object_without_a_status_gets_an_empty_one() {
    for body in ["o.status = nil", "o.status = {}"] {
        let script = format!("function AggregateStatus(o) {body} return o end");
        let status = rules(&[(Operation::AggregateStatus, &script)]).aggregate(&object(), &[]);
        assert_eq!(
            status.expect("asked").expect("answers"),
            json!({}),
            "{body}"
        );
    }
}
