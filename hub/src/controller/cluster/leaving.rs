//! For how long this hub has seen Clusters being deleted: the time that their agents had. What a hub was away for, or
//! its clock was put on by, is none.

use super::observe::ClusterState;
use common::lock::lock;
use common::names::ClusterName;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// UID, and since when, by name.
#[derive(Debug, Default)]
pub(super) struct Leaving(Mutex<BTreeMap<ClusterName, (String, Instant)>>);

impl Leaving {
    /// Notes how a Cluster was found, none for gone; for how long it has been seen being deleted, if it is.
    pub(super) fn waited(
        &self,
        name: &ClusterName,
        found: Option<&ClusterState>,
    ) -> Option<Duration> {
        let mut all = lock(&self.0);
        let Some(cluster) = found.filter(|cluster| cluster.leaving_for.is_some()) else {
            all.remove(name);
            return None;
        };
        let entry = all.entry(name.clone());
        let seen = entry.or_insert_with(|| (cluster.uid.clone(), Instant::now()));
        if seen.0 != cluster.uid {
            *seen = (cluster.uid.clone(), Instant::now());
        }
        Some(seen.1.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn cluster(uid: &str, leaves: bool) -> ClusterState {
        ClusterState {
            uid: uid.to_owned(),
            leaving_for: leaves.then_some(Duration::ZERO),
            ..ClusterState::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_when_it_was_seen() {
        let (leaving, seconds) = (Leaving::default(), Duration::from_secs);
        let name = ClusterName::parse("m1").expect("valid");
        let waited = |uid, leaves| leaving.waited(&name, Some(&cluster(uid, leaves)));
        assert_eq!(waited("a", false), None);
        advance(seconds(500)).await;
        assert_eq!(waited("a", true), Some(seconds(0)));
        advance(seconds(7)).await;
        assert_eq!(waited("a", true), Some(seconds(7)));
        // Another one of the same name.
        assert_eq!(waited("b", true), Some(seconds(0)));
        advance(seconds(3)).await;
        assert_eq!(waited("b", true), Some(seconds(3)));
        assert_eq!(leaving.waited(&name, None), None);
        assert!(lock(&leaving.0).is_empty());
        // Another hub counts anew.
        assert_eq!(
            Leaving::default().waited(&name, Some(&cluster("b", true))),
            Some(seconds(0))
        );
    }
}
