//! A backup under load, restored in another place: agents come back by themselves.

use anyhow::{Result, ensure};
use common::api::cluster::{Cluster, QUARANTINED};
use common::labels::{HELD, QUARANTINED_SINCE};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

use super::rig::{CLUSTER, Hub, LONG, Side, hub_command, passed, two_ports};
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
    let (key, before) = (data.join("encryption.key"), data.display().to_string());
    let key = key.display().to_string();
    let restore = [
        "restore",
        "--previous",
        &before,
        "--encryption-key-file",
        &key,
        &path,
    ];
    let said = hub_command(&restore, &elsewhere).await?.ok()?.stdout;
    ensure!(!said.contains("NOT let in"), "nobody was removed: {said}");
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

/// The condition that tells of withheld rights, as status and reason, and whether the Cluster is marked as
/// held.
async fn held(hub: &Hub) -> Result<(String, String, bool)> {
    let clusters: Api<Cluster> = Api::all(hub.client().await?);
    let cluster = clusters.get(CLUSTER).await?;
    let shown = cluster.condition(QUARANTINED);
    let shown = shown.map(|c| (c.status.clone(), c.reason.clone()));
    let (status, reason) = shown.unwrap_or_default();
    let labels = cluster.metadata.labels.unwrap_or_default();
    Ok((status, reason, labels.contains_key(HELD)))
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_unconfirmed_when_nothing_is_left_of_the_hub_before() -> Result<()> {
    let scratch = Scratch::new("serve-restored-held")?;
    let (ports, [here, _]) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let address = [here.clone()];
    let key = scratch.join("key").display().to_string();
    let kubeconfig = scratch.join("root.kubeconfig").display().to_string();
    let apart = [
        "--encryption-key-file",
        &key,
        "--admin-kubeconfig",
        &kubeconfig,
        "--audit-log=-",
    ];
    let mut hub = Hub::start(dir, &data, ports[0], &address, &apart).await?;
    let side = Side::join(dir, &hub, &here).await?;
    hub.deliver("before").await?;
    let file = scratch.join("backup").display().to_string();
    hub.command(&["backup", &file]).await?.ok()?;
    hub.stop().await?;
    for entry in walk(&data)? {
        let text = std::fs::read(&entry)?;
        let found = memchr::memmem::find(&text, b"PRIVATE KEY").is_some();
        ensure!(!found, "{} holds a private key", entry.display());
    }
    std::fs::remove_dir_all(&data)?;

    let restore = ["restore", "--encryption-key-file", &key, &file];
    let said = hub.command(&restore).await?.ok()?.stdout;
    let told = said.contains("NOT let in") && said.contains(CLUSTER);
    ensure!(told, "nobody is told: {said}");
    let hub = Hub::start(dir, &data, ports[0], &address, &apart).await?;
    let withheld = ("True".to_owned(), "RestoredFromBackup".to_owned(), true);
    wait_for("the agent to be held", LONG, async || {
        let held = held(&hub).await?;
        ensure!(held == withheld, "{held:?}");
        Ok(true)
    })
    .await?;
    ensure!(side.holds("before").await?, "its member lost something");

    let clusters: Api<Cluster> = Api::all(hub.client().await?);
    let confirm = json!({"metadata": {"annotations": {QUARANTINED_SINCE: null}}});
    let params = PatchParams::default();
    clusters
        .patch_metadata(CLUSTER, &params, &Patch::Merge(confirm))
        .await?;
    hub.heartbeat().await?;
    hub.wait_cluster().await?;
    hub.deliver("after").await?;
    wait_for("the mark to be gone", LONG, async || {
        let (status, _, marked) = held(&hub).await?;
        ensure!(status == "False" && !marked, "{status} {marked}");
        Ok(true)
    })
    .await?;
    passed(scratch, hub, side).await
}

/// The files below a folder.
fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(walk(&entry.path())?);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
