//! What goes on while others have taken every turn, and who may read schemas.

use super::*;
use crate::apiserver::http::turns::Cost;
use common::names::CLUSTER_NAMESPACE;
use futures::FutureExt as _;
use futures::future::{Either, select};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Every turn that others can have in some lanes.
fn take_all(rig: &Rig, lanes: &[Cost]) -> Vec<impl Sized + use<>> {
    let mut taken = Vec::new();
    for cost in lanes.iter().copied() {
        for user in 0.. {
            let attacker = Caller {
                user: format!("attacker{user}"),
                ..Caller::default()
            };
            let turn = rig.running.router.shares().turn(&attacker, None, cost);
            match turn.boxed().now_or_never() {
                Some(turn) => taken.push(turn),
                None => break,
            }
        }
    }
    taken
}

#[tokio::test]
async fn leases_probes_and_administrators_wait_for_nobody() {
    let rig = Rig::begin().await;
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}});
    assert_eq!(rig.ask(&Peer::Itself, "POST", LEASES, &lease).await.0, 201);
    let bob = somebody("bob", &["writers"]);
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}]);
    allow(&rig, "writers", rules, &bob, MAPS).await;
    let one = format!("{LEASES}/a");
    let (_, mut renewed) = rig.ask(&bob, "GET", &one, &NONE).await;
    renewed["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");

    let taken = take_all(&rig, &[Cost::Cheap, Cost::Dear]);
    assert!(taken.len() >= 2, "{}", taken.len());
    let map = json!({"metadata": {"name": "waits"}});
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(100_000)}});
    let mut cheap = Box::pin(rig.ask(&bob, "POST", MAPS, &map));
    let mut dear = Box::pin(rig.ask(&bob, "POST", MAPS, &large));
    let others = async {
        assert_eq!(rig.ask(&bob, "PUT", &one, &renewed).await.0, 200);
        assert_eq!(
            rig.ask(&Peer::Unknown, "GET", "/readyz", &NONE).await.0,
            200
        );
        let root = somebody("root", &["system:masters"]);
        let large = json!({"metadata": {"name": "root"}, "data": {"a": "x".repeat(100_000)}});
        assert_eq!(rig.ask(&root, "POST", MAPS, &large).await.0, 201);
        assert_eq!(rig.ask(&root, "GET", MAPS, &NONE).await.0, 200);
    };
    let waiting = select(&mut cheap, &mut dear);
    match select(Box::pin(others), waiting).await {
        Either::Left(_) => {}
        Either::Right(_) => panic!("who has no turn was answered"),
    }
    drop(taken);
    assert_eq!((cheap.await.0, dear.await.0), (201, 201));
    rig.running.end().await;
}

#[tokio::test]
async fn a_certificate_without_a_registration_reads_no_schemas() {
    const DOCUMENT: &str = "/openapi/v3/apis/apps/v1";
    let rig = Rig::begin().await;
    let group = "towline:cluster:m1:x";
    let agent = somebody("system:karmada:agent:m1", &[group]);
    let (code, said) = rig.ask(&agent, "GET", DOCUMENT, &NONE).await;
    assert_eq!(code, 403, "{said}");
    assert_eq!(rig.ask(&agent, "GET", "/openapi/v3", &NONE).await.0, 403);
    let bob = somebody("bob", &[]);
    assert_eq!(rig.ask(&bob, "GET", DOCUMENT, &NONE).await.0, 200);

    let namespace = json!({"metadata": {"name": CLUSTER_NAMESPACE}});
    rig.ask(&Peer::Itself, "POST", "/api/v1/namespaces", &namespace)
        .await;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}");
    let role = json!({"metadata": {"name": "m1"}, "rules": [{"apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"], "resourceNames": ["m1"], "verbs": ["patch"]}]});
    let binding = json!({"metadata": {"name": "m1"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "m1"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
    let mut changes = rig.running.router.parts().authorizer.changes();
    for (plural, object) in [("roles", &role), ("rolebindings", &binding)] {
        let path = format!("{rbac}/{plural}");
        assert_eq!(rig.ask(&Peer::Itself, "POST", &path, object).await.0, 201);
    }
    while rig.ask(&agent, "GET", DOCUMENT, &NONE).await.0 != 200 {
        changes.changed().await.expect("follows");
    }
    // Of another cluster.
    let other = somebody("system:karmada:agent:m2", &[group]);
    assert_eq!(rig.ask(&other, "GET", DOCUMENT, &NONE).await.0, 403);
    rig.running.end().await;
}

/// A rig in which bob may do these things to ConfigMaps and Secrets, of which there is a long one each.
async fn filled(verbs: &[&str]) -> (Rig, Peer) {
    let rig = Rig::begin().await;
    let bob = somebody("bob", &["users"]);
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": verbs}]);
    allow(&rig, "users", rules, &bob, MAPS).await;
    let large = "x".repeat(100_000);
    for (path, field) in [(MAPS, "data"), (SECRETS, "stringData")] {
        let object = json!({"metadata": {"name": "large"}, field: {"a": large}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", path, &object).await.0, 201);
    }
    (rig, bob)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_waits_for_a_resource_version_keeps_no_thread_and_no_turn() {
    let (rig, bob) = filled(&["list", "deletecollection"]).await;
    let later = format!("{MAPS}?resourceVersion={}", i64::MAX);
    let blanks = format!("{{}}{}", " ".repeat(100_000));
    let mut waiting = Vec::new();
    for (method, body) in [("GET", String::new()), ("DELETE", blanks)] {
        let mut one = Box::pin(rig.send(&bob, (method, &later), &[], body));
        // As soon as it waits, whoever drives it goes on with something else.
        let answered = (&mut one).now_or_never();
        assert!(answered.is_none(), "{method} kept the thread");
        waiting.push(one);
    }
    assert_eq!(rig.ask(&bob, "GET", MAPS, &NONE).await.0, 200);
    drop(waiting);
    rig.running.end().await;
}

#[tokio::test]
async fn a_collection_that_is_deleted_and_a_watch_that_reads_have_their_turn() {
    let (rig, bob) = filled(&["list", "watch", "deletecollection"]).await;
    let (all, some) = (
        format!("{MAPS}?dryRun=All"),
        format!("{SECRETS}?watch=1&fieldSelector=type=x"),
    );
    let taken = take_all(&rig, &[Cost::Dear]);
    let mut deletion = Box::pin(rig.ask(&bob, "DELETE", &all, &NONE));
    let mut watch = Box::pin(rig.send(&bob, ("GET", &some), &[], ""));
    let others = async {
        // What need not be read needs no turn.
        let plain = format!("{SECRETS}?watch=1");
        assert_eq!(rig.send(&bob, ("GET", &plain), &[], "").await.status(), 200);
        let map = json!({"metadata": {"name": "written"}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    };
    let waiting = select(&mut deletion, &mut watch);
    match select(Box::pin(others), waiting).await {
        Either::Left(_) => {}
        Either::Right(_) => panic!("who has no turn was answered"),
    }
    drop(taken);
    // Both are driven: a turn that is given to one that nobody asks on waits with it.
    let ((code, list), watched) = tokio::join!(deletion, watch);
    assert_eq!(code, 200, "{list}");
    assert_eq!(watched.status(), 200);
    // Large and small ones, each of them in its turn, and in the end all of it.
    let (code, list) = rig.ask(&bob, "DELETE", MAPS, &NONE).await;
    let gone = list["items"].as_array().map(Vec::len);
    let (_, left) = rig.ask(&bob, "GET", MAPS, &NONE).await;
    let left = left["items"].as_array().map(Vec::len);
    assert_eq!(code, 200, "{list}");
    assert!(gone >= Some(2) && left < gone, "{gone:?} {left:?}");
    rig.running.end().await;
}
