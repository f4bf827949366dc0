//! Bringing one object to what its manifest wants.

#[cfg(test)]
mod tests;
mod write;

use crate::drift::Fights;
use crate::execution::Scope;
use crate::execution::decide::{Decision, Live, Observed, Owner, Refusal, Waiting, decide};
use crate::execution::desired::Desired;
use crate::execution::errors;
use crate::execution::fields;
use crate::execution::interpret::{Interpreter, Scripts, holds};
use crate::execution::manifest::Manifest;
use crate::execution::persist::Persister;
use crate::execution::state::{Fields, LiveRecord, Marks, ObjectKey, Shared};
use crate::execution::wire::LiveMeta;
use crate::member::api::Member;
use chrono::{DateTime, Utc};
use common::interpreter::custom::Operation;
use common::interpreter::has_no_status;
use common::labels::{FIELD_MANAGER, RETAINED_FIELD_MANAGER};
use common::mapper::Resource;
use common::queue::Queue;
use common::rest::{APPLY_PATCH, Call, Error, JSON, METADATA_ONLY, Reply};
use common::time::SharedClock;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// How often an object is judged anew when it changed under our hands.
const JUDGEMENTS: usize = 4;

/// What became of a manifest.
#[derive(Debug)]
pub enum Outcome {
    /// The object is as wanted.
    Done,
    /// It is not, and the condition should say why.
    Failed(String),
    /// It was not tried now.
    Later(DateTime<Utc>, Waiting),
    /// The member does not answer.
    Outage(Error),
}

/// One manifest of one Work.
pub struct Task<'a> {
    /// Its name.
    pub work: &'a Arc<str>,
    /// What is wanted.
    pub manifest: &'a Manifest,
    /// How its kind is served.
    pub resource: &'a Arc<Resource>,
    /// The object.
    pub key: Arc<ObjectKey>,
    /// What is applied.
    pub desired: Desired,
    /// The manifest as it was applied last, if that is known.
    pub before: Option<&'a Value>,
    /// The scripts that the Work carries.
    pub scripts: Option<&'a Scripts>,
    /// Not before then.
    pub retry_at: Option<DateTime<Utc>>,
    /// Where the hub has not named the Work in this life: the mark that the same manifest leaves where an
    /// autoscaler came or went.
    pub unconfirmed: Option<u64>,
}

impl Task<'_> {
    /// Whether a script says what of the live object stays.
    fn asks_retention(&self) -> bool {
        let rules = self.scripts.and_then(|it| it.of(&self.resource.gvk));
        rules.is_some_and(|rules| rules.has(Operation::Retain))
    }

    /// Whether metadata says all there is to know of the object.
    fn is_metadata_enough(&self) -> bool {
        has_no_status(&self.resource.gvk) && !self.desired.retains && !self.asks_retention()
    }
}

/// An object as a live read found it.
struct Found {
    meta: LiveMeta,
    object: Value,
}

/// Brings objects to what their manifests want.
pub struct ObjectApplier {
    pub(crate) scope: Scope,
    pub(crate) member: Arc<Member>,
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) persister: Arc<Persister>,
    pub(crate) interpreter: Interpreter,
    pub(crate) fights: Mutex<Fights<Arc<ObjectKey>>>,
    pub(crate) clock: SharedClock,
}

impl ObjectApplier {
    /// Judges and acts until the object is as wanted or someone else must act.
    pub async fn apply(&self, task: &Task<'_>) -> Outcome {
        let mut heals = false;
        for judgement in 0..JUDGEMENTS {
            let acted = self.judge_and_act(task, judgement == 0, &mut heals);
            match acted.await {
                Ok(Some(outcome)) => return outcome,
                // Something changed in between.
                Ok(None) => {}
                Err(error) if error.is_outage() => return Outcome::Outage(error),
                Err(error) => {
                    return Outcome::Failed(errors::refused(
                        &error,
                        &task.manifest.target,
                        task.resource,
                    ));
                }
            }
        }
        Outcome::Failed(format!(
            "{}: it changes faster than it can be judged",
            task.manifest.target
        ))
    }

    /// `heals` says whether an earlier judgement has asked to heal the object, and found that it may be.
    async fn judge_and_act(
        &self,
        task: &Task<'_>,
        first: bool,
        heals: &mut bool,
    ) -> Result<Option<Outcome>, Error> {
        let known = self.known(task);
        if known.is_none() && first && task.retry_at.is_none() && !task.desired.overwrite {
            // Most objects that no watch knows are not there. Whatever is there in spite of that comes
            // back as a conflict, untouched, and is read and judged then.
            return self.create(task, &create_only(&task.desired.full)).await;
        }
        let found = if known.is_none() {
            self.read_live(task).await?
        } else {
            None
        };
        let live = match (known, &found) {
            (None, Some(found)) => Some(self.judge(task, found).await),
            (known, _) => known,
        };
        let live_uid = live.as_ref().map(|live| live.uid.clone());
        let observed = Observed {
            live,
            overwrite: task.desired.overwrite,
            retry_at: task.retry_at,
            may_be_newer: self.may_be_newer(task, found.as_ref()),
        };
        match decide(self.clock.now(), &observed) {
            Decision::InSync => {
                self.claim(task, live_uid.as_deref().unwrap_or_default());
                self.show_anew(task).await?;
                Ok(Some(Outcome::Done))
            }
            Decision::Wait(at, why) => Ok(Some(Outcome::Later(at, why))),
            Decision::Refuse(refusal) => Ok(Some(self.refuse(task, refusal, found.as_ref()))),
            Decision::Create => self.create(task, &task.desired.full).await,
            Decision::Apply { uid, adopt } => {
                let mut body = task.desired.owned.clone();
                if task.asks_retention() {
                    let read = self.read_live(task).await?;
                    let Some(live) = read.filter(|live| live.meta.uid == uid) else {
                        // Another object by that name, or none: judge what is there now.
                        self.state.lock().set_live(&task.key, None);
                        return Ok(None);
                    };
                    body = match self.retain(task, &live.object).await {
                        Ok(body) => body,
                        Err(failed) => {
                            let text = format!("{}: {failed}", task.manifest.target);
                            return Ok(Some(Outcome::Failed(text)));
                        }
                    };
                    if !adopt && self.is_drift(task) && holds(&live.object, &body) {
                        // Others changed nothing but what is left to them.
                        self.note_applied(task, &live.object).await;
                        return Ok(Some(Outcome::Done));
                    }
                    if !adopt {
                        // What stays was read at this version: whoever changes it meanwhile is not overwritten by it.
                        // An adoption has to change the object before it is applied, and is not asked anew: marks that
                        // it goes by may be off by then.
                        let version = &live.object["metadata"]["resourceVersion"];
                        body["metadata"]["resourceVersion"] = version.clone();
                    }
                }
                if let Err(until) = self.may_heal(task, heals) {
                    return Ok(Some(Outcome::Later(until, Waiting::Fight)));
                }
                self.update(task, &uid, adopt, found.as_ref(), body).await
            }
        }
    }

    /// Whether the object may have been changed later than the Work was stored: it carries the mark of another manifest.
    fn may_be_newer(&self, task: &Task<'_>, found: Option<&Found>) -> bool {
        let Some(rescaled) = task.unconfirmed else {
            return false;
        };
        let mark = match found {
            Some(found) => found.meta.hash,
            None => self.state.lock().live(&task.key).and_then(|it| it.hash),
        };
        mark.is_some_and(|mark| mark != task.desired.hash && mark != rescaled)
    }

    /// Whether drift may be healed now; a manifest that changed is no drift, one that was applied is, whoever has put
    /// another object or other marks in place of its own since. However often the object changes between judgement and
    /// write, it is healed once.
    fn may_heal(&self, task: &Task<'_>, heals: &mut bool) -> Result<(), DateTime<Utc>> {
        let was_applied = task.before == Some(&task.manifest.body);
        if *heals || (!was_applied && !self.is_drift(task)) {
            return Ok(());
        }
        tracing::info!(object = %task.manifest.target, work = %task.work, "healing drift");
        let mut fights = self.fights.lock().unwrap_or_else(PoisonError::into_inner);
        fights.heal(&task.key, self.clock.now())?;
        *heals = true;
        Ok(())
    }

    /// Whether the object carries the mark of the very manifest that is wanted.
    fn is_drift(&self, task: &Task<'_>) -> bool {
        self.state
            .lock()
            .live(&task.key)
            .is_some_and(|live| live.hash == Some(task.desired.hash))
    }

    /// What the watches know of the object, if they know it at all.
    fn known(&self, task: &Task<'_>) -> Option<Live> {
        let mut state = self.state.lock();
        let record = state.objects.get_mut(&task.key)?.live.as_mut()?;
        let as_wanted = match &record.fields {
            Fields::Verified(_) => record.hash == Some(task.desired.hash),
            Fields::Seen(text) => {
                let fields: Value = serde_json::from_str(text).unwrap_or_default();
                let met = task.desired.is_met(record.hash, &fields);
                if met {
                    record.fields = Fields::Verified(fields::hash(&fields));
                }
                met
            }
        };
        let live = Live {
            uid: record.uid.to_string(),
            owner: Owner::Unmanaged,
            deleting: record.deleting.is_some(),
            as_wanted,
            hold_until: record.hold_until,
        };
        let named = record.work.clone();
        Some(Live {
            owner: state.owner(
                task.work,
                &task.key,
                &marks(&live.uid, true, named.as_deref()),
            ),
            ..live
        })
    }

    async fn read_live(&self, task: &Task<'_>) -> Result<Option<Found>, Error> {
        let accept = if task.is_metadata_enough() {
            METADATA_ONLY
        } else {
            JSON
        };
        match self.member.ask(Call::get(&uri(task), accept)).await {
            Ok(reply) => {
                let object: Value = reply.json()?;
                let meta = LiveMeta::read(&object);
                Ok(Some(Found { meta, object }))
            }
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn judge(&self, task: &Task<'_>, found: &Found) -> Live {
        let meta = &found.meta;
        let shown = self
            .interpreter
            .show(task.scripts, &task.resource.gvk, &found.object);
        let shown = shown.await;
        let mut state = self.state.lock();
        let named = meta
            .work
            .as_ref()
            .filter(|(ns, _)| *ns == *self.scope.namespace);
        let named = named.map(|(_, name)| name.as_str());
        let marks = marks(&meta.uid, meta.managed, named);
        let owner = state.owner(task.work, &task.key, &marks);
        if owner != Owner::Unmanaged {
            // The watch of the kind will say the same; until then this stands for it.
            let mut live = LiveRecord::new(shown, meta.clone(), &self.scope.namespace, false);
            live.bound(true);
            state.set_live(&task.key, Some(live));
        }
        let kept = meta.was_kept_from(&self.scope.namespace, task.work);
        Live {
            uid: meta.uid.clone(),
            owner: match owner {
                Owner::Unmanaged if kept => Owner::Nobody,
                owner => owner,
            },
            deleting: meta.deleting,
            as_wanted: task.desired.is_met(meta.hash, &meta.fields),
            hold_until: meta.hold_until,
        }
    }

    fn refuse(&self, task: &Task<'_>, refusal: Refusal, found: Option<&Found>) -> Outcome {
        let detail = {
            let state = self.state.lock();
            let live = state.live(&task.key);
            match refusal {
                Refusal::Unmanaged => String::new(),
                Refusal::OtherWork => live
                    .and_then(|live| live.work.as_deref())
                    .map(|work| format!("{}/{work}", self.scope.namespace))
                    .unwrap_or_default(),
                Refusal::Deleting => {
                    let finalizers = found
                        .map(|f| f.meta.finalizers.join(", "))
                        .or_else(|| Some(live?.deleting.as_ref()?.join(", ")))
                        .unwrap_or_default();
                    if finalizers.is_empty() {
                        finalizers
                    } else {
                        format!("; it waits for the finalizers {finalizers}")
                    }
                }
            }
        };
        Outcome::Failed(refusal.text(&task.manifest.target, &self.scope.cluster, &detail))
    }

    /// Takes note that this very object is the Work's own, whatever its labels will say.
    fn claim(&self, task: &Task<'_>, uid: &str) {
        let changed = self.state.lock().claim(task.work, &task.key, uid);
        for work in &changed {
            self.persister.touch(work);
        }
    }

    async fn note_applied(&self, task: &Task<'_>, object: &Value) {
        let meta = LiveMeta::read(object);
        self.claim(task, &meta.uid);
        let shown = self
            .interpreter
            .show(task.scripts, &task.resource.gvk, object);
        let shown = shown.await;
        let mut state = self.state.lock();
        let newer = state
            .live(&task.key)
            .is_some_and(|live| *live.uid == *meta.uid && live.version > meta.version);
        if newer {
            return;
        }
        let live = LiveRecord::new(shown, meta, &self.scope.namespace, true);
        let before = state.live(&task.key);
        let changed_hands = before.is_some_and(|before| before.work != live.work);
        state.set_live(&task.key, Some(live));
        let others = if changed_hands {
            state.interested(&task.key)
        } else {
            Vec::new()
        };
        drop(state);
        for other in others.into_iter().filter(|other| other != task.work) {
            // The watch will say nothing that we do not know by now.
            self.queue.add(other);
        }
    }

    async fn send(
        &self,
        task: &Task<'_>,
        body: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Reply, Error> {
        let uri = format!("{}?fieldManager={manager}&force={force}", uri(task));
        let call = Call::patch(&uri, APPLY_PATCH, body);
        // Metadata says all there is to know of kinds without a status, unless values are handed on.
        let call = if task.is_metadata_enough() {
            call.metadata_only()
        } else {
            call
        };
        self.member.ask(call).await
    }
}

/// An apply that makes an object and never changes one: no object is at the first version of a store,
/// while an object that is made has none yet and so cannot be at another.
fn create_only(full: &Value) -> Value {
    let mut body = full.clone();
    body["metadata"]["resourceVersion"] = "1".into();
    body
}

fn marks<'a>(uid: &'a str, managed: bool, work: Option<&'a str>) -> Marks<'a> {
    Marks { uid, managed, work }
}

fn uri(task: &Task<'_>) -> String {
    task.resource.object(&task.key.namespace, &task.key.name)
}

/// Whether anybody but us has written fields of a fresh object.
fn has_other_appliers(object: &Value) -> bool {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|entry| {
            let manager = entry["manager"].as_str().unwrap_or_default();
            let sub = entry["subresource"].as_str().unwrap_or_default();
            sub.is_empty() && manager != FIELD_MANAGER && manager != RETAINED_FIELD_MANAGER
        })
}
