//! One tenant against another: policies, claims, bindings and names.

use anyhow::{Context as _, Result, ensure};
use common::labels::{
    BINDING_PERMANENT_ID, CLAIMED_BY, POLICY_NAME, POLICY_NAMESPACE, POLICY_PERMANENT_ID,
};
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, THEIRS, as_user, path, policy};
use crate::env::{MERGE, ask, wait_for, wait_for_some};

const POLICIES: &str = "PropagationPolicy";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": name}})
}

/// A Deployment that refers to Secrets and a ConfigMap.
fn deployment(name: &str, secrets: &[&str], map: &str) -> Value {
    let mut volumes: Vec<Value> = secrets
        .iter()
        .map(|secret| json!({"name": secret, "secret": {"secretName": secret}}))
        .collect();
    volumes.push(json!({"name": "map", "configMap": {"name": map}}));
    json!({"metadata": {"name": name}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"volumes": volumes,
            "containers": [{"name": "c", "image": "example.org/c:1"}]}}}})
}

fn with_dependencies(name: &str) -> Value {
    let mut placing = policy(name, "apps/v1", "Deployment", Some(name));
    placing["spec"]["propagateDeps"] = json!(true);
    placing
}

/// Waits for the binding of an object; returns it.
async fn bound(rig: &Rig, namespace: &str, binding: &str) -> Result<Value> {
    let at = format!("{}/{binding}", path("ResourceBinding", namespace));
    let what = format!("binding {namespace}/{binding}");
    wait_for_some(&what, SOON, async || rig.get(&at).await).await
}

async fn is_bound(rig: &Rig, namespace: &str, binding: &str) -> Result<bool> {
    let at = format!("{}/{binding}", path("ResourceBinding", namespace));
    Ok(rig.get(&at).await?.is_some())
}

/// A policy selects in its namespace, whatever it says. The twin is the tenant's own object.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_takes_nothing_of_another_namespace() -> Result<()> {
    let rig = Rig::begin("policy-reach").await?;
    rig.create(&path("ConfigMap", THEIRS), &map("secret-plan"))
        .await?;
    let mut elsewhere = policy("elsewhere", "v1", "ConfigMap", None);
    elsewhere["spec"]["resourceSelectors"][0]["namespace"] = json!(THEIRS);
    let own = path(POLICIES, MINE);
    let at_home = policy("p", "v1", "ConfigMap", None);
    let cluster_wide = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies";
    let cluster_overrides = "/apis/policy.karmada.io/v1alpha1/clusteroverridepolicies";
    for (to, object, codes) in [
        (own.as_str(), &elsewhere, [403, 422]),
        (&path("OverridePolicy", MINE), &elsewhere, [403, 422]),
        (&path(POLICIES, THEIRS), &at_home, [403, 403]),
        (cluster_wide, &at_home, [403, 403]),
        (cluster_overrides, &at_home, [403, 403]),
    ] {
        let answer = as_user(&rig.tenant, "POST", to, object).await?;
        ensure!(codes.contains(&answer.code), "{answer:?}");
    }
    // What lies in no namespace is selected by nobody in one.
    for (name, version, kind) in [
        ("roles", "rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("spaces", "v1", "Namespace"),
    ] {
        let sent = policy(name, version, kind, None);
        as_user(&rig.tenant, "POST", &own, &sent).await?.ok()?;
    }
    as_user(&rig.tenant, "POST", &own, &at_home).await?.ok()?;
    as_user(&rig.tenant, "POST", &path("ConfigMap", MINE), &map("twin"))
        .await?
        .ok()?;
    rig.placed("m1", "twin").await?;
    rig.placed("m2", "twin").await?;
    ensure!(!is_bound(&rig, THEIRS, "secret-plan-configmap").await?);
    let all = rig
        .get("/apis/work.karmada.io/v1alpha2/clusterresourcebindings")
        .await?;
    let all = all.context("no list")?;
    ensure!(all["items"].as_array().is_some_and(Vec::is_empty), "{all}");
    rig.end().await
}

/// What a workload refers to follows it, but for what is somebody's identity. The twin is a Secret of the tenant's.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_follow_no_workload() -> Result<()> {
    let rig = Rig::begin("dependencies").await?;
    let secrets = path("Secret", MINE);
    let token = json!({"metadata": {"name": "token"}, "type": "bootstrap.kubernetes.io/token",
        "data": {"token-id": "YWJjZGVm"}});
    rig.create(&secrets, &token).await?;
    let account = json!({"metadata": {"name": "robot"}});
    rig.create(
        &format!("/api/v1/namespaces/{MINE}/serviceaccounts"),
        &account,
    )
    .await?;
    let of_account = json!({"metadata": {"name": "of-account",
        "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    rig.create(&secrets, &of_account).await?;
    let plain = json!({"metadata": {"name": "plain"}, "data": {"k": "dg=="}});
    as_user(&rig.tenant, "POST", &secrets, &plain).await?.ok()?;
    as_user(&rig.tenant, "POST", &path("ConfigMap", MINE), &map("map"))
        .await?
        .ok()?;
    let web = deployment("web", &["token", "of-account", "plain"], "map");
    as_user(&rig.tenant, "POST", &path("Deployment", MINE), &web)
        .await?
        .ok()?;
    let own = path(POLICIES, MINE);
    as_user(&rig.tenant, "POST", &own, &with_dependencies("web"))
        .await?
        .ok()?;
    for name in ["web", "plain", "map"] {
        rig.placed("m1", name).await?;
    }

    // Beside the system's own workloads nothing of its namespaces follows.
    rig.create(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "karmada-tools"}}),
    )
    .await?;
    for (kind, object) in [
        ("ConfigMap", map("theirs")),
        ("Deployment", deployment("tool", &[], "theirs")),
        (POLICIES, with_dependencies("tool")),
    ] {
        rig.create(&path(kind, "karmada-tools"), &object).await?;
    }
    rig.placed("m1", "tool").await?;

    // The tenant's twin once more: by now whatever was to follow has followed.
    as_user(&rig.tenant, "POST", &path("ConfigMap", MINE), &map("later"))
        .await?
        .ok()?;
    let web = json!({"spec": {"template": {"spec": deployment("web", &["token", "of-account", "plain"], "later")
        ["spec"]["template"]["spec"]}}});
    rig.patch(&format!("{}/web", path("Deployment", MINE)), &web)
        .await?;
    rig.placed("m1", "later").await?;
    for (namespace, binding) in [
        (MINE, "token-secret"),
        (MINE, "of-account-secret"),
        ("karmada-tools", "theirs-configmap"),
    ] {
        ensure!(!is_bound(&rig, namespace, binding).await?, "{binding}");
    }
    rig.end().await
}

/// Nobody holds up the end of a policy by showing its claim. The twin: what it holds indeed is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_claim_holds_no_policy() -> Result<()> {
    let rig = Rig::begin("forged-claims").await?;
    let theirs = path(POLICIES, THEIRS);
    rig.create(&theirs, &policy("p", "v1", "ConfigMap", None))
        .await?;
    rig.create(&path("ConfigMap", THEIRS), &map("held")).await?;
    rig.placed("m1", "held").await?;
    let held = format!("{}/held", path("ConfigMap", THEIRS));
    let held = rig.get(&held).await?.context("no ConfigMap")?;
    let id = held["metadata"]["labels"][POLICY_PERMANENT_ID].clone();

    let forged = |name: &str, claimed: bool| {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: id});
        object["metadata"]["annotations"] = json!({POLICY_NAMESPACE: THEIRS, POLICY_NAME: "p"});
        if claimed {
            object["metadata"]["labels"][CLAIMED_BY] = json!("me");
        }
        object
    };
    let own = path("ConfigMap", MINE);
    for (name, claimed) in [("forged", false), ("claimed", true)] {
        as_user(&rig.tenant, "POST", &own, &forged(name, claimed))
            .await?
            .ok()?;
    }
    wait_for("the forged claim to be taken off", SOON, async || {
        let found = rig.get(&format!("{own}/forged")).await?.context("gone")?;
        let labels = &found["metadata"]["labels"];
        ensure!(labels[POLICY_PERMANENT_ID].is_null(), "{labels}");
        Ok(true)
    })
    .await?;
    let claimed = rig.get(&format!("{own}/claimed")).await?.context("gone")?;
    ensure!(claimed["metadata"]["labels"][POLICY_PERMANENT_ID] == id);
    for name in ["forged", "claimed"] {
        ensure!(!is_bound(&rig, MINE, &format!("{name}-configmap")).await?);
        ensure!(rig.works("m1", name).await?.is_empty());
    }

    rig.delete(&format!("{theirs}/p")).await?;
    rig.gone(&format!("{theirs}/p")).await?;
    let left = rig
        .get(&format!("{}/held", path("ConfigMap", THEIRS)))
        .await?;
    let labels = left.context("no ConfigMap")?["metadata"]["labels"].clone();
    ensure!(labels[POLICY_PERMANENT_ID].is_null(), "{labels}");
    rig.end().await
}

/// Whoever may write a binding decides about their own: another namespace's ends as it should, and keeps its Works.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_binding_reaches_no_other() -> Result<()> {
    let rig = Rig::begin("forged-bindings").await?;
    rig.create(&path("ConfigMap", THEIRS), &map("map")).await?;
    rig.create(&path("Deployment", THEIRS), &deployment("web", &[], "map"))
        .await?;
    rig.create(&path(POLICIES, THEIRS), &with_dependencies("web"))
        .await?;
    rig.placed("m1", "web").await?;
    rig.placed("m1", "map").await?;
    let victim = bound(&rig, THEIRS, "web-deployment").await?;
    let id = victim["metadata"]["labels"][BINDING_PERMANENT_ID].clone();

    let own = path("ConfigMap", MINE);
    as_user(&rig.tenant, "POST", &own, &map("x")).await?.ok()?;
    let placing = policy("p", "v1", "ConfigMap", Some("x"));
    as_user(&rig.tenant, "POST", &path(POLICIES, MINE), &placing)
        .await?
        .ok()?;
    rig.placed("m1", "x").await?;

    // By hand: neither a binding nor a Work is a tenant's to make.
    let bindings = path("ResourceBinding", MINE);
    let made = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "labels": {BINDING_PERMANENT_ID: id}},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": THEIRS},
            "clusters": [{"name": "m1"}]}});
    as_user(&rig.tenant, "POST", &bindings, &made)
        .await?
        .forbidden()?;
    let work = rig.placed("m1", "web").await?;
    let name = work["metadata"]["name"].as_str().unwrap_or_default();
    let mut copy = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {
        "name": name, "labels": work["metadata"]["labels"], "annotations": work["metadata"]["annotations"]},
        "spec": work["spec"]});
    for namespace in [MINE, "karmada-es-m1"] {
        copy["metadata"]["namespace"] = json!(namespace);
        let answer = as_user(&rig.tenant, "POST", &path("Work", namespace), &copy).await?;
        ensure!([403, 422].contains(&answer.code), "{answer:?}");
    }

    // What the detector passes over it puts right no more.
    let passed_over = json!({"metadata": {"labels": {CLAIMED_BY: "me"}}}).to_string();
    ask(
        &rig.tenant,
        "PATCH",
        &format!("{own}/x"),
        Some((MERGE, &passed_over)),
    )
    .await?
    .ok()?;
    let forged = json!({"metadata": {"labels": {BINDING_PERMANENT_ID: id}},
        "spec": {"requiredBy": [{"namespace": THEIRS, "name": "web-deployment", "clusters": [{"name": "m1"}]}]}});
    let at = format!("{bindings}/x-configmap");
    let sent = forged.to_string();
    // It takes hold once the hub has seen the label.
    wait_for("a binding that stays forged", SOON, async || {
        ask(&rig.tenant, "PATCH", &at, Some((MERGE, &sent)))
            .await?
            .ok()?;
        let work = rig.placed("m1", "x").await?;
        Ok(work["metadata"]["labels"][BINDING_PERMANENT_ID] == id)
    })
    .await?;
    let work = rig.placed("m1", "web").await?;
    let annotations = &work["metadata"]["annotations"];
    ensure!(
        annotations["resourcebinding.karmada.io/namespace"] == THEIRS,
        "{annotations}"
    );

    rig.delete(&format!("{}/web", path("Deployment", THEIRS)))
        .await?;
    let ends = format!("{}/web-deployment", path("ResourceBinding", THEIRS));
    rig.gone(&ends).await?;
    wait_for("the end of the Works", SOON, async || {
        let left = [rig.works("m1", "web").await?, rig.works("m1", "map").await?];
        Ok(left.iter().all(Vec::is_empty))
    })
    .await?;
    rig.placed("m1", "x").await?;
    rig.end().await
}

/// Names that run together elsewhere, and names that end a path in a URL, are names of their own objects only.
#[tokio::test(flavor = "multi_thread")]
async fn names_do_not_run_into_one_another() -> Result<()> {
    let rig = Rig::begin("names").await?;
    let longer = format!("{MINE}-a");
    rig.create("/api/v1/namespaces", &json!({"metadata": {"name": longer}}))
        .await?;
    let everywhere = policy("p", "v1", "ConfigMap", None);
    for (namespace, name) in [(MINE, "a-web"), (longer.as_str(), "web"), (MINE, "a.web")] {
        rig.create(&path("ConfigMap", namespace), &map(name))
            .await?;
    }
    for namespace in [MINE, longer.as_str()] {
        rig.create(&path(POLICIES, namespace), &everywhere).await?;
    }
    let mut names = Vec::new();
    for (namespace, name) in [(MINE, "a-web"), (longer.as_str(), "web"), (MINE, "a.web")] {
        let work = rig.placed("m1", name).await?;
        let manifest = &work["spec"]["workload"]["manifests"][0]["metadata"];
        ensure!(manifest["namespace"] == namespace, "{manifest}");
        names.push(work["metadata"]["name"].to_string());
    }
    names.sort();
    names.dedup();
    ensure!(names.len() == 3, "{names:?}");

    // A Role may be named almost anything.
    let roles = path("Role", MINE);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": rules});
    for name in ["web", "web?dryRun=All", "web#x", "twin"] {
        as_user(&rig.tenant, "POST", &roles, &role(name))
            .await?
            .ok()?;
    }
    let selectors: Vec<Value> = ["web?dryRun=All", "web#x", "twin"]
        .iter()
        .map(|name| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": name}))
        .collect();
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"resourceSelectors": selectors, "placement": {}}});
    as_user(&rig.tenant, "POST", &path(POLICIES, MINE), &odd)
        .await?
        .ok()?;
    rig.placed("m1", "twin").await?;
    wait_for("claims on what was named", SOON, async || {
        for name in ["web%3FdryRun%3DAll", "web%23x"] {
            let found = rig.get(&format!("{roles}/{name}")).await?.context("gone")?;
            let labels = &found["metadata"]["labels"];
            ensure!(labels[POLICY_PERMANENT_ID].is_string(), "{name}: {labels}");
        }
        Ok(true)
    })
    .await?;
    let other = rig.get(&format!("{roles}/web")).await?.context("gone")?;
    ensure!(other["metadata"]["labels"].is_null(), "{other}");
    ensure!(!is_bound(&rig, MINE, "web-role").await?);
    rig.end().await
}

/// Kinds of two groups may be called the same: whoever comes second has no binding, until the first one goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_given_up_is_taken_by_whoever_waits() -> Result<()> {
    let rig = Rig::begin("names-free").await?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "configmaps.example.dev"},
        "spec": {"group": "example.dev", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "configmaps", "singular": "configmap", "kind": "ConfigMap"}},
    });
    rig.create(definitions, &definition).await?;
    let custom = format!("/apis/example.dev/v1/namespaces/{MINE}/configmaps");
    wait_for("the new kind", SOON, async || {
        Ok(rig.get(&custom).await?.is_some())
    })
    .await?;
    for (name, group) in [("core", "v1"), ("custom", "example.dev/v1")] {
        let placing = policy(name, group, "ConfigMap", Some("web"));
        rig.create(&path(POLICIES, MINE), &placing).await?;
    }
    rig.create(&path("ConfigMap", MINE), &map("web")).await?;
    let of = async |group: &str| {
        wait_for(&format!("the binding of {group}"), SOON, async || {
            let found = bound(&rig, MINE, "web-configmap").await?;
            let resource = &found["spec"]["resource"]["apiVersion"];
            ensure!(*resource == group, "it is that of {resource}");
            Ok(true)
        })
        .await
    };
    of("v1").await?;
    let waits =
        json!({"apiVersion": "example.dev/v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
    rig.create(&custom, &waits).await?;
    wait_for("the word that it waits", SOON, async || {
        let events = rig.get(&path("Event", MINE)).await?.context("no Events")?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let mut texts = events.iter().filter_map(|it| it["message"].as_str());
        ensure!(
            texts.any(|it| it.contains("already belongs to ConfigMap")),
            "not told"
        );
        Ok(true)
    })
    .await?;
    let first = format!("{}/web", path("ConfigMap", MINE));
    rig.delete(&first).await?;
    of("example.dev/v1").await?;
    rig.end().await
}
