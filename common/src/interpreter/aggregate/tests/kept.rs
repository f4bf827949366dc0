//! What an API server does not let a status take back, though members come and go.

use super::*;

fn job_before(failed: i64, succeeded: i64, condition: &str) -> Value {
    let mut status =
        json!({"failed": failed, "succeeded": succeeded, "startTime": "2019-01-01T00:00:00Z"});
    if !condition.is_empty() {
        status["conditions"] = json!([{"type": condition, "status": "True",
            "reason": "JobFailed", "message": "m0 failed"}]);
    }
    json!({ "status": status })
}

fn told(status: &Value) -> (i64, i64, Vec<String>) {
    let conditions = list(status, "conditions").iter();
    let conditions = conditions.map(|it| format!("{}: {}", text(it, "type"), text(it, "message")));
    let count = |key| number(status, key);
    (count("failed"), count("succeeded"), conditions.collect())
}

#[test]
fn a_job_that_moved_on_keeps_what_was_done() {
    let (running, complete) = (job_member("", 1, 1), job_member("Complete", 0, 1));
    let of = |before: Value, members: &[Value]| {
        told(&of("batch/v1", "Job", before, members).expect("a rule"))
    };
    let (target, failed) = ("FailureTarget: m0 failed", "Failed: m0 failed");
    for (before, members, expected) in [
        // One has failed Pods of its own, or fewer.
        (job_before(2, 0, ""), vec![running.clone()], (2, 1, vec![])),
        (job_before(0, 3, ""), vec![running.clone()], (0, 3, vec![])),
        (job_before(0, 0, ""), vec![running.clone()], (0, 1, vec![])),
        // What was to fail fails, though the others do well.
        (
            job_before(2, 3, "FailureTarget"),
            vec![running.clone(), complete.clone()],
            (2, 3, vec![target]),
        ),
        (
            job_before(2, 3, "FailureTarget"),
            vec![complete.clone()],
            (2, 3, vec![target, failed]),
        ),
        (
            job_before(2, 3, "FailureTarget"),
            vec![],
            (2, 3, vec![target, failed]),
        ),
        // Somebody said that it succeeds.
        (
            job_before(0, 1, "SuccessCriteriaMet"),
            vec![job_member("Failed", 0, 1)],
            (0, 1, vec!["SuccessCriteriaMet: m0 failed"]),
        ),
    ] {
        assert_eq!(
            of(before.clone(), &members),
            (
                expected.0,
                expected.1,
                expected.2.iter().map(|it| (*it).to_owned()).collect()
            ),
            "{before} {members:?}"
        );
    }
    // Where somebody else has failed it is said of them.
    let before = job_before(0, 0, "FailureTarget");
    let (_, _, said) = of(before, &[job_member("Failed", 0, 1)]);
    let message = "Job executed failed in member clusters m1";
    assert_eq!(
        said,
        [
            format!("FailureTarget: {message}"),
            format!("Failed: {message}")
        ]
    );
}

fn container(name: &str, ended: bool) -> Value {
    let state = if ended {
        json!({"terminated": {"exitCode": 1}})
    } else {
        json!({"running": {}})
    };
    json!({"name": name, "state": state})
}

fn containers(status: &Value) -> Vec<(&str, bool)> {
    let all = list(status, "containerStatuses").iter();
    let ended = |it: &Value| it.pointer("/state/terminated").is_some();
    all.map(|it| (text(it, "name"), ended(it))).collect()
}

#[test]
fn a_container_that_ended_may_run_again() {
    let pod = |before: &[Value], members: &[&[Value]]| {
        let member = |it: &&[Value]| json!({"phase": "Running", "containerStatuses": it});
        let members: Vec<Value> = members.iter().map(member).collect();
        let before = json!({"status": {"containerStatuses": before}});
        of("v1", "Pod", before, &members).expect("a rule")
    };
    let (runs, ended) = (container("app", false), container("app", true));
    let unnamed = container("", true);
    let cases = [
        // As in the reference, as long as none has ended.
        (vec![], vec![runs.clone()], vec![("", false)]),
        (vec![], vec![ended.clone()], vec![("", true)]),
        (
            vec![],
            vec![runs.clone(), ended.clone()],
            vec![("app", false), ("", true)],
        ),
        // It was told that one has ended, which runs now.
        (
            vec![unnamed.clone()],
            vec![runs.clone()],
            vec![("app", false)],
        ),
        (vec![unnamed.clone()], vec![ended], vec![("", true)]),
        (
            vec![unnamed],
            vec![json!({"state": {}})],
            vec![("unknown", false)],
        ),
        // Nothing is written again for a name.
        (vec![runs.clone()], vec![runs], vec![("app", false)]),
    ];
    for (before, members, expected) in cases {
        let status = pod(&before, &[&members]);
        assert_eq!(containers(&status), expected, "{before:?} {members:?}");
    }
}

/// Whether an API server refuses that containers of a name run again: it knows them by their names.
fn is_refused(before: &Value, after: &Value) -> bool {
    let after = containers(after);
    let ended = containers(before).into_iter().filter(|(_, ended)| *ended);
    ended
        .flat_map(|(name, _)| after.iter().filter(move |it| it.0 == name))
        .any(|(_, ended)| !ended)
}

proptest! {
    #[test]
    fn no_status_of_a_job_is_less_than_the_one_before(
        (failed, succeeded) in (0i64..5, 0i64..5),
        condition in prop_oneof![Just(""), Just("FailureTarget"), Just("SuccessCriteriaMet")],
        members in proptest::collection::vec(
            (prop_oneof![Just(""), Just("Complete"), Just("Failed")], 0i64..2, 0i64..4), 0..4),
    ) {
        let member = |(kind, active, failed): &(&str, i64, i64)| {
            let mut member = job_member(kind, *active, 1);
            member["failed"] = json!(failed);
            member
        };
        let members: Vec<Value> = members.iter().map(member).collect();
        let before = job_before(failed, succeeded, condition);
        let status = of("batch/v1", "Job", before, &members).expect("a rule");
        let (failed_now, succeeded_now, said) = told(&status);
        prop_assert!(failed_now >= failed && succeeded_now >= succeeded, "{}", status);
        prop_assert!(said.iter().any(|it| it.starts_with(condition)) || condition.is_empty(), "{}", status);
    }

    /// Members come and go, and what a hub wrote before names were given has none.
    #[test]
    fn no_status_of_a_pod_is_refused_for_what_ended(
        before in proptest::collection::vec(any::<bool>(), 0..3),
        rounds in proptest::collection::vec(proptest::collection::vec(
            proptest::collection::vec((prop_oneof![Just("a"), Just("b"), Just("")], any::<bool>()), 0..3), 0..3), 1..6),
    ) {
        let before: Vec<Value> = before.iter().map(|ended| container("", *ended)).collect();
        let mut status = json!({"containerStatuses": before});
        for members in rounds {
            let member = |all: &Vec<(&str, bool)>| {
                let all: Vec<Value> = all.iter().map(|(name, ended)| container(name, *ended)).collect();
                json!({"phase": "Running", "containerStatuses": all})
            };
            let members: Vec<Value> = members.iter().map(member).collect();
            let next = of("v1", "Pod", json!({"status": status}), &members).expect("a rule");
            prop_assert!(!is_refused(&status, &next), "{} {}", status, next);
            let again = of("v1", "Pod", json!({"status": next}), &members).expect("a rule");
            prop_assert_eq!(&again, &next);
            status = next;
        }
    }
}
