//! Who has to wait for whom while certificate requests are dealt with at the same time.
//!
//! Of one cluster only one request is taken at a time, from reading to writing: the rights of a
//! registration must not be written after those of the one that replaced it. Whoever else gives or takes the rights of
//! a cluster waits as well: by what was read before they were taken, they must not be given afterwards. Requests that
//! claim a name and a cluster id wait for each other besides, whatever their names: two names may want one id.

use super::decide::Step;
use common::names::ClusterName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex as Short, PoisonError, Weak};
use tokio::sync::{Mutex, OwnedMutexGuard};

type Lock = Arc<Mutex<()>>;

/// The claims of one hub; clones share them. Only the registrar makes them: whoever else gives or takes rights can have
/// no others than its own.
#[derive(Clone)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Claims {
    /// A lock for each cluster that somebody is busy with.
    clusters: Arc<Short<HashMap<String, Weak<Mutex<()>>>>>,
    names_and_ids: Lock,
}

/// Held while a request is dealt with, or rights are given or taken.
#[derive(Default)]
pub(crate) struct Claim {
    _names_and_ids: Option<OwnedMutexGuard<()>>,
    _cluster: Option<OwnedMutexGuard<()>>,
}

impl Claims {
    pub(super) fn new() -> Self {
        Self {
            clusters: Arc::default(),
            names_and_ids: Lock::default(),
        }
    }

    /// Waits until nobody else is busy with a cluster.
    pub(crate) async fn cluster(&self, cluster: &ClusterName) -> Claim {
        self.of(cluster, false).await
    }

    /// Waits until nobody else is busy with a cluster, and, if it is to be claimed, until nobody claims.
    pub(super) async fn of(&self, cluster: &ClusterName, claims: bool) -> Claim {
        // Always in this order, so that no two wait for each other.
        let cluster = self.lock_of(cluster).lock_owned().await;
        let names_and_ids = match claims {
            true => Some(self.names_and_ids.clone().lock_owned().await),
            false => None,
        };
        Claim {
            _names_and_ids: names_and_ids,
            _cluster: Some(cluster),
        }
    }

    fn lock_of(&self, cluster: &ClusterName) -> Lock {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.retain(|_, lock| lock.strong_count() > 0);
        let known = clusters.get(cluster.as_str()).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let lock = Lock::default();
            clusters.insert(cluster.to_string(), Arc::downgrade(&lock));
            lock
        })
    }
}

impl Claim {
    /// What of it is held while a step is carried out.
    pub(super) fn during(self, step: &Step) -> Self {
        match step {
            Step::Reserve { .. } | Step::CreateCluster { .. } | Step::TakeOver { .. } => self,
            // Nobody need wait for watches to close.
            Step::CloseWatches { .. } => Self::default(),
            // The name and the id are its own: what follows concerns no other cluster.
            _ => Self {
                _names_and_ids: None,
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::observe::ClusterFacts;
    use super::*;
    use futures::FutureExt as _;

    fn name(name: &str) -> ClusterName {
        ClusterName::parse(name).expect("valid")
    }

    #[tokio::test]
    async fn one_cluster_is_one_at_a_time_and_so_is_claiming() {
        let claims = Claims::default();
        let a = claims.of(&name("a"), true).await;
        assert!(claims.of(&name("a"), false).now_or_never().is_none());
        assert!(claims.of(&name("b"), true).now_or_never().is_none());
        let b = claims.of(&name("b"), false).await;
        let a = a.during(&Step::Approve { message: "" });
        assert!(claims.of(&name("a"), false).now_or_never().is_none());
        assert!(claims.of(&name("b"), false).now_or_never().is_none());
        assert!(claims.of(&name("c"), true).now_or_never().is_some());
        drop((a, b));
        assert!(claims.of(&name("a"), true).now_or_never().is_some());
    }

    #[tokio::test]
    async fn nobody_waits_for_watches_to_close() {
        let claims = Claims::default();
        let closes = Step::CloseWatches {
            cluster: ClusterFacts {
                name: name("a"),
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                deleting: false,
                id: None,
                registration: None,
                registered_by: None,
                closing_watches: Some("unknown".to_owned()),
                quarantined: false,
                joined: false,
                certificate_end: None,
            },
        };
        let _held = claims.of(&name("a"), true).await.during(&closes);
        assert!(claims.of(&name("a"), true).now_or_never().is_some());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_whom_nobody_is_busy_with() {
        let claims = Claims::default();
        for number in 0..10 {
            drop(claims.of(&name(&format!("m{number}")), true).await);
        }
        let left = claims.clusters.lock().expect("no panic").len();
        assert!(left <= 1, "{left}");
    }
}
