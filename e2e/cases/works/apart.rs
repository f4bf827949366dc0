//! An agent that is cut off from its hub: it goes on by what it stored, and converges when the hub is
//! back.

use super::rig::{Rig, Running, condition, config_map};
use crate::env::{Relay, wait_for};
use anyhow::{Result, ensure};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Works before the cut.
const WORKS: usize = 260;
/// How long a machine that builds beside the lab may take for hundreds of Works.
const LONG: Duration = Duration::from_secs(240);

/// The data of each object of ours in the member, by name.
pub(super) async fn in_member(maps: &Api<DynamicObject>) -> Result<BTreeMap<String, Value>> {
    let ours = ListParams::default().labels("karmada.io/managed=true");
    let objects = maps.list(&ours).await?;
    let data = objects.into_iter().filter_map(|object| {
        let value = object.data["data"]["k"].clone();
        Some((object.metadata.name?, value))
    });
    Ok(data.collect())
}

/// Waits until every Work is applied, none is being deleted, and the member holds exactly `want`.
pub(super) async fn converged(rig: &Rig, want: &BTreeMap<String, Value>) -> Result<()> {
    wait_for("the member to hold what the hub wants", LONG, || async {
        let works = rig.works().list(&ListParams::default()).await?;
        let late: Vec<&str> = works
            .iter()
            .filter(|work| {
                let applied = condition(&work.data["status"], "Applied");
                work.metadata.deletion_timestamp.is_some()
                    || applied.is_none_or(|c| c["status"] != "True")
            })
            .filter_map(|work| work.metadata.name.as_deref())
            .collect();
        ensure!(late.is_empty(), "{} Works, such as {}", late.len(), late[0]);
        let live = in_member(&rig.maps()).await?;
        for name in live.keys().chain(want.keys()) {
            let (is, should) = (live.get(name), want.get(name));
            ensure!(is == should, "{name} is {is:?} and should be {should:?}");
        }
        Ok(true)
    })
    .await
}

/// Somebody changes an object of the member, and somebody deletes another: both are healed.
async fn drift_is_healed(rig: &Rig, changed: &str, deleted: &str) -> Result<()> {
    let maps = rig.maps();
    let patch = Patch::Merge(json!({"data": {"k": "drift"}}));
    maps.patch(changed, &PatchParams::default(), &patch).await?;
    let before = maps.get(deleted).await?.metadata.uid;
    maps.delete(deleted, &DeleteParams::default()).await?;
    wait_for("drift to be healed without the hub", LONG, || async {
        let healed = maps.get(changed).await?.data["data"]["k"] == "v1";
        let again = maps.get_opt(deleted).await?.and_then(|o| o.metadata.uid);
        ensure!(healed, "{changed} is not healed");
        ensure!(again.is_some() && again != before, "{deleted} is not there");
        Ok(true)
    })
    .await
}

fn work_of(i: usize, value: &str) -> Vec<Value> {
    vec![config_map(&format!("m{i}"), &json!({"k": value}))]
}

/// The hub falls silent, then refuses connections, for an agent that is restarted meanwhile, in order
/// and by a kill. Drift is healed all the time; afterwards hundreds of changes, deletions, renames and
/// manifests that left are caught up with.
#[tokio::test(flavor = "multi_thread")]
async fn works_apart_from_the_hub() -> Result<()> {
    let rig = Rig::start("works-apart").await?;
    let relay = Relay::start(&rig.lab.hub.address()).await?;
    let mut running = rig.run_by(&relay).await?;
    let mut want = BTreeMap::new();
    for i in 0..WORKS {
        let mut manifests = work_of(i, "v1");
        want.insert(format!("m{i}"), json!("v1"));
        if (240..250).contains(&i) {
            manifests.push(config_map(&format!("second{i}"), &json!({"k": "v1"})));
            want.insert(format!("second{i}"), json!("v1"));
        }
        rig.deliver(&format!("w{i}"), &manifests).await?;
    }
    converged(&rig, &want).await?;

    relay.black_hole(true);
    drift_is_healed(&rig, "m200", "m201").await?;
    running.stop().await;
    running = rig.run_by(&relay).await?;
    drift_is_healed(&rig, "m202", "m203").await?;
    relay.refuse(true);
    relay.close_established();
    drift_is_healed(&rig, "m204", "m205").await?;
    running.kill().await;
    running = rig.run_by(&relay).await?;
    drift_is_healed(&rig, "m206", "m207").await?;

    for i in 0..100 {
        rig.redeliver(&format!("w{i}"), &work_of(i, "v2")).await?;
        want.insert(format!("m{i}"), json!("v2"));
    }
    for i in 100..200 {
        rig.delete_work(&format!("w{i}")).await?;
        want.remove(&format!("m{i}"));
    }
    for i in 240..250 {
        // A manifest leaves, and a Work is renamed.
        rig.redeliver(&format!("w{i}"), &work_of(i, "v1")).await?;
        want.remove(&format!("second{i}"));
        rig.deliver(&format!("renamed{i}"), &work_of(i + 10, "v1"))
            .await?;
        rig.delete_work(&format!("w{}", i + 10)).await?;
    }
    let kept = rig.maps().get("m250").await?.metadata.uid;
    relay.black_hole(false);
    relay.refuse(false);
    let begun = Instant::now();
    converged(&rig, &want).await?;
    println!(
        "100 changes, 100 deletions, 10 renames and 10 manifests that left: converged {:.1} s after \
         the hub was back",
        begun.elapsed().as_secs_f64()
    );
    let after = rig.maps().get("m250").await?.metadata.uid;
    ensure!(
        kept == after,
        "an object whose Work was renamed was made anew"
    );
    orphans(&running, 0).await?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}

/// Once the hub said that the registration is gone, nothing is healed by the stored set, until a hub
/// lists Works again.
#[tokio::test(flavor = "multi_thread")]
async fn works_rest_when_the_registration_is_gone() -> Result<()> {
    let rig = Rig::start("works-gone").await?;
    let relay = Relay::start(&rig.lab.hub.address()).await?;
    let running = rig.run_by(&relay).await?;
    rig.deliver("w", &work_of(1, "v1")).await?;
    let want = BTreeMap::from([("m1".to_owned(), json!("v1"))]);
    converged(&rig, &want).await?;
    running.engine.stop_healing().await;
    running.stop().await;

    let patch = Patch::Merge(json!({"data": {"k": "drift"}}));
    let maps = rig.maps();
    maps.patch("m1", &PatchParams::default(), &patch).await?;
    relay.refuse(true);
    let running = rig.run_by(&relay).await?;
    // What it does on its own it begins before it says that the hub is away.
    wait_for("the agent to miss its hub", LONG, || async {
        let errors = running.context.errors.text().unwrap_or_default();
        Ok(errors.contains("works:") && running.engine.is_idle())
    })
    .await?;
    ensure!(maps.get("m1").await?.data["data"]["k"] == "drift", "healed");
    relay.refuse(false);
    converged(&rig, &want).await?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}

/// Waits until an agent counts that many orphans.
pub(super) async fn orphans(running: &Running, want: i64) -> Result<()> {
    wait_for(&format!("a report of {want} orphans"), LONG, || async {
        let report = running.context.orphans.borrow().clone();
        let count = report.as_ref().map(|report| report.count);
        ensure!(count == Some(want), "{report:?}");
        Ok(true)
    })
    .await
}
