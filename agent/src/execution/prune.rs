//! Taking objects out of the member, if they are ours to take and nothing brakes it.

mod foreign;
pub mod orphans;
mod release;
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
        if let Some(heir) = self.state.lock().heir(key, work) {
            tracing::info!(object = text, from = work, to = %heir, "handed over");
            self.queue.add(heir);
            return Ok(Gone::Yes);
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
        match (resource.gvk.group.as_str(), resource.gvk.kind.as_str()) {
            ("", "Namespace") => foreign::in_namespace(&self.member, &key.name).await,
            ("apiextensions.k8s.io", _) => foreign::of_definition(&self.member, uri).await,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::interpret::Shown;
    use crate::execution::state::LiveRecord;
    use crate::execution::testing::{Handles, lines, map, marked, refusal, scripted, wire};

    const OBJECT: &str = "/api/v1/namespaces/n/configmaps/a";

    async fn key(parts: &Handles) -> Arc<ObjectKey> {
        let targets = crate::execution::manifest::targets(&json!([map("a")]).to_string());
        parts.pruner.key_of(&targets[0]).await
    }

    #[tokio::test]
    async fn only_what_is_the_works_own_is_deleted_and_only_that_very_object() {
        let (member, asked) = scripted(|line| match line.split_once(' ') {
            Some(("GET", OBJECT)) => Some((200, marked("a", "o", "other"))),
            Some(("DELETE", OBJECT)) => Some((200, json!({"kind": "Status"}))),
            _ => None,
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        let key = key(&parts).await;
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(matches!(gone, Ok(Gone::Yes)));
        assert_eq!(lines(&asked), [format!("GET {OBJECT}")]);
        // What it has applied is its own, whatever the marks say.
        parts.state.lock().claim(&work, &key, "o");
        let gone = parts.pruner.delete_object(&work, &key, true).await;
        assert!(matches!(gone, Ok(Gone::Yes)));
        let (line, body) = asked.lock().expect("sound").last().expect("asked").clone();
        assert_eq!(line, format!("DELETE {OBJECT}"));
        assert_eq!(body["preconditions"]["uid"], "o");
        assert_eq!(body["propagationPolicy"], "Foreground");
    }

    #[tokio::test]
    async fn what_is_reserved_and_may_not_be_read_holds_no_work_back() {
        let (member, asked) = scripted(|line| match line.split_once(' ') {
            Some(("GET", uri)) if uri.contains("/kube-system/") => Some(refusal(403, "Forbidden")),
            _ => None,
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let mut reserved = map("a");
        reserved["metadata"]["namespace"] = json!("kube-system");
        let work = parts.knows(&wire("w", "1", &[reserved.clone()]));
        let targets = crate::execution::manifest::targets(&json!([reserved]).to_string());
        let key = parts.pruner.key_of(&targets[0]).await;
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(matches!(gone, Ok(Gone::Yes)), "{gone:?}");
        assert!(lines(&asked).iter().all(|line| line.starts_with("GET ")));
    }

    #[tokio::test]
    async fn what_another_work_wants_too_is_handed_over() {
        let (member, asked) = scripted(|_| Some(refusal(500, "Unexpected")));
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        parts.knows(&wire("heir", "2", &[map("a")]));
        let key = key(&parts).await;
        let object = marked("a", "o", "w");
        let gvk = parts.state.lock().gvk(key.kind).expect("known");
        let live = LiveRecord::new(
            Shown::built_in(&gvk, &object),
            LiveMeta::read(&object),
            "karmada-es-m1",
            true,
        );
        parts.state.lock().set_live(&key, Some(live));
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(matches!(gone, Ok(Gone::Yes)));
        assert_eq!(parts.queued(), ["heir"]);
        assert_eq!(lines(&asked), [""; 0]);
    }

    #[tokio::test]
    async fn what_left_a_work_is_remembered_until_it_is_gone() {
        let (member, _) = scripted(|line| match line.split_once(' ') {
            Some(("GET", OBJECT)) => Some((200, marked("a", "o", "w"))),
            Some(("DELETE", OBJECT)) => Some(refusal(503, "ServiceUnavailable")),
            _ => None,
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        let leaving = crate::execution::manifest::targets(&json!([map("a"), map("b")]).to_string());
        if let Some(record) = parts.state.lock().works.get_mut(&work) {
            record.leaving.clone_from(&leaving);
        }
        assert!(parts.pruner.prune(&work, leaving.clone()).await);
        let state = parts.state.lock();
        // `b` is not there, `a` cannot be deleted now.
        assert_eq!(state.works[&work].leaving, leaving[..1]);
    }

    #[tokio::test]
    async fn a_namespace_that_holds_what_is_not_ours_is_released_instead() {
        let space = json!({"kind": "Namespace", "metadata": {"name": "n", "uid": "o",
            "resourceVersion": "9", "labels": {"karmada.io/managed": "true"}, "annotations":
            {"work.karmada.io/namespace": "karmada-es-m1", "work.karmada.io/name": "w"}}});
        let (member, asked) = scripted(move |line| match line.split_once(' ') {
            Some(("GET" | "PATCH", "/api/v1/namespaces/n")) => Some((200, space.clone())),
            Some(("GET", uri)) if uri.starts_with("/api/v1/namespaces/n/configmaps?") => {
                let foreign = json!({"metadata": {"name": "someones"}});
                Some((200, json!({"metadata": {}, "items": [foreign]})))
            }
            _ => None,
        });
        let parts = Handles::new(scripted(|_| None).0, member).await;
        let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
        let work = parts.knows(&wire("w", "1", std::slice::from_ref(&manifest)));
        let targets = crate::execution::manifest::targets(&json!([manifest]).to_string());
        let key = parts.pruner.key_of(&targets[0]).await;
        let gone = parts.pruner.delete_object(&work, &key, false).await;
        assert!(matches!(gone, Ok(Gone::Yes)));
        let asked = lines(&asked);
        assert!(
            asked.iter().all(|line| !line.starts_with("DELETE")),
            "{asked:?}"
        );
        assert!(
            asked.contains(&"PATCH /api/v1/namespaces/n".to_owned()),
            "{asked:?}"
        );
        let event = parts.events.next().await.body("karmada-es-m1");
        assert_eq!(
            event["message"],
            "Namespace /n is kept: it holds ConfigMap someones"
        );
    }
}
