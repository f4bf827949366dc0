//! Clusters whose agents are their heartbeats, as they ship, and nothing else: what it takes to run one, and what a hub
//! says of many.

use super::super::super::*;
use super::super::rig::{CLUSTERS, LEASES, ask, watch};
use crate::apiserver::http::Link;
use agent::config::RunArgs;
use agent::context::{AgentContext, Certified, ErrorReport};
use agent::hub::{Connect, HubHandle};
use clap::Parser;
use common::lock::lock;
use common::names::ClusterName;
use common::proxy::ProxyChoice;
use common::signal;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::JoinSet;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// Of each cluster whether it is Unknown, and since when; times are those since the beginning. Clones share it.
#[derive(Clone)]
pub(super) struct Told {
    began: Instant,
    clusters: Arc<Mutex<BTreeMap<String, (bool, Duration)>>>,
}

impl Told {
    pub(super) fn new(began: Instant) -> Self {
        Self {
            began,
            clusters: Arc::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, (bool, Duration)>> {
        lock(&self.clusters)
    }

    fn note(&self, events: &str) {
        let at = self.began.elapsed();
        for line in events.lines() {
            let event: Value = serde_json::from_str(line).expect("an event");
            let object = &event["object"];
            let all = object["status"]["conditions"].as_array();
            let mut all = all.into_iter().flatten();
            let is_unknown = all.any(|it| it["type"] == "Ready" && it["status"] == "Unknown");
            let Some(name) = object["metadata"]["name"].as_str() else {
                continue;
            };
            let mut held = self.held();
            match held.get_mut(name) {
                Some((was, since)) if *was != is_unknown => (*was, *since) = (is_unknown, at),
                Some(_) => {}
                None => {
                    held.insert(name.to_owned(), (is_unknown, at));
                }
            }
        }
    }

    /// Who is Unknown, and since when.
    pub(super) fn unknown(&self) -> BTreeMap<String, Duration> {
        let held = self.held();
        let unknown = held.iter().filter(|(_, (is_unknown, _))| *is_unknown);
        unknown
            .map(|(name, (_, since))| (name.clone(), *since))
            .collect()
    }

    /// Follows what a hub says, until the tasks are dropped.
    pub(super) fn follow(&self, link: &Link) -> JoinSet<()> {
        let told = self.clone();
        let mut tasks = JoinSet::new();
        let link = link.clone();
        tasks.spawn(async move {
            loop {
                watch(link.clone(), CLUSTERS, |events| told.note(events)).await;
                // A server ends watches after a while.
                sleep(Duration::from_millis(100)).await;
            }
        });
        tasks
    }
}

/// Makes a Cluster and its Lease.
pub(super) async fn make(link: &Link, name: &str) {
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Pull", "id": format!("of-{name}")}});
    let made = ask(link, "POST", CLUSTERS, cluster).await;
    assert_eq!(made.status(), 201, "{made:?}");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
    let made = ask(link, "POST", LEASES, lease).await;
    assert!([201, 409].contains(&made.status().as_u16()), "{made:?}");
}

/// Says that it is Ready, as its agent does.
pub(super) async fn report(link: &Link, name: &str, message: &str) {
    let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady",
        "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [ready]}});
    let path = format!("{CLUSTERS}/{name}/status");
    let said = ask(link, "PATCH", &path, status).await;
    assert_eq!(said.status(), 200, "{said:?}");
}

/// What the heartbeat of a cluster needs of its agent with these flags.
pub(super) async fn context(
    name: &str,
    way: Arc<dyn Connect>,
    flags: &[&str],
    env: &Env,
) -> AgentContext {
    let flags = ["towline-agent"].iter().chain(flags);
    let flags = Flags::try_parse_from(flags).expect("flags");
    let nowhere = "http://192.0.2.9".parse().expect("a URI");
    let member_config = kube::Config::new(nowhere);
    let nobody = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let (_, certified) = signal::channel(Certified::default());
    AgentContext {
        cluster: ClusterName::parse(name).expect("a name"),
        cluster_id: format!("of-{name}"),
        config: Arc::new(flags.run.into_config().expect("valid")),
        hub: HubHandle::new(way).await.expect("a handle"),
        member: Client::new(nobody, "default"),
        member_config,
        member_proxy: ProxyChoice::direct(),
        clock: env.clock.clone(),
        chance: env.chance.clone(),
        network: env.network.clone(),
        metrics: Arc::default(),
        shutdown: CancellationToken::new(),
        standing: None,
        superseded: CancellationToken::new(),
        cluster_view: signal::Sender::new(None),
        heard: signal::Sender::new(true),
        told_to_leave: signal::Sender::new(None),
        refused: signal::Sender::new(None),
        certified,
        orphans: signal::Sender::new(None),
        errors: ErrorReport::default(),
    }
}
