//! Keeps the permissions of every registration as the hub wrote them.
//!
//! Whatever somebody adds to them, takes from them or deletes is put right as soon as it is seen, and at
//! every start. Which registration is in force is the Cluster's annotation, written by
//! [`crate::controller::registration`]; a Cluster that is being deleted is left to
//! [`crate::controller::cluster`], and one whose rights are withheld to [`crate::controller::quarantine`], which
//! ends the watches with them.

use crate::controller::registration::{self, Claims, withhold};
use crate::permissions::{Grant, Registration};
use crate::world::{Cluster, ObjectName, Owned, Told, World};
use common::controller::{Controller, Reconcile, Requeue};
use common::names::ClusterName;
use futures::FutureExt as _;
use kube::Client;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The objects of one registration are written one after another: they are compared once, after all.
pub(super) const SETTLE: Duration = Duration::from_millis(300);

/// The controller; its keys are names of Clusters.
pub struct Rights {
    client: Client,
    claims: Claims,
}

impl Rights {
    /// Makes the controller; it gives the rights of a cluster while nobody else has it claimed.
    pub(crate) fn new(client: Client, claims: Claims) -> Self {
        Self { client, claims }
    }
}

impl Reconcile for Rights {
    const NAME: &'static str = "rights";
    type Key = Arc<str>;
    type Error = registration::Error;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Self::Error> {
        let Ok(cluster) = ClusterName::parse(name) else {
            return Ok(Requeue::Never);
        };
        // Whoever takes rights may wait long for watches to end: those of others are not to wait for that.
        let Some(_claim) = self.claims.cluster(&cluster).now_or_never() else {
            return Ok(Requeue::After(SETTLE));
        };
        let cluster = registration::clusters(&self.client)
            .get_metadata_opt(name)
            .await;
        let cluster = cluster.map_err(registration::Error::request("read Cluster", name))?;
        let living = cluster.filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
        let in_force = living.and_then(|cluster| {
            let registration = Registration::of_cluster(&cluster.metadata)?;
            (registration.grant != Grant::Suspended).then_some((cluster, registration))
        });
        if let Some((cluster, registration)) = in_force {
            let written = withhold::give(&self.client, &cluster.metadata, &registration).await?;
            if written > 0 {
                tracing::info!(cluster = %name, written, "put permissions in place");
            }
        }
        Ok(Requeue::Never)
    }
}

impl Rights {
    /// Woken when another registration comes in force, and by every change of what carries its rights.
    pub fn watching(self, world: &World) -> Controller<Self> {
        let controller = Controller::new(self);
        let queue = controller.queue();
        world.clusters.listen(move |told| {
            if let Some(cluster) = registered(told) {
                queue.add_after(cluster, SETTLE);
            }
        });
        for rights in &world.rights {
            let queue = controller.queue();
            rights.listen(move |told| {
                for cluster in concerned(told) {
                    queue.add_after(cluster, SETTLE);
                }
            });
        }
        controller
    }
}

/// The Cluster of which another registration is in force than was known. Its agent writes its status all the
/// time; only what moves the rights is worth a look.
fn registered(told: &Told<Cluster>) -> Option<Arc<str>> {
    let Told::Changed(change) = told else {
        return None;
    };
    let now = change.after()?;
    let who = |cluster: &Cluster| (cluster.lifecycle.uid.clone(), cluster.grant.clone());
    let moved = now.grant.is_some() && change.before().map(who) != Some(who(now));
    moved.then(|| Arc::clone(&change.name.name))
}

/// The clusters that a changed object belonged or belongs to.
pub(super) fn concerned(told: &Told<Owned>) -> BTreeSet<Arc<str>> {
    let Told::Changed(change) = told else {
        return BTreeSet::new();
    };
    if !change.is_written() {
        return BTreeSet::new();
    }
    let labelled = [change.before(), change.after()];
    let labelled = labelled.into_iter().flatten();
    let mut all: BTreeSet<Arc<str>> = labelled
        .filter_map(|owned| owned.cluster.as_deref().map(Arc::from))
        .collect();
    if all.is_empty() && change.new.is_none() {
        all.extend(cluster_of(&change.name));
    }
    all
}

/// The cluster that an object of ours belonged to which had lost its label.
fn cluster_of(name: &ObjectName) -> Option<Arc<str>> {
    let by_name = name
        .name
        .strip_prefix(common::identity::CLUSTER_GROUP_PREFIX);
    let by_namespace = || name.namespace.strip_prefix(common::names::EXECUTION_PREFIX);
    by_name.or_else(by_namespace).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::View;
    use common::labels::CLUSTER_LABEL;
    use common::watch::{Collection, WatchConfig};
    use k8s_openapi::api::rbac::v1::Role;
    use serde_json::{Value, json};
    use std::sync::{Mutex, PoisonError};

    fn role(cluster: &str, version: u32) -> Value {
        json!({"metadata": {"name": format!("towline:cluster:{cluster}"), "namespace": "karmada-cluster",
            "resourceVersion": version.to_string(), "labels": {CLUSTER_LABEL: cluster}}})
    }

    #[tokio::test]
    async fn what_went_while_a_list_was_read_is_heard_of() {
        let service = tower::service_fn(|_| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody"))
        });
        let config = WatchConfig::new(&common::chance::Chance::seeded(1));
        let roles: View<Owned> = View::new(
            Client::new(service, "default"),
            "roles",
            Collection::of::<Role>(None),
            config,
        );
        let heard: Arc<Mutex<Vec<Arc<str>>>> = Arc::default();
        let hears = Arc::clone(&heard);
        let lock = |heard: &Mutex<Vec<Arc<str>>>| {
            std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner))
        };
        roles.listen(move |told| {
            let mut heard = hears.lock().unwrap_or_else(PoisonError::into_inner);
            heard.extend(concerned(told));
        });
        roles.listed(&[role("m1", 1), role("m2", 2)]).await;
        assert_eq!(lock(&heard), ["m1".into(), "m2".into()]);
        roles.listed(&[role("m2", 2)]).await;
        assert_eq!(lock(&heard), ["m1".into()], "gone meanwhile");
        roles.listed(&[role("m2", 2)]).await;
        assert_eq!(lock(&heard), Vec::<Arc<str>>::new(), "once");
        roles.sent(&[role("m2", 3)]).await;
        assert_eq!(lock(&heard), ["m2".into()], "written");
    }

    #[test]
    fn a_deleted_object_still_tells_its_cluster() {
        for (namespace, name, cluster) in [
            (None, "towline:cluster:m1", Some("m1")),
            (Some("karmada-cluster"), "towline:cluster:m1", Some("m1")),
            (Some("karmada-es-m1"), "towline:agent", Some("m1")),
            (Some("default"), "towline:agent", None),
        ] {
            let told = cluster_of(&ObjectName::new(namespace, name));
            assert_eq!(told.as_deref(), cluster, "{name}");
        }
    }
}
