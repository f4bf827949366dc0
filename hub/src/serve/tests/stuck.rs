//! What nothing can be made of is told once, and tried again when what it is made of changes; a hub on which something
//! is stuck writes nothing.

use super::super::*;
use super::rig::{CLUSTERS, NAMESPACES, SimulatedHub, alone, ask};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use common::labels::POLICY_PERMANENT_ID;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/a/deployments";
const POLICIES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/a/propagationpolicies";
const OVERRIDES: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/a/overridepolicies";
const BINDING: &str = "/apis/work.karmada.io/v1alpha2/namespaces/a/resourcebindings/web-deployment";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
const EVENTS: &str = "/api/v1/namespaces/a/events";
/// Nobody renews a Lease.
const FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=20000h",
    "--cluster-startup-grace-period=20000h",
];
/// Longer than anything waits before it is tried again; all of it is over before Events grow old.
const LONG: Duration = Duration::from_secs(600);

struct Rig {
    hub: SimulatedHub,
    link: Link,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A hub, the cluster m1 that is Ready, and the Deployment web.
    async fn begin() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (hub, _) = SimulatedHub::alone(dir.path(), &FLAGS).await;
        let link = hub.served.router.link_of(Peer::Itself);
        let rig = Self {
            hub,
            link,
            _dir: dir,
        };
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        rig.must("POST", NAMESPACES, space).await;
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "labels": {"tier": "gold"}}, "spec": {"syncMode": "Pull"}});
        rig.must("POST", CLUSTERS, cluster).await;
        let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let served = json!({"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]});
        let status = json!({"status": {"conditions": [ready], "apiEnablements": [served]}});
        rig.must("PATCH", &format!("{CLUSTERS}/m1/status"), status)
            .await;
        let container = json!({"name": "web", "image": "registry.io/web:1"});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}});
        rig.must("POST", DEPLOYMENTS, web).await;
        rig
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = ask(&self.link, method, path, body.clone()).await;
        assert!(
            answer.status().is_success(),
            "{method} {path} {body}: {answer:?}"
        );
        serde_json::from_slice(answer.body()).expect("JSON")
    }

    async fn get(&self, path: &str) -> Value {
        self.must("GET", path, Value::Null).await
    }

    /// Waits for something, for two minutes at most: sooner than anything is tried again that failed for long.
    async fn until(&self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..120 {
            sleep(Duration::from_secs(1)).await;
            let answer = ask(&self.link, "GET", path, Value::Null).await;
            last = serde_json::from_slice(answer.body()).expect("JSON");
            if is(&last) {
                return last;
            }
        }
        panic!("{path} stays {last}");
    }

    /// How many writes the store has had.
    async fn writes(&self) -> u64 {
        let list = self.get(EVENTS).await;
        let version = list["metadata"]["resourceVersion"].as_str();
        version.and_then(|it| it.parse().ok()).expect("a number")
    }

    /// Writes of a while in which nobody does anything.
    async fn writes_at_rest(&self) -> u64 {
        sleep(Duration::from_secs(120)).await;
        let before = self.writes().await;
        sleep(LONG).await;
        self.writes().await - before
    }

    /// How often an Event of this reason was told in all.
    async fn told(&self, reason: &str) -> i64 {
        let events = self.get(EVENTS).await;
        let all = events["items"].as_array().expect("a list");
        let ours = all.iter().filter(|it| it["reason"] == reason);
        ours.map(|it| it["series"]["count"].as_i64().unwrap_or(1))
            .sum()
    }

    /// Waits until the binding says, or says no longer, that Works cannot be made.
    async fn degraded(&self, wanted: bool) {
        self.until(BINDING, |it| {
            let conditions = it["status"]["conditions"].as_array();
            let mut all = conditions.into_iter().flatten();
            all.any(|it| it["type"] == "Degraded") == wanted
        })
        .await;
    }
}

fn policy(more: &Value) -> Value {
    let mut policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "web"}, "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}}});
    json_patch::merge(&mut policy["spec"], more);
    policy
}

/// An override of golden clusters that applies to a template with two containers.
fn second_image() -> Value {
    let second = json!({"path": "/spec/template/spec/containers/1/image", "operator": "replace", "value": "other:2"});
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy", "metadata": {"name": "web"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "overrideRules": [
            {"targetCluster": {"labelSelector": {"matchLabels": {"tier": "gold"}}},
                "overriders": {"plaintext": [second]}}]}})
}

/// What the cluster is told of the Deployment; the namespace has a Work of its own.
fn told(works: &Value) -> Option<&Value> {
    let all = works["items"].as_array();
    let mut manifests = all
        .into_iter()
        .flatten()
        .map(|it| &it["spec"]["workload"]["manifests"][0]);
    manifests.find(|it| it["kind"] == "Deployment")
}

async fn override_that_does_not_apply() {
    let rig = Rig::begin().await;
    rig.must("POST", OVERRIDES, second_image()).await;
    rig.must("POST", POLICIES, policy(&json!({}))).await;
    rig.degraded(true).await;
    assert_eq!(rig.writes_at_rest().await, 0);
    // Of the binding, and of the template.
    assert_eq!(rig.told("SyncWorkFailed").await, 2);
    assert_eq!(told(&rig.get(WORKS).await), None);

    // The cluster changes: the override is not about it any more.
    let tin = json!({"metadata": {"labels": {"tier": "tin"}}});
    rig.must("PATCH", &format!("{CLUSTERS}/m1"), tin).await;
    rig.until(WORKS, |it| told(it).is_some()).await;
    rig.degraded(false).await;
    // It is about it again, and the template is not what it wants; then that changes.
    let gold = json!({"metadata": {"labels": {"tier": "gold"}}});
    rig.must("PATCH", &format!("{CLUSTERS}/m1"), gold).await;
    let web = format!("{DEPLOYMENTS}/web");
    let containers = |count: usize| -> Value {
        let all =
            (0..count).map(|at| json!({"name": format!("c{at}"), "image": "registry.io/web:3"}));
        let all: Vec<Value> = all.collect();
        json!({"spec": {"template": {"spec": {"containers": all}}}})
    };
    rig.must("PATCH", &web, containers(1)).await;
    rig.degraded(true).await;
    assert_eq!(rig.writes_at_rest().await, 0);
    rig.must("PATCH", &web, containers(2)).await;
    rig.until(WORKS, |it| {
        let second = told(it).and_then(|it| it.pointer("/spec/template/spec/containers/1/image"));
        second.is_some_and(|it| it == "other:2")
    })
    .await;
    rig.degraded(false).await;
    // It is broken again, and the override changes.
    rig.must("PATCH", &web, containers(1)).await;
    rig.degraded(true).await;
    assert_eq!(rig.writes_at_rest().await, 0);
    let label = json!({"labelsOverrider": [{"operator": "add", "value": {"over": "x"}}]});
    let mended = json!({"spec": {"overrideRules": [{"overriders": label}]}});
    rig.must("PATCH", &format!("{OVERRIDES}/web"), mended).await;
    rig.until(WORKS, |it| {
        told(it).is_some_and(|it| it["metadata"]["labels"]["over"] == "x")
    })
    .await;
    rig.degraded(false).await;
    assert_eq!(rig.writes_at_rest().await, 0);
    rig.hub.end().await;
}

#[test]
fn an_override_that_does_not_apply_is_told_once_and_tried_when_something_changes() {
    alone(override_that_does_not_apply());
}

async fn class_that_does_not_exist() {
    let rig = Rig::begin().await;
    let class = json!({"schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}});
    rig.must("POST", POLICIES, policy(&class)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.told("ApplyPolicyFailed").await, 1);
    assert_eq!(rig.writes_at_rest().await, 0);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 7});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    rig.must("POST", classes, class).await;
    rig.until(WORKS, |it| told(it).is_some()).await;
    assert_eq!(rig.told("ApplyPolicyFailed").await, 1);
    rig.hub.end().await;
}

#[test]
fn a_policy_that_waits_for_a_class_is_told_of_once() {
    alone(class_that_does_not_exist());
}

/// What a Lazy policy claimed has no binding that would keep its kind watched.
async fn claim_of_a_kind_that_is_selected_no_longer() {
    let rig = Rig::begin().await;
    let lazy = json!({"activationPreference": "Lazy"});
    rig.must("POST", POLICIES, policy(&lazy)).await;
    let web = format!("{DEPLOYMENTS}/web");
    let is_claimed = |it: &Value| it["metadata"]["labels"][POLICY_PERMANENT_ID].is_string();
    rig.until(&web, is_claimed).await;
    let narrowed =
        json!({"spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}});
    let policy = format!("{POLICIES}/web");
    rig.must("PATCH", &policy, narrowed).await;
    rig.until(&web, |it| !is_claimed(it)).await;
    rig.must("DELETE", &policy, Value::Null).await;
    rig.until(&policy, |it| it["kind"] == "Status").await;
    rig.hub.end().await;
}

#[test]
fn what_a_policy_selects_no_longer_is_released_and_the_policy_can_be_deleted() {
    alone(claim_of_a_kind_that_is_selected_no_longer());
}
