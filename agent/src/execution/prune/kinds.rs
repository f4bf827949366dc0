//! How the member serves the kinds of what is to go.

use super::Pruner;
use crate::execution::manifest::Target;
use crate::execution::state::ObjectKey;
use common::errors::chain;
use common::gvk::Gvk;
use common::mapper::Resource;
use common::rest::Error;
use std::collections::HashMap;
use std::sync::Arc;

/// What the member has said of kinds while the objects of one Work are taken out of it. It is not asked again for each
/// object of a kind that is gone: of those nothing is remembered longer, for they may come back.
#[derive(Debug, Default)]
pub struct Answers(HashMap<Gvk, Option<Arc<Resource>>>);

impl Answers {
    /// Whether the member has said that it serves a kind in no version: then it has no objects of it.
    pub fn lack(&self, gvk: &Gvk) -> bool {
        matches!(self.0.get(gvk), Some(None))
    }
}

impl Pruner {
    /// The object that a target means; has its kind watched.
    pub async fn key_of(&self, target: &Target, answers: &mut Answers) -> Arc<ObjectKey> {
        if let Err(error) = self.served_once(&target.gvk, answers).await {
            // Until the member answers the manifest alone says where it lies; nothing is done by that.
            tracing::debug!(%target, error = %chain(&error), "not known how its kind is served");
        }
        self.state.lock().key_of(target, &target.namespace)
    }

    /// How a kind is served, as the member said the first time.
    pub(super) async fn served_once(
        &self,
        gvk: &Gvk,
        answers: &mut Answers,
    ) -> Result<Option<Arc<Resource>>, Error> {
        if let Some(known) = answers.0.get(gvk) {
            return Ok(known.clone());
        }
        let resource = self.served(gvk).await?;
        answers.0.insert(gvk.clone(), resource.clone());
        Ok(resource)
    }

    /// How a kind is served, in whatever version. Takes note where its objects lie, and has it watched.
    pub(super) async fn served(&self, gvk: &Gvk) -> Result<Option<Arc<Resource>>, Error> {
        let resource = self.member.resolve_any(gvk).await?;
        if let Some(resource) = &resource {
            self.member.kinds.ensure(resource);
            let mut state = self.state.lock();
            state.served(&resource.gvk);
            state.scoped(&resource.gvk, resource.namespaced);
        }
        Ok(resource)
    }
}
