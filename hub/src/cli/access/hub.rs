//! Grants as the hub has them: their Works, and its own role for each user or group.

use super::grant::{Grant, Named};
use crate::cli::{CliError, Kind};
use common::api::work::Work;
use common::labels::ACCESS;
use common::names::ClusterName;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};

/// Writes that another command's writes may come between.
const TRIES: usize = 8;
const MANAGER: &str = "towline-access";

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
        let found = works.list(&ListParams::default().labels(&label)).await;
        let found =
            found.map_err(|error| CliError::api("failed to list what is granted", error))?;
        Ok(found.items)
    }

    /// Has a cluster's agent carry out a grant; one that is there already stays, and the same as it was bound otherwise
    /// goes. Says whether it is new.
    pub(super) async fn put(&self, grant: &Grant, cluster: &ClusterName) -> Result<bool, CliError> {
        let works = self.of_cluster(&cluster.execution_namespace());
        let made = works.create(&params(), &grant.work(cluster)).await;
        let is_new = match made {
            Err(kube::Error::Api(status)) if status.code == 409 => false,
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
            let found = works.get_opt(&name).await;
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
            Err(error) => {
                let attempt = format!("failed to delete Work {name:?} in {namespace}");
                Err(CliError::api(attempt, error))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Lets somebody through to the clusters of their grants, but for those that `goes` names, and to no others. The role
    /// is read before the grants, and written only as it was read: of two commands at once the later one has both.
    pub(super) async fn let_through(
        &self,
        subject: &Named,
        goes: impl Fn(&Work) -> bool,
    ) -> Result<(), CliError> {
        let attempt = || format!("failed to write the right of {subject} to reach members");
        let failed = |error| CliError::api(attempt(), error);
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let name = subject.right();
        for _ in 0..TRIES {
            let found = roles.get_opt(&name).await.map_err(failed)?;
            let works = self.works(Some(subject)).await?;
            let stays = |it: &&Work| it.metadata.deletion_timestamp.is_none() && !goes(it);
            let grants = works.iter().filter(stays).filter_map(Grant::of);
            let grants: Vec<(String, Grant)> = grants.collect();
            let each = grants.iter();
            let each = each.map(|(cluster, grant)| (cluster.as_str(), grant.role.as_str()));
            let written = match (found, subject.reach(each)) {
                (None, None) => return Ok(()),
                (Some(found), None) => {
                    let gone = bindings.delete(&name, &DeleteParams::default()).await;
                    or_gone(gone.map(drop)).map_err(failed)?;
                    let as_read = DeleteParams::default().preconditions(Preconditions {
                        uid: found.metadata.uid,
                        resource_version: found.metadata.resource_version,
                    });
                    or_gone(roles.delete(&name, &as_read).await.map(drop))
                }
                (None, Some((role, binding))) => match roles.create(&params(), &role).await {
                    Ok(_) => bind(&bindings, &binding).await,
                    Err(error) => Err(error),
                },
                (Some(found), Some((role, binding))) if found.rules == role.rules => {
                    bind(&bindings, &binding).await
                }
                (Some(found), Some((mut role, binding))) => {
                    role.metadata.resource_version = found.metadata.resource_version;
                    match roles.replace(&name, &params(), &role).await {
                        Ok(_) => bind(&bindings, &binding).await,
                        Err(error) => Err(error),
                    }
                }
            };
            match written {
                Ok(()) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let message = format!("{}: others keep changing it", attempt());
        Err(CliError::message(Kind::Denied, message).hint("Try again."))
    }

    fn of_cluster(&self, namespace: &str) -> Api<Work> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

async fn bind(
    bindings: &Api<ClusterRoleBinding>,
    binding: &ClusterRoleBinding,
) -> kube::Result<()> {
    match bindings.create(&params(), binding).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        made => made.map(drop),
    }
}

fn or_gone(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}
