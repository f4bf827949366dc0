//! What follows a registration: renewals, what ends it, its token.

use super::*;

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
