//! Ownership as a server keeps it: tables, and what holds for all sequences of writes.

use super::*;
use crate::apiserver::scheme::Scheme;
use chrono::TimeZone;
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn at(second: u32) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2024, 1, 1, 0, 0, second).unwrap()
}

fn resource(group: &str, plural: &str) -> Arc<Resource> {
    Scheme::new().resource(group, "v1", plural).unwrap()
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "namespace": "d"}, "data": data})
}

struct World {
    resource: Arc<Resource>,
    object: Option<Value>,
}

impl World {
    fn new(group: &str, plural: &str) -> Self {
        Self {
            resource: resource(group, plural),
            object: None,
        }
    }

    fn apply(
        &mut self,
        name: &str,
        config: &Value,
        force: bool,
        when: u32,
    ) -> Result<(), ApiError> {
        let manager = Manager::new(&self.resource, name, "");
        let schema = &self.resource.schema;
        let mut new = apply(
            self.object.as_ref(),
            config,
            schema,
            &manager,
            force,
            at(when),
        )?;
        self.resource.decode(&mut new)?;
        new["metadata"]["uid"] = json!("u");
        self.object = Some(new);
        Ok(())
    }

    fn update(&mut self, name: &str, change: impl FnOnce(&mut Value), when: u32) {
        let mut new = self.object.clone().unwrap();
        change(&mut new);
        let manager = Manager::new(&self.resource, name, "");
        track(
            self.object.as_ref(),
            &mut new,
            &self.resource.schema,
            &manager,
            at(when),
        );
        self.object = Some(new);
    }

    fn create(&mut self, name: &str, object: &Value, when: u32) {
        let mut new = object.clone();
        let manager = Manager::new(&self.resource, name, "");
        track(None, &mut new, &self.resource.schema, &manager, at(when));
        self.object = Some(new);
    }

    fn entries(&self) -> Vec<(String, String, Value)> {
        let entries = self.object.as_ref().and_then(entries::of).cloned();
        let entries = entries.unwrap_or_else(|| json!([]));
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        entries
            .as_array()
            .unwrap()
            .iter()
            .map(|e| {
                (
                    text(e, "manager"),
                    text(e, "operation"),
                    e["fieldsV1"].clone(),
                )
            })
            .collect()
    }

    fn data(&self) -> Value {
        self.object.as_ref().unwrap()["data"].clone()
    }
}

#[test]
fn a_create_owns_what_it_says() {
    let mut world = World::new("", "configmaps");
    world.create("kubectl-create", &config_map(json!({"a": "1"})), 1);
    let owned = json!({"f:data": {".": {}, "f:a": {}}});
    assert_eq!(
        world.object.unwrap()["metadata"]["managedFields"],
        json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owned,
                "manager": "kubectl-create", "operation": "Update",
                "time": "2024-01-01T00:00:01Z"}])
    );
}

#[test]
fn applied_fields_are_shared_taken_and_dropped() {
    let mut world = World::new("", "configmaps");
    world
        .apply("one", &config_map(json!({"a": "1", "b": "1"})), false, 1)
        .unwrap();
    world
        .apply("two", &config_map(json!({"b": "1", "c": "1"})), false, 2)
        .unwrap();
    let refused = world
        .apply("two", &config_map(json!({"a": "2"})), false, 3)
        .unwrap_err();
    assert_eq!(refused.code, 409);
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.a"
    );
    let cause = &refused.details.unwrap().causes[0];
    assert_eq!(cause.reason, "FieldManagerConflict");
    assert_eq!(
        (cause.field.as_str(), cause.message.as_str()),
        (".data.a", "conflict with \"one\"")
    );
    world
        .apply("two", &config_map(json!({"a": "2"})), true, 4)
        .unwrap();
    // b is still owned by the first, c by nobody else.
    assert_eq!(world.data(), json!({"a": "2", "b": "1"}));
    let fields: Vec<Value> = world.entries().into_iter().map(|(_, _, set)| set).collect();
    assert_eq!(
        fields,
        [
            json!({"f:data": {"f:b": {}}}),
            json!({"f:data": {"f:a": {}}})
        ]
    );
    world
        .apply("one", &config_map(json!({})), false, 5)
        .unwrap();
    assert_eq!(world.data(), json!({"a": "2"}));
}

#[test]
fn an_update_is_named_with_its_version_in_a_conflict() {
    let mut world = World::new("", "configmaps");
    world
        .apply("one", &config_map(json!({"a": "1", "b": "1"})), false, 1)
        .unwrap();
    world.update("edit", |new| new["data"] = json!({"a": "2", "b": "2"}), 2);
    let refused = world
        .apply("one", &config_map(json!({"a": "1", "b": "1"})), false, 3)
        .unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 2 conflicts: conflicts with \"edit\" using v1:\n- .data.a\n- .data.b"
    );
}

#[test]
fn many_conflicts_are_counted_and_the_first_are_named() {
    let data = |count: usize, value: &str| {
        let keys = (0..count).map(|key| (format!("k{key:04}"), json!(value)));
        config_map(Value::Object(keys.collect()))
    };
    let mut world = World::new("", "configmaps");
    let owner = "o".repeat(128);
    world.apply(&owner, &data(1_000, "1"), false, 1).unwrap();
    world.apply("next", &data(1_000, "1"), false, 2).unwrap();
    let refused = world.apply("two", &data(1_000, "2"), false, 3).unwrap_err();
    assert_eq!(refused.code, 409);
    let text = refused.to_status().to_string();
    assert!(text.len() < 256 * 1024, "{}", text.len());
    let message = &refused.message;
    assert!(message.starts_with("Apply failed with 2000 conflicts: conflicts with \"next\":\n- "));
    assert!(
        message.ends_with("\n- .data.k0099\nand 1900 more"),
        "{message}"
    );
    assert_eq!(refused.details.unwrap().causes.len(), 100);
    // Few of them, but long.
    let long =
        |value: &str| config_map(json!({"a".repeat(200_000): value, "b".repeat(200_000): value}));
    let mut world = World::new("", "configmaps");
    world.apply("one", &long("1"), false, 1).unwrap();
    let refused = world.apply("two", &long("2"), false, 2).unwrap_err();
    assert_eq!(refused.details.unwrap().causes.len(), 1);
    assert!(refused.message.ends_with("\nand 1 more"));
}

#[test]
fn who_wrote_before_the_first_apply_is_remembered() {
    let mut world = World::new("", "configmaps");
    world.create("edit", &config_map(json!({"a": "1"})), 1);
    world.update(
        "edit",
        |new| new["metadata"]["managedFields"] = json!([]),
        2,
    );
    assert_eq!(world.entries(), []);
    world.update("edit", |new| new["data"]["b"] = json!("1"), 2);
    assert_eq!(world.entries(), []);
    world
        .apply("one", &config_map(json!({"c": "1"})), false, 3)
        .unwrap();
    let names: Vec<String> = world
        .entries()
        .into_iter()
        .map(|(name, _, _)| name)
        .collect();
    assert_eq!(names, ["one", "before-first-apply"]);
}

#[test]
fn lists_are_owned_by_their_keys() {
    let mut world = World::new("apps", "deployments");
    let deployment = |spec: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
               "metadata": {"name": "a", "namespace": "d"}, "spec": spec})
    };
    let container =
        |name: &str| json!({"name": name, "image": "x", "ports": [{"containerPort": 80}]});
    let config = deployment(json!({"template": {"spec": {"containers": [container("a")]}}}));
    world.apply("one", &config, false, 1).unwrap();
    let config = deployment(json!({"template": {"spec": {"containers": [container("b")]}}}));
    world.apply("two", &config, false, 2).unwrap();
    let key = "k:{\"containerPort\":80,\"protocol\":\"TCP\"}";
    let owned = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
            key: {".": {}, "f:containerPort": {}}}}}}}}});
    assert_eq!(world.entries()[1].2, owned);
    world
        .apply("two", &deployment(json!({})), false, 3)
        .unwrap();
    let spec = world.object.unwrap()["spec"]["template"]["spec"].clone();
    let left = &spec["containers"];
    assert_eq!(
        (left.as_array().unwrap().len(), &left[0]["name"]),
        (1, &json!("a"))
    );
}

#[test]
fn configurations_of_the_wrong_form_are_refused() {
    let mut world = World::new("", "configmaps");
    let cases = [
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            400,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "d"}, "date": {}}),
            500,
            "failed to create typed patch object (d/a; /v1, Kind=ConfigMap): .date: field not declared in schema",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}}),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ];
    for (config, code, message) in cases {
        let refused = world.apply("one", &config, false, 1).unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (code, message));
    }
}

#[test]
fn the_oldest_updates_lose_their_names() {
    let mut world = World::new("", "configmaps");
    world.create("m00", &config_map(json!({"k00": "1"})), 0);
    for n in 1..13 {
        let key = format!("k{n:02}");
        world.update(&format!("m{n:02}"), |new| new["data"][&key] = json!("1"), n);
    }
    let entries = world.entries();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0].0, "ancient-changes");
    let ancient = &entries[0].2["f:data"];
    assert!(ancient.get("f:k00").is_some() && ancient.get("f:k03").is_some());
    assert!(ancient.get("f:k04").is_none());
}

#[test]
fn the_status_has_owners_of_its_own() {
    let deployments = resource("apps", "deployments");
    let manager = Manager::new(&deployments, "one", "");
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                        "spec": {"replicas": 1}, "status": {"replicas": 1}});
    let new = apply(None, &config, &deployments.schema, &manager, false, at(1)).unwrap();
    let owned = &new["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*owned, json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn the_annotation_of_client_side_apply_gives_way_to_kubectl() {
    let mut world = World::new("", "configmaps");
    let mut first = config_map(json!({"a": "1"}));
    let text = first.to_string();
    first["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": text});
    world.create("kubectl-client-side-apply", &first, 1);
    let config = config_map(json!({"a": "2"}));
    assert_eq!(
        world.apply("other", &config, false, 2).unwrap_err().code,
        409
    );
    world.apply("kubectl", &config, false, 3).unwrap();
    assert_eq!(world.data(), json!({"a": "2"}));
    let object = world.object.unwrap();
    let annotation =
        &object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let kept: Value = serde_json::from_str(annotation.as_str().unwrap()).unwrap();
    assert_eq!(kept, config);
}

#[test]
fn a_writer_claims_no_time_to_come() {
    let claimed = |time: &str| {
        json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:immutable": {}},
                "manager": "other", "operation": "Update", "time": time}])
    };
    let time = |world: &World| {
        let all = world.object.as_ref().and_then(entries::of).cloned();
        let all = all.as_ref().and_then(Value::as_array).cloned();
        let mut all = all.into_iter().flatten();
        let other = all.find(|entry| entry["manager"] == "other");
        other.map(|entry| entry["time"].clone())
    };
    let far = "2999-01-01T00:00:00Z";
    let mut made = config_map(json!({"a": "1"}));
    made["metadata"]["managedFields"] = claimed(far);
    let mut world = World::new("", "configmaps");
    world.create("one", &made, 1);
    assert_eq!(time(&world), Some(json!("2024-01-01T00:00:01Z")));
    for (claim, when, kept) in [
        (far, 2, "2024-01-01T00:00:02Z"),
        ("2024-01-01T00:00:04Z", 3, "2024-01-01T00:00:03Z"),
        ("2024-01-01T05:00:04+05:00", 4, "2024-01-01T05:00:04+05:00"),
        ("2023-01-01T00:00:00Z", 5, "2023-01-01T00:00:00Z"),
    ] {
        let claim = claimed(claim);
        world.update("one", |o| o["metadata"]["managedFields"] = claim, when);
        assert_eq!(time(&world), Some(json!(kept)), "{when}");
    }
    // What was written before a clock was set back is no claim: that entry is as it was.
    world.object = Some(made);
    world.update("one", |o| o["data"]["a"] = json!("2"), 6);
    assert_eq!(time(&world), Some(json!(far)));
}

#[test]
fn times_alone_are_no_change() {
    let object = |time: &str, data: &str| json!({"metadata": {"managedFields": [{"manager": "a", "time": time}]}, "data": data});
    assert!(differ_in_times_only(&object("1", "x"), &object("2", "x")));
    assert!(!differ_in_times_only(&object("1", "x"), &object("1", "y")));
}

#[derive(Debug, Clone)]
struct Step {
    manager: usize,
    applies: bool,
    data: Vec<(u8, u8)>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let data = prop::collection::vec((0u8..4, 0u8..3), 1..4);
    let step = (0usize..3, any::<bool>(), data);
    prop::collection::vec(
        step.prop_map(|(manager, applies, data)| Step {
            manager,
            applies,
            data,
        }),
        1..12,
    )
}

proptest! {
    #[test]
    fn applies_do_what_they_say_and_nothing_twice(steps in steps()) {
        let mut world = World::new("", "configmaps");
        let names = ["one", "two", "three"];
        for (when, step) in (1u32..).zip(steps) {
            let data: Value = step.data.iter()
                .map(|(key, value)| (format!("k{key}"), json!(value.to_string())))
                .collect::<Map<_, _>>().into();
            let name = names[step.manager];
            let config = config_map(data.clone());
            if world.object.is_none() || step.applies {
                world.apply(name, &config, true, when).unwrap();
                // All that was applied is there and owned by who applied it, alone where it changed.
                for (key, value) in data.as_object().unwrap() {
                    prop_assert_eq!(&world.data()[key], value);
                }
                let once = world.object.clone();
                world.apply(name, &config, false, when).unwrap();
                prop_assert_eq!(&world.object, &once);
            } else {
                world.update(name, |new| new["data"] = data.clone(), when);
            }
            // Who owns a field owns one that exists.
            for (_, _, set) in world.entries() {
                let owned = fields::read(&set).unwrap();
                let present = owned::fields_of(world.object.as_ref().unwrap(), Type::of(&world.resource.schema));
                for path in owned.paths() {
                    prop_assert!(path.len() < 2 || present.has(&path), "{:?}", path);
                }
            }
        }
    }
}

fn custom(of_v1: Value, of_v2: Value) -> [Arc<Resource>; 2] {
    let version = |name: &str, spec: Value| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}})
    };
    let names = json!({"plural": "foos", "kind": "Foo"});
    let scheme = Scheme::new();
    scheme.set_crds([&json!({"metadata": {"name": "foos.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names,
                 "versions": [version("v1", of_v1), version("v2", of_v2)]},
        "status": {"conditions": [{"type": "Established", "status": "True"}],
                   "acceptedNames": names}})]);
    ["v1", "v2"].map(|version| scheme.resource("example.com", version, "foos").unwrap())
}

fn foo(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Foo",
           "metadata": {"name": "a", "namespace": "d"}, "spec": spec})
}

#[test]
fn managers_are_asked_in_the_versions_they_speak() {
    let list = json!({"type": "array", "items": {"type": "string"}});
    let mut set = list.clone();
    set["x-kubernetes-list-type"] = json!("set");
    let integer = json!({"type": "integer"});
    let [v1, v2] = custom(
        json!({"l": list, "a": integer}),
        json!({"l": set, "a": integer, "new": integer}),
    );
    let mut world = World {
        resource: v1.clone(),
        object: None,
    };
    let first = foo("v1", json!({"l": ["x"], "a": 1}));
    world.apply("one", &first, false, 1).unwrap();
    let mut seen = world.object.clone().unwrap();
    seen["apiVersion"] = json!("example.com/v2");
    world.resource = v2;
    world.object = Some(seen);
    // To its manager the list is one thing, which somebody else changed.
    world.update("edit", |new| new["spec"]["l"] = json!(["x", "y"]), 2);
    assert_eq!(
        world.entries()[0],
        (
            "one".to_owned(),
            "Apply".to_owned(),
            json!({"f:spec": {"f:a": {}}})
        )
    );
    // What its version cannot say is refused, and otherwise nobody owns anything any more.
    let refused = world
        .apply("two", &foo("v2", json!({"new": 1})), false, 3)
        .unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            500,
            "failed to convert new object: .spec.new: field not declared in schema"
        )
    );
    world.update("edit", |new| new["spec"]["new"] = json!(1), 4);
    assert!(world.entries().is_empty());
}

#[test]
fn who_wrote_another_version_loses_what_changes_in_it() {
    let kinds = Scheme::new().snapshot();
    let find = |version: &str| kinds.resource("autoscaling", version, "horizontalpodautoscalers");
    let (v1, v2) = (find("v1").expect("v1"), find("v2").expect("v2"));
    let manager = |of: &Resource| Manager::new(of, "m", "").among(vec![v1.clone(), v2.clone()]);
    let now = DateTime::UNIX_EPOCH;
    let mut object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"}, "spec": {"maxReplicas": 5,
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    track(None, &mut object, &v2.schema, &manager(&v2), now);
    v2.convert(&mut object, &v1);
    let mut new = object.clone();
    new["spec"]["targetCPUUtilizationPercentage"] = json!(70);
    track(Some(&object), &mut new, &v1.schema, &manager(&v1), now);
    let owned = |at: usize| new["metadata"]["managedFields"][at]["fieldsV1"]["f:spec"].clone();
    assert_eq!(owned(0), json!({"f:targetCPUUtilizationPercentage": {}}));
    let kept = json!({"f:maxReplicas": {}, "f:scaleTargetRef": {"f:kind": {}, "f:name": {}}});
    assert_eq!(owned(1), kept);
}
