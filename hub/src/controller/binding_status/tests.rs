mod bound;

use super::{Decision, Observed, Work, collect, decide, decide_refused, expected, is_stirring};
use crate::propagation::Binding;
use chrono::DateTime;
use common::api::binding::{
    BindingSnapshot, GracefulEvictionTask, ObjectReference, ResourceBindingStatus, TargetCluster,
};
use common::api::policy::PurgeMode;
use common::api::work::{ResourceHealth, WorkStatus};
use common::conditions;
use common::gvk::Gvk;
use common::interpreter::aggregate::aggregate;
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(cluster: &str) -> TargetCluster {
    TargetCluster {
        name: cluster.into(),
        ..TargetCluster::default()
    }
}

fn binding(clusters: &[&str]) -> Binding {
    let mut binding = Binding {
        namespace: Some("default".into()),
        name: "nginx-deployment".into(),
        resource_version: "7".into(),
        ..Binding::default()
    };
    binding.spec.resource = resource();
    binding.spec.clusters = clusters.iter().map(|it| at(it)).collect();
    binding
}

fn resource() -> ObjectReference {
    ObjectReference {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: Some("default".into()),
        name: "nginx".into(),
        ..ObjectReference::default()
    }
}

fn work(cluster: &str, applied: &str, status: Value) -> Work {
    let report = json!({
        "conditions": [{"type": "Applied", "status": applied, "message": format!("{cluster} says {applied}")}],
        "manifestStatuses": [
            {"identifier": {"ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment",
                "namespace": "other", "name": "nginx"}, "status": {"replicas": 99}, "health": "Unhealthy"},
            {"identifier": {"ordinal": 1, "group": "apps", "version": "v1", "kind": "Deployment",
                "namespace": "default", "name": "nginx"}, "status": status, "health": "Healthy"},
        ],
    });
    Work {
        cluster: cluster.into(),
        deleting: false,
        status: serde_json::from_value(report).expect("a status"),
    }
}

fn silent(cluster: &str) -> Work {
    Work {
        cluster: cluster.into(),
        deleting: false,
        status: WorkStatus::default(),
    }
}

fn decided(seen: &Observed) -> Decision {
    let items = collect(&seen.binding.spec.resource, &seen.works);
    let now = DateTime::from_timestamp(1_700_000_000, 0).expect("in range");
    decide(now, seen, &items)
}

fn fully_applied(decision: &Decision) -> Option<bool> {
    let status = decision.status.as_ref()?;
    let condition = conditions::get(&status.conditions, "FullyApplied")?;
    Some(condition.status == "True")
}

#[test]
fn every_work_is_one_item() {
    let mut going = work("m0", "True", json!({}));
    going.deleting = true;
    let works = [
        work("m3", "False", json!({"replicas": 1})),
        silent("m2"),
        work("m1", "True", json!({"replicas": 2})),
        work("m4", "Unknown", json!({})),
        going,
    ];
    let items = serde_json::to_value(collect(&resource(), &works)).expect("encodes");
    let want = json!([
        {"clusterName": "m1", "status": {"replicas": 2}, "applied": true, "health": "Healthy"},
        {"clusterName": "m2", "health": "Unknown"},
        {"clusterName": "m3", "appliedMessage": "m3 says False", "health": "Unknown"},
        {"clusterName": "m4", "appliedMessage": "m4 says Unknown", "health": "Unknown"},
    ]);
    assert_eq!(items, want);
    let mut other = resource();
    other.name = "apache".into();
    let items = collect(&other, &works[2..3]);
    assert_eq!(items[0].status, None);
    assert_eq!(items[0].health, Some(ResourceHealth::Unknown));
}

#[test]
fn a_template_has_not_come_to_an_end_that_some_members_have_not_begun() {
    let job = |works: &[Work]| {
        let spec = binding(&["m1", "m2"]).spec;
        let items = expected(&spec, &collect(&resource(), works));
        let gvk = Gvk::new("batch/v1", "Job").expect("sound");
        let status = aggregate(&gvk, &json!({"metadata": {"generation": 1}}), &items);
        status.expect("a rule")["conditions"].clone()
    };
    let done = |cluster: &str| {
        let conditions = json!([{"type": "Complete", "status": "True"}]);
        work(
            cluster,
            "True",
            json!({"succeeded": 1, "conditions": conditions}),
        )
    };
    assert_eq!(job(&[done("m1")]), Value::Null);
    assert_eq!(job(&[done("m1"), silent("m2")]), Value::Null);
    let ended = job(&[done("m1"), done("m2")]);
    assert_eq!(ended[1]["type"], "Complete", "{ended}");

    let observed = |clusters: &[&str]| {
        let items = expected(&binding(clusters).spec, &[]);
        let gvk = Gvk::new("apps/v1", "Deployment").expect("sound");
        let status = aggregate(&gvk, &json!({"metadata": {"generation": 3}}), &items);
        status.expect("a rule")["observedGeneration"].clone()
    };
    // One that goes nowhere is done; one that just moves is not.
    assert_eq!(observed(&[]), 3);
    assert_eq!(observed(&["m1"]), Value::Null);
}

/// Check 64 of the reference, and who else counts.
#[test]
fn all_that_it_was_given_to_have_to_have_it() {
    let (yes, no) = (
        |it| work(it, "True", json!({})),
        |it| work(it, "False", json!({})),
    );
    let leaving = |cluster: &str, mode| GracefulEvictionTask {
        from_cluster: cluster.into(),
        purge_mode: mode,
        ..GracefulEvictionTask::default()
    };
    let mut required = binding(&["m1"]);
    required.spec.required_by = vec![BindingSnapshot {
        clusters: vec![at("m2"), at("m1")],
        ..BindingSnapshot::default()
    }];
    let mut graceful = binding(&["m1", "m2"]);
    graceful.spec.graceful_eviction_tasks = vec![leaving("m3", Some(PurgeMode::Gracefully))];
    let mut direct = binding(&["m1", "m2"]);
    direct.spec.graceful_eviction_tasks = vec![leaving("m3", Some(PurgeMode::Directly))];
    let cases = [
        (binding(&["m1", "m2"]), vec![yes("m1"), no("m2")], false),
        (binding(&["m1", "m2"]), vec![yes("m1"), yes("m2")], true),
        (binding(&["m1", "m2"]), vec![yes("m1")], false),
        (binding(&["m1"]), vec![yes("m1"), yes("m2")], false),
        (binding(&["m1"]), vec![yes("m2")], false),
        (binding(&[]), vec![yes("m1")], false),
        (required.clone(), vec![yes("m1"), yes("m2")], true),
        (required, vec![yes("m1")], false),
        (
            graceful.clone(),
            vec![yes("m1"), yes("m2"), no("m3")],
            false,
        ),
        (graceful, vec![yes("m1"), yes("m2"), yes("m3")], true),
        (direct, vec![yes("m1"), yes("m2")], true),
    ];
    for (binding, works, want) in cases {
        let seen = Observed {
            binding,
            works,
            ..Observed::default()
        };
        assert_eq!(fully_applied(&decided(&seen)), Some(want), "{seen:?}");
    }
}

#[test]
fn nothing_is_told_before_anybody_said_something() {
    let mut seen = Observed {
        binding: binding(&["m1"]),
        works: vec![silent("m1")],
        template: Some((json!({}), Ok(json!({"replicas": 0})))),
        ..Observed::default()
    };
    assert_eq!(decided(&seen), Decision::default());
    seen.stirred = true;
    assert_eq!(fully_applied(&decided(&seen)), Some(false));
    seen.stirred = false;
    seen.works = vec![work("m1", "True", json!({}))];
    let decision = decided(&seen);
    assert_eq!(fully_applied(&decision), Some(true));
    // What was told once is told anew when nobody says anything any more.
    seen.status = decision.status.expect("a status");
    seen.works = vec![silent("m1")];
    assert_eq!(fully_applied(&decided(&seen)), Some(false));
    seen.binding.deleting = true;
    assert_eq!(decided(&seen), Decision::default());
}

#[test]
fn a_template_that_changed_after_it_was_placed_is_answered() {
    let old = binding(&["m1"]);
    let mut new = old.clone();
    assert!(!is_stirring(&old, &new, true));
    new.spec.resource.resource_version = Some("8".into());
    assert!(is_stirring(&old, &new, true));
    assert!(!is_stirring(&old, &new, false));
}

#[test]
fn only_what_differs_is_written_and_told() {
    let after = json!({"replicas": 2, "conditions": [1]});
    let mut seen = Observed {
        binding: binding(&["m1"]),
        works: vec![work("m1", "True", json!({"replicas": 2}))],
        template: Some((json!({"replicas": 1, "conditions": [1]}), Ok(after))),
        ..Observed::default()
    };
    let scheduled = conditions::new("Scheduled", true, "Success", "", DateTime::UNIX_EPOCH);
    seen.status.conditions.push(scheduled);
    let decision = decided(&seen);
    let text =
        "Update ResourceBinding(default/nginx-deployment) with AggregatedStatus successfully.";
    assert_eq!(decision.events[0].message, text);
    assert_eq!(
        decision.template_events[0].message,
        "Update Resource with AggregatedStatus successfully."
    );
    assert_eq!(
        decision.template_patch(&seen),
        Some(json!({"status": {"replicas": 2}}))
    );
    let patch = decision
        .status_patch(&seen)
        .expect("encodes")
        .expect("a patch");
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
    let conditions = patch["status"]["conditions"].as_array().expect("a list");
    assert_eq!(conditions.len(), 2, "{patch}");

    seen.status = decision.status.expect("a status");
    let again = decided(&seen);
    assert_eq!((again.status, again.template.is_some()), (None, true));
    seen.template = Some((
        json!({"replicas": 2, "x": null}),
        Ok(json!({"replicas": 2})),
    ));
    assert_eq!(decided(&seen), Decision::default());
    seen.template = Some((json!({}), Err("no such rule".into())));
    let failed = decided(&seen);
    assert_eq!(failed.template_events[0].reason, "AggregateStatusFailed");
    assert_eq!(failed.template_patch(&seen), None);

    // It is told once, and shown for as long as it is so.
    let shown = |decision: &Decision| {
        let status = decision.status.clone().expect("a status");
        conditions::get(&status.conditions, "StatusAggregated").map(|it| it.message.clone())
    };
    assert_eq!(shown(&failed).as_deref(), Some("no such rule"));
    seen.status = failed.status.clone().expect("a status");
    assert_eq!(decided(&seen), Decision::default());
    seen.template = Some((json!({}), Err("\u{e4}".repeat(9_999))));
    assert_eq!(shown(&decided(&seen)).map(|it| it.len()), Some(1024));
    seen.template = Some((json!({}), Ok(json!({}))));
    assert_eq!(shown(&decided(&seen)), None);
}

/// The words are held in memory alone.
#[test]
fn a_hub_that_starts_keeps_what_is_told_of_a_refusal_until_the_status_is_written() {
    let mut seen = Observed {
        binding: binding(&["m1"]),
        works: vec![work("m1", "True", json!({}))],
        template: Some((json!({"failed": 2}), Ok(json!({"failed": 1})))),
        ..Observed::default()
    };
    let items = collect(&seen.binding.spec.resource, &seen.works);
    let refused = decide_refused(DateTime::UNIX_EPOCH, &seen, &items, "it is less");
    seen.status = refused.status.expect("a status");
    let told = |status: &ResourceBindingStatus| {
        let told = conditions::get(&status.conditions, "StatusAggregated");
        told.map(|it| (it.status.clone(), it.reason.clone()))
    };
    let shown = Some(("False".to_owned(), "AggregateStatusRefused".to_owned()));
    assert_eq!(told(&seen.status), shown);
    let started = decided(&seen);
    assert_eq!((&started.status, &started.events), (&None, &Vec::new()));
    assert!(started.again && started.template.is_some());

    // It was taken, and is another one for what its kind does not know.
    let mut odd = seen.clone();
    odd.taken = true;
    let rest = decided(&odd);
    assert_eq!(rest.status.as_ref().map(told), Some(None));
    assert!(!rest.again);

    // It was taken.
    let mut written = seen.clone();
    written.template = Some((json!({"failed": 1}), Ok(json!({"failed": 1}))));
    let rest = decided(&written);
    assert_eq!(rest.status.as_ref().map(told), Some(None));
    assert!(!rest.again);

    // That a status could not be made at all says nothing about the one that was made now.
    seen.template = Some((json!({"failed": 2}), Err("no such rule".into())));
    seen.status = decided(&seen).status.expect("a status");
    seen.template = Some((json!({"failed": 2}), Ok(json!({"failed": 1}))));
    let mended = decided(&seen);
    assert_eq!(mended.status.as_ref().map(told), Some(None));
    assert!(!mended.again);
}

/// What an API server refuses is told in its words, and tried again.
#[test]
fn a_refused_status_is_told_and_still_wanted() {
    let decided = |seen: &Observed| {
        let items = collect(&seen.binding.spec.resource, &seen.works);
        decide_refused(
            DateTime::UNIX_EPOCH,
            seen,
            &items,
            "failed is less than it was",
        )
    };
    let mut seen = Observed {
        binding: binding(&["m1"]),
        works: vec![work("m1", "True", json!({}))],
        template: Some((json!({"failed": 2}), Ok(json!({"failed": 1})))),
        ..Observed::default()
    };
    let refused = decided(&seen);
    let patch = refused.template_patch(&seen);
    assert_eq!(patch, Some(json!({"status": {"failed": 1}})));
    assert_eq!(refused.template_events, []);
    seen.status = refused.status.expect("a status");
    let told = conditions::get(&seen.status.conditions, "StatusAggregated").expect("told");
    assert_eq!(told.message, "failed is less than it was");
    let again = decided(&seen);
    assert_eq!((again.status, again.template.is_some()), (None, true));
    // Nothing is to be written any more.
    seen.template = Some((json!({"failed": 2}), Ok(json!({"failed": 2}))));
    let status = decided(&seen).status.expect("a status");
    assert!(conditions::get(&status.conditions, "StatusAggregated").is_none());
}

proptest! {
    /// What was written is not written again, whatever members say.
    #[test]
    fn it_comes_to_rest(
        targets in proptest::collection::btree_set("m[1-4]", 0..4),
        reports in proptest::collection::btree_map("m[1-4]", ("True|False|Unknown", 0i64..3), 0..4),
        stirred in any::<bool>(),
    ) {
        let names: Vec<&str> = targets.iter().map(String::as_str).collect();
        let report = |(name, (applied, count)): (&String, &(String, i64))| {
            work(name, applied, json!({"replicas": count}))
        };
        let mut seen = Observed {
            binding: binding(&names),
            works: reports.iter().map(report).collect(),
            stirred,
            ..Observed::default()
        };
        let first = decided(&seen);
        let patch = first.status_patch(&seen).expect("encodes");
        prop_assert_eq!(first.status.is_some(), patch.is_some());
        seen.status = first.status.unwrap_or_default();
        prop_assert_eq!(decided(&seen), Decision::default());
    }
}
