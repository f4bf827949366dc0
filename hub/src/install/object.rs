//! One object that `init` wants on the hub: what it is, and where it is served.

use common::labels::{MANAGED_BY, PART_OF, PART_OF_VALUE};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Value of [`MANAGED_BY`] on everything that `init` makes.
pub const MANAGED_BY_VALUE: &str = "towline-init";

/// Kind, namespace and name of an object, as shown to people and used as a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: String,
    /// Namespace, if the kind has one.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// A desired object. Clones share it, and it is kept as text: definitions of kinds are large.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    text: Arc<str>,
    key: ObjectKey,
    resource: ApiResource,
}

/// What every object has.
#[derive(Deserialize)]
struct Head {
    #[serde(flatten)]
    types: TypeMeta,
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

impl Desired {
    /// Wraps a whole object and labels it as ours.
    pub fn new(mut value: Value) -> Self {
        let labels = &mut value["metadata"]["labels"];
        labels[PART_OF] = json!(PART_OF_VALUE);
        labels[MANAGED_BY] = json!(MANAGED_BY_VALUE);
        Self::of_text(value.to_string().into())
    }

    /// One that was made before, as it was encoded.
    ///
    /// It was built in this crate, so what every object has is an invariant and no error.
    pub(super) fn of_text(text: Arc<str>) -> Self {
        let head: Head = serde_json::from_str(&text)
            .expect("invariant: builders write apiVersion, kind and a name");
        let kind = GroupVersionKind::try_from(head.types)
            .expect("invariant: builders write apiVersion and kind");
        Self {
            key: ObjectKey {
                kind: kind.kind.clone(),
                namespace: head.metadata.namespace,
                name: head.metadata.name,
            },
            resource: ApiResource::from_gvk(&kind),
            text,
        }
    }

    /// The object as JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("invariant: it was encoded here")
    }

    /// Kind, namespace and name.
    pub fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    /// Where objects of this kind are served.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// A handle on the object's kind, in its namespace.
    pub fn api(&self, client: Client) -> Api<DynamicObject> {
        match &self.key.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// The objects as one stream of YAML documents.
pub fn yaml(desired: &[Desired]) -> String {
    let documents = desired
        .iter()
        .map(|desired| serde_yaml::to_string(&desired.value()).expect("invariant: JSON is YAML"));
    documents
        .map(|document| format!("---\n{document}"))
        .collect()
}
