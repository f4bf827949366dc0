//! Carries out what an operator decides about orphans.
//!
//! An order is an annotation on the Work that the objects name; where there is none any more, an empty,
//! suspended one is made to carry it. To delete, the order names the objects by UID, so that a hub which
//! is restored with an old order in it cannot delete anything else. To adopt, the agent shows in the
//! Work's status what the Work wanted, and that becomes its spec.
//!
//! No order outlives the command, unless it was killed: one that was not carried out would be carried out whenever the
//! agent is back, whatever was decided since. Every order also takes back what stands there of another one.

mod carried;
#[cfg(test)]
mod tests;

use super::{by_work, chosen, get, report};
use crate::cli::error::{code_of, is_refusal, or_later};
use crate::cli::{CliError, Kind, Output};
use carried::{is_told, told, was_made};
use common::api::cluster::{Cluster, OrphanedObject};
use common::api::work::Work;
use common::duration;
use common::labels::{DELETE_ORPHANS, TELL_ORPHANS};
use common::names::ClusterName;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const POLL: Duration = Duration::from_millis(500);
const FIELD_MANAGER: &str = "towline-orphans";
/// Deletions of one Work, and those that others' writes come between.
const TRIES: usize = 5;

/// What is to become of orphans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// They get a Work again.
    Adopt,
    /// They go.
    Delete,
}

impl Way {
    /// The order of these objects: the annotation and its value.
    fn order(self, objects: &[OrphanedObject]) -> (&'static str, String) {
        match self {
            Self::Adopt => (TELL_ORPHANS, "true".to_owned()),
            Self::Delete => {
                let uids: Vec<&str> = objects.iter().map(|o| o.uid.as_str()).collect();
                (DELETE_ORPHANS, uids.join(","))
            }
        }
    }
}

/// One settlement.
pub(super) struct Settlement<'a> {
    cluster: &'a ClusterName,
    namespace: String,
    clusters: Api<Cluster>,
    works: Api<Work>,
    way: Way,
    wait: Duration,
    deadline: Instant,
    /// Whoever runs the command wants it to end.
    stop: CancellationToken,
}

/// A Work that carries an order.
struct Carrier {
    name: String,
    /// None of one whose making was not answered.
    uid: Option<String>,
    /// Made for the order alone.
    made: bool,
}

/// More than was asked about.
fn more(settled: usize, found: usize) -> CliError {
    let text = format!(
        "{settled} objects are deleted, and there are {found} that were orphaned since you were asked"
    );
    CliError::message(Kind::Unmet, text).hint("Run it again: it tells how many, and asks.")
}

impl<'a> Settlement<'a> {
    /// `stop` ends it before its time, with its orders taken back.
    pub(super) fn new(
        client: Client,
        cluster: &'a ClusterName,
        way: Way,
        wait: Duration,
        stop: CancellationToken,
    ) -> Self {
        let namespace = cluster.execution_namespace();
        Self {
            cluster,
            clusters: Api::all(client.clone()),
            works: Api::namespaced(client, &namespace),
            namespace,
            way,
            wait,
            deadline: Instant::now() + wait,
            stop,
        }
    }

    /// Settles what is found, and what the agent names next, until nothing is left. Of all Works no more than `asked`
    /// objects are deleted: whoever agreed to that has not heard of what is orphaned meanwhile.
    pub(super) async fn run(
        &self,
        only: &[String],
        found: Vec<OrphanedObject>,
        asked: usize,
        output: &Output,
    ) -> Result<usize, CliError> {
        let progress = output.progress("waiting for the agent");
        let mut found = found;
        let mut settled = 0;
        while !found.is_empty() {
            if self.way == Way::Delete && only.is_empty() && settled + found.len() > asked {
                return Err(more(settled, found.len()));
            }
            progress.step(format!("{} objects", found.len()));
            self.settle(&found).await?;
            settled += found.len();
            let cluster = get(&self.clusters, self.cluster).await?;
            found = chosen(report(&cluster)?, only);
        }
        Ok(settled)
    }

    /// Settles these very objects. An order that was not carried out is taken back, however it ends.
    async fn settle(&self, found: &[OrphanedObject]) -> Result<(), CliError> {
        let mut carriers = Vec::new();
        let settled = match self.way {
            Way::Delete => self.delete(found, &mut carriers).await,
            Way::Adopt => self.adopt(found, &mut carriers).await,
        };
        let withdrawn = self.withdraw(&carriers).await;
        match (settled, withdrawn) {
            (Err(error), Err(left)) => Err(left.hints.into_iter().fold(error, CliError::hint)),
            (settled, withdrawn) => settled.and(withdrawn),
        }
    }

    /// Has the agent delete these very objects.
    async fn delete(
        &self,
        found: &[OrphanedObject],
        carriers: &mut Vec<Carrier>,
    ) -> Result<(), CliError> {
        for (work, objects) in by_work(found) {
            let existing = self.existing(&work).await?;
            self.order(&work, existing, &objects, carriers).await?;
        }
        self.wait_settled(found).await
    }

    async fn existing(&self, name: &str) -> Result<Option<Work>, CliError> {
        let existing = self.works.get_opt(name).await;
        existing.map_err(failed("get", name))
    }

    /// Writes an order on a Work, which is made when there is none. It is among the carriers before it is written: it may
    /// be there though nobody answered.
    async fn order(
        &self,
        name: &str,
        existing: Option<Work>,
        objects: &[OrphanedObject],
        carriers: &mut Vec<Carrier>,
    ) -> Result<(), CliError> {
        self.goes_on(objects.len())?;
        let (key, value) = self.way.order(objects);
        carriers.push(Carrier {
            name: name.to_owned(),
            uid: existing.as_ref().and_then(Work::uid),
            made: existing.as_ref().is_none_or(was_made),
        });
        let (verb, written) = match existing {
            Some(work) => {
                let mut order = json!({TELL_ORPHANS: null, DELETE_ORPHANS: null});
                order[key] = json!(value);
                let patch = json!({"metadata": {"uid": work.uid(), "annotations": order}});
                let patched = self.works.patch(name, &by(), &Patch::Merge(patch)).await;
                ("annotate", patched)
            }
            None => {
                let work: Work = serde_json::from_value(json!({
                    "apiVersion": "work.karmada.io/v1alpha1",
                    "kind": "Work",
                    "metadata": {"name": name, "annotations": {key: value}},
                    "spec": {"workload": {}, "suspendDispatching": true, "preserveResourcesOnDeletion": true},
                }))
                .map_err(|error| CliError::new(Kind::Internal, error))?;
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                ("create", self.works.create(&params, &work).await)
            }
        };
        match written {
            Ok(work) => {
                if let Some(carrier) = carriers.last_mut() {
                    carrier.uid = work.uid();
                }
                Ok(())
            }
            Err(error) => {
                if is_refusal(code_of(&error)) {
                    carriers.pop();
                }
                Err(failed(verb, name)(error))
            }
        }
    }

    /// Takes back every order that still stands, and says which could not be.
    async fn withdraw(&self, carriers: &[Carrier]) -> Result<(), CliError> {
        let mut failure: Option<CliError> = None;
        let mut left = Vec::new();
        for carrier in carriers {
            // Who does not answer for one answers for no other.
            let is_away = failure
                .as_ref()
                .is_some_and(|it| it.kind == Kind::Unavailable);
            let taken_back = match is_away {
                true => None,
                false => Some(self.take_back(carrier).await),
            };
            match taken_back {
                Some(Ok(())) => continue,
                Some(Err(error)) => failure = failure.or(Some(error)),
                None => {}
            }
            left.push(carrier);
        }
        let Some(mut failure) = failure else {
            return Ok(());
        };
        // An order to tell changes nothing in the member, and the next command goes on from it.
        let (made, others): (Vec<&Carrier>, Vec<&Carrier>) = left
            .into_iter()
            .filter(|_| self.way == Way::Delete)
            .partition(|carrier| carrier.made);
        let namespace = &self.namespace;
        for (carriers, instead) in [
            (made, format!(" {TELL_ORPHANS}=true")),
            (others, String::new()),
        ] {
            if !carriers.is_empty() {
                let names: Vec<&str> = carriers.iter().map(|it| it.name.as_str()).collect();
                let names = names.join(" ");
                failure = failure.hint(format!(
                    "The order to delete may still be there, and be carried out. To take it back: `kubectl annotate \
                     works -n {namespace} {names} --overwrite {DELETE_ORPHANS}-{instead}`."
                ));
            }
        }
        Err(failure)
    }

    async fn take_back(&self, carrier: &Carrier) -> Result<(), CliError> {
        let name = &carrier.name;
        if carrier.made {
            return self.remove(carrier).await;
        }
        let nothing = json!({TELL_ORPHANS: null, DELETE_ORPHANS: null});
        let patch = json!({"metadata": {"uid": carrier.uid, "annotations": nothing}});
        match self.works.patch(name, &by(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            // It is gone, or another one is there.
            Err(error) if matches!(code_of(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(failed("clean up", name)(error)),
        }
    }

    /// Deletes a Work that was made for an order. Only while it still is that: once it is a Work of its own, deleting it
    /// would delete its objects.
    async fn remove(&self, carrier: &Carrier) -> Result<(), CliError> {
        let name = &carrier.name;
        let same = |work: &Work| carrier.uid.is_none() || work.uid() == carrier.uid;
        for _ in 0..TRIES {
            let live = self.existing(name).await?;
            let Some(live) = live.filter(|work| same(work) && was_made(work)) else {
                return Ok(());
            };
            let as_read = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: live.uid(),
                    resource_version: live.resource_version(),
                }),
                ..DeleteParams::default()
            };
            match self.works.delete(name, &as_read).await {
                Ok(_) => return Ok(()),
                Err(error) if code_of(&error) == Some(404) => return Ok(()),
                // Its agent may have said something in it meanwhile, and then the order still stands.
                Err(error) if code_of(&error) == Some(409) => {}
                Err(error) => return Err(failed("clean up", name)(error)),
            }
        }
        let text = format!("failed to clean up Work {name:?}: others keep changing it");
        Err(CliError::message(Kind::Denied, text))
    }

    /// An error once whoever runs the command wants it to end.
    fn goes_on(&self, open: usize) -> Result<(), CliError> {
        match self.stop.is_cancelled() {
            false => Ok(()),
            true => Err(CliError::message(
                Kind::Declined,
                format!("interrupted: {open} objects are not settled"),
            )),
        }
    }

    /// Waits for the next look, or until whoever runs the command wants it to end.
    async fn pause(&self) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = sleep(POLL) => {}
        }
    }

    /// Waits until the agent does not name any of them any more.
    async fn wait_settled(&self, found: &[OrphanedObject]) -> Result<(), CliError> {
        let asked: HashSet<&str> = found.iter().map(|object| object.uid.as_str()).collect();
        loop {
            let named = async {
                let cluster = get(&self.clusters, self.cluster).await?;
                report(&cluster).cloned()
            };
            let Some(named) = or_later(named.await, self.deadline)? else {
                self.goes_on(found.len())?;
                self.pause().await;
                continue;
            };
            let left: Vec<&OrphanedObject> = named
                .objects
                .iter()
                .filter(|object| asked.contains(object.uid.as_str()))
                .collect();
            let Some(first) = left.first() else {
                return Ok(());
            };
            self.goes_on(left.len())?;
            if Instant::now() >= self.deadline {
                let waited = duration::format(self.wait);
                let text = format!(
                    "{} of {} objects are not settled after {waited}, such as {} {}",
                    left.len(),
                    found.len(),
                    first.kind,
                    first.name,
                );
                return Err(CliError::message(Kind::Unavailable, text)
                    .hint("Check that the cluster is Ready, and what `status.agent.lastError` of it says.")
                    .hint("In the member, look at the object's finalizers and at the Events of its Work."));
            }
            self.pause().await;
        }
    }

    /// Writes the Works anew as the agent knows them.
    async fn adopt(
        &self,
        found: &[OrphanedObject],
        carriers: &mut Vec<Carrier>,
    ) -> Result<(), CliError> {
        for (name, objects) in by_work(found) {
            let existing = self.existing(&name).await?;
            if existing.as_ref().is_some_and(|work| !was_made(work)) {
                let text = format!(
                    "Work {name:?} exists and does not name what it left behind; only you know whether \
                     it should"
                );
                return Err(CliError::message(Kind::Unmet, text)
                    .hint("Add the manifests to that Work, and they are its own again.")
                    .hint(format!("Or delete the objects: --delete --work {name}.")));
            }
            self.order(&name, existing, &objects, carriers).await?;
        }
        while let Some(carrier) = carriers.first() {
            self.write_anew(carrier, found.len()).await?;
            // It is a Work of its own, without an order.
            carriers.remove(0);
        }
        self.wait_settled(found).await
    }

    /// Makes what the agent tells of a Work its spec.
    async fn write_anew(&self, carrier: &Carrier, open: usize) -> Result<(), CliError> {
        let name = &carrier.name;
        let work = self.wait_told(name, open).await?;
        let Some((manifests, preserve)) = told(&work) else {
            let text = format!("the agent cannot tell what Work {name:?} wanted");
            return Err(CliError::message(Kind::Unmet, text)
                .hint(
                    "Write the Work anew yourself, by the same name: it has its objects back then.",
                )
                .hint(format!("Or delete the objects: --delete --work {name}.")));
        };
        let patch = json!({
            "metadata": {
                "uid": carrier.uid,
                "resourceVersion": work.resource_version(),
                "annotations": {TELL_ORPHANS: null, DELETE_ORPHANS: null},
            },
            "spec": {
                "workload": {"manifests": manifests},
                "suspendDispatching": null,
                "preserveResourcesOnDeletion": preserve.then_some(true),
            },
        });
        let patched = self.works.patch(name, &by(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(failed("write", name))
    }

    /// Waits until the agent has answered in a Work's status.
    async fn wait_told(&self, name: &str, open: usize) -> Result<Work, CliError> {
        loop {
            let work = self.works.get(name).await.map_err(failed("get", name));
            let work = or_later(work, self.deadline)?;
            if let Some(work) = work.filter(is_told) {
                return Ok(work);
            }
            self.goes_on(open)?;
            if Instant::now() >= self.deadline {
                let waited = duration::format(self.wait);
                let text = format!("the agent did not answer about Work {name:?} within {waited}");
                return Err(CliError::message(Kind::Unavailable, text)
                    .hint("Check that the cluster is Ready."));
            }
            self.pause().await;
        }
    }
}

fn by() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn failed(verb: &'static str, name: &str) -> impl FnOnce(kube::Error) -> CliError {
    let attempt = format!("failed to {verb} Work {name:?}");
    move |error| CliError::api(attempt, error)
}
