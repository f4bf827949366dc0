//! What is applied and where it goes.

use super::policy::Wanted;
use super::{Args, Hub, failed, left_out, namespaces};
use crate::cli::error::scripted::{self, Asked};
use crate::cli::{CliError, ConnectArgs, Done, Format, Kind, approved};
use crate::controller::detector::skip::Skips;
use crate::snapshot::Reader;
use common::lock::lock;
use common::names::ClusterName;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;

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
    let policy = sending;
    let live = policy(&["a", "b"]);
    assert!(left_out(None, &live, "").is_ok());
    assert!(left_out(Some(&live), &policy(&["c", "b", "a"]), "").is_ok());
    let error = left_out(Some(&live), &policy(&["a"]), "").expect_err("refused");
    let said = error.to_string();
    assert!(
        said.contains("PropagationPolicy \"web\" sends ConfigMap b"),
        "{said}"
    );
    assert!(said.contains("--policy NAME"), "{said}");
}

/// A policy of namespace `shop` that sends these ConfigMaps.
fn sending(names: &[&str]) -> Value {
    let mut wanted = Wanted::new(&clusters(&["m1"]), false);
    for name in names {
        wanted.take(&object("v1", "ConfigMap", Some("shop"), name), true);
    }
    wanted.policies(Some("web"))[0].clone()
}

/// As the hub has it in a version.
fn in_version(policy: &Value, version: &str) -> Value {
    let mut policy = policy.clone();
    policy["metadata"]["resourceVersion"] = json!(version);
    policy
}

/// Applies a policy to a hub that has one after the other of `there`: a write comes between where there is a next.
async fn applied(policy: &Value, there: Vec<Option<Value>>) -> (Result<Done, CliError>, Asked) {
    let there = Mutex::new(there);
    let (client, asked) = scripted::hub(move |ask| {
        if ask.path.ends_with("/v1alpha1") {
            let verbs = ["get", "list", "create", "patch", "delete"];
            let of = json!({"name": "propagationpolicies", "kind": "PropagationPolicy", "namespaced": true, "verbs": verbs});
            return Some((200, json!({"resources": [of]})));
        }
        let mut there = lock(&there);
        let changes = ask.method == Method::PATCH && there.len() > 1;
        if changes {
            there.remove(0);
        }
        let now = there.first().cloned().flatten();
        match (ask.method == Method::PATCH, now) {
            (false, Some(live)) => Some((200, live)),
            (false, None) => scripted::refusal(404, "not found"),
            (true, now) => {
                let named = &ask.body["metadata"]["resourceVersion"];
                match now {
                    Some(live) if live["metadata"]["resourceVersion"] != *named => {
                        scripted::refusal(409, "the object has been modified")
                    }
                    _ => Some((200, ask.body.clone())),
                }
            }
        }
    });
    let args = Args {
        files: Vec::new(),
        clusters: clusters(&["m1"]),
        all: false,
        divide: false,
        policy: None,
        force_conflicts: false,
        dry_run: false,
        namespace: None,
        output: Format::Table,
        connect: ConnectArgs {
            kubeconfig: None,
            context: None,
            before: "",
        },
    };
    let hub = Hub {
        reader: Reader::new(client, Skips::default()),
        args: &args,
        namespace: "shop",
    };
    let none = BTreeSet::new();
    let done = match hub.judged(policy, "nothing was applied").await {
        Ok(trial) => hub.apply_policy(policy, trial, &none).await,
        Err(error) => Err(error),
    };
    (done, asked)
}

#[tokio::test]
async fn a_policy_is_changed_in_the_version_that_was_judged() {
    let versions = |asked: &Asked| -> Vec<Value> {
        let patches = scripted::by(asked, &Method::PATCH);
        let versions = patches.iter();
        versions
            .map(|it| it.body["metadata"]["resourceVersion"].clone())
            .collect()
    };
    let (a, ab) = (sending(&["a"]), sending(&["a", "b"]));
    let at = |policy: &Value, version: &str| Some(in_version(policy, version));
    let (done, asked) = applied(&ab, vec![at(&a, "5")]).await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(versions(&asked), ["5"]);
    // What is not there is made, and nothing else is changed by that.
    let (done, asked) = applied(&ab, vec![None]).await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(versions(&asked), ["1"]);
    // A write that takes nothing away from what is judged is not lost, and none is lost to it.
    for before in [None, at(&a, "5")] {
        let (done, asked) = applied(&ab, vec![before, at(&a, "6")]).await;
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(versions(&asked).last(), Some(&json!("6")));
    }
}

/// Two commands that read the same policy, and each send another object: the later one would have the first one's deleted.
#[tokio::test]
async fn what_another_command_sends_meanwhile_is_not_left_out() {
    let ac = Some(in_version(&sending(&["a", "c"]), "6"));
    for before in [None, Some(in_version(&sending(&["a"]), "5"))] {
        let (done, asked) = applied(&sending(&["a", "b"]), vec![before, ac.clone()]).await;
        let error = done.expect_err("c would be left out");
        assert_eq!(error.kind, Kind::Unmet);
        assert!(error.to_string().contains("sends ConfigMap c"), "{error}");
        assert_eq!(scripted::by(&asked, &Method::PATCH).len(), 1);
    }
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
        "nothing was applied",
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
