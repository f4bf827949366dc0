//! The tick against a scripted hub and member, under paused time.

use super::*;
use crate::testing;
use common::api::cluster::default_models;
use common::client::Problem;
use common::leader::Standing;
use common::signal;
use common::unregister::Mode;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU16, Ordering};

/// A hub that holds one Cluster and applies merge patches to it.
#[derive(Clone)]
struct Hub(Arc<Mutex<HubState>>);

struct HubState {
    cluster: Value,
    /// Bodies that changed something.
    writes: Vec<Value>,
    reads: usize,
    /// Whether somebody else writes just before the next patch.
    interfere: bool,
    /// Whether there is no Cluster yet, and what other one there is.
    absent: bool,
    other: Value,
}

impl Hub {
    fn new() -> Self {
        let cluster = json!({
            "metadata": {"name": "m1", "uid": "u1", "resourceVersion": "1", "annotations": {
                "towline.dev/registration-id": "abc",
            }},
            "spec": {"syncMode": "Pull", "resourceModels": default_models()},
        });
        Self(Arc::new(Mutex::new(HubState {
            cluster,
            writes: Vec::new(),
            reads: 0,
            interfere: false,
            absent: false,
            other: Value::Null,
        })))
    }

    fn with<T>(&self, act: impl FnOnce(&mut HubState) -> T) -> T {
        act(&mut self.0.lock().expect("not poisoned"))
    }

    fn client(&self) -> Client {
        let hub = self.clone();
        testing::service(move |request| {
            let hub = hub.clone();
            async move {
                let (parts, body) = request.into_parts();
                if parts.uri.path() == "/apis/cluster.karmada.io/v1alpha1/clusters" {
                    let body = testing::bytes(body).await;
                    return hub.with(|state| state.collection(&parts.method, &body));
                }
                assert_eq!(parts.method, Method::PATCH, "an agent has no other right");
                let path = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/status";
                assert_eq!(parts.uri.path(), path);
                let body = serde_json::from_str(&testing::bytes(body).await).expect("json");
                hub.with(|state| state.patch(&body))
            }
        })
    }

    fn condition(&self, type_: &str) -> String {
        self.with(|state| {
            let conditions = state.cluster["status"]["conditions"].as_array();
            let found = conditions
                .into_iter()
                .flatten()
                .find(|c| c["type"] == type_);
            found.map_or("none".into(), |c| {
                format!(
                    "{} {}",
                    c["status"].as_str().unwrap_or(""),
                    c["reason"].as_str().unwrap_or("")
                )
            })
        })
    }
}

impl HubState {
    /// What agents with hand-made credentials may do: list Clusters, and make theirs.
    fn collection(&mut self, method: &Method, body: &str) -> http::Response<kube::client::Body> {
        assert!(self.absent, "it is there");
        if method == Method::GET {
            return testing::json(200, &json!({"items": [self.other]}));
        }
        let made: Value = serde_json::from_str(body).expect("json");
        self.writes.push(made.clone());
        self.absent = false;
        testing::json(201, &made)
    }

    fn patch(&mut self, body: &Value) -> http::Response<kube::client::Body> {
        if self.absent {
            let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound",
                "code": 404, "message": "clusters \"m1\" not found"});
            return testing::json(404, &status);
        }
        if body == &json!({}) {
            self.reads += 1;
            return testing::json(200, &self.cluster);
        }
        if std::mem::take(&mut self.interfere) {
            self.bump();
        }
        let version = &body["metadata"]["resourceVersion"];
        if !version.is_null() && *version != self.cluster["metadata"]["resourceVersion"] {
            let status = json!({
                "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
                "message": "the object has been modified",
            });
            return testing::json(409, &status);
        }
        json_patch::merge(&mut self.cluster, body);
        self.bump();
        self.writes.push(body.clone());
        testing::json(200, &self.cluster)
    }

    fn bump(&mut self) {
        let version = self.cluster["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("0");
        let next = version.parse::<u64>().unwrap_or(0) + 1;
        self.cluster["metadata"]["resourceVersion"] = next.to_string().into();
    }
}

/// A member whose `/readyz` answers with what `code` holds.
fn member(code: &Arc<AtomicU16>) -> Client {
    let code = Arc::clone(code);
    testing::service(move |request| {
        let code = code.load(Ordering::Relaxed);
        async move {
            let groups = |name: &str, resource: &str, kind: &str| {
                json!({"kind": "APIGroupDiscoveryList", "items": [
                    {"metadata": {"name": name}, "versions": [{"version": "v1", "resources": [
                        {"resource": resource, "responseKind": {"kind": kind}},
                    ]}]},
                ]})
            };
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
            match request.uri().path() {
                "/readyz" => testing::json(code, &json!({})),
                "/version" => testing::json(200, &json!({"gitVersion": "v1.36.3"})),
                "/api" => testing::json(200, &groups("", "pods", "Pod")),
                "/apis" => testing::json(200, &groups("apps", "deployments", "Deployment")),
                _ if request
                    .uri()
                    .query()
                    .is_some_and(|q| q.contains("watch=true")) =>
                {
                    std::future::pending().await
                }
                _ => testing::json(200, &list),
            }
        }
    })
}

struct Running {
    hub: Hub,
    member: Arc<AtomicU16>,
    context: AgentContext,
}

async fn start() -> Running {
    let (hub, code) = (Hub::new(), Arc::new(AtomicU16::new(200)));
    let context = testing::context(hub.client(), member(&code)).await;
    tokio::spawn(run(context.clone()));
    Running {
        hub,
        member: code,
        context,
    }
}

/// Whether the hub is told anything within so many seconds, where it answers a renewal after one, or none at all.
async fn told(heard: bool, after: u64) -> bool {
    let hub = Hub::new();
    let member = member(&Arc::new(AtomicU16::new(200)));
    let context = testing::context(hub.client(), member).await;
    context.heard.send_replace(false);
    let running = tokio::spawn(run(context.clone()));
    if heard {
        seconds(1).await;
        context.heard.send_replace(true);
    }
    seconds(after).await;
    running.abort();
    hub.with(|state| state.reads + state.writes.len() > 0)
}

#[tokio::test(start_paused = true)]
async fn the_hub_is_told_nothing_before_it_answers_renewals_or_a_lease_is_over() {
    assert!(told(true, 2).await);
    assert!(!told(false, 39).await);
    assert!(told(false, 42).await);
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_told_once_and_then_nothing() {
    let running = start().await;
    seconds(15).await;
    assert_eq!(running.hub.condition("Ready"), "True ClusterReady");
    assert_eq!(
        running.hub.condition("CompleteAPIEnablements"),
        "True Complete"
    );
    assert_eq!(
        running.hub.condition("CompleteResourceSummary"),
        "True Complete"
    );
    running.hub.with(|state| {
        let status = &state.cluster["status"];
        assert_eq!(status["kubernetesVersion"], "v1.36.3");
        assert_eq!(status["apiEnablements"][0]["groupVersion"], "apps/v1");
        assert_eq!(status["agent"]["version"], env!("CARGO_PKG_VERSION"));
    });
    let writes = running.hub.with(|state| state.writes.len());
    assert!(
        writes <= 2,
        "{writes}: health at once, sums when they are known"
    );
    seconds(600).await;
    running.hub.with(|state| {
        assert_eq!(state.writes.len(), writes, "{:?}", state.writes);
        assert!(state.reads >= 60);
    });
}

/// Runs for a while against a hub that has no Cluster of ours; returns what was said of it.
async fn absent(register: bool, other: Value) -> (Hub, Option<String>) {
    let (hub, code) = (Hub::new(), Arc::new(AtomicU16::new(200)));
    hub.with(|state| {
        state.absent = true;
        state.other = other;
    });
    let context = testing::context_by_hand(hub.client(), member(&code), register).await;
    tokio::spawn(run(context.clone()));
    seconds(15).await;
    let said = context.errors.text();
    (hub, said)
}

#[tokio::test(start_paused = true)]
async fn a_missing_cluster_is_made_when_the_operator_says_so() {
    let none = json!({"metadata": {"name": "else"}, "spec": {"id": "another"}});
    let (hub, said) = absent(true, none.clone()).await;
    assert_eq!(said, None);
    assert_eq!(hub.condition("Ready"), "True ClusterReady");
    let made = hub.with(|state| state.writes[0].clone());
    assert_eq!(made["spec"], json!({"syncMode": "Pull", "id": "id"}));

    let (hub, said) = absent(false, none).await;
    assert!(hub.with(|state| state.writes.is_empty()));
    assert!(said.expect("an error").contains("--register-cluster"));

    let same = json!({"metadata": {"name": "else"}, "spec": {"id": "id"}});
    let (hub, said) = absent(true, same).await;
    assert!(hub.with(|state| state.writes.is_empty()));
    assert!(said.expect("an error").contains("Cluster \"else\""));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_marked_unknown_speaks_up() {
    let running = start().await;
    seconds(100).await;
    running.hub.with(|state| {
        for condition in state.cluster["status"]["conditions"]
            .as_array_mut()
            .expect("a list")
        {
            if condition["type"] == "Ready" {
                condition["status"] = "Unknown".into();
                condition["reason"] = "ClusterStatusUnknown".into();
            }
        }
        state.bump();
        state.interfere = true;
    });
    seconds(11).await;
    assert_eq!(running.hub.condition("Ready"), "True ClusterReady");
    let view = running.context.cluster_view.borrow().clone().expect("seen");
    assert_eq!(view.ready.as_deref(), Some("True"));
    assert_eq!(
        (view.uid.as_str(), view.registration.as_deref()),
        ("u1", Some("abc"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_is_believed_after_the_threshold() {
    let running = start().await;
    seconds(15).await;
    running.member.store(500, Ordering::Relaxed);
    seconds(28).await;
    assert_eq!(running.hub.condition("Ready"), "True ClusterReady");
    seconds(20).await;
    assert_eq!(running.hub.condition("Ready"), "False ClusterNotReachable");
    assert_eq!(
        running.hub.condition("CompleteResourceSummary"),
        "Unknown MemberNotReady"
    );
    running.member.store(200, Ordering::Relaxed);
    seconds(28).await;
    assert_eq!(running.hub.condition("Ready"), "False ClusterNotReachable");
    seconds(20).await;
    assert_eq!(running.hub.condition("Ready"), "True ClusterReady");
    assert_eq!(
        running.hub.condition("CompleteResourceSummary"),
        "True Complete"
    );
}

/// Reports a member that cannot be reached, by a replica whose election is as it is said; so often something else says on
/// the hub that the member is ready. Whether the replica stands back.
async fn contradicted(standing: Option<Standing>, times: usize) -> bool {
    let (hub, code) = (Hub::new(), Arc::new(AtomicU16::new(500)));
    let mut context = testing::context(hub.client(), member(&code)).await;
    let standing = standing.map(signal::channel);
    context.standing = standing.as_ref().map(|(_, receiver)| receiver.clone());
    let running = tokio::spawn(run(context.clone()));
    // From now on what it sees has lasted long enough to be believed.
    seconds(40).await;
    for _ in 0..times {
        seconds(11).await;
        assert_eq!(hub.condition("Ready"), "False ClusterNotReachable");
        hub.with(|state| {
            let conditions = state.cluster["status"]["conditions"].as_array_mut();
            for condition in conditions.expect("a list") {
                if condition["type"] == "Ready" {
                    condition["status"] = "True".into();
                }
            }
            state.bump();
        });
    }
    seconds(11).await;
    let stands_back = context.superseded.is_cancelled();
    let told = hub.condition("Ready").starts_with("False");
    assert_eq!(told, !stands_back, "the last word");
    running.abort();
    stands_back
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_cut_off_stands_back_where_another_one_reports() {
    let failing = || Some(Standing::Failing(Problem::Other("no answer".to_owned())));
    let table = [
        (failing(), 0, false),
        (failing(), 2, false),
        (failing(), 3, true),
        // It renews its Lease, so that nobody else leads; and one that is alone.
        (Some(Standing::Leads), 5, false),
        (None, 5, false),
    ];
    for (standing, times, want) in table {
        let case = format!("{standing:?} {times}");
        assert_eq!(contradicted(standing, times).await, want, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_member_is_told_at_once_by_a_new_process() {
    let (hub, code) = (Hub::new(), Arc::new(AtomicU16::new(500)));
    hub.with(|state| {
        state.cluster["status"] = json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": "2023-01-01T00:00:00Z",
        }]});
    });
    tokio::spawn(run(testing::context(hub.client(), member(&code)).await));
    seconds(1).await;
    assert_eq!(hub.condition("Ready"), "False ClusterNotReachable");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_unregistered_is_acknowledged_once_that_is_stored() {
    let running = start().await;
    seconds(15).await;
    running.hub.with(|state| {
        let metadata = &mut state.cluster["metadata"];
        metadata["annotations"]["towline.dev/unregister"] = "keep-workloads".into();
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z".into();
        state.bump();
    });
    seconds(60).await;
    assert_eq!(running.hub.condition("Unregistering"), "none");
    let view = || running.context.cluster_view.borrow().clone().expect("seen");
    assert!(view().deleting && !view().acknowledged);
    let told = &running.context.told_to_leave;
    told.send_replace(Some(Mode::KeepWorkloads));
    seconds(1).await;
    assert_eq!(running.hub.condition("Unregistering"), "True KeepWorkloads");
    assert!(view().acknowledged);
}
