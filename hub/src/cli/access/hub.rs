//! Grants as the hub has them: their Works, and its own role for each user or group.

#[cfg(test)]
mod tests;

use super::grant::{Grant, Named};
use crate::cli::get::read::{Scope, one, pages};
use crate::cli::{CliError, Kind};
use common::api::work::Work;
use common::labels::ACCESS;
use common::names::ClusterName;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};

/// Writes of one right, and those that another command's writes come between.
const TRIES: usize = 16;
const MANAGER: &str = "towline-access";

/// What became of a grant in many clusters.
#[derive(Debug, Default)]
pub(super) struct Put {
    /// The grant as it is bound in each whose agent is to carry it out.
    pub(super) grants: BTreeMap<String, Grant>,
    /// Those of them to which it was not granted before.
    pub(super) new: BTreeSet<String>,
    /// What went wrong.
    pub(super) failed: Vec<CliError>,
}

/// The hub.
pub(super) struct Hub {
    client: Client,
}

impl Hub {
    /// The hub of a client.
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Every Work of grants, of one user or group or of all.
    pub(super) async fn works(&self, of: Option<&Named>) -> Result<Vec<Work>, CliError> {
        let works: Api<Work> = Api::all(self.client.clone());
        let label = match of {
            Some(subject) => format!("{ACCESS}={}", subject.id()),
            None => ACCESS.to_owned(),
        };
        let scope = Scope {
            selector: Some(label),
            ..Scope::default()
        };
        let found = pages(&works, &scope).await;
        found.map_err(|error| CliError::api("failed to list what is granted", error))
    }

    /// Has a cluster's agent carry out a grant; one that is there already stays, and the same as it was bound otherwise
    /// goes. Says whether it is new.
    pub(super) async fn put(&self, grant: &Grant, cluster: &ClusterName) -> Result<bool, CliError> {
        let works = self.of_cluster(&cluster.execution_namespace());
        let made = works.create(&params(), &grant.work(cluster)).await;
        let is_new = match made {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = one(&works, &grant.name()).await;
                let there = there.map_err(|error| {
                    let name = grant.name();
                    let attempt = format!("failed to get Work {name:?} of cluster {cluster}");
                    CliError::api(attempt, error)
                })?;
                stays(there.as_ref(), grant, cluster)?;
                false
            }
            Err(error) => {
                let attempt = format!(
                    "failed to create Work {:?} for cluster {cluster}",
                    grant.name()
                );
                return Err(CliError::api(attempt, error));
            }
            Ok(_) => true,
        };
        if let Some(otherwise) = grant.bound_otherwise() {
            let name = otherwise.name();
            let found = one(&works, &name).await;
            let found = found.map_err(|error| {
                CliError::api(
                    format!("failed to get Work {name:?} of cluster {cluster}"),
                    error,
                )
            })?;
            let same = |work: &Work| Grant::of(work).is_some_and(|(_, it)| it == otherwise);
            if let Some(work) = found.filter(same) {
                self.delete(&work).await?;
            }
        }
        Ok(is_new)
    }

    /// Has each cluster's agent carry out its grant, and lets whom it is for through to them. A cluster that cannot have it
    /// now keeps no other from it.
    pub(super) async fn put_each(&self, grants: BTreeMap<String, Grant>, subject: &Named) -> Put {
        let mut put = Put::default();
        for (name, grant) in grants {
            let is_new = match ClusterName::parse(&name) {
                Ok(cluster) => self.put(&grant, &cluster).await,
                Err(error) => Err(CliError::new(Kind::Internal, error)),
            };
            match is_new {
                Ok(is_new) => {
                    if is_new {
                        put.new.insert(name.clone());
                    }
                    put.grants.insert(name, grant);
                }
                Err(error) => {
                    let is_outage = error.is_outage();
                    put.failed.push(error);
                    if is_outage {
                        break;
                    }
                }
            }
        }
        if let Err(error) = self.let_through(subject, |_| false).await {
            put.failed.push(error);
        }
        put
    }

    /// Has the agent take back what a Work brought.
    pub(super) async fn delete(&self, work: &Work) -> Result<(), CliError> {
        let namespace = work.namespace().unwrap_or_default();
        let name = work.name_any();
        let this = DeleteParams::default().preconditions(Preconditions {
            uid: work.uid(),
            resource_version: None,
        });
        match self.of_cluster(&namespace).delete(&name, &this).await {
            // It is gone, or it is another one that somebody granted meanwhile.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            // It goes, and the answer shows what its agent wrote there, which need not be readable.
            Err(kube::Error::SerdeError(_)) => Ok(()),
            Err(error) => {
                let attempt = format!("failed to delete Work {name:?} in {namespace}");
                Err(CliError::api(attempt, error))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Lets somebody through to the clusters of their grants, but for those that `goes` names, and to no others; says
    /// whether that changed anything. The grants are read after what is written, and all is read again after each write:
    /// of two commands at once the one that writes last has seen what the other wanted.
    pub(super) async fn let_through(
        &self,
        subject: &Named,
        goes: impl Fn(&Work) -> bool,
    ) -> Result<bool, CliError> {
        let attempt = || format!("failed to write the right of {subject} to reach members");
        let failed = |error| CliError::api(attempt(), error);
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let name = subject.right();
        for tries in 0..TRIES {
            let role = roles.get_opt(&name).await.map_err(failed)?;
            let binding = bindings.get_opt(&name).await.map_err(failed)?;
            let works = self.works(Some(subject)).await?;
            let stays = |it: &&Work| it.metadata.deletion_timestamp.is_none() && !goes(it);
            let grants = works.iter().filter(stays).filter_map(Grant::of);
            let grants: Vec<(String, Grant)> = grants.collect();
            let each = grants.iter();
            let each = each.map(|(cluster, grant)| (cluster.as_str(), grant.role.as_str()));
            let wanted = subject.reach(each);
            let written = match step(role.as_ref(), binding.as_ref(), wanted) {
                Step::Done => return Ok(tries > 0),
                Step::Unbind(this) => bindings.delete(&name, &this).await.map(drop),
                Step::Delete(this) => roles.delete(&name, &this).await.map(drop),
                Step::Create(role) => roles.create(&params(), &role).await.map(drop),
                Step::Replace(role) => roles.replace(&name, &params(), &role).await.map(drop),
                Step::Bind(binding) => bindings.create(&params(), &binding).await.map(drop),
            };
            match written {
                Ok(()) => {}
                // Another command's write came between.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let message = format!("{}: others keep changing it", attempt());
        Err(CliError::message(Kind::Denied, message).hint("Try again."))
    }

    /// Lets nobody through any more to a cluster that leaves, or has left and took its Works along.
    pub(super) async fn forget(&self, cluster: &ClusterName) -> Result<(), CliError> {
        let failed = |error| CliError::api("failed to list the rights to reach members", error);
        let labelled = ListParams::default().labels(ACCESS);
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let roles = roles.list(&labelled).await.map_err(failed)?;
        let names = |role: &&ClusterRole| reaches(role, cluster.as_str());
        let names = roles.iter().filter(names).map(ResourceExt::name_any);
        let names: BTreeSet<String> = names.collect();
        if names.is_empty() {
            return Ok(());
        }
        let leaves = cluster.execution_namespace();
        for binding in bindings.list(&labelled).await.map_err(failed)? {
            let Some(subject) = Named::bound(&binding) else {
                continue;
            };
            if names.contains(&subject.right()) {
                let goes = |work: &Work| work.metadata.namespace.as_ref() == Some(&leaves);
                self.let_through(&subject, goes).await?;
            }
        }
        Ok(())
    }

    fn of_cluster(&self, namespace: &str) -> Api<Work> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Refuses to take a Work for the grant that is on its way out.
fn stays(there: Option<&Work>, grant: &Grant, cluster: &ClusterName) -> Result<(), CliError> {
    if there.is_some_and(|work| work.metadata.deletion_timestamp.is_none()) {
        return Ok(());
    }
    let message = format!(
        "failed to grant {} to {} in cluster {cluster}: a revocation of the same grant is under way",
        grant.role, grant.subject
    );
    Err(CliError::message(Kind::Unavailable, message).hint(
        "Grant it again once it is confirmed: `towline access list` shows it until the cluster's agent has done that.",
    ))
}

/// What is still to be written for somebody's right to be as wanted.
#[derive(Debug, Clone)]
enum Step {
    Done,
    Unbind(DeleteParams),
    Delete(DeleteParams),
    Create(ClusterRole),
    Replace(ClusterRole),
    Bind(ClusterRoleBinding),
}

/// The next write; each is refused if what it was decided by has changed.
fn step(
    role: Option<&ClusterRole>,
    binding: Option<&ClusterRoleBinding>,
    wanted: Option<(ClusterRole, ClusterRoleBinding)>,
) -> Step {
    let as_read = |metadata: &ObjectMeta| {
        DeleteParams::default().preconditions(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        })
    };
    let Some((mut wanted, bound)) = wanted else {
        return match (role, binding) {
            (_, Some(binding)) => Step::Unbind(as_read(&binding.metadata)),
            (Some(role), None) => Step::Delete(as_read(&role.metadata)),
            (None, None) => Step::Done,
        };
    };
    match (role, binding) {
        (None, _) => Step::Create(wanted),
        (Some(role), _) if role.rules != wanted.rules => {
            wanted.metadata.resource_version = role.metadata.resource_version.clone();
            Step::Replace(wanted)
        }
        (Some(_), None) => Step::Bind(bound),
        (Some(_), Some(binding)) => {
            let same = binding.role_ref == bound.role_ref && binding.subjects == bound.subjects;
            match same {
                true => Step::Done,
                false => Step::Unbind(as_read(&binding.metadata)),
            }
        }
    }
}

/// Whether a role names a cluster.
fn reaches(role: &ClusterRole, cluster: &str) -> bool {
    let rules = role.rules.iter().flatten();
    let mut names = rules.flat_map(|it| it.resource_names.iter().flatten());
    names.any(|name| name == cluster)
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
