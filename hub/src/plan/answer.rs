//! What a plan says: of each template what becomes of it, and of each of its clusters.

use super::difference::Difference;
use super::state::{Change, Subject};
use serde::Serialize;
use serde_json::Value;

/// What changes would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Templates of which something changes, or of which something is to be told.
    pub templates: Vec<TemplatePlan>,
    /// Templates that are in members, and of which nothing changes.
    pub unchanged: usize,
    /// Changes that the hub refuses.
    pub refused: Vec<Refused>,
    /// What nobody can know before.
    pub unknown: Vec<String>,
}

impl Plan {
    /// Whether anything changes.
    pub fn changes(&self) -> bool {
        self.templates.iter().any(TemplatePlan::changes)
    }
}

/// A change that the hub refuses.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// `group/version` of the object.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Why.
    pub message: String,
}

impl Refused {
    /// Of a change.
    pub fn of(change: &Change, message: String) -> Option<Self> {
        let subject = match change {
            Change::Apply(object) => Subject::of(object)?,
            Change::Delete(subject) => subject.clone(),
        };
        let namespace = subject.name.namespace.to_string();
        Some(Self {
            api_version: subject.kind.api_version(),
            kind: subject.kind.kind,
            namespace: Some(namespace).filter(|it| !it.is_empty()),
            name: subject.name.name.to_string(),
            message,
        })
    }
}

/// Something before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Step<T> {
    /// As it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<T>,
    /// As it will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<T>,
}

impl<T> Step<T> {
    /// Whether there is nothing before nor after.
    pub fn is_none(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }
}

/// One template.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplatePlan {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The policy that holds it; none for what goes along with others.
    pub policy: Step<String>,
    /// Each cluster that it is in, or comes to.
    pub clusters: Vec<ClusterPlan>,
    /// Why it is placed nowhere, or not as its policy wants it.
    #[serde(skip_serializing_if = "Step::is_none")]
    pub unplaced: Step<String>,
    /// What it waits for before its policy is carried out.
    #[serde(skip_serializing_if = "Step::is_none")]
    pub waits: Step<String>,
    /// Seconds until it is so, where that takes its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<i64>,
    /// Where it may go instead; which it is cannot be known before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<Vec<Share>>,
    /// What may be otherwise in the end, beside where it goes; whether it is so cannot be known before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<String>,
}

impl TemplatePlan {
    /// Whether it may end in more than one way.
    pub fn is_open(&self) -> bool {
        !self.or.is_empty() || !self.otherwise.is_empty()
    }

    /// Whether anything of it changes: in a member, or in why it is not there.
    pub fn changes(&self) -> bool {
        self.policy.before != self.policy.after
            || self.unplaced.before != self.unplaced.after
            || self.waits.before != self.waits.after
            || self.is_open()
            || self.clusters.iter().any(|it| it.verdict != Verdict::Stays)
    }
}

/// A cluster and its replicas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Share {
    /// The cluster.
    pub cluster: String,
    /// Its replicas, of what has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// What becomes of a template in one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Nothing.
    #[default]
    Stays,
    /// It comes there.
    Gained,
    /// It goes from there.
    Lost,
    /// It goes from there once others serve in its place.
    Leaves,
    /// It is another there than before.
    Changed,
}

/// One template in one cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlan {
    /// The cluster.
    pub cluster: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// It comes there and leaves again at once: whether there is time for a copy, nobody can know before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
    /// What becomes another of it is held back: its policy suspends dispatching.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Whatever was held back of it comes there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// Its objects stay there when it goes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preserved: bool,
    /// Its replicas.
    pub replicas: Step<i32>,
    /// In what it differs from what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Difference>,
    /// Override policies that are about it there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// In what these make it differ from the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<Difference>,
    /// Why the cluster is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What the cluster is told, without the system's marks.
    #[serde(skip)]
    pub manifest: Option<Value>,
    /// It is told nothing: it has what it had.
    #[serde(skip)]
    pub untold: bool,
}
