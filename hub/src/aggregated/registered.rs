//! Which registration each cluster has now, and the tunnels that stand on it: they end when it does.

use crate::permissions::{Grant, Registration};
use crate::world::{ObjectName, Record, View};
use common::api::cluster::Cluster as Api;
use common::chance::Chance;
use common::identity::{AgentSubject, RegistrationId};
use common::lock::lock;
use common::watch::{Collection, WatchConfig};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// Clusters of one page of the list.
const PAGE: u32 = 500;

/// What matters of a Cluster: every replica keeps it, whether it leads or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cluster {
    is_deleted: bool,
    /// Who holds its rights; none for one that was never registered.
    grant: Option<Grant>,
}

impl Record for Cluster {
    const KIND: &'static str = "Cluster";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Object {
            metadata: ObjectMeta,
        }
        let Object { metadata } = serde_json::from_str(object)?;
        Ok(Some(Self {
            is_deleted: metadata.deletion_timestamp.is_some(),
            grant: Registration::of_cluster(&metadata).map(|registration| registration.grant),
        }))
    }
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Registered {
    clusters: View<Cluster>,
    standing: Arc<Mutex<Standing>>,
}

/// By cluster and number: the registration, and what is cancelled with it.
#[derive(Default)]
struct Standing {
    next: u64,
    of: BTreeMap<Box<str>, BTreeMap<u64, (RegistrationId, CancellationToken)>>,
}

/// What stands on a registration, until it is dropped.
pub(super) struct Held {
    standing: Arc<Mutex<Standing>>,
    cluster: Box<str>,
    number: u64,
    /// Cancelled once the registration is no longer in force.
    pub(super) over: CancellationToken,
}

impl Registered {
    /// Over the Clusters of a hub, which are not watched yet.
    pub(super) fn new(client: Client, chance: &Chance) -> Self {
        let config = WatchConfig {
            page_size: PAGE,
            metadata_only: true,
            ..WatchConfig::new(chance)
        };
        let clusters = View::new(client, "registrations", Collection::of::<Api>(None), config);
        let standing: Arc<Mutex<Standing>> = Arc::default();
        let told = standing.clone();
        clusters.on_change(move |change| {
            let now = change.after();
            if let Some(tunnels) = lock(&told).of.get(&*change.name.name) {
                let ended = tunnels.values().filter(|(id, _)| !in_force(now, id));
                ended.for_each(|(_, over)| over.cancel());
            }
        });
        Self { clusters, standing }
    }

    /// The Clusters, to be watched.
    pub(super) fn clusters(&self) -> &View<Cluster> {
        &self.clusters
    }

    /// Waits until the clusters are known.
    pub(super) async fn synced(&self) {
        self.clusters.synced().await;
    }

    /// Whether there is such a cluster.
    pub(super) fn knows(&self, cluster: &str) -> bool {
        let name = ObjectName::new(None, cluster);
        self.clusters.get(&name).is_some()
    }

    /// All clusters.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.clusters.for_each_name(|it| {
            names.insert(it.name.to_string());
        });
        names
    }

    /// Something that stands on a registration; none unless that is in force.
    pub(super) fn hold(&self, agent: &AgentSubject) -> Option<Held> {
        let cluster: Box<str> = agent.cluster.as_str().into();
        let over = CancellationToken::new();
        let number = {
            let mut standing = lock(&self.standing);
            standing.next += 1;
            let number = standing.next;
            let of = standing.of.entry(cluster.clone()).or_default();
            of.insert(number, (agent.registration.clone(), over.clone()));
            number
        };
        let held = Held {
            standing: self.standing.clone(),
            cluster,
            number,
            over,
        };
        // Read after it is held: what changes meanwhile ends it.
        let known = self.clusters.get(&ObjectName::new(None, &held.cluster));
        let record = known.and_then(|known| known.record);
        in_force(record.as_deref(), &agent.registration).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut standing = lock(&self.standing);
        if let Some(of) = standing.of.get_mut(&self.cluster) {
            of.remove(&self.number);
            if of.is_empty() {
                standing.of.remove(&self.cluster);
            }
        }
    }
}

/// Whether a cluster, as it is now, gives its rights to this registration.
fn in_force(cluster: Option<&Cluster>, id: &RegistrationId) -> bool {
    cluster.is_some_and(|cluster| {
        !cluster.is_deleted && cluster.grant.as_ref() == Some(&Grant::InForce(id.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::labels::{QUARANTINED_SINCE, REGISTRATION_ID};
    use common::names::ClusterName;
    use serde_json::{Value, json};

    fn agent(cluster: &str, key: &[u8]) -> AgentSubject {
        AgentSubject {
            cluster: ClusterName::parse(cluster).expect("a name"),
            registration: RegistrationId::of_public_key(key),
        }
    }

    fn cluster(name: &str, key: &[u8]) -> Value {
        let id = RegistrationId::of_public_key(key);
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "uid": "u", "resourceVersion": "1",
                "annotations": {REGISTRATION_ID: id.as_str()}},
            "spec": {"syncMode": "Pull"},
        })
    }

    #[tokio::test]
    async fn a_tunnel_stands_as_long_as_its_registration() {
        let client = crate::world::testing::nobody();
        let registered = Registered::new(client, &Chance::seeded(1));
        let clusters = registered.clusters().clone();
        assert!(registered.hold(&agent("m1", b"key")).is_none());
        clusters
            .listed(&[cluster("m1", b"key"), cluster("m2", b"other")])
            .await;
        assert!(registered.knows("m1") && !registered.knows("m3"));
        assert!(
            registered.hold(&agent("m2", b"key")).is_none(),
            "m2 has another one"
        );
        assert!(
            registered.hold(&agent("m3", b"key")).is_none(),
            "there is none"
        );
        let (first, other) = (
            registered.hold(&agent("m1", b"key")).expect("in force"),
            registered.hold(&agent("m2", b"other")).expect("in force"),
        );
        clusters.sent(&[cluster("m1", b"key")]).await;
        assert!(!first.over.is_cancelled());
        // A replaced one ends, and nobody comes back by it.
        clusters.sent(&[cluster("m1", b"new")]).await;
        assert!(first.over.is_cancelled() && !other.over.is_cancelled());
        assert!(registered.hold(&agent("m1", b"key")).is_none());
        let new = registered.hold(&agent("m1", b"new")).expect("in force");
        let mut leaving = cluster("m1", b"new");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        clusters.sent(&[leaving]).await;
        assert!(new.over.is_cancelled());
        let mut withheld = cluster("m2", b"other");
        withheld["metadata"]["annotations"][QUARANTINED_SINCE] = json!("2026-01-01T00:00:00Z");
        clusters.sent(&[withheld]).await;
        assert!(other.over.is_cancelled());
        drop((first, other, new));
        assert!(lock(&registered.standing).of.is_empty());
    }
}
