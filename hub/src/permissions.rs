//! The rights of one registration: the objects that carry them, applied exactly, and their removal.
//!
//! Everything here is bound to the group that only this registration's certificates carry, names its
//! objects one by one, and is owned by the Cluster. Subjects are set, never appended: whoever is not in
//! force loses everything in the same write. The RoleBinding in the execution namespace has a finalizer,
//! so that an agent keeps the right to finish its Works while that namespace goes away.

mod exact;
mod objects;
#[cfg(test)]
mod tests;

use common::identity::{AgentSubject, RegistrationId};
use common::labels::{QUARANTINED_SINCE, REGISTRATION_FINALIZER, REGISTRATION_ID};
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

pub use objects::{AGENT_BINDING, AGENT_WORKS_ROLE, LEASE_DURATION_SECONDS, Objects, rights_name};

/// A registration as its objects need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// UID of its Cluster object, which owns everything.
    pub cluster_uid: String,
    /// Who holds the rights now.
    pub grant: Grant,
}

/// Who holds a cluster's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// The certificates of this registration.
    InForce(RegistrationId),
    /// Nobody: the objects stay, their subjects are empty.
    Suspended,
}

impl Registration {
    /// The registration that a Cluster's annotations say is in force; `None` for a Cluster that was
    /// never registered, or whose registration was taken away.
    pub fn of_cluster(cluster: &ObjectMeta) -> Option<Self> {
        let annotation = |key: &str| cluster.annotations.as_ref()?.get(key);
        let id = RegistrationId::parse(annotation(REGISTRATION_ID)?)?;
        let grant = match annotation(QUARANTINED_SINCE) {
            Some(_) => Grant::Suspended,
            None => Grant::InForce(id),
        };
        Some(Self {
            cluster: ClusterName::parse(cluster.name.as_deref()?).ok()?,
            cluster_uid: cluster.uid.clone()?,
            grant,
        })
    }

    /// The group that holds the rights, if any.
    fn group(&self) -> Option<String> {
        match &self.grant {
            Grant::InForce(id) => Some(
                AgentSubject {
                    cluster: self.cluster.clone(),
                    registration: id.clone(),
                }
                .cluster_group(),
            ),
            Grant::Suspended => None,
        }
    }
}

/// Why permissions could not be put in place or removed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} {kind} {name:?} of cluster {cluster:?}")]
pub struct Error {
    verb: &'static str,
    kind: String,
    name: String,
    cluster: String,
    #[source]
    source: Box<kube::Error>,
}

impl Error {
    /// The API server's answer, for callers that treat a conflict unlike a failure.
    pub fn status(&self) -> Option<&kube::core::Status> {
        match &*self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the object is there and cannot be decoded.
    fn is_unreadable(&self) -> bool {
        matches!(&*self.source, kube::Error::SerdeError(_))
    }
}

/// Puts every object of `registration` in place, exactly; returns how many were written. The Lease comes last: its agent
/// writes it, and nothing that it may say there keeps its rights from being taken.
pub async fn ensure(client: &Client, registration: &Registration) -> Result<usize, Error> {
    let objects = Objects::of(registration);
    let namespace = registration.cluster.execution_namespace();
    let cluster = &registration.cluster;
    let mut written = 0;
    written += exact::ensure(&Api::all(client.clone()), objects.namespace, cluster).await?;
    // Roles before bindings: a binding to a role that is missing grants nothing and says so nowhere.
    written += exact::ensure(&Api::all(client.clone()), objects.cluster_role, cluster).await?;
    let roles = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    written += exact::ensure(&roles, objects.role, cluster).await?;
    let bindings = Api::all(client.clone());
    written += exact::ensure(&bindings, objects.cluster_role_binding, cluster).await?;
    let bindings = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    written += exact::ensure(&bindings, objects.role_binding, cluster).await?;
    let bindings = Api::namespaced(client.clone(), &namespace);
    written += exact::ensure(&bindings, objects.works_binding, cluster).await?;
    Ok(written + ensure_lease(client, objects.lease, cluster).await?)
}

async fn ensure_lease(
    client: &Client,
    lease: Lease,
    cluster: &ClusterName,
) -> Result<usize, Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    let ensured = exact::ensure(&leases, lease.clone(), cluster).await;
    if !ensured.as_ref().is_err_and(Error::is_unreadable) {
        return ensured;
    }
    // API servers take times that are later than any that can be decoded here.
    let timeless = serde_json::json!({"spec": {"acquireTime": null, "renewTime": null}});
    let name = cluster.as_str();
    let patched = leases
        .patch(name, &PatchParams::default(), &Patch::Merge(timeless))
        .await;
    gone_is_fine(patched).map_err(failed("correct", "Lease", name, cluster))?;
    Ok(1 + exact::ensure(&leases, lease, cluster).await?)
}

/// Puts the execution namespace of a Cluster in place; true when it was written.
pub async fn ensure_namespace(
    client: &Client,
    cluster: &ClusterName,
    cluster_uid: &str,
) -> Result<bool, Error> {
    let namespace = objects::execution_namespace(cluster, cluster_uid);
    let written = exact::ensure(&Api::all(client.clone()), namespace, cluster).await?;
    Ok(written > 0)
}

/// Removes every right of a cluster, the finalizer of the RoleBinding first; namespace, Lease and Works
/// stay. Watches that are open stay open until [`crate::epoch`] closes them.
pub async fn remove(client: &Client, cluster: &ClusterName) -> Result<(), Error> {
    let works: Api<RoleBinding> = Api::namespaced(client.clone(), &cluster.execution_namespace());
    release(&works, cluster).await?;
    delete(&works, AGENT_BINDING, cluster).await?;
    let name = rights_name(cluster);
    delete::<ClusterRoleBinding>(&Api::all(client.clone()), &name, cluster).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    delete(&bindings, &name, cluster).await?;
    delete::<ClusterRole>(&Api::all(client.clone()), &name, cluster).await?;
    delete::<Role>(
        &Api::namespaced(client.clone(), CLUSTER_NAMESPACE),
        &name,
        cluster,
    )
    .await
}

/// Lets the RoleBinding of the execution namespace go, which is being deleted with it.
pub async fn release_works_binding(client: &Client, cluster: &ClusterName) -> Result<(), Error> {
    let works: Api<RoleBinding> = Api::namespaced(client.clone(), &cluster.execution_namespace());
    release(&works, cluster).await
}

/// Removes the Lease of a cluster.
pub async fn remove_lease(client: &Client, cluster: &ClusterName) -> Result<(), Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    delete(&leases, cluster.as_str(), cluster).await
}

/// Whether any binding of a cluster gives somebody its rights: one may be without the others, where writing them was cut
/// short or somebody took one away.
pub async fn is_bound(client: &Client, cluster: &ClusterName) -> Result<bool, Error> {
    let name = rights_name(cluster);
    for (namespace, name) in [
        (cluster.execution_namespace(), AGENT_BINDING),
        (CLUSTER_NAMESPACE.to_owned(), name.as_str()),
    ] {
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
        let read = bindings.get_opt(name).await;
        let binding = read.map_err(failed("read", "RoleBinding", name, cluster))?;
        if has_subjects(binding.and_then(|binding| binding.subjects)) {
            return Ok(true);
        }
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let read = bindings.get_opt(&name).await;
    let binding = read.map_err(failed("read", "ClusterRoleBinding", &name, cluster))?;
    Ok(has_subjects(binding.and_then(|binding| binding.subjects)))
}

fn has_subjects(subjects: Option<Vec<Subject>>) -> bool {
    subjects.is_some_and(|subjects| !subjects.is_empty())
}

/// Whether the execution namespace exists, and the RoleBindings in it that the hub did not write.
pub async fn foreign_bindings(
    client: &Client,
    cluster: &ClusterName,
) -> Result<Option<Vec<String>>, Error> {
    let name = cluster.execution_namespace();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        namespaces
            .get_opt(&name)
            .await
            .map_err(failed("read", "Namespace", &name, cluster))?;
    if namespace.is_none() {
        return Ok(None);
    }
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &name);
    // A namespace of ours holds one binding; a page of 50 is enough to name the strangers.
    let list = bindings
        .list(&ListParams::default().limit(50))
        .await
        .map_err(failed("list", "RoleBindings", &name, cluster))?;
    let foreign = list
        .items
        .iter()
        .filter(|binding| !objects::is_ours(binding, cluster))
        .map(|binding| binding.metadata.name.clone().unwrap_or_default());
    Ok(Some(foreign.collect()))
}

/// Takes our finalizer off the RoleBinding of the execution namespace.
async fn release(bindings: &Api<RoleBinding>, cluster: &ClusterName) -> Result<(), Error> {
    let read = bindings.get_opt(AGENT_BINDING).await;
    let Some(live) = read.map_err(failed("read", "RoleBinding", AGENT_BINDING, cluster))? else {
        return Ok(());
    };
    let mut left = live.metadata.finalizers.unwrap_or_default();
    let before = left.len();
    left.retain(|finalizer| finalizer != REGISTRATION_FINALIZER);
    if left.len() == before {
        return Ok(());
    }
    let patch = serde_json::json!({"metadata": {
        "resourceVersion": live.metadata.resource_version,
        "finalizers": left,
    }});
    let patched = bindings
        .patch(AGENT_BINDING, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    gone_is_fine(patched).map_err(failed("release", "RoleBinding", AGENT_BINDING, cluster))
}

async fn delete<K>(api: &Api<K>, name: &str, cluster: &ClusterName) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let deleted = api.delete(name, &DeleteParams::default()).await;
    gone_is_fine(deleted).map_err(failed("delete", &K::kind(&()), name, cluster))
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(|_| ()),
    }
}

fn failed(
    verb: &'static str,
    kind: &str,
    name: &str,
    cluster: &ClusterName,
) -> impl FnOnce(kube::Error) -> Error {
    let (kind, name, cluster) = (kind.to_owned(), name.to_owned(), cluster.to_string());
    move |source| Error {
        verb,
        kind,
        name,
        cluster,
        source: Box::new(source),
    }
}
