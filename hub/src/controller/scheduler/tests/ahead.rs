//! A placement that is written with its binding, and what the scheduler says of it afterwards.

use super::super::decide::said;
use super::*;
use common::api::binding::ResourceBindingStatus;
use common::conditions;
use common::labels::APPLIED_PLACEMENT;

const DONE: &str = "Binding has been scheduled successfully. Result: {m1:2, m2:2}";

fn reasons(decision: &Decision) -> Vec<(&str, &str)> {
    let events = decision.events.iter();
    events.map(|it| (it.reason, it.message.as_str())).collect()
}

#[test]
fn a_new_binding_is_written_with_its_placement_and_its_status_follows_once() {
    let snapshot = snapshot(&["m1", "m2", "m3"]);
    let mut object = object(&placement(&["m1", "m2"]));
    let ahead = written(&mut object, &snapshot, true).expect("placed");
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    assert_eq!(object["spec"]["clusters"], clusters);
    let applied = &object["metadata"]["annotations"][APPLIED_PLACEMENT];
    let applied: Value = serde_json::from_str(applied.as_str().expect("noted")).expect("JSON");
    assert_eq!(
        applied["clusterAffinity"]["clusterNames"],
        json!(["m1", "m2"])
    );
    // A hub that ended in between says the same, from what it sees.
    for ahead in [Some(&ahead), None] {
        let decision = decided(&object, &snapshot, ahead);
        assert_eq!(decision.patch, None);
        assert_eq!(reasons(&decision), [("ScheduleBindingSucceed", DONE)]);
        let status = decision.status.expect("to be said");
        assert_eq!(status["conditions"][0]["reason"], "Success");
        assert_eq!(status["schedulerObservedGeneration"], 1);
        assert!(status["lastScheduledTime"].is_string());
        let mut settled = object.clone();
        settled["status"] = status;
        let at_rest = decided(&settled, &snapshot, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None));
        assert!(at_rest.events.is_empty());
    }
}

#[test]
fn a_placement_that_changes_moves_with_the_same_write() {
    let snapshot = snapshot(&["m1", "m2", "m3"]);
    let mut object = object(&placement(&["m3"]));
    let ahead = written(&mut object, &snapshot, true);
    object["status"] = decided(&object, &snapshot, ahead.as_ref())
        .status
        .expect("to be said");
    object["status"]["lastScheduledTime"] = json!("2020-01-01T00:00:00Z");
    object["spec"]["placement"] = placement(&["m1", "m2"]);
    let ahead = written(&mut object, &snapshot, false).expect("placed");
    assert!(ahead.moves);
    object["metadata"]["generation"] = json!(2);
    let decision = decided(&object, &snapshot, Some(&ahead));
    assert_eq!(decision.patch, None);
    assert_eq!(reasons(&decision), [("ScheduleBindingSucceed", DONE)]);
    let status = decision.status.expect("to be said");
    assert_eq!(status["schedulerObservedGeneration"], 2);
    assert_eq!(status["lastScheduledTime"], "1970-01-01T00:00:00Z");
    // Somebody scaled it meanwhile: what was written ahead is not what it wants any more.
    object["spec"]["replicas"] = json!(6);
    let moved = decided(&object, &snapshot, Some(&ahead)).patch;
    let moved = moved.expect("to be moved");
    assert_eq!(moved["spec"]["clusters"][0]["replicas"], 3);
}

#[test]
fn what_members_say_and_where_it_was_placed_is_one_status() {
    let snapshot = snapshot(&["m1", "m2"]);
    let mut object = object(&placement(&["m1", "m2"]));
    let ahead = written(&mut object, &snapshot, true).expect("placed");
    let now = DateTime::UNIX_EPOCH;
    let told = said(now, &read(&object), &ahead).expect("not told yet");
    let applied = conditions::new("FullyApplied", true, "FullyAppliedSuccess", "", now);
    let mut status = ResourceBindingStatus {
        conditions: vec![applied],
        ..ResourceBindingStatus::default()
    };
    told.write_into(now, &mut status);
    object["status"] = json!(status);
    let types = status.conditions.iter().map(|it| it.type_.as_str());
    assert!(types.eq(["FullyApplied", "Scheduled"]));
    // Nothing is left to be said.
    assert!(said(now, &read(&object), &ahead).is_none());
    let at_rest = decided(&object, &snapshot, None);
    assert_eq!((at_rest.patch, at_rest.status), (None, None));
    // Of another placement it is not told.
    object["spec"]["replicas"] = json!(6);
    assert!(said(now, &read(&object), &ahead).is_none());
}

#[test]
fn what_fits_nowhere_is_written_as_it_is() {
    let snapshot = snapshot(&["m1"]);
    let mut object = object(&placement(&["m9"]));
    assert!(written(&mut object, &snapshot, true).is_none());
    assert_eq!(object["metadata"]["annotations"], json!({}));
    assert_eq!(object["spec"]["clusters"], json!([]));
}
