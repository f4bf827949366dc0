//! Whose budget is forgotten, by what a view tells of Clusters, and what becomes of one that is found over its budget.

use super::*;
use crate::controller::registration::withhold::played::{Happening, Played};
use crate::controller::rights::Rights;
use crate::world::testing::{nobody, unreachable};
use common::identity::RegistrationId;
use common::labels::{CLOSING_WATCHES, CLUSTER_LABEL, REGISTRATION_ID};
use common::time::SystemClock;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Nine or ten of the writes below.
const BUDGET: Budget = Budget {
    bytes: 24_000,
    window: Duration::from_secs(300),
};

/// When a quarantine began by somebody's hand, and when m1 was found over its budget.
const SINCE: &str = "2026-01-01T00:00:00Z";
const FOUND: &str = "2026-01-01T00:00:09Z";

fn by(client: Client) -> Quarantine {
    let shared = (Claims::default(), Arc::default());
    Quarantine::new(client, Arc::new(SystemClock), BUDGET, shared)
}

/// One that has found m1 over its budget.
fn finding(played: &Played) -> Quarantine {
    let quarantine = by(played.client());
    let found = ("m1".to_owned(), FOUND.to_owned());
    quarantine.over.lock().extend([found]);
    quarantine
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
        cluster["metadata"]["annotations"] = json!({QUARANTINED_SINCE: SINCE});
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
        world.clusters.sent(&[written(21, "True", true)]).await;
        assert_eq!(over.lock().len(), 0, "that is done");
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
    let played = registered(&json!({QUARANTINED_SINCE: SINCE})).await;
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
        let quarantine = finding(&played);
        played.refuse_statuses(true);
        let refused = quarantine.reconcile(&"m1".into()).await;
        assert!(refused.is_err());
        let whole = ["mark", "note", "unbind", "ask", "close", "forget", "show"];
        assert_eq!(played.asked(), whole);
        let marked = &played.cluster()["metadata"]["annotations"];
        assert_eq!(marked[QUARANTINED_SINCE], FOUND);
        assert_eq!(marked[WROTE_TOO_MUCH_SINCE], FOUND);
        assert!(quarantine.over.lock().is_empty(), "it is marked");
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
    }
}

/// A mark that was written is one, whether or not that was heard of.
#[tokio::test(start_paused = true)]
async fn a_mark_whose_answer_is_lost_is_written_once() {
    for is_let_in in [true, false] {
        let played = registered(&json!({})).await;
        let quarantine = finding(&played);
        played.at_next("mark", Happening::Lost);
        let lost = quarantine.reconcile(&"m1".into()).await;
        assert!(lost.is_err());
        assert_eq!(played.asked(), ["mark"]);
        if is_let_in {
            played.annotate(&json!({QUARANTINED_SINCE: null}));
        }
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        if is_let_in {
            assert_eq!(played.asked(), Vec::<&str>::new());
            let left = played.cluster();
            assert_eq!(
                left["metadata"]["annotations"][QUARANTINED_SINCE],
                Value::Null
            );
        } else {
            let whole = ["note", "unbind", "ask", "close", "forget", "show"];
            assert_eq!(played.asked(), whole);
            assert_eq!(shown(&played), WROTE_TOO_MUCH);
        }
        assert!(quarantine.over.lock().is_empty());
    }
}

/// What the view does not show in between, a quarantine that was lifted at once, is one all the same.
#[tokio::test(start_paused = true)]
async fn whoever_was_marked_begins_anew() {
    let world = unreachable();
    let played = registered(&json!({})).await;
    let quarantine = finding(&played);
    locked(&quarantine.tally).write("m1", BUDGET.bytes);
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    let over = Arc::clone(&quarantine.over);
    let _controller = quarantine.watching(&world);
    world.clusters.listed(&[written(0, "False", false)]).await;
    world.clusters.sent(&[written(1, "False", false)]).await;
    assert!(over.lock().is_empty());
}

/// Nothing is left of a Cluster that is gone, for another of its name.
#[tokio::test(start_paused = true)]
async fn whoever_comes_after_a_cluster_that_wrote_too_much_begins_anew() {
    let world = unreachable();
    let quarantine = by(nobody());
    let over = Arc::clone(&quarantine.over);
    let _controller = quarantine.watching(&world);
    world.clusters.listed(&[written(0, "False", false)]).await;
    for version in 1..=20 {
        let flood = [written(version, "False", false)];
        world.clusters.sent(&flood).await;
    }
    assert!(over.lock().contains_key("m1"));
    world.clusters.listed(&[]).await;
    assert!(over.lock().is_empty());
}

/// Somebody's own word is not taken for the hub's: neither where the agent was found to write too much, nor where the
/// condition says so still, or by the agent's own word.
#[tokio::test(start_paused = true)]
async fn whoever_is_quarantined_by_hand_is_told_as_that() {
    let played = registered(&json!({QUARANTINED_SINCE: SINCE})).await;
    let quarantine = finding(&played);
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(shown(&played), REASON_BY_HAND);
    assert!(quarantine.over.lock().is_empty());

    let played = registered(&json!({})).await;
    let quarantine = finding(&played);
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(shown(&played), WROTE_TOO_MUCH);
    played.annotate(&json!({QUARANTINED_SINCE: null}));
    played.annotate(&json!({QUARANTINED_SINCE: SINCE}));
    quarantine.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(shown(&played), REASON_BY_HAND);
}

/// Whoever is let in while its rights are taken is not shown as one that has none.
#[tokio::test(start_paused = true)]
async fn a_quarantine_that_is_lifted_before_it_is_shown_is_not_shown() {
    for at in ["note", "ask", "close", "forget"] {
        let played = registered(&json!({})).await;
        let quarantine = finding(&played);
        let lifted = json!({QUARANTINED_SINCE: null});
        played.at_next(at, Happening::Annotated(lifted));
        let again = quarantine.reconcile(&"m1".into()).await;
        let at_once = Requeue::After(Duration::ZERO);
        assert_eq!(again.expect("no error"), at_once, "{at}");
        assert!(!played.asked().contains(&"show"), "{at}");
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        assert_eq!(played.asked(), ["bind", "forget"], "{at}");
        assert_eq!(shown(&played), Value::Null, "{at}");
    }
}

/// Rights are not given by what was read before they were taken.
#[tokio::test(start_paused = true)]
async fn who_gives_rights_and_who_takes_them_wait_for_each_other() {
    let id = RegistrationId::of_public_key(b"k1");
    let suspended = Registration {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_uid: "u".to_owned(),
        grant: Grant::Suspended,
    };
    let said = json!({REGISTRATION_ID: id.as_str()});
    let played = Played::holding(&suspended, &said).await;
    let quarantine = by(played.client());
    let rights = Rights::new(played.client(), quarantine.claims.clone());
    let (come, go) = (CancellationToken::new(), CancellationToken::new());
    let held = Happening::Held {
        come: come.clone(),
        go: go.clone(),
    };
    played.at_next("bind", held);
    let given = tokio::spawn(async move { rights.reconcile(&"m1".into()).await });
    come.cancelled().await;
    played.annotate(&json!({QUARANTINED_SINCE: SINCE}));
    let mut taken = tokio::spawn(async move { quarantine.reconcile(&"m1".into()).await });
    let early = timeout(Duration::from_secs(60), &mut taken).await;
    assert!(early.is_err(), "it waits");
    go.cancel();
    given.await.expect("it ends").expect("no error");
    taken.await.expect("it ends").expect("no error");
    let whole = ["bind", "note", "unbind", "ask", "close", "forget", "show"];
    assert_eq!(played.asked(), whole);
}

/// After whichever request a hub dies, the next one shows the condition after the watches were ended that were opened
/// while there were rights.
#[tokio::test(start_paused = true)]
async fn a_hub_that_dies_has_the_next_one_end_what_it_took() {
    let mut kills = 0;
    loop {
        let played = registered(&json!({})).await;
        played.answers(Some(kills));
        let killed = finding(&played).reconcile(&"m1".into()).await;
        played.answers(None);
        finding(&played)
            .reconcile(&"m1".into())
            .await
            .expect("no error");
        let asked = played.asked();
        let last = |word: &str| asked.iter().rposition(|it| *it == word);
        let (unbound, closed, shown) = (last("unbind"), last("close"), last("show"));
        assert!(unbound.is_some(), "{kills}: {asked:?}");
        assert!(unbound < closed && closed < shown, "{kills}: {asked:?}");
        let annotations = &played.cluster()["metadata"]["annotations"];
        assert_eq!(annotations[CLOSING_WATCHES], Value::Null, "{kills}");
        if killed.is_ok() {
            break;
        }
        kills += 1;
    }
    assert!(kills > 15, "{kills}");
}

/// A hub that is started between the mark and the condition knows only what the Cluster says.
#[tokio::test(start_paused = true)]
async fn why_an_agent_is_quarantined_outlives_the_hub() {
    for (marked, reason) in [
        (SINCE, WROTE_TOO_MUCH),
        // Left from an earlier quarantine.
        ("2025-01-01T00:00:00Z", REASON_BY_HAND),
    ] {
        let said = json!({QUARANTINED_SINCE: SINCE, WROTE_TOO_MUCH_SINCE: marked});
        let played = registered(&said).await;
        let quarantine = by(played.client());
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        assert_eq!(shown(&played), reason, "{marked}");
    }
}

/// Where another binding lets the agent read its Works, the condition says so, and what waits for it goes on.
#[tokio::test(start_paused = true)]
async fn rights_that_the_hub_cannot_take_are_named_in_the_condition() {
    let played = registered(&json!({QUARANTINED_SINCE: SINCE})).await;
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
