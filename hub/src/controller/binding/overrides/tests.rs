//! Policies as a whole: which apply, in which order, what they say of themselves, and what they can never do.

use super::*;
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use common::errors::chain;
use proptest::prelude::*;

fn template() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "metadata": {
        "name": "c", "namespace": "n", "uid": "u", "labels": {"a": "1", "karmada.io/managed": "true"},
        "annotations": {"b": "1"}}})
}

fn m1() -> ClusterFacts<'static> {
    ClusterFacts {
        name: "m1",
        labels: None,
        provider: None,
        region: None,
        zones: &[],
    }
}

fn policy(name: &str, spec: Value) -> OverridePolicy {
    let policy = json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec});
    serde_json::from_value(policy).expect("a policy")
}

fn cluster_policy(name: &str, spec: Value) -> ClusterOverridePolicy {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    serde_json::from_value(policy).expect("a policy")
}

fn parts(policies: &[OverridePolicy]) -> impl Iterator<Item = Policy<'_>> {
    policies
        .iter()
        .map(|policy| (&policy.metadata, &policy.spec, None))
}

fn cluster_parts(policies: &[ClusterOverridePolicy]) -> impl Iterator<Item = Policy<'_>> {
    policies
        .iter()
        .map(|policy| (&policy.metadata, &policy.spec.0, None))
}

/// A spec for everything that adds a label.
fn labels(value: Value) -> Value {
    json!({"overrideRules": [{"overriders": {"labelsOverrider": [{"operator": "add", "value": value}]}}]})
}

/// The manifest, and what is told of cluster policies and of policies.
fn applied(
    template: &Value,
    cluster_policies: &[ClusterOverridePolicy],
    policies: &[OverridePolicy],
) -> (Value, Option<String>, Option<String>) {
    let overrides = Overrides::of(template, cluster_parts(cluster_policies), parts(policies));
    let mut manifest = template.clone();
    let applied = overrides.apply(&mut manifest, &m1()).expect("it applies");
    (
        manifest,
        applied.of_cluster_policies(),
        applied.of_policies(),
    )
}

fn names(told: Option<String>) -> Vec<String> {
    let told: Vec<Value> = serde_json::from_str(&told.unwrap_or("[]".into())).expect("JSON");
    let name = |item: &Value| item["policyName"].as_str().expect("text").to_owned();
    told.iter().map(name).collect()
}

/// A spec for everything that changes values at paths.
fn paths(changes: Value) -> Value {
    json!({"overrideRules": [{"overriders": {"plaintext": changes}}]})
}

#[test]
fn an_override_gives_nobody_rights() {
    let template = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "n", "labels": {}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "u"}]});
    let replace =
        |path: &str| paths(json!([{"path": path, "operator": "replace", "value": "admin"}]));
    for path in ["/roleRef/name", "/subjects/0/name"] {
        let policies = [policy("p", replace(path))];
        let overrides = Overrides::of(&template, [], parts(&policies));
        let error = overrides.apply(&mut template.clone(), &m1());
        let error = chain(&error.expect_err(path)).to_string();
        let root = path.split('/').nth(1).expect("a part");
        assert!(
            error.contains(&format!("/{root} must not be changed by an OverridePolicy")),
            "{error}"
        );
        // Who has the whole hub may, and the policies of namespaces are held against what that left.
        let (manifest, ..) = applied(
            &template,
            &[cluster_policy("c", replace(path))],
            &[policy("p", labels(json!({"l": "1"})))],
        );
        assert_eq!(manifest.pointer(path), Some(&json!("admin")));
        assert_eq!(manifest["metadata"]["labels"]["l"], "1");
    }
}

/// A rule of field overriders that set `k` in the document at a path, each to another number.
fn documents(path: &str, count: usize) -> Value {
    let change = |number: usize| {
        let change = json!([{"subPath": "/k", "operator": "add", "value": number}]);
        json!({"fieldPath": path, "yaml": change})
    };
    json!({"overriders": {"fieldOverrider": (0..count).map(change).collect::<Value>()}})
}

#[test]
fn a_text_stays_open_from_rule_to_rule() {
    let mut template = template();
    template["data"]["k"] = format!("long: {}\n", "x".repeat(1 << 20)).into();
    let rules = vec![documents("/data/k", 64); 256];
    let policies = [
        policy("a", json!({"overrideRules": rules})),
        policy("b", json!({"overrideRules": [documents("/data/k", 2)]})),
    ];
    let (manifest, ..) = applied(&template, &[], &policies);
    let text = manifest["data"]["k"].as_str().expect("a text");
    assert!(text.starts_with("k: 1\n"), "{}", &text[..20]);
    // Whoever looks at the field sees what was done to it.
    let look = json!({"overriders": {"plaintext": [
        {"path": "/data/j", "operator": "add", "value": "j: 1"},
        {"path": "/data/k", "operator": "replace", "value": "z: 1"}]}});
    let rules = [documents("/data/k", 1), look, documents("/data/k", 1)];
    let rules = policy("a", json!({"overrideRules": rules}));
    let (manifest, ..) = applied(&template, &[], &[rules]);
    assert_eq!(manifest["data"], json!({"j": "j: 1", "k": "k: 0\nz: 1\n"}));
}

#[test]
fn a_text_that_says_which_object_it_is_stays_too() {
    let change = json!([{"subPath": "", "operator": "add", "value": "Secret"}]);
    let rule = json!({"overriders": {"fieldOverrider": [{"fieldPath": "/kind", "yaml": change}]}});
    let policies = [policy("a", json!({"overrideRules": [rule]}))];
    let overrides = Overrides::of(&template(), [], parts(&policies));
    let error = overrides
        .apply(&mut template(), &m1())
        .expect_err("another kind");
    assert!(matches!(error.cause, Cause::Forbidden(_)), "{error:?}");
    assert_eq!(error.rule, "overrideRules[0]");
}

#[test]
fn too_much_work_is_refused_and_says_what_to_do() {
    let mut template = template();
    template["data"]["k"] = format!("long: {}\n", "x".repeat(1 << 20)).into();
    let word = json!([{"containerName": "c0", "operator": "remove", "value": ["w"]}]);
    let other = json!({"overriders": {"argsOverrider": word}});
    let rules: Vec<Value> = (0..20)
        .flat_map(|_| [documents("/data/k", 1), other.clone()])
        .collect();
    let many: Value = (0..100_000)
        .map(|at| (format!("k{at}"), json!(0)))
        .collect();
    let wide = json!([{"path": "/data/k", "operator": "add", "value": "v"}]);
    let containers: Value = (0..10_000)
        .map(|at| json!({"name": format!("c{at}"), "image": "i"}))
        .collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers},
        "metadata": {"name": "c", "namespace": "n"}});
    let image = json!([{"component": "Tag", "operator": "replace", "value": "1"}]);
    let mut large = template.clone();
    large["data"] = many;
    let cases = [
        (&template, json!(rules)),
        (
            &large,
            json!(vec![json!({"overriders": {"plaintext": wide}}); 64]),
        ),
        (
            &pod,
            json!(vec![json!({"overriders": {"imageOverrider": image}}); 64]),
        ),
        (&pod, json!(vec![other; 64])),
    ];
    for (template, rules) in cases {
        let policies = [policy("a", json!({"overrideRules": rules}))];
        let overrides = Overrides::of(template, [], parts(&policies));
        let error = overrides
            .apply(&mut template.clone(), &m1())
            .expect_err("too much");
        let error = chain(&error).to_string();
        assert!(error.contains("use fewer rules"), "{error}");
    }
}

#[test]
fn namespaced_policies_come_after_those_of_the_cluster() {
    let (manifest, cluster, namespaced) = applied(
        &template(),
        &[cluster_policy(
            "z",
            labels(json!({"by": "cluster", "c": "1"})),
        )],
        &[policy("a", labels(json!({"by": "namespace"})))],
    );
    assert_eq!(manifest["metadata"]["labels"]["by"], "namespace");
    assert_eq!(manifest["metadata"]["labels"]["c"], "1");
    assert_eq!(
        (names(cluster), names(namespaced)),
        (vec!["z".to_owned()], vec!["a".to_owned()])
    );
}

#[test]
fn the_most_specific_and_last_name_wins() {
    let by = |name: &str, selector: Value| {
        let mut spec = labels(json!({"by": name}));
        spec["resourceSelectors"] = json!([selector]);
        policy(name, spec)
    };
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let name = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c"});
    let (manifest, _, told) = applied(&template(), &[], &[by("b", kind.clone()), by("a", name)]);
    assert_eq!(manifest["metadata"]["labels"]["by"], "a");
    assert_eq!(names(told), ["a", "b"]);
    let (manifest, _, _) = applied(&template(), &[], &[by("d", kind.clone()), by("c", kind)]);
    assert_eq!(manifest["metadata"]["labels"]["by"], "d");
}

#[test]
fn policies_are_chosen_by_labels_that_cluster_policies_left() {
    let mut spec = labels(json!({"by": "p"}));
    spec["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "labelSelector": {"matchLabels": {"stage": "two"}}}]);
    let policies = [policy("p", spec)];
    let (manifest, _, told) = applied(&template(), &[], &policies);
    assert_eq!((manifest, told), (template(), None));
    let first = [cluster_policy("c", labels(json!({"stage": "two"})))];
    let (manifest, _, _) = applied(&template(), &first, &policies);
    assert_eq!(manifest["metadata"]["labels"]["by"], "p");
}

#[test]
fn a_policy_reaches_its_own_namespace_alone() {
    let mut elsewhere = policy("p", labels(json!({"by": "p"})));
    elsewhere.metadata.namespace = Some("m".into());
    let everywhere = policy("p", labels(json!({"by": "p"})));
    let mut cluster_scoped = template();
    cluster_scoped["metadata"]
        .as_object_mut()
        .expect("one")
        .remove("namespace");
    let (manifest, _, _) = applied(&template(), &[], &[elsewhere]);
    assert_eq!(manifest, template());
    let (manifest, _, _) = applied(&cluster_scoped, &[], &[everywhere]);
    assert_eq!(manifest, cluster_scoped);
}

#[test]
fn the_older_form_counts_where_there_are_no_rules() {
    let older = |rules: Value| {
        json!({"overrideRules": rules, "targetCluster": {"clusterNames": ["m1"]},
            "overriders": {"labelsOverrider": [{"operator": "add", "value": {"by": "older"}}]}})
    };
    let by = |spec: Value| {
        applied(&template(), &[], &[policy("p", spec)]).0["metadata"]["labels"]["by"].take()
    };
    assert_eq!(by(older(json!([]))), "older");
    let rule = labels(json!({"by": "rule"}))["overrideRules"].take();
    assert_eq!(by(older(rule)), "rule");
    let mut other = older(json!([]));
    other["targetCluster"]["clusterNames"] = json!(["m2"]);
    assert_eq!(by(other), Value::Null);
}

#[test]
fn texts_are_added_replaced_and_removed() {
    let cases = [
        (
            "add",
            json!({"a": "2", "x/y": "3"}),
            json!({"a": "2", "x/y": "3", "karmada.io/managed": "true"}),
        ),
        (
            "replace",
            json!({"a": "2", "absent": "3"}),
            json!({"a": "2", "karmada.io/managed": "true"}),
        ),
        (
            "remove",
            json!({"a": "", "absent": ""}),
            json!({"karmada.io/managed": "true"}),
        ),
    ];
    for (operator, value, want) in cases {
        let spec = json!({"overrideRules": [{"overriders": {
            "labelsOverrider": [{"operator": operator, "value": value}]}}]});
        let (manifest, _, _) = applied(&template(), &[], &[policy("p", spec)]);
        assert_eq!(manifest["metadata"]["labels"], want, "{operator}");
    }
    let mut bare = template();
    bare["metadata"]
        .as_object_mut()
        .expect("one")
        .remove("annotations");
    for (operator, want) in [
        ("add", json!({"k": "v"})),
        ("replace", Value::Null),
        ("remove", Value::Null),
    ] {
        let spec = json!({"overrideRules": [{"overriders": {
            "annotationsOverrider": [{"operator": operator, "value": {"k": "v"}}]}}]});
        let (manifest, _, _) = applied(&bare, &[], &[policy("p", spec)]);
        assert_eq!(manifest["metadata"]["annotations"], want, "{operator}");
    }
}

#[test]
fn overriders_have_one_order_however_they_are_written() {
    let spec = json!({"overrideRules": [{"overriders": {
        "plaintext": [{"path": "/data/k", "operator": "replace", "value": "plain"},
            {"path": "/metadata/labels/l", "operator": "replace", "value": "plain"}],
        "fieldOverrider": [{"fieldPath": "/metadata/annotations/n", "json": [{"subPath": "", "operator": "add", "value": 1}]}],
        "annotationsOverrider": [{"operator": "add", "value": {"n": "0"}}],
        "labelsOverrider": [{"operator": "add", "value": {"l": "label"}}],
    }}]});
    let (manifest, _, told) = applied(&template(), &[], &[policy("p", spec)]);
    assert_eq!(manifest["metadata"]["labels"]["l"], "plain");
    assert_eq!(manifest["metadata"]["annotations"]["n"], "1");
    assert_eq!(names(told), ["p"]);
}

#[test]
fn a_refusal_names_policy_rule_and_path() {
    let rules = |overriders: Value| json!({"overrideRules": [{"overriders": {}}, {"overriders": overriders}]});
    let set = |path: &str, value: Value| {
        rules(json!({"plaintext": [{"path": path, "operator": "add", "value": value}]}))
    };
    let cases = [
        (
            rules(json!({"plaintext": [{"path": "/data/absent", "operator": "remove"}]})),
            "override policy(n/p) does not apply, overrideRules[1].plaintext: error in remove for path: '/data/absent': \
             unable to remove nonexistent key: absent: missing value",
        ),
        (
            rules(
                json!({"fieldOverrider": [{"fieldPath": "/data", "yaml": [{"subPath": "/a", "operator": "remove"}]}]}),
            ),
            "override policy(n/p) does not apply, overrideRules[1].fieldOverrider[0]: \
             Get object's value by overrider's path(/data) is not string",
        ),
        (
            rules(
                json!({"imageOverrider": [{"component": "Tag", "operator": "add", "predicate": {"path": "x"}}]}),
            ),
            "override policy(n/p) does not apply, overrideRules[1].imageOverrider[0]: \
             imagePath should be start with / character",
        ),
    ];
    let refused = |spec: Value| {
        let policies = [policy("p", spec)];
        let overrides = Overrides::of(&template(), [], parts(&policies));
        let error = overrides
            .apply(&mut template(), &m1())
            .expect_err("refused");
        chain(&error).to_string()
    };
    for (spec, want) in cases {
        assert_eq!(refused(spec), want);
    }
    for (path, value) in [
        ("/metadata/name", json!("d")),
        ("/metadata/namespace", json!("kube-system")),
        ("/kind", json!("Secret")),
        ("/apiVersion", json!("v2")),
        ("/metadata/finalizers", json!(["f"])),
        ("/metadata/ownerReferences", json!([{}])),
        ("/metadata/labels/karmada.io~1managed", json!("false")),
        ("/metadata/annotations/work.karmada.io~1name", json!("w")),
    ] {
        let want = format!(
            "override policy(n/p) does not apply, overrideRules[1]: {path} must not be changed"
        );
        let said = refused(set(path, value));
        assert!(said.starts_with(&want), "{said}");
    }
    let policies = [cluster_policy("p", set("/kind", json!("Secret")))];
    let error =
        Overrides::of(&template(), cluster_parts(&policies), []).apply(&mut template(), &m1());
    let error = error.expect_err("refused").to_string();
    assert_eq!(
        error,
        "cluster override policy(p) does not apply, overrideRules[1]"
    );
}

#[test]
fn removals_in_documents_are_told_with_a_value_as_in_the_reference() {
    let spec = json!({"overrideRules": [{"overriders": {
        "fieldOverrider": [{"fieldPath": "/data/k", "json": [{"subPath": "/x", "operator": "remove"}]}],
        "plaintext": [{"path": "/data/k", "operator": "remove"}]}}]});
    let mut template = template();
    template["data"]["k"] = json!("{\"x\":1}");
    let (_, _, told) = applied(&template, &[], &[policy("p", spec)]);
    let told: Value = serde_json::from_str(&told.expect("one rule")).expect("JSON");
    let overriders = &told[0]["overriders"];
    let change = json!({"path": "/data/k", "operator": "remove", "value": null});
    assert_eq!(overriders["plaintext"], json!([change]));
    let change = json!({"subPath": "/x", "operator": "remove", "value": null});
    assert_eq!(overriders["fieldOverrider"][0]["json"], json!([change]));
}

fn any_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("metadata"),
        Just("name"),
        Just("namespace"),
        Just("kind"),
        Just("labels"),
        Just("annotations"),
        Just("karmada.io~1managed"),
        Just("finalizers"),
        Just("data"),
        Just("k"),
        Just("a"),
        Just(""),
        Just("0"),
    ];
    proptest::collection::vec(part, 0..4)
        .prop_map(|parts| parts.iter().map(|part| format!("/{part}")).collect())
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("x")),
        Just(json!({})),
        Just(
            json!({"name": "other", "namespace": "kube-system", "labels": {"karmada.io/managed": "no"}})
        ),
        Just(json!(["x"])),
        Just(template()),
    ]
}

proptest! {
    /// Whatever a policy says, the object stays the one it is, and so do the marks of the system.
    #[test]
    fn no_override_makes_another_object(
        operations in proptest::collection::vec(
            (any_path(), prop_oneof![Just("add"), Just("replace"), Just("remove")], any_value()), 1..5),
    ) {
        let plaintext: Vec<Value> = operations
            .into_iter()
            .map(|(path, operator, value)| json!({"path": path, "operator": operator, "value": value}))
            .collect();
        let spec = json!({"overrideRules": [{"overriders": {"plaintext": plaintext}}]});
        let policies = [policy("p", spec)];
        let template = template();
        let mut manifest = template.clone();
        if Overrides::of(&template, [], parts(&policies)).apply(&mut manifest, &m1()).is_ok() {
            for path in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace",
                "/metadata/labels/karmada.io~1managed", "/metadata/finalizers"] {
                prop_assert_eq!(manifest.pointer(path), template.pointer(path));
            }
        }
    }
}

#[test]
fn what_cannot_be_read_holds_up_whom_it_is_about() {
    let about = |name: &str| json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}]});
    // What it selects, and whether it may be about the template.
    let cases = [
        (json!({}), true),
        (about("c"), true),
        (about("other"), false),
    ];
    for (spec, holds) in cases {
        let policy = policy("p", spec.clone());
        let unreadable = [(&policy.metadata, &policy.spec, Some("no such operator"))];
        let applied = Overrides::of(&template(), [], unreadable).apply(&mut template(), &m1());
        let told = applied.err().map(|error| error.cause);
        let problem = Cause::Unreadable("no such operator".to_owned());
        assert_eq!(told, holds.then_some(problem), "{spec}");
    }
}
