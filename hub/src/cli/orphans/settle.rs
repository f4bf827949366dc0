//! Carries out what an operator decides about orphans.
//!
//! An order is an annotation on the Work that the objects name; where there is none any more, an empty,
//! suspended one is made to carry it. To delete, the order names the objects by UID, so that a hub which
//! is restored with an old order in it cannot delete anything else. To adopt, the agent shows in the
//! Work's status what the Work wanted, and that becomes its spec.

use super::{by_work, chosen, get, report};
use crate::cli::{CliError, Kind, Output};
use common::api::cluster::{Cluster, OrphanedObject};
use common::api::work::{DISPATCHING, Work};
use common::duration;
use common::labels::{DELETE_ORPHANS, TELL_ORPHANS};
use common::names::ClusterName;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(500);
const FIELD_MANAGER: &str = "towline-orphans";
/// Group of Works, under which the agent tells of a Work itself.
const GROUP: &str = "work.karmada.io";

/// What is to become of orphans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// They get a Work again.
    Adopt,
    /// They go.
    Delete,
}

/// One settlement.
pub(super) struct Settlement<'a> {
    cluster: &'a ClusterName,
    clusters: Api<Cluster>,
    works: Api<Work>,
    way: Way,
    wait: Duration,
    deadline: Instant,
}

/// A Work that carries an order.
struct Carrier {
    name: String,
    uid: Option<String>,
    /// Made for the order alone.
    made: bool,
}

impl<'a> Settlement<'a> {
    pub(super) fn new(client: Client, cluster: &'a ClusterName, way: Way, wait: Duration) -> Self {
        Self {
            cluster,
            clusters: Api::all(client.clone()),
            works: Api::namespaced(client, &cluster.execution_namespace()),
            way,
            wait,
            deadline: Instant::now() + wait,
        }
    }

    /// Settles what is found, and what the agent names next, until nothing is left.
    pub(super) async fn run(
        &self,
        only: &[String],
        found: Vec<OrphanedObject>,
        output: &Output,
    ) -> Result<usize, CliError> {
        let progress = output.progress("waiting for the agent");
        let mut found = found;
        let mut settled = 0;
        while !found.is_empty() {
            progress.step(format!("{} objects", found.len()));
            match self.way {
                Way::Delete => self.delete(&found).await?,
                Way::Adopt => self.adopt(&found).await?,
            }
            settled += found.len();
            let cluster = get(&self.clusters, self.cluster).await?;
            found = chosen(report(&cluster)?, only);
        }
        Ok(settled)
    }

    /// Has the agent delete these very objects.
    async fn delete(&self, found: &[OrphanedObject]) -> Result<(), CliError> {
        let mut carriers = Vec::new();
        for (work, objects) in by_work(found) {
            let uids: Vec<&str> = objects.iter().map(|o| o.uid.as_str()).collect();
            let order = json!({DELETE_ORPHANS: uids.join(",")});
            carriers.push(self.order(&work, order).await?);
        }
        let gone = self.wait_settled(found).await;
        // An order that was not carried out in time is taken back.
        for carrier in &carriers {
            self.take_back(carrier).await?;
        }
        gone
    }

    /// Writes an order on a Work, which is made when there is none.
    async fn order(&self, name: &str, order: Value) -> Result<Carrier, CliError> {
        let existing = self.works.get_opt(name).await;
        let existing = existing.map_err(failed("get", name))?;
        if let Some(work) = existing {
            let patch = json!({"metadata": {"annotations": order}});
            let patched = self.works.patch(name, &by(), &Patch::Merge(patch)).await;
            patched.map_err(failed("annotate", name))?;
            return Ok(Carrier {
                name: name.to_owned(),
                uid: work.uid(),
                made: was_made(&work),
            });
        }
        let work: Work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1",
            "kind": "Work",
            "metadata": {"name": name, "annotations": order},
            "spec": {"workload": {}, "suspendDispatching": true, "preserveResourcesOnDeletion": true},
        }))
        .map_err(|error| CliError::new(Kind::Internal, error))?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = self.works.create(&params, &work).await;
        let created = created.map_err(failed("create", name))?;
        Ok(Carrier {
            name: name.to_owned(),
            uid: created.uid(),
            made: true,
        })
    }

    async fn take_back(&self, carrier: &Carrier) -> Result<(), CliError> {
        let name = &carrier.name;
        let done = if carrier.made {
            let live = self
                .works
                .get_opt(name)
                .await
                .map_err(failed("get", name))?;
            // Only while it still is what we made: once it is a Work of its own, deleting it would
            // delete its objects.
            let Some(live) = live.filter(|w| w.uid() == carrier.uid && was_made(w)) else {
                return Ok(());
            };
            let same = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: live.uid(),
                    resource_version: live.resource_version(),
                }),
                ..DeleteParams::default()
            };
            self.works.delete(name, &same).await.map(drop)
        } else {
            let nothing = json!({TELL_ORPHANS: null, DELETE_ORPHANS: null});
            let patch = json!({"metadata": {"annotations": nothing}});
            let patched = self.works.patch(name, &by(), &Patch::Merge(patch)).await;
            patched.map(drop)
        };
        match done {
            // Gone, or changed since: one that is left over carries an order that was carried out.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            done => done.map_err(failed("clean up", name)),
        }
    }

    /// Waits until the agent does not name any of them any more.
    async fn wait_settled(&self, found: &[OrphanedObject]) -> Result<(), CliError> {
        let asked: HashSet<&str> = found.iter().map(|object| object.uid.as_str()).collect();
        loop {
            let cluster = get(&self.clusters, self.cluster).await?;
            let named = report(&cluster)?;
            let left: Vec<&OrphanedObject> = named
                .objects
                .iter()
                .filter(|object| asked.contains(object.uid.as_str()))
                .collect();
            let Some(first) = left.first() else {
                return Ok(());
            };
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
            sleep(POLL).await;
        }
    }

    /// Writes the Works anew as the agent knows them.
    async fn adopt(&self, found: &[OrphanedObject]) -> Result<(), CliError> {
        let works = by_work(found);
        let mut carriers = Vec::new();
        for name in works.keys() {
            let existing = self.works.get_opt(name).await;
            let existing = existing.map_err(failed("get", name))?;
            if existing.as_ref().is_some_and(|work| !was_made(work)) {
                for carrier in &carriers {
                    self.take_back(carrier).await?;
                }
                let text = format!(
                    "Work {name:?} exists and does not name what it left behind; only you know whether \
                     it should"
                );
                return Err(CliError::message(Kind::Unmet, text)
                    .hint("Add the manifests to that Work, and they are its own again.")
                    .hint(format!("Or delete the objects: --delete --work {name}.")));
            }
            carriers.push(self.order(name, json!({TELL_ORPHANS: "true"})).await?);
        }
        let mut written = Ok(());
        for carrier in &carriers {
            if written.is_ok() {
                written = self.write_anew(carrier).await;
            }
            if written.is_err() {
                self.take_back(carrier).await?;
            }
        }
        written?;
        self.wait_settled(found).await
    }

    /// Makes what the agent tells of a Work its spec.
    async fn write_anew(&self, carrier: &Carrier) -> Result<(), CliError> {
        let name = &carrier.name;
        let work = self.wait_told(name).await?;
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
                "annotations": {TELL_ORPHANS: null},
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
    async fn wait_told(&self, name: &str) -> Result<Work, CliError> {
        loop {
            let work = self.works.get(name).await.map_err(failed("get", name))?;
            if is_told(&work) {
                return Ok(work);
            }
            if Instant::now() >= self.deadline {
                let waited = duration::format(self.wait);
                let text = format!("the agent did not answer about Work {name:?} within {waited}");
                return Err(CliError::message(Kind::Unavailable, text)
                    .hint("Check that the cluster is Ready."));
            }
            sleep(POLL).await;
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

/// Whether a Work was made to carry an order, by this command or by one that was interrupted.
fn was_made(work: &Work) -> bool {
    let ordered = [TELL_ORPHANS, DELETE_ORPHANS];
    let carries = ordered
        .iter()
        .any(|key| work.annotations().contains_key(*key));
    carries
        && work.spec.workload.manifests.is_empty()
        && work.spec.suspend_dispatching == Some(true)
}

/// Whether the agent has looked at a Work that carries an order: it says that it delivers nothing.
fn is_told(work: &Work) -> bool {
    let conditions = work.status.as_ref().map(|status| &status.conditions);
    conditions.is_some_and(|all| {
        let condition = common::conditions::get(all, DISPATCHING);
        condition.is_some_and(|c| c.status == "False")
    })
}

/// The manifests that the agent tells of, in their order, and whether they were to outlive their Work;
/// none when one is missing.
fn told(work: &Work) -> Option<(Vec<Value>, bool)> {
    let told = &work.status.as_ref()?.manifest_statuses;
    let (itself, told): (Vec<_>, Vec<_>) = told
        .iter()
        .partition(|one| one.identifier.kind == "Work" && one.identifier.group == GROUP);
    let preserve = itself.iter().any(|one| {
        let status = one.status.as_ref();
        status.is_some_and(|status| status["preserveResourcesOnDeletion"] == true)
    });
    let mut manifests: Vec<(i64, Value)> = told
        .into_iter()
        .map(|one| Some((one.identifier.ordinal, one.status.clone()?)))
        .collect::<Option<_>>()?;
    manifests.sort_by_key(|(ordinal, _)| *ordinal);
    (!manifests.is_empty()).then(|| (manifests.into_iter().map(|(_, m)| m).collect(), preserve))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(value: Value) -> Work {
        serde_json::from_value(value).expect("a Work")
    }

    #[test]
    fn only_an_empty_work_with_an_order_was_made_for_it() {
        let base = |annotation: &str, manifests: Value| {
            work(
                json!({"metadata": {"name": "w", "annotations": {annotation: "true"}},
                "spec": {"suspendDispatching": true, "workload": {"manifests": manifests}}}),
            )
        };
        assert!(was_made(&base(TELL_ORPHANS, json!([]))));
        assert!(was_made(&base(DELETE_ORPHANS, json!([]))));
        assert!(!was_made(&base(DELETE_ORPHANS, json!([{"kind": "A"}]))));
        assert!(!was_made(&base("other", json!([]))));
    }

    #[test]
    fn what_is_told_is_taken_whole_or_not_at_all() {
        let entry = |ordinal: i64, status: Value| {
            json!({"identifier": {"ordinal": ordinal, "version": "v1", "kind": "ConfigMap", "name": "a"},
                "status": status})
        };
        let with = |entries: Value| {
            work(json!({"metadata": {"name": "w"}, "spec": {},
                "status": {"conditions": [{"type": "Dispatching", "status": "False", "reason": "r",
                    "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}],
                    "manifestStatuses": entries}}))
        };
        let whole = with(json!([
            entry(1, json!({"b": 1})),
            entry(0, json!({"a": 1}))
        ]));
        assert!(is_told(&whole));
        let manifests = vec![json!({"a": 1}), json!({"b": 1})];
        assert_eq!(told(&whole), Some((manifests, false)));
        let itself = json!({"identifier": {"ordinal": 1, "group": "work.karmada.io", "version": "v1alpha1",
            "kind": "Work", "name": "w"}, "status": {"preserveResourcesOnDeletion": true}});
        let kept = with(json!([entry(0, json!({"a": 1})), itself]));
        assert_eq!(told(&kept), Some((vec![json!({"a": 1})], true)));
        assert_eq!(told(&with(json!([entry(0, Value::Null)]))), None);
        assert_eq!(told(&with(json!([]))), None);
        assert!(!is_told(&work(
            json!({"metadata": {"name": "w"}, "spec": {}})
        )));
    }
}
