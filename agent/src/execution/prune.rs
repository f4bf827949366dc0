//! Taking objects out of the member, if they are ours to take and nothing brakes it.

mod foreign;
pub mod orphans;
mod release;
#[cfg(test)]
mod tests;
mod unmark;

use super::Scope;
use super::brakes;
use super::events::{Events, Kind};
use super::manifest::Target;
use super::persist::Persister;
use super::state::{ObjectKey, Shared};
use super::wire::LiveMeta;
use crate::member::api::Member;
use common::errors::chain;
use common::mapper::Resource;
use common::queue::Queue;
use common::rest::{Call, Error, METADATA_ONLY};
use serde_json::{Value, json};
use std::sync::Arc;

/// What became of an object that should go.
#[derive(Debug)]
pub enum Gone {
    /// It is not there, or not ours to delete.
    Yes,
    /// Someone else must act first.
    Waits(String),
}

/// Takes objects out of the member.
pub struct Pruner {
    pub(super) scope: Scope,
    pub(super) member: Arc<Member>,
    pub(super) state: Shared,
    pub(super) queue: Queue<Arc<str>>,
    pub(super) persister: Arc<Persister>,
    pub(super) events: Arc<Events>,
}

impl Pruner {
    /// The object that a target means; has its kind watched.
    pub async fn key_of(&self, target: &Target) -> Arc<ObjectKey> {
        let namespace = self
            .member
            .namespace_of(&target.gvk, &target.namespace)
            .await;
        self.state.lock().key_of(target, namespace)
    }

    /// Deletes what left a Work. Returns whether something still waits.
    pub async fn prune(&self, work: &Arc<str>, leaving: Vec<Target>) -> bool {
        let mut waits = false;
        for target in leaving {
            let key = self.key_of(&target).await;
            match self.delete_object(work, &key, false).await {
                Ok(Gone::Yes) => {
                    let mut state = self.state.lock();
                    state.disclaim(work, &key);
                    if let Some(record) = state.works.get_mut(work) {
                        record.leaving.retain(|left| *left != target);
                    }
                    drop(state);
                    self.persister.touch(work);
                }
                Ok(Gone::Waits(_)) => waits = true,
                Err(error) => {
                    tracing::warn!(work = %work, error = %chain(&error), "failed to prune");
                    waits = true;
                }
            }
        }
        waits
    }

    /// Deletes an object if it is labelled ours for this Work, and says whether it is gone.
    pub async fn delete_object(
        &self,
        work: &str,
        key: &Arc<ObjectKey>,
        foreground: bool,
    ) -> Result<Gone, Error> {
        let Some((resource, uri)) = self.locate(key).await? else {
            // A kind that is not served has no objects.
            return Ok(Gone::Yes);
        };
        let text = format!("{} {}/{}", resource.gvk.kind, key.namespace, key.name);
        let known = {
            let state = self.state.lock();
            state.live(key).map(|live| {
                let marked = live.work.as_deref() == Some(work);
                let ours = marked || state.has_claim(work, key, &live.uid);
                (live.uid.to_string(), ours, live.deleting.clone(), live.keep)
            })
        };
        let rule = self
            .member
            .reserved(&resource.gvk, &key.namespace, &key.name);
        let (uid, ours, deleting, keep) = match known {
            Some((uid, ours, None, keep)) => (uid, ours, None, keep),
            // Waiting for others: look, the watch may be behind.
            _ => match self.read_meta(&uri).await {
                // Nothing is done to it in any case, and the agent need not have the right to look.
                Err(_) if rule.is_some() => return Ok(Gone::Yes),
                // Nor what the agent never had the right to apply.
                Err(error)
                    if error.code() == Some(403) && !self.state.lock().has_claimed(work, key) =>
                {
                    return Ok(Gone::Yes);
                }
                Err(error) => return Err(error),
                Ok(Some(meta)) => {
                    // Its label may be gone: what the Work has applied is its own all the same.
                    let ours = meta.belongs_to(&self.scope.namespace, work)
                        || self.state.lock().has_claim(work, key, &meta.uid);
                    (
                        meta.uid,
                        ours,
                        meta.deleting.then(|| meta.finalizers.into_boxed_slice()),
                        meta.keep,
                    )
                }
                Ok(None) => {
                    self.state.lock().set_live(key, None);
                    return Ok(Gone::Yes);
                }
            },
        };
        if !ours {
            return Ok(Gone::Yes);
        }
        if let Some(rule) = rule {
            self.note_kept(work, &text, &rule.to_string());
            return Ok(Gone::Yes);
        }
        if let Some(fate) = self.hand_over(work, key, &uid, &text) {
            return Ok(fate);
        }
        if let Some(reason) = self.brake(&resource, key, &uri, keep).await? {
            self.note_kept(work, &text, &reason);
            self.keep_object(work, key).await?;
            return Ok(Gone::Yes);
        }
        if let Some(finalizers) = deleting {
            return Ok(Gone::Waits(blocked(&text, &finalizers)));
        }
        let policy = if foreground {
            "Foreground"
        } else {
            "Background"
        };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": policy, "preconditions": {"uid": uid}});
        match self.member.ask(Call::delete(&uri, &options)).await {
            Ok(reply) => {
                let answer: Value = reply.json()?;
                if answer["kind"] == "Status" {
                    self.state.lock().set_live(key, None);
                    return Ok(Gone::Yes);
                }
                let meta = LiveMeta::read(&answer);
                Ok(Gone::Waits(blocked(&text, &meta.finalizers)))
            }
            Err(error) if error.code() == Some(404) => {
                self.state.lock().set_live(key, None);
                Ok(Gone::Yes)
            }
            Err(error) if error.code() == Some(409) => {
                // Another object by that name: judge it on the next round.
                self.state.lock().set_live(key, None);
                Ok(Gone::Waits(format!("{text} was replaced")))
            }
            Err(error) => Err(error),
        }
    }

    /// Hands an object over to another Work that wants it, if there is one: it is that Work's from now on, whatever
    /// becomes of it before it was applied. One that our finalizer does not stand on yet could go unheard, and is
    /// waited for.
    fn hand_over(&self, work: &str, key: &Arc<ObjectKey>, uid: &str, text: &str) -> Option<Gone> {
        let (heir, changed) = {
            let mut state = self.state.lock();
            let (heir, is_held) = state.heir(key, work)?;
            let changed = is_held.then(|| state.claim(&heir, key, uid));
            (heir, changed)
        };
        self.queue.add(heir.clone());
        let Some(changed) = changed else {
            let waits = format!("Work {heir} to take {text} over");
            return Some(Gone::Waits(waits));
        };
        tracing::info!(object = text, from = work, to = %heir, "handed over");
        self.persister.touch_heirs(work, &changed);
        Some(Gone::Yes)
    }

    /// Tells by log and Event that an object outlives the Work or manifest that brought it.
    fn note_kept(&self, work: &str, text: &str, reason: &str) {
        tracing::warn!(object = text, %reason, "kept in the member");
        let uid = self.state.lock().works.get(work).map(|r| r.uid.to_string());
        if let Some(uid) = uid {
            self.events
                .add(work, &uid, Kind::Kept, format!("{text} is kept: {reason}"));
        }
    }

    /// Why an object must not be deleted, if there is a reason.
    async fn brake(
        &self,
        resource: &Arc<Resource>,
        key: &ObjectKey,
        uri: &str,
        keep: bool,
    ) -> Result<Option<String>, Error> {
        if keep {
            return Ok(Some("its manifest says so".into()));
        }
        if !brakes::is_guarded(&resource.gvk) {
            return Ok(None);
        }
        let Some(meta) = self.read_meta(uri).await? else {
            return Ok(None);
        };
        if meta.keep {
            return Ok(Some("its manifest says so".into()));
        }
        if meta.adopted {
            return Ok(Some("it was there before the Work".into()));
        }
        let ours = foreign::Ours {
            execution: &self.scope.namespace,
            state: &self.state,
        };
        match (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) {
            ("", "Namespace") => foreign::in_namespace(&self.member, &key.name, &ours).await,
            ("apiextensions.k8s.io", _) => foreign::of_definition(&self.member, uri, &ours).await,
            _ => Ok(None),
        }
    }

    async fn locate(&self, key: &ObjectKey) -> Result<Option<(Arc<Resource>, String)>, Error> {
        let gvk = self.state.lock().gvk(key.kind);
        let Some(gvk) = gvk else { return Ok(None) };
        let resource = self.member.resolve(&gvk).await?;
        Ok(resource.map(|resource| {
            let uri = resource.object(&key.namespace, &key.name);
            (resource, uri)
        }))
    }

    async fn read_meta(&self, uri: &str) -> Result<Option<LiveMeta>, Error> {
        match self.member.ask(Call::get(uri, METADATA_ONLY)).await {
            Ok(reply) => Ok(Some(LiveMeta::read(&reply.json::<Value>()?))),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn blocked(text: &str, finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        format!("{text} to be gone")
    } else {
        format!("{text} (finalizers: {})", finalizers.join(", "))
    }
}
