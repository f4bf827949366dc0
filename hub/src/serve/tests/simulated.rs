//! A whole hub, its server, its installation and its controllers, on one thread under simulated time: ten
//! minutes of a cluster, the same byte by byte for the same seed.

use super::super::*;
use super::rig::{
    CLUSTERS, LEASES, NAMESPACES, SimulatedHub, Trace, alone, ask, assert_same, watch,
};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use common::labels::UNREGISTER;
use common::time::SimClock;
use common::unregister::Mode;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The status of the Cluster's condition Ready.
async fn ready(link: &Link) -> String {
    let read = ask(link, "GET", &format!("{CLUSTERS}/m1"), Value::Null).await;
    let cluster: Value = serde_json::from_slice(read.body()).expect("JSON");
    let conditions = cluster["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|one| one["type"] == "Ready"));
    ready.map_or_else(String::new, |ready| {
        ready["status"].as_str().unwrap_or_default().to_owned()
    })
}

/// Renews the Lease every ten seconds, so many times.
async fn renew(link: &Link, times: u32) {
    for count in 0..times {
        let time = format!("2026-01-01T00:00:00.{count:06}Z");
        let renewed = json!({"spec": {"holderIdentity": "m1", "renewTime": time}});
        let answer = ask(link, "PATCH", &format!("{LEASES}/m1"), renewed).await;
        assert_eq!(answer.status(), 200, "{answer:?}");
        sleep(Duration::from_secs(10)).await;
    }
}

/// Ten minutes: a cluster comes, lives, falls silent, comes back and is deleted.
async fn ten_minutes(seed: u64) -> String {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let env = Env::seeded(Arc::new(clock), seed);
    let address = SocketAddr::from(([192, 0, 2, 1], 6443));
    let hub = SimulatedHub::begin(dir.path(), address, &env, Router::client).await;
    let link = hub.served.router.link_of(Peer::Itself);
    let trace = Trace::default();
    let mut watches = JoinSet::new();
    for path in [CLUSTERS, LEASES, NAMESPACES] {
        let trace = trace.clone();
        watches.spawn(watch(link.clone(), path, move |event| trace.note(event)));
    }
    let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
    let mut made = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster"});
    made["metadata"] = cluster["metadata"].clone();
    made["spec"] = cluster["spec"].clone();
    assert_eq!(ask(&link, "POST", CLUSTERS, made).await.status(), 201);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "m1"}, "spec": {"holderIdentity": "m1"}});
    assert_eq!(ask(&link, "POST", LEASES, lease).await.status(), 201);
    let condition = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    let posted = ask(
        &link,
        "PATCH",
        &format!("{CLUSTERS}/m1/status"),
        status.clone(),
    )
    .await;
    assert_eq!(posted.status(), 200, "{posted:?}");
    renew(&link, 10).await;
    assert_eq!(ready(&link).await, "True");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        ready(&link).await,
        "Unknown",
        "silent for longer than the grace"
    );
    ask(&link, "PATCH", &format!("{CLUSTERS}/m1/status"), status).await;
    renew(&link, 10).await;
    assert_eq!(ready(&link).await, "True");
    // Nobody is deleted by mistake: how is said first.
    let said = json!({"metadata": {"annotations": {UNREGISTER: Mode::Force.as_str()}}});
    let said = ask(&link, "PATCH", &format!("{CLUSTERS}/m1"), said).await;
    assert_eq!(said.status(), 200, "{said:?}");
    let deleted = ask(&link, "DELETE", &format!("{CLUSTERS}/m1"), Value::Null).await;
    assert_eq!(deleted.status(), 200, "{deleted:?}");
    sleep(Duration::from_secs(600).saturating_sub(began.elapsed())).await;
    let gone = ask(&link, "GET", &format!("{CLUSTERS}/m1"), Value::Null).await;
    assert_eq!(gone.status(), 404, "{gone:?}");
    let space = ask(
        &link,
        "GET",
        &format!("{NAMESPACES}/karmada-es-m1"),
        Value::Null,
    )
    .await;
    assert_eq!(space.status(), 404, "{space:?}");
    watches.shutdown().await;
    hub.end().await;
    trace.whole()
}

#[test]
fn a_seed_says_every_event_of_ten_minutes() {
    let [one, again, other] = [7, 7, 8].map(|seed| alone(ten_minutes(seed)));
    assert_same(&one, &again);
    assert_ne!(one, other);
    assert!(one.contains("ClusterStatusUnknown"), "{one}");
}
