//! What is applied and where it goes.

use super::policy::Wanted;
use super::{failed, left_out, namespaces};
use crate::cli::{Done, approved};
use common::names::ClusterName;
use serde_json::{Value, json};

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn clusters(names: &[&str]) -> Vec<ClusterName> {
    let names = names.iter().map(|it| ClusterName::parse(it));
    names.collect::<Result<_, _>>().expect("names")
}

#[test]
fn a_namespace_has_a_policy_and_so_has_what_is_in_none() {
    let mut wanted = Wanted::new(&clusters(&["m1", "m2"]), false);
    wanted.take(&object("v1", "Namespace", None, "shop"), false);
    wanted.take(&object("apps/v1", "Deployment", Some("shop"), "web"), true);
    wanted.take(&object("v1", "Service", Some("shop"), "front"), true);
    wanted.take(&object("v1", "Service", Some("other"), "front"), true);
    wanted.take(
        &object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            None,
            "a.b",
        ),
        false,
    );
    let own = "policy.karmada.io/v1alpha1";
    wanted.take(&object(own, "OverridePolicy", Some("shop"), "web"), true);
    let policies = wanted.policies(None);
    let told: Vec<(Value, Value, Value, usize)> = policies
        .iter()
        .map(|it| {
            let selectors = it["spec"]["resourceSelectors"]
                .as_array()
                .map_or(0, Vec::len);
            let metadata = &it["metadata"];
            (
                it["kind"].clone(),
                metadata["namespace"].clone(),
                metadata["name"].clone(),
                selectors,
            )
        })
        .collect();
    let one = |kind: &str, namespace: Value, name: &str, many| {
        (json!(kind), namespace, json!(name), many)
    };
    assert_eq!(
        told,
        [
            one("ClusterPropagationPolicy", Value::Null, "a.b", 1),
            one("PropagationPolicy", json!("other"), "front", 1),
            one("PropagationPolicy", json!("shop"), "web", 2),
        ]
    );
    let placement = &policies[0]["spec"]["placement"];
    assert_eq!(
        placement["clusterAffinity"]["clusterNames"],
        json!(["m1", "m2"])
    );
    assert_eq!(
        placement["replicaScheduling"]["replicaSchedulingType"],
        "Duplicated"
    );
    assert_eq!(wanted.policies(Some("all"))[1]["metadata"]["name"], "all");
}

#[test]
fn every_cluster_is_no_cluster_by_name_and_divided_is_by_room() {
    let mut wanted = Wanted::new(&[], true);
    wanted.take(&object("apps/v1", "Deployment", Some("shop"), "web"), true);
    let placement = wanted.policies(None)[0]["spec"]["placement"].clone();
    assert!(placement.get("clusterAffinity").is_none(), "{placement}");
    assert_eq!(
        placement["replicaScheduling"],
        json!({
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        })
    );
}

#[test]
fn what_only_the_hub_has_is_not_propagated() {
    let mut wanted = Wanted::new(&[], false);
    wanted.take(&object("v1", "Namespace", None, "shop"), false);
    wanted.take(
        &object(
            "work.karmada.io/v1alpha1",
            "Work",
            Some("karmada-es-m1"),
            "w",
        ),
        true,
    );
    assert!(wanted.policies(None).is_empty());
}

#[test]
fn a_policy_goes_on_sending_what_it_sends() {
    let policy = |names: &[&str]| {
        let mut wanted = Wanted::new(&clusters(&["m1"]), false);
        for name in names {
            wanted.take(&object("v1", "ConfigMap", Some("shop"), name), true);
        }
        wanted.policies(Some("web"))[0].clone()
    };
    let live = policy(&["a", "b"]);
    assert!(left_out(None, &live).is_ok());
    assert!(left_out(Some(&live), &policy(&["c", "b", "a"])).is_ok());
    let error = left_out(Some(&live), &policy(&["a"])).expect_err("refused");
    let said = error.to_string();
    assert!(
        said.contains("PropagationPolicy \"web\" sends ConfigMap b"),
        "{said}"
    );
    assert!(said.contains("--policy NAME"), "{said}");
}

#[test]
fn namespaces_of_files_are_known() {
    let objects = [
        object("v1", "Namespace", None, "shop"),
        object("v1", "ConfigMap", Some("shop"), "a"),
    ];
    assert_eq!(
        namespaces(&objects).into_iter().collect::<Vec<_>>(),
        ["shop"]
    );
}

#[test]
fn screens_are_as_they_were_approved() {
    let done = |object: &str, what: &str, namespace: Option<&str>| Done {
        namespace: namespace.map(str::to_owned),
        ..Done::new(object, what)
    };
    let mut all = vec![
        done("namespace/shop", "unchanged", None),
        done("deployment.apps/web", "created", Some("shop")),
        done(
            "propagationpolicy.policy.karmada.io/web",
            "configured",
            Some("shop"),
        ),
    ];
    let lines = |all: &[Done]| -> String { all.iter().map(|it| it.line() + "\n").collect() };
    let applied = lines(&all);
    all.iter_mut().for_each(|it| it.dry_run = true);
    let tried = lines(&all);
    let left = left_out(
        Some(
            &json!({"spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "Service", "name": "front"}]}}),
        ),
        &json!({"kind": "PropagationPolicy", "metadata": {"name": "web"}, "spec": {"resourceSelectors": []}}),
    );
    let left = left.expect_err("it sends no Service any more").to_string();
    let refused = common::rest::Error::Refused {
        code: 409,
        message: "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas"
            .to_owned(),
        reason: "Conflict".to_owned(),
        status: Box::default(),
        retry_after: None,
    };
    let conflict = failed("deployment.apps/web", refused).to_string();
    for (name, shown) in [
        ("applied", applied),
        ("tried", tried),
        ("left-out", left),
        ("conflict", conflict),
    ] {
        approved::screens("cli/apply/screens", name, |_, _| shown.clone());
    }
}
