//! DELETE of a collection: of all that is selected, one by one.

use super::list::Page;
use super::{ListResult, Registry};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Context, DeleteOptions, ListOptions};
use crate::apiserver::store::Stored;

impl Registry {
    /// The end of all selected objects, which are the answer.
    pub async fn delete_collection(
        &self,
        context: &Context,
        options: DeleteOptions,
        selected: &ListOptions,
    ) -> Result<ListResult, ApiError> {
        let listing = self.listing(context, selected).await?;
        let page = self.page(&listing);
        for stored in &page.objects {
            self.delete_selected(context, &options, stored).await?;
        }
        Ok(self.deleted(context, &page))
    }

    /// The end of one of them, unless somebody else was faster.
    pub(crate) async fn delete_selected(
        &self,
        context: &Context,
        options: &DeleteOptions,
        stored: &Stored,
    ) -> Result<(), ApiError> {
        let one = Context {
            name: stored.name().to_owned(),
            namespace: stored.namespace().to_owned(),
            ..context.clone()
        };
        match self.delete(&one, options.clone()).await {
            Err(error) if error.reason != "NotFound" => Err(error),
            _ => Ok(()),
        }
    }

    /// The answer when all of them were.
    pub(crate) fn deleted(&self, context: &Context, page: &Page) -> ListResult {
        let resource = &context.resource;
        ListResult {
            resource_version: page.revision,
            continue_token: String::new(),
            remaining: None,
            items: page
                .objects
                .iter()
                .map(|stored| self.shown(resource, stored))
                .collect(),
        }
    }
}
