//! Agents and hub on networks as they are: connections that fall silent, proxies, IPv6.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::{Cluster, READY};
use common::api::work::{APPLIED, Work};
use common::chance::Chance;
use common::client::{ClientOptions, kubeconfig_client};
use common::conditions::is_true;
use common::env::Env;
use common::names::EXECUTION_PREFIX;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, PostParams};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::env::{
    CLUSTER_READY_WITHIN, ConnectProxy, Fleet, Lab, LabOptions, Parts, Process, Relay, Scratch,
    start_hub, wait_for,
};

/// A hub with Towline that agents find at one address only, so that no other way helps them.
async fn fleet_at(scratch: &Scratch, lab: &mut Lab, address: &str) -> Result<Fleet> {
    lab.hub.advertise(&[address]).await?;
    let mut fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    address.clone_into(&mut fleet.address);
    Ok(fleet)
}

/// Writes down every Ready=Unknown of any Cluster, from now on.
struct Unknowns {
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Unknowns {
    async fn watch(lab: &Lab) -> Result<Self> {
        let options = ClientOptions::new("test");
        let path = Some(lab.hub.kubeconfig.as_path());
        let (client, _) = kubeconfig_client(path, None, &options, &Env::system()).await?;
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let notes = seen.clone();
        let task = tokio::spawn(async move {
            let clusters = Collection::of::<Cluster>(None);
            let mut events = pin!(watch::<Cluster>(
                client,
                clusters,
                WatchConfig::new(&Chance::from_os())
            ));
            while let Some(event) = events.next().await {
                if let Event::Applied(cluster) = event
                    && let Some(ready) = cluster.condition(READY)
                    && ready.status == "Unknown"
                {
                    let name = cluster.metadata.name.clone().unwrap_or_default();
                    let told = format!("{name}: {} {}", ready.reason, ready.message);
                    notes
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(told);
                }
            }
        });
        Ok(Self { seen, task })
    }

    fn none(&self) -> Result<()> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.is_empty(), "marked although it lives: {seen:?}");
        ensure!(!self.task.is_finished(), "nobody was looking");
        Ok(())
    }
}

impl Drop for Unknowns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Creates a Work of one ConfigMap and returns how long it took to be applied.
async fn work(hub: &Client, cluster: &str, name: &str) -> Result<Duration> {
    let api: Api<Work> = Api::namespaced(hub.clone(), &format!("{EXECUTION_PREFIX}{cluster}"));
    let work: Work = serde_json::from_value(serde_json::json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": name},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"a": "b"},
        }]}},
    }))?;
    let begun = Instant::now();
    api.create(&PostParams::default(), &work).await?;
    wait_for(
        &format!("Work {name} to be applied"),
        Duration::from_secs(120),
        || {
            let api = api.clone();
            async move {
                let status = api.get(name).await?.status.unwrap_or_default();
                Ok(is_true(&status.conditions, APPLIED))
            }
        },
    )
    .await?;
    Ok(begun.elapsed())
}

/// Established connections between agent and hub fall silent again and again while new ones work: the
/// cluster never turns Unknown, and a Work of such a moment is applied within a minute.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_fall_silent_cost_neither_readiness_nor_works() -> Result<()> {
    let scratch = Scratch::new("network-agents")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
    let relay = Relay::start(&lab.hub.address()).await?;
    let fleet = fleet_at(&scratch, &mut lab, &relay.address().to_string()).await?;
    let mut agent = fleet.join(&lab.members[0].kubeconfig, "far").await?;
    let hub = fleet.client().await?;
    println!(
        "Applied after {:?} on a network that works",
        work(&hub, "far", "before").await?
    );

    let unknowns = Unknowns::watch(&lab).await?;
    for round in 1..=3 {
        let connections = relay.accepted();
        relay.silence_established();
        let took = work(&hub, "far", &format!("round-{round}")).await?;
        println!("Applied after {took:?} when every connection had fallen silent");
        ensure!(relay.accepted() > connections, "it went another way");
        unknowns.none()?;
    }
    // What a lost renewal would lead to shows a grace period later.
    let relayed = relay.accepted();
    relay.silence_established();
    sleep(Duration::from_secs(45)).await;
    unknowns.none()?;
    ensure!(
        relay.accepted() > relayed,
        "nothing was renewed on a new connection"
    );
    agent.check()?;
    agent.kill();
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// The hub's own connection to its API server is a black hole for many grace periods while agents go
/// on renewing: nobody is marked then or afterwards, and one that dies later is.
///
/// The grace period is 8 s here and the hole lasts 64 s: the rule is about their ratio, and eight
/// grace periods are more than five minutes of the default of 40 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_is_cut_off_from_its_api_server_marks_nobody() -> Result<()> {
    let scratch = Scratch::new("network-hub")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(1)).await?;
    let direct = lab.hub.address();
    let mut fleet = fleet_at(&scratch, &mut lab, &direct).await?;
    let relay = Relay::start(&lab.hub.address()).await?;
    let kubeconfig = scratch.join("relayed.kubeconfig");
    let admin = lab.hub.pki.client("lab", &["system:masters"])?;
    lab.hub
        .kubeconfig_at(&kubeconfig, &relay.address().to_string(), &admin)?;
    fleet.hub.stop(Duration::from_secs(120)).await?;
    let flags = [
        "--cluster-monitor-grace-period=8s",
        "--cluster-startup-grace-period=8s",
    ];
    let (mut towline_hub, _) = start_hub(&fleet.towline, "relayed", &kubeconfig, &flags).await?;

    let token = fleet.token(&["--cluster", "live"]).await?;
    let lease = ["--cluster-lease-duration=8s"];
    let spec = fleet.agent_spec(&lab.members[0].kubeconfig, "live", &token, &lease)?;
    let mut agent = Process::start(spec)?;
    fleet
        .wait_ready("live", "True", CLUSTER_READY_WITHIN)
        .await?;

    let unknowns = Unknowns::watch(&lab).await?;
    relay.black_hole(true);
    sleep(Duration::from_secs(64)).await;
    unknowns.none()?;
    relay.black_hole(false);
    // Long enough for it to lead again, read everything anew, and judge.
    sleep(Duration::from_secs(40)).await;
    unknowns.none()?;
    towline_hub.check()?;
    agent.check()?;
    agent.kill();
    fleet
        .wait_ready("live", "Unknown", Duration::from_secs(90))
        .await
        .context("the monitor works")?;
    towline_hub.kill();
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// Registration and Works over an IPv6 literal, directly and through a CONNECT proxy with a password,
/// by flag and by environment. Only the way to the hub goes through the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn agents_reach_the_hub_over_ipv6_and_through_a_proxy() -> Result<()> {
    let scratch = Scratch::new("network-proxy")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &scratch.join("lab"), &LabOptions::new(3)).await?;
    let ipv6 = Relay::start_on("[::1]:0".parse()?, &lab.hub.address()).await?;
    let fleet = fleet_at(&scratch, &mut lab, &ipv6.address().to_string()).await?;
    let hub = fleet.client().await?;
    let proxy = ConnectProxy::start(Some("lab:s3cret/word")).await?;
    let url = format!("http://lab:s3cret%2Fword@{}", proxy.address());

    let mut agents = [fleet.join(&lab.members[0].kubeconfig, "direct").await?];
    work(&hub, "direct", "over-ipv6").await?;
    ensure!(
        ipv6.accepted() > 0 && proxy.tunnels() == 0,
        "it went another way"
    );
    agents.iter_mut().for_each(Process::kill);

    let by_flag = ["--hub-proxy", url.as_str()];
    let ways: [(&str, &[&str], Option<&str>); 2] = [
        ("by-flag", &by_flag, None),
        ("by-env", &[], Some(url.as_str())),
    ];
    for ((cluster, flags, env), member) in ways.into_iter().zip(&lab.members[1..]) {
        let (relayed, tunnels) = (ipv6.accepted(), proxy.tunnels());
        let token = fleet.token(&["--cluster", cluster]).await?;
        let mut spec = fleet.agent_spec(&member.kubeconfig, cluster, &token, flags)?;
        if let Some(url) = env {
            spec = spec.env("HTTPS_PROXY", url);
        }
        let mut agent = Process::start(spec)?;
        fleet
            .wait_ready(cluster, "True", CLUSTER_READY_WITHIN)
            .await?;
        work(&hub, cluster, "through-the-proxy").await?;
        agent.kill();
        // Every connection of the hub's came through the proxy, and nothing else did.
        let tunnels = proxy.tunnels() - tunnels;
        ensure!(tunnels > 0);
        assert_eq!(ipv6.accepted() - relayed, tunnels, "{cluster}");
        let log = agent.log_text();
        ensure!(
            !log.contains("s3cret"),
            "the log shows the proxy's password"
        );
    }
    assert_eq!(proxy.refused(), 0);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
