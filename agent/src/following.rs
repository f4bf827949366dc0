//! Follows the hub: reads its addresses and its certificate authorities from `kube-public/cluster-info`,
//! so that neither a change of the one nor a replacement of the other has anybody touch a member.
//!
//! It is read over the agent's own verified connection and nowhere else, seldom, and soon after a time in
//! which the hub was away: it may have come back changed. [`decide`] says what to make of it.

pub mod decide;

use crate::context::ErrorReport;
use common::client::{Problem, classify};
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE, Published};
use common::signal;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rand::Rng as _;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The part's name in the agent's errors.
pub const PART: &str = "cluster-info";
/// The part whose errors tell that the hub is away.
const LEASE: &str = "lease";
/// It is read at every so manieth check of the certificate; a minute apart, they make five.
const CHECKS: u32 = 5;
/// Agents that lost the same hub, or were started together, spread over this share of a check.
const SPREAD: u32 = 5;

/// Why the hub's word about itself was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was not read.
    #[error("failed to read ConfigMap \"{PUBLIC_NAMESPACE}/{CLUSTER_INFO}\" of the hub: {0}")]
    Read(Problem),
    /// It says nothing of use.
    #[error("ConfigMap \"{PUBLIC_NAMESPACE}/{CLUSTER_INFO}\" of the hub cannot be used: {0}")]
    Unusable(String),
    /// The hub was not verified by what it says alone.
    #[error(
        "the hub publishes certificate authorities that do not verify it; the known ones are kept"
    )]
    Unproved(#[source] Box<Self>),
    /// Over the new connection it said something else.
    #[error("the hub publishes other certificate authorities than a moment ago")]
    Changed,
}

/// Reads what the hub publishes.
pub async fn read(hub: Client) -> Result<Published, Error> {
    let api: Api<ConfigMap> = Api::namespaced(hub, PUBLIC_NAMESPACE);
    let map = api.get(CLUSTER_INFO).await;
    let map = map.map_err(|error| Error::Read(classify(&error)))?;
    Published::read(&map).map_err(Error::Unusable)
}

/// Reads it again by a client that trusts nothing but what it said.
pub async fn prove(alone: Client, said: &Published) -> Result<(), Error> {
    let again = read(alone).await;
    let again = again.map_err(|error| Error::Unproved(Box::new(error)))?;
    if again.authorities == said.authorities {
        Ok(())
    } else {
        Err(Error::Changed)
    }
}

/// When the hub is asked next.
#[derive(Debug)]
pub struct Pace {
    check: Duration,
    due: Instant,
    /// Whether the hub was away when it was looked at last.
    away: bool,
    errors: signal::Receiver<BTreeMap<&'static str, String>>,
    rng: StdRng,
}

impl Pace {
    /// Soon after the start: what is stored may be old.
    pub fn new(check: Duration, errors: &ErrorReport, rng: StdRng) -> Self {
        let mut pace = Self {
            check,
            due: Instant::now(),
            away: false,
            errors: errors.changed(),
            rng,
        };
        pace.soon();
        pace
    }

    /// Whether to ask now.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Until then.
    pub fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// After it was asked.
    pub fn asked(&mut self) {
        let share: f64 = self.rng.random_range(0.9..1.1);
        self.due = Instant::now() + (self.check * CHECKS).mul_f64(share);
    }

    fn soon(&mut self) {
        let share: f64 = self.rng.random();
        self.due = Instant::now() + (self.check / SPREAD).mul_f64(share);
    }

    /// Returns when the hub takes heartbeats again, and has it asked soon.
    pub async fn back(&mut self) {
        loop {
            let away = self.errors.borrow_and_update().contains_key(LEASE);
            if std::mem::replace(&mut self.away, away) && !away {
                return self.soon();
            }
            if self.errors.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::chance::Chance;

    #[tokio::test(start_paused = true)]
    async fn the_hub_is_asked_seldom_and_soon_after_it_was_away() {
        let minute = Duration::from_secs(60);
        let errors = ErrorReport::default();
        let mut pace = Pace::new(minute, &errors, Chance::seeded(1).stream("pace"));
        assert!(pace.left() <= minute / 5);
        pace.asked();
        assert!(!pace.is_due());
        let usual = pace.left();
        assert!(usual >= minute * 4 && usual <= minute * 6, "{usual:?}");

        let calm = tokio::time::timeout(minute, pace.back()).await;
        assert!(calm.is_err(), "nothing happened");
        errors.report("works", &"no matter");
        errors.report("lease", &"refused");
        let away = tokio::time::timeout(minute, pace.back()).await;
        assert!(away.is_err(), "it is away");
        errors.clear("lease");
        pace.back().await;
        assert!(pace.left() <= minute / 5);
        tokio::time::advance(minute / 5).await;
        assert!(pace.is_due());
    }
}
