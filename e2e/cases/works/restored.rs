//! A hub that is restored from a backup: what it does not know any more stays in the member.

use super::apart::{converged, in_member, orphans};
use super::rig::{Rig, config_map};
use crate::env::{Parts, Revisions};
use anyhow::{Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;

/// The agent works while the hub is restored, and versions come again.
#[tokio::test(flavor = "multi_thread")]
async fn works_outlive_a_restored_hub() -> Result<()> {
    outlive_a_restored_hub(false, Revisions::GoBack).await
}

/// The agent is stopped while the hub is restored, and versions come again.
#[tokio::test(flavor = "multi_thread")]
async fn works_outlive_a_hub_restored_meanwhile() -> Result<()> {
    outlive_a_restored_hub(true, Revisions::GoBack).await
}

/// The hub is restored as Kubernetes advises: versions jump ahead, and only generations tell.
#[tokio::test(flavor = "multi_thread")]
async fn works_outlive_a_restored_hub_whose_versions_jump() -> Result<()> {
    outlive_a_restored_hub(false, Revisions::JumpAhead).await
}

/// Fifty Works that the backup does not know and fifty that it knows though they were deleted since:
/// nothing in the member is deleted, the deleted ones come back, and later changes arrive.
async fn outlive_a_restored_hub(stopped: bool, revisions: Revisions) -> Result<()> {
    let mut rig = Rig::start(&format!("works-restored-{stopped}-{revisions:?}")).await?;
    let parts = Parts::from_env()?;
    let running = rig.run().await?;
    let mut want = BTreeMap::new();
    for i in 0..100 {
        let name = format!("w{i}");
        rig.deliver(&name, &[config_map(&name, &json!({"k": "v1"}))])
            .await?;
        want.insert(name, json!("v1"));
    }
    converged(&rig, &want).await?;
    let before = want.clone();
    let backup = rig.lab.dir().join("backup");
    rig.lab.hub.backup(&backup).await?;

    for i in 0..50 {
        rig.delete_work(&format!("w{i}")).await?;
        want.remove(&format!("w{i}"));
        let name = format!("new{i}");
        rig.deliver(&name, &[config_map(&name, &json!({"k": "v1"}))])
            .await?;
        want.insert(name, json!("v1"));
    }
    // A manifest that came after the backup, in a Work that was there before it.
    let two = ["w60", "later"].map(|name| config_map(name, &json!({"k": "v1"})));
    rig.redeliver("w60", &two).await?;
    want.insert("later".into(), json!("v1"));
    converged(&rig, &want).await?;

    let hub = &mut rig.lab.hub;
    let running = if stopped {
        running.stop().await;
        hub.restore(&parts, &backup, revisions).await?;
        rig.run().await?
    } else {
        hub.restore(&parts, &backup, revisions).await?;
        running
    };
    // What either of the two hubs knew is there: the restored one's because it wants it.
    want.extend(before);
    converged(&rig, &want).await?;
    orphans(&running, 51).await?;
    let live = in_member(&rig.maps()).await?;
    ensure!(live == want, "something was deleted");

    rig.redeliver("w70", &[config_map("w70", &json!({"k": "v2"}))])
        .await?;
    want.insert("w70".into(), json!("v2"));
    rig.delete_work("w71").await?;
    want.remove("w71");
    // One of the Works that vanished is written anew: it has its object back.
    rig.deliver("new7", &[config_map("new7", &json!({"k": "v2"}))])
        .await?;
    want.insert("new7".into(), json!("v2"));
    converged(&rig, &want).await?;
    orphans(&running, 50).await?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}
