//! What one member gets of a template: its Work, with one manifest.
//!
//! Pure: the same template, binding, overrides and cluster make the same Work, byte by byte.

use super::overrides::cluster::ClusterFacts;
use super::overrides::{Applied, OverrideError, Overrides, is_of_the_system};
use super::targets::targets;
use crate::propagation;
use common::api::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use common::api::policy::{ConflictResolution, PurgeMode, ReplicaSchedulingType};
use common::api::work::{Work, WorkSpec, WorkloadTemplate};
use common::gvk::Gvk;
use common::interpreter::custom::Failed;
use common::interpreter::custom::carried::TooLong;
use common::interpreter::layers::Interpreter;
use common::interpreter::{completions, prune};
use common::labels::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, BINDING_NAME, BINDING_NAMESPACE,
    BINDING_PERMANENT_ID, CLUSTER_BINDING_NAME, CLUSTER_BINDING_PERMANENT_ID, CONFLICT_RESOLUTION,
    INTERPRETATION, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANAGED_VALUE,
    TEMPLATE_GENERATION, TEMPLATE_UID, WORK_FINALIZER, WORK_NAME, WORK_NAMESPACE,
    WORK_PERMANENT_ID,
};
use common::names::{EXECUTION_PREFIX, work_name};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const OVERWRITE: &str = "overwrite";
const ABORT: &str = "abort";

/// A binding of either kind.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    /// Its namespace; none of a ClusterResourceBinding.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// What its Works are found by: its permanent id, or its UID while it has none.
    pub id: &'a str,
    /// Its spec.
    pub spec: &'a ResourceBindingSpec,
}

impl<'a> Binding<'a> {
    /// A binding in a namespace is a ResourceBinding, one in none a ClusterResourceBinding.
    pub fn new(metadata: &'a ObjectMeta, spec: &'a ResourceBindingSpec) -> Self {
        let mut binding = Self {
            namespace: metadata.namespace.as_deref(),
            name: metadata.name.as_deref().unwrap_or_default(),
            id: "",
            spec,
        };
        let labels = metadata.labels.as_ref();
        let id = labels.and_then(|labels| labels.get(binding.id_label()));
        binding.id = id.or(metadata.uid.as_ref()).map_or("", String::as_str);
        binding
    }

    /// The same, from what decisions look at.
    pub fn of(binding: &'a propagation::Binding) -> Self {
        let id = match binding.id() {
            "" => &binding.uid,
            id => id,
        };
        Self {
            namespace: binding.namespace.as_deref(),
            name: &binding.name,
            id,
            spec: &binding.spec,
        }
    }

    /// Whether its template may be in a namespace, or in none: only where it is itself.
    pub fn leads_to(&self, namespace: Option<&str>) -> Result<(), RenderError> {
        let told = |namespace: Option<&str>| match namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "no namespace".to_owned(),
        };
        if namespace == self.namespace {
            return Ok(());
        }
        Err(RenderError::Elsewhere {
            binding: told(self.namespace),
            template: told(namespace),
        })
    }

    /// The label by which its Works are found.
    pub fn id_label(&self) -> &'static str {
        match self.namespace {
            Some(_) => BINDING_PERMANENT_ID,
            None => CLUSTER_BINDING_PERMANENT_ID,
        }
    }

    /// Annotations that lead from a Work or a manifest back to the binding.
    fn references(&self) -> impl Iterator<Item = (&'static str, &'a str)> + use<'a> {
        let name = match self.namespace {
            Some(_) => BINDING_NAME,
            None => CLUSTER_BINDING_NAME,
        };
        let namespace = self
            .namespace
            .map(|namespace| (BINDING_NAMESPACE, namespace));
        [(name, self.name)].into_iter().chain(namespace)
    }
}

/// Why a member does not get its Work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template is no object that can be propagated.
    #[error("the template has no {0}")]
    Template(&'static str),
    /// A binding leads to objects of its own namespace only.
    #[error("the binding is of {binding}, its template of {template}")]
    Elsewhere {
        /// The binding's namespace, or that it has none.
        binding: String,
        /// The template's, likewise.
        template: String,
    },
    /// The Job's completions were divided among others.
    #[error("no completions found for cluster {0}")]
    Completions(String),
    /// The script that writes a member's share does not.
    #[error(transparent)]
    Share(#[from] Box<Failed>),
    /// The scripts for the member do not go into a Work.
    #[error(transparent)]
    Scripts(#[from] TooLong),
    /// An override does not apply.
    #[error(transparent)]
    Override(#[from] OverrideError),
}

/// Makes the Works of one binding; what is the same for all of its members is worked out once.
#[derive(Debug)]
pub struct Renderer<'a> {
    template: &'a Value,
    binding: Binding<'a>,
    overrides: &'a Overrides<'a>,
    interpreter: &'a Interpreter,
    gvk: Gvk,
    work_name: String,
    is_revised: bool,
    /// What members are to ask about the object.
    scripts: Option<String>,
    /// Each member's share of a Job's completions, where they are divided.
    completions: Option<BTreeMap<&'a str, i32>>,
    /// Members to which nothing is dispatched.
    suspended: BTreeSet<&'a str>,
    /// Labels that say what a workload was before it failed elsewhere.
    preserved: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Renderer<'a> {
    /// For a template as the hub has it, and the overrides that are about it.
    pub fn new(
        template: &'a Value,
        binding: Binding<'a>,
        overrides: &'a Overrides<'a>,
        interpreter: &'a Interpreter,
    ) -> Result<Self, RenderError> {
        let text = |pointer| template.pointer(pointer).and_then(Value::as_str);
        let kind = text("/kind").unwrap_or_default();
        let gvk = Gvk::new(text("/apiVersion").unwrap_or_default(), kind)
            .ok_or(RenderError::Template("apiVersion or kind"))?;
        let name = text("/metadata/name").filter(|name| !name.is_empty());
        let name = name.ok_or(RenderError::Template("metadata.name"))?;
        let namespace = text("/metadata/namespace").filter(|namespace| !namespace.is_empty());
        binding.leads_to(namespace)?;
        let spec = binding.spec;
        let is_workload = spec.replicas.is_some_and(|replicas| replicas > 0)
            || spec.replica_requirements.is_some()
            || !spec.components.is_empty();
        let suspended = spec.suspension.iter();
        let suspended = suspended.flat_map(|it| &it.dispatching_on_clusters);
        Ok(Self {
            work_name: work_name(kind, namespace, name),
            is_revised: is_workload && interpreter.is_revised(&gvk),
            scripts: interpreter.carried(&gvk)?,
            completions: divided_completions(template, kind, spec),
            suspended: suspended
                .flat_map(|it| &it.cluster_names)
                .map(String::as_str)
                .collect(),
            preserved: preserved_labels(spec),
            template,
            binding,
            overrides,
            interpreter,
            gvk,
        })
    }

    /// The name that all of its Works have.
    pub fn work_name(&self) -> &str {
        &self.work_name
    }

    /// Whether what they carry is a namespace.
    pub fn brings_namespace(&self) -> bool {
        let gvk = &self.gvk;
        (gvk.group.as_str(), gvk.kind.as_str()) == ("", "Namespace")
    }

    /// The Work of one member. `id` is the permanent id of a Work that exists; a new one gets its own.
    pub fn render(
        &self,
        target: &TargetCluster,
        cluster: &ClusterFacts<'_>,
        id: Option<&str>,
    ) -> Result<Work, RenderError> {
        let mut manifest = self.template.clone();
        if self.is_revised {
            let replicas = target.replicas.unwrap_or(0);
            let revised = self.interpreter.revise(&self.gvk, &mut manifest, replicas);
            revised.map_err(Box::new)?;
        }
        if let Some(shares) = &self.completions
            && let Some(completions) = manifest.pointer_mut("/spec/completions")
        {
            let share = shares.get(target.name.as_str());
            let share = share.ok_or_else(|| RenderError::Completions(target.name.clone()))?;
            *completions = (*share).into();
        }
        let applied = self.overrides.apply(&mut manifest, cluster)?;
        prune::prune(&self.gvk, &mut manifest);
        let new;
        let id = match id {
            Some(id) => id,
            None => {
                new = new_id(self.binding.id, &target.name);
                &new
            }
        };
        let namespace = format!("{EXECUTION_PREFIX}{}", target.name);
        let conflict = self.conflict_resolution(&manifest);
        self.mark(&mut manifest, &namespace, id, conflict)?;
        Ok(self.work(target, manifest, &applied, namespace, id, conflict))
    }

    /// What the overridden manifest says wins.
    fn conflict_resolution(&self, manifest: &Value) -> &'static str {
        let annotations = manifest.pointer("/metadata/annotations");
        let told = annotations.and_then(|annotations| annotations.get(CONFLICT_RESOLUTION));
        match (
            told.and_then(Value::as_str),
            self.binding.spec.conflict_resolution,
        ) {
            (Some(OVERWRITE), _) => OVERWRITE,
            (Some(ABORT), _) => ABORT,
            (_, ConflictResolution::Overwrite) => OVERWRITE,
            (_, ConflictResolution::Abort) => ABORT,
        }
    }

    /// Writes into a manifest whose it is, so that the member's object tells.
    fn mark(
        &self,
        manifest: &mut Value,
        namespace: &str,
        id: &str,
        conflict: &str,
    ) -> Result<(), RenderError> {
        let template = |pointer| self.template.pointer(pointer);
        let uid = template("/metadata/uid").and_then(Value::as_str);
        let generation = template("/metadata/generation").and_then(Value::as_i64);
        let metadata = manifest.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.ok_or(RenderError::Template("metadata"))?;

        let labels = texts(metadata, "labels");
        for (key, value) in self.preserved.into_iter().flatten() {
            if !is_of_the_system(key) {
                labels.insert(key.clone(), value.as_str().into());
            }
        }
        for (key, value) in [
            (MANAGED, MANAGED_VALUE),
            (self.binding.id_label(), self.binding.id),
            (WORK_PERMANENT_ID, id),
        ] {
            labels.insert(key.to_owned(), value.into());
        }
        let managed_labels = joined(labels);

        let annotations = texts(metadata, "annotations");
        let mut set = |key: &str, value: &str| {
            annotations.insert(key.to_owned(), value.into());
        };
        for (key, value) in self.binding.references() {
            set(key, value);
        }
        set(TEMPLATE_UID, uid.unwrap_or_default());
        if let Some(generation @ 1..) = generation {
            set(TEMPLATE_GENERATION, &generation.to_string());
        }
        set(WORK_NAME, &self.work_name);
        set(WORK_NAMESPACE, namespace);
        set(CONFLICT_RESOLUTION, conflict);
        set(MANAGED_LABELS, &managed_labels);
        // The list names itself.
        set(MANAGED_ANNOTATIONS, "");
        let managed_annotations = joined(annotations);
        annotations.insert(MANAGED_ANNOTATIONS.to_owned(), managed_annotations.into());
        Ok(())
    }

    fn work(
        &self,
        target: &TargetCluster,
        manifest: Value,
        applied: &Applied<'_>,
        namespace: String,
        id: &str,
        conflict: &str,
    ) -> Work {
        let spec = self.binding.spec;
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let mut annotations: BTreeMap<String, String> = self
            .binding
            .references()
            .chain([(CONFLICT_RESOLUTION, conflict)])
            .chain(self.scripts.as_deref().map(|it| (INTERPRETATION, it)))
            .map(owned)
            .collect();
        for (key, told) in [
            (APPLIED_OVERRIDES, applied.of_policies()),
            (APPLIED_CLUSTER_OVERRIDES, applied.of_cluster_policies()),
        ] {
            if let Some(told) = told {
                annotations.insert(key.to_owned(), told);
            }
        }
        let labels = [
            (self.binding.id_label(), self.binding.id),
            (WORK_PERMANENT_ID, id),
        ];
        let dispatching = spec.suspension.as_ref().and_then(|it| it.dispatching);
        Work {
            metadata: ObjectMeta {
                name: Some(self.work_name.clone()),
                namespace: Some(namespace),
                labels: Some(labels.into_iter().map(owned).collect()),
                annotations: Some(annotations),
                finalizers: Some(vec![WORK_FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: WorkSpec {
                workload: WorkloadTemplate {
                    manifests: vec![manifest],
                },
                suspend_dispatching: Some(
                    dispatching.unwrap_or(false) || self.suspended.contains(target.name.as_str()),
                ),
                preserve_resources_on_deletion: Some(
                    spec.preserve_resources_on_deletion.unwrap_or(false),
                ),
            },
            status: None,
        }
    }
}

/// A Job that must be completed so many times in all, wherever its replicas run.
fn divided_completions<'a>(
    template: &Value,
    kind: &str,
    spec: &'a ResourceBindingSpec,
) -> Option<BTreeMap<&'a str, i32>> {
    let scheduling = spec.placement.as_ref()?.replica_scheduling.as_ref()?;
    let divided = scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided;
    if kind != "Job" || !divided || spec.replicas.unwrap_or(0) <= 0 {
        return None;
    }
    let completions = template.pointer("/spec/completions")?.as_i64()?;
    let completions = i32::try_from(completions).ok()?;
    let uid = template.pointer("/metadata/uid").and_then(Value::as_str);
    let weights = spec.clusters.iter();
    let weights = weights.map(|target| (target.name.as_str(), target.replicas.unwrap_or(0)));
    completions::divide(completions, weights, uid.unwrap_or_default())
}

/// What a workload that failed elsewhere and was purged there tells its only successor.
fn preserved_labels(spec: &ResourceBindingSpec) -> Option<&BTreeMap<String, String>> {
    let GracefulEvictionTask {
        purge_mode: Some(PurgeMode::Directly),
        preserved_label_state,
        clusters_before_failover,
        ..
    } = spec.graceful_eviction_tasks.last()?
    else {
        return None;
    };
    match targets(spec).as_slice() {
        [only] if !clusters_before_failover.contains(&only.name) => Some(preserved_label_state),
        _ => None,
    }
}

/// The map of texts at `field`, made where there is none.
fn texts<'m>(metadata: &'m mut Map<String, Value>, field: &str) -> &'m mut Map<String, Value> {
    let value = metadata.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .expect("invariant: it was made an object")
}

fn joined(texts: &Map<String, Value>) -> String {
    let keys: BTreeSet<&str> = texts.keys().map(String::as_str).collect();
    keys.into_iter().collect::<Vec<_>>().join(",")
}

/// An id for the Work of a member, the same whenever it is made: a UUID of the kind that everybody fills as they
/// like.
pub(crate) fn new_id(binding: &str, cluster: &str) -> String {
    let digest = digest(&SHA256, format!("{binding}/{cluster}").as_bytes());
    let hex: String = digest.as_ref()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let variant = match hex.as_bytes()[16] % 4 {
        0 => '8',
        1 => '9',
        2 => 'a',
        _ => 'b',
    };
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..],
    );
    format!("{a}-{b}-8{c}-{variant}{d}-{e}")
}
