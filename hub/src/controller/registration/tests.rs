mod after;
mod denied;
mod steps;

use super::decide::*;
use super::observe::{ClusterFacts, Observed, Progress, TokenFacts, may_write_id};
use crate::approver::{Denial, NotOurCertificate, RegistrationRequest, Verdict};
use crate::token_secret::{Origin, Placement, Reservation, Token};
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
        registered_by: None,
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
