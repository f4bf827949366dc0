//! Who manages which fields: what `managed` needs to know of a request.

use super::{Context, Registry};
use crate::apiserver::managed::{self, Manager};
use serde_json::Value;

/// Who writes, in which version and through which subresource.
pub(super) fn manager(context: &Context) -> Manager {
    Manager::new(
        &context.resource,
        &context.field_manager,
        &context.subresource,
    )
}

/// All fields of a new object are its maker's.
pub(super) fn created(registry: &Registry, context: &Context, object: &mut Value) {
    let now = registry.inner.clock.now();
    managed::track(
        None,
        object,
        &context.resource.schema,
        &manager(context),
        now,
    );
}

/// Fields that differ are the writer's.
pub(super) fn updated(registry: &Registry, context: &Context, old: &Value, object: &mut Value) {
    let now = registry.inner.clock.now();
    let schema = &context.resource.schema;
    managed::track(Some(old), object, schema, &manager(context), now);
}
