//! What is written when rights are taken and given, in which order, and what of it is left after a kill.

use super::played::{Happening, Played};
use super::*;
use crate::controller::quarantine::{Budget, Quarantine};
use crate::controller::registration::decide::Step;
use crate::controller::registration::observe::ClusterFacts;
use crate::controller::registration::{Claims, apply};
use crate::controller::rights::Rights;
use crate::token_secret::Origin;
use common::controller::Reconcile as _;
use common::labels::REGISTERED_BY;
use common::time::SystemClock;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::Value;
use std::sync::Arc;

const SINCE: &str = "2026-01-01T00:00:00Z";
/// The token that a registration comes by.
const ORIGIN: &str = "2026-01-01T00:00:00Z abcdef";
/// A registration that was replaced by the one in force.
const EARLIER: &str = "0123456789abcdef0123456789abcdef";

fn id() -> RegistrationId {
    RegistrationId::of_public_key(b"k1")
}

fn registration(grant: Grant) -> Registration {
    Registration {
        cluster: ClusterName::parse("m1").expect("valid"),
        cluster_uid: "u".to_owned(),
        grant,
    }
}

/// The annotations of a Cluster, with what else they say.
fn annotations(more: &[(&str, &str)]) -> Value {
    let mut all = json!({REGISTRATION_ID: id().as_str()});
    for (key, value) in more {
        all[*key] = json!(value);
    }
    all
}

type Annotations<'a> = Vec<(&'a str, &'a str)>;

fn metadata(annotations: &Value) -> ObjectMeta {
    let read =
        json!({"name": "m1", "uid": "u", "resourceVersion": "7", "annotations": annotations});
    serde_json::from_value(read).expect("metadata")
}

/// Takes the rights of m1, which has been read with these annotations.
async fn taken(played: &Played, said: &Value) -> Result<bool, Error> {
    let (watches, claim) = (Rounds::default(), Claim::default());
    let suspended = registration(Grant::Suspended);
    take(
        &played.client(),
        &watches,
        claim,
        &metadata(said),
        &suspended,
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn whoever_loses_its_rights_loses_the_watches_that_they_opened() {
    let ours = id();
    let (bound, empty) = (Grant::InForce(ours.clone()), Grant::Suspended);
    let held = (QUARANTINED_SINCE, SINCE);
    let cases: [(&str, &Grant, Annotations<'_>, &[&str]); 6] = [
        (
            "it has rights",
            &bound,
            vec![held],
            &["note", "unbind", "ask", "close", "forget"],
        ),
        ("it has none", &empty, vec![held], &[]),
        (
            "the hub died before the bindings were emptied",
            &bound,
            vec![held, (CLOSING_WATCHES, ours.as_str())],
            &["unbind", "ask", "close", "forget"],
        ),
        (
            "the hub died after that",
            &empty,
            vec![held, (CLOSING_WATCHES, ours.as_str())],
            &["ask", "close", "forget"],
        ),
        (
            "it has replaced another whose watches are open",
            &bound,
            vec![held, (CLOSING_WATCHES, EARLIER)],
            &["unbind", "ask", "ask", "close", "forget"],
        ),
        (
            "whose watches are open is not known",
            &empty,
            vec![held, (CLOSING_WATCHES, "unknown")],
            &["ask", "close", "forget"],
        ),
    ];
    for (case, had, said, want) in cases {
        let said = annotations(&said);
        let played = Played::holding(&registration(had.clone()), &said).await;
        assert!(taken(&played, &said).await.expect(case), "{case}");
        assert_eq!(played.asked(), want, "{case}");
        let left = played.cluster()["metadata"]["annotations"].clone();
        assert_eq!(left, annotations(&[held]), "{case}");
        // At rest nothing is written.
        assert!(taken(&played, &left).await.expect(case), "{case}");
        assert_eq!(played.asked(), Vec::<&str>::new(), "{case}");
    }
}

/// What others write in the meantime is no reason to end the watches again.
#[tokio::test(start_paused = true)]
async fn watches_are_ended_once_whoever_writes_the_cluster_meanwhile() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    let once = ["note", "unbind", "ask", "close", "forget"];
    let twice = ["note", "unbind", "ask", "close", "forget", "forget"];
    for (at, want) in [
        ("ask", &once[..]),
        ("close", &once[..]),
        ("forget", &twice[..]),
    ] {
        let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
        let other = json!({"example.com/other": "x"});
        played.at_next(at, Happening::Annotated(other));
        assert!(taken(&played, &said).await.expect(at), "{at}");
        assert_eq!(played.asked(), want, "{at}");
        let left = &played.cluster()["metadata"]["annotations"];
        assert_eq!(left[CLOSING_WATCHES], Value::Null, "{at}");
        assert_eq!(left["example.com/other"], "x", "{at}");
    }
}

/// The watches that a round ends are those of before: whose rights were given back since, or are another's, has more.
#[tokio::test(start_paused = true)]
async fn a_quarantine_that_is_another_by_now_is_looked_at_again() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    for meanwhile in [
        json!({QUARANTINED_SINCE: null}),
        json!({QUARANTINED_SINCE: "2026-01-01T00:00:01Z"}),
        json!({CLOSING_WATCHES: null}),
        json!({REGISTRATION_ID: EARLIER}),
    ] {
        for (at, asked) in [("close", 4), ("forget", 5)] {
            let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
            played.at_next(at, Happening::Annotated(meanwhile.clone()));
            let taken = taken(&played, &said).await.expect("no error");
            assert!(!taken, "{at}: {meanwhile}");
            assert_eq!(played.asked().len(), asked, "{at}: {meanwhile}");
            let mut want = said.clone();
            want[CLOSING_WATCHES] = json!(id().as_str());
            json_patch::merge(&mut want, &meanwhile);
            let left = &played.cluster()["metadata"]["annotations"];
            assert_eq!(*left, want, "{at}: what is noted stays");
        }
    }
}

/// One that was let in while its rights went is not told as one that keeps them.
#[tokio::test(start_paused = true)]
async fn rights_that_were_given_back_meanwhile_are_no_failure() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
    played.allow(true);
    let lifted = json!({QUARANTINED_SINCE: null});
    played.at_next("ask", Happening::Annotated(lifted));
    assert!(!taken(&played, &said).await.expect("no error"));
}

/// Giving them is many writes, of which those of Works are the last.
#[tokio::test(start_paused = true)]
async fn rights_that_were_given_in_part_are_taken_as_all_are() {
    let said = annotations(&[]);
    let played = Played::holding(&registration(Grant::Suspended), &said).await;
    let in_force = registration(Grant::InForce(id()));
    played.at_next("bind", Happening::Cut);
    let given = give(&played.client(), &metadata(&said), &in_force).await;
    assert!(given.is_err());
    let held = json!({QUARANTINED_SINCE: SINCE});
    played.annotate(&held);
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    assert!(taken(&played, &said).await.expect("no error"));
    assert_eq!(played.asked(), ["bind", "note", "ask", "close", "forget"]);
}

/// Its agent needs them to leave the member, and they go with the Cluster.
#[tokio::test(start_paused = true)]
async fn whoever_is_being_deleted_keeps_its_rights_and_is_not_told_to_have_none() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
    played.write(&json!({"metadata": {"deletionTimestamp": SINCE}}));
    let (client, clock) = (played.client(), Arc::new(SystemClock));
    let shared = (Claims::default(), Arc::default());
    let quarantine = Quarantine::new(client, clock, Budget::default(), shared);
    for want in [&["show"][..], &[]] {
        quarantine.reconcile(&"m1".into()).await.expect("no error");
        assert_eq!(played.asked(), want);
    }
    let conditions = played.cluster()["status"]["conditions"].to_string();
    assert!(
        conditions.contains("the Cluster is being deleted"),
        "{conditions}"
    );
}

#[tokio::test]
async fn whoever_is_let_in_before_its_watches_have_ended_keeps_them() {
    let ours = id();
    let cases: [(&str, Annotations<'_>, &[&str]); 3] = [
        ("nothing is left", vec![], &["bind"]),
        (
            "its own",
            vec![(CLOSING_WATCHES, ours.as_str())],
            &["bind", "forget"],
        ),
        // That is the registration's to end, which waits for it.
        (
            "those of another",
            vec![(CLOSING_WATCHES, EARLIER)],
            &["bind"],
        ),
    ];
    for (case, said, want) in cases {
        let said = annotations(&said);
        let played = Played::holding(&registration(Grant::Suspended), &said).await;
        let in_force = registration(Grant::InForce(id()));
        let given = give(&played.client(), &metadata(&said), &in_force).await;
        assert_eq!(given.expect(case), 3, "{case}");
        assert_eq!(played.asked(), want, "{case}");
    }
}

/// What keeps rights in place does not end watches: it leaves those alone that are withheld.
#[tokio::test]
async fn rights_that_are_withheld_are_left_to_the_quarantine() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
    let rights = Rights::new(played.client(), Claims::default());
    rights.reconcile(&"m1".into()).await.expect("no error");
    assert_eq!(played.asked(), Vec::<&str>::new());
}

/// A Cluster as a registration reads it, whose own rights are in force or withheld.
fn facts(quarantined: bool, closing_watches: Option<&str>) -> ClusterFacts {
    ClusterFacts {
        name: ClusterName::parse("m1").expect("valid"),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        deleting: false,
        id: None,
        registration: Some(id()),
        registered_by: None,
        closing_watches: closing_watches.map(str::to_owned),
        quarantined,
        joined: false,
        certificate_end: None,
    }
}

fn subject() -> AgentSubject {
    AgentSubject {
        cluster: ClusterName::parse("m1").expect("valid"),
        registration: id(),
    }
}

/// Carries out a step of the registration.
async fn step(played: &Played, step: Step) {
    let csr = DynamicObject::new(
        "r",
        &ApiResource::erase::<common::api::cluster::Cluster>(&()),
    );
    let applied = apply::apply(&played.client(), chrono::DateTime::UNIX_EPOCH, &csr, &step).await;
    applied.expect("no error");
}

/// An agent that asks again while it is quarantined has its rights taken by the registration; one that was let in while
/// that went on is not made to wait for the end of its own.
#[tokio::test]
async fn a_registration_notes_whose_watches_must_end() {
    let ours = id();
    let cases: [(bool, Option<&str>, &[&str]); 5] = [
        (true, None, &["note", "unbind"]),
        (true, Some(ours.as_str()), &["unbind"]),
        (false, None, &[]),
        (false, Some(ours.as_str()), &["forget"]),
        // These end in a later step.
        (false, Some(EARLIER), &[]),
    ];
    for (quarantined, closing, want) in cases {
        let mut said = Vec::new();
        said.extend(quarantined.then_some((QUARANTINED_SINCE, SINCE)));
        said.extend(closing.map(|closing| (CLOSING_WATCHES, closing)));
        let played =
            Played::holding(&registration(Grant::InForce(id())), &annotations(&said)).await;
        let grant = Step::Grant {
            subject: subject(),
            cluster: facts(quarantined, closing),
        };
        step(&played, grant).await;
        assert_eq!(played.asked(), want, "{quarantined}, {closing:?}");
    }
}

/// One whose rights were to end, and that is registered again before its watches have ended, keeps them: those of the
/// other end.
#[tokio::test]
async fn a_registration_that_comes_back_does_not_end_its_own_watches() {
    let ours = id();
    let between = "fedcba9876543210fedcba9876543210";
    for (closing, registered, want) in [
        (Some(ours.as_str()), Some(between), between),
        (Some(ours.as_str()), None, "unknown"),
        (Some(EARLIER), Some(between), EARLIER),
        (None, Some(between), between),
    ] {
        let said = annotations(&[]);
        let played = Played::holding(&registration(Grant::Suspended), &said).await;
        let cluster = ClusterFacts {
            registration: registered.and_then(RegistrationId::parse),
            ..facts(false, closing)
        };
        assert_eq!(cluster.registration.is_some(), registered.is_some());
        let take_over = Step::TakeOver {
            cluster,
            subject: subject(),
            cluster_id: "c".to_owned(),
            by: Origin::parse(ORIGIN).expect("an origin"),
        };
        step(&played, take_over).await;
        let left = played.cluster()["metadata"]["annotations"].clone();
        let case = format!("{closing:?}, {registered:?}");
        let said = [(CLOSING_WATCHES, want), (REGISTERED_BY, ORIGIN)];
        assert_eq!(left, annotations(&said), "{case}");
    }
}

/// An API server takes a time that is later than any that a client can hold.
#[tokio::test(start_paused = true)]
async fn no_time_that_an_agent_writes_keeps_its_rights() {
    let said = annotations(&[(QUARANTINED_SINCE, SINCE)]);
    let played = Played::holding(&registration(Grant::InForce(id())), &said).await;
    played.renew("9999-12-31T23:59:59.000000Z");
    let is_done = taken(&played, &said).await;
    is_done.expect("its rights are taken");
    let asked = played.asked();
    let first = |word: &str| asked.iter().position(|it| *it == word);
    assert!(first("unbind").is_some(), "{asked:?}");
    assert!(first("unbind") < first("close"), "{asked:?}");
}
