//! A hub that was emptied and with which the member registers anew: nothing in the member is deleted,
//! and `towline orphans` settles what is left.

use super::apart::in_member;
use super::rig::config_map;
use crate::env::{CLUSTER_READY_WITHIN, Fleet, Lab, LabOptions, Parts, Process, Scratch, wait_for};
use anyhow::{Result, ensure};
use common::api::work::{APPLIED, Work};
use common::conditions::is_true;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long anything may take on a machine that builds beside the lab.
const LONG: Duration = Duration::from_secs(180);

async fn deliver(works: &Api<Work>, name: &str, value: &str) -> Result<()> {
    let manifest = config_map(name, &json!({"k": value}));
    let work: Work = serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
        "spec": {"workload": {"manifests": [manifest]}},
    }))?;
    works.create(&PostParams::default(), &work).await?;
    Ok(())
}

async fn applied(works: &Api<Work>, name: &str) -> Result<()> {
    wait_for(&format!("Applied of Work {name}"), LONG, || async {
        let status = works.get(name).await?.status.unwrap_or_default();
        Ok(is_true(&status.conditions, APPLIED))
    })
    .await
}

/// Waits until the member holds exactly that.
async fn holds(maps: &Api<DynamicObject>, want: &BTreeMap<String, Value>) -> Result<()> {
    wait_for("the member to hold what it should", LONG, || async {
        let live = in_member(maps).await?;
        ensure!(live == *want, "it holds {live:?}");
        Ok(true)
    })
    .await
}

/// What `towline orphans` names.
async fn named(fleet: &Fleet) -> Result<Vec<String>> {
    let run = fleet.cli(&["orphans", "m1", "-o", "json"]).await?.ok()?;
    let objects: Vec<Value> = serde_json::from_str(&run.stdout)?;
    let names = objects.iter().filter_map(|o| o["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn works_outlive_an_emptied_hub_and_orphans_are_settled() -> Result<()> {
    let scratch = Scratch::new("works-anew")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
    let member = lab.members[0].client().await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let maps: Api<DynamicObject> = Api::namespaced_with(member, "default", &kind);
    let mut fleet = Fleet::start(&scratch.join("first"), &lab.hub).await?;
    let token = fleet.token(&["--cluster", "m1"]).await?;
    let flags = ["--cert-rotation-checking-interval=1s"];
    let kubeconfig = lab.members[0].kubeconfig.clone();
    let mut agent = Process::start(fleet.agent_spec(&kubeconfig, "m1", &token, &flags)?)?;
    fleet.wait_ready("m1", "True", CLUSTER_READY_WITHIN).await?;
    let works: Api<Work> = Api::namespaced(fleet.client().await?, "karmada-es-m1");
    let mut want = BTreeMap::new();
    for i in 0..20 {
        deliver(&works, &format!("w{i}"), "v1").await?;
        if i == 2 {
            let patch = Patch::Merge(json!({"spec": {"preserveResourcesOnDeletion": true}}));
            works.patch("w2", &PatchParams::default(), &patch).await?;
        }
        want.insert(format!("w{i}"), json!("v1"));
    }
    for i in 0..20 {
        applied(&works, &format!("w{i}")).await?;
    }

    // The hub loses everything; its certificate authority is the same.
    fleet.hub.kill();
    lab.hub.lose_everything().await?;
    let anew = Fleet::start(&scratch.join("second"), &lab.hub).await?;
    let token = anew.token(&["--cluster", "m1"]).await?;
    // Where the agent looks for its token.
    let spec = fleet.agent_spec(&kubeconfig, "m1", &token, &flags)?;
    if agent.ended()?.is_some() {
        // A machine that is slow enough lets it find out first that its registration is gone.
        agent = Process::start(spec)?;
    }
    anew.wait_ready("m1", "True", LONG).await?;
    wait_for("every object to be named an orphan", LONG, || async {
        let names = named(&anew).await?;
        ensure!(names.len() == 20, "named are {names:?}");
        Ok(true)
    })
    .await?;
    ensure!(in_member(&maps).await? == want, "something was deleted");

    let missing = anew.cli(&["orphans", "m2"]).await?;
    ensure!(missing.code == 4, "{missing:?}");
    let unsure = anew.cli(&["orphans", "m1", "--delete"]).await?;
    ensure!(unsure.code == 2, "{unsure:?}");
    let table = anew.cli(&["orphans", "m1", "--work", "w4"]).await?.ok()?;
    ensure!(table.stdout.lines().count() == 2, "{table:?}");

    let some = [
        "orphans",
        "m1",
        "--delete",
        "--yes",
        "--work=w0",
        "--work=w1",
    ];
    anew.cli(&some).await?.ok()?;
    want.remove("w0");
    want.remove("w1");
    holds(&maps, &want).await?;

    let before = maps.get("w2").await?;
    let run = anew.cli(&["orphans", "m1", "--adopt", "--yes", "--work=w2"]);
    run.await?.ok()?;
    let works: Api<Work> = Api::namespaced(anew.client().await?, "karmada-es-m1");
    applied(&works, "w2").await?;
    let preserved = works.get("w2").await?.spec.preserve_resources_on_deletion;
    ensure!(preserved == Some(true), "its objects would not outlive it");
    let after = maps.get("w2").await?;
    ensure!(
        before.metadata.resource_version == after.metadata.resource_version,
        "an object that is as its Work wants it was written"
    );
    // Later changes arrive, of the Work that was adopted, of one that is written anew, of a new one.
    let manifests = json!([config_map("w2", &json!({"k": "v2"}))]);
    let patch = Patch::Merge(json!({"spec": {"workload": {"manifests": manifests}}}));
    works.patch("w2", &PatchParams::default(), &patch).await?;
    deliver(&works, "w3", "v2").await?;
    deliver(&works, "new", "v1").await?;
    want.insert("w2".into(), json!("v2"));
    want.insert("w3".into(), json!("v2"));
    want.insert("new".into(), json!("v1"));
    holds(&maps, &want).await?;

    anew.cli(&["orphans", "m1", "--delete", "--yes"])
        .await?
        .ok()?;
    want.retain(|name, _| ["w2", "w3", "new"].contains(&name.as_str()));
    holds(&maps, &want).await?;
    ensure!(named(&anew).await?.is_empty(), "orphans are left");
    let left = works.list(&Default::default()).await?;
    ensure!(left.items.len() == 3, "orders are left: {:?}", left.items);
    agent.check()?;
    agent.kill();
    lab.stop().await;
    scratch.passed();
    Ok(())
}
