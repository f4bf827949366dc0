//! What watchers are told.

use crate::apiserver::registry::testing::{Rig, value};
use crate::apiserver::registry::{FrameKind, WatchStream};
use crate::apiserver::request::{ListOptions, PatchKind};
use futures::StreamExt as _;
use serde_json::{Value, json};

async fn next(watch: &mut WatchStream) -> (FrameKind, Value) {
    let frame = watch.next().await.expect("a frame");
    (frame.kind, value(&frame.object))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_initial_events_end_with_a_mark() {
    let rig = Rig::new().await;
    rig.create("v1/ns:configmaps", json!({"metadata": {"name": "a"}}))
        .await;
    let options = ListOptions {
        send_initial_events: Some(true),
        resource_version_match: "NotOlderThan".to_owned(),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    let context = rig.context("v1/ns:configmaps");
    let mut watch = rig
        .registry
        .watch(&context, &options)
        .await
        .expect("a watch");
    let (kind, object) = next(&mut watch).await;
    assert_eq!((kind, name(&object)), (FrameKind::Added, "a"));
    let (kind, mark) = next(&mut watch).await;
    assert_eq!(kind, FrameKind::Bookmark);
    assert_eq!(
        mark["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    rig.create("v1/ns:configmaps", json!({"metadata": {"name": "b"}}))
        .await;
    let (kind, object) = next(&mut watch).await;
    assert_eq!((kind, name(&object)), (FrameKind::Added, "b"));
}

#[tokio::test]
async fn objects_come_into_a_selection_and_leave_it() {
    let rig = Rig::new().await;
    let context = rig.context("v1/ns:configmaps");
    let options = ListOptions {
        label_selector: "in=yes".to_owned(),
        resource_version: rig.registry.store().revision().to_string(),
        ..ListOptions::default()
    };
    let mut watch = rig
        .registry
        .watch(&context, &options)
        .await
        .expect("a watch");
    let path = "v1/ns:configmaps/a";
    rig.create("v1/ns:configmaps", json!({"metadata": {"name": "a"}}))
        .await;
    let label = |value: Option<&str>| json!({"metadata": {"labels": {"in": value}}});
    for value in [Some("yes"), None, Some("yes")] {
        rig.patch(path, PatchKind::Merge, label(value))
            .await
            .expect("patched");
    }
    rig.delete(path, json!({})).await.expect("deleted");
    let mut seen = Vec::new();
    let mut versions = Vec::new();
    for _ in 0..4 {
        let (kind, object) = next(&mut watch).await;
        assert_eq!(object["metadata"]["labels"], json!({"in": "yes"}));
        let version = object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse::<u64>().ok());
        versions.push(version.expect("a version"));
        seen.push(kind);
    }
    use FrameKind::{Added, Deleted};
    assert_eq!(seen, [Added, Deleted, Added, Deleted]);
    assert!(versions.is_sorted() && versions.first() != versions.last());
    assert_eq!(versions.last(), Some(&rig.registry.store().revision()));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_before_the_end() {
    let rig = Rig::new().await;
    let context = rig.context("v1/ns:configmaps");
    let options = ListOptions {
        resource_version: rig.registry.store().revision().to_string(),
        allow_watch_bookmarks: true,
        timeout_seconds: Some(90),
        ..ListOptions::default()
    };
    let mut watch = rig
        .registry
        .watch(&context, &options)
        .await
        .expect("a watch");
    for _ in 0..2 {
        let (kind, object) = next(&mut watch).await;
        assert_eq!(kind, FrameKind::Bookmark);
        assert_eq!(object["kind"], "ConfigMap");
    }
    assert!(watch.next().await.is_none(), "it ends");
}

#[tokio::test]
async fn a_watch_from_before_history_is_told_so() {
    let rig = Rig::new().await;
    let context = rig.context("v1/ns:configmaps");
    let options = ListOptions {
        resource_version: "x".to_owned(),
        ..ListOptions::default()
    };
    let error = rig
        .registry
        .watch(&context, &options)
        .await
        .err()
        .expect("no number");
    assert_eq!(error.code, 500);
}

/// Whoever gets a cluster's name after another one reads nothing of what that one was told.
#[tokio::test]
async fn history_of_an_execution_namespace_begins_with_its_registration() {
    let rig = Rig::new().await;
    let namespace = "karmada-es-m1";
    let maps = format!("v1/{namespace}:configmaps");
    let bindings = format!("rbac.authorization.k8s.io/v1/{namespace}:rolebindings");
    let group = |id: &str| {
        json!({"metadata": {"name": "towline:agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": id}]})
    };
    let read = async |version: u64| {
        let context = rig.context(&maps);
        let exact = ListOptions {
            resource_version: version.to_string(),
            resource_version_match: "Exact".to_owned(),
            ..ListOptions::default()
        };
        let listed = rig.registry.list(&context, &exact).await;
        let since = ListOptions {
            resource_version: version.to_string(),
            timeout_seconds: Some(1),
            ..ListOptions::default()
        };
        let mut watch = rig.registry.watch(&context, &since).await.expect("begins");
        let first = watch.next().await.map(|frame| value(&frame.object));
        (listed.map(drop).map_err(|error| error.code), first)
    };
    let now = || rig.registry.store().revision();
    rig.create("v1/namespaces", json!({"metadata": {"name": namespace}}))
        .await;
    rig.create(&bindings, group("first")).await;
    let first = now();
    let map = json!({"metadata": {"name": "secret-plan"}});
    rig.create(&maps, map).await;
    let (listed, told) = read(first).await;
    assert_eq!(listed, Ok(()));
    assert_eq!(told.map(|o| o["kind"].clone()), Some(json!("ConfigMap")));

    // Another key for the same name: what was there before is none of its business.
    let path = format!("{bindings}/towline:agent");
    rig.patch(&path, PatchKind::Merge, group("second"))
        .await
        .expect("changed");
    let (listed, told) = read(first).await;
    assert_eq!(listed, Err(410));
    assert_eq!(told.map(|o| o["code"].clone()), Some(json!(410)));
    let (listed, _) = read(now()).await;
    assert_eq!(listed, Ok(()));

    // A namespace that was made anew has no past, whoever asks.
    let second = now();
    for (path, name) in [(&bindings, "towline:agent"), (&maps, "secret-plan")] {
        rig.delete(&format!("{path}/{name}"), json!({}))
            .await
            .expect("deleted");
    }
    rig.delete(&format!("v1/namespaces/{namespace}"), json!({}))
        .await
        .expect("deleted");
    let end = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace}, "spec": {"finalizers": []}});
    let path = format!("v1/namespaces/{namespace}/finalize");
    rig.update(&path, end).await.expect("ended");
    rig.create("v1/namespaces", json!({"metadata": {"name": namespace}}))
        .await;
    let (listed, told) = read(second).await;
    assert_eq!(listed, Err(410));
    assert_eq!(told.map(|o| o["code"].clone()), Some(json!(410)));
    let (listed, _) = read(now()).await;
    assert_eq!(listed, Ok(()));
}
