//! Tables of the decision.

use super::*;
use crate::cluster_status::probe::Answer;
use common::api::cluster::{ApiEnablement, default_models};
use http::StatusCode;
use serde_json::json;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
}

fn apis() -> Enablements {
    Enablements {
        apis: vec![ApiEnablement {
            group_version: "v1".into(),
            resources: Vec::new(),
        }],
        partial: false,
    }
}

fn ledger(nodes: u32) -> Ledger {
    let mut ledger = Ledger::default();
    for n in 0..nodes {
        let node = json!({
            "metadata": {"name": format!("n{n}")},
            "status": {
                "allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        ledger.node(&serde_json::from_value(node).expect("a node"));
    }
    ledger
}

struct Case<'a> {
    seen: &'a ClusterStatus,
    answer: Answer,
    believed: Believed,
    sums: Sums<'a>,
    seconds: i64,
}

fn decide(case: Case<'_>) -> ClusterStatus {
    let enablements = apis();
    wanted(
        at(case.seconds),
        &Observed {
            seen: case.seen,
            health: case.answer.health(),
            believed: case.believed,
            version: Some("v1.36.3".into()),
            enablements: Some(&enablements),
            sums: case.sums,
            models: &default_models(),
            agent: AgentInfo {
                version: Some("0.1.0".into()),
                ..AgentInfo::default()
            },
            unregister: None,
        },
    )
}

fn healthy(ledger: &Ledger) -> ClusterStatus {
    decide(Case {
        seen: &ClusterStatus::default(),
        answer: Answer::Ok(StatusCode::OK),
        believed: Believed::Observed,
        sums: Sums::Known(ledger),
        seconds: 0,
    })
}

fn summary(status: &ClusterStatus) -> Vec<String> {
    let show = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        format!("{}={} {}", c.type_, c.status, c.reason)
    };
    status.conditions.iter().map(show).collect()
}

#[test]
fn a_good_tick_says_everything() {
    let status = healthy(&ledger(2));
    assert_eq!(
        summary(&status),
        [
            "Ready=True ClusterReady",
            "CompleteAPIEnablements=True Complete",
            "CompleteResourceSummary=True Complete",
        ]
    );
    assert_eq!(status.kubernetes_version.as_deref(), Some("v1.36.3"));
    assert_eq!(status.api_enablements, apis().apis);
    let resources = status.resource_summary.expect("sums");
    assert_eq!(resources.allocatable["memory"].0, "256Gi");
    let counts: Vec<_> = resources
        .allocatable_modelings
        .iter()
        .map(|m| m.count)
        .collect();
    assert_eq!(
        counts,
        [0, 0, 0, 0, 0, 2, 0, 0, 0],
        "128Gi is grade 5, 32 CPUs would be grade 6"
    );
    assert_eq!(
        status.agent.and_then(|a| a.version).as_deref(),
        Some("0.1.0")
    );
}

#[test]
fn readiness_never_waits_for_nodes_and_pods() {
    for (sums, want) in [
        (Sums::Off, None),
        (Sums::Syncing, None),
        (Sums::Late("pods is forbidden"), Some("False")),
    ] {
        let status = decide(Case {
            seen: &ClusterStatus::default(),
            answer: Answer::Ok(StatusCode::OK),
            believed: Believed::Observed,
            sums,
            seconds: 0,
        });
        assert!(conditions::is_true(&status.conditions, READY));
        let note = conditions::get(&status.conditions, COMPLETE_RESOURCE_SUMMARY);
        assert_eq!(note.map(|c| c.status.as_str()), want);
    }
}

#[test]
fn a_lost_member_keeps_its_data_and_dates_it() {
    let ledger = ledger(1);
    let up = healthy(&ledger);
    let held = decide(Case {
        seen: &up,
        answer: Answer::Failed,
        believed: Believed::Current,
        sums: Sums::Known(&ledger),
        seconds: 10,
    });
    assert_eq!(held, up, "not believed yet: nothing is written");
    let down = decide(Case {
        seen: &up,
        answer: Answer::Failed,
        believed: Believed::Observed,
        sums: Sums::Known(&ledger),
        seconds: 40,
    });
    assert_eq!(
        summary(&down),
        [
            "Ready=False ClusterNotReachable",
            "CompleteAPIEnablements=True Complete",
            "CompleteResourceSummary=Unknown MemberNotReady",
        ]
    );
    let stale = conditions::get(&down.conditions, COMPLETE_RESOURCE_SUMMARY).expect("noted");
    assert_eq!(stale.last_transition_time, common::time::to_time(at(40)));
    assert_eq!(down.resource_summary, up.resource_summary);
    assert!(urgent(&up, &down));
}

#[test]
fn at_rest_nothing_is_wanted() {
    let ledger = ledger(3);
    let up = healthy(&ledger);
    let again = decide(Case {
        seen: &up,
        answer: Answer::Ok(StatusCode::OK),
        believed: Believed::Observed,
        sums: Sums::Known(&ledger),
        seconds: 3600,
    });
    assert_eq!(again, up);
}

#[test]
fn what_others_wrote_stays() {
    let mut seen = healthy(&ledger(1));
    seen.remedy_actions = vec!["TrafficControl".into()];
    let theirs = conditions::new("Quarantined", false, "Fine", "", at(0));
    conditions::set(&mut seen.conditions, theirs, at(0));
    let status = decide(Case {
        seen: &seen,
        answer: Answer::Failed,
        believed: Believed::Observed,
        sums: Sums::Off,
        seconds: 60,
    });
    assert_eq!(status.remedy_actions, seen.remedy_actions);
    assert!(conditions::get(&status.conditions, "Quarantined").is_some());
}

#[test]
fn sums_and_the_last_error_can_wait() {
    let (few, many) = (ledger(1), ledger(1));
    let seen = healthy(&few);
    let mut later = healthy(&many);
    let summary = later.resource_summary.get_or_insert_default();
    summary.allocated.insert(
        "cpu".into(),
        k8s_openapi::apimachinery::pkg::api::resource::Quantity("1".into()),
    );
    later.agent.get_or_insert_default().last_error = Some("x".into());
    assert!(!urgent(&seen, &later));
    assert!(urgent(&ClusterStatus::default(), &seen));
    assert!(
        urgent(&seen, &healthy(&ledger(2))),
        "a new node is told at once"
    );
}

#[test]
fn an_unregistering_cluster_is_acknowledged() {
    let seen = healthy(&ledger(1));
    let status = wanted(
        at(0),
        &Observed {
            seen: &seen,
            health: Answer::Failed.health(),
            believed: Believed::Current,
            version: None,
            enablements: None,
            sums: Sums::Off,
            models: &[],
            agent: AgentInfo::default(),
            unregister: Some(Mode::KeepWorkloads),
        },
    );
    let ack = conditions::get(&status.conditions, UNREGISTERING).expect("acknowledged");
    assert_eq!(
        (ack.status.as_str(), ack.reason.as_str()),
        ("True", "KeepWorkloads")
    );
}

#[test]
fn what_is_not_stored_is_not_acknowledged() {
    let (keep, remove) = (Some(Mode::KeepWorkloads), Some(Mode::RemoveWorkloads));
    let table = [
        (None, None, None),
        (None, keep, None),
        (keep, None, None),
        // What is stored would still take the workloads away.
        (keep, remove, None),
        (keep, keep, keep),
        (remove, remove, remove),
    ];
    for (asked, stored, want) in table {
        assert_eq!(acknowledged(asked, stored), want, "{asked:?} {stored:?}");
    }
}
