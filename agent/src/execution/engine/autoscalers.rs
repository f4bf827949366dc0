//! Which objects the member's autoscalers scale: their replicas are not ours.

use super::Engine;
use crate::execution::manifest::{Gvk, Manifest};
use crate::execution::queue::Urgency;
use crate::execution::state::ScaleTarget;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::core::ApiResource;
use serde::Deserialize;
use std::collections::HashSet;
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

impl Engine {
    /// Watches the member's autoscalers, all of them: one that is not ours may scale what is.
    pub(super) async fn watch_autoscalers(self: Arc<Self>) {
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
            WatchConfig::default(),
        );
        let mut all = pin!(all);
        let mut listing: Option<HashSet<(Box<str>, Box<str>)>> = None;
        while let Some(event) = all.next().await {
            match event {
                Event::Restarted => listing = Some(HashSet::new()),
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
                    self.autoscaler_says(namespace, name, target);
                }
                Event::Deleted(gone) => {
                    let namespace = gone.namespace.unwrap_or_default();
                    self.autoscaler_says(&namespace, &gone.name, None);
                }
                Event::Listed { .. } => {
                    let seen = listing.take().unwrap_or_default();
                    let known = self.state().autoscaler_names();
                    for (namespace, name) in known {
                        if !seen.contains(&(namespace.clone(), name.clone())) {
                            self.autoscaler_says(&namespace, &name, None);
                        }
                    }
                    self.autoscalers_listed.send_replace(true);
                }
                Event::Disconnected { problem, .. } => {
                    if matches!(problem.code(), Some(403 | 404)) {
                        // Not served, or not for us to see: then nothing is known to be scaled.
                        self.autoscalers_listed.send_replace(true);
                    }
                }
                Event::Undecodable(_) | Event::Resumed { .. } => {}
            }
        }
    }

    fn autoscaler_says(&self, namespace: &str, name: &str, target: Option<ScaleTarget>) {
        let works = self.state().autoscaler(namespace, name, target);
        for work in works {
            self.enqueue(&work, Urgency::Now);
        }
    }

    /// Whether an autoscaler decides the replicas of a manifest's object.
    pub(super) async fn is_scaled(&self, manifest: &Manifest, namespace: &str) -> bool {
        if manifest.body.pointer("/spec/replicas").is_none() {
            return false;
        }
        let mut listed = self.autoscalers_listed.subscribe();
        // The sender lives as long as we do.
        let _ = tokio::time::timeout(super::FIRST_LIST, listed.wait_for(|listed| *listed)).await;
        let target = &manifest.target;
        self.state()
            .is_scaled(namespace, &target.gvk.group, &target.gvk.kind, &target.name)
    }
}
