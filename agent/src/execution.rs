//! Delivering Works: hub's Works in, objects of the member out.
//!
//! Rules that decide are pure and lie in files of their own. Parts carry them out over the [`state`]: [`intake`]
//! takes in what the watches tell, [`reconcile`] works on a Work and has [`apply`] and [`prune`] change the
//! member, [`report`] tells the hub, [`persist`] keeps the last desired set. The [`engine`] wires them. What must
//! always hold: nothing is applied before the Work has our finalizer; nothing is deleted that is not
//! labelled ours for that Work; only the hub's word deletes.

pub mod apply;
pub mod brakes;
pub mod conditions;
pub mod conflict;
pub mod contact;
pub mod decide;
pub mod desired;
pub mod diagnosis;
pub mod engine;
pub mod errors;
pub mod events;
pub mod fields;
pub mod intake;
pub mod interpret;
pub mod manifest;
pub mod metrics;
pub mod order;
pub mod pace;
pub mod packed;
pub mod persist;
pub mod prune;
pub mod reconcile;
pub mod report;
pub mod state;
pub mod stored;
#[cfg(test)]
mod testing;
pub mod wire;
pub mod writes;

use crate::context::AgentContext;
use engine::{Engine, Limits};
use std::sync::Arc;
use std::time::Duration;

/// How long a Work waits for the first list of what is live.
const FIRST_LIST: Duration = Duration::from_secs(10);

/// Whose Works these are.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The cluster.
    pub cluster: Arc<str>,
    /// Its execution namespace.
    pub namespace: Arc<str>,
}

/// The delivery of Works over the shared parts; it does nothing until [`Engine::run`].
pub fn engine(ctx: &AgentContext) -> Arc<Engine> {
    let limits = Limits {
        works: ctx.config.works.concurrent_syncs,
        member: ctx.config.works.member_concurrency,
    };
    Engine::new(ctx, limits)
}

/// Delivers Works until the context's shutdown.
pub async fn run(ctx: AgentContext, engine: Arc<Engine>) {
    ctx.register_metrics(|registry| metrics::register(registry, &engine));
    engine.run().await;
}
