//! Replicas and requirements, by tables and as Karmada recorded them.

use super::*;
use proptest::prelude::*;
use serde_json::json;
use std::path::Path;

fn gvk(api_version: &str, kind: &str) -> Gvk {
    Gvk::new(api_version, kind).expect("sound")
}

fn replicas(api_version: &str, kind: &str, spec: &Value) -> Option<i32> {
    get(&gvk(api_version, kind), &json!({"spec": spec})).map(|found| found.replicas)
}

#[test]
fn each_kind_has_its_own_number() {
    let cases = [
        ("apps/v1", "Deployment", json!({"replicas": 3}), Some(3)),
        ("apps/v1", "ReplicaSet", json!({"replicas": 0}), Some(0)),
        ("apps/v1", "StatefulSet", json!({}), Some(0)),
        ("apps/v1", "DaemonSet", json!({"replicas": 3}), None),
        ("apps/v1beta1", "Deployment", json!({"replicas": 3}), None),
        ("v1", "Pod", json!({}), Some(1)),
        (
            "batch/v1",
            "Job",
            json!({"parallelism": 6, "completions": 3}),
            Some(3),
        ),
        (
            "batch/v1",
            "Job",
            json!({"parallelism": 2, "completions": 3}),
            Some(2),
        ),
        ("batch/v1", "Job", json!({"parallelism": 6}), Some(6)),
        ("batch/v1", "Job", json!({"completions": 6}), Some(0)),
        ("batch/v1", "CronJob", json!({}), None),
        ("example.org/v1", "Widget", json!({"replicas": 3}), None),
        ("apps/v1", "Deployment", json!({"replicas": "3"}), Some(0)),
        ("apps/v1", "Deployment", json!({"replicas": -3}), Some(0)),
    ];
    for (api_version, kind, spec, want) in cases {
        assert_eq!(replicas(api_version, kind, &spec), want, "{kind} {spec}");
    }
}

#[test]
fn a_share_goes_where_a_number_is() {
    let cases = [
        (
            "apps/v1",
            "Deployment",
            json!({"replicas": 9}),
            json!({"replicas": 4}),
        ),
        ("apps/v1", "Deployment", json!({}), json!({})),
        (
            "apps/v1",
            "Deployment",
            json!({"replicas": "9"}),
            json!({"replicas": "9"}),
        ),
        (
            "batch/v1",
            "Job",
            json!({"parallelism": 9, "completions": 9}),
            json!({"parallelism": 4, "completions": 9}),
        ),
        ("v1", "Pod", json!({"replicas": 9}), json!({"replicas": 9})),
    ];
    for (api_version, kind, spec, want) in cases {
        let mut manifest = json!({"spec": spec});
        let gvk = gvk(api_version, kind);
        revise(&gvk, &mut manifest, 4);
        assert_eq!(manifest["spec"], want, "{kind} {spec}");
        assert!(is_revised(&gvk) || spec == want, "{kind}");
    }
}

#[test]
fn a_replica_needs_what_its_pod_asks_for() {
    let needs = |pod: Value| {
        let template = json!({"spec": {"replicas": 1, "template": {"spec": pod}}});
        let found = get(&gvk("apps/v1", "Deployment"), &template).expect("replicas");
        found
            .requirements
            .map(|needs| serde_json::to_value(needs).expect("JSON"))
    };
    let requests = |list: Value| json!({"containers": [{"resources": {"requests": list}}]});
    let cases = [
        (json!({}), None),
        (json!({"tolerations": [], "nodeSelector": {}}), None),
        (requests(json!({"cpu": "0", "memory": "0"})), None),
        (
            requests(
                json!({"cpu": "1500m", "memory": "1048576", "example.org/gpu": "2", "storage": "1"}),
            ),
            Some(
                json!({"resourceRequest": {"cpu": "1500m", "memory": "1Mi", "example.org/gpu": "2"}}),
            ),
        ),
        (
            requests(json!({"cpu": "1u", "memory": "1500m", "hugepages-2Mi": "4Mi"})),
            Some(json!({"resourceRequest": {"cpu": "1m", "memory": "2", "hugepages-2Mi": "4Mi"}})),
        ),
        (
            json!({"nodeSelector": {"disk": "ssd"}, "containers": 7}),
            Some(json!({"nodeClaim": {"nodeSelector": {"disk": "ssd"}}})),
        ),
    ];
    for (pod, want) in cases {
        assert_eq!(needs(pod.clone()), want, "{pod}");
    }
}

/// Templates of each scenario's first step, and the binding that Karmada made of each.
#[test]
fn bindings_of_the_reference_say_the_same() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/reference");
    let mut compared = 0;
    for entry in std::fs::read_dir(dir).expect("recorded data") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("recorded data");
        let area: Value = serde_json::from_str(&text).expect("JSON");
        for scenario in area["scenarios"].as_array().expect("a list") {
            compared += compare(scenario);
        }
    }
    assert!(compared > 250, "only {compared} templates were compared");
}

fn compare(scenario: &Value) -> usize {
    let mut compared = 0;
    let actions = scenario["steps"][0]["actions"].as_array();
    for template in actions
        .into_iter()
        .flatten()
        .map(|action| &action["create"])
    {
        let text = |pointer: &str| template.pointer(pointer).and_then(Value::as_str);
        let (Some(api_version), Some(kind), Some(name)) =
            (text("/apiVersion"), text("/kind"), text("/metadata/name"))
        else {
            continue;
        };
        let mut template = template.clone();
        // What an API server defaults.
        match kind {
            "Deployment" | "StatefulSet" if template["spec"].get("replicas").is_none() => {
                template["spec"]["replicas"] = json!(1);
            }
            "Pod" => {
                let reached = |key| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
                template["spec"]["tolerations"] = json!([
                    reached("node.kubernetes.io/not-ready"),
                    reached("node.kubernetes.io/unreachable"),
                ]);
            }
            "Job" => {
                let none = |key: &str| template["spec"].get(key).is_none();
                let (parallelism, completions) = (none("parallelism"), none("completions"));
                if parallelism && completions {
                    template["spec"]["completions"] = json!(1);
                }
                if parallelism {
                    template["spec"]["parallelism"] = json!(1);
                }
            }
            _ => {}
        }
        let binding = format!("ResourceBinding/{}", crate::names::binding_name(kind, name));
        let spec = &scenario["expect"][0]["bindings"][&binding]["spec"];
        if !spec.is_object() {
            continue;
        }
        let found = get(&gvk(api_version, kind), &template).unwrap_or_default();
        let recorded = spec["replicas"].as_i64().unwrap_or(0);
        let at = format!("{} {binding}", scenario["id"]);
        assert_eq!(i64::from(found.replicas), recorded, "{at}");
        let needs = found
            .requirements
            .map(|needs| serde_json::to_value(needs).expect("JSON"));
        assert_eq!(needs.as_ref(), spec.get("replicaRequirements"), "{at}");
        compared += 1;
    }
    compared
}

proptest! {
    /// A template is data of its author: whatever it holds, the rules come to an end.
    #[test]
    fn odd_templates_are_read_without_panic(
        replicas in prop_oneof![Just(json!(null)), any::<i64>().prop_map(|n| json!(n)), Just(json!("x"))],
        amount in "[-+0-9.eEkMGmi]{0,12}",
    ) {
        let template = json!({"spec": {
            "replicas": replicas, "parallelism": replicas, "completions": replicas,
            "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": amount, "memory": amount}}}]}},
        }});
        for (api_version, kind) in [("apps/v1", "Deployment"), ("batch/v1", "Job"), ("v1", "Pod")] {
            let found = get(&gvk(api_version, kind), &template).expect("replicas");
            prop_assert!(found.replicas >= 0);
        }
    }
}
