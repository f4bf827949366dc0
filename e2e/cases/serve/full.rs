//! A disk that fills under a hub and is freed again.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::path::{Path, PathBuf};

use super::rig::{CLUSTER, Hub, LONG, Side, ask, passed, two_ports};
use crate::env::{Scratch, Towline, repository, wait_for};

/// Builds what stands between the hub and its disk (see `hub/tests/store/powercut.c`): while a file `full`
/// lies in its folder, no file of the data directory can grow.
async fn shim(dir: &Path) -> Result<PathBuf> {
    let shim = dir.join("powercut.so");
    let source = repository().join("hub/tests/store/powercut.c");
    let mut compiler = tokio::process::Command::new("cc");
    compiler
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&shim, &source])
        .args(["-ldl", "-lpthread"]);
    crate::env::run(compiler, None, LONG).await?.ok()?;
    Ok(shim)
}

fn map(name: &str) -> Result<ConfigMap> {
    let map = json!({"metadata": {"name": name}, "data": {"filler": "x".repeat(20_000)}});
    serde_json::from_value(map).context("a ConfigMap")
}

/// Why the hub is not ready; nothing when it is.
async fn unready(hub: &Client) -> Option<String> {
    match ask(hub, "/readyz").await {
        Ok(_) => None,
        Err(error) => Some(format!("{error:#}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_keeps_heartbeats() -> Result<()> {
    let scratch = Scratch::new("serve-full")?;
    let (ports, [address, _]) = two_ports()?;
    // The shim knows files by the names that the kernel has for them.
    let root = scratch.path().canonicalize()?;
    let (data, disk) = (root.join("data"), root.join("disk"));
    std::fs::create_dir_all(&disk)?;
    let shim = shim(&root).await?;
    let environment = [
        ("LD_PRELOAD", shim.as_path()),
        ("POWERCUT_DIR", data.as_path()),
        ("POWERCUT_DISK", disk.as_path()),
    ];
    let advertise = [address.clone()];
    let dir = scratch.path();
    let hub = Hub::start_with(dir, &data, ports[0], &advertise, &[], &environment).await?;
    let side = Side::join(dir, &hub, &address).await?;
    let before = hub.ready().await?;
    let process = hub.process.pid();
    let client = hub.client().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");

    let switch = disk.join("full");
    std::fs::write(&switch, "")?;
    let mut taken = 0;
    let refused = loop {
        match maps
            .create(&PostParams::default(), &map(&format!("m{taken}"))?)
            .await
        {
            Ok(_) => taken += 1,
            Err(kube::Error::Api(status)) => break status,
            Err(error) => bail!("no clear answer: {error}"),
        }
        ensure!(taken < 10_000, "the disk never fills");
    };
    ensure!(refused.code == 507, "{refused:?}");
    ensure!(refused.reason == "InsufficientStorage", "{refused:?}");
    ensure!(refused.message.contains("free some space"), "{refused:?}");
    wait_for("the hub not to be ready", LONG, async || {
        Ok(unready(&client).await.is_some())
    })
    .await?;

    let kubeconfig = hub.kubeconfig().display().to_string();
    let towline = Towline::new(dir)?;
    let said = towline.cli(["check", "--kubeconfig", &kubeconfig]).await?;
    let said = said.refused()?;
    let found = said
        .stderr
        .contains("readyz: the API server is not ready: store");
    ensure!(said.code == 7 && found, "{}", said.stderr);

    let why = async || {
        let of = format!("cluster/{CLUSTER}");
        let args = ["why", &of, "--kubeconfig", &kubeconfig, "-o", "json"];
        let said = towline.cli(args).await?;
        serde_json::from_str::<serde_json::Value>(&said.stdout).with_context(|| said.stderr)
    };
    let broken = why().await?["broken"].clone();
    ensure!(
        broken["stage"] == "hub" && broken["cause"] == "HubNotReady",
        "{broken}"
    );
    ensure!(broken["mend"]["commands"] == json!(["df -h"]), "{broken}");

    // Reads and renewals go on, and nothing of what was refused is there.
    let found = maps.list(&Default::default()).await?;
    let found = found.into_iter().filter_map(|map| map.metadata.name);
    let found = found.filter(|name| name.starts_with('m')).count();
    ensure!(found == taken, "{found} are there, {taken} were taken");
    for _ in 0..3 {
        hub.heartbeat().await?;
    }
    ensure!(unready(&client).await.is_some(), "it calls itself ready");
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");

    std::fs::remove_file(&switch)?;
    wait_for("the hub to be ready again", LONG, async || {
        let why = unready(&client).await;
        ensure!(why.is_none(), "{why:?}");
        Ok(true)
    })
    .await?;
    maps.create(&PostParams::default(), &map("freed")?).await?;
    hub.deliver("freed").await?;
    ensure!(side.holds("freed").await?, "nothing was delivered");
    ensure!(hub.process.pid() == process, "it was started anew");
    hub.heartbeat().await?;
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    let well = why().await?;
    ensure!(well["well"] == true, "{well}");
    passed(scratch, hub, side).await
}
