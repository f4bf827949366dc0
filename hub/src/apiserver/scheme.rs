//! Every kind that is served: the built-in ones and those of established
//! CustomResourceDefinitions.

mod built_in;
mod convert;
mod custom;
mod documents;
mod scaled;

pub(super) use convert::event_to_core;
pub use documents::{Document, Documents};

use super::error::{ApiError, GroupKind, GroupResource};
use super::schema::{Schema, Verdict, kinds};
use crate::go::quote;
use bytes::Bytes;
use common::signal;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

/// A schema that is read when it is first needed: most custom kinds of a hub are never written.
pub type LazySchema = LazyLock<Schema, Box<dyn FnOnce() -> Schema + Send>>;

/// Versions by name, each with its schema; those of one CRD share them.
pub type Versions = Arc<[(Arc<str>, LazySchema)]>;

/// Where a kind comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Part of Kubernetes.
    BuiltIn,
    /// Of a CustomResourceDefinition.
    Crd(Arc<Custom>),
}

/// The schema of a CustomResourceDefinition as it was given, compressed. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed(Bytes);

impl Packed {
    fn new(openapi: &Value) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(openapi.to_string().as_bytes());
        // Writing to memory cannot fail.
        let packed = written.and_then(|()| encoder.finish());
        Self(packed.map(Bytes::from).unwrap_or_default())
    }

    /// `openAPIV3Schema` as it was given.
    pub fn unpack(&self) -> Value {
        let mut text = Vec::new();
        let read = DeflateDecoder::new(self.0.as_ref()).read_to_end(&mut text);
        // It was written above.
        read.ok()
            .and_then(|_| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }
}

/// What else a CustomResourceDefinition says about one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custom {
    /// Name of the CRD.
    pub crd: Arc<str>,
    /// The schema as it was given; OpenAPI shows it.
    pub openapi: Packed,
    /// What the `scale` subresource stands for.
    pub scale: Option<Scale>,
    /// Fields that lists can select by, beside name and namespace: JSON paths.
    pub selectable: Vec<Arc<str>>,
    /// A warning that every answer carries, if the version is deprecated.
    pub deprecation: Option<Arc<str>>,
    /// Whether its CRD is being deleted: nothing new is taken.
    pub ending: bool,
}

/// The package in which the real server keeps the types of a built-in group; messages name it.
pub(crate) fn go_package(group: &str) -> &str {
    match group.split('.').next() {
        // Events of both groups are of one type.
        None | Some("" | "events") => "core",
        Some(first) => first,
    }
}

/// Where a custom resource keeps what `scale` shows: JSON paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Replicas that are wanted.
    pub spec_replicas: Arc<str>,
    /// Replicas that there are.
    pub status_replicas: Arc<str>,
    /// The selector of its pods, as text.
    pub label_selector: Option<Arc<str>>,
}

/// Part of an object that is written by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, `token`, …
    pub name: Arc<str>,
    /// Group, version and kind of its body.
    pub kind: (Arc<str>, Arc<str>, Arc<str>),
    /// What can be done with it.
    pub verbs: Vec<Arc<str>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub name: Arc<str>,
    /// `string`, `integer`, `date`, …
    pub r#type: Arc<str>,
    /// `name` for the name of the object.
    pub format: Arc<str>,
    /// For people.
    pub description: Arc<str>,
    /// Columns above 0 are shown by `-o wide`.
    pub priority: i32,
    /// Where its value stands, for kinds of CustomResourceDefinitions.
    pub json_path: Option<Arc<str>>,
}

/// One version of one kind.
#[derive(Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// `v1`, `v1beta1`, …
    pub version: Arc<str>,
    /// Its name in bodies: `Deployment`.
    pub kind: Arc<str>,
    /// Kind of its lists.
    pub list_kind: Arc<str>,
    /// Its name in paths: `deployments`.
    pub plural: Arc<str>,
    /// `deployment`.
    pub singular: Arc<str>,
    /// What people type instead: `deploy`.
    pub short_names: Vec<Arc<str>>,
    /// `all`, …
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<Arc<str>>,
    /// Parts of its objects that are written by themselves.
    pub subresources: Vec<Subresource>,
    /// What its objects look like in this version.
    pub schema: LazySchema,
    /// The schemas of all versions of its CustomResourceDefinition, served or not.
    pub versions: Versions,
    /// Where it comes from.
    pub origin: Origin,
    /// The columns of its tables.
    pub columns: Vec<Column>,
    /// What its objects are stored under, whatever the version: `group/plural`.
    pub storage_key: Arc<str>,
    /// The version its objects are stored in.
    pub storage_version: Arc<str>,
    /// Whether strategic merge patches are understood.
    pub strategic: bool,
}

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// What messages of the real server call the type of its objects, or of a list of them.
    pub fn go_type(&self, list: bool) -> String {
        let (package, kind) = match (self.is_custom(), list) {
            (true, _) => ("unstructured", "Unstructured"),
            (false, false) => (go_package(&self.group), self.kind.as_ref()),
            (false, true) => (go_package(&self.group), self.list_kind.as_ref()),
        };
        let end = if self.is_custom() && list { "List" } else { "" };
        format!("*{package}.{kind}{end}")
    }

    /// Its group and plural name.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.as_ref(), self.plural.as_ref())
    }

    /// Its group and kind.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(self.group.as_ref(), self.kind.as_ref())
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|sub| sub.name.as_ref() == name)
    }

    /// Whether objects have a status that is written by itself.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether it is of a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        self.origin != Origin::BuiltIn
    }

    /// What its CustomResourceDefinition says, if it is of one.
    pub fn custom(&self) -> Option<&Custom> {
        match &self.origin {
            Origin::BuiltIn => None,
            Origin::Crd(custom) => Some(custom),
        }
    }

    /// Whether objects are held against rules that can cost much more than their length says.
    pub fn has_rules(&self) -> bool {
        self.is_custom() && self.schema.has_rules()
    }

    /// Reads an object as this kind: drops unknown fields and returns their paths, refuses values of
    /// the wrong type as a typed server would, and puts the rest into the form it is kept in.
    /// Defaults are not applied.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, ApiError> {
        let unknown = self.schema.prune(object);
        self.schema.coerce(object).map_err(|why| {
            ApiError::bad_request(format!(
                "{} in version {} cannot be handled as a {}: {why}",
                self.kind,
                quote(&self.version),
                self.kind
            ))
        })?;
        Ok(unknown)
    }

    /// Puts defaults where nothing is: those of the schema and those of the kind.
    pub fn apply_defaults(&self, object: &mut Value) {
        if self.is_custom() {
            self.schema.apply_defaults(object);
        } else {
            kinds::apply_defaults(object, &self.schema);
        }
    }

    /// What is wrong with an object, apart from its own metadata; `old` is what it replaces.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Verdict {
        if let Some(custom) = self.custom() {
            let mut verdict = self.schema.validate(object, old);
            let scale = custom.scale.iter();
            let told = scale.flat_map(|scale| scaled::check(scale, object, true));
            verdict.errors.extend(told);
            return verdict;
        }
        let errors = kinds::validate(&self.group, &self.version, &self.kind, object, old);
        Verdict {
            errors,
            ..Verdict::default()
        }
    }

    /// What is wrong with an object whose status changed.
    pub fn validate_status(&self, object: &Value, old: &Value) -> Verdict {
        if let Some(custom) = self.custom() {
            let mut verdict = self.schema.validate_status(object, old);
            let scale = custom.scale.iter();
            let told = scale.flat_map(|scale| scaled::check(scale, object, false));
            verdict.errors.extend(told);
            return verdict;
        }
        Verdict {
            errors: kinds::validate_status(&self.group, &self.kind, object, old),
            ..Verdict::default()
        }
    }

    /// Rewrites an object of `self` as `to`, another version of the same kind.
    pub fn convert(&self, object: &mut Value, to: &Self) {
        convert::convert(self, object, to);
    }
}

/// All kinds at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    resources: Vec<Arc<Resource>>,
    built_in: usize,
    /// OpenAPI documents that were made of these kinds.
    documents: Documents,
    /// Moves with every change; an ETag may be made of it.
    pub revision: u64,
}

impl Snapshot {
    /// OpenAPI documents that were made of these kinds.
    pub(super) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// All kinds, groups in the order of discovery, the preferred version of a group first.
    pub fn all(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// A kind by its plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let mut all = self.resources.iter();
        all.find(|r| &*r.group == group && &*r.version == version && &*r.plural == plural)
            .cloned()
    }

    /// A kind by the name in bodies.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        let mut all = self.resources.iter();
        all.find(|r| &*r.group == group && &*r.version == version && &*r.kind == kind)
            .cloned()
    }
}

/// The kinds of one CustomResourceDefinition.
#[derive(Debug, Clone)]
pub struct Served {
    /// Of what they were made.
    mark: u64,
    kinds: Vec<Arc<Resource>>,
}

/// Every kind that is served, now; clones share one content.
#[derive(Debug, Clone)]
pub struct Scheme {
    now: Arc<RwLock<Arc<Snapshot>>>,
    /// The revision of `now`.
    changed: signal::Sender<u64>,
    /// The CRDs that are served.
    served: Arc<Mutex<Vec<Served>>>,
}

impl Default for Scheme {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheme {
    /// The built-in kinds.
    pub fn new() -> Self {
        let resources = built_in::resources();
        let now = Snapshot {
            built_in: resources.len(),
            resources,
            documents: Documents::default(),
            revision: 1,
        };
        Self {
            now: Arc::new(RwLock::new(Arc::new(now))),
            changed: signal::Sender::new(1),
            served: Arc::default(),
        }
    }

    /// All kinds at this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Tells of every change; a watch of a kind that changed ends.
    pub fn changes(&self) -> signal::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A kind by its plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.snapshot().resource(group, version, plural)
    }

    /// All kinds, groups in the order of discovery.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        self.snapshot().all().to_vec()
    }

    /// What a CustomResourceDefinition serves. A kind that did not change stays the same one: its
    /// watches go on.
    pub fn read(&self, crd: &Value) -> Served {
        let mark = custom::fingerprint(crd);
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let known = served.iter().find(|known| known.mark == mark).cloned();
        drop(served);
        known.unwrap_or_else(|| Served {
            mark,
            kinds: custom::resources(crd).into_iter().map(Arc::new).collect(),
        })
    }

    /// [`Self::serve`] of CRDs that are still to be read.
    #[cfg(test)]
    pub fn set_crds<'a>(&self, crds: impl IntoIterator<Item = &'a Value>) {
        let all: Vec<Served> = crds.into_iter().map(|one| self.read(one)).collect();
        self.serve(all);
    }

    /// Serves exactly the kinds of these CustomResourceDefinitions beside the built-in ones; those
    /// that are not Established (or are being deleted and no longer served) are left out.
    pub fn serve(&self, crds: Vec<Served>) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(a, b): (&Served, &Served)| a.mark == b.mark;
        if served.len() == crds.len() && served.iter().zip(&crds).all(same) {
            return;
        }
        let custom = crds.iter().flat_map(|one| one.kinds.iter().cloned());
        let custom = custom::in_order(custom.collect());
        *served = crds;
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let mut resources: Vec<_> = now.resources.iter().take(now.built_in).cloned().collect();
        resources.extend(custom);
        *now = Arc::new(Snapshot {
            built_in: now.built_in,
            resources,
            documents: Documents::default(),
            revision: now.revision + 1,
        });
        self.changed.send_replace(now.revision);
    }
}

#[cfg(test)]
#[path = "scheme/tests.rs"]
mod tests;
