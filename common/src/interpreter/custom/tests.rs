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

fn rules(scripts: &[(Operation, &str)]) -> Arc<Rules> {
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

/// The texts by which people find what is wrong with their script.
#[test]
fn wrong_answers_are_told_as_the_reference_tells_them() {
    let told = |operation: Operation, script: &str| {
        let rules = rules(&[(operation, script)]);
        let failed = match operation {
            Operation::Retain => rules.retain(&object(), &object()).map(|it| it.map(drop)),
            Operation::Replica => rules.replicas(&object()).map(|it| it.map(drop)),
            Operation::Component => rules.components(&object()).map(|it| it.map(drop)),
            Operation::ReviseReplica => rules.revise(&object(), 1).map(|it| it.map(drop)),
            Operation::Status => rules.reflect(&object()).map(|it| it.map(drop)),
            Operation::AggregateStatus => rules.aggregate(&object(), &[]).map(|it| it.map(drop)),
            Operation::Health => rules.health(&object()).map(|it| it.map(drop)),
            Operation::Dependency => rules.dependencies(&object()).map(|it| it.map(drop)),
        };
        failed.expect("asked").expect_err(script).to_string()
    };
    for (operation, script, want) in [
        (
            Operation::Health,
            "x = 1",
            "not found function InterpretHealth",
        ),
        (
            Operation::Health,
            "InterpretHealth = 1",
            "InterpretHealth is not a function: number",
        ),
        (
            Operation::Health,
            "function InterpretHealth() end",
            "result type 0 is not bool",
        ),
        (
            Operation::Health,
            "function InterpretHealth() return 1 end",
            "result type 2 is not bool",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 'x' end",
            "result type 3 is not number",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, 2 end",
            "expect the returned requires type is table but got number",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return -1 end",
            "-1 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return -1.5 end",
            "-1 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 0/0 end",
            "NaN is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1/0 end",
            "inf is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1e10 end",
            "10000000000 is no number of replicas",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, {resourceRequest = {cpu = 'x'}} end",
            "resourceRequest of cpu is not a quantity",
        ),
        (
            Operation::Replica,
            "function GetReplicas() return 1, {nodeClaim = 5} end",
            "the returned requirements: ",
        ),
        (
            Operation::Retain,
            "function Retain() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::ReviseReplica,
            "function ReviseReplica() return 1 end",
            "expect the returned requires type is table but got number",
        ),
        (
            Operation::AggregateStatus,
            "function AggregateStatus() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::AggregateStatus,
            "function AggregateStatus() return {status = {1}} end",
            "the returned status is a list",
        ),
        (
            Operation::Status,
            "function ReflectStatus() end",
            "expect the returned replica type is table but got nil",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() end",
            "expect the returned requires type is table but got nil",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{kind = 'a', name = 'b'}} end",
            "dependencies[0].apiVersion: missing required apiVersion",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 'v1', name = 'b'}} end",
            "dependencies[0].kind: missing required kind",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 'v1', kind = 'a', name = ''}} end",
            "dependencies[0]: dependency can not leave name and labelSelector all empty",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() return {{apiVersion = 1, kind = 'a', name = 'b'}} end",
            "dependencies[0]: invalid type",
        ),
        (
            Operation::Dependency,
            "function GetDependencies() local t = {} for i = 1, 300 do t[i] = {apiVersion = 'v1', kind = 'a', name = 'b' .. i} end return t end",
            "more than 256 dependencies",
        ),
        (
            Operation::Health,
            "\n\nfunction InterpretHealth(o) return o.no.thing end",
            "<string>:3: attempt to index nil with 'thing'",
        ),
        (
            Operation::Health,
            "function InterpretHealth(o) return == end",
            "<string>:1: Expected identifier when parsing expression, got '=='",
        ),
        (
            Operation::Health,
            "function InterpretHealth() while true do end end",
            "the script was stopped: it took more than the 500000 steps",
        ),
        (
            Operation::Health,
            "while true do end",
            "the script was stopped",
        ),
        (
            Operation::Health,
            "require('kube').resourceAdd('x')",
            "\"x\" is not a quantity",
        ),
    ] {
        let text = told(operation, script);
        let head = format!(
            "ResourceInterpreterCustomization tills, {}: ",
            operation.name()
        );
        assert!(
            text.starts_with(&head) && text.contains(want),
            "{script}: {text}"
        );
    }
}

#[test]
fn no_script_decides_which_object_it_is() {
    for change in [
        "kind = 'Secret'",
        "apiVersion = 'v1'",
        "metadata.name = 'b'",
        "metadata.namespace = 'kube-system'",
        "metadata.labels['towline.dev/mark'] = nil",
        "metadata.annotations['work.karmada.io/name'] = 'x'",
        "metadata.finalizers = {'a/b'}",
        "metadata.ownerReferences = {{name = 'a'}}",
        "metadata.labels = {1, 2}",
        "metadata = nil",
    ] {
        let revise = format!("function ReviseReplica(o) o.{change} return o end");
        let retain = format!("function Retain(o) o.{change} return o end");
        let rules = rules(&[
            (Operation::ReviseReplica, &revise),
            (Operation::Retain, &retain),
        ]);
        let revised = rules.revise(&object(), 1).expect("asked");
        let retained = rules.retain(&object(), &object()).expect("asked");
        for result in [revised, retained] {
            let failed = result.expect_err(change);
            assert!(matches!(failed.problem, Problem::Identity(_)), "{failed}");
        }
    }
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

/// Each turn reads a megabyte before it is refused.
#[test]
fn what_is_refused_for_its_size_has_its_price() {
    let script = "local kube = require('kube')
        function GetReplicas()
          local numbers, big = {}, {}
          for i = 1, 5000 do numbers[i] = i end
          for i = 1, 40 do big[i] = numbers end
          for turn = 1, 50 do pcall(kube.getPodDependencies, big) end
          return 1
        end";
    let found = rules(&[(Operation::Replica, script)]).replicas(&json!({}));
    let failed = found.expect("asked").expect_err("is stopped").to_string();
    assert!(
        failed.contains("the script was stopped: it took more"),
        "{failed}"
    );
}

#[test]
fn what_pods_ask_for_is_read_of_numbers_too() {
    let script = "local kube = require('kube')
        function GetReplicas(o) return 1, kube.accuratePodRequirements(o.template) end";
    let rules = rules(&[(Operation::Replica, script)]);
    let template = json!({"template": {"spec": {"tolerations": [], "nodeSelector": {}, "containers": [
        {"resources": {"requests": {"cpu": 1, "memory": 1_048_576}, "limits": {}}},
        {"resources": {"limits": {"cpu": 0.25, "memory": "1Mi"}}}]}}});
    let found = rules.replicas(&template).expect("asked").expect("answers");
    let needs = serde_json::to_value(found.requirements).expect("JSON");
    assert_eq!(
        needs,
        json!({"resourceRequest": {"cpu": "1250m", "memory": "2Mi"}})
    );
}

#[test]
fn amounts_are_added_and_read() {
    let replica = |body: &str| {
        let script = format!("local kube = require('kube') function GetReplicas() {body} end");
        let found = rules(&[(Operation::Replica, &script)])
            .replicas(&json!({}))
            .expect("asked");
        found.map_err(|failed| failed.to_string())
    };
    for (body, want) in [
        ("return kube.getResourceQuantity('2') * 2", Ok(4)),
        ("return kube.getResourceQuantity('1Ki')", Ok(1024)),
        ("return 3/2", Ok(1)),
        ("return kube.getResourceQuantity('900m')", Ok(0)),
        ("return kube.getResourceQuantity(nil)", Ok(0)),
        (
            "if kube.resourceAdd('1', '500m', nil) == '1500m' then return 1 end return 0",
            Ok(1),
        ),
        (
            "if kube.resourceAdd('1Gi', '1Gi') == '2Gi' then return 1 end return 0",
            Ok(1),
        ),
        (
            "if kube.resourceAdd() == '0' then return 1 end return 0",
            Ok(1),
        ),
        (
            "if kube.accuratePodRequirements({}) == nil then return 1 end return 0",
            Ok(1),
        ),
        (
            "return #kube.getPodDependencies({spec = {serviceAccountName = 'x'}}, nil)",
            Ok(1),
        ),
        (
            "local d = kube.getPodDependencies({spec = {serviceAccountName = 'x'}}) if d[1].namespace == 'default' then return 1 end return 0",
            Ok(1),
        ),
        (
            "kube.resourceAdd({})",
            Err("a quantity is expected, got table"),
        ),
        (
            "kube.accuratePodRequirements(nil)",
            Err("a pod template is expected"),
        ),
        (
            "kube.accuratePodRequirements({spec = {containers = {{resources = {requests = {cpu = 'much'}}}}}})",
            Err("the pod template cannot be read: \"much\" is not a quantity"),
        ),
        (
            "kube.accuratePodRequirements({spec = {nodeSelector = {disk = 1}}})",
            Err("the pod template cannot be read: "),
        ),
        (
            "local t = {} t.t = t kube.getPodDependencies(t)",
            Err("nested more than"),
        ),
    ] {
        match (replica(body), want) {
            (Ok(got), Ok(want)) => assert_eq!(got.replicas, want, "{body}"),
            (Err(text), Err(want)) => assert!(text.contains(want), "{body}: {text}"),
            (got, want) => panic!("{body}: {got:?}, not {want:?}"),
        }
    }
}
