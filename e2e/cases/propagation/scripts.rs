//! Scripts of a ResourceInterpreterCustomization that fail or never end: `towline why` names the customization, what it
//! was asked and the line, and what it names as the mend mends it. The test plays the member's agent.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, path, policy};
use super::why::{mends, nobody_types, says, serves, why};
use crate::env::{MERGE, ask, wait_for};

const CUSTOMIZATIONS: &str = "/apis/config.karmada.io/v1alpha1/resourceinterpretercustomizations";
const GEAR: &str = "widgets/gear";

/// A kind that nothing is known of, and one of it placed in m1.
async fn gear(rig: &Rig) -> Result<()> {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": names, "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    rig.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &crd,
    )
    .await?;
    serves(rig, "example.com/v1", "Widget").await?;
    let widgets = format!("/apis/example.com/v1/namespaces/{MINE}/widgets");
    wait_for("the hub to serve widgets", SOON, async || {
        Ok(rig.get(&widgets).await?.is_some())
    })
    .await?;
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "gear"},
        "spec": {"count": 2, "settings": "gear"}});
    rig.create(&widgets, &object).await?;
    let mut selects = policy("gear", "example.com/v1", "Widget", Some("gear"));
    selects["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    selects["spec"]["propagateDeps"] = json!(true);
    rig.create(&path("PropagationPolicy", MINE), &selects).await
}

/// Adds scripts to the customization, as if somebody wrote them so.
async fn scripts(rig: &Rig, scripts: &Value) -> Result<()> {
    let patch = json!({"spec": {"customizations": scripts}});
    rig.patch(&format!("{CUSTOMIZATIONS}/widgets"), &patch)
        .await
}

/// That `why` says of a script whose it is, what it was asked, and where it fails.
async fn names(rig: &Rig, stage: &str, words: &[&str]) -> Result<()> {
    let said = says(rig, GEAR, stage, "ScriptFailed").await?;
    let what = said["broken"]["what"].as_str().unwrap_or_default();
    for word in words {
        ensure!(what.contains(word), "no {word:?} in {what}");
    }
    Ok(())
}

/// A condition of the binding, once it says what it is to say.
async fn shown(rig: &Rig, kind: &str, words: &str) -> Result<()> {
    let at = format!("{}/gear-widget", path("ResourceBinding", MINE));
    wait_for(&format!("{kind} with {words}"), SOON, async || {
        let binding = rig.get(&at).await?.context("no binding")?;
        let conditions = binding["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == kind);
        let message = found.and_then(|it| it["message"].as_str());
        ensure!(
            message.unwrap_or_default().contains(words),
            "{:?}",
            binding["status"]["conditions"]
        );
        Ok(true)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_stops_is_named_with_its_line_and_taken_out() -> Result<()> {
    if nobody_types() {
        return Ok(());
    }
    let rig = Rig::begin("why-scripts").await?;
    let script = |text: &str| json!({ "luaScript": text });
    let endless = script("function GetReplicas(obj)\n  while true do end\nend");
    let customization = json!({"apiVersion": "config.karmada.io/v1alpha1",
        "kind": "ResourceInterpreterCustomization", "metadata": {"name": "widgets"},
        "spec": {"target": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "customizations": {"replicaResource": endless}}});
    rig.create(CUSTOMIZATIONS, &customization).await?;
    gear(&rig).await?;

    // It never gets a binding: nobody knows what it asks for.
    names(&rig, "binding", &["widgets, InterpretReplica: ", "stopped"]).await?;
    mends(&rig, GEAR, "binding", "ScriptFailed").await?;
    let work = rig.placed("m1", "gear").await?;

    // What it refers to, once it is known how many replicas it asks for.
    let sound = script("function GetReplicas(obj) return obj.spec.count end");
    let broken = script("function GetDependencies(obj)\n  return obj.spec.none.at\nend");
    let both = json!({"replicaResource": sound, "dependencyInterpretation": broken});
    scripts(&rig, &both).await?;
    names(&rig, "binding", &["widgets, InterpretDependency, line 2: "]).await?;
    let failed = "ResourceInterpreterCustomization widgets, InterpretDependency: <string>:2:";
    shown(&rig, "Degraded", failed).await?;
    mends(&rig, GEAR, "binding", "ScriptFailed").await?;

    // A cluster's share of the replicas.
    let broken = script("function ReviseReplica(obj, n)\n\n  error('no')\nend");
    scripts(&rig, &json!({"replicaRevision": broken})).await?;
    names(&rig, "work", &["widgets, ReviseReplica, line 3: "]).await?;
    let failed = "ResourceInterpreterCustomization widgets, ReviseReplica: <string>:3:";
    shown(&rig, "Degraded", failed).await?;
    mends(&rig, GEAR, "work", "ScriptFailed").await?;

    // What members say of it, made into its own status.
    let agent = rig.agent("m1").await?;
    let name = work["metadata"]["name"].as_str().context("no name")?;
    let at = format!("{}/{name}/status", path("Work", "karmada-es-m1"));
    let applied = json!({"type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [applied], "manifestStatuses": [{"identifier": {"ordinal": 0,
        "group": "example.com", "version": "v1", "kind": "Widget", "resource": "", "namespace": MINE, "name": "gear"},
        "health": "Healthy", "status": {"ready": 2}}]}});
    ask(&agent, "PATCH", &at, Some((MERGE, &status.to_string())))
        .await?
        .ok()?;
    let broken = script("function AggregateStatus(obj, items) return obj.status.x end");
    scripts(&rig, &json!({"statusAggregation": broken})).await?;
    names(&rig, "health", &["widgets, AggregateStatus, line 1: "]).await?;
    let failed = "ResourceInterpreterCustomization widgets, AggregateStatus: <string>:1:";
    shown(&rig, "StatusAggregated", failed).await?;
    mends(&rig, GEAR, "health", "ScriptFailed").await?;
    wait_for("all to be well", SOON, async || {
        let said = why(&rig, &[GEAR]).await?;
        ensure!(said["well"] == true, "{said}");
        Ok(true)
    })
    .await?;
    rig.end().await
}
