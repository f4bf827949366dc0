//! `demo`: the whole loop on two members, told in plain words; every step is checked.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use common::api::work::Work;
use common::names::CLUSTER_NAMESPACE;
use common::time::{Clock as _, SystemClock, from_micro_time};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use std::time::Duration;
use tokio::time::Instant;

use super::up::LabArgs;
use crate::env::{Fleet, Lab, Parts, Plane, PlaneOptions, Process, run, wait_for};

/// The default of `--cluster-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(40);
const SOON: Duration = Duration::from_secs(90);
const WORK: &str = "demo-web";

/// Runs the demo; an error is a step that did not hold.
pub(crate) async fn demo(args: &LabArgs) -> Result<()> {
    let args = LabArgs {
        members: args.members.max(2),
        ..args.clone()
    };
    args.build().await?;
    let dir = super::status::lab_dir()?.join("demo");
    if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("failed to remove {}", dir.display()))?;
    }
    let parts = Parts::from_env()?;
    let began = Instant::now();
    let options = args.options();
    say(&format!(
        "Starting a hub ({}) and {} member clusters ({}).",
        what_it_is(&options.hub),
        args.members,
        what_it_is(&options.members[0]),
    ));
    let mut lab = Lab::start(&parts, &dir, &options).await?;
    held(&format!("all answer; logs are in {}", dir.display()));
    let outcome = tell(&parts, &lab).await;
    lab.stop().await;
    outcome.with_context(|| format!("a step did not hold; logs are in {}", dir.display()))?;
    say(&format!(
        "Every step held, in {} s. Nothing is left running.",
        began.elapsed().as_secs()
    ));
    Ok(())
}

fn what_it_is(plane: &PlaneOptions) -> String {
    if plane.builtin {
        return "an API server of Towline's own".to_owned();
    }
    let nodes = match (plane.nodes, plane.real_node) {
        (_, true) => ", with a real node",
        (0, _) => "",
        _ => ", with nodes that kwok plays",
    };
    format!(
        "a real control plane of Kubernetes {}{nodes}",
        plane.version
    )
}

async fn tell(parts: &Parts, lab: &Lab) -> Result<()> {
    let hub = &lab.hub;
    say(
        "Preparing the hub: `towline init` makes API types, permissions and policies; then \
         `towline-hub run` starts.",
    );
    let fleet = Fleet::start(&lab.dir().join("towline"), hub).await?;
    held("the hub is ready");

    let mut agents = Vec::new();
    for member in &lab.members {
        agents.push(register(&fleet, member).await?);
    }
    show_clusters(parts, hub, &lab.members).await?;

    let (first, name) = (&lab.members[0], lab.members[0].options.name.as_str());
    place_work(hub, name).await?;
    deployment_ready(hub, first, name).await?;

    fall_silent(&fleet, &mut agents[0], name).await?;
    say("Starting the agent again, with the state it had.");
    agents[0].restart()?;
    fleet.wait_ready(name, "True", SOON).await?;
    held("the cluster is Ready again, and asked for no new token");
    deployment_ready(hub, first, name).await?;

    for (member, agent) in lab.members.iter().zip(&mut agents) {
        unregister(&fleet, member, agent).await?;
    }
    Ok(())
}

async fn register(fleet: &Fleet, member: &Plane) -> Result<Process> {
    let name = &member.options.name;
    say(&format!(
        "Registering {name}: `towline token create --cluster {name}`, and with that token \
         `towline-agent run` beside the member. The hub never connects to it."
    ));
    let began = Instant::now();
    let agent = fleet.join(&member.kubeconfig, name).await?;
    held(&format!(
        "{name} is Ready after {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    Ok(agent)
}

async fn show_clusters(parts: &Parts, hub: &Plane, members: &[Plane]) -> Result<()> {
    let Some(kubectl) = parts.any_kubectl() else {
        say("There is no kubectl on this machine to ask the hub with; nothing else needs it.");
        return Ok(());
    };
    say("Asking the hub with plain kubectl: `kubectl get clusters`.");
    let mut kubectl = tokio::process::Command::new(kubectl);
    kubectl
        .arg("--kubeconfig")
        .arg(&hub.kubeconfig)
        .args(["get", "clusters"]);
    let table = run(kubectl, None, SOON).await?.ok()?.stdout;
    for line in table.lines() {
        println!("    {line}");
    }
    let columns: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        columns == ["NAME", "VERSION", "MODE", "READY", "AGE"],
        "the table has the columns {columns:?}"
    );
    for member in members {
        let name = &member.options.name;
        let row: Vec<&str> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.first() == Some(&name.as_str()))
            .with_context(|| format!("{name} is not in the table"))?;
        let version = format!("v{}.", member.options.version);
        let version_fits = row.get(1).is_some_and(|found| found.starts_with(&version));
        ensure!(version_fits, "the version of {name} is {:?}", row.get(1));
        ensure!(row.get(2) == Some(&"Pull"), "{name} is not in mode Pull");
        ensure!(row.get(3) == Some(&"True"), "{name} is not ready");
    }
    held("every member is there, ready, with its version and mode");
    Ok(())
}

async fn place_work(hub: &Plane, cluster: &str) -> Result<()> {
    say(&format!(
        "Writing a Work for {cluster} on the hub: a Deployment with three replicas."
    ));
    let work: Work = serde_json::from_value(serde_json::json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": WORK},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "registry.invalid/web:1"}]},
                },
            },
        }]}},
    }))
    .context("the demo's Work is not a Work")?;
    let namespace = format!("karmada-es-{cluster}");
    let works: Api<Work> = Api::namespaced(hub.client().await?, &namespace);
    works
        .create(&PostParams::default(), &work)
        .await
        .context("failed to create the Work")?;
    Ok(())
}

/// The Deployment runs in the member, and the Work says so on the hub.
async fn deployment_ready(hub: &Plane, member: &Plane, cluster: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(member.client().await?, "default");
    wait_for("three ready replicas in the member", SOON, || {
        let deployments = deployments.clone();
        async move {
            let found = deployments.get("web").await?.status.unwrap_or_default();
            Ok(found.ready_replicas == Some(3))
        }
    })
    .await?;
    let namespace = format!("karmada-es-{cluster}");
    let works: Api<Work> = Api::namespaced(hub.client().await?, &namespace);
    wait_for("the Work's own report of it", SOON, || {
        let works = works.clone();
        async move {
            let work = serde_json::to_value(works.get(WORK).await?)?;
            let applied = work["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == "Applied" && c["status"] == "True")
            });
            let manifest = &work["status"]["manifestStatuses"][0];
            ensure!(applied, "it is not Applied: {}", work["status"]);
            ensure!(
                manifest["status"]["readyReplicas"] == 3 && manifest["health"] == "Healthy",
                "it reports {manifest}"
            );
            Ok(true)
        }
    })
    .await?;
    held(
        "3 of 3 replicas are ready in the member, and the Work on the hub says Applied and Healthy",
    );
    Ok(())
}

async fn fall_silent(fleet: &Fleet, agent: &mut Process, cluster: &str) -> Result<()> {
    say(&format!(
        "Killing the agent of {cluster}. The hub must notice by its silence alone, {} s after the \
         last sign of life.",
        GRACE.as_secs()
    ));
    agent.kill();
    let killed = Instant::now();
    let leases: Api<Lease> = Api::namespaced(fleet.client().await?, CLUSTER_NAMESPACE);
    let lease = leases
        .get(cluster)
        .await
        .context("failed to get the Lease")?;
    let renewed = lease.spec.and_then(|spec| spec.renew_time);
    let renewed = renewed.context("the Lease was never renewed")?;
    let renewed = from_micro_time(&renewed).context("the Lease's time is out of range")?;
    fleet
        .wait_ready(cluster, "Unknown", GRACE + Duration::from_secs(30))
        .await?;
    let silent = (SystemClock.now() - renewed).as_seconds_f64();
    // The hub counts from when it saw the renewal, and this looks a few times a second.
    let grace = GRACE.as_secs_f64();
    ensure!(
        (grace..grace + 5.0).contains(&silent),
        "it was marked {silent:.1} s after its last sign of life"
    );
    held(&format!(
        "Ready is Unknown, {silent:.1} s after the last sign of life and {:.1} s after the kill",
        killed.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn unregister(fleet: &Fleet, member: &Plane, agent: &mut Process) -> Result<()> {
    let name = member.options.name.as_str();
    say(&format!(
        "Unregistering {name}: `towline unregister {name} --yes`. The agent cleans up and ends."
    ));
    fleet.cli(&["unregister", name, "--yes"]).await?.ok()?;
    fleet.wait_gone(name, SOON).await?;
    let deployments: Api<Deployment> = Api::namespaced(member.client().await?, "default");
    wait_for("the end of the Deployment in the member", SOON, || {
        let deployments = deployments.clone();
        async move { Ok(deployments.get_opt("web").await?.is_none()) }
    })
    .await?;
    agent.wait_ended(SOON).await?;
    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    ensure!(clusters.get_opt(name).await?.is_none(), "{name} is back");
    held(&format!(
        "nothing of {name} is left on the hub, nor of Towline in {name}"
    ));
    Ok(())
}

fn say(text: &str) {
    println!("\n* {text}");
}

fn held(text: &str) {
    println!("  ok: {text}");
}
