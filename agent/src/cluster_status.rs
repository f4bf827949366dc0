//! What the Cluster object says about this member: health, version, APIs, nodes and sums.
//!
//! Each tick asks the member for its health and the hub for the Cluster, and writes a merge patch of
//! what changed, so that at rest nothing is written. Nodes and pods stream in beside it.

mod collect;
pub mod decide;
pub mod enablements;
mod hub;
mod made;
mod metrics;
pub mod modeling;
pub mod patch;
pub mod probe;
pub mod resources;
mod rival;
pub mod threshold;
mod tick;

use crate::context::AgentContext;
use collect::Collected;
use common::errors::chain;
use rand::Rng as _;
use resources::Ledger;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tick::Ticker;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// The part's name in the agent's errors.
const PART: &str = "status";
/// Wait after the first failed round; doubles up to the usual one.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// Puts the metrics into the registry of a context.
#[cfg(test)]
pub(crate) fn register_metrics(context: &AgentContext) {
    metrics::Metrics::register(context);
}

/// Reports until the agent shuts down.
pub async fn run(context: AgentContext) {
    let started = Instant::now();
    let mut rng = context.chance.stream("status");
    let (collected, _watches) = match context.config.status.resource_modeling {
        true => {
            let collected = Collected {
                ledger: Ledger::new(rng.random()),
                ..Collected::default()
            };
            let collected = Arc::new(Mutex::new(collected));
            let watches = collect::start(&context, started, &collected);
            (Some(collected), watches)
        }
        false => (None, JoinSet::new()),
    };
    let mut ticker = Ticker::new(context.clone(), started, collected);
    let mut generation = context.hub.generation();
    let mut orphans = context.orphans.subscribe();
    let mut told_to_leave = context.told_to_leave.subscribe();
    let mut failures = 0;
    loop {
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            () = after_renewal(&context) => {}
        }
        let begun = Instant::now();
        let done = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            done = ticker.tick() => done,
        };
        let usual = context.config.status.update_frequency;
        let wait = match done {
            Ok(()) => {
                failures = 0;
                context.errors.clear(PART);
                context
                    .refused
                    .send_if_modified(|refused| refused.take().is_some());
                usual
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the Cluster's status was not brought up to date");
                context.errors.report(PART, &chain(&error));
                if let Some(refusal) = error.refusal() {
                    context.refused.send_replace(Some(refusal));
                }
                let step = FIRST_RETRY.saturating_mul(1 << failures.min(8));
                failures += 1;
                step.min(usual).mul_f64(0.75 + 0.25 * rng.random::<f64>())
            }
        };
        tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            // New credentials or another hub: what it has may be something else.
            changed = generation.changed() => if changed.is_err() { return },
            () = sleep_until(begun + wait) => {}
            // An operator waits for it.
            Ok(()) = orphans.changed() => {}
            // The hub waits for it.
            Ok(()) = told_to_leave.changed() => {}
        }
    }
}

/// Waits until the hub answers renewals of the Lease, but no longer than one lasts. Without them it says that the
/// cluster is silent, whatever its status is; and one to which a whole fleet comes back has its hands full.
async fn after_renewal(context: &AgentContext) {
    let mut heard = context.heard.subscribe();
    let answered = async { while !*heard.borrow_and_update() && heard.changed().await.is_ok() {} };
    let _ = timeout(context.config.lease.duration, answered).await;
}

#[cfg(test)]
mod tests;
