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
                replaced: cluster
                    .registration
                    .iter()
                    .chain(&cluster.replaced)
                    .cloned()
                    .collect(),
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

/// Two agents are registered in the place of a third one at the same time. However their steps alternate, one of them is
/// let in, and the other one is told.
#[test]
fn two_that_replace_an_agent_do_not_undo_each_other_for_ever() {
    let anew = |key: &[u8]| Observed {
        verdict: Verdict::Bootstrap(request("m1", key, "id-1")),
        namespace: Some(Vec::new()),
        ..with_token(|t| {
            t.cluster = Some(name("m1"));
            t.replace = true;
            t.uses = 2;
        })
    };
    // Who takes the next step, by the bits of a number, again and again.
    for order in 0u32..1 << 12 {
        let mut held = cluster("m1", Some(b"k0"), Some("id-1"));
        let mut agents = [anew(b"k1"), anew(b"k2")];
        let mut ends: [Option<&str>; 2] = [None; 2];
        for number in 0..240 {
            let next = usize::from(order >> (number % 12) & 1 == 1);
            let at = if ends[next].is_some() { 1 - next } else { next };
            if ends[at].is_some() {
                break;
            }
            let world = &mut agents[at];
            // Rights that another one's registration has taken since are not in place.
            world.granted &= world.cluster.as_ref() == Some(&held);
            world.cluster = Some(held.clone());
            let step = decide(now(), world);
            carry_out(world, &step);
            held = world.cluster.clone().expect("a Cluster");
            match kind(&step) {
                "deny" => {
                    assert_denied(
                        "replaced",
                        world,
                        DenialReason::RegistrationGone,
                        "--replace",
                    );
                    ends[at] = Some("deny");
                }
                "approve" => ends[at] = Some("approve"),
                _ => {}
            }
        }
        let in_force =
            |at: usize| held.registration == Some(subject("m1", [b"k1", b"k2"][at]).registration);
        for at in [0, 1] {
            let expected = if in_force(at) { "approve" } else { "deny" };
            let told = ends[at].expect("it ends");
            // Who was let in before the other one asked is replaced as any agent is.
            assert!(
                told == expected || !in_force(at) && told == "approve",
                "{order:b}: {ends:?}"
            );
        }
    }
}
