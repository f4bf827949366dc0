//! What watchers are told.

use crate::apiserver::registry::testing::{Rig, value};
use crate::apiserver::registry::{FrameKind, ListOptions, PatchKind, WatchStream};
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
