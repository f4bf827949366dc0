//! Applying the manifests of a Work, rank by rank.

pub mod object;
#[cfg(test)]
mod tests;

use super::desired::{Desired, WorkRef};
use super::intake::autoscalers::Autoscalers;
use super::manifest::Manifest;
use super::order::rank;
use super::reconcile::job::Job;
use super::state::{LiveRecord, ObjectKey, Shared};
use super::wire::LiveMeta;
use super::{FIRST_LIST, Scope, errors};
use crate::member::api::Member;
use common::mapper::Resource;
use common::rest::{Call, Error, METADATA_ONLY};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use object::{ObjectApplier, Outcome, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long custom resources wait for the definition that comes with them.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);

/// The end of one manifest's round.
pub struct Ended {
    /// Its number in the Work.
    pub ordinal: usize,
    /// Its object.
    pub key: Arc<ObjectKey>,
    /// Of what is wanted.
    pub hash: u64,
    /// What became of it.
    pub outcome: Outcome,
}

/// Applies what Works want.
pub struct Applier {
    pub(super) scope: Scope,
    pub(super) member: Arc<Member>,
    pub(super) state: Shared,
    pub(super) autoscalers: Arc<Autoscalers>,
    pub(super) objects: ObjectApplier,
}

impl Applier {
    /// Applies all manifests, rank by rank, and says what became of each.
    pub async fn apply(&self, job: &Job) -> Vec<Ended> {
        if job.first {
            self.await_first_lists(job).await;
        }
        self.apply_all(job).await
    }

    /// After a start objects that are as wanted need no request, once the watches have listed them.
    async fn await_first_lists(&self, job: &Job) {
        let applied_before = {
            let state = self.state.lock();
            state
                .works
                .get(&job.name)
                .is_some_and(|r| !r.conditions.is_empty() || !r.confirmed)
        };
        for manifest in job.manifests.iter().flatten() {
            if let Ok(Some(resource)) = self.member.resolve(&manifest.target.gvk).await {
                self.member.kinds.ensure(&resource);
            }
        }
        if applied_before {
            for manifest in job.manifests.iter().flatten() {
                let kind = &manifest.target.gvk;
                self.member.kinds.wait_synced(kind, FIRST_LIST).await;
            }
        }
    }

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
        let groups: BTreeSet<&str> = job
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
            while let Ok(None) = self.member.resolve(gvk).await {
                if tokio::time::Instant::now() >= deadline {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn apply_manifest(&self, job: &Job, ordinal: usize, manifest: &Manifest) -> Ended {
        let target = &manifest.target;
        let resolved = self.member.resolve(&target.gvk).await;
        let namespaced = match &resolved {
            Ok(Some(resource)) => resource.namespaced,
            _ => !target.namespace.is_empty(),
        };
        let namespace = if namespaced { &target.namespace } else { "" };
        let reserved = self.member.reserved(&target.gvk, namespace, &target.name);
        let (key, first) = {
            let mut state = self.state.lock();
            if let Ok(Some(resource)) = &resolved {
                state.served(&resource.gvk);
                if resource.namespaced {
                    // A kind may be made anew with another scope.
                    state.scoped(&resource.gvk, true);
                }
            }
            let key = state.key_of(target, namespace);
            // What no Work reaches is nobody's to want.
            let first = match &reserved {
                Some(_) => None,
                None => state.want(&key, &job.name),
            };
            (key, first)
        };
        let work = WorkRef {
            namespace: &self.scope.namespace,
            name: &job.name,
        };
        let desired_if = |scaled| Desired::new(manifest, work, namespaced, scaled);
        let resource = resolved.as_ref().ok().and_then(Option::as_ref);
        let resource = resource.filter(|_| reserved.is_none());
        let scaled = self.leaves_replicas(job, manifest, resource, &key).await;
        let scaled = match scaled {
            Ok(scaled) => scaled,
            Err(error) => {
                let outcome = match resource {
                    Some(resource) if !error.is_outage() => {
                        Outcome::Failed(errors::refused(&error, target, resource))
                    }
                    _ => Outcome::Outage(error),
                };
                return Ended {
                    ordinal,
                    key,
                    hash: desired_if(false).hash,
                    outcome,
                };
            }
        };
        let rescaled = || desired_if(!scaled).hash;
        let desired = desired_if(scaled);
        let hash = desired.hash;
        let end = |outcome| Ended {
            ordinal,
            key: key.clone(),
            hash,
            outcome,
        };
        if let Some(rule) = reserved {
            return end(Outcome::Failed(errors::reserved(target, &rule)));
        }
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
        self.member.kinds.ensure(&resource);
        if let Some(first) = first
            && !desired.overwrite
            && self.state.lock().live(&key).is_none()
        {
            // Both would find nothing and create it; the one that came first does.
            let other = format!("{}/{first}", self.scope.namespace);
            let refusal = super::decide::Refusal::OtherWork;
            return end(Outcome::Failed(refusal.text(
                target,
                &self.scope.cluster,
                &other,
            )));
        }
        let failure = job
            .items
            .get(ordinal)
            .and_then(|item| item.failure.as_ref())
            .filter(|failure| failure.hash == hash);
        // An autoscaler that came or went while nobody looked leaves the mark of the same manifest.
        let was_rescaled = || {
            let other = rescaled();
            let has_mark = |live: &LiveRecord| live.hash == Some(other);
            other != hash && self.state.lock().live(&key).is_some_and(has_mark)
        };
        let before = job
            .before
            .iter()
            .find(|m| m.target.same_object(target))
            .map(|m| &m.body)
            .or_else(|| (job.was_applied(ordinal) || was_rescaled()).then_some(&manifest.body));
        let task = Task {
            work: &job.name,
            manifest,
            resource: &resource,
            key: key.clone(),
            desired,
            before,
            scripts: job.scripts.as_deref(),
            retry_at: failure.map(|f| f.retry_at),
            unconfirmed: (!job.confirmed).then(rescaled),
        };
        let outcome = self.objects.apply(&task).await;
        if matches!(outcome, Outcome::Done) && task.desired.overwrite {
            self.state.lock().want_first(&key, &job.name);
        }
        end(outcome)
    }

    /// Whether the replicas of an object are left to the member: where an autoscaler decides them; and while that is not
    /// known, where they are not ours.
    async fn leaves_replicas(
        &self,
        job: &Job,
        manifest: &Manifest,
        resource: Option<&Arc<Resource>>,
        key: &ObjectKey,
    ) -> Result<bool, Error> {
        let scaled = self
            .autoscalers
            .is_scaled(&job.name, manifest, &key.namespace);
        let resource = match (scaled.await, resource) {
            (None, Some(resource)) => resource,
            (scaled, _) => return Ok(scaled.unwrap_or_default()),
        };
        let uri = resource.object(&key.namespace, &key.name);
        match self.member.ask(Call::get(&uri, METADATA_ONLY)).await {
            Ok(reply) => {
                let live = LiveMeta::read(&reply.json()?);
                Ok(live.fields.pointer("/f:spec/f:replicas").is_none())
            }
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
