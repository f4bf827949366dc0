//! Bindings that are placed, when their clusters go or have no room.

use super::*;

#[test]
fn a_cluster_that_went_since_takes_its_replicas_elsewhere() {
    for how in ["Divided", "Duplicated"] {
        let mut placement = placement(&["m1", "m2"]);
        placement["replicaScheduling"]["replicaSchedulingType"] = json!(how);
        let mut object = object(&placement);
        let ahead = written(&mut object, &snapshot(&["m1", "m2"]), true).expect("placed");
        let both = decided(&object, &snapshot(&["m1", "m2"]), Some(&ahead));
        assert_eq!(both.patch, None, "{how}");
        let mut leaves = pulled("m2");
        leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let left = of_clusters([pulled("m1"), leaves]);
        let one = decided(&object, &left, Some(&ahead));
        let moved = one.patch.expect("to be moved");
        let clusters = json!([{"name": "m1", "replicas": 4}]);
        assert_eq!(moved["spec"]["clusters"], clusters, "{how}");
    }
}

/// Nobody may have looked while it went, as where scheduling was suspended.
#[test]
fn a_cluster_that_is_not_there_any_more_keeps_no_replicas() {
    for how in ["Divided", "Duplicated"] {
        let mut placement = placement(&["m1", "m2"]);
        placement["replicaScheduling"]["replicaSchedulingType"] = json!(how);
        let mut object = object(&placement);
        let both = snapshot(&["m1", "m2"]);
        let ahead = written(&mut object, &both, true).expect("placed");
        let mut told = object.clone();
        told["status"] = json!(decided(&object, &both, Some(&ahead)).status);
        let at_rest = decided(&told, &both, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None), "{how}");
        let left = snapshot(&["m1"]);
        for (object, ahead) in [(&object, Some(&ahead)), (&told, None)] {
            let moved = decided(object, &left, ahead).patch.expect("to be moved");
            let clusters = json!([{"name": "m1", "replicas": 4}]);
            assert_eq!(moved["spec"]["clusters"], clusters, "{how}");
        }
    }
}

/// One is no longer meant, and the other has no room for more: what runs goes on running.
#[test]
fn what_asks_for_more_than_fits_loses_nothing() {
    let snapshot = of_clusters(["m1", "m2"].map(|name| roomy(name, 1, 5)));
    let mut object = object(&by_room(&["m2"]));
    object["spec"]["replicas"] = json!(12);
    object["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}]);
    let decision = decided(&object, &snapshot, None);
    assert_eq!(decision.patch, None);
    let status = decision.status.expect("to be said");
    assert_eq!(status["conditions"][0]["reason"], "Unschedulable");
}

#[test]
fn a_message_with_other_numbers_is_known_as_such() {
    let snapshot = of_clusters([roomy("m1", 1, 1)]);
    let mut object = object(&by_room(&["m1"]));
    let first = decided(&object, &snapshot, None);
    assert!(!first.numbers_only);
    let said = first.status.expect("to be said");
    let message = said["conditions"][0]["message"].as_str().expect("said");
    assert!(message.contains(" replicas 1 are "), "{message}");
    // What is said already; whether something is to be said, and only other numbers.
    let cases = [
        ("Unschedulable", message.to_owned(), false, false),
        ("Unschedulable", message.replace(" 1 ", " 37 "), true, true),
        ("Unschedulable", message.replace(" 1 ", " m1 "), true, false),
        (
            "Unschedulable",
            message.replace("scale up", "do fresh scale"),
            true,
            false,
        ),
        (
            "SchedulerError",
            message.replace(" 1 ", " 37 "),
            true,
            false,
        ),
    ];
    for (reason, message, is_said, numbers_only) in cases {
        object["status"] = said.clone();
        object["status"]["conditions"][0]["reason"] = json!(reason);
        object["status"]["conditions"][0]["message"] = json!(message);
        let mut decision = decided(&object, &snapshot, None);
        assert_eq!(decision.status.is_some(), is_said, "{reason} {message}");
        assert_eq!(decision.numbers_only, numbers_only, "{reason} {message}");
        decision.hold_back();
        assert!(decision.status.is_none() && decision.events.is_empty());
    }
}

/// Who waits for the answer to an edit can tell it from the one before.
#[test]
fn that_it_goes_nowhere_is_said_of_each_generation_and_told_once() {
    let snapshot = snapshot(&["m1"]);
    let mut object = object(&placement(&["m9"]));
    let first = decided(&object, &snapshot, None);
    assert_eq!(first.events.len(), 1);
    object["status"] = first.status.expect("to be said");
    assert_eq!(object["status"]["conditions"][0]["observedGeneration"], 1);
    assert!(decided(&object, &snapshot, None).status.is_none());

    object["metadata"]["generation"] = json!(2);
    let second = decided(&object, &snapshot, None);
    assert!(second.events.is_empty());
    assert!(!second.numbers_only);
    object["status"] = second.status.expect("to be said");
    assert_eq!(object["status"]["conditions"][0]["observedGeneration"], 2);
    assert!(decided(&object, &snapshot, None).status.is_none());
}
