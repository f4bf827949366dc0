//! What a Work brought and what stays when the Work goes: by an annotation on the manifest, or because
//! the whole cluster leaves its workloads behind.

use super::rig::config_map;
use crate::env::{CLUSTER_READY_WITHIN, Fleet, Lab, LabOptions, Parts, Process, Scratch, wait_for};
use anyhow::{Result, ensure};
use common::api::work::{APPLIED, Work};
use common::conditions::{get, is_true};
use common::labels::{DELETION, KEPT_FROM, MANAGED, WORK_NAME};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

/// How long anything may take on a machine that builds beside the lab.
const LONG: Duration = Duration::from_secs(180);

fn plain(name: &str) -> Value {
    config_map(name, &json!({"k": "v"}))
}

fn kept(name: &str) -> Value {
    let mut map = plain(name);
    map["metadata"]["annotations"] = json!({DELETION: "keep"});
    map
}

/// A lab with one member, and the two clients.
struct Stage {
    scratch: Scratch,
    lab: Lab,
    fleet: Fleet,
    maps: Api<ConfigMap>,
}

impl Stage {
    async fn set(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
        let maps = Api::namespaced(lab.members[0].client().await?, "default");
        Ok(Self {
            scratch,
            lab,
            fleet,
            maps,
        })
    }

    async fn join(&self, cluster: &str) -> Result<(Process, Api<Work>)> {
        let member = &self.lab.members[0].kubeconfig;
        let agent = self.fleet.join(member, cluster).await?;
        let namespace = format!("{}{cluster}", common::names::EXECUTION_PREFIX);
        let works = Api::namespaced(self.fleet.client().await?, &namespace);
        Ok((agent, works))
    }

    /// Waits until an object is gone.
    async fn gone(&self, name: &str) -> Result<()> {
        wait_for(&format!("end of object {name}"), LONG, async || {
            Ok(self.maps.get_opt(name).await?.is_none())
        })
        .await
    }

    /// Waits until an object is there, the same as before, and nothing on it says whose it was.
    async fn released(&self, before: &ConfigMap) -> Result<()> {
        let name = before.name_any();
        wait_for(&format!("release of object {name}"), LONG, async || {
            let now = self.maps.get(&name).await?;
            ensure!(now.uid() == before.uid(), "{name} was made anew");
            ensure!(now.data == before.data, "{name} was changed");
            let marked =
                now.labels().contains_key(MANAGED) || now.annotations().contains_key(WORK_NAME);
            ensure!(!marked, "{name} is still marked: {:?}", now.metadata);
            Ok(true)
        })
        .await
    }

    async fn unregistered(&self, cluster: &str, agent: &mut Process, flags: &[&str]) -> Result<()> {
        let args = [&["unregister", cluster, "--yes"], flags].concat();
        self.fleet.cli(&args).await?.ok()?;
        self.fleet.wait_gone(cluster, LONG).await?;
        let ended = agent.wait_ended(LONG).await?;
        ensure!(ended.success(), "the agent ended with {ended}");
        Ok(())
    }
}

fn work(name: &str, manifests: &[Value]) -> Result<Work> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
        "spec": {"workload": {"manifests": manifests}},
    }))?)
}

async fn deliver(works: &Api<Work>, name: &str, manifests: &[Value]) -> Result<()> {
    works
        .create(&PostParams::default(), &work(name, manifests)?)
        .await?;
    wait_for(&format!("Applied of Work {name}"), LONG, async || {
        let status = works.get(name).await?.status.unwrap_or_default();
        Ok(is_true(&status.conditions, APPLIED))
    })
    .await
}

async fn work_gone(works: &Api<Work>, name: &str) -> Result<()> {
    wait_for(&format!("end of Work {name}"), LONG, async || {
        Ok(works.get_opt(name).await?.is_none())
    })
    .await
}

/// A manifest that says `keep` outlives its Work: when it leaves the Work, when the Work is deleted while
/// the agent is away, and when the cluster is unregistered with its workloads. With `--keep-workloads`
/// everything else outlives it too.
#[tokio::test(flavor = "multi_thread")]
async fn works_leave_what_should_be_kept() -> Result<()> {
    let mut stage = Stage::set("works-kept").await?;
    let (mut agent, works) = stage.join("keeper").await?;
    deliver(&works, "shrinks", &[kept("leaves"), plain("stays")]).await?;
    deliver(&works, "goes", &[kept("outlives"), plain("dies")]).await?;
    deliver(&works, "last", &[kept("remains"), plain("ends")]).await?;
    let before = |name: &'static str| stage.maps.get(name);
    let (leaves, outlives) = (before("leaves").await?, before("outlives").await?);
    let remains = before("remains").await?;

    let manifests = json!([plain("stays")]);
    let patch = Patch::Merge(json!({"spec": {"workload": {"manifests": manifests}}}));
    works
        .patch("shrinks", &PatchParams::default(), &patch)
        .await?;
    stage.released(&leaves).await?;

    agent.kill();
    works.delete("goes", &DeleteParams::default()).await?;
    agent.restart()?;
    work_gone(&works, "goes").await?;
    stage.gone("dies").await?;
    stage.released(&outlives).await?;

    // A Work of another name may not have it, the same one may.
    let other = work("other", &[plain("outlives")])?;
    works.create(&PostParams::default(), &other).await?;
    wait_for("refusal of Work other", LONG, async || {
        let status = works.get("other").await?.status.unwrap_or_default();
        let applied = get(&status.conditions, APPLIED);
        Ok(applied.is_some_and(|it| it.message.contains("already exists")))
    })
    .await?;
    works.delete("other", &DeleteParams::default()).await?;
    work_gone(&works, "other").await?;
    deliver(&works, "goes", &[kept("outlives")]).await?;
    let now = stage.maps.get("outlives").await?;
    ensure!(now.uid() == outlives.uid(), "it was made anew");
    ensure!(
        !now.annotations().contains_key(KEPT_FROM),
        "{:?}",
        now.metadata
    );
    works.delete("goes", &DeleteParams::default()).await?;
    work_gone(&works, "goes").await?;
    stage.released(&outlives).await?;

    stage.unregistered("keeper", &mut agent, &[]).await?;
    for name in ["stays", "ends"] {
        stage.gone(name).await?;
    }
    stage.released(&remains).await?;

    // Another cluster name on the same member: everything is left behind.
    let (mut agent, works) = stage.join("leaver").await?;
    deliver(&works, "all", &[plain("one"), kept("two")]).await?;
    let (one, two) = (stage.maps.get("one").await?, stage.maps.get("two").await?);
    stage
        .fleet
        .wait_ready("leaver", "True", CLUSTER_READY_WITHIN)
        .await?;
    stage
        .unregistered("leaver", &mut agent, &["--keep-workloads"])
        .await?;
    for object in [&one, &two, &leaves, &outlives, &remains] {
        stage.released(object).await?;
    }
    let left = works.list(&Default::default()).await?.items;
    ensure!(left.is_empty(), "Works are left: {left:?}");
    drop(agent);
    stage.lab.stop().await;
    stage.scratch.passed();
    Ok(())
}
