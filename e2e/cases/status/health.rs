//! Health and its thresholds: rows A9 to A13.

use anyhow::{Context as _, Result, ensure};
use chrono::{DateTime, Utc};
use common::api::cluster::Cluster;
use common::time::{Clock as _, SystemClock};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::path::PathBuf;

use super::front::Front;
use super::rig::{SHORT, condition, forget, lease, quiet, renewals, start_agent, wait_condition};
use crate::env::{Fleet, Plane, Process, ProcessSpec, Relay, Scratch, binary, shared};

const LOST: &str = "False ClusterNotReachable";
const WELL: &str = "True ClusterReady";

/// A kubeconfig of the member that leads through `address`.
fn through(member: &Plane, scratch: &Scratch, address: &str) -> Result<PathBuf> {
    let path = scratch.join("through.kubeconfig");
    let identity = member.pki.client("admin", &["system:masters"])?;
    member.kubeconfig_at(&path, address, &identity)?;
    Ok(path)
}

async fn transition(fleet: &Fleet, cluster: &str) -> Result<DateTime<Utc>> {
    let api: Api<Cluster> = Api::all(fleet.client().await?);
    let found = api.get(cluster).await?;
    let ready = found.condition("Ready").context("no Ready")?;
    common::time::from_time(&ready.last_transition_time).context("no time")
}

/// Sees `count` renewals of the Lease, which prove that the agent lives, and that Ready stays.
async fn stays(fleet: &Fleet, cluster: &str, wanted: &str, count: usize) -> Result<()> {
    for _ in 0..count {
        renewals(fleet, cluster, 2).await?;
        let api: Api<Cluster> = Api::all(fleet.client().await?);
        let says = condition(&api.get(cluster).await?, "Ready");
        ensure!(says == wanted, "it says {says}");
    }
    Ok(())
}

/// A9: a member without `/readyz` is asked for `/healthz`. A12: one that answers 500 when an agent
/// starts is reported at once, although the hub has it as Ready.
#[tokio::test(flavor = "multi_thread")]
async fn status_a9_a12_health_endpoints() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a9")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let front = Front::start(&member).await?;
    front.answer("/readyz", StatusCode::NOT_FOUND);
    let kubeconfig = through(&member, &scratch, &front.address())?;
    let mut agent = start_agent(fleet, &scratch, &kubeconfig, "a9", &quiet(&SHORT)).await?;
    wait_condition(fleet, "a9", "Ready", WELL).await?;
    // More renewals than the threshold is long.
    stays(fleet, "a9", WELL, 2).await?;

    agent.kill();
    front.answer("/readyz", StatusCode::INTERNAL_SERVER_ERROR);
    // A threshold that the test would never see the end of: the first look does not wait for it.
    let spec = agent.spec_mut();
    for arg in &mut spec.args {
        if arg == "--cluster-failure-threshold=4s" {
            *arg = "--cluster-failure-threshold=1h".into();
        }
    }
    agent.restart()?;
    wait_condition(fleet, "a9", "Ready", LOST).await?;
    front.pass();
    wait_condition(fleet, "a9", "Ready", WELL).await?;
    drop(agent);
    forget(fleet, "a9").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}

/// A10 and A11: a member that refuses connections stays Ready for the threshold, then is not; the
/// Lease goes on. Back again, it must be well for the threshold too. A13: a healthy cluster that the
/// hub marked Unknown is Ready again within a tick.
#[tokio::test(flavor = "multi_thread")]
async fn status_a10_a11_a13_thresholds() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a10")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let relay = Relay::start(&member.address()).await?;
    let kubeconfig = through(&member, &scratch, &relay.address().to_string())?;
    let flags = [
        "--cluster-status-update-frequency=1s",
        "--cluster-success-threshold=15s",
        "--cluster-failure-threshold=4s",
        "--cluster-lease-duration=8s",
    ];
    let agent = start_agent(fleet, &scratch, &kubeconfig, "a10", &quiet(&flags)).await?;
    let held = lost_and_back(fleet, "a10", &relay).await?;
    ensure!(held >= chrono::TimeDelta::seconds(14), "True after {held}");

    let api: Api<Cluster> = Api::all(fleet.client().await?);
    let before = mark_unknown(&api, "a10").await?;
    wait_condition(fleet, "a10", "Ready", WELL).await?;
    let took = SystemClock.now() - before;
    // A tick is one second, and the threshold does not count here.
    ensure!(took < chrono::TimeDelta::seconds(14), "it took {took}");
    drop(agent);
    forget(fleet, "a10").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}

/// How long after the member was back the Cluster turned True.
async fn lost_and_back(fleet: &Fleet, cluster: &str, relay: &Relay) -> Result<chrono::TimeDelta> {
    wait_condition(fleet, cluster, "Ready", WELL).await?;
    let lost = SystemClock.now();
    relay.refuse(true);
    relay.close_established();
    wait_condition(fleet, cluster, "Ready", LOST).await?;
    // Written with whole seconds.
    let held = transition(fleet, cluster).await? - lost;
    ensure!(held >= chrono::TimeDelta::seconds(3), "False after {held}");
    stays(fleet, cluster, LOST, 2).await?;

    let back = SystemClock.now();
    relay.refuse(false);
    wait_condition(fleet, cluster, "Ready", WELL).await?;
    Ok(transition(fleet, cluster).await? - back)
}

/// A10 with two replicas, which elect their leader in the very member that is lost.
#[tokio::test(flavor = "multi_thread")]
async fn status_a10_with_two_replicas() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-replicas")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let relay = Relay::start(&member.address()).await?;
    let kubeconfig = through(&member, &scratch, &relay.address().to_string())?;
    hand_over(fleet, &member, "a10r").await?;
    let replica = |name: &str| {
        let spec = ProcessSpec::new(name, &binary("towline-agent")?, scratch.path())
            .arg("run")
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(quiet(&SHORT))
            .args([
                "--leader-elect-lease-duration=6s",
                "--leader-elect-renew-deadline=4s",
            ])
            .args(["--leader-elect-retry-period=1s"]);
        Process::start(spec)
    };
    let replicas = [replica("replica-a")?, replica("replica-b")?];
    // Whichever replica leads now: one that takes over does not wait for the threshold, for what it
    // sees first is all it knows.
    lost_and_back(fleet, "a10r", &relay).await?;
    let holder = lease(fleet, "a10r")
        .await?
        .spec
        .and_then(|spec| spec.holder_identity);
    ensure!(holder.as_deref() == Some("a10r"));
    drop(replicas);
    forget(fleet, "a10r").await?;
    scratch.passed();
    // What the replicas kept in the member goes with it.
    drop(member);
    Ok(())
}

async fn hand_over(fleet: &Fleet, member: &Plane, cluster: &str) -> Result<()> {
    let token = fleet.token(&["--cluster", cluster]).await?;
    let client = member.client().await?;
    let apply = PatchParams::apply("test").force();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "towline-system"},
    });
    Api::<Namespace>::all(client.clone())
        .patch("towline-system", &apply, &Patch::Apply(&namespace))
        .await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "towline-agent-bootstrap"},
        "stringData": {
            "hub": fleet.address, "cluster-name": cluster, "token": token,
            "ca-cert-hashes": fleet.pin,
        },
    });
    Api::<Secret>::namespaced(client, "towline-system")
        .patch("towline-agent-bootstrap", &apply, &Patch::Apply(&secret))
        .await?;
    Ok(())
}

/// Writes Ready=Unknown as the hub's monitor does, between two writes of the agent; when.
async fn mark_unknown(api: &Api<Cluster>, name: &str) -> Result<DateTime<Utc>> {
    loop {
        let mut cluster = api.get(name).await?;
        let status = cluster.status.get_or_insert_default();
        for ready in status.conditions.iter_mut().filter(|c| c.type_ == "Ready") {
            "Unknown".clone_into(&mut ready.status);
            "ClusterStatusUnknown".clone_into(&mut ready.reason);
        }
        let at = SystemClock.now();
        let params = PostParams::default();
        match api.replace_status(name, &params, &cluster).await {
            Ok(_) => return Ok(at),
            // The agent was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
}
