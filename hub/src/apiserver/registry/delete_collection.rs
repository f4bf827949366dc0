//! DELETE of a collection: of all that is selected, one by one.

use super::{ListResult, Registry};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Context, DeleteOptions, ListOptions};
use std::future::ready;

impl Registry {
    /// The end of all selected objects, which are the answer.
    pub async fn delete_collection(
        &self,
        context: &Context,
        options: DeleteOptions,
        selected: &ListOptions,
    ) -> Result<ListResult, ApiError> {
        let (list, ()) = self.page(context, selected, ready(())).await?;
        for stored in &list.objects {
            let mut one = context.clone();
            stored.name().clone_into(&mut one.name);
            stored.namespace().clone_into(&mut one.namespace);
            match self.delete(&one, options.clone()).await {
                Err(error) if error.reason != "NotFound" => return Err(error),
                _ => {}
            }
        }
        let resource = &context.resource;
        Ok(ListResult {
            resource_version: list.revision,
            continue_token: String::new(),
            remaining: None,
            items: list
                .objects
                .iter()
                .map(|stored| self.shown(resource, stored))
                .collect(),
        })
    }
}
