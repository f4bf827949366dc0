//! Bringing one Work to the member.

use super::object::{Outcome, Task};
use super::{BACKOFF_BASE, BACKOFF_CAP, Engine, FIRST_LIST};
use crate::execution::conditions::{self, Verdict};
use crate::execution::decide::Waiting;
use crate::execution::desired::{Desired, WorkRef};
use crate::execution::errors;
use crate::execution::events::Kind;
use crate::execution::manifest::{BadManifest, Manifest, Target, read_all};
use crate::execution::order::rank;
use crate::execution::state::{Failure, Item, ObjectKey};
use chrono::{DateTime, Utc};
use common::backoff::Backoff;
use common::errors::chain;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long custom resources wait for the definition that comes with them.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);

/// How long a worker waits for the hub to take a report, before it leaves that to others.
const REPORT_WITHIN: Duration = Duration::from_secs(3);

/// A Work as one round works on it.
pub(super) struct Job {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    pub(super) hash: u64,
    pub(super) manifests: Vec<Result<Manifest, BadManifest>>,
    pub(super) items: Vec<Item>,
    before: Vec<Manifest>,
    first: bool,
}

impl Job {
    /// Whether this very manifest is what was applied last.
    fn was_applied(&self, ordinal: usize) -> bool {
        let item = self.items.get(ordinal);
        self.before.is_empty()
            && item.is_some_and(|item| item.key.is_some() && item.failure.is_none())
    }
}

/// The end of one manifest's round.
struct Ended {
    ordinal: usize,
    key: Arc<ObjectKey>,
    hash: u64,
    outcome: Outcome,
}

impl Engine {
    /// Works on a Work until nothing is left to do now.
    pub(super) async fn sync(&self, name: &Arc<str>) {
        let (deleting, suspended, finalizer, ordered) = {
            let state = self.state();
            let Some(record) = state.works.get(name) else {
                return;
            };
            if !record.confirmed && !self.is_alone() {
                return;
            }
            let ordered = !record.order.delete.is_empty();
            let finalizer = record.has_finalizer();
            (record.deleting, record.suspended, finalizer, ordered)
        };
        if deleting {
            self.delete_work(name).await;
            return;
        }
        if ordered && self.delete_orphans(name).await {
            self.enqueue_after(name, Duration::from_secs(2));
        }
        if suspended {
            self.set_verdicts(name, vec![conditions::dispatching(true)]);
            self.report(name).await;
            return;
        }
        if !finalizer {
            if let Some(until) = self.contact.rests_until() {
                self.enqueue_at(name, until);
                return;
            }
            match self.write_finalizer(name, true).await {
                Ok(true) => self.keep_work(name),
                // Gone or new: the watch says which.
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(work = %name, error = %chain(&error), "failed to add the finalizer");
                    self.hub_failed(&error);
                    self.enqueue_after(name, Duration::from_secs(2));
                    return;
                }
            }
        }
        let Some(job) = self.job(name) else { return };
        if job.first {
            self.await_first_lists(&job).await;
        }
        let ended = self.apply_all(&job).await;

        self.conclude(job, ended).await;
    }

    pub(super) fn job(&self, name: &Arc<str>) -> Option<Job> {
        let state = self.state();
        let record = state.works.get(name)?;
        let before = record
            .before
            .as_ref()
            .map(|packed| parse(&packed.text()))
            .unwrap_or_default();
        Some(Job {
            name: name.clone(),
            uid: record.uid.to_string(),
            hash: record.hash,
            manifests: parse(&record.manifests.text()),
            items: record.items.clone(),
            before: before.into_iter().filter_map(Result::ok).collect(),
            first: record.items.is_empty(),
        })
    }

    /// After a start objects that are as wanted need no request, once the watches have listed them.
    async fn await_first_lists(&self, job: &Job) {
        let applied_before = {
            let state = self.state();
            state
                .works
                .get(&job.name)
                .is_some_and(|r| !r.conditions.is_empty() || !r.confirmed)
        };
        for manifest in job.manifests.iter().flatten() {
            if let Ok(Some(resource)) = self.resolve(&manifest.target.gvk).await {
                self.kinds.ensure(&resource);
            }
            if applied_before {
                self.kinds
                    .wait_synced(&manifest.target.gvk, FIRST_LIST)
                    .await;
            }
        }
    }

    /// Applies all manifests, rank by rank.
    async fn apply_all(&self, job: &Job) -> Vec<Ended> {
        let mut ranks: BTreeMap<u8, Vec<(usize, &Manifest)>> = BTreeMap::new();
        for (ordinal, manifest) in job.manifests.iter().enumerate() {
            if let Ok(manifest) = manifest {
                ranks
                    .entry(rank(&manifest.target.gvk))
                    .or_default()
                    .push((ordinal, manifest));
            }
        }
        let mut ended = Vec::with_capacity(job.manifests.len());
        for group in ranks.into_values() {
            let mut running: FuturesUnordered<_> = group
                .into_iter()
                .map(|(ordinal, manifest)| self.apply_manifest(job, ordinal, manifest))
                .collect();
            while let Some(one) = running.next().await {
                ended.push(one);
            }
            drop(running);
            self.await_new_kinds(job, &ended).await;
        }
        ended
    }

    /// After a CustomResourceDefinition: what follows may be of its kind.
    async fn await_new_kinds(&self, job: &Job, ended: &[Ended]) {
        let is_done = |ordinal: usize| {
            ended
                .iter()
                .any(|e| e.ordinal == ordinal && matches!(e.outcome, Outcome::Done))
        };
        let groups: HashSet<&str> = job
            .manifests
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some((i, m.as_ref().ok()?)))
            .filter(|(i, m)| m.target.gvk.kind == "CustomResourceDefinition" && is_done(*i))
            .filter_map(|(_, m)| m.body.pointer("/spec/group")?.as_str())
            .collect();
        let waiting = job.manifests.iter().enumerate().filter_map(|(i, m)| {
            let gvk = &m.as_ref().ok()?.target.gvk;
            (!ended.iter().any(|e| e.ordinal == i) && groups.contains(gvk.group.as_str()))
                .then_some(gvk)
        });
        let deadline = tokio::time::Instant::now() + ESTABLISHED_WITHIN;
        for gvk in waiting {
            while let Ok(None) = self.resolve(gvk).await {
                if tokio::time::Instant::now() >= deadline {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn apply_manifest(&self, job: &Job, ordinal: usize, manifest: &Manifest) -> Ended {
        let target = &manifest.target;
        let resolved = self.resolve(&target.gvk).await;
        let namespaced = match &resolved {
            Ok(Some(resource)) => resource.namespaced,
            _ => !target.namespace.is_empty(),
        };
        let namespace = if namespaced { &target.namespace } else { "" };
        let (key, first) = {
            let mut state = self.state();
            let key = state.key_of(target, namespace);
            let first = state.want(&key, &job.name);
            (key, first)
        };
        let work = WorkRef {
            namespace: &self.namespace,
            name: &job.name,
        };
        let scaled = self.is_scaled(manifest, namespace).await;
        let desired = Desired::new(manifest, work, namespaced, scaled);
        let hash = desired.hash;
        let end = |outcome| Ended {
            ordinal,
            key: key.clone(),
            hash,
            outcome,
        };
        let resource = match resolved {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                return end(Outcome::Failed(errors::unknown_kind(target)));
            }
            Err(error) => return end(Outcome::Outage(error)),
        };
        if namespaced && target.namespace.is_empty() {
            return end(Outcome::Failed(errors::no_namespace(target)));
        }
        self.kinds.ensure(&resource);
        if let Some(first) = first
            && !desired.overwrite
            && self.state().live(&key).is_none()
        {
            // Both would find nothing and create it; the one that came first does.
            let other = format!("{}/{first}", self.namespace);
            let refusal = crate::execution::decide::Refusal::OtherWork;
            return end(Outcome::Failed(refusal.text(target, &self.cluster, &other)));
        }
        let failure = job
            .items
            .get(ordinal)
            .and_then(|item| item.failure.as_ref())
            .filter(|failure| failure.hash == hash);
        // An autoscaler that came or went while nobody looked leaves the mark of the same manifest.
        let rescaled = || {
            let other = Desired::new(manifest, work, namespaced, !scaled).hash;
            other != hash
                && self
                    .state()
                    .live(&key)
                    .is_some_and(|l| l.hash == Some(other))
        };
        let before = job
            .before
            .iter()
            .find(|m| m.target.same_object(target))
            .map(|m| &m.body)
            .or_else(|| (job.was_applied(ordinal) || rescaled()).then_some(&manifest.body));
        let task = Task {
            work: &job.name,
            manifest,
            resource: &resource,
            key: key.clone(),
            desired,
            before,
            retry_at: failure.map(|f| f.retry_at),
        };
        let outcome = self.apply_object(&task).await;
        if matches!(outcome, Outcome::Done) && task.desired.overwrite {
            self.state().want_first(&key, &job.name);
        }
        end(outcome)
    }

    /// Takes note of what became of the manifests, prunes what left, and reports.
    async fn conclude(&self, job: Job, ended: Vec<Ended>) {
        let now = self.clock.now();
        let mut again: Option<DateTime<Utc>> = None;
        let mut soonest = |at: DateTime<Utc>| again = Some(again.map_or(at, |old| old.min(at)));
        let mut texts: BTreeMap<usize, String> = job
            .manifests
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some((i, m.as_ref().err()?.to_string())))
            .collect();
        let mut items: Vec<Item> = vec![Item::default(); job.manifests.len()];
        let mut outage = None;
        let mut notes = Vec::new();
        {
            let mut state = self.state();
            for (item, manifest) in items.iter_mut().zip(&job.manifests) {
                item.gvk = manifest.as_ref().ok().map(|m| state.version(&m.target.gvk));
            }
        }
        for end in ended {
            let previous = job
                .items
                .get(end.ordinal)
                .and_then(|item| item.failure.clone());
            let item = &mut items[end.ordinal];
            item.key = Some(end.key);
            match end.outcome {
                Outcome::Done => {}
                Outcome::Failed(message) => {
                    let failure = next_failure(previous, message.clone(), end.hash, now);
                    soonest(failure.retry_at);
                    texts.insert(end.ordinal, message);
                    item.failure = Some(failure);
                }
                Outcome::Later(at, why) => {
                    soonest(at);
                    let target = job.manifests[end.ordinal].as_ref().ok().map(|m| &m.target);
                    match (why, previous, target) {
                        (Waiting::Backoff, Some(failure), _) => {
                            texts.insert(end.ordinal, failure.message.clone());
                            item.failure = Some(failure);
                        }
                        (Waiting::Held, _, Some(target)) => {
                            notes.push(format!("{target} is held until {}", stamp(at)));
                        }
                        (Waiting::Fight, _, Some(target)) => notes.push(format!(
                            "{target} is changed by others again and again; it is healed next at {}",
                            stamp(at)
                        )),
                        _ => {}
                    }
                }
                Outcome::Outage(error) => {
                    let delay = error.retry_after().unwrap_or(Duration::from_secs(2));
                    soonest(now + delay);
                    item.failure = previous;
                    outage = Some(error);
                }
            }
        }
        let errors: Vec<String> = texts.into_values().collect();
        let (confirmed, leaving) =
            self.note_round(&job, items, errors.is_empty() && outage.is_none());
        if let Some(error) = &outage {
            // Nothing is known about the objects: the conditions stay as they are.
            tracing::warn!(work = %job.name, error = %chain(error), "the member does not answer");
            self.errors.report("member", &chain(error));
        } else {
            self.errors.clear("member");
            let applied = conditions::applied(job.manifests.len(), &errors);
            let mut verdicts = vec![applied, conditions::dispatching(false)];
            let degraded = self.state().works.get(&job.name).is_some_and(|record| {
                common::conditions::get(&record.conditions, conditions::DEGRADED).is_some()
            });
            if degraded || !notes.is_empty() {
                verdicts.push(conditions::degraded(&notes));
            }
            // The hub learns it when it is back; then it is looked at again.
            if confirmed {
                self.set_verdicts(&job.name, verdicts);
            }
        }
        let waiting = self.prune(&job, leaving).await;
        if waiting {
            soonest(now + Duration::from_secs(5));
        }
        self.report(&job.name).await;
        if let Some(at) = again {
            let delay = (at - now).to_std().unwrap_or_default();
            self.enqueue_after(&job.name, delay.max(Duration::from_millis(50)));
        }
    }

    /// Stores the round's results; returns whether the hub knows the Work, and what is to leave.
    fn note_round(&self, job: &Job, items: Vec<Item>, complete: bool) -> (bool, Vec<Target>) {
        let mut state = self.state();
        let keep: HashSet<Arc<ObjectKey>> = items.iter().filter_map(|i| i.key.clone()).collect();
        let bad = job.manifests.iter().any(Result::is_err);
        let left: Vec<Target> = state
            .works
            .get(&job.name)
            .map(|record| record.leaving.clone())
            .unwrap_or_default();
        let left = left.iter().map(|t| state.key_of(t, &t.namespace));
        let left: Vec<Arc<ObjectKey>> = left.collect();
        let gone: HashSet<Arc<ObjectKey>> = job
            .items
            .iter()
            .filter_map(|item| item.key.clone())
            .chain(left)
            .filter(|key| !keep.contains(key))
            .collect();
        let mut others = BTreeSet::new();
        for key in &gone {
            others.extend(state.unwant(key, &job.name));
        }
        let Some(record) = state.works.get_mut(&job.name) else {
            return (false, Vec::new());
        };
        if *record.uid != job.uid {
            return (false, Vec::new());
        }
        record.items = items;
        if complete && record.hash == job.hash {
            record.before = None;
        }
        // A manifest that cannot be read may be the one that is missing.
        let leaving = if bad {
            Vec::new()
        } else {
            record.leaving.clone()
        };
        let confirmed = record.confirmed;
        drop(state);
        for other in others {
            self.enqueue(&other, super::Urgency::Now);
        }
        (confirmed, leaving)
    }

    /// Sets what the conditions should say, and tells by Events what is new.
    pub(super) fn set_verdicts(&self, name: &Arc<str>, verdicts: Vec<Verdict>) {
        let mut state = self.state();
        let Some(record) = state.works.get_mut(name) else {
            return;
        };
        let uid = record.uid.to_string();
        let mut events = Vec::new();
        for verdict in &verdicts {
            let stands = common::conditions::get(&record.conditions, verdict.kind);
            let status = if verdict.status { "True" } else { "False" };
            let same = stands.is_some_and(|c| c.status == status && c.message == verdict.message);
            if same {
                continue;
            }
            let flips = stands.is_none_or(|c| c.status != status);
            let work = format!("work({}/{name})", self.namespace);
            let cluster = &self.cluster;
            match (verdict.kind, verdict.status) {
                (conditions::APPLIED, true) => events.push((
                    Kind::Succeeded,
                    format!("Sync {work} to cluster({cluster}) successful."),
                )),
                (conditions::APPLIED, false) => {
                    let error = verdict
                        .message
                        .split_once("): ")
                        .map_or(verdict.message.as_str(), |(_, e)| e);
                    events.push((
                        Kind::Failed,
                        format!("Failed to sync {work} to cluster({cluster}), err: {error}"),
                    ));
                    tracing::warn!(work = %name, error, "failed to apply");
                }
                (conditions::DISPATCHING, _) if flips => {
                    events.push((Kind::Dispatching, verdict.message.clone()));
                }
                _ => {}
            }
        }
        record.verdicts = verdicts;
        drop(state);
        for (kind, message) in events {
            self.emit(name, &uid, kind, message);
        }
    }

    /// Reports now; later when the hub does not take it.
    pub(super) async fn report(&self, name: &Arc<str>) {
        if self.contact.rests_until().is_some() {
            self.report_soon(name, true);
            return;
        }
        match tokio::time::timeout(REPORT_WITHIN, self.write_report(name)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(work = %name, error = %chain(&error), "failed to report");
                self.hub_failed(&error);
                self.report_soon(name, true);
            }
            Err(_) => {
                // Whether it was written shows when it is tried again.
                self.contact.failed();
                self.report_soon(name, true);
            }
        }
    }
}

fn parse(text: &str) -> Vec<Result<Manifest, BadManifest>> {
    // The schema says it is a list; a Work with anything else has nothing that could be applied.
    let raw: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let texts: Vec<&str> = raw.iter().map(|r| r.get()).collect();
    read_all(&texts)
}

fn stamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn next_failure(
    previous: Option<Box<Failure>>,
    message: String,
    hash: u64,
    now: DateTime<Utc>,
) -> Box<Failure> {
    let mut failure = previous
        .filter(|failure| failure.hash == hash)
        .unwrap_or_else(|| {
            Box::new(Failure {
                message: String::new(),
                hash,
                backoff: Backoff::new(BACKOFF_BASE, BACKOFF_CAP),
                retry_at: now,
            })
        });
    let delay = failure.backoff.next(&mut rand::rng());
    failure.retry_at = now + delay;
    failure.message = message;
    failure
}
