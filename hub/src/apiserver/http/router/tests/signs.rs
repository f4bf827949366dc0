//! Signs of life between renewals: by whoever may patch the Lease, of that one alone, where they count.

use super::*;
use common::liveness::HEADER;
use std::time::Duration;

/// Who gave a sign, and when the next one comes.
fn taken(rig: &Rig) -> Vec<(String, Duration)> {
    let signs = rig.running.router.signs().take();
    let each = signs.into_iter();
    each.map(|(name, sign)| (name.into(), sign.next)).collect()
}

#[tokio::test]
async fn a_sign_of_life_is_of_whoever_may_patch_the_lease() {
    let rig = Rig::begin().await;
    for namespace in [CLUSTER_NAMESPACE, "elsewhere"] {
        let object = json!({"metadata": {"name": namespace}});
        let made = rig.ask(&Peer::Itself, "POST", "/api/v1/namespaces", &object);
        assert_eq!(made.await.0, 201);
    }
    let leases = |namespace| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    for (namespace, name) in [
        (CLUSTER_NAMESPACE, "m1"),
        (CLUSTER_NAMESPACE, "m2"),
        ("elsewhere", "m1"),
    ] {
        let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
        let path = leases(namespace);
        let made = rig.ask(&Peer::Itself, "POST", &path, &lease);
        assert_eq!(made.await.0, 201);
    }
    let group = "towline:cluster:m1:x";
    let agent = somebody("system:karmada:agent:m1", &[group]);
    let header = HEADER;
    let ask = async |peer: &Peer, method: &str, path: &str, next: Option<&str>| {
        let mut headers = vec![("content-type", "application/merge-patch+json")];
        headers.extend(next.map(|next| (header.as_str(), next)));
        let sent = rig.send(peer, (method, path), &headers, "{}").await;
        sent.status().as_u16()
    };
    let (own, others) = (
        format!("{}/m1", leases(CLUSTER_NAMESPACE)),
        format!("{}/m2", leases(CLUSTER_NAMESPACE)),
    );
    // Without a registration: neither is heard.
    rig.running.router.signs().count();
    assert_eq!(ask(&agent, "PATCH", &own, Some("1000")).await, 403);
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}");
    let role = json!({"metadata": {"name": "m1"}, "rules": [{"apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"], "resourceNames": ["m1"], "verbs": ["get", "patch"]}]});
    let binding = json!({"metadata": {"name": "m1"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "m1"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
    let mut changes = rig.running.router.parts().authorizer.changes();
    for (plural, object) in [("roles", &role), ("rolebindings", &binding)] {
        let path = format!("{rbac}/{plural}");
        assert_eq!(rig.ask(&Peer::Itself, "POST", &path, object).await.0, 201);
    }
    while ask(&agent, "GET", &own, None).await != 200 {
        changes.changed().await.expect("follows");
    }
    assert!(taken(&rig).is_empty());

    let before = rig.ask(&Peer::Itself, "GET", &own, &NONE).await.1;
    assert_eq!(ask(&agent, "PATCH", &own, Some("1000")).await, 200);
    assert_eq!(taken(&rig), [("m1".to_owned(), Duration::from_secs(1))]);
    assert!(taken(&rig).is_empty());
    let after = rig.ask(&Peer::Itself, "GET", &own, &NONE).await.1;
    assert_eq!(before, after, "something was stored");

    // Of another cluster, of another kind of request, of another object, without a word or with one that is none.
    assert_eq!(ask(&agent, "PATCH", &others, Some("1000")).await, 403);
    assert_eq!(ask(&agent, "GET", &own, Some("1000")).await, 200);
    assert_eq!(ask(&agent, "PATCH", &own, None).await, 200);
    assert_eq!(ask(&agent, "PATCH", &own, Some("soon")).await, 200);
    let elsewhere = format!("{}/m1", leases("elsewhere"));
    let done = ask(&Peer::Itself, "PATCH", &elsewhere, Some("1000"));
    assert_eq!(done.await, 200);
    let missing = format!("{}/m3", leases(CLUSTER_NAMESPACE));
    let done = ask(&Peer::Itself, "PATCH", &missing, Some("1000"));
    assert_eq!(done.await, 404);
    assert!(taken(&rig).is_empty());
    rig.running.end().await;
}
