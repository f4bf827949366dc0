//! A backup under load, restored in another place: agents come back by themselves.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

use super::rig::{Hub, LONG, Side, hub_command, passed, two_ports};
use crate::env::{Scratch, wait_for};

const WRITERS: usize = 8;

/// Names of ConfigMaps whose creation was answered.
type Made = Arc<Mutex<BTreeSet<String>>>;

fn made(made: &Made) -> BTreeSet<String> {
    made.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Creates ConfigMaps until the hub is gone.
async fn write(maps: Api<ConfigMap>, writer: usize, made: Made) {
    for round in 0_u64.. {
        let name = format!("load-{writer}-{round}");
        let map = json!({"metadata": {"name": name}, "data": {"filler": "x".repeat(2000)}});
        let Ok(map) = serde_json::from_value(map) else {
            return;
        };
        if maps.create(&PostParams::default(), &map).await.is_err() {
            return;
        }
        made.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_restored_elsewhere() -> Result<()> {
    let scratch = Scratch::new("serve-restored")?;
    let (ports, [here, there]) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let both = [here.clone(), there.clone()];
    let mut hub = Hub::start(dir, &data, ports[0], &both, &[]).await?;
    let side = Side::join(dir, &hub, &here).await?;
    hub.deliver("before").await?;
    side.wait_address(&there).await?;

    let maps: Api<ConfigMap> = Api::namespaced(hub.client().await?, "default");
    let answered = Made::default();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(maps.clone(), writer, answered.clone()));
    }
    let under_load = async |count: usize| {
        wait_for("some load", LONG, async || {
            Ok(made(&answered).len() >= count)
        })
        .await
    };
    under_load(100).await?;
    let known = made(&answered);
    let file = scratch.join("backup");
    let path = file.display().to_string();
    hub.command(&["backup", &path]).await?.ok()?;
    let goes_on = made(&answered).len() + 50;
    under_load(goes_on).await?;
    hub.deliver("forgotten").await?;
    hub.process.kill();
    while writers.join_next().await.is_some() {}
    let all = made(&answered);

    let elsewhere = scratch.join("elsewhere");
    hub_command(&["restore", &path], &elsewhere).await?.ok()?;
    let hub = Hub::start(dir, &elsewhere, ports[1], &[there], &[]).await?;
    let maps: Api<ConfigMap> = Api::namespaced(hub.client().await?, "default");
    let restored: BTreeSet<String> = maps
        .list(&Default::default())
        .await?
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .filter(|name| name.starts_with("load-"))
        .collect();
    let missing: Vec<_> = known.difference(&restored).collect();
    ensure!(missing.is_empty(), "the backup lacks {missing:?}");
    ensure!(restored.len() < all.len(), "it knows what came after it");

    hub.heartbeat().await?;
    hub.wait_cluster().await?;
    hub.deliver("after").await?;
    for (name, why) in [
        ("before", "what the backup knows"),
        ("forgotten", "what it does not know"),
        ("after", "what came after it"),
    ] {
        ensure!(side.holds(name).await?, "{why} is not in the member");
    }
    passed(scratch, hub, side).await
}
