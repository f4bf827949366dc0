//! Taking objects out of the member: of a Work that is being deleted, and of manifests that left one.

use super::Engine;
use super::sync::Job;
use crate::execution::brakes;
use crate::execution::conditions;
use crate::execution::events::Kind;
use crate::execution::manifest::Target;
use crate::execution::order::rank;
use crate::execution::queue::Urgency;
use crate::execution::state::{ObjectKey, Order};
use crate::execution::wire::LiveMeta;
use crate::member::discovery::Resource;
use crate::member::rest::{Call, Error, JSON_PATCH, METADATA_ONLY};
use chrono::Duration as Span;
use common::errors::chain;
use common::labels::{
    ADOPTED, FIELD_MANAGER, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANIFEST_HASH,
    RETAINED_FIELD_MANAGER, TEMPLATE_GENERATION, TEMPLATE_UID, WORK_NAME, WORK_NAMESPACE,
    WORK_PERMANENT_ID,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// After that long, what a deletion waits for is reported.
const BLOCKED_AFTER: Span = Span::seconds(5);
/// How often a deletion that waits is looked at without news.
const RECHECK: Duration = Duration::from_secs(10);

/// What became of an object that should go.
#[derive(Debug)]
pub(super) enum Gone {
    /// It is not there, or not ours to delete.
    Yes,
    /// Someone else must act first.
    Waits(String),
}

impl Engine {
    /// Deletes the objects of a Work, then lets the Work go.
    pub(super) async fn delete_work(&self, name: &Arc<str>) {
        let Some(job) = self.job(name) else { return };
        let (preserve, foreground, finalizer) = {
            let state = self.state();
            let Some(record) = state.works.get(name) else {
                return;
            };
            let preserve = record.preserve || self.keeps_workloads();
            (preserve, record.foreground, record.has_finalizer())
        };
        let mut keys = self.keys_of(&job).await;
        let past = {
            let state = self.state();
            let record = state.works.get(name);
            let asks = record.is_some_and(|r| r.order != Order::default());
            let past = record
                .filter(|_| !asks)
                .map(|r| [&r.leaving[..], &r.left].concat());
            past.unwrap_or_default()
        };
        for target in &past {
            let key = self.key_of(target).await;
            keys.entry(rank(&target.gvk)).or_default().push(key);
        }
        {
            let state = self.state();
            let known: HashSet<Arc<ObjectKey>> = keys.values().flatten().cloned().collect();
            // A Work that carries an order was made to settle orphans: those are not its own.
            let asks = state
                .works
                .get(name)
                .is_some_and(|r| r.order != Order::default());
            let stray = match asks {
                true => Vec::new(),
                false => state.strays(name, &known),
            };
            for key in stray {
                keys.entry(0).or_default().push(key);
            }
        }
        let mut blockers = Vec::new();
        let mut outage = None;
        // What was applied last goes first; a rank that waits holds back those before it.
        for group in keys.into_values().rev() {
            let fates = futures::future::join_all(group.iter().map(|key| async move {
                if preserve {
                    self.release_object(name, key).await.map(|()| Gone::Yes)
                } else {
                    self.delete_object(name, key, foreground).await
                }
            }))
            .await;
            for fate in fates {
                match fate {
                    Ok(Gone::Yes) => {}
                    Ok(Gone::Waits(text)) => blockers.push(text),
                    Err(error) if error.is_outage() => outage = Some(error),
                    Err(error) => blockers.push(chain(&error).to_string()),
                }
            }
            if !blockers.is_empty() || outage.is_some() {
                break;
            }
        }
        if let Some(error) = outage {
            tracing::warn!(work = %name, error = %chain(&error), "the member does not answer");
            self.enqueue_after(name, Duration::from_secs(2));
            return;
        }
        if blockers.is_empty() {
            if finalizer {
                if !self.deletion_is_kept(name).await {
                    let what = "the agent's store of Works in the member, to take note of it";
                    self.wait_for(name, &[what.to_owned()]).await;
                    return;
                }
                self.let_go(name).await;
            } else {
                self.forget_work(name);
            }
            return;
        }
        self.wait_for(name, &blockers).await;
    }

    async fn let_go(&self, name: &Arc<str>) {
        if let Some(until) = self.contact.rests_until() {
            self.enqueue_at(name, until);
            return;
        }
        match self.write_finalizer(name, false).await {
            Ok(true) => self.forget_work(name),
            // It is gone, or another one by that name.
            Ok(false) => self.drop_work(name),
            Err(error) => {
                tracing::warn!(work = %name, error = %chain(&error), "failed to remove the finalizer");
                self.hub_failed(&error);
                self.enqueue_after(name, Duration::from_secs(2));
            }
        }
    }

    /// Its objects are gone; it stays known while others keep it.
    fn forget_work(&self, name: &Arc<str>) {
        let kept = self
            .state()
            .works
            .get(name)
            .is_some_and(|r| !r.finalizers.is_empty());
        if !kept {
            self.drop_work(name);
        }
    }

    fn drop_work(&self, name: &Arc<str>) {
        let others = self.state().forget(name);
        self.keep_work(name);
        for other in others {
            self.enqueue(&other, Urgency::Now);
        }
    }

    async fn wait_for(&self, name: &Arc<str>, blockers: &[String]) {
        let now = self.clock.now();
        let since = {
            let mut state = self.state();
            let Some(record) = state.works.get_mut(name) else {
                return;
            };
            *record.deleting_since.get_or_insert(now)
        };
        if now - since >= BLOCKED_AFTER {
            self.set_verdicts(name, vec![conditions::deletion_blocked(blockers)]);
            self.report(name).await;
            self.enqueue_after(name, RECHECK);
        } else {
            self.enqueue_after(name, Duration::from_secs(1));
        }
    }

    /// The objects of a Work by rank, also when it was never worked on by this process.
    async fn keys_of(&self, job: &Job) -> BTreeMap<u8, Vec<Arc<ObjectKey>>> {
        let mut keys: BTreeMap<u8, Vec<Arc<ObjectKey>>> = BTreeMap::new();
        for manifest in job.manifests.iter().flatten() {
            let target = &manifest.target;
            let key = self.key_of(target).await;
            let _ = self.state().want(&key, &job.name);
            keys.entry(rank(&target.gvk)).or_default().push(key);
        }
        keys
    }

    /// The object that a target means.
    async fn key_of(&self, target: &Target) -> Arc<ObjectKey> {
        let namespaced = match self.resolve(&target.gvk).await {
            Ok(Some(resource)) => {
                self.kinds.ensure(&resource);
                resource.namespaced
            }
            _ => !target.namespace.is_empty(),
        };
        let namespace = if namespaced { &*target.namespace } else { "" };
        self.state().key_of(target, namespace)
    }

    /// Deletes what left a Work. Returns whether something still waits.
    pub(super) async fn prune(&self, job: &Job, leaving: Vec<Target>) -> bool {
        let mut waits = false;
        for target in leaving {
            let key = self.key_of(&target).await;
            match self.delete_object(&job.name, &key, false).await {
                Ok(Gone::Yes) => {
                    if let Some(record) = self.state().works.get_mut(&job.name) {
                        record.leaving.retain(|left| *left != target);
                    }
                    self.keep_work(&job.name);
                }
                Ok(Gone::Waits(_)) => waits = true,
                Err(error) => {
                    tracing::warn!(work = %job.name, error = %chain(&error), "failed to prune");
                    waits = true;
                }
            }
        }
        waits
    }

    /// Deletes an object if it is labelled ours for this Work, and says whether it is gone.
    pub(super) async fn delete_object(
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
            let state = self.state();
            state.live(key).map(|live| {
                let ours = live.work.as_deref() == Some(work);
                (live.uid.to_string(), ours, live.deleting.clone(), live.keep)
            })
        };
        let (uid, ours, deleting, keep) = match known {
            Some((uid, ours, None, keep)) => (uid, ours, None, keep),
            // Waiting for others: look, the watch may be behind.
            _ => match self.read_meta(&uri).await? {
                Some(meta) => {
                    let ours = meta.belongs_to(&self.namespace, work);
                    (
                        meta.uid,
                        ours,
                        meta.deleting.then(|| meta.finalizers.into_boxed_slice()),
                        meta.keep,
                    )
                }
                None => {
                    self.state().set_live(key, None);
                    return Ok(Gone::Yes);
                }
            },
        };
        if !ours {
            return Ok(Gone::Yes);
        }
        if let Some(heir) = self.state().heir(key, work) {
            tracing::info!(object = text, from = work, to = %heir, "handed over");
            self.enqueue(&heir, Urgency::Now);
            return Ok(Gone::Yes);
        }
        if let Some(reason) = self.brake(&resource, key, &uri, keep).await? {
            tracing::warn!(object = text, %reason, "kept in the member");
            let uid = self.state().works.get(work).map(|r| r.uid.to_string());
            if let Some(uid) = uid {
                self.emit(work, &uid, Kind::Kept, format!("{text} is kept: {reason}"));
            }
            self.release_object(work, key).await?;
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
        match self.ask_member(Call::delete(&uri, &options)).await {
            Ok(reply) => {
                let answer: Value = reply.json()?;
                if answer["kind"] == "Status" {
                    self.state().set_live(key, None);
                    return Ok(Gone::Yes);
                }
                let meta = LiveMeta::read(&answer);
                Ok(Gone::Waits(blocked(&text, &meta.finalizers)))
            }
            Err(error) if error.code() == Some(404) => {
                self.state().set_live(key, None);
                Ok(Gone::Yes)
            }
            Err(error) if error.code() == Some(409) => {
                // Another object by that name: judge it on the next round.
                self.state().set_live(key, None);
                Ok(Gone::Waits(format!("{text} was replaced")))
            }
            Err(error) => Err(error),
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
        if brakes::is_our_own(&resource.gvk, &key.namespace, &key.name, &self.home) {
            return Ok(Some("it belongs to the agent".into()));
        }
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
            ("", "Namespace") => self.foreign_in_namespace(&key.name).await,
            ("apiextensions.k8s.io", _) => self.foreign_of_definition(uri).await,
            _ => Ok(None),
        }
    }

    pub(super) async fn locate(
        &self,
        key: &ObjectKey,
    ) -> Result<Option<(Arc<Resource>, String)>, Error> {
        let gvk = self.state().gvk(key.kind);
        let Some(gvk) = gvk else { return Ok(None) };
        let resource = self.resolve(&gvk).await?;
        Ok(resource.map(|resource| {
            let uri = resource.object(&key.namespace, &key.name);
            (resource, uri)
        }))
    }

    async fn read_meta(&self, uri: &str) -> Result<Option<LiveMeta>, Error> {
        match self.ask_member(Call::get(uri, METADATA_ONLY)).await {
            Ok(reply) => Ok(Some(LiveMeta::read(&reply.json::<Value>()?))),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes our marks off an object of this Work and leaves it running.
    async fn release_object(&self, work: &str, key: &Arc<ObjectKey>) -> Result<(), Error> {
        let Some((_, uri)) = self.locate(key).await? else {
            return Ok(());
        };
        let namespace = self.namespace.clone();
        self.release_at(&uri, |meta| meta.belongs_to(&namespace, work))
            .await?;
        self.state().set_live(key, None);
        Ok(())
    }

    /// Takes our marks off the object at `uri` if `ours` says so.
    pub(super) async fn release_at(
        &self,
        uri: &str,
        ours: impl Fn(&LiveMeta) -> bool,
    ) -> Result<(), Error> {
        for _ in 0..4 {
            let object: Value = match self.ask_member(Call::get(uri, METADATA_ONLY)).await {
                Ok(reply) => reply.json()?,
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) => return Err(error),
            };
            if !ours(&LiveMeta::read(&object)) {
                return Ok(());
            }
            let patch = unmark(&object);
            let call = Call::patch(uri, JSON_PATCH, &patch).metadata_only();
            match self.ask_member(call).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(404) => return Ok(()),
                Err(error) if error.code() == Some(409) || error.code() == Some(422) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn blocked(text: &str, finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        format!("{text} to be gone")
    } else {
        format!("{text} (finalizers: {})", finalizers.join(", "))
    }
}

/// The JSON patch that takes our marks and our field ownership off an object, if it is still as read.
fn unmark(object: &Value) -> Value {
    const LABELS: [&str; 2] = [MANAGED, WORK_PERMANENT_ID];
    const ANNOTATIONS: [&str; 8] = [
        ADOPTED,
        WORK_NAME,
        WORK_NAMESPACE,
        MANIFEST_HASH,
        MANAGED_LABELS,
        MANAGED_ANNOTATIONS,
        TEMPLATE_UID,
        TEMPLATE_GENERATION,
    ];
    let meta = &object["metadata"];
    let mut patch = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]}),
    ];
    let claims = [
        "resourcebinding.karmada.io/permanent-id",
        "clusterresourcebinding.karmada.io/permanent-id",
        "propagationpolicy.karmada.io/permanent-id",
        "clusterpropagationpolicy.karmada.io/permanent-id",
    ];
    for (map, keys) in [
        (
            "labels",
            LABELS.iter().chain(&claims).copied().collect::<Vec<_>>(),
        ),
        ("annotations", ANNOTATIONS.to_vec()),
    ] {
        for key in keys {
            if meta[map].get(key).is_some() {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                patch.push(json!({"op": "remove", "path": format!("/metadata/{map}/{escaped}")}));
            }
        }
    }
    if let Some(entries) = meta["managedFields"].as_array() {
        let mut rest: Vec<Value> = entries
            .iter()
            .filter(|e| e["manager"] != FIELD_MANAGER && e["manager"] != RETAINED_FIELD_MANAGER)
            .cloned()
            .collect();
        if rest.is_empty() {
            // An empty list is ignored; one empty entry resets the tracking.
            rest.push(json!({}));
        }
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": rest}));
    }
    Value::Array(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_marks_are_taken_off() {
        let object = json!({"metadata": {"resourceVersion": "5",
            "labels": {MANAGED: "true", "app": "web"}, "annotations": {WORK_NAME: "w", "note": "x"},
            "managedFields": [{"manager": "towline", "operation": "Apply"}, {"manager": "other"}]}});
        assert_eq!(
            unmark(&object),
            json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
                {"op": "remove", "path": "/metadata/labels/karmada.io~1managed"},
                {"op": "remove", "path": "/metadata/annotations/work.karmada.io~1name"},
                {"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "other"}]},
            ])
        );
    }
}
