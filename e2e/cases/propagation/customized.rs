//! Kinds of operators that Towline's own customizations know: replicas divided, health and status told, dependencies
//! followed, what the member decided kept. The test plays the operators of the members.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{NAMESPACE, SOON};
use crate::env::{Fleet, JSON, Lab, LabOptions, MERGE, Parts, Scratch, ask, repository, wait_for};

const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];
const CLONESETS: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/clonesets";
const CERTIFICATES: &str = "/apis/cert-manager.io/v1/namespaces/shop/certificates";
const RELEASES: &str = "/apis/helm.toolkit.fluxcd.io/v2/namespaces/shop/helmreleases";
const CUSTOMIZATIONS: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/shop/resourcebindings";

/// The definition and the object that the tables of a customization have.
fn table(name: &str) -> Result<[Value; 2]> {
    let path = repository().join(format!("hub/customizations/tests/{name}.yaml"));
    let text = std::fs::read_to_string(&path)?;
    let table = Value::deserialize(serde_yaml::Deserializer::from_str(&text))?;
    let mut object = table["object"].clone();
    object["metadata"] = json!({"name": "shop"});
    Ok([table["definition"].clone(), object])
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let body = object.to_string();
    ask(client, "POST", path, Some((JSON, &body))).await?.ok()?;
    Ok(())
}

async fn patch(client: &Client, path: &str, patch: &Value) -> Result<()> {
    let body = patch.to_string();
    ask(client, "PATCH", path, Some((MERGE, &body)))
        .await?
        .ok()?;
    Ok(())
}

/// An object; null while it is not there.
async fn get(client: &Client, path: &str) -> Result<Value> {
    let answer = ask(client, "GET", path, None).await?;
    match answer.code {
        404 => Ok(Value::Null),
        _ => answer.ok()?.json(),
    }
}

/// Waits until a part of an object is as wanted.
async fn shows(client: &Client, path: &str, pointer: &str, want: &Value) -> Result<()> {
    wait_for(&format!("{pointer} of {path}"), SOON, async || {
        let found = get(client, path).await?;
        let told = found.pointer(pointer).cloned().unwrap_or_default();
        ensure!(told == *want, "it is {told}, not {want}");
        Ok(true)
    })
    .await
}

/// Waits until a Cluster says that its member has the kinds of these tables.
async fn has_all(hub: &Client, cluster: &str, tables: &[[Value; 2]]) -> Result<()> {
    let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}");
    wait_for(&format!("the kinds of {cluster}"), SOON, async || {
        let found = get(hub, &path).await?;
        let groups = found["status"]["apiEnablements"].as_array();
        let has = |object: &Value| {
            let mut groups = groups.into_iter().flatten();
            groups.any(|group| {
                let mut kinds = group["resources"].as_array().into_iter().flatten();
                group["groupVersion"] == object["apiVersion"]
                    && kinds.any(|it| it["kind"] == object["kind"])
            })
        };
        let lacks = tables.iter().find(|[_, object]| !has(object));
        let lacks = lacks.map(|[_, object]| &object["kind"]);
        ensure!(lacks.is_none(), "it lacks {lacks:?}");
        Ok(true)
    })
    .await
}

/// The healths that a binding tells, by cluster.
async fn healths(hub: &Client, binding: &str, want: [&str; 3]) -> Result<()> {
    wait_for(&format!("the healths of {binding}"), SOON, async || {
        let found = get(hub, &format!("{BINDINGS}/{binding}")).await?;
        let items = found["status"]["aggregatedStatus"].as_array();
        let told: Vec<&str> = (items.into_iter().flatten())
            .filter_map(|it| it["health"].as_str())
            .collect();
        ensure!(told == want, "they are {told:?}");
        Ok(true)
    })
    .await
}

/// What an operator says of an object once it has acted on it.
async fn operate(member: &Client, path: &str, status: &Value) -> Result<()> {
    let found = get(member, path).await?;
    let mut status = status.clone();
    status["observedGeneration"] = found["metadata"]["generation"].clone();
    patch(
        member,
        &format!("{path}/status"),
        &json!({ "status": status }),
    )
    .await
}

fn running(replicas: i64) -> Value {
    json!({"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas,
        "updatedReadyReplicas": replicas, "expectedUpdatedReplicas": replicas})
}

fn ready(status: &str, message: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status, "reason": "Said", "message": message,
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_operators_are_known_without_a_word() -> Result<()> {
    let scratch = Scratch::new("customized")?;
    let mut lab = Lab::start(&Parts::from_env()?, scratch.path(), &LabOptions::new(3)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let hub = lab.hub.client().await?;
    let names = [
        "kruise-cloneset",
        "cert-manager-certificate",
        "flux-helmrelease",
    ];
    let tables: Vec<[Value; 2]> = names.into_iter().map(table).collect::<Result<_>>()?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut members = Vec::new();
    for plane in &lab.members {
        members.push(plane.client().await?);
    }
    for client in members.iter().chain([&hub]) {
        for [definition, _] in &tables {
            create(client, definitions, definition).await?;
        }
    }
    for [definition, _] in &tables {
        let name = definition["metadata"]["name"].as_str().context("a name")?;
        for client in members.iter().chain([&hub]) {
            wait_for("the definition to be served", SOON, async || {
                let found = get(client, &format!("{definitions}/{name}")).await?;
                let conditions = found["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                Ok(conditions.any(|it| it["type"] == "Established" && it["status"] == "True"))
            })
            .await?;
        }
    }
    let mut agents = Vec::new();
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
    }
    // An API server may serve a kind before it says so. A cluster that does not have one yet gets nothing of it, and what is
    // placed stays.
    for name in MEMBERS {
        has_all(&hub, name, &tables).await?;
    }
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    create(&hub, "/api/v1/namespaces", &namespace).await?;
    for (plural, name) in [("configmaps", "prices"), ("secrets", "keys")] {
        let path = format!("/api/v1/namespaces/shop/{plural}");
        create(&hub, &path, &json!({"metadata": {"name": name}})).await?;
    }
    let selectors: Vec<Value> = tables
        .iter()
        .map(|[_, it]| json!({"apiVersion": it["apiVersion"], "kind": it["kind"]}))
        .collect();
    let divided = json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"staticWeightList": [
            {"targetCluster": {"clusterNames": ["member1"]}, "weight": 3},
            {"targetCluster": {"clusterNames": ["member2"]}, "weight": 2},
            {"targetCluster": {"clusterNames": ["member3"]}, "weight": 1}]}});
    let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "shop"}, "spec": {"resourceSelectors": selectors, "propagateDeps": true,
        "placement": {"replicaScheduling": divided}}});
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/shop/propagationpolicies";
    create(&hub, policies, &policy).await?;
    let paths = [CLONESETS, CERTIFICATES, RELEASES];
    for ([_, object], path) in tables.iter().zip(paths) {
        let mut object = object.clone();
        if path == RELEASES {
            object["spec"]["suspend"] = json!(false);
        }
        create(&hub, path, &object).await?;
    }
    let [cloneset, certificate, release] = paths.map(|path| format!("{path}/shop"));

    // Replicas divided, and what the templates name goes along.
    for (member, share) in members.iter().zip([3, 2, 1]) {
        shows(member, &cloneset, "/spec/replicas", &json!(share)).await?;
        for needed in ["configmaps/prices", "secrets/keys"] {
            let path = format!("/api/v1/namespaces/shop/{needed}");
            let name = needed.rsplit('/').next();
            shows(member, &path, "/metadata/name", &json!(name)).await?;
        }
        shows(member, &release, "/spec/suspend", &json!(false)).await?;
        shows(member, &certificate, "/spec/secretName", &json!("shop-tls")).await?;
    }
    // Nobody has acted on them: another rule would call all of them healthy.
    healths(&hub, "shop-cloneset", ["Unhealthy"; 3]).await?;
    healths(&hub, "shop-certificate", ["Unhealthy"; 3]).await?;

    // Health and status told, as one.
    for (member, share) in members.iter().zip([3, 2, 1]) {
        operate(member, &cloneset, &running(share)).await?;
        patch(
            member,
            &format!("{certificate}/status"),
            &json!({"status": ready("True", "")}),
        )
        .await?;
        operate(member, &release, &ready("True", "")).await?;
    }
    healths(&hub, "shop-cloneset", ["Healthy"; 3]).await?;
    healths(&hub, "shop-certificate", ["Healthy"; 3]).await?;
    shows(&hub, &cloneset, "/status/readyReplicas", &json!(6)).await?;
    let generation = get(&hub, &cloneset).await?["metadata"]["generation"].clone();
    shows(&hub, &cloneset, "/status/observedGeneration", &generation).await?;
    let condition = "/status/conditions/0/status";
    shows(&hub, &certificate, condition, &json!("True")).await?;
    let [_, second, _] = &members[..] else {
        anyhow::bail!("three members");
    };
    let broken = json!({"status": ready("False", "no issuer")});
    patch(second, &format!("{certificate}/status"), &broken).await?;
    healths(
        &hub,
        "shop-certificate",
        ["Healthy", "Unhealthy", "Healthy"],
    )
    .await?;
    shows(&hub, &certificate, condition, &json!("False")).await?;
    let message = json!("member2: no issuer");
    shows(&hub, &certificate, "/status/conditions/0/message", &message).await?;

    // What somebody decided in a member stays there, through a new template.
    patch(second, &release, &json!({"spec": {"suspend": true}})).await?;
    patch(&hub, &release, &json!({"spec": {"interval": "7m"}})).await?;
    for (member, suspended) in members.iter().zip([false, true, false]) {
        shows(member, &release, "/spec/interval", &json!("7m")).await?;
        shows(member, &release, "/spec/suspend", &json!(suspended)).await?;
    }

    // A customization of the hub goes before what ships; a script that does not end is stopped, and told.
    let custom = |script: &str| {
        json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": "clonesets"}, "spec": {
            "target": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet"},
            "customizations": {"healthInterpretation": {"luaScript": script}}}})
    };
    let never = custom("function InterpretHealth() return false end");
    create(&hub, CUSTOMIZATIONS, &never).await?;
    healths(&hub, "shop-cloneset", ["Unhealthy"; 3]).await?;
    let hostile = custom("function InterpretHealth() while true do end end");
    patch(&hub, &format!("{CUSTOMIZATIONS}/clonesets"), &hostile).await?;
    healths(&hub, "shop-cloneset", ["Unknown"; 3]).await?;
    wait_for("what towline says of it", SOON, async || {
        let run = fleet
            .cli(&["why", "cloneset/shop", "-n", NAMESPACE, "-o", "json"])
            .await?;
        let said: Value = serde_json::from_str(&run.stdout)?;
        ensure!(said["broken"]["cause"] == "ScriptFailed", "{said}");
        let what = said["broken"]["what"].as_str().unwrap_or_default();
        ensure!(what.contains("the script was stopped"), "{what}");
        Ok(true)
    })
    .await?;
    // Other operations and kinds went on.
    operate(second, &cloneset, &running(1)).await?;
    shows(&hub, &cloneset, "/status/readyReplicas", &json!(5)).await?;
    patch(
        second,
        &format!("{certificate}/status"),
        &json!({"status": ready("True", "")}),
    )
    .await?;
    healths(&hub, "shop-certificate", ["Healthy"; 3]).await?;
    ask(&hub, "DELETE", &format!("{CUSTOMIZATIONS}/clonesets"), None)
        .await?
        .ok()?;
    operate(second, &cloneset, &running(2)).await?;
    healths(&hub, "shop-cloneset", ["Healthy"; 3]).await?;

    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
