//! Strategic merge patches of pods and services, as a server answers them.

use super::*;
use crate::apiserver::scheme::Scheme;
use serde_json::json;

fn pod(live: Value, patch: Value) -> Result<Value, Failed> {
    let pods = Scheme::new().resource("", "v1", "pods").unwrap();
    let spec = pods.schema.property("spec").unwrap();
    let (Value::Object(live), Value::Object(patch)) = (live, patch) else {
        panic!("objects");
    };
    merge(live, patch, spec).map(Value::Object)
}

#[test]
fn lists_with_keys_merge_and_others_are_replaced() {
    let live = json!({
        "containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}],
        "tolerations": [{"key": "k"}],
    });
    let cases = [
        (
            json!({"containers": [{"name": "a", "image": "2"}]}),
            json!([{"name": "a", "image": "2", "args": ["x"]}, {"name": "b", "image": "1"}]),
        ),
        (
            json!({"containers": [{"name": "a", "args": ["y", "z"]}]}),
            json!([{"name": "a", "image": "1", "args": ["y", "z"]}, {"name": "b", "image": "1"}]),
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!([{"name": "b", "image": "1"}]),
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "replace"}, {"name": "c"}]}),
            json!([{"name": "c"}]),
        ),
        (
            json!({"containers": [{"name": "c", "image": "1"}]}),
            json!([{"name": "c", "image": "1"}, {"name": "a", "image": "1", "args": ["x"]},
                   {"name": "b", "image": "1"}]),
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            json!([{"name": "b", "image": "1"}, {"name": "a", "image": "1", "args": ["x"]}]),
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                   "containers": [{"name": "c", "image": "3"}]}),
            json!([{"name": "b", "image": "1"}, {"name": "c", "image": "3"},
                   {"name": "a", "image": "1", "args": ["x"]}]),
        ),
    ];
    for (patch, wanted) in cases {
        let merged = pod(live.clone(), patch.clone()).unwrap();
        assert_eq!(merged["containers"], wanted, "{patch}");
        assert_eq!(merged["tolerations"], live["tolerations"]);
    }
    let replaced = pod(live, json!({"tolerations": [{"key": "o"}]})).unwrap();
    assert_eq!(replaced["tolerations"], json!([{"key": "o"}]));
}

#[test]
fn objects_follow_their_directives() {
    let live = json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}, "hostname": "h"});
    let cases = [
        (
            json!({"securityContext": {"runAsUser": null}}),
            json!({"fsGroup": 2}),
        ),
        (
            json!({"securityContext": {"$patch": "replace", "fsGroup": 3}}),
            json!({"fsGroup": 3}),
        ),
        (json!({"securityContext": {"$patch": "delete"}}), json!({})),
        (
            json!({"securityContext": {"$retainKeys": ["fsGroup"], "fsGroup": 4}}),
            json!({"fsGroup": 4}),
        ),
    ];
    for (patch, wanted) in cases {
        let merged = pod(live.clone(), patch.clone()).unwrap();
        assert_eq!(merged["securityContext"], wanted, "{patch}");
        assert_eq!(merged["hostname"], json!("h"));
    }
}

#[test]
fn sets_of_scalars_grow_and_shrink() {
    let maps = Scheme::new().resource("", "v1", "configmaps").unwrap();
    let live = json!({"metadata": {"finalizers": ["a.b/x", "a.b/y"]}});
    let cases = [
        (
            json!({"finalizers": ["a.b/z", "a.b/x"]}),
            json!(["a.b/z", "a.b/x", "a.b/y"]),
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["a.b/x"]}),
            json!(["a.b/y"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["a.b/y", "a.b/z"], "finalizers": ["a.b/z"]}),
            json!(["a.b/x", "a.b/y", "a.b/z"]),
        ),
    ];
    for (patch, wanted) in cases {
        let merged = apply(&live, json!({"metadata": patch}), &maps.schema).unwrap();
        assert_eq!(merged["metadata"]["finalizers"], wanted, "{patch}");
    }
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let live = json!({"containers": [{"name": "a"}], "securityContext": {}});
    let cases = [
        (
            json!({"containers": [{"image": "x"}]}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"securityContext": {"$patch": "grow"}}),
            "unknown patch type: grow in map: map[$patch:grow]",
        ),
        (
            json!({"securityContext": {"$retainKeys": ["a"], "fsGroup": 1}}),
            "invalid patch format of retainKeys",
        ),
        (
            json!({"$setElementOrder/nothing": []}),
            "unable to find api field in struct PodSpec for the json field \"nothing\"",
        ),
    ];
    for (patch, wanted) in cases {
        assert_eq!(pod(live.clone(), patch).unwrap_err().to_string(), wanted);
    }
}
