//! A hub that stands by reads while the leader is silent, and does nothing else until it leads itself.

use super::super::*;
use super::rig::{CLUSTERS, NAMESPACES, SimulatedHub, alone, ask, config};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use common::lock::lock;
use common::signal;
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Nobody renews a Lease.
const FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=20000h",
    "--cluster-startup-grace-period=20000h",
];
const WHILE: Duration = Duration::from_secs(60);

/// What was asked, in order.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(Method, String)>>>);

impl Asked {
    /// A client whose requests are noted.
    fn by(&self, client: Client) -> Client {
        let asked = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let of = (request.method().clone(), request.uri().to_string());
            lock(&asked.0).push(of);
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(service, "default")
    }

    /// What was asked since the last time.
    fn take(&self) -> Vec<(Method, String)> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// How often all Clusters were asked for.
fn lists(asked: &[(Method, String)]) -> usize {
    let whole = |path: &str| path.contains("sendInitialEvents=true") || path.contains("limit=");
    asked
        .iter()
        .filter(|(_, path)| path.starts_with(CLUSTERS) && whole(path))
        .count()
}

fn writes(asked: &[(Method, String)]) -> usize {
    asked
        .iter()
        .filter(|(method, _)| method != Method::GET)
        .count()
}

async fn add(link: &Link, name: &str) {
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Pull"}});
    let answer = ask(link, "POST", CLUSTERS, cluster).await;
    assert!(answer.status().is_success(), "{answer:?}");
}

/// Whether a leader has looked at a cluster.
async fn seen(link: &Link, name: &str) -> bool {
    let path = format!("{NAMESPACES}/karmada-es-{name}");
    ask(link, "GET", &path, Value::Null)
        .await
        .status()
        .is_success()
}

#[test]
fn it_reads_while_the_leader_is_silent_and_acts_when_it_leads() {
    alone(async {
        let dir = tempfile::tempdir().expect("a folder");
        let (hub, env) = SimulatedHub::alone(dir.path(), &FLAGS).await;
        let link = hub.served.router.link_of(Peer::Itself);
        add(&link, "m1").await;
        sleep(WHILE).await;
        assert!(seen(&link, "m1").await);
        let served = hub.rest().await;

        let asked = Asked::default();
        let client = asked.by(served.router.client());
        let other = InProcess::new(config(&FLAGS), client, &AdminState::default(), env);
        let ((leads, leading), (nears, near)) = (signal::channel(false), signal::channel(false));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let standing_by =
            tokio::spawn(async move { other.stand_by(near, &leading, &stopped).await });
        add(&link, "m2").await;
        sleep(WHILE).await;
        assert_eq!(asked.take(), [], "the leader is not silent");

        nears.send_replace(true);
        sleep(WHILE).await;
        let while_silent = asked.take();
        assert_eq!(lists(&while_silent), 1, "{while_silent:?}");
        assert_eq!(writes(&while_silent), 0, "{while_silent:?}");
        assert!(!seen(&link, "m2").await);

        leads.send_replace(true);
        sleep(WHILE).await;
        assert!(seen(&link, "m2").await, "it leads");
        let leading = asked.take();
        assert_eq!(lists(&leading), 0, "that was read before: {leading:?}");

        leads.send_replace(false);
        nears.send_replace(false);
        add(&link, "m3").await;
        sleep(WHILE).await;
        assert_eq!(writes(&asked.take()), 0, "it leads no more");

        nears.send_replace(true);
        sleep(WHILE).await;
        assert_eq!(
            lists(&asked.take()),
            1,
            "a term begins with nothing remembered"
        );
        nears.send_replace(false);
        // What is due at this very moment is asked for.
        sleep(Duration::from_secs(1)).await;
        asked.take();
        sleep(WHILE).await;
        assert_eq!(asked.take(), [], "the leader was only slow");
        assert!(!seen(&link, "m3").await);

        nears.send_replace(true);
        leads.send_replace(true);
        sleep(WHILE).await;
        assert!(seen(&link, "m3").await);
        stop.cancel();
        let ended = standing_by.await.expect("joins");
        ended.expect("ends in order");
        served.end().await;
    });
}

#[test]
fn a_hub_with_controllers_of_its_own_is_given_no_others() {
    alone(async {
        let dir = tempfile::tempdir().expect("a folder");
        let (hub, env) = SimulatedHub::alone(dir.path(), &FLAGS).await;
        let client = hub.served.router.client();
        let other = InProcess::new(config(&FLAGS), client, &AdminState::default(), env);
        let refused = other.refuse_built_in().await;
        assert!(matches!(refused, Err(run::Error::BuiltIn)), "{refused:?}");
        hub.end().await;
    });
}
