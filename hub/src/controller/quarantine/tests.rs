//! Whose budget is forgotten, by what a view tells of Clusters, and what becomes of one that is found over its budget.

use super::*;
use crate::controller::registration::withhold::played::Played;
use crate::world::testing::{nobody, unreachable};
use common::identity::RegistrationId;
use common::labels::{CLUSTER_LABEL, REGISTRATION_ID};
use common::time::SystemClock;
use serde_json::Value;
use std::time::Duration;

/// Nine or ten of the writes below.
const BUDGET: Budget = Budget {
    bytes: 24_000,
    window: Duration::from_secs(300),
};

fn by(client: Client) -> Quarantine {
    Quarantine::new(client, Arc::new(SystemClock), BUDGET, Arc::default())
}

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
        let quarantine = by(nobody());
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
        assert!(over.lock().contains_key("m1"), "the condition is {says}");
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
    let controller = by(nobody()).watching(&world);
    let queue = controller.queue();
    world.clusters.listed(&[written(0, "False", false)]).await;
    world.clusters.sent(&[written(1, "True", false)]).await;
    let key = queue.try_next().expect("it is to be looked at");
    assert_eq!(&*key, "m1");
    queue.done(&key);
    world.clusters.sent(&[written(2, "False", false)]).await;
    assert!(queue.is_empty(), "it is as it should be");
}

/// Rights that somebody gives to an agent that is quarantined are taken again, with the watches that they opened.
#[tokio::test(start_paused = true)]
async fn what_carries_the_rights_of_the_quarantined_is_looked_at() {
    let world = unreachable();
    let controller = by(nobody()).watching(&world);
    let queue = controller.queue();
    let mut free = written(0, "False", false);
    free["metadata"]["name"] = json!("m2");
    let clusters = [written(0, "True", true), free];
    world.clusters.listed(&clusters).await;
    queue.done(&queue.next().await);
    let binding = |cluster: &str, version: u32| {
        json!({"metadata": {"name": "towline:agent", "namespace": format!("karmada-es-{cluster}"),
            "resourceVersion": version.to_string(), "labels": {CLUSTER_LABEL: cluster}}})
    };
    let [_, _, _, bindings] = &world.rights;
    bindings.listed(&[binding("m2", 1), binding("m1", 1)]).await;
    assert_eq!(&*queue.next().await, "m1");
    queue.done(&"m1".into());
    assert!(queue.is_idle(), "m2 has its rights");
    bindings.sent(&[binding("m1", 2)]).await;
    assert_eq!(&*queue.next().await, "m1");
}

/// m1 as it is when its agent works, with annotations besides.
async fn registered(annotations: &Value) -> Played {
    let id = RegistrationId::of_public_key(b"k1");
    let registration = Registration {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_uid: "u".to_owned(),
        grant: Grant::InForce(id.clone()),
    };
    let mut all = json!({REGISTRATION_ID: id.as_str()});
    json_patch::merge(&mut all, annotations);
    Played::holding(&registration, &all).await
}

/// The reason of the condition.
fn shown(played: &Played) -> Value {
    played.cluster()["status"]["conditions"][0]["reason"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_condition_is_shown_when_the_agent_reads_nothing_any_more() {
    let played = registered(&json!({QUARANTINED_SINCE: "2026-01-01T00:00:00Z"})).await;
    let quarantine = by(played.client());
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    let whole = ["note", "unbind", "ask", "close", "forget", "show"];
    assert_eq!(played.asked(), whole);
    assert_eq!(shown(&played), REASON_BY_HAND);
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(played.asked(), Vec::<&str>::new(), "at rest");
}

/// A condition that the API server does not take, for what the agent wrote beside it, changes nothing about who is
/// quarantined and why.
#[tokio::test(start_paused = true)]
async fn whoever_was_let_in_is_not_quarantined_again_for_what_it_wrote_before() {
    for is_let_in in [true, false] {
        let played = registered(&json!({})).await;
        let quarantine = by(played.client());
        quarantine
            .over
            .lock()
            .insert("m1".to_owned(), Found::Unmarked);
        played.refuse_statuses(true);
        let refused = quarantine.reconcile(&"m1".into()).await;
        assert!(refused.is_err());
        let whole = ["mark", "note", "unbind", "ask", "close", "forget", "show"];
        assert_eq!(played.asked(), whole);
        let marked = &played.cluster()["metadata"]["annotations"];
        assert!(marked[QUARANTINED_SINCE].is_string());
        assert_eq!(marked[WROTE_TOO_MUCH_SINCE], marked[QUARANTINED_SINCE]);
        played.refuse_statuses(false);
        if is_let_in {
            played.annotate(&json!({QUARANTINED_SINCE: null}));
        }
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        if is_let_in {
            assert_eq!(played.asked(), ["bind"]);
        } else {
            assert_eq!(played.asked(), ["show"]);
            assert_eq!(shown(&played), WROTE_TOO_MUCH, "it is still known");
        }
        assert!(quarantine.over.lock().is_empty());
    }
}

/// A hub that is started between the mark and the condition knows only what the Cluster says.
#[tokio::test(start_paused = true)]
async fn why_an_agent_is_quarantined_outlives_the_hub() {
    let since = "2026-01-01T00:00:00Z";
    for (marked, reason) in [
        (since, WROTE_TOO_MUCH),
        // Left from an earlier quarantine.
        ("2025-01-01T00:00:00Z", REASON_BY_HAND),
    ] {
        let said = json!({QUARANTINED_SINCE: since, WROTE_TOO_MUCH_SINCE: marked});
        let played = registered(&said).await;
        let quarantine = by(played.client());
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        assert_eq!(shown(&played), reason, "{marked}");
    }
}

/// Where another binding lets the agent read its Works, the condition says so, and what waits for it goes on.
#[tokio::test(start_paused = true)]
async fn rights_that_the_hub_cannot_take_are_named_in_the_condition() {
    let played = registered(&json!({QUARANTINED_SINCE: "2026-01-01T00:00:00Z"})).await;
    let quarantine = by(played.client());
    let asked = || {
        let mut asked = played.asked();
        asked.dedup();
        asked
    };
    let message = || {
        let cluster = played.cluster();
        let condition = &cluster["status"]["conditions"][0];
        assert_eq!(condition["type"], QUARANTINED);
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], REASON_BY_HAND);
        condition["message"].as_str().unwrap_or_default().to_owned()
    };
    let left = "; its rights are not all gone yet: failed to see the rights of ";
    played.allow(true);
    for want in [vec!["note", "unbind", "ask", "show"], vec!["ask"]] {
        let refused = quarantine.reconcile(&"m1".into()).await;
        assert!(matches!(refused, Err(Error::Watches(_))), "{refused:?}");
        assert_eq!(asked(), want);
        assert!(message().contains(left), "{}", message());
    }
    played.allow(false);
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(asked(), ["ask", "close", "forget", "show"]);
    assert!(!message().contains("not all gone"), "{}", message());
}
