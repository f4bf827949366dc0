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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long an API server that has just started may refuse what it serves, or not know it.
const SETTLING: Duration = Duration::from_secs(30);

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

/// How it stands with the first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// Nothing was answered yet.
    Awaited,
    /// It is refused, perhaps for a moment only.
    Refused,
    /// It is read, or refused for so long that nothing is known to be scaled.
    Over,
}

/// Takes in the member's autoscalers, all of them: one that is not ours may scale what is.
pub struct Autoscalers {
    member: kube::Client,
    state: Shared,
    queue: Queue<Arc<str>>,
    first: Sender<First>,
    /// Works that asked before the first list was over.
    asked: Mutex<BTreeSet<Arc<str>>>,
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
            first: Sender::new(First::Awaited),
            asked: Mutex::default(),
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
        let mut refused: Option<Instant> = None;
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
                    self.end_first();
                }
                Event::Disconnected { problem, .. } => {
                    // Not served, or not for us to see.
                    if !matches!(problem.code(), Some(403 | 404)) {
                        refused = None;
                    } else if refused.get_or_insert_with(Instant::now).elapsed() >= SETTLING {
                        self.end_first();
                    } else {
                        self.refuse_first();
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

    fn asked(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_first(&self) {
        self.first.send_if_modified(|first| {
            let awaited = *first == First::Awaited;
            if awaited {
                *first = First::Refused;
            }
            awaited
        });
    }

    /// Whoever asked too early is told that there is an answer.
    fn end_first(&self) {
        self.first.send_replace(First::Over);
        let asked = std::mem::take(&mut *self.asked());
        for work in asked {
            self.queue.add(work);
        }
    }

    /// Whether an autoscaler decides the replicas of an object of `work`. None while that is not known; then the Work
    /// is worked on again once it is.
    pub async fn is_scaled(
        &self,
        work: &Arc<str>,
        manifest: &Manifest,
        namespace: &str,
    ) -> Option<bool> {
        if manifest.body.pointer("/spec/replicas").is_none() {
            return Some(false);
        }
        let mut first = self.first.subscribe();
        // The sender lives as long as we do.
        let _ = tokio::time::timeout(FIRST_LIST, first.wait_for(|it| *it != First::Awaited)).await;
        let is_over = {
            let mut asked = self.asked();
            let is_over = *self.first.borrow() == First::Over;
            if !is_over {
                asked.insert(work.clone());
            }
            is_over
        };
        let target = &manifest.target;
        let scaled = self.state.lock().is_scaled(
            namespace,
            &target.gvk.group,
            &target.gvk.kind,
            &target.name,
        );
        (is_over || scaled).then_some(scaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::manifest::read_all;
    use crate::execution::testing::{Handles, refusal, scripted, wire};
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": "n", "name": "web"}, "spec": {"replicas": 2}})
    }

    fn autoscalers(parts: &Handles, member: kube::Client) -> Autoscalers {
        let (state, queue) = (parts.state.clone(), parts.queue.clone());
        Autoscalers::new(member, state, queue, Chance::seeded(1))
    }

    fn list(of: &[Value]) -> Value {
        json!({"kind": "List", "metadata": {"resourceVersion": "3"}, "items": of})
    }

    fn manifest() -> Manifest {
        let text = deployment().to_string();
        read_all(&[&text]).remove(0).expect("sound")
    }

    #[tokio::test(start_paused = true)]
    async fn who_scales_an_object_is_known_after_the_first_list_and_while_it_scales() {
        let parts = Handles::alone().await;
        let name = parts.knows(&wire("w", "1", &[deployment()]));
        let manifest = manifest();
        let silent = autoscalers(&parts, scripted(|_| None).0);
        let start = Instant::now();
        assert_eq!(silent.is_scaled(&name, &manifest, "n").await, None);
        assert_eq!(start.elapsed(), FIRST_LIST);
        let hpa = json!({"metadata": {"namespace": "n", "name": "h", "resourceVersion": "3"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
        let list = list(&[hpa]);
        let member = scripted(move |line| {
            // What is watched after the list never says a word.
            (!line.contains("watch=")).then(|| (200, list.clone()))
        });
        let autoscalers = autoscalers(&parts, member.0);
        let scaled = async {
            let scaled = autoscalers.is_scaled(&name, &manifest, "n").await;
            let elsewhere = autoscalers.is_scaled(&name, &manifest, "elsewhere").await;
            (scaled, elsewhere)
        };
        let scaled = tokio::select! {
            biased;
            () = autoscalers.run() => unreachable!("it never ends"),
            scaled = scaled => scaled,
        };
        assert_eq!(scaled, (Some(true), Some(false)));
        assert_eq!(parts.queued(), ["w"]);
        parts.queue.done(&name);
        autoscalers.take("n", "h", None);
        let scaled = autoscalers.is_scaled(&name, &manifest, "n").await;
        assert_eq!(scaled, Some(false));
        assert_eq!(parts.queued(), ["w"]);
    }

    /// An API server that has just started refuses what it serves a moment later; other agents may never list them.
    #[tokio::test(start_paused = true)]
    async fn a_refused_list_says_nothing_until_it_is_refused_for_long() {
        for (code, heals) in [(403, true), (404, true), (403, false), (404, false)] {
            let parts = Handles::alone().await;
            let name = parts.knows(&wire("w", "1", &[deployment()]));
            let manifest = manifest();
            let started = Arc::new(AtomicBool::new(false));
            let answers = started.clone();
            let list = list(&[]);
            let member = scripted(move |line| match line.contains("watch=") {
                false if answers.load(Ordering::Relaxed) => Some((200, list.clone())),
                _ => Some(refusal(code, "Forbidden")),
            });
            let autoscalers = autoscalers(&parts, member.0);
            let asks = async {
                let start = Instant::now();
                assert_eq!(autoscalers.is_scaled(&name, &manifest, "n").await, None);
                // Nobody waits for what is refused.
                assert!(start.elapsed() < FIRST_LIST, "{code}");
                started.store(heals, Ordering::Relaxed);
                parts.queue.next().await
            };
            let start = Instant::now();
            let again = tokio::select! {
                biased;
                () = autoscalers.run() => unreachable!("it never ends"),
                again = asks => again,
            };
            assert_eq!(*again, *"w");
            assert_eq!(start.elapsed() < SETTLING, heals, "{code}");
            let scaled = autoscalers.is_scaled(&name, &manifest, "n").await;
            assert_eq!(scaled, Some(false), "{code}");
        }
    }
}
