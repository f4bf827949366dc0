//! What is written to bring an object to what its manifest wants.

use super::{Found, ObjectApplier, Outcome, Task, has_other_appliers, uri};
use crate::execution::brakes::is_guarded;
use crate::execution::conflict::{self, Answer};
use crate::execution::errors;
use crate::execution::fields;
use crate::execution::manifest::strip;
use crate::execution::state::LiveRecord;
use crate::execution::wire::LiveMeta;
use common::interpreter::custom::Failed;
use common::interpreter::retain;
use common::labels::{ADOPTED, FIELD_MANAGER, KEPT_FROM, RETAINED_FIELD_MANAGER};
use common::rest::{Call, Error, JSON_PATCH, MERGE_PATCH};
use serde_json::{Value, json};

impl ObjectApplier {
    pub(super) async fn create(
        &self,
        task: &Task<'_>,
        body: &Value,
    ) -> Result<Option<Outcome>, Error> {
        let reply = match self.send(task, body, FIELD_MANAGER, false).await {
            Ok(reply) => reply,
            // Someone made it, with other values or before we came.
            Err(error) if error.code() == Some(409) => return Ok(None),
            Err(error) => return Err(error),
        };
        let object: Value = reply.json()?;
        if !reply.created && has_other_appliers(&object) {
            // Someone made it meanwhile, with the same values: give back what we just claimed.
            let mut empty = task.desired.full.clone();
            if let Some(map) = empty.as_object_mut() {
                map.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
            }
            if let Some(metadata) = empty.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace"));
                metadata.insert("uid".into(), object["metadata"]["uid"].clone());
            }
            self.send(task, &empty, FIELD_MANAGER, false).await?;
            self.state.lock().set_live(&task.key, None);
            return Ok(None);
        }
        self.settle(task, object, task.desired.owned.clone()).await
    }

    pub(super) async fn update(
        &self,
        task: &Task<'_>,
        uid: &str,
        adopt: bool,
        found: Option<&Found>,
        mut body: Value,
    ) -> Result<Option<Outcome>, Error> {
        if adopt {
            self.take_over(task, uid, found).await?;
        }
        if task.desired.retains {
            // Before we let go of a field, someone else must hold it.
            match self.read_live(task).await? {
                Some(found) => {
                    let merged = self.merge(task, &found.object).await?;
                    let handed_on = self.hand_on(task, &found.object).await?;
                    if merged || handed_on {
                        // We have changed it ourselves: it is at another version.
                        at_any_version(&mut body);
                    }
                }
                None => return Ok(None),
            }
        }
        body["metadata"]["uid"] = uid.into();
        // With the same manifest as last time every conflict is drift.
        let drift = !adopt && self.is_drift(task);
        let mut force = drift || task.desired.overwrite;
        loop {
            match self.send(task, &body, FIELD_MANAGER, force).await {
                Ok(reply) => {
                    // It is at another version from here on.
                    at_any_version(&mut body);
                    return self.settle(task, reply.json()?, body).await;
                }
                Err(Error::Refused {
                    code: 409, status, ..
                }) => {
                    let conflicts = conflict::read(&status);
                    if conflicts.is_empty() || force {
                        // Another object by that name, none, or it has changed: judge what is there now.
                        self.state.lock().set_live(&task.key, None);
                        return Ok(None);
                    }
                    let last = task.before.filter(|_| !adopt);
                    match conflict::answer(&conflicts, false, last) {
                        Answer::Force => force = true,
                        Answer::Yield(foreign) => {
                            let text = errors::conflicts(&task.manifest.target, &foreign);
                            return Ok(Some(Outcome::Failed(text)));
                        }
                    }
                }
                Err(error) if error.code() == Some(404) && !adopt => {
                    self.state.lock().set_live(&task.key, None);
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the fields of an earlier deliverer ours, so that those which the manifest lacks go.
    async fn take_over(
        &self,
        task: &Task<'_>,
        uid: &str,
        found: Option<&Found>,
    ) -> Result<(), Error> {
        let read;
        let object = match found {
            Some(found) => &found.object,
            None => match self.read_live(task).await? {
                Some(found) => {
                    read = found;
                    &read.object
                }
                None => return Ok(()),
            },
        };
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        if let Some(entries) = fields::take_over(entries, FIELD_MANAGER) {
            let version = &object["metadata"]["resourceVersion"];
            let patch = json!([
                {"op": "test", "path": "/metadata/uid", "value": uid},
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]);
            self.member
                .ask(Call::patch(&uri(task), JSON_PATCH, &patch).metadata_only())
                .await?;
        }
        let kept = LiveMeta::read(object).was_kept_from(&self.scope.namespace, task.work);
        let note = if kept {
            Some(json!({KEPT_FROM: null}))
        } else if is_guarded(&task.resource.gvk) {
            // What it holds is not ours: it will be kept when the Work goes.
            Some(json!({ADOPTED: "true"}))
        } else {
            None
        };
        if let Some(note) = note {
            let patch = json!({"metadata": {"uid": uid, "annotations": note}});
            let uri = format!("{}?fieldManager={RETAINED_FIELD_MANAGER}", uri(task));
            self.member
                .ask(Call::patch(&uri, MERGE_PATCH, &patch).metadata_only())
                .await?;
        }
        Ok(())
    }

    /// Adds what a list lacks that nobody has alone. Returns whether it wrote.
    async fn merge(&self, task: &Task<'_>, object: &Value) -> Result<bool, Error> {
        let (full, paths) = (&task.desired.full, &task.desired.paths);
        if let Some(merged) = retain::merged(full, object, paths)
            && let Some(kept) = retain::retained_object(full, &merged, paths)
        {
            // What others put there stays in it.
            self.send(task, &kept, RETAINED_FIELD_MANAGER, true).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Hands retained fields that we own to the manager that keeps them. Returns whether it wrote.
    async fn hand_on(&self, task: &Task<'_>, object: &Value) -> Result<bool, Error> {
        let paths = &task.desired.paths;
        if !retain::owned(&LiveMeta::read(object).fields, paths) {
            return Ok(false);
        }
        if let Some(kept) = retain::retained_object(&task.desired.full, object, paths) {
            match self.send(task, &kept, RETAINED_FIELD_MANAGER, false).await {
                Ok(_) => return Ok(true),
                // Someone owns it already: then it will not fall back to a default.
                Err(error) if error.code() == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Hands retained fields on, and takes note of the object.
    async fn settle(
        &self,
        task: &Task<'_>,
        object: Value,
        mut body: Value,
    ) -> Result<Option<Outcome>, Error> {
        let mut object = object;
        if task.desired.retains {
            let meta = LiveMeta::read(&object);
            if retain::owned(&meta.fields, &task.desired.paths) {
                self.hand_on(task, &object).await?;
                body["metadata"]["uid"] = meta.uid.into();
                object = self.send(task, &body, FIELD_MANAGER, true).await?.json()?;
            }
        }
        self.note_applied(task, &object).await;
        Ok(Some(Outcome::Done))
    }

    /// The manifest with what stays of the live object by the script's word, without what stays by our own.
    pub(super) async fn retain(&self, task: &Task<'_>, live: &Value) -> Result<Value, Failed> {
        let (desired, gvk) = (&task.desired, &task.resource.gvk);
        let kept = self
            .interpreter
            .retain(task.scripts, gvk, &desired.full, live);
        let Some(mut kept) = kept.await.transpose()? else {
            return Ok(desired.owned.clone());
        };
        strip(&mut kept);
        Ok(retain::without(&kept, &desired.paths))
    }

    /// Has what the hub is told of an object be by the scripts that its Work carries now.
    pub(super) async fn show_anew(&self, task: &Task<'_>) -> Result<(), Error> {
        let by = task.scripts.map_or(0, |scripts| scripts.hash);
        let is_stale = |live: &LiveRecord| live.shown_by != by;
        if !self.state.lock().live(&task.key).is_some_and(is_stale) {
            return Ok(());
        }
        let Some(found) = self.read_live(task).await? else {
            return Ok(());
        };
        let shown = self
            .interpreter
            .show(task.scripts, &task.resource.gvk, &found.object);
        let shown = shown.await;
        let mut state = self.state.lock();
        let known = state
            .live(&task.key)
            .filter(|live| *live.uid == *found.meta.uid);
        if let Some(before) = known.filter(|live| live.version <= found.meta.version) {
            let mut live = LiveRecord::new(shown, found.meta, &self.scope.namespace, false);
            live.inherit(before);
            live.bound(true);
            state.set_live(&task.key, Some(live));
        }
        Ok(())
    }
}

/// Has an apply change the object whatever version it is at.
fn at_any_version(body: &mut Value) {
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
}
