//! GET of one object.

use super::{Registry, fresh, scale};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::Context;
use bytes::Bytes;

impl Registry {
    /// One object, or its scale; `resource_version` is the parameter of the query, often empty.
    pub async fn get(&self, context: &Context, resource_version: &str) -> Result<Bytes, ApiError> {
        context.note_deprecation();
        if let Some(revision) = fresh::parse(resource_version)? {
            self.not_older_than(revision).await?;
        }
        let stored = self.stored(context).ok_or_else(|| {
            ApiError::not_found(&context.resource.group_resource(), &context.name)
        })?;
        if context.subresource == "scale" {
            return scale::get(self, context, &stored);
        }
        Ok(self.shown(&context.resource, &stored))
    }
}
