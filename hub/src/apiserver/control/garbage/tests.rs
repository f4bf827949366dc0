//! Owners and what they own, over a store.

use super::{AFTER, Collector, controller};
use crate::apiserver::control::testing::start;
use crate::apiserver::registry::testing::Rig;
use common::signal;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]}})
}

async fn until(rig: &Rig, name: &str, holds: impl Fn(Option<&Value>) -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let object = rig.get(&format!("v1/ns:configmaps/{name}")).await.ok();
        if holds(object.as_ref()) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{name}: {object:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_owned_goes_after_its_owner() {
    let rig = Rig::new().await;
    let task = start(&rig, controller(&rig.registry, None));
    let maps = "v1/ns:configmaps";
    let a = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
    let b = rig.create(maps, owned("b", &a, false)).await;
    rig.create(maps, owned("c", &b, false)).await;
    rig.delete("v1/ns:configmaps/a", json!({}))
        .await
        .expect("deleted");
    until(&rig, "c", |object| object.is_none()).await;
    until(&rig, "b", |object| object.is_none()).await;
    // An owner that never was, or is another object by now.
    let again = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
    rig.create(maps, owned("old", &a, false)).await;
    rig.create(maps, owned("new", &again, false)).await;
    until(&rig, "old", |object| object.is_none()).await;
    assert!(rig.get("v1/ns:configmaps/new").await.is_ok());
    task.abort();
}

/// An object `b` whose owner never was.
async fn with_garbage() -> Rig {
    let rig = Rig::new().await;
    let gone = json!({"metadata": {"name": "a", "uid": "of-nobody"}});
    rig.create("v1/ns:configmaps", owned("b", &gone, false))
        .await;
    rig
}

#[tokio::test]
async fn what_is_found_at_a_start_waits_until_nobody_is_busy() {
    let rig = with_garbage().await;
    let (begins, busy) = signal::channel(true);
    let task = start(&rig, controller(&rig.registry, Some(busy)));
    let early = timeout(AFTER * 3, until(&rig, "b", |object| object.is_none())).await;
    assert!(early.is_err(), "it went while others were busy");
    begins.send_replace(false);
    until(&rig, "b", |object| object.is_none()).await;
    task.abort();
}

#[tokio::test]
async fn nobody_waits_for_who_was_busy_and_ended() {
    let rig = with_garbage().await;
    let (begins, busy) = signal::channel(true);
    drop(begins);
    let task = start(&rig, controller(&rig.registry, Some(busy)));
    until(&rig, "b", |object| object.is_none()).await;
    task.abort();
}

#[tokio::test]
async fn nothing_is_looked_at_before_all_was_read() {
    let rig = Rig::new().await;
    let maps = "v1/ns:configmaps";
    let a = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
    rig.create(maps, owned("b", &a, true)).await;
    rig.delete(
        "v1/ns:configmaps/a",
        json!({"propagationPolicy": "Foreground"}),
    )
    .await
    .expect("marked");
    let collector = Collector {
        registry: rig.registry.clone(),
        graph: Mutex::default(),
    };
    let uid = a["metadata"]["uid"].as_str().expect("a uid");
    let mut looked_at = Vec::new();
    let news = collector.begin(|node| {
        let owned = collector.owned_by(uid);
        looked_at.push((node.key.to_string(), owned.len()));
    });
    assert!(news.is_some());
    let expected = ["a", "b"].map(|name| (format!("ns/{name}"), 1));
    assert_eq!(looked_at, expected);
}

#[tokio::test]
async fn orphans_lose_their_owner() {
    let rig = Rig::new().await;
    let task = start(&rig, controller(&rig.registry, None));
    let maps = "v1/ns:configmaps";
    let a = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
    rig.create(maps, owned("b", &a, true)).await;
    let path = "v1/ns:configmaps/a";
    rig.delete(path, json!({"propagationPolicy": "Orphan"}))
        .await
        .expect("marked");
    until(&rig, "a", |object| object.is_none()).await;
    let b = rig.get("v1/ns:configmaps/b").await.expect("stays");
    assert_eq!(b["metadata"].get("ownerReferences"), None);
    task.abort();
}

#[tokio::test]
async fn in_the_foreground_the_owner_goes_last() {
    let rig = Rig::new().await;
    let task = start(&rig, controller(&rig.registry, None));
    let maps = "v1/ns:configmaps";
    let a = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
    let mut held = owned("b", &a, true);
    held["metadata"]["finalizers"] = json!(["x.y/z"]);
    rig.create(maps, held).await;
    let path = "v1/ns:configmaps/a";
    rig.delete(path, json!({"propagationPolicy": "Foreground"}))
        .await
        .expect("marked");
    until(&rig, "b", |object| {
        object.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
    })
    .await;
    assert!(rig.get(path).await.is_ok(), "it waits");
    let none = json!({"metadata": {"finalizers": null}});
    let kind = crate::apiserver::request::PatchKind::Merge;
    rig.patch("v1/ns:configmaps/b", kind, none)
        .await
        .expect("released");
    until(&rig, "a", |object| object.is_none()).await;
    task.abort();
}

#[tokio::test]
async fn who_own_each_other_go_together() {
    let rig = Rig::new().await;
    let task = start(&rig, controller(&rig.registry, None));
    let maps = "v1/ns:configmaps";
    for alone in [true, false] {
        let a = rig.create(maps, json!({"metadata": {"name": "a"}})).await;
        let b = rig.create(maps, owned("b", &a, true)).await;
        let c = rig.create(maps, owned("c", &b, true)).await;
        let owner = owned("a", &c, true);
        let kind = crate::apiserver::request::PatchKind::Merge;
        rig.patch("v1/ns:configmaps/a", kind, owner)
            .await
            .expect("owned by what it owns");
        // All of them at once as well: none is there that could still be asked.
        for name in ["a", "b", "c"].iter().take(if alone { 1 } else { 3 }) {
            let path = format!("v1/ns:configmaps/{name}");
            rig.delete(&path, json!({"propagationPolicy": "Foreground"}))
                .await
                .expect("marked");
        }
        for name in ["a", "b", "c"] {
            until(&rig, name, |object| object.is_none()).await;
        }
    }
    task.abort();
}
