//! Writes and deletes Works, many at once: those of one binding up to a limit, and those of all in the order in which
//! they come.

#[cfg(test)]
mod tests;

use super::{Sync, lock};
use crate::controller::binding::facts::Facts;
use crate::controller::binding::render::{RenderError, Renderer};
use crate::controller::binding::write;
use crate::controller::bindings::{Error, version_of};
use crate::world::ObjectName;
use common::api::binding::TargetCluster;
use common::api::work::Work;
use common::errors::chain;
use common::rest::{self, Call, MERGE_PATCH};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

const API: &str = "/apis/work.karmada.io/v1alpha1";
/// Works of one binding that are written at once.
pub(super) const AT_ONCE: usize = 16;
/// The same of all bindings.
pub(super) const IN_ALL: usize = 64;

/// Why a Work is not as it is to be.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing can be made of the template, its overrides and the cluster, as long as these are what they are.
    Lasting(String),
    /// It may well be made when it is tried again.
    Passing(String),
}

/// Of a write of a Work. What an API server calls invalid or too large is so in every try: of each Work that a template
/// has anywhere, and at rest.
fn refused(verb: &str, name: &ObjectName, error: &rest::Error) -> Fault {
    let text = format!("failed to {verb} Work {name}: {}", chain(error));
    match error.code() {
        Some(400 | 413 | 422) => Fault::Lasting(text),
        _ => Fault::Passing(text),
    }
}

impl Fault {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Lasting(text) | Self::Passing(text) => text,
        }
    }
}

impl Sync {
    /// One Work; the version that was written, if there was anything to write.
    pub(super) async fn write(
        &self,
        target: &TargetCluster,
        renderer: &Renderer<'_>,
        name: ObjectName,
        of: &ObjectName,
    ) -> Result<Option<u64>, Fault> {
        // None is ever taken away.
        let _turn = self.turns.acquire().await;
        let cluster = ObjectName::new(None, &target.name);
        let held = self
            .world
            .clusters
            .get(&cluster)
            .and_then(|held| held.record);
        let Some(cluster) = held.as_ref().and_then(|it| it.placing.as_ref()) else {
            let text = format!("there is no Cluster {:?}", target.name);
            return Err(Fault::Passing(text));
        };
        let facts = Facts::of(cluster);
        let existing = self.world.works.get(&name).and_then(|held| held.record);
        if let Some(existing) = &existing {
            // A namespace that was brought along for what is in it.
            let is_taken_over = existing.binding.is_none() && renderer.brings_namespace();
            if !is_taken_over && existing.binding.as_ref() != Some(of) {
                let text = format!(
                    "Work {name} is not of this binding; delete it, or rename the template"
                );
                return Err(Fault::Passing(text));
            }
            if existing.deleting {
                // Its end wakes the binding that it names, and no other.
                return match is_taken_over {
                    true => Err(Fault::Passing(format!("Work {name} is being deleted"))),
                    false => Ok(None),
                };
            }
        } else if cluster.leaving {
            // It would be deleted with the others, as long as there are any.
            let text = format!("Cluster {:?} is being deleted", target.name);
            return Err(Fault::Passing(text));
        }
        let id = existing.as_ref().and_then(|it| it.id.as_deref());
        let work = renderer.render(target, &facts.borrowed(), id);
        let work = work.map_err(|error: RenderError| Fault::Lasting(chain(&error).to_string()))?;
        let failed = |verb: &str, why: String| {
            Fault::Passing(format!("failed to {verb} Work {name}: {why}"))
        };
        let content = write::content(&work).map_err(|error| failed("write", error.to_string()))?;
        lock(&self.written).insert(name.clone(), content);
        let namespace = &name.namespace;
        let collection = format!("{API}/namespaces/{namespace}/works");
        let reply = match &existing {
            None => {
                let body = object_of(&work).map_err(|error| failed("write", error.to_string()))?;
                let sent = Call::post(&collection, &body)
                    .metadata_only()
                    .send(&self.client);
                sent.await
                    .map_err(|error| refused("create", &name, &error))?
            }
            Some(existing) => {
                let patch = write::patch(existing.content, &work);
                let Some(patch) = patch.map_err(|error| failed("write", error.to_string()))? else {
                    return Ok(None);
                };
                let uri = format!("{collection}/{}", name.name);
                let call = Call::patch(&uri, MERGE_PATCH, &patch).metadata_only();
                call.send(&self.client)
                    .await
                    .map_err(|error| refused("update", &name, &error))?
            }
        };
        // Where versions are no numbers, nothing can be waited for.
        Ok(Some(version_of(&reply).unwrap_or(0)))
    }

    /// Deletes Works; with `preserve` their objects stay in the members.
    pub(super) async fn delete_all(
        &self,
        names: Vec<ObjectName>,
        preserve: bool,
    ) -> Result<(), Error> {
        let mut deletions = Vec::with_capacity(names.len());
        for name in names {
            deletions.push(self.delete(name, preserve).boxed());
        }
        let deletions = futures::stream::iter(deletions).buffer_unordered(AT_ONCE);
        let deleted: Vec<Result<(), Error>> = deletions.collect().await;
        deleted.into_iter().collect()
    }

    /// Deletes a Work, unless it is only this binding that does not need it.
    async fn delete(&self, name: ObjectName, preserve: bool) -> Result<(), Error> {
        let held = self.world.works.get(&name).and_then(|held| held.record);
        let is_kept = held
            .as_ref()
            .is_some_and(|work| self.spaces.keep(&name, work));
        let uri = format!("{API}/namespaces/{}/works/{}", name.namespace, name.name);
        if is_kept {
            let call = Call::patch(&uri, MERGE_PATCH, &write::free());
            return self.send("update", &name, call).await.map(drop);
        }
        // The agent goes by what the Work itself says when it goes; one that could not be rendered since its policy
        // changed does not say it yet.
        let says_so = held.is_some_and(|work| work.preserve);
        if preserve && !says_so {
            let call = Call::patch(&uri, MERGE_PATCH, &write::preserved());
            if !self.send("update", &name, call).await? {
                return Ok(());
            }
        }
        let call = Call::delete(&uri, &json!({}));
        self.send("delete", &name, call).await.map(drop)
    }

    /// Sends a request about a Work; whether it was there.
    async fn send(
        &self,
        verb: &'static str,
        name: &ObjectName,
        call: Call<'_>,
    ) -> Result<bool, Error> {
        match call.metadata_only().send(&self.client).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(Error::request(verb, "Work", &name.to_string(), error)),
        }
    }
}

/// A Work as it is created.
fn object_of(work: &Work) -> Result<Value, serde_json::Error> {
    let mut object = serde_json::to_value(work)?;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    Ok(object)
}
