//! The way of one template: policy, binding, placement, Works, members. Pure.

use super::mend::{self, on_hub, within};
use super::{Broken, Cause, Report, Stage, Walk, member, placement, policy, said, script};
use crate::controller::detector::skip::Skips;
use crate::propagation::{Policy, PolicyName, Template, group};
use chrono::{DateTime, Utc};
use common::api::binding::{
    ClusterResourceBinding, ObjectReference, ResourceBinding, ResourceBindingSpec,
    ResourceBindingStatus, TargetCluster,
};
use common::api::cluster::Cluster;
use common::api::policy::ActivationPreference;
use common::api::work::Work;
use common::interpreter::custom::{Failed, Operation};
use common::interpreter::dependencies::NamesNothing;
use common::names::EXECUTION_PREFIX;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A binding of either kind.
#[derive(Debug, Clone, Default)]
pub struct Bound {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it says.
    pub spec: ResourceBindingSpec,
    /// What became of it.
    pub status: ResourceBindingStatus,
}

impl From<ResourceBinding> for Bound {
    fn from(it: ResourceBinding) -> Self {
        Self {
            metadata: it.metadata,
            spec: it.spec,
            status: it.status.unwrap_or_default(),
        }
    }
}

impl From<ClusterResourceBinding> for Bound {
    fn from(it: ClusterResourceBinding) -> Self {
        Self {
            metadata: it.metadata,
            spec: it.spec.0,
            status: it.status.unwrap_or_default(),
        }
    }
}

/// Something that the template refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referred {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Whether the hub has it.
    pub exists: bool,
}

/// What was read of a hub around one template.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The time of day.
    pub now: DateTime<Utc>,
    /// Its type as kubectl takes it, `deployments.apps`.
    pub resource: String,
    /// The object.
    pub template: Value,
    /// What the hub never propagates.
    pub skips: Skips,
    /// Policies, of every namespace that may be seen.
    pub policies: Vec<Policy>,
    /// Override policies that exist.
    pub overrides: BTreeSet<PolicyName>,
    /// PriorityClasses that exist, of those that its policy names.
    pub priority_classes: BTreeSet<String>,
    /// The binding of its name.
    pub binding: Option<Bound>,
    /// All clusters.
    pub clusters: Vec<Cluster>,
    /// When agents renewed their Leases last, by cluster.
    pub leases: BTreeMap<String, DateTime<Utc>>,
    /// The Works of the binding; of a Namespace without one, its Works.
    pub works: Vec<Work>,
    /// What it refers to.
    pub referred: Vec<Referred>,
    /// Whether its namespace has the label with which it stays on the hub.
    pub stays: bool,
    /// What the hub's scripts for its kind fail at, of it as it is.
    pub scripts: Vec<Failed>,
    /// Which of its references names nothing, where something is to go along with it.
    pub nameless: Option<NamesNothing>,
    /// Why the hub's API server is not ready.
    pub hub: Option<String>,
    /// What was not looked at, because whoever asks may not.
    pub unseen: Vec<String>,
}

impl Seen {
    /// A command of kubectl about the template.
    pub(super) fn command(&self, verb: &str, rest: &str) -> String {
        let namespace = within(self.namespace());
        let (resource, name) = (&self.resource, mend::word(self.text("/metadata/name")));
        format!("kubectl{namespace} {verb} {resource} {name} {rest}")
            .trim_end()
            .to_owned()
    }

    /// The bindings whose templates refer to it.
    pub(super) fn follows(&self) -> Vec<&str> {
        let required = self.binding.iter().flat_map(|it| &it.spec.required_by);
        required.map(|it| it.name.as_str()).collect()
    }

    /// That the hub has not done yet what follows.
    pub(super) fn late(&self, stage: Stage, what: impl Into<String>) -> Broken {
        Broken {
            stage,
            cause: Cause::HubIsLate,
            cluster: None,
            what: what.into(),
            mend: mend::check(),
        }
    }

    pub(super) fn text(&self, pointer: &str) -> &str {
        let text = self.template.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|it| !it.is_empty())
    }

    /// The cluster of a name.
    pub(super) fn cluster(&self, name: &str) -> Option<&Cluster> {
        let mut clusters = self.clusters.iter();
        clusters.find(|it| it.metadata.name.as_deref() == Some(name))
    }
}

/// Why a template is not where it should be.
pub fn explain(seen: &Seen) -> Report {
    let mut walk = Walk::default();
    stages(seen, &mut walk);
    let group = match group(seen.text("/apiVersion")) {
        "" => String::new(),
        group => format!(".{group}"),
    };
    let kind = seen.text("/kind").to_lowercase();
    let mut subject = format!("{kind}{group}/{}", seen.text("/metadata/name"));
    if let Some(namespace) = seen.namespace() {
        subject.push_str(&format!(" in namespace {namespace}"));
    }
    walk.report(subject, seen.unseen.clone())
}

fn stages(seen: &Seen, walk: &mut Walk) {
    if let Some(why) = &seen.hub {
        walk.breaks(hub_not_ready(why), Vec::new());
        return;
    }
    let Some(template) = Template::of(&seen.template) else {
        return;
    };
    if template.group().is_empty() && template.kind == "Namespace" && seen.binding.is_none() {
        let what = "a Namespace goes wherever something in it goes";
        walk.holds(Stage::Policy, what, Vec::new());
        if !seen.works.is_empty() {
            member::walk(seen, None, &everywhere(seen, &template), walk);
        }
        return;
    }
    let policy = policy::walk(seen, &template, walk);
    if walk.broken.is_some() {
        return;
    }
    if let Some(stopped) = script::stopped(seen, Operation::Replica) {
        walk.breaks(stopped, Vec::new());
        return;
    }
    let Some(binding) = &seen.binding else {
        let lazy = policy.and_then(lazy);
        let broken = lazy.unwrap_or_else(|| seen.late(Stage::Binding, "it has no binding yet"));
        walk.breaks(broken, Vec::new());
        return;
    };
    if !is_about(&binding.spec.resource, &template) {
        walk.breaks(name_taken(seen, binding), Vec::new());
        return;
    }
    if binding.metadata.deletion_timestamp.is_some() {
        let late = seen.late(
            Stage::Binding,
            "its binding is being deleted; the next one follows",
        );
        walk.breaks(late, Vec::new());
        return;
    }
    if let Some(stopped) = script::stopped(seen, Operation::Dependency) {
        walk.breaks(stopped, Vec::new());
        return;
    }
    if let Some(nameless) = seen.nameless {
        walk.breaks(names_nothing(seen, nameless), Vec::new());
        return;
    }
    placement::walk(seen, policy, binding, walk);
    if walk.broken.is_none() {
        member::walk(seen, policy, binding, walk);
    }
    if walk.broken.is_none()
        && let Some(stopped) = script::stopped(seen, Operation::AggregateStatus)
    {
        walk.breaks(stopped, Vec::new());
    }
}

/// A Lazy policy waits for an edit of the template, and not for the hub.
fn lazy(policy: &Policy) -> Option<Broken> {
    let is_lazy = policy.spec.activation_preference == Some(ActivationPreference::Lazy);
    let name = mend::short(&policy.name);
    let patch = json!({"spec": {"activationPreference": null}});
    is_lazy.then(|| Broken {
        stage: Stage::Binding,
        cause: Cause::Lazy,
        cluster: None,
        what: format!("{name} is Lazy: it is placed when the template is edited next"),
        mend: on_hub(
            "Edit the template, or have the policy place at once whatever it selects.",
            [mend::patch_policy(&policy.name, &patch)],
        ),
    })
}

/// A Namespace has no binding: its Works say where it goes.
fn everywhere(seen: &Seen, template: &Template) -> Bound {
    let spaces = seen
        .works
        .iter()
        .filter_map(|it| it.metadata.namespace.as_deref());
    let clusters = spaces.filter_map(|it| it.strip_prefix(EXECUTION_PREFIX));
    let target = |name: &str| TargetCluster {
        name: name.to_owned(),
        ..TargetCluster::default()
    };
    Bound {
        spec: ResourceBindingSpec {
            resource: template.reference(),
            clusters: clusters.map(target).collect(),
            ..ResourceBindingSpec::default()
        },
        ..Bound::default()
    }
}

/// That the hub's API server says it is not ready.
pub(super) fn hub_not_ready(why: &str) -> Broken {
    let full = why.contains("no space left")
        || why.contains("disk is full")
        || why.contains("database or disk");
    let what = match full {
        true => {
            "Free space on the disk of the hub's data directory: it takes writes again by itself."
        }
        false => "Mend on the hub what it names: its API server takes no writes before.",
    };
    let command = match full {
        true => "df -h",
        false => "kubectl get --raw '/readyz?verbose'",
    };
    Broken {
        stage: Stage::Hub,
        cause: Cause::HubNotReady,
        cluster: None,
        what: said(why),
        mend: on_hub(what, [command.to_owned()]),
    }
}

/// Kinds of two groups may have one name, and then one of them has the binding.
fn is_about(reference: &ObjectReference, template: &Template) -> bool {
    reference.kind == template.kind
        && group(&reference.api_version) == template.group()
        && reference.name == template.name
}

fn names_nothing(seen: &Seen, nameless: NamesNothing) -> Broken {
    let what =
        format!("nobody knows what it refers to, so nothing new goes along with it: {nameless}");
    let mend = on_hub(
        "Give every entry of spec.tls a secretName, or take those without one out.",
        [seen.command("edit", "")],
    );
    Broken {
        stage: Stage::Binding,
        cause: Cause::NamesNothing,
        cluster: None,
        what,
        mend,
    }
}

fn name_taken(seen: &Seen, binding: &Bound) -> Broken {
    let other = &binding.spec.resource;
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    let what = format!(
        "the binding {name} belongs to {} {} of {}",
        other.kind, other.name, other.api_version
    );
    let mend = on_hub(
        "Give one of the two another name.",
        [seen.command("get", "-o yaml")],
    );
    Broken {
        stage: Stage::Binding,
        cause: Cause::NameTaken,
        cluster: None,
        what,
        mend,
    }
}
