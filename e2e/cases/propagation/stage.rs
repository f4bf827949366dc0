//! Three members that run what a policy divides among them, and a journal of what is written on the hub meanwhile.

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::interval;

use super::rig::SOON;
use crate::env::{Fleet, Lab, LabOptions, Parts, Process, wait_for};

/// The namespace of what is placed.
pub(super) const NAMESPACE: &str = "shop";
/// The members.
pub(super) const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];
/// What one of them is to run: so many replicas of an image with this tag.
pub(super) type Runs<'a> = Option<(i32, &'a str)>;

/// How often a hub that is away is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// One version of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Counts changes of its spec.
    pub(super) generation: i64,
    /// What would flap: where a binding goes, or what a Work holds.
    pub(super) says: Value,
}

/// What was seen of one object: a Work or a binding.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// Its namespace and name.
    pub(super) of: (String, String),
    /// Its last version before.
    pub(super) before: Option<Seen>,
    /// Those since then, until its deletion was asked for.
    pub(super) since: Vec<Seen>,
    gone: bool,
}

impl History {
    /// How often its spec was written, its creation counted.
    pub(super) fn written(&self) -> i64 {
        let before = self.before.as_ref().map_or(0, |it| it.generation);
        self.since.last().map_or(0, |it| it.generation - before)
    }

    /// What it said, each time that it was something else.
    pub(super) fn told(&self) -> Vec<&Value> {
        let all = self.before.iter().chain(&self.since);
        let mut told: Vec<&Value> = all.map(|it| &it.says).collect();
        told.dedup();
        told
    }
}

/// Everything that was written since it was last asked, by UID.
#[derive(Clone, Default)]
pub(super) struct Journal(Arc<Mutex<BTreeMap<String, History>>>);

impl Journal {
    fn note(&self, event: WatchEvent<DynamicObject>) {
        let (object, gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            _ => return,
        };
        let metadata = object.metadata;
        let generation = metadata.generation.unwrap_or(0);
        let says = match object.data.pointer("/spec/workload/manifests/0/spec") {
            Some(spec) => json!([
                spec["replicas"],
                spec.pointer("/template/spec/containers/0/image")
            ]),
            None => object.data["spec"]["clusters"].clone(),
        };
        let mut all = self.lock();
        let history = all.entry(metadata.uid.unwrap_or_default()).or_default();
        history.of = (
            metadata.namespace.unwrap_or_default(),
            metadata.name.unwrap_or_default(),
        );
        history.gone |= gone;
        // A deletion counts as a generation, too.
        if !gone && metadata.deletion_timestamp.is_none() {
            history.since.push(Seen { generation, says });
        }
    }

    /// What happened since this was last asked.
    pub(super) fn take(&self) -> Vec<History> {
        let mut all = self.lock();
        let taken = all.values().cloned().collect();
        all.retain(|_, history| !history.gone);
        for history in all.values_mut() {
            let last = history.since.drain(..).next_back();
            history.before = last.or(history.before.take());
        }
        taken
    }

    /// Whether an object of this name was written meanwhile.
    pub(super) fn has_news(&self, name: &str) -> bool {
        let all = self.lock();
        all.values()
            .any(|it| it.of.1.starts_with(name) && it.written() > 0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a collection from now on; a hub that is killed is followed again.
fn follow(api: Api<DynamicObject>, journal: Journal) -> AbortHandle {
    let task = tokio::spawn(async move {
        let mut turns = interval(AGAIN);
        loop {
            turns.tick().await;
            let params = WatchParams::default();
            let Ok(events) = api.watch(&params, "0").await else {
                continue;
            };
            let mut events = events.boxed();
            while let Ok(Some(event)) = events.try_next().await {
                if matches!(event, WatchEvent::Error(_)) {
                    break;
                }
                journal.note(event);
            }
        }
    });
    task.abort_handle()
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{}ies", stem.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&gvk, &plural)
}

/// The lab with everything in it.
pub(super) struct Stage {
    pub(super) hub: Client,
    pub(super) fleet: Fleet,
    pub(super) journal: Journal,
    members: Vec<Client>,
    agents: Vec<Process>,
    lab: Lab,
    followers: Vec<AbortHandle>,
    rounds: AtomicU64,
}

impl Stage {
    /// Starts it; nothing is placed yet.
    pub(super) async fn begin(dir: &Path) -> Result<Self> {
        let parts = Parts::from_env()?;
        let mut options = LabOptions::new(MEMBERS.len());
        // Templates are not run on a hub: what their status says is what members say.
        let idle = "--controllers=*,bootstrapsigner,tokencleaner,-deployment-controller,-replicaset-controller";
        options.hub.manager_args.push(idle.to_owned());
        let lab = Lab::start(&parts, dir, &options).await?;
        let fleet = Fleet::start(&dir.join("towline"), &lab.hub).await?;
        let hub = lab.hub.client().await?;
        let (mut agents, mut members) = (Vec::new(), Vec::new());
        for (plane, name) in lab.members.iter().zip(MEMBERS) {
            agents.push(fleet.join(&plane.kubeconfig, name).await?);
            members.push(plane.client().await?);
        }
        let journal = Journal::default();
        let works = Api::all_with(hub.clone(), &kind("work.karmada.io", "v1alpha1", "Work"));
        let bindings = kind("work.karmada.io", "v1alpha2", "ResourceBinding");
        let bindings = Api::namespaced_with(hub.clone(), NAMESPACE, &bindings);
        let followers = vec![
            follow(works, journal.clone()),
            follow(bindings, journal.clone()),
        ];
        let stage = Self {
            hub,
            fleet,
            journal,
            members,
            agents,
            lab,
            followers,
            rounds: AtomicU64::new(0),
        };
        for name in MEMBERS {
            stage.label(name, json!("yes")).await?;
        }
        Ok(stage)
    }

    /// Makes an object.
    pub(super) async fn create(&self, of: (&str, &str, &str), object: &Value) -> Result<()> {
        let api = self.api(of);
        let mut object = object.clone();
        let (group, version, name) = of;
        let dot = if group.is_empty() { "" } else { "/" };
        object["apiVersion"] = json!(format!("{group}{dot}{version}"));
        object["kind"] = json!(name);
        let object: DynamicObject = serde_json::from_value(object)?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create {name}"))?;
        Ok(())
    }

    /// The objects of a kind: those of the namespace, or of the hub.
    pub(super) fn api(&self, (group, version, name): (&str, &str, &str)) -> Api<DynamicObject> {
        let resource = kind(group, version, name);
        match name {
            "Namespace" | "Cluster" => Api::all_with(self.hub.clone(), &resource),
            _ => Api::namespaced_with(self.hub.clone(), NAMESPACE, &resource),
        }
    }

    /// Changes an object by a merge patch.
    pub(super) async fn patch(
        &self,
        of: (&str, &str, &str),
        name: &str,
        patch: &Value,
    ) -> Result<()> {
        let params = PatchParams::default();
        let patched = self
            .api(of)
            .patch(name, &params, &Patch::Merge(patch))
            .await;
        patched.with_context(|| format!("failed to patch {name}"))?;
        Ok(())
    }

    /// Sets a cluster's label by which the policy selects.
    pub(super) async fn label(&self, cluster: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"labels": {"fleet": value}}});
        self.patch(
            ("cluster.karmada.io", "v1alpha1", "Cluster"),
            cluster,
            &patch,
        )
        .await
    }

    /// Kills the hub and starts it again.
    pub(super) async fn kill_hub(&mut self) -> Result<()> {
        if self.lab.hub.options.builtin {
            self.lab.hub.kill_api();
            return self.lab.hub.restart_api().await;
        }
        self.fleet.hub.kill();
        self.fleet.hub.restart()
    }

    /// Waits until the members run what they are to run, and the template says so.
    pub(super) async fn runs(&self, wanted: [Runs<'_>; 3]) -> Result<()> {
        wait_for("what each member is to run", SOON, async || {
            for (member, wanted) in self.members.iter().zip(wanted) {
                let deployments: Api<Deployment> = Api::namespaced(member.clone(), NAMESPACE);
                let found = deployments.get_opt("web").await?;
                let found = found.and_then(|it| it.spec).map(|spec| {
                    let pod = spec.template.spec.unwrap_or_default();
                    let image = pod.containers.first().and_then(|it| it.image.clone());
                    let image = image.unwrap_or_default();
                    let tag = image.rsplit(':').next().unwrap_or_default().to_owned();
                    (spec.replicas.unwrap_or(0), tag)
                });
                let seen = found.as_ref().map(|(count, tag)| (*count, tag.as_str()));
                ensure!(seen == wanted, "{seen:?} runs, not {wanted:?}");
                let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
                    Api::namespaced(member.clone(), NAMESPACE);
                let follows = maps.get_opt("web").await?.is_some();
                ensure!(follows == wanted.is_some(), "the ConfigMap: {follows}");
            }
            Ok(true)
        })
        .await?;
        let sum: i32 = wanted.iter().flatten().map(|(count, _)| count).sum();
        let placed = wanted.iter().flatten().count();
        if placed > 0 {
            self.answers(sum, placed).await?;
        }
        self.rests().await
    }

    /// Waits for the answer: in the template's own status, and in its binding.
    async fn answers(&self, replicas: i32, clusters: usize) -> Result<()> {
        wait_for("the answer on the template", SOON, async || {
            let template: Api<Deployment> = Api::namespaced(self.hub.clone(), NAMESPACE);
            let template = template.get("web").await?;
            let status = template.status.unwrap_or_default();
            let told = (
                status.replicas,
                status.ready_replicas,
                status.observed_generation,
            );
            let wanted = (Some(replicas), Some(replicas), template.metadata.generation);
            ensure!(told == wanted, "{told:?}, not {wanted:?}");
            let binding = self.api(("work.karmada.io", "v1alpha2", "ResourceBinding"));
            let status = binding.get("web-deployment").await?.data["status"].clone();
            let applied = status["conditions"].as_array().into_iter().flatten();
            let applied = applied
                .filter(|it| it["type"] == "FullyApplied" && it["status"] == "True")
                .count();
            let items = status["aggregatedStatus"].as_array().map_or(0, Vec::len);
            ensure!(applied == 1 && items == clusters, "{status}");
            Ok(true)
        })
        .await
    }

    /// Waits until something else, changed now, has gone the whole way three times: what was set off before has
    /// been carried out meanwhile.
    async fn rests(&self) -> Result<()> {
        let maps = ("", "v1", "ConfigMap");
        for _ in 0..3 {
            let text = self.rounds.fetch_add(1, Ordering::Relaxed).to_string();
            self.patch(maps, "canary", &json!({"data": {"round": text}}))
                .await?;
            wait_for("the canary", SOON, async || {
                let there: Api<k8s_openapi::api::core::v1::ConfigMap> =
                    Api::namespaced(self.members[0].clone(), NAMESPACE);
                let seen = there.get_opt("canary").await?.and_then(|it| it.data);
                Ok(seen.is_some_and(|it| it.get("round") == Some(&text)))
            })
            .await?;
        }
        Ok(())
    }

    /// Deletes an object.
    pub(super) async fn delete(&self, of: (&str, &str, &str), name: &str) -> Result<()> {
        self.api(of).delete(name, &Default::default()).await?;
        Ok(())
    }

    /// Ends every process.
    pub(super) async fn end(mut self) {
        self.followers.iter().for_each(AbortHandle::abort);
        drop(std::mem::take(&mut self.agents));
        self.lab.stop().await;
    }
}
