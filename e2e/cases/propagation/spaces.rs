//! A namespace in a member lasts as long as anything that was placed in it, whatever else brings it.

use anyhow::{Context as _, Result, ensure};
use common::labels::{CLUSTER_BINDING_NAME, MANAGED};
use common::names::work_name;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

use super::MEMBERS;
use super::rig::{as_user, path, policy};
use crate::env::{Fleet, Lab, LabOptions, MERGE, Parts, Scratch, ask, wait_for, wait_for_some};

const SPACE: &str = "spaces";
const CLUSTER_POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies";
/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(180);

struct Stage {
    hub: Client,
    members: Vec<Client>,
}

async fn get(client: &Client, path: &str) -> Result<Option<Value>> {
    let answer = ask(client, "GET", path, None).await?;
    Ok(match answer.code {
        404 => None,
        _ => Some(answer.ok()?.json()?),
    })
}

fn placement(members: &[&str]) -> Value {
    json!({"clusterAffinity": {"clusterNames": members}})
}

impl Stage {
    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        as_user(&self.hub, "POST", path, object).await?.ok()?;
        Ok(())
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        let sent = ask(&self.hub, "PATCH", path, Some((MERGE, &patch))).await?;
        sent.ok()?;
        Ok(())
    }

    /// The UIDs of the namespace and of what is in it, in each member.
    async fn uids(&self) -> Result<Vec<[String; 2]>> {
        let mut all = Vec::new();
        for member in &self.members {
            let map = format!("{}/a", path("ConfigMap", SPACE));
            let space = format!("/api/v1/namespaces/{SPACE}");
            let mut both = [String::new(), String::new()];
            for (at, uid) in [space, map].iter().zip(&mut both) {
                let what = format!("{at} in a member");
                let found = wait_for_some(&what, SOON, async || get(member, at).await).await?;
                let metadata = &found["metadata"];
                ensure!(metadata["deletionTimestamp"].is_null(), "it goes: {found}");
                *uid = metadata["uid"].as_str().context("no UID")?.to_owned();
            }
            all.push(both);
        }
        Ok(all)
    }

    /// Waits until the namespace is a member's by a policy of its own in these members alone.
    async fn is_placed_in(&self, wanted: [bool; 2]) -> Result<()> {
        let work = work_name("Namespace", None, SPACE);
        wait_for("whose the namespace's Works are", SOON, async || {
            for (member, wanted) in MEMBERS.iter().zip(wanted) {
                let works = path("Work", &format!("karmada-es-{member}"));
                let found = get(&self.hub, &format!("{works}/{work}")).await?;
                let found = found.with_context(|| format!("{member} has no Work"))?;
                let metadata = &found["metadata"];
                let of = !metadata["annotations"][CLUSTER_BINDING_NAME].is_null();
                let label = &found["spec"]["workload"]["manifests"][0]["metadata"]["labels"];
                ensure!(
                    of == wanted && metadata["deletionTimestamp"].is_null() && label["team"] == "a",
                    "{member}: {metadata}"
                );
            }
            Ok(true)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_lasts_as_long_as_what_is_in_it() -> Result<()> {
    let scratch = Scratch::new("spaces")?;
    let mut lab = Lab::start(&Parts::from_env()?, scratch.path(), &LabOptions::new(2)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let (mut agents, mut members) = (Vec::new(), Vec::new());
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
        members.push(plane.client().await?);
    }
    let hub = lab.hub.client().await?;
    let stage = Stage { hub, members };
    let space = json!({"metadata": {"name": SPACE, "labels": {"team": "a"}}});
    stage.create("/api/v1/namespaces", &space).await?;
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    stage.create(&path("ConfigMap", SPACE), &map).await?;
    let policies = path("PropagationPolicy", SPACE);
    let mut placing = policy("maps", "v1", "ConfigMap", Some("a"));
    placing["spec"]["preserveResourcesOnDeletion"] = json!(true);
    stage.create(&policies, &placing).await?;
    let uids = stage.uids().await?;
    stage.is_placed_in([false, false]).await?;

    // A policy about the namespace itself comes, moves, and goes.
    let mut about = policy("space", "v1", "Namespace", Some(SPACE));
    about["spec"]["placement"] = placement(&["member1"]);
    stage.create(CLUSTER_POLICIES, &about).await?;
    stage.is_placed_in([true, false]).await?;
    let moved = json!({"spec": {"placement": placement(&["member2"])}});
    let about = format!("{CLUSTER_POLICIES}/space");
    stage.patch(&about, &moved).await?;
    stage.is_placed_in([false, true]).await?;
    ask(&stage.hub, "DELETE", &about, None).await?.ok()?;
    stage.is_placed_in([false, false]).await?;
    ensure!(stage.uids().await? == uids, "something was made anew");

    // What is to be preserved keeps its namespace.
    let namespace = format!("/api/v1/namespaces/{SPACE}");
    ask(&stage.hub, "DELETE", &namespace, None).await?.ok()?;
    wait_for("the end of all Works", SOON, async || {
        for member in MEMBERS {
            let works = path("Work", &format!("karmada-es-{member}"));
            let works = get(&stage.hub, &works).await?.context("no list")?;
            let left = works["items"].as_array().context("no items")?;
            ensure!(left.is_empty(), "{member}: {left:?}");
        }
        Ok(true)
    })
    .await?;
    for member in &stage.members {
        let map = get(member, &format!("{}/a", path("ConfigMap", SPACE))).await?;
        let map = map.context("it went with its namespace")?;
        ensure!(map["metadata"]["labels"][MANAGED].is_null(), "{map}");
    }
    ensure!(stage.uids().await? == uids, "something was made anew");
    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
