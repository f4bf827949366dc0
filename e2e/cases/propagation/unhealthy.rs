//! A workload that is not healthy in a member for longer than its policy tolerates moves to another one, and what it
//! said of itself goes with it. The test plays the members' agents.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, path, policy};
use crate::env::{MERGE, ask, wait_for_some};

const NAME: &str = "queue";

/// What the agent of a member says of the Deployment.
async fn says(rig: &Rig, agent: &Client, member: &str, health: &str) -> Result<()> {
    let work = rig.placed(member, NAME).await?;
    let name = work["metadata"]["name"].as_str().context("no name")?;
    let at = format!(
        "{}/{name}/status",
        path("Work", &format!("karmada-es-{member}"))
    );
    let applied = json!({"type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [applied], "manifestStatuses": [{
        "identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "",
            "namespace": MINE, "name": NAME},
        "health": health, "status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}]}});
    let patch = status.to_string();
    ask(agent, "PATCH", &at, Some((MERGE, &patch)))
        .await?
        .ok()?;
    Ok(())
}

/// Waits until the binding is as `want` says, and returns its spec.
async fn binding(rig: &Rig, what: &str, want: impl Fn(&Value) -> bool) -> Result<Value> {
    let at = format!("{}/{NAME}-deployment", path("ResourceBinding", MINE));
    wait_for_some(what, SOON, async || {
        let found = rig.get(&at).await?.context("no binding")?;
        ensure!(want(&found["spec"]), "{found}");
        Ok(Some(found["spec"].clone()))
    })
    .await
}

fn place(spec: &Value) -> Option<&str> {
    match spec["clusters"].as_array()?.as_slice() {
        [only] => only["name"].as_str(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_fails_in_a_member_moves_to_another() -> Result<()> {
    let rig = Rig::begin("unhealthy").await?;
    let workload = json!({"metadata": {"name": NAME}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": NAME}}, "template": {"metadata": {"labels": {"app": NAME}},
            "spec": {"containers": [{"name": "c", "image": "example.org/c:1"}]}}}});
    rig.create(&path("Deployment", MINE), &workload).await?;
    let mut one = policy(NAME, "apps/v1", "Deployment", Some(NAME));
    one["spec"]["propagateDeps"] = json!(true);
    one["spec"]["placement"] = json!({"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]});
    one["spec"]["failover"] = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 1}, "purgeMode": "Gracefully", "gracePeriodSeconds": 600,
        "statePreservation": {"rules": [{"aliasLabelName": "ready-before", "jsonPath": "{.readyReplicas}"}]}}});
    rig.create(&path("PropagationPolicy", MINE), &one).await?;

    let spec = binding(&rig, "one cluster to run it", |it| place(it).is_some()).await?;
    let first = place(&spec).context("no cluster")?.to_owned();
    let second = if first == "m1" { "m2" } else { "m1" };
    let [failing, other] = [rig.agent(&first).await?, rig.agent(second).await?];
    says(&rig, &failing, &first, "Healthy").await?;
    says(&rig, &failing, &first, "Unhealthy").await?;

    let spec = binding(&rig, "the other cluster to run it", |it| {
        place(it) == Some(second)
    })
    .await?;
    let task = &spec["gracefulEvictionTasks"][0];
    let producer = "resource-binding-application-failover-controller";
    let told = [
        &task["fromCluster"],
        &task["reason"],
        &task["producer"],
        &task["purgeMode"],
        &task["gracePeriodSeconds"],
        &task["preservedLabelState"],
    ];
    let want = [
        &json!(first),
        &json!("ApplicationFailure"),
        &json!(producer),
        &json!("Gracefully"),
        &json!(600),
        &json!({"ready-before": "2"}),
    ];
    ensure!(told == want, "the task says {task}");
    // Until the other copy is healthy the failing one stays.
    rig.placed(&first, NAME).await?;
    says(&rig, &other, second, "Healthy").await?;
    let after = binding(&rig, "the task to end", |it| {
        it["gracefulEvictionTasks"].is_null()
    })
    .await?;
    ensure!(place(&after) == Some(second), "{after}");
    wait_for_some("the failing copy to go", SOON, async || {
        let left = rig.works(&first, NAME).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await?;
    rig.end().await
}
