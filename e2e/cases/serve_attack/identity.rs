//! Identities that end while something of them is open, on a hub that runs as a process.

use anyhow::{Context as _, Result, ensure};
use futures::AsyncBufReadExt as _;
use kube::Client;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::wire::{connector, stall};
use super::{Rig, SOON, USER};
use crate::env::{ask, binary, client, run, wait_for};

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";

/// A watch that is read until it ends.
async fn watch(client: &Client) -> Result<JoinHandle<()>> {
    let request = http::Request::get(format!("{MAPS}?watch=1")).body(Vec::new())?;
    let mut stream = client.request_stream(request).await?;
    Ok(tokio::spawn(async move {
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            line.clear();
        }
    }))
}

/// A kubeconfig that was lost is shut out by the command beside the hub, on its open connections too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_kubeconfig_is_shut_out_at_once() -> Result<()> {
    let rig = Rig::begin("serve-attack-revoke").await?;
    let file = rig.scratch.join("lost.kubeconfig");
    let lost = rig.plane.kubeconfig_for(&file, USER, &["system:masters"])?;
    let kept = client(&lost).await?;
    let open = watch(&kept).await?;
    ask(&kept, "GET", MAPS, None).await?.ok()?;
    let twin = watch(&rig.bob).await?;
    let revoke = async |words: &[&str]| -> Result<String> {
        let mut command = tokio::process::Command::new(binary("towline-hub")?);
        command
            .args(["revoke", "--data-dir"])
            .arg(rig.plane.data_dir());
        command.args(words);
        Ok(run(command, None, SOON).await?.ok()?.stdout)
    };
    let said = revoke(&["--kubeconfig", &lost.display().to_string()]).await?;
    ensure!(said.contains("is revoked"), "{said}");
    timeout(SOON, open).await.context("the watch goes on")??;
    wait_for("the lost kubeconfig to be refused", SOON, async || {
        Ok(ask(&kept, "GET", MAPS, None).await?.code == 401)
    })
    .await?;
    let anew = client(&lost).await?;
    ensure!(
        ask(&anew, "GET", MAPS, None).await?.code == 401,
        "a new connection gets in"
    );
    // The same user by another certificate goes on.
    ensure!(!twin.is_finished(), "the twin's watch has ended");
    // It is on the list by its number, by which it can be named too; and its user can be shut out as a whole.
    let listed = revoke(&["--list"]).await?;
    let serial = listed
        .trim()
        .strip_prefix("serial ")
        .context(listed.clone())?;
    let said = revoke(&["--serial", serial]).await?;
    ensure!(said.contains(serial), "{said}");
    twin.abort();
    let file = rig.scratch.join("carol.kubeconfig");
    let carol = rig
        .plane
        .kubeconfig_for(&file, "carol", &["system:masters"])?;
    let carol = client(&carol).await?;
    ask(&carol, "GET", MAPS, None).await?.ok()?;
    revoke(&["--user", "carol"]).await?;
    wait_for("the user to be refused", SOON, async || {
        Ok(ask(&carol, "GET", MAPS, None).await?.code == 401)
    })
    .await?;
    rig.end().await
}

/// Strangers that take no answer are cut off, and meanwhile nobody else is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_taken_end_their_connection() -> Result<()> {
    let rig = Rig::begin("serve-attack-stalled").await?;
    let connector = connector(&rig.plane, true, "h2")?;
    let mut stalled = connector.connect().await?;
    let cut_off = tokio::spawn(async move { stall(&mut stalled, "/version", 200).await });
    wait_for("the connection to be cut off", SOON, async || {
        for path in ["/version", "/livez", "/readyz"] {
            let request = super::wire::request("GET", path, "");
            super::wire::exchange(&rig.plane, true, &request)
                .await?
                .is(&[200])?;
        }
        Ok(cut_off.is_finished())
    })
    .await?;
    rig.end().await
}
