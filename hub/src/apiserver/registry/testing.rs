//! A registry over a store of its own, for tests.

use super::Registry;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{
    Admission, AdmissionFuture, Context, FieldValidation, Holding, Operation, Warnings,
};
use crate::apiserver::schema::Schema;
use crate::apiserver::scheme::{LazySchema, Origin, Resource, Scheme, Versions};
use crate::apiserver::store::{Options, Store};
use bytes::Bytes;
use common::time::SystemClock;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Refuses the first updates of a kind, as a store does whose disk is full.
pub(crate) struct Refusing {
    plural: &'static str,
    left: AtomicUsize,
}

impl Refusing {
    pub(crate) fn updates(plural: &'static str, times: usize) -> Arc<dyn Admission> {
        Arc::new(Self {
            plural,
            left: AtomicUsize::new(times),
        })
    }
}

impl Admission for Refusing {
    fn admit<'a>(
        &'a self,
        context: &'a Context,
        operation: Operation,
        _: Option<&'a Value>,
        _: Option<&'a Value>,
    ) -> AdmissionFuture<'a> {
        let counts = operation == Operation::Update && *context.resource.plural == *self.plural;
        let one_less = |left: usize| left.checked_sub(1);
        let refused = counts
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                .is_ok();
        Box::pin(async move {
            if refused {
                return Err(ApiError::internal("the disk is full"));
            }
            Ok(())
        })
    }
}

/// A registry of all built-in kinds, with the namespace `ns`.
pub(crate) struct Rig {
    pub(crate) registry: Registry,
    _dir: TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(Open)).await
    }

    pub(crate) async fn over(admission: Arc<dyn Admission>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), Options::default()).expect("a store");
        let clock = Arc::new(SystemClock);
        let env = common::env::Env::seeded(clock, 1);
        let registry = Registry::new(store, Scheme::new(), env, admission);
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
            .scheme()
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
            holding: Holding::default(),
        }
    }
}

pub(crate) fn json_body(value: &Value) -> crate::apiserver::request::Body {
    crate::apiserver::request::Body {
        media: crate::apiserver::request::MediaType::Json,
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

    pub(crate) async fn update(&self, path: &str, body: Value) -> Result<Value, ApiError> {
        let context = self.context(path);
        let changed = self.registry.update(&context, json_body(&body)).await;
        changed.map(|outcome| value(&outcome.object))
    }

    pub(crate) async fn patch(
        &self,
        path: &str,
        kind: crate::apiserver::request::PatchKind,
        body: Value,
    ) -> Result<super::Outcome, ApiError> {
        let body = Bytes::from(body.to_string());
        self.registry
            .patch(&self.context(path), kind, body, None)
            .await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let object = self.registry.get(&self.context(path), "").await;
        object.map(|object| value(&object))
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Result<Value, ApiError> {
        let options =
            crate::apiserver::request::DeleteOptions::parse(&[], Some(&json_body(&options)))?;
        let deleted = self.registry.delete(&self.context(path), options).await;
        deleted.map(|deleted| value(&deleted.body))
    }
}
