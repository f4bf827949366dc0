//! Which objects the member's autoscalers scale: their replicas are not ours.

use crate::execution::FIRST_LIST;
use crate::execution::manifest::Manifest;
use crate::execution::state::{ScaleTarget, Shared};
use common::chance::Chance;
use common::gvk::Gvk;
use common::queue::Queue;
use common::signal::Sender;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::core::ApiResource;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
struct Autoscaler {
    metadata: Place,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Debug, Default, Deserialize)]
struct Place {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    scale_target_ref: Option<Reference>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

/// Takes in the member's autoscalers, all of them: one that is not ours may scale what is.
pub struct Autoscalers {
    member: kube::Client,
    state: Shared,
    queue: Queue<Arc<str>>,
    listed: Sender<bool>,
    chance: Chance,
}

impl Autoscalers {
    /// Nothing is known yet.
    pub fn new(
        member: kube::Client,
        state: Shared,
        queue: Queue<Arc<str>>,
        chance: Chance,
    ) -> Self {
        Self {
            member,
            state,
            queue,
            listed: Sender::new(false),
            chance,
        }
    }

    /// Watches them for ever.
    pub async fn run(&self) {
        let resource = ApiResource {
            group: "autoscaling".into(),
            version: "v2".into(),
            api_version: "autoscaling/v2".into(),
            kind: "HorizontalPodAutoscaler".into(),
            plural: "horizontalpodautoscalers".into(),
        };
        let all = watch::<Autoscaler>(
            self.member.clone(),
            Collection::dynamic(&resource, None),
            WatchConfig::new(&self.chance),
        );
        let mut all = pin!(all);
        let mut listing: Option<BTreeSet<(Box<str>, Box<str>)>> = None;
        while let Some(event) = all.next().await {
            match event {
                Event::Init => listing = Some(BTreeSet::new()),
                Event::Applied(one) => {
                    let Place { namespace, name } = &one.metadata;
                    if let Some(seen) = &mut listing {
                        seen.insert((namespace.as_str().into(), name.as_str().into()));
                    }
                    let target = one.spec.and_then(|s| s.scale_target_ref).and_then(|r| {
                        let gvk = Gvk::new(&r.api_version, &r.kind)?;
                        Some(ScaleTarget {
                            group: gvk.group.into(),
                            kind: gvk.kind.into(),
                            name: r.name.into(),
                        })
                    });
                    self.take(namespace, name, target);
                }
                Event::Deleted(gone) => {
                    let namespace = gone.namespace.unwrap_or_default();
                    self.take(&namespace, &gone.name, None);
                }
                Event::InitDone { .. } => {
                    let seen = listing.take().unwrap_or_default();
                    let known = self.state.lock().autoscaler_names();
                    for (namespace, name) in known {
                        if !seen.contains(&(namespace.clone(), name.clone())) {
                            self.take(&namespace, &name, None);
                        }
                    }
                    self.listed.send_replace(true);
                }
                Event::Disconnected { problem, .. } => {
                    if matches!(problem.code(), Some(403 | 404)) {
                        // Not served, or not for us to see: then nothing is known to be scaled.
                        self.listed.send_replace(true);
                    }
                }
                Event::Undecodable(_) | Event::Resumed { .. } => {}
            }
        }
    }

    fn take(&self, namespace: &str, name: &str, target: Option<ScaleTarget>) {
        let works = self.state.lock().autoscaler(namespace, name, target);
        for work in works {
            self.queue.add(work);
        }
    }

    /// Whether an autoscaler decides the replicas of a manifest's object.
    pub async fn is_scaled(&self, manifest: &Manifest, namespace: &str) -> bool {
        if manifest.body.pointer("/spec/replicas").is_none() {
            return false;
        }
        let mut listed = self.listed.subscribe();
        // The sender lives as long as we do.
        let _ = tokio::time::timeout(FIRST_LIST, listed.wait_for(|listed| *listed)).await;
        let target = &manifest.target;
        self.state
            .lock()
            .is_scaled(namespace, &target.gvk.group, &target.gvk.kind, &target.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::manifest::read_all;
    use crate::execution::testing::{Handles, scripted, wire};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "n", "name": "web"}, "spec": {"replicas": 2}})
    }

    #[tokio::test(start_paused = true)]
    async fn who_scales_an_object_is_known_after_the_first_list_and_while_it_scales() {
        let parts = Handles::alone().await;
        let of = |member| {
            let (state, queue) = (parts.state.clone(), parts.queue.clone());
            Autoscalers::new(member, state, queue, Chance::seeded(1))
        };
        let name = parts.knows(&wire("w", "1", &[deployment()]));
        let text = deployment().to_string();
        let manifest = read_all(&[&text]).remove(0).expect("sound");
        let autoscalers = of(scripted(|_| None).0);
        let start = Instant::now();
        assert!(!autoscalers.is_scaled(&manifest, "n").await);
        assert_eq!(start.elapsed(), FIRST_LIST);
        let hpa = json!({"metadata": {"namespace": "n", "name": "h", "resourceVersion": "3"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "3"}, "items": [hpa]});
        let member = scripted(move |line| {
            // What is watched after the list never says a word.
            (!line.contains("watch=")).then(|| (200, list.clone()))
        });
        let autoscalers = of(member.0);
        let scaled = async {
            let scaled = autoscalers.is_scaled(&manifest, "n").await;
            (scaled, autoscalers.is_scaled(&manifest, "elsewhere").await)
        };
        let scaled = tokio::select! {
            biased;
            () = autoscalers.run() => unreachable!("it never ends"),
            scaled = scaled => scaled,
        };
        assert_eq!(scaled, (true, false));
        assert_eq!(parts.queued(), ["w"]);
        parts.queue.done(&name);
        autoscalers.take("n", "h", None);
        assert!(!autoscalers.is_scaled(&manifest, "n").await);
        assert_eq!(parts.queued(), ["w"]);
    }
}
