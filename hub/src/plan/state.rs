//! A hub in memory, out of a snapshot: what [`super::settle`] decides on and writes into. Pure.

use super::bindings::Bindings;
use super::stirred::Stirred;
use super::templates::{Held, Templates};
use crate::controller::detector::wake::{self, Edit};
use crate::propagation::{Policy, PolicyName, Template};
use crate::scheduler;
use crate::snapshot::{self, Snapshot};
use crate::world::{self, ObjectName, Record, TemplateName};
use chrono::{DateTime, Utc};
use common::api::cluster::TaintEffect;
use common::gvk::Gvk;
use common::interpreter::custom::Customizations;
use common::interpreter::layers::Interpreter;
use common::time::to_time;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const POLICIES: &str = "policy.karmada.io";
const CLUSTERS: &str = "cluster.karmada.io";
const CONFIG: &str = "config.karmada.io";

/// A change of a hub.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// An object is made, or is this from then on: whole, as the hub would have it.
    Apply(Box<Value>),
    /// An object goes.
    Delete(Subject),
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its kind.
    pub kind: Gvk,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl Subject {
    /// Of an object; none when it lacks apiVersion, kind or name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let name = text("/metadata/name").filter(|name| !name.is_empty())?;
        Some(Self {
            kind: Gvk::new(text("/apiVersion")?, text("/kind")?)?,
            name: ObjectName::new(text("/metadata/namespace"), name),
        })
    }

    /// As a template.
    pub fn template(&self) -> TemplateName {
        TemplateName {
            kind: self.kind.group_kind(),
            name: self.name.clone(),
        }
    }

    fn policy(&self) -> PolicyName {
        let namespace = Some(self.name.namespace.to_string());
        PolicyName {
            namespace: namespace.filter(|it| !it.is_empty()),
            name: self.name.name.to_string(),
        }
    }
}

/// What an object is to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Policy,
    Override,
    Cluster,
    PriorityClass,
    Customization,
    Template,
    /// Its effect is not foretold.
    Other,
}

pub(super) fn sort(kind: &Gvk) -> Sort {
    match (kind.group.as_str(), kind.kind.as_str()) {
        (POLICIES, "PropagationPolicy" | "ClusterPropagationPolicy") => Sort::Policy,
        (POLICIES, "OverridePolicy" | "ClusterOverridePolicy") => Sort::Override,
        (CLUSTERS, "Cluster") => Sort::Cluster,
        ("scheduling.k8s.io", "PriorityClass") => Sort::PriorityClass,
        (CONFIG, "ResourceInterpreterCustomization") => Sort::Customization,
        (POLICIES | CLUSTERS | CONFIG | "work.karmada.io" | "apps.karmada.io", _) => Sort::Other,
        _ => Sort::Template,
    }
}

/// What is there.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub policies: BTreeMap<PolicyName, Arc<Policy>>,
    pub overrides: BTreeMap<PolicyName, Arc<world::Override>>,
    pub templates: Templates,
    pub bindings: Bindings,
    pub clusters: BTreeMap<String, snapshot::Cluster>,
    pub priority_classes: BTreeMap<String, i32>,
    pub customizations: BTreeMap<String, Arc<world::Customization>>,
    /// What is known of kinds where none of them says it.
    pub shipped: Arc<Customizations>,
    /// What is known of kinds.
    pub interpreter: Interpreter,
    pub unreadable: BTreeSet<(String, ObjectName)>,
}

/// What a change concerns at first.
#[derive(Debug, Default)]
pub(super) struct Touched {
    pub templates: BTreeSet<TemplateName>,
    pub edited: Option<Edited>,
    /// A cluster.
    pub cluster: Option<Placed>,
    /// What Works are made of.
    pub stirred: Option<Stirred>,
}

/// A template that its author changed.
#[derive(Debug)]
pub(super) struct Edited {
    pub name: TemplateName,
    pub edit: Edit,
    /// As it was; none of one that is new.
    pub was: Option<Arc<Held>>,
}

/// What placement saw of a cluster, and sees now.
#[derive(Debug)]
pub(super) struct Placed {
    pub name: String,
    pub before: Option<Arc<scheduler::Cluster>>,
    pub after: Option<Arc<scheduler::Cluster>>,
}

impl State {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let unreadable = snapshot.unreadable.iter();
        Self {
            policies: snapshot.policies.clone(),
            overrides: snapshot.overrides.clone(),
            templates: Templates::of(snapshot),
            bindings: Bindings::of(&snapshot.bindings),
            clusters: snapshot.clusters.clone(),
            priority_classes: snapshot.priority_classes.clone(),
            customizations: snapshot.customizations.clone(),
            shipped: snapshot.shipped.clone(),
            interpreter: snapshot.interpreter(),
            unreadable: unreadable
                .map(|it| (it.kind.clone(), it.name.clone()))
                .collect(),
        }
    }

    /// What placement looks at.
    pub(super) fn placing(&self) -> scheduler::Snapshot {
        let clusters = self.clusters.values();
        scheduler::Snapshot::new(clusters.filter_map(|it| it.record.placing.clone()))
    }

    /// Changes it at `now`; `odd` says of which parity the UID of a new template is. The error says why an object
    /// cannot be meant.
    pub(super) fn change(
        &mut self,
        change: &Change,
        now: DateTime<Utc>,
        odd: bool,
    ) -> Result<Touched, String> {
        match change {
            Change::Apply(object) => {
                let subject = Subject::of(object)
                    .ok_or_else(|| "it has no apiVersion, kind or name".to_owned())?;
                match sort(&subject.kind) {
                    Sort::Policy => self.policy(&subject, Some(object)),
                    Sort::Override => self.override_policy(&subject, Some(object)),
                    Sort::Cluster => self.cluster(&subject, object, now),
                    Sort::PriorityClass => {
                        let value = object["value"].as_i64().unwrap_or_default();
                        let value = i32::try_from(value).unwrap_or_default();
                        let name = subject.name.name.to_string();
                        // Only who waits for one looks at it again.
                        Ok(match self.priority_classes.insert(name, value) {
                            None => Touched {
                                templates: self.templates.names(),
                                ..Touched::default()
                            },
                            Some(_) => Touched::default(),
                        })
                    }
                    Sort::Customization => self.customization(&subject, Some(object)),
                    Sort::Template => Ok(self.templates.apply(&subject, object, odd)),
                    Sort::Other => Ok(Touched::default()),
                }
            }
            Change::Delete(subject) => match sort(&subject.kind) {
                Sort::Policy => self.policy(subject, None),
                Sort::Override => self.override_policy(subject, None),
                Sort::Cluster => {
                    let before = self.placing_of(&subject.name.name);
                    self.clusters.remove(&*subject.name.name);
                    Ok(self.moved(&subject.name.name, before))
                }
                Sort::PriorityClass => {
                    self.priority_classes.remove(&*subject.name.name);
                    Ok(Touched::default())
                }
                Sort::Customization => self.customization(subject, None),
                Sort::Template => Ok(self.templates.remove(subject.template())),
                Sort::Other => Ok(Touched::default()),
            },
        }
    }

    /// Marks a cluster as one that is being deleted, as it is until it is gone.
    pub(super) fn begin_to_leave(&mut self, name: &str, now: DateTime<Utc>) -> Touched {
        let before = self.placing_of(name);
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.object["metadata"]["deletionTimestamp"] = json!(to_time(now));
            if let Ok(Some(record)) = world::Cluster::read(&cluster.object.to_string()) {
                cluster.record = Arc::new(record);
            }
        }
        self.moved(name, before)
    }

    /// Whether a change has overrides see a cluster as they did not before.
    pub(super) fn has_other_cluster(&self, change: &Change) -> bool {
        let (subject, object) = match change {
            Change::Apply(object) => (Subject::of(object), Some(object)),
            Change::Delete(subject) => (Some(subject.clone()), None),
        };
        let Some(subject) = subject.filter(|it| sort(&it.kind) == Sort::Cluster) else {
            return false;
        };
        let read = object.and_then(|it| world::Cluster::read(&it.to_string()).ok().flatten());
        let placed = Placed {
            name: subject.name.name.to_string(),
            before: self.placing_of(&subject.name.name),
            after: read.and_then(|it| it.placing),
        };
        Stirred::by_cluster(&placed).is_some()
    }

    fn placing_of(&self, cluster: &str) -> Option<Arc<scheduler::Cluster>> {
        self.clusters.get(cluster)?.record.placing.clone()
    }

    fn moved(&self, cluster: &str, before: Option<Arc<scheduler::Cluster>>) -> Touched {
        let placed = Placed {
            name: cluster.to_owned(),
            before,
            after: self.placing_of(cluster),
        };
        Touched {
            stirred: Stirred::by_cluster(&placed),
            cluster: Some(placed),
            ..Touched::default()
        }
    }

    fn policy(&mut self, subject: &Subject, object: Option<&Value>) -> Result<Touched, String> {
        let name = subject.policy();
        let old = self.policies.remove(&name);
        let new = match object {
            Some(object) => {
                let read = world::Policy::read(&object.to_string());
                let read = read.map_err(|error| error.to_string())?;
                read.map(|it| it.policy)
            }
            None => None,
        };
        let new = new.map(|new| {
            let known = old.as_ref().map(|old| old.id.clone());
            let mut new = Policy::clone(&new);
            if new.id.is_empty() {
                // It gets one before anything else.
                new.id = known.unwrap_or_else(|| format!("id of {name}"));
            }
            Arc::new(new)
        });
        if let Some(new) = &new {
            self.policies.insert(name, Arc::clone(new));
        }
        let woken = wake::woken(old.as_deref(), new.as_deref());
        let templates = self.templates.woken(&woken);
        Ok(Touched {
            templates,
            ..Touched::default()
        })
    }

    fn override_policy(
        &mut self,
        subject: &Subject,
        object: Option<&Value>,
    ) -> Result<Touched, String> {
        let name = subject.policy();
        let (old, new) = replace(&mut self.overrides, name.clone(), object)?;
        let waiting = self.policies.values();
        let waiting = waiting.filter(|it| wake::overrides_of(it).contains(&name));
        let woken: Vec<_> = waiting.map(|it| wake::woken(None, Some(it))).collect();
        let templates = woken
            .iter()
            .flat_map(|it| self.templates.woken(it))
            .collect();
        Ok(Touched {
            templates,
            stirred: Stirred::by_override(&name, old.as_ref(), new.as_ref()),
            ..Touched::default()
        })
    }

    fn customization(
        &mut self,
        subject: &Subject,
        object: Option<&Value>,
    ) -> Result<Touched, String> {
        let name = subject.name.name.to_string();
        let (old, new) = replace(&mut self.customizations, name, object)?;
        self.interpreter = world::interpreter_of(&self.customizations, &self.shipped);
        let kinds: BTreeSet<_> = old.iter().chain(&new).filter_map(|it| it.kind()).collect();
        let mut templates = self.templates.names();
        templates.retain(|it| kinds.iter().any(|kind| kind.group_kind() == it.kind));
        Ok(Touched {
            templates,
            stirred: Stirred::by_customization(old.as_ref(), new.as_ref()),
            ..Touched::default()
        })
    }

    fn cluster(
        &mut self,
        subject: &Subject,
        object: &Value,
        now: DateTime<Utc>,
    ) -> Result<Touched, String> {
        let mut object = object.clone();
        // As the hub's own controller does it.
        let taints = object.pointer_mut("/spec/taints");
        for taint in taints.and_then(Value::as_array_mut).into_iter().flatten() {
            let evicts = taint["effect"] == json!(TaintEffect::NoExecute);
            if evicts && taint.get("timeAdded").is_none_or(Value::is_null) {
                taint["timeAdded"] = json!(to_time(now));
            }
        }
        let before = self.placing_of(&subject.name.name);
        let read = world::Cluster::read(&object.to_string());
        let read = read.map_err(|error| error.to_string())?;
        if let Some(record) = read {
            let record = Arc::new(record);
            let cluster = snapshot::Cluster { object, record };
            self.clusters.insert(subject.name.name.to_string(), cluster);
        }
        Ok(self.moved(&subject.name.name, before))
    }

    /// Whether an object of this kind and name is there and cannot be read.
    pub(super) fn is_unreadable(&self, kind: &str, name: &ObjectName) -> bool {
        self.unreadable.contains(&(kind.to_owned(), name.clone()))
    }

    /// The binding of a template.
    pub(super) fn binding_of(template: &Template) -> ObjectName {
        ObjectName::new(template.namespace.as_deref(), &template.binding_name())
    }

    /// The same, of one of which only the name is known.
    pub(super) fn binding_of_name(name: &TemplateName) -> ObjectName {
        let namespace = Some(&*name.name.namespace).filter(|it| !it.is_empty());
        let binding = common::names::binding_name(&name.kind.kind, &name.name.name);
        ObjectName::new(namespace, &binding)
    }
}

/// What is kept of an object, if it is there.
type Kept<R> = Option<Arc<R>>;

/// Puts what an object says in the place of what was there before, or takes that out: before, and after.
fn replace<K: Ord, R: Record>(
    all: &mut BTreeMap<K, Arc<R>>,
    key: K,
    object: Option<&Value>,
) -> Result<(Kept<R>, Kept<R>), String> {
    let old = all.remove(&key);
    let read = object.map(|it| R::read(&it.to_string())).transpose();
    let new = read.map_err(|error| error.to_string())?.flatten();
    let new = new.map(Arc::new);
    if let Some(new) = &new {
        all.insert(key, Arc::clone(new));
    }
    Ok((old, new))
}

/// The policies of a namespace; without one, those of the hub.
pub(super) fn within<'p, P>(
    all: &'p BTreeMap<PolicyName, Arc<P>>,
    namespace: Option<&'p str>,
) -> impl Iterator<Item = &'p Arc<P>> {
    let first = PolicyName {
        namespace: namespace.map(str::to_owned),
        name: String::new(),
    };
    all.range(first..)
        .take_while(move |(name, _)| name.namespace.as_deref() == namespace)
        .map(|(_, policy)| policy)
}
