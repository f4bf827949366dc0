//! What is written when rights are taken and given, in which order, and what of it is left after a kill.

use super::played::Played;
use super::*;
use crate::controller::registration::apply;
use crate::controller::registration::decide::Step;
use crate::controller::registration::observe::ClusterFacts;
use crate::controller::rights::Rights;
use common::controller::Reconcile as _;
use common::labels::QUARANTINED_SINCE;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::Value;

const SINCE: &str = "2026-01-01T00:00:00Z";
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
        let (client, watches) = (played.client(), Rounds::default());
        let suspended = registration(Grant::Suspended);
        let taken = take(&client, &watches, &metadata(&said), &suspended).await;
        taken.expect(case);
        assert_eq!(played.asked(), want, "{case}");
        let left = played.cluster()["metadata"]["annotations"].clone();
        assert_eq!(left, annotations(&[held]), "{case}");
        // At rest nothing is written.
        let again = take(&client, &watches, &metadata(&left), &suspended).await;
        again.expect(case);
        assert_eq!(played.asked(), Vec::<&str>::new(), "{case}");
    }
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
    let rights = Rights::new(played.client());
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

/// One that was replaced and comes back before its watches have ended keeps them: those of the other end.
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
        };
        step(&played, take_over).await;
        let left = played.cluster()["metadata"]["annotations"].clone();
        let case = format!("{closing:?}, {registered:?}");
        assert_eq!(left, annotations(&[(CLOSING_WATCHES, want)]), "{case}");
    }
}
