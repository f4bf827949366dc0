//! Every kind of the member, for what no Work that is known names.

use super::Engine;
use crate::execution::manifest::Gvk;
use crate::member::discovery::Resource;
use crate::member::rest::{Call, Error, JSON};
use serde_json::Value;
use std::sync::Arc;

impl Engine {
    /// Every kind that can be listed and patched, in one version each.
    pub(super) async fn all_kinds(&self) -> Result<Vec<Arc<Resource>>, Error> {
        let mut versions = vec!["v1".to_owned()];
        let groups: Value = self.ask_member(Call::get("/apis", JSON)).await?.json()?;
        for group in groups["groups"].as_array().into_iter().flatten() {
            if let Some(version) = group["preferredVersion"]["groupVersion"].as_str() {
                versions.push(version.to_owned());
            }
        }
        let mut kinds = Vec::new();
        for version in versions {
            let uri = if version.contains('/') {
                format!("/apis/{version}")
            } else {
                format!("/api/{version}")
            };
            // An aggregated API that is down hides its kinds, and no others.
            let list: Value = match self.ask_member(Call::get(&uri, JSON)).await {
                Ok(reply) => reply.json()?,
                Err(error) if error.code().is_some() => continue,
                Err(error) => return Err(error),
            };
            for one in list["resources"].as_array().into_iter().flatten() {
                let name = one["name"].as_str().unwrap_or_default();
                let can = |verb: &str| {
                    one["verbs"]
                        .as_array()
                        .is_some_and(|verbs| verbs.iter().any(|v| v == verb))
                };
                if name.contains('/') || !can("list") || !can("patch") {
                    continue;
                }
                if let Some(gvk) = Gvk::new(&version, one["kind"].as_str().unwrap_or_default()) {
                    kinds.push(Arc::new(Resource {
                        gvk,
                        plural: name.to_owned(),
                        namespaced: one["namespaced"].as_bool().unwrap_or_default(),
                    }));
                }
            }
        }
        Ok(kinds)
    }
}
