//! Whose budget is forgotten, by what a view tells of Clusters.

use super::*;
use crate::world::testing::{nobody, unreachable};
use common::time::SystemClock;
use serde_json::Value;
use std::time::Duration;

/// Nine or ten of the writes below.
const BUDGET: Budget = Budget {
    bytes: 24_000,
    window: Duration::from_secs(300),
};

/// A Cluster whose agent wrote its status just now, more than 2 KB of it, with what it says of its quarantine; the
/// annotation is the hub's.
fn written(version: u32, says: &str, withheld: bool) -> Value {
    let mut cluster = json!({
        "metadata": {"name": "m1", "uid": "u", "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "towline-agent", "operation": "Update", "subresource": "status",
                "time": format!("2026-01-01T00:00:{version:02}Z")}]},
        "spec": {"syncMode": "Pull"},
        "status": {"kubernetesVersion": "x".repeat(2_000),
            "conditions": [{"type": QUARANTINED, "status": says}]},
    });
    if withheld {
        cluster["metadata"]["annotations"] = json!({QUARANTINED_SINCE: "2026-01-01T00:00:00Z"});
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn an_agent_does_not_renew_its_budget_by_what_it_says() {
    for says in ["False", "True"] {
        let world = unreachable();
        let quarantine = Quarantine::new(nobody(), Arc::new(SystemClock), BUDGET);
        let over = Arc::clone(&quarantine.over);
        let controller = quarantine.watching(&world);
        let queue = controller.queue();
        world.clusters.listed(&[written(0, "False", false)]).await;
        assert_eq!((queue.len(), over.lock().len()), (0, 0), "at rest");

        // It floods, and says in between that it is quarantined.
        for version in 1..=20 {
            let says = if version % 2 == 0 { says } else { "False" };
            world.clusters.sent(&[written(version, says, false)]).await;
        }
        assert!(over.lock().contains("m1"), "the condition is {says}");
        assert_eq!(queue.len(), 1);

        // The hub takes its rights, and an operator gives them back: it begins anew.
        over.lock().clear();
        world.clusters.sent(&[written(21, "True", true)]).await;
        world.clusters.sent(&[written(22, "True", false)]).await;
        for version in 23..=28 {
            world
                .clusters
                .sent(&[written(version, "False", false)])
                .await;
        }
        assert_eq!(over.lock().len(), 0, "let in again");
    }
}

/// What the condition says wrongly is put right all the same.
#[tokio::test]
async fn a_condition_that_is_not_so_is_looked_at() {
    let world = unreachable();
    let controller = Quarantine::new(nobody(), Arc::new(SystemClock), BUDGET).watching(&world);
    let queue = controller.queue();
    world.clusters.listed(&[written(0, "False", false)]).await;
    world.clusters.sent(&[written(1, "True", false)]).await;
    let key = queue.try_next().expect("it is to be looked at");
    assert_eq!(&*key, "m1");
    queue.done(&key);
    world.clusters.sent(&[written(2, "False", false)]).await;
    assert!(queue.is_empty(), "it is as it should be");
}
