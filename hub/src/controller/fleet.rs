//! The fleet in numbers: who is ready and was heard when, what became of the Works.
//!
//! Everything is read from the views when somebody asks. A hub that does not lead has nothing to say here.

use crate::world::{Cluster, Lease, Status, Told, Work, World};
use common::lock::lock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// The numbers; clones share them.
#[derive(Clone, Default)]
pub struct Fleet(Arc<Mutex<Option<Leading>>>);

/// What is known while this hub leads.
struct Leading {
    world: World,
    contacts: Contacts,
}

/// When the Lease of each cluster was seen renewed.
type Contacts = Arc<Mutex<BTreeMap<Arc<str>, Instant>>>;

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fleet")
    }
}

impl Fleet {
    /// Puts the numbers into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let fleet = Self::default();
        registry.register_collector(Box::new(fleet.clone()));
        fleet
    }

    /// Takes note from now on of when the clusters of this world are heard. It is to be called before the world runs: who
    /// is silent from then on would not be known.
    pub fn hear(world: &World) -> Contacts {
        let contacts = Contacts::default();
        let heard = Arc::clone(&contacts);
        world.leases.listen(move |told| lease(&heard, told));
        contacts
    }

    /// Counts what is in this world, and forgets any other.
    pub fn look_at(&self, world: &World, contacts: Contacts) {
        *lock(&self.0) = Some(Leading {
            world: world.clone(),
            contacts,
        });
    }

    /// Forgets everything: the hub no longer leads.
    pub fn clear(&self) {
        *lock(&self.0) = None;
    }
}

/// A renewal is what differs from the last; what it says is not read.
fn lease(contacts: &Contacts, told: &Told<Lease>) {
    let Told::Changed(change) = told else { return };
    let name = &change.name.name;
    let renewed = |lease: &Lease| lease.renewed.clone();
    if change.new.is_none() {
        lock(contacts).remove(name);
    } else if change.before().map(renewed) != change.after().map(renewed) {
        lock(contacts).insert(Arc::clone(name), Instant::now());
    }
}

/// So many of each status, in the order of [`Status::ALL`].
type Counts = [u64; 3];

fn count(counts: &mut Counts, status: Status) {
    counts[status as usize] += 1;
}

fn applied(work: Option<&Work>) -> Status {
    work.map_or(Status::Unknown, |work| work.applied)
}

fn ready(cluster: Option<&Cluster>) -> Status {
    let ready = cluster.and_then(|cluster| cluster.ready.as_ref());
    ready.map_or(Status::Unknown, |ready| ready.status)
}

fn encode_counts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: Counts,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (status, count) in Status::ALL.into_iter().zip(counts) {
        let labels = [("status", status.as_str())];
        ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for Fleet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let leading = lock(&self.0);
        let Some(Leading { world, contacts }) = &*leading else {
            return Ok(());
        };
        let (mut clusters, mut works, mut quarantined) = ([0; 3], [0; 3], 0_u64);
        let mut ends: Vec<(Arc<str>, i64)> = Vec::new();
        world.clusters.for_each(|name, cluster| {
            let cluster = cluster.record.as_deref();
            count(&mut clusters, ready(cluster));
            quarantined += u64::from(cluster.is_some_and(|cluster| cluster.withheld));
            if let Some(end) = cluster.and_then(|cluster| cluster.certificate_end) {
                ends.push((Arc::clone(&name.name), end.timestamp()));
            }
        });
        world
            .works
            .for_each(|_, work| count(&mut works, applied(work.record.as_deref())));
        encode_counts(
            &mut encoder,
            "towline_hub_clusters_ready",
            "Clusters by the status of their condition Ready",
            clusters,
        )?;
        encode_counts(
            &mut encoder,
            "towline_hub_works_applied",
            "Works by the status of their condition Applied",
            works,
        )?;
        let quarantined = ConstGauge::new(quarantined);
        quarantined.encode(encoder.encode_descriptor(
            "towline_hub_clusters_quarantined",
            "Clusters whose rights are withheld because they wrote too much",
            None,
            MetricType::Gauge,
        )?)?;
        let mut family = encoder.encode_descriptor(
            "towline_hub_cluster_last_contact_seconds",
            "Time since the hub last saw the Lease of a cluster renewed",
            None,
            MetricType::Gauge,
        )?;
        for (name, at) in lock(contacts).iter() {
            let age = ConstGauge::new(at.elapsed().as_secs_f64());
            age.encode(family.encode_family(&[("cluster", &**name)])?)?;
        }
        let mut family = encoder.encode_descriptor(
            "towline_hub_cluster_certificate_end_timestamp_seconds",
            "When the last certificate that was issued to the agent of a cluster ends",
            None,
            MetricType::Gauge,
        )?;
        for (name, end) in ends {
            ConstGauge::new(end).encode(family.encode_family(&[("cluster", &*name)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::exposition;
    use common::labels::CERTIFICATE_END;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn cluster(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "annotations": {CERTIFICATE_END: "2027-01-15T08:00:00Z"}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn lease(renewed: &str) -> Value {
        json!({"metadata": {"name": "m1"}, "spec": {"renewTime": renewed}})
    }

    fn work(name: &str, applied: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "karmada-es-m1"},
            "status": {"conditions": [{"type": "Applied", "status": applied}]}})
    }

    #[tokio::test(start_paused = true)]
    async fn the_fleet_is_counted() {
        let mut registry = Registry::default();
        let fleet = Fleet::register(&mut registry);
        let world = crate::world::testing::unreachable();
        fleet.look_at(&world, Fleet::hear(&world));
        let says = |line: &str| {
            let (text, _) = exposition::render(&registry, "").expect("renders");
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        };
        let mut second = cluster("m2", "odd");
        second["metadata"]["annotations"] = json!({"towline.dev/quarantined-since": "now"});
        world
            .clusters
            .listed(&[
                cluster("m1", "True"),
                second.clone(),
                cluster("m3", "False"),
            ])
            .await;
        world
            .clusters
            .listed(&[cluster("m1", "True"), second])
            .await;
        says("towline_hub_clusters_ready{status=\"True\"} 1");
        says("towline_hub_clusters_ready{status=\"False\"} 0");
        says("towline_hub_clusters_ready{status=\"Unknown\"} 1");
        says("towline_hub_clusters_quarantined 1");
        says("towline_hub_cluster_certificate_end_timestamp_seconds{cluster=\"m1\"} 1800000000");
        world.leases.sent(&[lease("t")]).await;
        tokio::time::advance(Duration::from_secs(7)).await;
        world.leases.listed(&[lease("t")]).await;
        says("towline_hub_cluster_last_contact_seconds{cluster=\"m1\"} 7.0");
        world.leases.sent(&[lease("u")]).await;
        says("towline_hub_cluster_last_contact_seconds{cluster=\"m1\"} 0.0");
        world
            .works
            .listed(&[work("a", "True"), work("b", "False")])
            .await;
        world.works.sent(&[work("a", "False")]).await;
        says("towline_hub_works_applied{status=\"False\"} 2");
        world.works.listed(&[work("a", "False")]).await;
        says("towline_hub_works_applied{status=\"False\"} 1");
        says("towline_hub_works_applied{status=\"True\"} 0");
    }

    /// Whoever takes over has read everything before, and has to tell of those who are silent from then on.
    #[tokio::test(start_paused = true)]
    async fn who_was_heard_before_the_hub_leads_is_told_of() {
        let mut registry = Registry::default();
        let fleet = Fleet::register(&mut registry);
        let world = crate::world::testing::unreachable();
        let contacts = Fleet::hear(&world);
        world.leases.listed(&[lease("t")]).await;
        tokio::time::advance(Duration::from_secs(9)).await;
        fleet.look_at(&world, contacts);
        let (text, _) = exposition::render(&registry, "").expect("renders");
        let silent = "towline_hub_cluster_last_contact_seconds{cluster=\"m1\"} 9.0";
        assert!(text.contains(silent), "{text}");
    }
}
