//! Who manages which fields: what `managed` needs to know of a request.

use super::Registry;
use crate::apiserver::managed::{self, Manager};
use crate::apiserver::request::Context;
use serde_json::Value;

/// Who writes, in which version and through which subresource.
pub(super) fn manager(registry: &Registry, context: &Context) -> Manager {
    let resource = &context.resource;
    let manager = Manager::new(resource, &context.field_manager, &context.subresource);
    if resource.is_custom() {
        return manager;
    }
    let kinds = registry.inner.scheme.snapshot();
    let all = kinds.all().iter();
    let versions = all.filter(|one| one.storage_key == resource.storage_key);
    manager.among(versions.cloned().collect())
}

/// All fields of a new object are its maker's.
pub(super) fn created(registry: &Registry, context: &Context, object: &mut Value) {
    let now = registry.inner.env.clock.now();
    managed::track(
        None,
        object,
        &context.resource.schema,
        &manager(registry, context),
        now,
    );
}

/// Fields that differ are the writer's.
pub(super) fn updated(registry: &Registry, context: &Context, old: &Value, object: &mut Value) {
    let now = registry.inner.env.clock.now();
    let schema = &context.resource.schema;
    managed::track(Some(old), object, schema, &manager(registry, context), now);
}
