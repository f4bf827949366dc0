//! Taking objects out of the member, if they are ours to take and nothing brakes it.

mod foreign;
pub mod kinds;
pub mod orphans;
mod release;
#[cfg(test)]
mod tests;
mod unmark;

use super::Scope;
use super::brakes;
use super::errors;
use super::events::{Events, Kind};
use super::manifest::Target;
use super::order::rank;
use super::persist::Persister;
use super::state::{Named, ObjectKey, Shared};
use super::wire::LiveMeta;
use crate::member::api::Member;
use common::errors::chain;
use common::mapper::Resource;
use common::queue::Queue;
use common::rest::{Call, Error, METADATA_ONLY};
use kinds::Answers;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::Arc;

/// What became of an object that should go.
#[derive(Debug)]
pub enum Gone {
    /// It is not there, or not ours to delete.
    Yes,
    /// Someone else must act first.
    Waits(String),
}

/// What became of what left a Work.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// What objects that do not go wait for.
    pub blockers: Vec<String>,
    /// Whether the member did not answer about some of them.
    pub outage: bool,
}

impl Pruned {
    /// Whether something is still to go.
    pub fn waits(&self) -> bool {
        self.outage || !self.blockers.is_empty()
    }
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
    /// Deletes what left a Work. What was applied last goes first, as with a Work: a Namespace is judged after what in it
    /// is to stay was let go.
    pub async fn prune(&self, work: &Arc<str>, mut leaving: Vec<Target>) -> Pruned {
        leaving.sort_by_key(|target| Reverse(rank(&target.gvk)));
        let mut pruned = Pruned::default();
        let (mut named, mut answers) = (Named::default(), Answers::default());
        for target in leaving {
            match self.take_out(work, &target, &mut named, &mut answers).await {
                Ok(Gone::Yes) => {
                    if let Some(record) = self.state.lock().works.get_mut(work) {
                        record.leaving.retain(|left| *left != target);
                    }
                    self.persister.touch(work);
                }
                Ok(Gone::Waits(text)) => pruned.blockers.push(text),
                Err(error) => {
                    tracing::warn!(work = %work, %target, error = %chain(&error), "failed to prune");
                    match error.is_outage() {
                        true => pruned.outage = true,
                        false => pruned.blockers.push(format!("{target}: {}", chain(&error))),
                    }
                }
            }
        }
        pruned
    }

    /// Takes what left a Work out of the member, unless the Work names that very object.
    async fn take_out(
        &self,
        work: &Arc<str>,
        target: &Target,
        named: &mut Named,
        answers: &mut Answers,
    ) -> Result<Gone, Error> {
        let resource = self.served_once(&target.gvk, answers).await?;
        let key = {
            let mut state = self.state.lock();
            if !state.leaves(work, target, named) {
                return Ok(Gone::Yes);
            }
            state.key_of(target, &target.namespace)
        };
        let gone = match resource {
            // A kind that is not served has no objects.
            None => Gone::Yes,
            Some(resource) => match self.delete_object(work, &key, false).await {
                Err(error) if !error.is_outage() => {
                    tracing::warn!(work = %work, %target, error = %chain(&error), "failed to prune");
                    Gone::Waits(errors::refused(&error, target, &resource))
                }
                fate => fate?,
            },
        };
        if matches!(gone, Gone::Yes) {
            self.state.lock().disclaim(work, &key);
        }
        Ok(gone)
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
        // Where its objects lie is known by now.
        let key = &self.state.lock().placed(key);
        let mut fate = self
            .delete_at(work, key, foreground, (&resource, &uri))
            .await;
        if fate.as_ref().is_err_and(lacks_path)
            && let Some((resource, uri)) = self.locate_anew(key, &uri).await?
        {
            fate = self
                .delete_at(work, key, foreground, (&resource, &uri))
                .await;
        }
        match fate {
            Err(error) if lacks_path(&error) => {
                self.state.lock().set_live(key, None);
                Ok(Gone::Yes)
            }
            fate => fate,
        }
    }

    /// The same, of an object that is served there.
    async fn delete_at(
        &self,
        work: &str,
        key: &Arc<ObjectKey>,
        foreground: bool,
        (resource, uri): (&Arc<Resource>, &str),
    ) -> Result<Gone, Error> {
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
            _ => match self.read_meta(uri).await {
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
                    let ours = self.is_of(work, key, &meta);
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
        if let Some(reason) = self.brake(resource, key, uri, keep).await? {
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
        match self.member.ask(Call::delete(uri, &options)).await {
            Ok(reply) => {
                let answer: Value = reply.json()?;
                if answer["kind"] == "Status" {
                    self.state.lock().set_live(key, None);
                    return Ok(Gone::Yes);
                }
                let meta = LiveMeta::read(&answer);
                Ok(Gone::Waits(blocked(&text, &meta.finalizers)))
            }
            Err(error) if is_absent(&error) => {
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

    /// How the kind of an object is served, and where the object lies; none when its kind is served in no version.
    async fn locate(&self, key: &ObjectKey) -> Result<Option<(Arc<Resource>, String)>, Error> {
        let gvk = self.state.lock().gvk(key.kind);
        let Some(gvk) = gvk else { return Ok(None) };
        let resource = self.served(&gvk).await?;
        Ok(resource.map(|resource| {
            let uri = resource.object(&key.namespace, &key.name);
            (resource, uri)
        }))
    }

    /// The same, after the member did not know the path `uri`: the version that it had may be served no more. None when
    /// there is no other path.
    async fn locate_anew(
        &self,
        key: &ObjectKey,
        uri: &str,
    ) -> Result<Option<(Arc<Resource>, String)>, Error> {
        let gvk = self.state.lock().gvk(key.kind);
        if let Some(gvk) = gvk {
            self.member.resolve_anew(&gvk);
        }
        let found = self.locate(key).await?;
        Ok(found.filter(|(_, other)| other != uri))
    }

    /// Whether an object is this Work's: by its marks, or because the Work has applied it.
    fn is_of(&self, work: &str, key: &ObjectKey, meta: &LiveMeta) -> bool {
        meta.belongs_to(&self.scope.namespace, work)
            || self.state.lock().has_claim(work, key, &meta.uid)
    }

    async fn read_meta(&self, uri: &str) -> Result<Option<LiveMeta>, Error> {
        match self.member.ask(Call::get(uri, METADATA_ONLY)).await {
            Ok(reply) => Ok(Some(LiveMeta::read(&reply.json::<Value>()?))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether the member says that an object is not there: it names the object then.
fn is_absent(error: &Error) -> bool {
    let Error::Refused {
        code: 404, status, ..
    } = error
    else {
        return false;
    };
    let name = status["details"]["name"].as_str();
    name.is_some_and(|name| !name.is_empty())
}

/// Whether it says that something is not there, and not that this is the object: of a version that is not served any
/// more it does not know the path.
fn lacks_path(error: &Error) -> bool {
    error.code() == Some(404) && !is_absent(error)
}

fn blocked(text: &str, finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        format!("{text} to be gone")
    } else {
        format!("{text} (finalizers: {})", finalizers.join(", "))
    }
}
