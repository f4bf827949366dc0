//! Rights that are taken away, granted, and held for one name.

use super::*;

#[tokio::test]
async fn an_agent_without_rights_loses_its_watch_and_nobody_grants_what_they_lack() {
    let rig = Rig::begin().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "reader"},
        "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]},
                  {"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"],
                   "resources": ["clusterrolebindings"]}],
    });
    let binding = json!({
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "towline:cluster:m1:x"},
                     {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    let mut changes = rig.running.router.parts().authorizer.changes();
    for (plural, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
        let path = format!("{rbac}/{plural}");
        assert_eq!(rig.ask(&Peer::Itself, "POST", &path, object).await.0, 201);
    }
    let agent = somebody("system:karmada:agent:m1", &["towline:cluster:m1:x"]);
    // The authorizer follows the store; it is soon there.
    while rig.ask(&agent, "GET", MAPS, &NONE).await.0 != 200 {
        changes.changed().await.expect("follows");
    }
    let watch = format!("{MAPS}?watch=1");
    let opened = rig.send(&agent, ("GET", &watch), &[], "").await;
    assert_eq!(opened.status(), 200);
    let mut admin = binding.clone();
    admin["metadata"]["name"] = json!("mine");
    admin["roleRef"]["name"] = json!("cluster-admin");
    let path = format!("{rbac}/clusterrolebindings");
    let bob = somebody("bob", &[]);
    assert_eq!(rig.ask(&bob, "POST", &path, &admin).await.0, 403);
    let gone = format!("{path}/reader");
    assert_eq!(rig.ask(&Peer::Itself, "DELETE", &gone, &NONE).await.0, 200);
    // Ends by itself, or the test never does.
    opened.into_body().collect().await.expect("an end");
    assert_eq!(rig.ask(&agent, "GET", &watch, &NONE).await.0, 403);
    rig.running.end().await;
}

#[tokio::test]
async fn a_right_on_one_name_selects_nothing_else() {
    let rig = Rig::begin().await;
    for name in ["mine", "theirs"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    }
    let bob = somebody("bob", &["namers"]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"],
        "verbs": ["list", "watch", "deletecollection"]}]);
    let mine = format!("{MAPS}?fieldSelector=metadata.name%3Dmine");
    allow(&rig, "namers", rules, &bob, &mine).await;
    let (_, list) = rig.ask(&bob, "GET", &mine, &NONE).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    for more in ["&fieldSelector=", "&fieldSelector=metadata.name%3Dtheirs"] {
        let path = format!("{mine}{more}");
        let (code, list) = rig.ask(&bob, "GET", &path, &NONE).await;
        assert_eq!(
            (code, &list["items"][0]["metadata"]["name"]),
            (200, &json!("mine"))
        );
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{path}");
        assert_eq!(
            rig.ask(&bob, "DELETE", &path, &json!({"dryRun": ["All"]}))
                .await
                .1["items"],
            list["items"]
        );
    }
    for selector in [
        "fieldSelector=&fieldSelector=metadata.name%3Dmine",
        "fieldSelector=metadata.namespace!%3Dx%5C,metadata.name%3Dmine",
        "fieldSelector=metadata.namespace!%3Dx%5C%5C%5C,metadata.name%3Dmine",
        "fieldSelector=metadata.name!%3Dmine",
    ] {
        for (method, also) in [("GET", ""), ("GET", "&watch=1"), ("DELETE", "")] {
            let path = format!("{MAPS}?{selector}{also}");
            let (code, said) = rig.ask(&bob, method, &path, &NONE).await;
            assert_eq!(code, 403, "{method} {path}: {said}");
        }
    }
    rig.running.end().await;
}
