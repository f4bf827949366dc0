//! One cluster's share of a template: what it was given, and what its member says.
//!
//! Pure.

use super::answer::{Answer, Around, Bound, Problem, problem};
use crate::explain::bare;
use chrono::{DateTime, Utc};
use common::api::binding::{AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec};
use common::api::work::ResourceHealth;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a cluster was given, and what its member says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Share {
    pub(in crate::cli) cluster: String,
    /// Replicas it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) replicas: Option<i64>,
    /// Replicas that are ready there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) ready: Option<i64>,
    /// Absent until its member said so or so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) applied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) health: Option<ResourceHealth>,
    /// When its Work was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) since: Option<DateTime<Utc>>,
    /// The member's words, or why there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) message: String,
    /// Whether it was given to the cluster no longer.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::cli) leaving: bool,
    /// Whether its policy suspends the way there.
    #[serde(skip_serializing_if = "is_false")]
    pub(in crate::cli) held_back: bool,
    /// Why what its member said may be old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) silent: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// The shares of a template, by the names of their clusters: of all that it was given to, by its own policy or
/// along with others, and of all that it has not left yet.
pub(in crate::cli) fn all(binding: &Bound, around: &Around) -> Vec<Share> {
    let spec = &binding.spec;
    let mut given: BTreeMap<&str, Option<i64>> = BTreeMap::new();
    for target in spec.required_by.iter().flat_map(|it| &it.clusters) {
        given.insert(&target.name, None);
    }
    for target in &spec.clusters {
        given.insert(&target.name, target.replicas.map(i64::from));
    }
    let told = binding.status.aggregated_status.iter();
    let told: BTreeMap<&str, &AggregatedStatusItem> =
        told.map(|it| (it.cluster_name.as_str(), it)).collect();
    let leaving = spec.graceful_eviction_tasks.iter();
    let leaving: BTreeMap<&str, &GracefulEvictionTask> =
        leaving.map(|it| (it.from_cluster.as_str(), it)).collect();
    let mut names: Vec<&str> = given
        .keys()
        .chain(told.keys())
        .chain(leaving.keys())
        .copied()
        .collect();
    names.sort_unstable();
    names.dedup();
    let share = |name: &str| {
        let item = told.get(name).copied();
        let silent = around.silent.get(name).cloned();
        let mut share = Share {
            cluster: name.to_owned(),
            replicas: given.get(name).copied().flatten(),
            ready: item.and_then(|it| ready(&spec.resource.kind, it)),
            applied: item.and_then(applied),
            health: item.and_then(|it| it.health),
            since: around.works.get(name).copied(),
            message: String::new(),
            leaving: !given.contains_key(name),
            held_back: is_held_back(spec, name),
            silent,
        };
        share.message = share.words(item, leaving.get(name).copied());
        share
    };
    names.into_iter().map(share).collect()
}

/// A message without success is a failure; neither is no answer.
fn applied(item: &AggregatedStatusItem) -> Option<bool> {
    let failed = item.applied_message.is_some().then_some(false);
    item.applied.or(failed)
}

/// Replicas that are ready, as the kind counts them. Kubernetes leaves a zero out.
fn ready(kind: &str, item: &AggregatedStatusItem) -> Option<i64> {
    let status = item.status.as_ref()?;
    let count = |key: &str| status.get(key).and_then(Value::as_i64);
    match kind {
        "Deployment" | "StatefulSet" | "ReplicaSet" => Some(count("readyReplicas").unwrap_or(0)),
        "DaemonSet" => Some(count("numberReady").unwrap_or(0)),
        _ => count("readyReplicas"),
    }
}

impl Share {
    pub(in crate::cli) fn is_healthy(&self) -> bool {
        self.health == Some(ResourceHealth::Healthy)
    }

    fn words(
        &self,
        item: Option<&AggregatedStatusItem>,
        task: Option<&GracefulEvictionTask>,
    ) -> String {
        if let Some(task) = task {
            let why = task.message.as_deref().unwrap_or_default();
            let colon = if why.is_empty() { "" } else { ": " };
            return format!("leaving, {}{colon}{why}", task.reason);
        }
        if let Some(message) = item.and_then(|it| it.applied_message.clone()) {
            return message;
        }
        if self.leaving {
            return "being removed".to_owned();
        }
        let text = match (self.applied, self.held_back) {
            (_, true) => "held back: its policy suspends dispatching",
            (None, false) => "no answer yet",
            (Some(_), false) => "",
        };
        text.to_owned()
    }

    /// What is wrong with it, if anything is.
    pub(in crate::cli) fn problem(&self, answer: &Answer) -> Option<Problem> {
        let name = &self.cluster;
        if let Some(why) = &self.silent {
            let what = format!("{name} {why}; what is shown of it is what it said last");
            return Some(problem(what, format!("See why: `towline check {name}`.")));
        }
        if self.leaving {
            return None;
        }
        match self.applied {
            Some(false) => Some(problem(
                format!("{name} has not applied it: {}", bare(&self.message)),
                why(answer),
            )),
            None if self.held_back => Some(problem(
                format!("{name} is {}", self.message),
                "It goes on when spec.suspension of the policy ends.",
            )),
            None => Some(problem(
                format!("{name} has not answered yet"),
                format!("If that lasts: {}", why(answer)),
            )),
            Some(true) if self.health == Some(ResourceHealth::Unhealthy) => {
                Some(self.unhealthy(answer))
            }
            Some(true) => None,
        }
    }

    fn unhealthy(&self, answer: &Answer) -> Problem {
        let name = &self.cluster;
        let what = match (self.ready, self.replicas) {
            (Some(ready), Some(wanted)) => {
                format!("{name}: {ready} of {wanted} replicas are ready")
            }
            _ => format!("{name} says that it is unhealthy"),
        };
        problem(what, why(answer))
    }
}

/// Where the member's reason is found, and what mends it.
pub(super) fn why(answer: &Answer) -> String {
    let within = match &answer.namespace {
        Some(namespace) => format!(" -n {namespace}"),
        None => String::new(),
    };
    let (resource, name) = (answer.resource(), &answer.name);
    format!("`towline why {resource}/{name}{within}` says why, and what mends it.")
}

/// Whether the way to a cluster is suspended.
fn is_held_back(spec: &ResourceBindingSpec, cluster: &str) -> bool {
    let Some(suspension) = &spec.suspension else {
        return false;
    };
    let named = suspension.dispatching_on_clusters.iter();
    let mut named = named.flat_map(|it| &it.cluster_names);
    suspension.dispatching == Some(true) || named.any(|name| name == cluster)
}
