//! The steps of a registration, and crashes between them.

use super::*;

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
            by,
            close_watches,
            ..
        } => {
            world.cluster = Some(ClusterFacts {
                id: Some(cluster_id.clone()),
                registration: Some(subject.registration.clone()),
                registered_by: Some(by.clone()),
                closing_watches: close_watches.then(|| "unknown".to_owned()),
                ..cluster(subject.cluster.as_str(), None, None)
            });
        }
        Step::TakeOver {
            cluster,
            subject,
            cluster_id,
            by,
        } => {
            let before = cluster
                .registration
                .as_ref()
                .map(|id| id.as_str().to_owned());
            world.cluster = Some(ClusterFacts {
                id: Some(cluster_id.clone()),
                registration: Some(subject.registration.clone()),
                registered_by: Some(by.clone()),
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

/// How two requests end that ask for one Cluster at the same time. Who takes the next step is said by the bits of `order`,
/// again and again. The one whose registration is in force, and what was said to each.
fn together(order: u32, agents: &mut [Observed; 2]) -> (usize, [&'static str; 2]) {
    let mut held = cluster("m1", Some(b"k0"), Some("id-1"));
    let mut ends: [Option<&str>; 2] = [None; 2];
    for number in 0..240 {
        let next = usize::from(order >> (number % 12) & 1 == 1);
        let at = if ends[next].is_some() { 1 - next } else { next };
        if ends[at].is_some() {
            break;
        }
        let is_shared = origin(&agents[0]) == origin(&agents[1]);
        let world = &mut agents[at];
        // Rights that another one's registration has taken since are not in place.
        world.granted &= world.cluster.as_ref() == Some(&held);
        world.cluster = Some(held.clone());
        let step = decide(now(), world);
        carry_out(world, &step);
        held = world.cluster.clone().expect("a Cluster");
        if is_shared {
            let token = world.token.clone();
            agents.iter_mut().for_each(|it| it.token = token.clone());
        }
        match kind(&step) {
            "deny" => {
                let name_taken = DenialReason::ClusterNameTaken;
                assert_denied(
                    "replaced",
                    &agents[at],
                    name_taken,
                    "since, by the bootstrap",
                );
                ends[at] = Some("deny");
            }
            "approve" => ends[at] = Some("approve"),
            _ => {}
        }
    }
    let registration = held.registration.as_ref();
    let in_force = |key: &[u8]| registration == Some(&RegistrationId::of_public_key(key));
    let winner = usize::from(in_force(b"k2"));
    assert!(
        in_force([b"k1", b"k2"][winner]),
        "{order:b}: it is one of them"
    );
    (winner, ends.map(|it| it.expect("it ends")))
}

/// The token of a request.
fn origin(observed: &Observed) -> Origin {
    match &observed.token {
        TokenFacts::Usable(token) => token.origin(),
        other => panic!("{other:?}"),
    }
}

/// A request of a key to be registered in the place of another agent.
fn anew(key: &[u8], token: impl FnOnce(&mut Token)) -> Observed {
    Observed {
        verdict: Verdict::Bootstrap(request("m1", key, "id-1")),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.cluster = Some(name("m1"));
            t.replace = true;
            t.uses = 2;
            token(t);
        })
    }
}

/// However their steps alternate, one of them is let in: of two tokens the later one's agent, of one token the one that
/// used it last.
#[test]
fn two_that_replace_an_agent_do_not_undo_each_other_for_ever() {
    for order in 0u32..1 << 12 {
        let later = |t: &mut Token| t.created += Duration::seconds(1);
        let mut agents = [anew(b"k1", later), anew(b"k2", |_| {})];
        let (winner, ends) = together(order, &mut agents);
        assert_eq!((winner, ends[0]), (0, "approve"), "{order:b}: {ends:?}");

        let same_second = |t: &mut Token| t.id = "bbbbbb".to_owned();
        let mut agents = [anew(b"k1", same_second), anew(b"k2", |_| {})];
        let (winner, ends) = together(order, &mut agents);
        assert_eq!(ends[winner], "approve", "{order:b}: {ends:?}");

        let mut agents = [anew(b"k1", |_| {}), anew(b"k2", |_| {})];
        let (winner, ends) = together(order, &mut agents);
        assert_eq!(ends[winner], "approve", "{order:b}: {ends:?}");
        let TokenFacts::Usable(token) = &agents[0].token else {
            panic!("a token")
        };
        let last = token.reservations.last().expect("used");
        let key: &[u8] = [b"k1", b"k2"][winner];
        let used_by = RegistrationId::of_public_key(key);
        assert_eq!(last.registration, used_by.as_str(), "{order:b}: {ends:?}");
    }
}

/// What says no token, or one that nobody noted, keeps nobody out.
#[test]
fn who_was_registered_before_tokens_were_noted_is_replaced() {
    let mut observed = anew(b"k1", |_| {});
    observed.cluster = Some(cluster("m1", Some(b"k0"), Some("id-1")));
    assert_eq!(kind(&decide(now(), &observed)), "reserve");
    let by = |seconds: i64, id: &str, over: &[&str]| Origin {
        created: token().created + Duration::seconds(seconds),
        id: id.to_owned(),
        over: over.iter().map(|it| (*it).to_owned()).collect(),
    };
    for (by, expected) in [
        (by(-1, "zzzzzz", &[]), "reserve"),
        (by(0, "abcdef", &[]), "reserve"),
        (by(0, "bbbbbb", &[]), "reserve"),
        (by(0, "bbbbbb", &["abcdef"]), "deny"),
        (by(1, "aaaaaa", &[]), "deny"),
    ] {
        let held = observed.cluster.as_mut().expect("a Cluster");
        held.registered_by = Some(by.clone());
        assert_eq!(kind(&decide(now(), &observed)), expected, "{by}");
    }
}
