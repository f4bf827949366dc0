//! What is under way through tunnels, by cluster and by user, for metrics and for whoever asks how a tunnel stands.

use common::lock::lock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Users that are told by name, those with the most; the others are told together, under no name. Who has nothing under
/// way is not told at all, so that no name stays for ever.
const NAMED: usize = 50;

/// Clones count together.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    tunnels: u64,
    clusters: BTreeMap<String, u64>,
    users: BTreeMap<String, u64>,
}

/// One request, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    of: UnderWay,
    cluster: String,
    user: String,
}

/// One tunnel, until it is dropped.
#[derive(Debug)]
pub(super) struct Standing(UnderWay);

impl UnderWay {
    /// One more request of a user to a cluster.
    pub(super) fn begin(&self, cluster: &str, user: &str) -> Counted {
        let mut counts = lock(&self.0);
        *counts.clusters.entry(cluster.to_owned()).or_default() += 1;
        *counts.users.entry(user.to_owned()).or_default() += 1;
        Counted {
            of: self.clone(),
            cluster: cluster.to_owned(),
            user: user.to_owned(),
        }
    }

    /// One more tunnel.
    pub(super) fn stands(&self) -> Standing {
        lock(&self.0).tunnels += 1;
        Standing(self.clone())
    }

    /// Requests to a cluster.
    pub(super) fn of_cluster(&self, cluster: &str) -> u64 {
        let counts = lock(&self.0);
        counts.clusters.get(cluster).copied().unwrap_or_default()
    }

    /// Those of the users with the most by name, and those of all others together.
    fn of_users(&self) -> Vec<(String, u64)> {
        let mut users: Vec<(String, u64)> = {
            let counts = lock(&self.0);
            let users = counts.users.iter();
            users.map(|(user, count)| (user.clone(), *count)).collect()
        };
        users.sort_by(|(one, some), (other, more)| (more, one).cmp(&(some, other)));
        let others = users.split_off(NAMED.min(users.len()));
        let together: u64 = others.iter().map(|(_, count)| count).sum();
        users.extend((together > 0).then(|| (String::new(), together)));
        users
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.of.0);
        less(&mut counts.clusters, &self.cluster);
        less(&mut counts.users, &self.user);
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut counts = lock(&self.0.0);
        counts.tunnels = counts.tunnels.saturating_sub(1);
    }
}

fn less(counts: &mut BTreeMap<String, u64>, of: &str) {
    let left = match counts.get_mut(of) {
        Some(count) => {
            *count -= 1;
            *count
        }
        None => return,
    };
    if left == 0 {
        counts.remove(of);
    }
}

impl Collector for UnderWay {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (tunnels, clusters) = {
            let counts = lock(&self.0);
            (counts.tunnels, counts.clusters.clone())
        };
        let tunnels = ConstGauge::new(tunnels);
        tunnels.encode(encoder.encode_descriptor(
            "towline_hub_tunnels",
            "Tunnels into members that stand",
            None,
            MetricType::Gauge,
        )?)?;
        let mut family = encoder.encode_descriptor(
            "towline_hub_tunnel_streams",
            "Requests under way into a member",
            None,
            MetricType::Gauge,
        )?;
        for (cluster, count) in clusters {
            let labels = [("cluster", cluster.as_str())];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "towline_hub_tunnel_streams_of_user",
            "Requests of a user under way into members, for the 50 users with the most; those of all others stand without \
             a name",
            None,
            MetricType::Gauge,
        )?;
        for (user, count) in self.of_users() {
            let labels = [("user", user.as_str())];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::exposition::render;
    use prometheus_client::registry::Registry;

    #[test]
    fn what_ends_is_told_no_more() {
        let under_way = UnderWay::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(under_way.clone()));
        let told = || render(&registry, "").expect("renders").0;
        let tunnel = under_way.stands();
        let (one, two) = (
            under_way.begin("m1", "ann"),
            under_way.begin("m1", "b\"ob\n"),
        );
        assert_eq!(under_way.of_cluster("m1"), 2);
        let text = told();
        for line in [
            "towline_hub_tunnels 1\n",
            "towline_hub_tunnel_streams{cluster=\"m1\"} 2\n",
            "towline_hub_tunnel_streams_of_user{user=\"ann\"} 1\n",
            "towline_hub_tunnel_streams_of_user{user=\"b\\\"ob\\n\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop((one, two, tunnel));
        let text = told();
        assert!(
            !text.contains('{') && text.contains("towline_hub_tunnels 0\n"),
            "{text}"
        );
        assert_eq!(under_way.of_cluster("m1"), 0);
    }

    #[test]
    fn users_without_end_are_told_in_bounds() {
        let under_way = UnderWay::default();
        let all: Vec<_> = (0..1_000)
            .map(|n| under_way.begin("m1", &format!("user-{n}")))
            .collect();
        let most: Vec<_> = (0..3).map(|_| under_way.begin("m2", "user-999")).collect();
        let told = under_way.of_users();
        assert_eq!(told.len(), NAMED + 1);
        assert_eq!(told[0], ("user-999".to_owned(), 4));
        let sum: u64 = told.iter().map(|(_, count)| count).sum();
        assert_eq!(sum, 1_003);
        assert_eq!(told[NAMED].0, "");
        drop((all, most));
        assert!(under_way.of_users().is_empty());
    }
}
