//! Registrations that are denied, and what is said.

use super::*;
use crate::controller::registration::apply::apply;
use crate::controller::registration::{Error, refusal};
use crate::token_secret::USES_MAX;
use crate::world::testing::answering;
use common::lock::lock;
use http::{Method, StatusCode};
use kube::core::DynamicObject;
use serde_json::json;

/// A token of before that may be used more often than its Secret can hold.
#[test]
fn a_token_that_holds_no_more_uses_is_said_so() {
    let answer = |code: u16| {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        let answer = kube::Error::Api(Box::new(status));
        Error::request("reserve a use of token", "abcdef")(answer)
    };
    let used = used_by(&request("m2", b"k2", "id-2"));
    let observed = with_token(|t| {
        t.uses = 10_000;
        t.reservations = vec![used; USES_MAX as usize];
    });
    let step = decide(now(), &observed);
    assert!(matches!(step, Step::Reserve { .. }), "{step:?}");
    let Some(Step::Deny { denial, holder }) = refusal(&step, &answer(422)) else {
        panic!("it is refused")
    };
    assert_eq!(denial.reason, DenialReason::TokenSpent);
    assert!(denial.message.contains("\"abcdef\", which has 1000"));
    assert_eq!(holder, None);
    // Whatever else is wrong may be better next time.
    for code in [409, 500, 507] {
        assert_eq!(refusal(&step, &answer(code)), None);
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
    let since = |minutes: i64| ClusterFacts {
        registered_by: Some(Origin {
            created: now() + Duration::minutes(minutes),
            id: "bbbbbb".to_owned(),
            over: Vec::new(),
        }),
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
            "replaced since",
            with(bound(true), &since(-1)),
            ClusterNameTaken,
            "make a token with `towline token create --cluster m1 --replace`",
        ),
        (
            "replaced by a clock that was ahead",
            with(bound(true), &since(1)),
            ClusterNameTaken,
            "`kubectl annotate cluster m1 towline.dev/registered-by-`",
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

/// A request that is denied is not looked at again: a hub that dies in between has told the one it asked the id of.
#[tokio::test]
async fn a_cluster_is_told_of_a_duplicate_before_the_request_is_denied() {
    let csr = json!({"metadata": {"name": "c", "resourceVersion": "7"}, "spec": {}});
    let csr: DynamicObject = serde_json::from_value(csr).expect("an object");
    let step = Step::Deny {
        denial: Denial {
            reason: DenialReason::ClusterIdTaken,
            message: "taken".to_owned(),
        },
        holder: ClusterName::parse("m1").ok(),
    };
    for shows in [StatusCode::OK, StatusCode::UNPROCESSABLE_ENTITY] {
        let (client, asked) = answering(move |_, path| match path.ends_with("/m1/status") {
            true => shows,
            false => StatusCode::OK,
        });
        let applied = apply(&client, now(), &csr, &step).await;
        assert_eq!(applied.is_ok(), shows == StatusCode::OK);
        let asked = lock(&asked);
        let written = asked.iter().filter(|it| it.0 != Method::GET);
        let written: Vec<&str> = written.filter_map(|it| it.1.rsplit('/').next()).collect();
        assert_eq!(written, ["status", "approval"], "it is denied all the same");
    }
}
