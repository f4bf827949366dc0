//! The load: Works that are made, awaited and deleted again; and the same writes without an agent.

use anyhow::{Context as _, Result, bail};
use common::chance::Chance;
use common::names::EXECUTION_PREFIX;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use futures::stream::{self, TryStreamExt as _};
use http::{Method, Request};
use kube::Client;
use kube::api::ListParams;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

use crate::env::wait_for;

/// Label of everything that one run makes.
const RUN: &str = "lab.towline.dev/run";
const FINALIZER: &str = common::labels::WORK_FINALIZER;
/// Requests at the same time when only the servers are to be the limit.
const LIMIT_CONNECTIONS: usize = 64;

/// A hub and a member to load.
pub(super) struct Load {
    hub: Client,
    member: Client,
    namespace: String,
}

/// How fast it went.
pub(super) struct Pace {
    latencies: Vec<Duration>,
    total: Duration,
}

impl Pace {
    /// Works a second.
    pub(super) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.total.as_secs_f64()
    }

    /// Time from a Work's creation until it was seen to be applied.
    pub(super) fn latency(&self) -> String {
        format!("p50 {:.0} ms, p99 {:.0} ms", self.at(50), self.at(99))
    }

    /// In how many milliseconds that many of a hundred Works were seen to be applied.
    pub(super) fn at(&self, share: usize) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort();
        let index = (sorted.len() * share / 100).min(sorted.len().saturating_sub(1));
        sorted.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
    }
}

/// As much of a Work as has to be read.
#[derive(Deserialize)]
struct Seen {
    metadata: Named,
    #[serde(default)]
    status: Conditions,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
struct Conditions {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Seen {
    fn is_applied(&self) -> bool {
        let mut all = self.status.conditions.iter();
        all.any(|c| c.kind == "Applied" && c.status == "True")
    }
}

impl Load {
    /// For the Works of `cluster`.
    pub(super) fn new(hub: Client, member: Client, cluster: &str) -> Self {
        Self {
            hub,
            member,
            namespace: format!("{EXECUTION_PREFIX}{cluster}"),
        }
    }

    /// Works one after another, each awaited.
    pub(super) async fn one_by_one(&self, count: usize, finalizer: bool) -> Result<Pace> {
        let run = "one";
        let started = Instant::now();
        let mut latencies = Vec::new();
        let mut events = pin!(self.events(run));
        let deadline = started + Duration::from_secs(300);
        for index in 0..count {
            let name = format!("one-{}-{index}", started.elapsed().as_nanos());
            let begun = Instant::now();
            self.create_work(&name, run, finalizer).await?;
            loop {
                let event = timeout_at(deadline, events.next()).await;
                let event = event.context("a Work was not applied in time")?;
                if let Some(Event::Applied(work)) = event
                    && work.metadata.name == name
                    && work.is_applied()
                {
                    break;
                }
            }
            latencies.push(begun.elapsed());
        }
        let total = started.elapsed();
        self.delete(run, Duration::from_secs(300)).await?;
        Ok(Pace { latencies, total })
    }

    /// Many Works at once, awaited until the last is applied.
    pub(super) async fn many(
        &self,
        run: &str,
        count: usize,
        connections: usize,
        finalizer: bool,
        within: Duration,
    ) -> Result<Pace> {
        let mut events = pin!(self.events(run));
        // The watch is open before the clock starts.
        while !matches!(events.next().await, Some(Event::InitDone { .. })) {}
        let started = Instant::now();
        let creating = stream::iter(0..count)
            .map(|index| async move {
                let name = format!("{run}-{index}");
                let begun = Instant::now();
                self.create_work(&name, run, finalizer).await?;
                anyhow::Ok((name, begun))
            })
            .buffer_unordered(connections)
            .try_collect::<HashMap<_, _>>();
        let seeing = async {
            let mut seen = HashMap::new();
            while seen.len() < count {
                let event = timeout_at(started + within, events.next()).await;
                match event.with_context(|| format!("{} of {count} were applied", seen.len()))? {
                    Some(Event::Applied(work)) if work.is_applied() => {
                        seen.entry(work.metadata.name).or_insert_with(Instant::now);
                    }
                    Some(_) => {}
                    None => bail!("a watch has no end"),
                }
            }
            Ok(seen)
        };
        let (created, seen) = futures::try_join!(creating, seeing)?;
        let end = seen.values().max().copied().unwrap_or(started);
        let latencies = seen
            .iter()
            .filter_map(|(name, at)| Some(at.duration_since(*created.get(name)?)));
        Ok(Pace {
            latencies: latencies.collect(),
            total: end - started,
        })
    }

    /// The writes without which so many Works of a ConfigMap cannot be delivered.
    pub(super) async fn limit(&self, count: usize) -> Result<Duration> {
        let name = format!("limit-{count}");
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for client in [&self.hub, &self.member] {
            send(client, Method::POST, "/api/v1/namespaces", &space).await?;
        }
        let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/{name}/works");
        let maps = format!("/api/v1/namespaces/{name}/configmaps");
        let status = json!({"status": {"conditions": [{"type": "Applied", "status": "True",
            "reason": "AppliedSuccessful", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let started = Instant::now();
        let (works, maps, status, space) = (&works, &maps, &status, &name);
        stream::iter((0..count).map(Ok))
            .try_for_each_concurrent(LIMIT_CONNECTIONS, |index| async move {
                let name = format!("w-{index}");
                send(&self.hub, Method::POST, works, &work(&name, "limit", false)).await?;
                send(
                    &self.member,
                    Method::POST,
                    maps,
                    &map(&name, space, "limit"),
                )
                .await?;
                let path = format!("{works}/{name}/status");
                send(&self.hub, Method::PATCH, &path, status).await
            })
            .await?;
        Ok(started.elapsed())
    }

    /// Takes away what [`Load::limit`] made.
    pub(super) async fn end_limit(&self, count: usize) -> Result<()> {
        let name = format!("limit-{count}");
        for client in [&self.hub, &self.member] {
            let path = format!("/api/v1/namespaces/{name}");
            send(client, Method::DELETE, &path, &json!({})).await?;
            wait_for(
                "the end of a namespace",
                Duration::from_secs(300),
                async || {
                    let all: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
                    Ok(all.get_opt(&name).await?.is_none())
                },
            )
            .await?;
        }
        Ok(())
    }

    /// A Deployment that comes up.
    pub(super) async fn rollout(&self, replicas: usize, within: Duration) -> Result<()> {
        let pod = json!({"metadata": {"labels": {"app": "rollout"}},
            "spec": {"containers": [{"name": "c", "image": "registry.invalid/c"}]}});
        let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "rollout", "namespace": "default"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "rollout"}}, "template": pod}});
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "rollout", "labels": {RUN: "rollout"}},
            "spec": {"workload": {"manifests": [manifest]}}});
        send(&self.hub, Method::POST, &self.works_path(), &work).await?;
        let works = self.works();
        wait_for("a Deployment that is up", within, async || {
            let work = works.get("rollout").await?;
            let status = &work.data["status"]["manifestStatuses"][0];
            Ok(status["health"] == "Healthy" && status["status"]["readyReplicas"] == replicas)
        })
        .await
    }

    /// Nodes that nobody plays, with pods on them that nobody runs.
    pub(super) async fn crowd(&self, nodes: usize, pods: usize) -> Result<()> {
        let size = json!({"cpu": "16", "memory": "64Gi", "pods": "110"});
        let size = &size;
        let node = |index: usize| async move {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("crowd-{index}")},
                "status": {"allocatable": size, "capacity": size}});
            send(&self.member, Method::POST, "/api/v1/nodes", &node).await
        };
        let pod = |index: usize| async move {
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("crowd-{index}"), "labels": {"app": "crowd"}},
                "spec": {"nodeName": format!("crowd-{}", index % nodes),
                    // Nobody may evict them from nodes that never say that they live.
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "registry.invalid/c",
                        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}});
            send(
                &self.member,
                Method::POST,
                "/api/v1/namespaces/default/pods",
                &pod,
            )
            .await
        };
        let at_once = 16;
        let nodes = stream::iter((0..nodes).map(Ok));
        nodes.try_for_each_concurrent(at_once, node).await?;
        let pods = stream::iter((0..pods).map(Ok));
        pods.try_for_each_concurrent(at_once, pod).await
    }

    /// Deletes the Works of a run and waits for their end.
    pub(super) async fn delete(&self, run: &str, within: Duration) -> Result<()> {
        let path = format!("{}?labelSelector={RUN}%3D{run}", self.works_path());
        send(&self.hub, Method::DELETE, &path, &json!({})).await?;
        let works = self.works();
        let of_run = ListParams::default()
            .labels(&format!("{RUN}={run}"))
            .limit(1);
        wait_for("the end of the Works", within, async || {
            Ok(works.list_metadata(&of_run).await?.items.is_empty())
        })
        .await
    }

    fn works_path(&self) -> String {
        let namespace = &self.namespace;
        format!("/apis/work.karmada.io/v1alpha1/namespaces/{namespace}/works")
    }

    fn resource() -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(
            "work.karmada.io",
            "v1alpha1",
            "Work",
        ))
    }

    fn works(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.hub.clone(), &self.namespace, &Self::resource())
    }

    fn events(&self, run: &str) -> impl futures::Stream<Item = Event<Seen>> + use<> {
        let works = Collection::dynamic(&Self::resource(), Some(&self.namespace));
        let config = WatchConfig {
            label_selector: Some(format!("{RUN}={run}")),
            ..WatchConfig::new(&Chance::from_os())
        };
        watch(self.hub.clone(), works, config)
    }

    async fn create_work(&self, name: &str, run: &str, finalizer: bool) -> Result<()> {
        let work = work(name, run, finalizer);
        send(&self.hub, Method::POST, &self.works_path(), &work).await
    }
}

fn map(name: &str, namespace: &str, run: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {RUN: run}},
        "data": {"k": "v".repeat(200)}})
}

fn work(name: &str, run: &str, finalizer: bool) -> Value {
    let finalizers: &[&str] = if finalizer { &[FINALIZER] } else { &[] };
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "labels": {RUN: run}, "finalizers": finalizers},
        "spec": {"workload": {"manifests": [map(name, "default", run)]}}})
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Result<()> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(&method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(serde_json::to_vec(body)?)?;
    let answer = client.request_text(request).await;
    answer.with_context(|| format!("{method} {path} failed"))?;
    Ok(())
}
