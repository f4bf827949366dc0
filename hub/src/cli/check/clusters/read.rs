//! Reads clusters, and what is known of them beside their objects: Leases and execution namespaces.

use super::{Found, found};
use crate::cli::check::rights::is_forbidden;
use crate::cli::get::read::{Scope, one, pages};
pub(super) use crate::cli::leases::Renewed;
use crate::cli::{CliError, Kind, leases};
use chrono::{DateTime, Utc};
use common::api::cluster::Cluster;
use common::names::{ClusterName, EXECUTION_PREFIX};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use std::collections::BTreeMap;

/// What is known of a cluster beside its object.
#[derive(Debug, Clone, Default)]
pub(super) struct Around {
    pub(super) lease: Renewed,
    pub(super) works: Works,
}

/// The state of an execution namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Works {
    /// This kubeconfig may not see.
    Unseen,
    #[default]
    Missing,
    Terminating,
    Active,
}

/// Looks at one cluster, or at all of them.
pub(in crate::cli) async fn look(
    client: &Client,
    only: Option<&ClusterName>,
    now: DateTime<Utc>,
) -> Result<Vec<Found>, CliError> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if let Some(name) = only {
        let failed = |e| CliError::api(format!("failed to get Cluster {:?}", name.as_str()), e);
        let cluster = one(&clusters, name.as_str()).await.map_err(failed)?;
        let Some(cluster) = cluster else {
            let message = format!("there is no Cluster {:?} on this hub", name.as_str());
            return Err(CliError::message(Kind::NotFound, message)
                .hint("`kubectl get clusters` lists those there are."));
        };
        let lease = leases::of(client, name.as_str()).await;
        let lease = shown("the Lease", lease)?;
        let namespace = namespaces
            .get_metadata_opt(&name.execution_namespace())
            .await;
        let namespace = shown("the execution namespace", namespace)?;
        let around = Around {
            lease: lease.unwrap_or(Renewed::Unseen),
            works: namespace.map_or(Works::Unseen, |found| {
                found.map_or(Works::Missing, |found| works_of(&found.metadata))
            }),
        };
        return Ok(vec![found(&cluster, &around, now)]);
    }
    let failed = |e| CliError::api("failed to list Clusters", e);
    let listed = pages(&clusters, &Scope::default()).await.map_err(failed)?;
    let (renewals, never) = match shown("Leases", leases::all(client).await)? {
        Some(listed) => (listed, Renewed::Never),
        None => (BTreeMap::new(), Renewed::Unseen),
    };
    let all = ListParams::default();
    let (spaces, absent) = match shown("namespaces", namespaces.list_metadata(&all).await)? {
        Some(listed) => (listed.items, Works::Missing),
        None => (Vec::new(), Works::Unseen),
    };
    let spaces: BTreeMap<_, _> = spaces
        .iter()
        .filter_map(|space| Some((space.metadata.name.as_deref()?, works_of(&space.metadata))))
        .collect();
    let each = |cluster: &Cluster| {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let space = format!("{EXECUTION_PREFIX}{name}");
        let around = Around {
            lease: renewals.get(name).copied().unwrap_or(never),
            works: spaces.get(space.as_str()).copied().unwrap_or(absent),
        };
        found(cluster, &around, now)
    };
    Ok(listed.iter().map(each).collect())
}

/// What was read, or none where this kubeconfig may not: it sees everything else.
fn shown<T>(what: &'static str, read: Result<T, kube::Error>) -> Result<Option<T>, CliError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(CliError::api(format!("failed to look at {what}"), error)),
    }
}

fn works_of(namespace: &ObjectMeta) -> Works {
    match namespace.deletion_timestamp {
        Some(_) => Works::Terminating,
        None => Works::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::at;
    use super::*;
    use common::time::to_time;

    #[test]
    fn a_namespace_takes_works_until_it_is_deleted() {
        for (deleted, want) in [(None, Works::Active), (Some(at(0)), Works::Terminating)] {
            let namespace = ObjectMeta {
                deletion_timestamp: deleted.map(to_time),
                ..ObjectMeta::default()
            };
            assert_eq!(works_of(&namespace), want);
        }
    }
}
