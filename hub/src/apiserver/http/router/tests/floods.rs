//! What goes on while others have taken every turn, and who may read schemas.

use super::*;
use crate::apiserver::http::turns::Cost;
use common::names::CLUSTER_NAMESPACE;
use futures::FutureExt as _;
use futures::future::{Either, select};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Every turn that others can have.
fn take_all(rig: &Rig) -> Vec<impl Sized> {
    let mut taken = Vec::new();
    for cost in [Cost::Cheap, Cost::Dear] {
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

    let taken = take_all(&rig);
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
