//! A registry over a store of its own, for tests.

use super::{Admission, AdmissionFuture, Context, FieldValidation, Operation, Registry, Warnings};
use crate::apiserver::caller::Caller;
use crate::apiserver::catalogue::{Catalogue, LazySchema, Origin, Resource, Versions};
use crate::apiserver::schema::Schema;
use crate::apiserver::store::{Options, Store};
use bytes::Bytes;
use common::time::SystemClock;
use serde_json::Value;
use std::sync::Arc;
use tempfile::TempDir;

/// A kind with nothing in it.
pub(crate) fn bare() -> Resource {
    Resource {
        group: "".into(),
        version: "v1".into(),
        kind: "".into(),
        list_kind: "".into(),
        plural: "".into(),
        singular: "".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        schema: LazySchema::new(Box::new(Schema::default)),
        versions: Versions::default(),
        origin: Origin::BuiltIn,
        columns: Vec::new(),
        storage_key: "".into(),
        storage_version: "v1".into(),
        strategic: true,
    }
}

struct Open;

impl Admission for Open {
    fn admit<'a>(
        &'a self,
        _: &'a Context,
        _: Operation,
        _: Option<&'a Value>,
        _: Option<&'a Value>,
    ) -> AdmissionFuture<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// A registry of all built-in kinds, with the namespace `ns`.
pub(crate) struct Rig {
    pub(crate) registry: Registry,
    _dir: TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("a store");
        let clock = Arc::new(SystemClock);
        let registry = Registry::new(store, Catalogue::new(), clock, Arc::new(Open));
        let rig = Self {
            registry,
            _dir: dir,
        };
        let context = rig.context("v1/namespaces");
        let body = serde_json::json!({"metadata": {"name": "ns"}});
        let made = rig.registry.create(&context, json_body(&body)).await;
        made.expect("a namespace");
        rig
    }

    /// `v1/namespaces/x`, `v1/ns:configmaps/a/status`, `apps/v1/ns:deployments`.
    pub(crate) fn context(&self, path: &str) -> Context {
        let mut parts: Vec<&str> = path.split('/').collect();
        let group = if parts.first() == Some(&"v1") {
            ""
        } else {
            parts.remove(0)
        };
        let version = parts.remove(0);
        let place = parts.remove(0);
        let (namespace, plural) = place.split_once(':').unwrap_or(("", place));
        let resource = self
            .registry
            .catalogue()
            .resource(group, version, plural)
            .unwrap_or_else(|| panic!("{path} is a kind"));
        Context {
            caller: Arc::new(Caller::system()),
            resource,
            namespace: namespace.to_owned(),
            name: parts.first().copied().unwrap_or_default().to_owned(),
            subresource: parts.get(1).copied().unwrap_or_default().to_owned(),
            dry_run: false,
            field_manager: "test".to_owned(),
            field_validation: FieldValidation::Warn,
            warnings: Warnings::default(),
        }
    }
}

pub(crate) fn json_body(value: &Value) -> super::Body {
    super::Body {
        media: super::MediaType::Json,
        bytes: Bytes::from(value.to_string()),
    }
}

pub(crate) fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

impl Rig {
    pub(crate) async fn create(&self, path: &str, body: Value) -> Value {
        let context = self.context(path);
        let made = self.registry.create(&context, json_body(&body)).await;
        value(&made.expect("is made").object)
    }

    pub(crate) async fn update(
        &self,
        path: &str,
        body: Value,
    ) -> Result<Value, crate::apiserver::error::ApiError> {
        let context = self.context(path);
        let changed = self.registry.update(&context, json_body(&body)).await;
        changed.map(|outcome| value(&outcome.object))
    }

    pub(crate) async fn patch(
        &self,
        path: &str,
        kind: super::PatchKind,
        body: Value,
    ) -> Result<super::Outcome, crate::apiserver::error::ApiError> {
        let body = Bytes::from(body.to_string());
        self.registry
            .patch(&self.context(path), kind, body, None)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, crate::apiserver::error::ApiError> {
        let object = self.registry.get(&self.context(path), "").await;
        object.map(|object| value(&object))
    }

    pub(crate) async fn delete(
        &self,
        path: &str,
        options: Value,
    ) -> Result<Value, crate::apiserver::error::ApiError> {
        let options = super::DeleteOptions::parse(&[], Some(&json_body(&options)))?;
        let deleted = self.registry.delete(&self.context(path), options).await;
        deleted.map(|deleted| value(&deleted.body))
    }
}
