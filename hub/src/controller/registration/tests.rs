use super::decide::*;
use super::observe::{ClusterFacts, Observed, Progress, TokenFacts, may_write_id};
use crate::approver::{Denial, NotOurCertificate, RegistrationRequest, Verdict};
use crate::token_secret::{Placement, Reservation, Token};
use chrono::{DateTime, Duration, Utc};
use common::denial::DenialReason;
use common::identity::{AgentSubject, RegistrationId};
use common::names::ClusterName;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
}

fn name(name: &str) -> ClusterName {
    ClusterName::parse(name).expect("valid")
}

fn subject(cluster: &str, key: &[u8]) -> AgentSubject {
    AgentSubject {
        cluster: name(cluster),
        registration: RegistrationId::of_public_key(key),
    }
}

fn request(cluster: &str, key: &[u8], id: &str) -> RegistrationRequest {
    RegistrationRequest {
        subject: subject(cluster, key),
        token_id: "abcdef".to_owned(),
        cluster_id: id.to_owned(),
    }
}

fn token() -> Token {
    Token {
        id: "abcdef".to_owned(),
        uid: "t".to_owned(),
        resource_version: "1".to_owned(),
        created: now() - Duration::hours(1),
        expires: Some(now() + Duration::hours(1)),
        cluster: None,
        replace: false,
        uses: 1,
        placement: Placement::default(),
        reservations: Vec::new(),
    }
}

fn used_by(request: &RegistrationRequest) -> Reservation {
    Reservation {
        registration: request.subject.registration.as_str().to_owned(),
        cluster: request.subject.cluster.to_string(),
        cluster_id: request.cluster_id.clone(),
    }
}

fn cluster(registered: &str, key: Option<&[u8]>, id: Option<&str>) -> ClusterFacts {
    ClusterFacts {
        name: name(registered),
        uid: "c".to_owned(),
        resource_version: "1".to_owned(),
        deleting: false,
        id: id.map(str::to_owned),
        registration: key.map(RegistrationId::of_public_key),
        closing_watches: None,
        quarantined: false,
        joined: false,
        certificate_end: None,
    }
}

/// A registration of m1 with the member id `id-1` and key `k1`, by a token that was never used.
fn fresh() -> Observed {
    Observed {
        verdict: Verdict::Bootstrap(request("m1", b"k1", "id-1")),
        created: now() - Duration::minutes(1),
        progress: Progress::Pending,
        token: TokenFacts::Usable(Box::new(token())),
        cluster: None,
        same_id: None,
        namespace: None,
        granted: false,
        agents_alive: false,
        certificate_end: None,
    }
}

fn with_token(edit: impl FnOnce(&mut Token)) -> Observed {
    let mut token = token();
    edit(&mut token);
    Observed {
        token: TokenFacts::Usable(Box::new(token)),
        ..fresh()
    }
}

#[track_caller]
fn assert_denied(case: &str, observed: &Observed, reason: DenialReason, text: &str) {
    match decide(now(), observed) {
        Step::Deny { denial, .. } => {
            assert_eq!(denial.reason, reason, "{case}: {}", denial.message);
            assert!(
                denial.message.contains(text),
                "{case}: {:?}",
                denial.message
            );
        }
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn a_token_that_may_not_be_used_is_said_so() {
    use DenialReason::{TokenForAnotherCluster, TokenSpent};
    let other = used_by(&request("m1", b"k2", "id-1"));
    let cases = [
        (
            "deleted while the hub was down",
            Observed {
                token: TokenFacts::Missing,
                ..fresh()
            },
            TokenSpent,
            "does not exist any more",
        ),
        (
            "unreadable",
            Observed {
                token: TokenFacts::Unusable("its x cannot be read".into()),
                ..fresh()
            },
            TokenSpent,
            "its x cannot be read",
        ),
        (
            "expired",
            with_token(|t| t.expires = Some(now())),
            TokenSpent,
            "has expired",
        ),
        (
            "made after the request",
            with_token(|t| t.created = now()),
            TokenSpent,
            "by the hub's clock; make a new one",
        ),
        (
            "spent",
            with_token(|t| t.reservations.push(other.clone())),
            TokenSpent,
            "is spent",
        ),
        (
            "no uses at all",
            with_token(|t| t.uses = 0),
            TokenSpent,
            "is spent",
        ),
        (
            "used by this key under another name",
            with_token(|t| {
                t.uses = 2;
                t.reservations.push(used_by(&request("m2", b"k1", "id-1")));
            }),
            TokenSpent,
            "as cluster \"m2\"",
        ),
        (
            "used by this key in another member",
            with_token(|t| {
                t.uses = 2;
                t.reservations.push(used_by(&request("m1", b"k1", "id-2")));
            }),
            TokenSpent,
            "\"id-2\"",
        ),
        (
            "bound to another name",
            with_token(|t| t.cluster = Some(name("m10"))),
            TokenForAnotherCluster,
            "is for cluster \"m10\", not \"m1\"",
        ),
    ];
    for (case, observed, reason, text) in cases {
        assert_denied(case, &observed, reason, text);
    }
}

#[test]
fn a_name_or_id_that_is_taken_is_said_so() {
    use DenialReason::{ClusterIdTaken, ClusterNameTaken};
    let taken = "the cluster ID id-1 or the cluster name m1 has been registered";
    let held = cluster("m1", Some(b"k0"), Some("id-1"));
    let bound = |replace: bool| {
        with_token(move |t| {
            t.cluster = Some(name("m1"));
            t.replace = replace;
        })
    };
    let with = |observed: Observed, held: &ClusterFacts| Observed {
        cluster: Some(held.clone()),
        namespace: Some(Vec::new()),
        ..observed
    };
    let other_id = ClusterFacts {
        id: Some("id-9".into()),
        ..held.clone()
    };
    let deleting = ClusterFacts {
        deleting: true,
        ..held.clone()
    };
    let by_hand = ClusterFacts {
        registration: None,
        ..held.clone()
    };
    let unbound_replace = with_token(|t| t.replace = true);
    let stranger = Observed {
        namespace: Some(vec!["theirs".into()]),
        ..fresh()
    };
    let same_key_other_id = cluster("m1", Some(b"k1"), Some("id-9"));
    let cases = [
        (
            "unbound token",
            with(fresh(), &held),
            ClusterNameTaken,
            taken,
        ),
        (
            "bound token",
            with(bound(false), &held),
            ClusterNameTaken,
            "--cluster m1 --replace",
        ),
        (
            "--replace without --cluster",
            with(unbound_replace, &held),
            ClusterNameTaken,
            taken,
        ),
        (
            "a Cluster made by hand",
            with(fresh(), &by_hand),
            ClusterNameTaken,
            taken,
        ),
        (
            "another member",
            with(bound(true), &other_id),
            ClusterIdTaken,
            "another cluster ID",
        ),
        (
            "same key, other id",
            with(fresh(), &same_key_other_id),
            ClusterIdTaken,
            taken,
        ),
        (
            "being deleted",
            with(bound(true), &deleting),
            ClusterNameTaken,
            "being deleted",
        ),
        (
            "a namespace of others",
            stranger,
            ClusterNameTaken,
            "(theirs)",
        ),
        (
            "the id under another name",
            Observed {
                same_id: Some(name("m2")),
                ..fresh()
            },
            ClusterIdTaken,
            taken,
        ),
    ];
    for (case, observed, reason, text) in cases {
        assert_denied(case, &observed, reason, text);
    }
    let duplicate = Observed {
        same_id: Some(name("m2")),
        ..fresh()
    };
    let Step::Deny { holder, .. } = decide(now(), &duplicate) else {
        panic!("denied above")
    };
    assert_eq!(holder, Some(name("m2")), "the holder is told");
}

/// What the steps would leave behind; the API server itself is tried in the lab.
fn carry_out(world: &mut Observed, step: &Step) {
    match step {
        Step::Reserve { reservation, .. } => {
            let TokenFacts::Usable(token) = &mut world.token else {
                panic!("no token")
            };
            token.reservations.push(reservation.clone());
        }
        Step::CreateCluster {
            subject,
            cluster_id,
            close_watches,
            ..
        } => {
            world.cluster = Some(ClusterFacts {
                id: Some(cluster_id.clone()),
                registration: Some(subject.registration.clone()),
                closing_watches: close_watches.then(|| "unknown".to_owned()),
                ..cluster(subject.cluster.as_str(), None, None)
            });
        }
        Step::TakeOver {
            cluster,
            subject,
            cluster_id,
        } => {
            let before = cluster
                .registration
                .as_ref()
                .map(|id| id.as_str().to_owned());
            world.cluster = Some(ClusterFacts {
                id: Some(cluster_id.clone()),
                registration: Some(subject.registration.clone()),
                closing_watches: before.or(Some("unknown".to_owned())),
                ..cluster.clone()
            });
        }
        Step::Grant { .. } => {
            world.namespace = Some(Vec::new());
            world.granted = true;
        }
        Step::CloseWatches { .. } => {
            let cluster = world.cluster.as_mut().expect("a Cluster");
            assert!(world.granted, "watches close after the rights went");
            cluster.closing_watches = None;
        }
        Step::Approve { .. } => {
            let Verdict::Bootstrap(request) = &world.verdict else {
                panic!("a registration")
            };
            world.progress = Progress::Issued(Ok(request.subject.clone()));
        }
        Step::DeleteToken { .. } => world.token = TokenFacts::Missing,
        Step::Done
        | Step::Recheck(_)
        | Step::Deny { .. }
        | Step::NoteCertificate { .. }
        | Step::Revoke { .. } => {}
    }
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Done => "done",
        Step::Recheck(_) => "recheck",
        Step::Deny { .. } => "deny",
        Step::Reserve { .. } => "reserve",
        Step::CreateCluster { .. } => "create",
        Step::TakeOver { .. } => "take over",
        Step::Grant { .. } => "grant",
        Step::CloseWatches { .. } => "close",
        Step::Approve { .. } => "approve",
        Step::NoteCertificate { .. } => "note",
        Step::Revoke { .. } => "revoke",
        Step::DeleteToken { .. } => "delete token",
    }
}

/// Every step to the end, with a crash after step `crash`.
fn run(mut world: Observed, crash: usize) -> Vec<&'static str> {
    let mut steps = Vec::new();
    for number in 0..20 {
        if number == crash {
            world.granted = false;
        }
        let step = decide(now(), &world);
        match step {
            Step::Recheck(_) => world.agents_alive = true,
            Step::Done => return steps,
            _ => {}
        }
        let writes_id = matches!(step, Step::CreateCluster { .. } | Step::TakeOver { .. });
        let Verdict::Bootstrap(request) = &world.verdict else {
            panic!("no registration")
        };
        if matches!(world.progress, Progress::Pending) {
            let asked = may_write_id(&world, request);
            assert_eq!(asked, writes_id, "who has the id, before {}", kind(&step));
        }
        steps.push(kind(&step));
        carry_out(&mut world, &step);
    }
    panic!("no end: {steps:?}");
}

#[test]
fn a_registration_takes_its_steps_in_order() {
    let whole = [
        "reserve",
        "create",
        "grant",
        "approve",
        "recheck",
        "delete token",
    ];
    assert_eq!(run(fresh(), 99), whole);
    let anew = Observed {
        cluster: Some(cluster("m1", Some(b"k0"), Some("id-1"))),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.cluster = Some(name("m1"));
            t.replace = true;
        })
    };
    assert_eq!(
        run(anew, 99),
        [
            "reserve",
            "take over",
            "grant",
            "close",
            "approve",
            "recheck",
            "delete token"
        ]
    );
    // A namespace that was there before: whoever watched it is shut out.
    let leftover = Observed {
        namespace: Some(Vec::new()),
        ..fresh()
    };
    assert_eq!(
        run(leftover, 99),
        [
            "reserve",
            "create",
            "grant",
            "close",
            "approve",
            "recheck",
            "delete token"
        ]
    );
    // Two uses: the token stays for the other agent.
    let two = with_token(|t| t.uses = 2);
    assert_eq!(run(two, 99), ["reserve", "create", "grant", "approve"]);
}

#[test]
fn a_crash_after_any_step_repeats_no_use_and_misses_no_step() {
    let anew = Observed {
        cluster: Some(cluster("m1", Some(b"k0"), Some("id-1"))),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.cluster = Some(name("m1"));
            t.replace = true;
        })
    };
    for world in [fresh(), anew] {
        let whole = run(world.clone(), 99);
        for crash in 0..whole.len() {
            let mut steps = run(world.clone(), crash);
            // Putting permissions in place is the one step that cannot be seen to be done.
            steps.dedup();
            let mut seen = Vec::new();
            for step in &steps {
                if *step != "grant" || !seen.contains(step) {
                    seen.push(*step);
                }
            }
            assert_eq!(seen, whole, "crash after {crash}: {steps:?}");
        }
    }
}

#[test]
fn the_same_agent_asks_again_at_no_cost() {
    let request = request("m1", b"k1", "id-1");
    let again = Observed {
        cluster: Some(cluster("m1", Some(b"k1"), Some("id-1"))),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.reservations.push(used_by(&request));
            // Its use was taken in time.
            t.expires = Some(now() - Duration::seconds(1));
        })
    };
    assert_eq!(run(again, 99), ["grant", "approve"]);
}

#[test]
fn a_token_that_made_a_cluster_may_not_replace_it_for_another_key() {
    let first = request("m1", b"k0", "id-1");
    let observed = Observed {
        cluster: Some(cluster("m1", Some(b"k0"), Some("id-1"))),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.uses = 2;
            t.cluster = Some(name("m1"));
            t.reservations.push(used_by(&first));
        })
    };
    assert_denied(
        "second key",
        &observed,
        DenialReason::ClusterNameTaken,
        "--replace",
    );
}

#[test]
fn a_renewal_needs_a_living_cluster_with_this_registration() {
    let renewal = |held: Option<ClusterFacts>| Observed {
        verdict: Verdict::Renewal(subject("m1", b"k1")),
        token: TokenFacts::Missing,
        cluster: held,
        ..fresh()
    };
    let own = cluster("m1", Some(b"k1"), Some("id-1"));
    let approved = decide(now(), &renewal(Some(own.clone())));
    assert_eq!(
        approved,
        Step::Approve {
            message: APPROVED_RENEWAL
        }
    );
    let gone = DenialReason::RegistrationGone;
    assert_denied("no Cluster", &renewal(None), gone, "not registered");
    let deleting = ClusterFacts {
        deleting: true,
        ..own.clone()
    };
    assert_denied(
        "being deleted",
        &renewal(Some(deleting)),
        gone,
        "being deleted",
    );
    let anew = cluster("m1", Some(b"k2"), Some("id-1"));
    assert_denied(
        "registered anew",
        &renewal(Some(anew)),
        gone,
        "no longer in force",
    );
    let by_hand = cluster("m1", None, None);
    assert_denied(
        "never registered",
        &renewal(Some(by_hand)),
        gone,
        "no longer in force",
    );
}

#[test]
fn what_was_decided_is_left_alone() {
    let denial = Denial {
        reason: DenialReason::RequestNotAllowed,
        message: "no".into(),
    };
    let denied = Observed {
        verdict: Verdict::Deny(denial),
        ..fresh()
    };
    assert_denied("judged", &denied, DenialReason::RequestNotAllowed, "no");
    for progress in [Progress::Refused, Progress::Approved] {
        for verdict in [fresh().verdict, denied.verdict.clone()] {
            let observed = Observed {
                verdict,
                progress: progress.clone(),
                ..fresh()
            };
            assert_eq!(decide(now(), &observed), Step::Done);
        }
    }
    let ignored = Observed {
        verdict: Verdict::Ignore,
        ..fresh()
    };
    assert_eq!(decide(now(), &ignored), Step::Done);
}

#[test]
fn a_certificate_that_names_another_ends_the_registration() {
    let held = cluster("m1", Some(b"k1"), Some("id-1"));
    let issued = |certificate| Observed {
        progress: Progress::Issued(certificate),
        cluster: Some(held.clone()),
        token: TokenFacts::Missing,
        ..fresh()
    };
    assert_eq!(decide(now(), &issued(Ok(subject("m1", b"k1")))), Step::Done);
    for wrong in [
        Ok(subject("m2", b"k1")),
        Ok(subject("m1", b"k2")),
        Err(NotOurCertificate::Subject {
            common_name: "admin".into(),
            organizations: vec!["system:masters".into()],
        }),
        Err(NotOurCertificate::Pem),
    ] {
        let step = decide(now(), &issued(wrong.clone()));
        assert!(matches!(step, Step::Revoke { .. }), "{wrong:?}: {step:?}");
        // A hub that died in the middle goes on.
        let half = Observed {
            cluster: Some(ClusterFacts {
                closing_watches: Some(RegistrationId::of_public_key(b"k1").as_str().to_owned()),
                ..cluster("m1", None, Some("id-1"))
            }),
            ..issued(wrong.clone())
        };
        assert!(
            matches!(decide(now(), &half), Step::Revoke { .. }),
            "{wrong:?}"
        );
        // Once the registration is not in force any more there is nothing to take away.
        let gone = Observed {
            cluster: Some(cluster("m1", None, Some("id-1"))),
            ..issued(wrong)
        };
        assert_eq!(decide(now(), &gone), Step::Done);
    }
}

#[test]
fn the_end_of_a_certificate_is_noted_once() {
    let end = now() + Duration::days(60);
    let issued = |noted, key: &[u8]| Observed {
        progress: Progress::Issued(Ok(subject("m1", b"k1"))),
        certificate_end: Some(end),
        cluster: Some(ClusterFacts {
            certificate_end: noted,
            ..cluster("m1", Some(key), Some("id-1"))
        }),
        token: TokenFacts::Missing,
        ..fresh()
    };
    for noted in [None, Some(end - Duration::days(1))] {
        let step = decide(now(), &issued(noted, b"k1"));
        assert!(
            matches!(&step, Step::NoteCertificate { end: noted, .. } if *noted == end),
            "{step:?}"
        );
    }
    // Requests stay for an hour: an earlier one of the same agent says nothing new.
    for noted in [Some(end), Some(end + Duration::days(1))] {
        assert_eq!(decide(now(), &issued(noted, b"k1")), Step::Done);
    }
    assert_eq!(decide(now(), &issued(None, b"k2")), Step::Done, "another's");
}

#[test]
fn a_spent_token_stays_until_its_agents_live() {
    let request = request("m1", b"k1", "id-1");
    let signed = Observed {
        progress: Progress::Issued(Ok(request.subject.clone())),
        cluster: Some(cluster("m1", Some(b"k1"), Some("id-1"))),
        ..with_token(|t| t.reservations.push(used_by(&request)))
    };
    // Often at first, then ever less often: many may wait for one that never comes.
    for (waited, seconds) in [(-60, 2), (1, 2), (40, 10), (3000, 60)] {
        let asked = Observed {
            created: now() - Duration::seconds(waited),
            ..signed.clone()
        };
        let after = std::time::Duration::from_secs(seconds);
        assert_eq!(decide(now(), &asked), Step::Recheck(after), "{waited}");
    }
    let alive = Observed {
        agents_alive: true,
        ..signed.clone()
    };
    assert!(matches!(decide(now(), &alive), Step::DeleteToken { .. }));
    // The control plane deletes expired tokens itself.
    let late = now() + Duration::hours(2);
    assert_eq!(decide(late, &signed), Step::Done);
}
