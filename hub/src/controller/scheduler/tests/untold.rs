//! A placement that is written while its status is not: the hub ended in between, or somebody else wrote the status.

use super::super::{Placing, Scheduler};
use super::*;
use crate::controller::bindings::Bindings;
use crate::controller::events::Events;
use crate::controller::notices::Notices;
use crate::world::testing::unreachable;
use crate::world::{ObjectName, World};
use common::controller::{Failure as _, Reconcile as _};
use common::labels::{APPLIED_PLACEMENT, POLICY_PERMANENT_ID};
use common::lock::lock;
use common::time::SystemClock;
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::timeout;

/// Divided over the first of these groups that can have it.
fn grouped(a: &[&str], b: &[&str]) -> Value {
    let mut placement = placement(&[]);
    placement["clusterAffinity"] = Value::Null;
    placement["clusterAffinities"] = json!([
        {"affinityName": "a", "clusterNames": a},
        {"affinityName": "b", "clusterNames": b},
    ]);
    placement
}

/// Placed on a cluster by this placement, which the status tells of its generation.
fn placed(placement: &Value, cluster: &str, observed: Option<&str>) -> Value {
    let mut object = object(placement);
    object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
    object["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: placement.to_string()});
    object["spec"]["clusters"] = json!([{"name": cluster, "replicas": 4}]);
    object["status"] = json!({
        "schedulerObservedGeneration": 1,
        "schedulerObservingAffinityName": observed,
        "lastScheduledTime": "2020-01-01T00:00:00Z",
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Success",
            "message": "Binding has been scheduled successfully.", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
    });
    object
}

fn edit(object: &mut Value, placement: &Value) {
    object["spec"]["placement"] = placement.clone();
    let generation = object["metadata"]["generation"].as_i64().expect("a number");
    object["metadata"]["generation"] = json!(generation + 1);
}

#[test]
fn a_group_that_the_status_does_not_tell_of_is_told_with_the_generation() {
    // The groups, where it is, and the group that is told; the one that is to be.
    let cases = [
        (grouped(&["m9"], &["m2"]), "m2", Some("a"), Some("b")),
        // It is no longer of the group that it was chosen from, where others are.
        (grouped(&["m1"], &["m2"]), "m2", Some("a"), None),
        (grouped(&["m1"], &["m2"]), "m2", None, Some("b")),
        (grouped(&["m1"], &["m2"]), "m2", Some("b"), None),
        (grouped(&["m1"], &["m2"]), "m1", Some("a"), None),
        (grouped(&["m1", "m2"], &["m2"]), "m2", Some("a"), None),
        // From a later group it does not go to an earlier one.
        (grouped(&["m1"], &["m2"]), "m1", Some("b"), None),
        (grouped(&["m1"], &["m2"]), "m3", Some("a"), None),
        (placement(&["m1", "m2"]), "m2", None, None),
    ];
    let snapshot = snapshot(&["m1", "m2", "m3"]);
    for (placement, cluster, observed, wanted) in cases {
        let mut object = placed(&placement, cluster, observed);
        let at_rest = decided(&object, &snapshot, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None));
        object["metadata"]["generation"] = json!(2);
        let decision = decided(&object, &snapshot, None);
        assert_eq!(decision.patch, None);
        let status = decision.status.expect("to be noted");
        assert_eq!(status["schedulerObservedGeneration"], 2);
        let told = status.get("schedulerObservingAffinityName");
        assert_eq!(
            told,
            wanted.map(|it| json!(it)).as_ref(),
            "{cluster} {observed:?}"
        );
        json_patch::merge(&mut object["status"], &status);
        let at_rest = decided(&object, &snapshot, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None));
    }
}

#[test]
fn an_edit_of_a_group_that_the_status_does_not_tell_of_counts() {
    let snapshot = snapshot(&["m2", "m3"]);
    let edited = grouped(&["m1"], &["m3"]);
    for noted in [true, false] {
        let mut object = placed(&grouped(&["m1"], &["m2"]), "m2", Some("a"));
        object["metadata"]["generation"] = json!(2);
        if noted {
            let status = decided(&object, &snapshot, None).status;
            json_patch::merge(&mut object["status"], &status.expect("to be noted"));
        }
        edit(&mut object, &edited);
        let decision = decided(&object, &snapshot, None);
        let clusters = json!([{"name": "m3", "replicas": 4}]);
        let patch = decision.patch.expect("to be moved");
        assert_eq!(patch["spec"]["clusters"], clusters, "{noted}");
        let status = decision.status.expect("to be said");
        assert_eq!(status["schedulerObservingAffinityName"], "b", "{noted}");
    }
}

/// A scheduler over an API server whose first write of a status is refused, and what is written.
struct Stage {
    scheduler: Arc<Scheduler>,
    world: World,
    client: Client,
    notices: Notices,
    written: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Stage {
    async fn with(clusters: &[Value], object: &Value) -> Self {
        let written = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let all = Arc::clone(&written);
        let mut refused = false;
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let all = Arc::clone(&all);
            let is_status = request.uri().path().ends_with("/status");
            let refuses = is_status && !std::mem::replace(&mut refused, true);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body = serde_json::from_slice(&body).expect("JSON");
                let path = parts.uri.path();
                let part = path.rsplit('/').next().unwrap_or_default().to_owned();
                lock(&all).push((part, body));
                // Of a version that nobody waits for.
                let answer = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "web-deployment", "resourceVersion": "x", "generation": 2}});
                let mut response = http::Response::new(Body::from(answer.to_string().into_bytes()));
                if refuses {
                    *response.status_mut() = StatusCode::CONFLICT;
                }
                Ok::<_, std::io::Error>(response)
            }
        });
        let client = Client::new(service, "default");
        let (world, notices) = (unreachable(), Notices::default());
        let placing = Placing::watching(&world);
        let bindings = Bindings::new(client.clone(), world.clone(), notices.clone());
        let (scheduler, _) = Scheduler::wired(bindings, placing, Arc::new(SystemClock), &world);
        world.clusters.listed(clusters).await;
        let bindings = &world.propagation.bindings;
        bindings.listed(std::slice::from_ref(object)).await;
        Self {
            scheduler,
            world,
            client,
            notices,
            written,
        }
    }

    /// What is written when the binding is looked at, and whether all of it was.
    async fn look(&self) -> (bool, Vec<(String, Value)>) {
        let name = ObjectName::new(Some("n"), "web-deployment");
        let done = self.scheduler.reconcile(&name).await;
        if let Err(error) = &done {
            assert!(error.is_conflict(), "{error}");
        }
        (done.is_ok(), std::mem::take(&mut *lock(&self.written)))
    }

    /// A write of the binding is carried out.
    async fn changed(&self, object: &mut Value, patch: &Value, version: &str) {
        json_patch::merge(object, patch);
        object["metadata"]["resourceVersion"] = json!(version);
        let bindings = &self.world.propagation.bindings;
        bindings.sent(std::slice::from_ref(object)).await;
    }

    /// The reasons of what is told as Events.
    async fn told(&self) -> Vec<String> {
        let events = Events::new(self.client.clone(), Arc::new(SystemClock), "hub");
        let told = self.notices.clone().tell(events, || false);
        let ended = timeout(Duration::from_secs(1), told).await;
        assert!(ended.is_err(), "it is told for ever");
        let written = std::mem::take(&mut *lock(&self.written)).into_iter();
        let mut reasons: Vec<String> = written
            .filter_map(|(_, body)| Some(body["reason"].as_str()?.to_owned()))
            .collect();
        reasons.sort();
        reasons
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_refused_is_written_once_with_all_it_tells() {
    let (failed, succeed) = ("ScheduleBindingFailed", "ScheduleBindingSucceed");
    let cases = [
        (
            grouped(&["m1"], &["m2"]),
            Some("a"),
            json!("b"),
            vec![failed, failed, succeed, succeed],
        ),
        (
            placement(&["m1", "m2"]),
            None,
            Value::Null,
            vec![succeed, succeed],
        ),
    ];
    for (placement, before, group, events) in cases {
        let mut leaves = pulled("m1");
        leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut object = placed(&placement, "m1", before);
        let stage = Stage::with(&[leaves, pulled("m2")], &object).await;
        let (done, written) = stage.look().await;
        let parts: Vec<&str> = written.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!((done, parts), (false, vec!["web-deployment", "status"]));
        assert!(stage.told().await.is_empty());
        object["metadata"]["generation"] = json!(2);
        let patch = &written[0].1;
        let clusters = json!([{"name": "m2", "replicas": 4}]);
        assert_eq!(patch["spec"]["clusters"], clusters);
        stage.changed(&mut object, patch, "8").await;
        let (done, written) = stage.look().await;
        let parts: Vec<&str> = written.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!((done, parts), (true, vec!["status"]));
        let status = &written[0].1["status"];
        assert_eq!(status["schedulerObservedGeneration"], 2);
        assert_eq!(status["schedulerObservingAffinityName"], group);
        assert_ne!(status["lastScheduledTime"], "2020-01-01T00:00:00Z");
        assert_eq!(stage.told().await, events);
        stage.changed(&mut object, &written[0].1, "9").await;
        assert_eq!(stage.look().await, (true, Vec::new()));
        assert!(stage.told().await.is_empty());
    }
}

/// It would be taken for placed by what it cannot be placed by.
#[tokio::test(start_paused = true)]
async fn that_it_goes_nowhere_is_said_before_its_placement_counts_as_answered() {
    let mut object = placed(&placement(&["m1"]), "m1", None);
    edit(&mut object, &placement(&["m9"]));
    let stage = Stage::with(&[pulled("m1")], &object).await;
    let (done, written) = stage.look().await;
    assert_eq!((done, written.len()), (false, 1), "{written:?}");
    assert_eq!(written[0].0, "status");
    let (done, written) = stage.look().await;
    let parts: Vec<&str> = written.iter().map(|(part, _)| part.as_str()).collect();
    assert_eq!((done, parts), (true, vec!["status", "web-deployment"]));
    let status = &written[0].1["status"];
    assert_eq!(status["conditions"][0]["reason"], "NoClusterFit");
}
