//! Keeps the permissions of every registration as the hub wrote them.
//!
//! Whatever somebody adds to them, takes from them or deletes is put right as soon as it is seen, and at
//! every start. Which registration is in force is the Cluster's annotation, written by
//! [`crate::controller::registration`]; a Cluster that is being deleted is left to
//! [`crate::controller::cluster`].

use crate::controller::queue::Queue;
use crate::controller::{Failure, Reconcile, Requeue, registration};
use crate::permissions::{self, Grant, Registration};
use common::api::cluster::Cluster;
use common::labels::{CLUSTER_LABEL, HUB_FIELD_MANAGER, MANAGED_BY};
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::core::PartialObjectMeta;
use kube::{Client, Resource, ResourceExt as _};
use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

/// The objects of one registration are written one after another: they are compared once, after all.
const SETTLE: Duration = Duration::from_millis(300);

/// Why the permissions of a registration could not be put right; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Cluster could not be read.
    #[error(transparent)]
    Cluster(#[from] registration::Error),
    /// The permissions could not be written.
    #[error(transparent)]
    Permissions(#[from] permissions::Error),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Cluster(error) => error.reason(),
            Self::Permissions(_) => "PermissionsFailed",
        }
    }

    fn is_conflict(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_conflict(),
            Self::Permissions(error) => error.status().is_some_and(|status| status.code == 409),
        }
    }
}

/// The controller; its keys are names of Clusters.
pub struct Rights {
    client: Client,
}

impl Rights {
    /// Makes the controller.
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Reconcile for Rights {
    const NAME: &'static str = "rights";
    type Error = Error;

    async fn reconcile(&self, name: &str) -> Result<Requeue, Error> {
        let cluster = registration::clusters(&self.client)
            .get_metadata_opt(name)
            .await;
        let cluster = cluster.map_err(registration::Error::request("read Cluster", name))?;
        let living = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
        let in_force = living.and_then(|cluster| Registration::of_cluster(&cluster.metadata));
        if let Some(registration) = in_force {
            let written = permissions::ensure(&self.client, &registration).await?;
            if written > 0 {
                tracing::info!(cluster = name, written, "put permissions in place");
            }
        }
        Ok(Requeue::Never)
    }
}

/// Puts clusters into `queue` whose permissions, or who has them, may have changed; never ends.
pub async fn feed(client: Client, queue: Queue) {
    let changes = [
        registered(&client).boxed(),
        owned::<ClusterRole>(&client).boxed(),
        owned::<ClusterRoleBinding>(&client).boxed(),
        owned::<Role>(&client).boxed(),
        owned::<RoleBinding>(&client).boxed(),
    ];
    let mut changes = pin!(futures::stream::select_all(changes));
    while let Some(cluster) = changes.next().await {
        queue.add_after(&cluster, SETTLE);
    }
}

/// Clusters of which another registration is in force than was known.
fn registered(client: &Client) -> impl Stream<Item = String> + Send + use<> {
    // An agent writes its Cluster's status all the time; only what moves the rights is worth a look.
    let mut known: HashMap<String, Grant> = HashMap::new();
    watch_metadata::<Cluster>(client, None).filter_map(move |event| {
        let name = match event {
            Event::Applied(cluster) => {
                let name = cluster.name_any();
                match Registration::of_cluster(&cluster.metadata) {
                    Some(now) if known.get(&name) != Some(&now.grant) => {
                        known.insert(name.clone(), now.grant);
                        Some(name)
                    }
                    Some(_) => None,
                    None => {
                        known.remove(&name);
                        None
                    }
                }
            }
            Event::Deleted(key) => {
                known.remove(&key.name);
                None
            }
            _ => None,
        };
        std::future::ready(name)
    })
}

/// The clusters that changed objects of a kind belong to.
fn owned<K>(client: &Client) -> impl Stream<Item = String> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    let ours = format!("{MANAGED_BY}={HUB_FIELD_MANAGER}");
    watch_metadata::<K>(client, Some(ours)).filter_map(|event| {
        std::future::ready(match event {
            Event::Applied(object) => object.labels().get(CLUSTER_LABEL).cloned(),
            Event::Deleted(key) => cluster_of(key.namespace.as_deref(), &key.name),
            _ => None,
        })
    })
}

fn watch_metadata<K>(
    client: &Client,
    label_selector: Option<String>,
) -> impl Stream<Item = Event<PartialObjectMeta<K>>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + Send + 'static,
{
    let config = WatchConfig {
        label_selector,
        metadata_only: true,
        ..WatchConfig::default()
    };
    watch(client.clone(), Collection::of::<K>(None), config)
}

/// The cluster that a deleted object of ours belonged to.
fn cluster_of(namespace: Option<&str>, name: &str) -> Option<String> {
    let by_name = name.strip_prefix(common::identity::CLUSTER_GROUP_PREFIX);
    let by_namespace = || namespace?.strip_prefix(common::names::EXECUTION_PREFIX);
    by_name.or_else(by_namespace).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::cluster_of;

    #[test]
    fn a_deleted_object_still_tells_its_cluster() {
        for (namespace, name, cluster) in [
            (None, "towline:cluster:m1", Some("m1")),
            (Some("karmada-cluster"), "towline:cluster:m1", Some("m1")),
            (Some("karmada-es-m1"), "towline:agent", Some("m1")),
            (Some("default"), "towline:agent", None),
        ] {
            assert_eq!(cluster_of(namespace, name).as_deref(), cluster, "{name}");
        }
    }
}
