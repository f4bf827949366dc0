//! What OverridePolicies and ClusterOverridePolicies make of a manifest for one cluster.
//!
//! Pure. Cluster policies come first; namespaced ones are then chosen by the labels that these left. Within each,
//! the most specific and last name wins, and every rule of a policy that is for the cluster is applied in order.

mod budget;
pub mod cluster;
mod containers;
mod document;
mod field;
mod image;
mod patch;
mod select;
#[cfg(test)]
mod tests;

pub use budget::TooMuch;
pub use common::interpreter::guard::Forbidden;
pub(crate) use common::interpreter::guard::is_of_the_system;
pub use containers::PredicateError;
pub use field::FieldError;
pub use image::ImageError;
pub use patch::PatchError;

use budget::{Budget, MEMBER};
use cluster::ClusterFacts;
use common::api::override_policy::{
    LabelAnnotationOverrider, OverrideSpec, OverriderOperator, Overriders,
};
use common::api::policy::ClusterAffinity;
use common::interpreter::guard::Guarded;
use document::Node;
use field::Opened;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use patch::Operation;
use select::{Interest, Rank, Subject};
use serde_json::{Map, Value, json};
use std::fmt;

/// An OverridePolicy or a ClusterOverridePolicy; with what it wants, or why that cannot be read.
pub type Policy<'a> = (&'a ObjectMeta, &'a OverrideSpec, Option<&'a str>);

/// A policy as events and errors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyName {
    /// Its namespace; none of a ClusterOverridePolicy.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "override policy({namespace}/{})", self.name),
            None => write!(f, "cluster override policy({})", self.name),
        }
    }
}

/// An override that is not applied; the cluster's Work stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{policy} does not apply, {rule}")]
pub struct OverrideError {
    /// The policy.
    pub policy: PolicyName,
    /// Where in its spec, such as `overrideRules[0].plaintext`.
    pub rule: String,
    /// Why not.
    #[source]
    pub cause: Cause,
}

/// Why an overrider does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// An image.
    #[error(transparent)]
    Image(#[from] PredicateError),
    /// A document in a text.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A value at a path.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// The result is one that no override may bring about.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// All overrides together do too much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// What it wants is not known.
    #[error("it cannot be read: {0}; write it anew as its kind describes it")]
    Unreadable(String),
}

/// The rules that were applied to a manifest, by the names of their policies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied<'a> {
    cluster: Vec<(&'a str, &'a Overriders)>,
    namespaced: Vec<(&'a str, &'a Overriders)>,
}

/// The policies that are, or may become, about one template; for all of its clusters.
#[derive(Debug, Clone)]
pub struct Overrides<'a> {
    cluster: Vec<Candidate<'a>>,
    namespaced: Vec<Candidate<'a>>,
}

#[derive(Debug, Clone)]
struct Candidate<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
    spec: &'a OverrideSpec,
    problem: Option<&'a str>,
    interest: Interest<'a>,
}

impl<'a> Overrides<'a> {
    /// Of all policies those that are about `template`; an OverridePolicy only about its own namespace.
    pub fn of(
        template: &Value,
        cluster_policies: impl IntoIterator<Item = Policy<'a>>,
        policies: impl IntoIterator<Item = Policy<'a>>,
    ) -> Self {
        let subject = Subject::of(template);
        let candidate = |(metadata, spec, problem): Policy<'a>| Candidate {
            namespace: metadata.namespace.as_deref(),
            name: metadata.name.as_deref().unwrap_or_default(),
            spec,
            problem,
            interest: subject.interest(spec),
        };
        let cluster = cluster_policies.into_iter().map(candidate);
        let namespaced = policies.into_iter().filter(|(metadata, ..)| {
            let namespace = metadata.namespace.as_deref();
            namespace.is_some() && namespace == subject.namespace()
        });
        let namespaced = namespaced.map(candidate);
        Self {
            cluster: sorted(cluster),
            namespaced: sorted(namespaced),
        }
    }

    /// Changes the manifest as the cluster's rules want it.
    pub fn apply(
        &self,
        manifest: &mut Value,
        cluster: &ClusterFacts<'_>,
    ) -> Result<Applied<'a>, OverrideError> {
        let guarded = Guarded::of(manifest);
        let mut progress = Progress {
            opened: Opened::default(),
            budget: Budget::new(),
        };
        let of_cluster = apply_all(&self.cluster, manifest, cluster, &guarded, &mut progress)?;
        let guarded = guarded.with_rights(manifest);
        let namespaced = apply_all(&self.namespaced, manifest, cluster, &guarded, &mut progress)?;
        progress.opened.close(manifest);
        Ok(Applied {
            cluster: of_cluster,
            namespaced,
        })
    }
}

/// What all rules for one cluster share.
#[derive(Debug)]
struct Progress {
    /// Texts that the rule before left open.
    opened: Opened,
    budget: Budget,
}

impl Applied<'_> {
    /// The rules of ClusterOverridePolicies as a Work tells them; none when there are none.
    pub fn of_cluster_policies(&self) -> Option<String> {
        told(&self.cluster)
    }

    /// The rules of OverridePolicies likewise.
    pub fn of_policies(&self) -> Option<String> {
        told(&self.namespaced)
    }
}

fn sorted<'a>(candidates: impl Iterator<Item = Candidate<'a>>) -> Vec<Candidate<'a>> {
    let mut candidates: Vec<_> = candidates
        .filter(|candidate| !matches!(candidate.interest, Interest::Never))
        .collect();
    candidates.sort_by_key(|candidate| candidate.name);
    candidates
}

fn apply_all<'a>(
    candidates: &[Candidate<'a>],
    manifest: &mut Value,
    cluster: &ClusterFacts<'_>,
    guarded: &Guarded,
    progress: &mut Progress,
) -> Result<Vec<(&'a str, &'a Overriders)>, OverrideError> {
    let ranked = |candidate| Some((Candidate::rank(candidate, manifest)?, candidate));
    let mut chosen: Vec<(Rank, &Candidate<'a>)> = candidates.iter().filter_map(ranked).collect();
    chosen.sort_by_key(|(rank, _)| *rank);
    let mut applied = Vec::new();
    for (_, candidate) in chosen {
        if let Some(problem) = candidate.problem {
            return Err(OverrideError {
                policy: candidate.policy(),
                rule: "spec".to_owned(),
                cause: Cause::Unreadable(problem.to_owned()),
            });
        }
        for (rule, target, overriders) in candidate.rules() {
            if target.is_some_and(|target| !cluster::matches(target, cluster)) {
                continue;
            }
            apply_one(manifest, overriders, &rule, progress)
                .and_then(|()| match guarded.check(manifest) {
                    Ok(()) => Ok(()),
                    Err(forbidden) => Err((rule, forbidden.into())),
                })
                .map_err(|(rule, cause)| OverrideError {
                    policy: candidate.policy(),
                    rule,
                    cause,
                })?;
            applied.push((candidate.name, overriders));
        }
    }
    applied.sort_by_key(|(name, _)| *name);
    Ok(applied)
}

impl<'a> Candidate<'a> {
    fn rank(&self, manifest: &Value) -> Option<Rank> {
        self.interest.rank(manifest)
    }

    fn policy(&self) -> PolicyName {
        PolicyName {
            namespace: self.namespace.map(str::to_owned),
            name: self.name.to_owned(),
        }
    }

    /// Where each rule stands, for which clusters it is, and what it changes. The older form counts only where
    /// there are no rules.
    fn rules(
        &self,
    ) -> impl Iterator<Item = (String, Option<&'a ClusterAffinity>, &'a Overriders)> + use<'a> {
        let spec = self.spec;
        let rules = spec.override_rules.iter().enumerate().map(|(at, rule)| {
            let target = rule.target_cluster.as_ref();
            (format!("overrideRules[{at}]"), target, &rule.overriders)
        });
        let older = spec.override_rules.is_empty().then(|| {
            let target = spec.target_cluster.as_ref();
            ("overriders".to_owned(), target, &spec.overriders)
        });
        rules.chain(older)
    }
}

/// Carries out the overriders of one rule, in the order that is the same for all; the error comes with where it
/// happened.
fn apply_one(
    manifest: &mut Value,
    overriders: &Overriders,
    rule: &str,
    progress: &mut Progress,
) -> Result<(), (String, Cause)> {
    let Progress { opened, budget } = progress;
    let too_much = |error: TooMuch| (rule.to_owned(), error.into());
    budget.spend(marks(manifest) * MEMBER).map_err(too_much)?;
    if touches_texts(overriders) {
        opened.close(manifest);
    }
    let at = |list: &str, index: usize| format!("{rule}.{list}[{index}]");
    for (index, overrider) in overriders.image_overrider.iter().enumerate() {
        containers::change_images(manifest, overrider, budget)
            .map_err(|error| (at("imageOverrider", index), error.into()))?;
    }
    for overrider in &overriders.command_overrider {
        containers::change_words(manifest, "command", overrider, budget).map_err(too_much)?;
    }
    for overrider in &overriders.args_overrider {
        containers::change_words(manifest, "args", overrider, budget).map_err(too_much)?;
    }
    for overrider in &overriders.labels_overrider {
        change_texts(manifest, "labels", overrider);
    }
    for overrider in &overriders.annotations_overrider {
        change_texts(manifest, "annotations", overrider);
    }
    for (index, overrider) in overriders.field_overrider.iter().enumerate() {
        opened
            .change(manifest, overrider, budget)
            .map_err(|error| (at("fieldOverrider", index), error.into()))?;
    }
    if !overriders.plaintext.is_empty() {
        opened.close(manifest);
        let mut document = Node::Leaf(manifest.take());
        patch::apply(
            &mut document,
            overriders.plaintext.iter().map(Operation::from),
            budget,
        )
        .map_err(|error| (format!("{rule}.plaintext"), error.into()))?;
        *manifest = document.into_value();
    }
    opened.close_guarded(manifest);
    Ok(())
}

/// Whether it may look into texts, or change them, other than by their documents. Those of labels and annotations
/// never stay open from one rule to the next.
fn touches_texts(overriders: &Overriders) -> bool {
    !overriders.image_overrider.is_empty()
        || !overriders.command_overrider.is_empty()
        || !overriders.args_overrider.is_empty()
}

/// How much is held after each rule against what it was before.
fn marks(manifest: &Value) -> usize {
    let count = |name: &str| match manifest.get("metadata").and_then(|it| it.get(name)) {
        Some(Value::Object(members)) => members.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    };
    let names = ["labels", "annotations", "ownerReferences", "finalizers"];
    names.into_iter().map(count).sum()
}

/// Changes the labels or annotations of the object itself.
fn change_texts(manifest: &mut Value, field: &str, overrider: &LabelAnnotationOverrider) {
    let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let adds = overrider.operator == OverriderOperator::Add;
    if adds && !metadata.get(field).is_some_and(Value::is_object) {
        metadata.insert(field.to_owned(), Value::Object(Map::new()));
    }
    let Some(Value::Object(texts)) = metadata.get_mut(field) else {
        return;
    };
    for (key, value) in &overrider.value {
        match overrider.operator {
            OverriderOperator::Add => {
                texts.insert(key.clone(), value.as_str().into());
            }
            OverriderOperator::Replace => {
                if let Some(text) = texts.get_mut(key) {
                    *text = value.as_str().into();
                }
            }
            OverriderOperator::Remove => {
                texts.remove(key);
            }
        }
    }
}

/// The rules as JSON, in Karmada's form: changes at a path have a value even where they remove.
fn told(rules: &[(&str, &Overriders)]) -> Option<String> {
    let item = |(name, overriders): &(&str, &Overriders)| {
        let mut overriders = json!(overriders);
        fill_values(overriders.get_mut("plaintext"));
        for field in items(overriders.get_mut("fieldOverrider")) {
            fill_values(field.get_mut("json"));
            fill_values(field.get_mut("yaml"));
        }
        json!({"policyName": name, "overriders": overriders})
    };
    (!rules.is_empty()).then(|| rules.iter().map(item).collect::<Value>().to_string())
}

fn fill_values(changes: Option<&mut Value>) {
    for change in items(changes).filter_map(Value::as_object_mut) {
        change.entry("value").or_insert(Value::Null);
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}
