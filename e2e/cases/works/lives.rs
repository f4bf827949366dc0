//! An agent that ends and starts again: nothing is written twice, nothing is lost.

use super::rig::{Rig, SOON, config_map};
use crate::env::wait_for;
use anyhow::{Result, ensure};
use kube::api::ListParams;
use serde_json::json;

/// Works of the tests below.
const WORKS: usize = 60;

async fn all_applied(rig: &Rig, want: usize) -> Result<()> {
    wait_for("Applied on every Work", SOON * 2, || async {
        let works = rig.works().list(&ListParams::default()).await?;
        let applied = works.iter().filter(|work| {
            work.data["status"]["conditions"]
                .as_array()
                .is_some_and(|all| {
                    all.iter()
                        .any(|c| c["type"] == "Applied" && c["status"] == "True")
                })
        });
        Ok(works.items.len() == want && applied.count() == want)
    })
    .await
}

/// After a restart what is as wanted costs no write, what drifted meanwhile is healed, and what left a
/// Work meanwhile is not forgotten by its deletion.
#[tokio::test(flavor = "multi_thread")]
async fn works_restart_writes_nothing() -> Result<()> {
    let rig = Rig::start("works-restart").await?;
    let first = rig.run().await?;
    for i in 0..WORKS {
        let name = format!("w{i}");
        rig.deliver(&name, &[config_map(&name, &json!({"k": "v"}))])
            .await?;
    }
    all_applied(&rig, WORKS).await?;
    first.stop().await;

    let second = rig.run().await?;
    wait_for("the second life to know everything", SOON, || async {
        let census = second.engine.census();
        Ok(census.applied == WORKS && second.engine.is_idle())
    })
    .await?;
    let (member, hub) = (second.member.written(), second.hub.written());
    ensure!(member.is_empty(), "{member:?}");
    ensure!(hub.is_empty(), "{hub:?}");
    // A new Work is not queued behind the others, and drift of the meantime is seen.
    second.stop().await;
    let patch = kube::api::Patch::Merge(json!({"data": {"k": "drift"}}));
    rig.maps()
        .patch("w7", &kube::api::PatchParams::default(), &patch)
        .await?;
    let third = rig.run().await?;
    rig.live(&rig.maps(), "w7", |v| v["data"]["k"] == "v")
        .await?;
    let written = third.member.written();
    ensure!(written.len() == 1, "{written:?}");
    third.stop().await;
    rig.passed().await;
    Ok(())
}

/// Killed again and again while Works come and go, the agent ends where it should.
#[tokio::test(flavor = "multi_thread")]
async fn works_survive_kills() -> Result<()> {
    let rig = Rig::start("works-kills").await?;
    for round in 0..6_u64 {
        let running = rig.run().await?;
        for i in 0..20_u64 {
            let name = format!("k{round}-{i}");
            rig.deliver(&name, &[config_map(&name, &json!({"k": "v"}))])
                .await?;
            if round > 0 && i % 2 == 0 && i < 2 + round * 2 {
                rig.delete_work(&format!("k{}-{i}", round - 1)).await?;
            }
            // Somewhere in the middle of it, another place each round.
            if i == 3 + round * 2 {
                break;
            }
        }
        running.kill().await;
    }
    let last = rig.run().await?;
    let kept = rig.works().list(&ListParams::default()).await?;
    let kept: Vec<String> = kept
        .iter()
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .filter_map(|work| work.metadata.name.clone())
        .collect();
    all_applied(&rig, kept.len()).await?;
    wait_for("exactly the objects of the Works", SOON, || async {
        let selector = ListParams::default().labels("karmada.io/managed=true");
        let mut live: Vec<String> = rig
            .maps()
            .list_metadata(&selector)
            .await?
            .iter()
            .filter_map(|m| m.metadata.name.clone())
            .collect();
        let mut want = kept.clone();
        live.sort();
        want.sort();
        Ok(live == want)
    })
    .await?;
    last.stop().await;
    rig.passed().await;
    Ok(())
}
