//! A member is lost: its replicas run elsewhere, its copy stays until they are healthy. Most members are lost: nothing
//! moves.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use common::labels::TAINT_UNREACHABLE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

use crate::env::{Fleet, Lab, LabOptions, Parts, Scratch, wait_for};

/// Agents renew every ten seconds.
const FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=30s",
    "--failover-eviction-timeout=5s",
];
const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];
/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(240);

fn objects(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn propagate(hub: &Client) -> Result<()> {
    let deployments = objects(hub, "apps", "v1", "Deployment", "default");
    let labels = json!({"app": "web"});
    create(&deployments, json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 6, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "web", "image": "registry.k8s.io/e2e-test-images/agnhost:2.53"}]}}},
    }))
    .await?;
    let policies = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", "PropagationPolicy"),
        "propagationpolicies",
    );
    let policies = Api::namespaced_with(hub.clone(), "default", &policies);
    create(&policies, json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy", "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}},
        },
    }))
    .await
}

/// Nobody runs Deployments, neither those of the hub nor those of a member: what is said of them is the test's word.
fn lab() -> LabOptions {
    let idle = "--controllers=*,bootstrapsigner,tokencleaner,-deployment-controller,-replicaset-controller";
    let mut options = LabOptions::new(MEMBERS.len());
    options.hub = options.hub.hub_flags(&FLAGS);
    options.hub.manager_args.push(idle.to_owned());
    for member in &mut options.members {
        member.nodes = 0;
        member.scheduler = false;
        member.manager_args.push(idle.to_owned());
    }
    options
}

/// Where the binding places how many, and which members it leaves.
async fn standing(hub: &Client) -> Result<(BTreeMap<String, i64>, Vec<String>)> {
    let bindings = objects(
        hub,
        "work.karmada.io",
        "v1alpha2",
        "ResourceBinding",
        "default",
    );
    let binding = bindings.get("web-deployment").await?;
    let list = |key: &str| {
        binding.data["spec"][key]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let places = list("clusters");
    let places = places
        .iter()
        .map(|it| (text(&it["name"]), it["replicas"].as_i64().unwrap_or(0)));
    let leaves = list("gracefulEvictionTasks");
    Ok((
        places.collect(),
        leaves.iter().map(|it| text(&it["fromCluster"])).collect(),
    ))
}

async fn stands(hub: &Client, places: &[(&str, i64)], leaves: &[&str]) -> Result<()> {
    let want: BTreeMap<String, i64> = places
        .iter()
        .map(|(name, it)| ((*name).to_owned(), *it))
        .collect();
    let what = format!("placed {want:?}, leaving {leaves:?}");
    wait_for(&what, SOON, async || {
        let found = standing(hub).await?;
        ensure!(found.0 == want && found.1 == leaves, "it is {found:?}");
        Ok(true)
    })
    .await
}

/// Waits until the binding shows that a member is healthy with so many replicas.
async fn shows(hub: &Client, member: &str, replicas: i64) -> Result<()> {
    let bindings = objects(
        hub,
        "work.karmada.io",
        "v1alpha2",
        "ResourceBinding",
        "default",
    );
    wait_for("what a member says, in the binding", SOON, async || {
        let status = bindings.get("web-deployment").await?.data["status"].clone();
        let items = status["aggregatedStatus"].as_array().into_iter().flatten();
        let healthy = items
            .filter(|it| it["clusterName"] == member && it["health"] == "Healthy")
            .any(|it| it["status"]["availableReplicas"] == replicas);
        ensure!(healthy, "{status}");
        Ok(true)
    })
    .await
}

/// The Work in a member's execution namespace; whether it is being deleted.
async fn work(hub: &Client, member: &str) -> Result<Option<bool>> {
    let works = objects(
        hub,
        "work.karmada.io",
        "v1alpha1",
        "Work",
        &format!("karmada-es-{member}"),
    );
    let all = works.list(&ListParams::default()).await?;
    let found = all.items.iter().find(|it| {
        it.metadata
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("web-"))
    });
    Ok(found.map(|it| it.metadata.deletion_timestamp.is_some()))
}

/// Plays a member whose Deployment has all its replicas.
async fn well(member: &Client, replicas: i32) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(member.clone(), "default");
    wait_for("the replicas in a member", SOON, async || {
        let found = deployments.get_opt("web").await?.context("no Deployment yet")?;
        let asked = found.spec.and_then(|it| it.replicas);
        ensure!(asked == Some(replicas), "it has {asked:?}");
        let generation = found.metadata.generation;
        let status = json!({"status": {"observedGeneration": generation, "replicas": replicas,
            "readyReplicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas}});
        let params = PatchParams::default();
        deployments.patch_status("web", &params, &Patch::Merge(status)).await?;
        Ok(true)
    })
    .await
}

async fn left_taint(hub: &Client, member: &str, wanted: bool) -> Result<()> {
    let clusters: Api<Cluster> = Api::all(hub.clone());
    wait_for("the taint of a member", SOON, async || {
        let taints = clusters.get(member).await?.spec.taints;
        let leaves = taints.iter().any(|it| {
            it.key == TAINT_UNREACHABLE && it.effect == common::api::cluster::TaintEffect::NoExecute
        });
        ensure!(leaves == wanted, "{member}: {taints:?}");
        Ok(true)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_member_is_left_and_most_of_them_are_not() -> Result<()> {
    let scratch = Scratch::new("failover")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &lab()).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let hub = lab.hub.client().await?;
    let (mut agents, mut members) = (Vec::new(), Vec::new());
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
        members.push(plane.client().await?);
    }
    let [first, second, _] = members.as_slice() else {
        anyhow::bail!("three members");
    };
    propagate(&hub).await?;
    let all = [("member1", 2), ("member2", 2), ("member3", 2)];
    stands(&hub, &all, &[]).await?;
    for (member, name) in members.iter().zip(MEMBERS) {
        well(member, 2).await?;
        shows(&hub, name, 2).await?;
    }

    // One is lost: the others have its replicas, and its copy stays until they are healthy with
    // these, as they were without.
    agents.get_mut(2).context("an agent")?.kill();
    stands(&hub, &[("member1", 3), ("member2", 3)], &["member3"]).await?;
    ensure!(
        work(&hub, "member3").await? == Some(false),
        "the copy is not kept"
    );
    well(first, 3).await?;
    shows(&hub, "member1", 3).await?;
    ensure!(
        work(&hub, "member3").await? == Some(false),
        "it goes before all are healthy"
    );
    well(second, 3).await?;
    stands(&hub, &[("member1", 3), ("member2", 3)], &[]).await?;
    wait_for("the end of the copy", SOON, async || {
        Ok(work(&hub, "member3").await?.is_none_or(|deleting| deleting))
    })
    .await?;

    // Another one: that is most of the fleet, and it may be the hub that is cut off.
    agents.get_mut(1).context("an agent")?.kill();
    left_taint(&hub, "member2", true).await?;
    let events: Api<Event> = Api::namespaced(hub.clone(), "default");
    wait_for("the word that nothing leaves", SOON, async || {
        let all = events.list(&ListParams::default()).await?;
        let held = all
            .items
            .iter()
            .find(|it| it.reason.as_deref() == Some("EvictionHeld"));
        ensure!(held.is_some(), "no such Event among {}", all.items.len());
        Ok(true)
    })
    .await?;
    let found = standing(&hub).await?;
    ensure!(
        found.0.get("member2") == Some(&3) && found.1.is_empty(),
        "it left: {found:?}"
    );

    // It comes back, and is where it was.
    agents.get_mut(1).context("an agent")?.restart()?;
    left_taint(&hub, "member2", false).await?;
    stands(&hub, &[("member1", 3), ("member2", 3)], &[]).await?;
    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
