//! Delivering Works: hub's Works in, objects of the member out.
//!
//! Rules that decide are pure and lie in files of their own; the engine carries them out. What must
//! always hold: nothing is applied before the Work has our finalizer; nothing is deleted that is not
//! labelled ours for that Work; only the hub's word deletes.

pub mod brakes;
pub mod conditions;
pub mod conflict;
pub mod decide;
pub mod desired;
pub mod engine;
pub mod errors;
pub mod events;
pub mod fields;
pub mod manifest;
pub mod metrics;
pub mod order;
pub mod pace;
pub mod packed;
pub mod queue;
pub mod report;
pub mod retain;
pub mod state;
pub mod stored;
pub mod wire;

use crate::context::AgentContext;
use engine::{Engine, Limits};
use std::sync::Arc;

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
