//! What decisions of propagation look at: templates, policies and bindings, narrowed to what they need.
//!
//! Pure. The records of the world are made of these, or into these; writes are made of them.

mod control_plane;
#[cfg(test)]
mod tests;

use common::api::binding::{ObjectReference, ResourceBindingSpec, TargetCluster};
use common::api::policy::{ConflictResolution, PropagationSpec, PurgeMode};
use common::labels::{
    BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID, CLUSTER_POLICY_PERMANENT_ID,
    POLICY_PERMANENT_ID,
};
use common::merge::difference;
use common::names::binding_name;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Labels or annotations.
pub type Texts = BTreeMap<String, String>;

/// A user's object on the hub, as far as its propagation goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// `group/version`, or the version alone for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for a cluster-scoped object.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version that was seen.
    pub resource_version: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Labels.
    pub labels: Texts,
    /// Annotations.
    pub annotations: Texts,
    /// The type of a Secret.
    pub secret_type: Option<String>,
    /// Differs when anything beside metadata and status differs; only good within one process.
    pub digest: u64,
}

impl Template {
    /// From a whole object; none when it lacks apiVersion, kind or name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |pointer: &str| {
            let text = object.pointer(pointer).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let kind = text("/kind")?;
        let secret_type = (kind == "Secret").then(|| text("/type")).flatten();
        Some(Self {
            api_version: text("/apiVersion")?,
            kind,
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name")?,
            uid: text("/metadata/uid").unwrap_or_default(),
            resource_version: text("/metadata/resourceVersion").unwrap_or_default(),
            deleting: text("/metadata/deletionTimestamp").is_some(),
            labels: texts(object, "/metadata/labels"),
            annotations: texts(object, "/metadata/annotations"),
            secret_type,
            digest: digest(object),
        })
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        group(&self.api_version)
    }

    /// The name of its binding.
    pub fn binding_name(&self) -> String {
        binding_name(&self.kind, &self.name)
    }

    /// What a binding says about it.
    pub fn reference(&self) -> ObjectReference {
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        ObjectReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: known(&self.uid),
            resource_version: known(&self.resource_version),
        }
    }

    /// What an object that follows from it says about it.
    pub fn as_owner(&self) -> Owner {
        Owner {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

/// The group of an `apiVersion`.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn texts(object: &Value, pointer: &str) -> Texts {
    let map = object.pointer(pointer).and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    map.into_iter().flatten().filter_map(text).collect()
}

fn digest(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "metadata" | "status") {
            (key, value.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Names a PropagationPolicy or OverridePolicy, or, without a namespace, a cluster-wide one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// Namespace; none for a cluster-wide policy.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl PolicyName {
    /// The label that has the permanent id of such a PropagationPolicy or ClusterPropagationPolicy.
    pub fn id_label(&self) -> &'static str {
        match self.namespace {
            Some(_) => POLICY_PERMANENT_ID,
            None => CLUSTER_POLICY_PERMANENT_ID,
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A PropagationPolicy or a ClusterPropagationPolicy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Which.
    pub name: PolicyName,
    /// Its permanent id; empty until it has one.
    pub id: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// What it says.
    pub spec: PropagationSpec,
}

impl Policy {
    /// From the object; one without a namespace is a ClusterPropagationPolicy.
    pub fn of(metadata: &ObjectMeta, spec: &PropagationSpec) -> Self {
        let name = PolicyName {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let labels = metadata.labels.as_ref();
        let id = labels.and_then(|labels| labels.get(name.id_label()));
        Self {
            id: id.cloned().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            spec: spec.clone(),
            name,
        }
    }
}

/// The controller of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A ResourceBinding, or, without a namespace, a ClusterResourceBinding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Binding {
    /// Namespace; none for that of a cluster-scoped template.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID; empty before it is created.
    pub uid: String,
    /// Version that was seen; empty before it is created.
    pub resource_version: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Labels.
    pub labels: Texts,
    /// Annotations.
    pub annotations: Texts,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Its controller.
    pub owner: Option<Owner>,
    /// The rest.
    pub spec: ResourceBindingSpec,
}

impl Binding {
    /// From the object; one without a namespace is a ClusterResourceBinding.
    pub fn of(metadata: &ObjectMeta, spec: &ResourceBindingSpec) -> Self {
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true));
        Self {
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            owner: owner.map(|owner| Owner {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }),
            spec: spec.clone(),
        }
    }

    /// `ResourceBinding` or `ClusterResourceBinding`.
    pub fn kind(&self) -> &'static str {
        match self.namespace {
            Some(_) => "ResourceBinding",
            None => "ClusterResourceBinding",
        }
    }

    /// The label that has its permanent id.
    pub fn id_label(&self) -> &'static str {
        match self.namespace {
            Some(_) => BINDING_PERMANENT_ID,
            None => CLUSTER_BINDING_PERMANENT_ID,
        }
    }

    /// Its permanent id; empty when it has none yet.
    pub fn id(&self) -> &str {
        self.labels.get(self.id_label()).map_or("", String::as_str)
    }

    /// The whole object, to create it.
    pub fn object(&self) -> Result<Value, serde_json::Error> {
        let mut object = self.body()?;
        object["apiVersion"] = json!("work.karmada.io/v1alpha2");
        object["kind"] = json!(self.kind());
        object["metadata"]["name"] = json!(self.name);
        if let Some(namespace) = &self.namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        Ok(object)
    }

    /// The merge patch that makes this of `seen`; none when nothing differs. It carries the version that was
    /// seen, for it may replace lists that others write too.
    pub fn patch(&self, seen: &Self) -> Result<Option<Value>, serde_json::Error> {
        let Some(mut patch) = difference(&seen.body()?, &self.body()?) else {
            return Ok(None);
        };
        patch["metadata"]["resourceVersion"] = json!(seen.resource_version);
        Ok(Some(patch))
    }

    fn body(&self) -> Result<Value, serde_json::Error> {
        let mut metadata = Map::new();
        metadata.insert("labels".to_owned(), json!(self.labels));
        metadata.insert("annotations".to_owned(), json!(self.annotations));
        metadata.insert("finalizers".to_owned(), json!(self.finalizers));
        if let Some(owner) = &self.owner {
            let owner = json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name,
                "uid": owner.uid, "controller": true, "blockOwnerDeletion": true});
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        let spec = serde_json::to_value(&self.spec)?;
        Ok(json!({ "metadata": metadata, "spec": spec }))
    }
}

/// A binding whose template refers to another template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependent {
    /// Its namespace, which is that of what it refers to.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its permanent id.
    pub id: String,
    /// Where it is.
    pub clusters: Vec<TargetCluster>,
    /// What it does about objects that are not ours.
    pub conflict_resolution: ConflictResolution,
    /// Whether its objects stay in the members.
    pub preserve: bool,
}

impl Dependent {
    /// A binding as one that others follow; none when none can: it has no namespace, no id, is going, or is
    /// not told to take others along.
    pub fn of(binding: &Binding) -> Option<Self> {
        let follows = binding.spec.propagate_deps == Some(true) && !binding.deleting;
        let namespace = binding.namespace.clone()?;
        (follows && !binding.id().is_empty()).then(|| Self {
            namespace,
            name: binding.name.clone(),
            id: binding.id().to_owned(),
            clusters: runs_in(&binding.spec),
            conflict_resolution: binding.spec.conflict_resolution,
            preserve: binding.spec.preserve_resources_on_deletion == Some(true),
        })
    }
}

/// Where a template is: the clusters that it was given, and those that it has not left yet.
fn runs_in(spec: &ResourceBindingSpec) -> Vec<TargetCluster> {
    let tasks = spec.graceful_eviction_tasks.iter();
    let stays = tasks.filter(|it| it.purge_mode != Some(PurgeMode::Directly));
    let leaving = stays.filter(|task| {
        let mut given = spec.clusters.iter();
        given.all(|target| target.name != task.from_cluster)
    });
    let leaving = leaving.map(|task| TargetCluster {
        name: task.from_cluster.clone(),
        replicas: task.replicas,
        ..TargetCluster::default()
    });
    spec.clusters.iter().cloned().chain(leaving).collect()
}

/// An Event to tell once what was decided is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether something is wrong.
    pub warning: bool,
    /// Why, in one CamelCase word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Notice {
    /// Something went as it should.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
        }
    }

    /// Something did not.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            message: message.into(),
        }
    }
}
