//! One term: the parts of the agent at work while this replica leads.

mod leaving;

use super::candidacy::Candidacy;
use super::{Process, metrics};
use crate::context::{AgentContext, Certified, ClusterView, ErrorReport};
use crate::error::Error;
use crate::following::Pace;
use crate::hub::HubHandle;
use crate::registration::Registrar;
use crate::registration::bootstrap::Handed;
use crate::registration::progress::Progress;
use crate::report::Phase;
use crate::rotation::Schedule;
use crate::upkeep::{InForce, Keeper};
use crate::{cluster_status, execution, heartbeat, proxy};
use common::leader::Standing;
use common::names::ClusterName;
use common::signal;
use common::unregister::Mode;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use prometheus_client::registry::Registry;
use rand::Rng as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// How long parts may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How a term ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The process is to stop.
    Shutdown,
    /// Another replica leads.
    Stepped,
    /// A new registration is stored.
    Reregistered,
    /// The agent has left its member.
    Left,
}

/// Whether what is known of Works is stored once more at the end of a term: whoever leads no more would write it over
/// what the next leader has stored.
fn stores(end: &Result<End, Error>, leads: bool) -> bool {
    leads && !matches!(end, Ok(End::Stepped))
}

/// What it takes to keep a registration; none with hand-made credentials.
pub(super) struct Keeping {
    pub(super) registrar: Arc<Registrar>,
    pub(super) secrets: Option<Api<Secret>>,
    pub(super) handed: Handed,
    pub(super) progress: Progress,
    pub(super) in_force: InForce,
}

/// One term.
pub(super) struct Term<'a> {
    process: &'a Process,
    context: AgentContext,
    /// What the hub told a life before this one.
    told: Option<Mode>,
}

impl<'a> Term<'a> {
    pub(super) fn new(
        process: &'a Process,
        cluster: &ClusterName,
        cluster_id: &str,
        hub: HubHandle,
        certified: signal::Receiver<Certified>,
        told: Option<Mode>,
        standing: Option<signal::Receiver<Standing>>,
    ) -> Self {
        // Known before the first answer of the hub: Works that are deleted meanwhile are to be
        // treated as it was told.
        let view = told.map(|mode| ClusterView {
            deleting: true,
            unregister: Some(mode),
            ..ClusterView::default()
        });
        let context = AgentContext {
            cluster: cluster.clone(),
            cluster_id: cluster_id.to_owned(),
            config: process.config.clone(),
            hub,
            member: process.member.clone(),
            member_config: process.member_config.clone(),
            member_proxy: process.member_proxy.clone(),
            clock: process.env.clock.clone(),
            chance: process.env.chance.clone(),
            network: process.env.network.clone(),
            metrics: process.metrics.clone(),
            shutdown: CancellationToken::new(),
            standing,
            superseded: CancellationToken::new(),
            cluster_view: signal::Sender::new(view),
            heard: signal::Sender::new(false),
            told_to_leave: signal::Sender::new(told),
            refused: signal::Sender::new(None),
            orphans: signal::Sender::new(None),
            certified,
            errors: ErrorReport::default(),
        };
        Self {
            process,
            context,
            told,
        }
    }

    /// Works until something ends the term.
    pub(super) async fn work(
        self,
        keeping: Option<Keeping>,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        let context = &self.context;
        context.register_metrics(|registry| {
            // A term starts with counters of its own; those of the last one go with it.
            *registry = Registry::default();
            let certified = context.certified.clone();
            metrics::register(registry, context.clock.clone(), certified);
        });
        let mut parts = JoinSet::new();
        let mut spawn = |name, part: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let part = async move {
                part.await;
                name
            };
            // Of several agents in one process each names its cluster in what it logs.
            parts.spawn(part.in_current_span())
        };
        spawn("lease", Box::pin(heartbeat::run(context.clone())));
        spawn("status", Box::pin(cluster_status::run(context.clone())));
        let engine = execution::engine(context);
        let works = execution::run(context.clone(), engine.clone());
        spawn("works", Box::pin(works));
        spawn("proxy", Box::pin(proxy::run(context.clone())));
        let registrar = keeping.as_ref().map(|keeping| keeping.registrar.clone());
        let keeper = keeping.map(|keeping| self.keeper(keeping));
        let keep = async {
            match keeper {
                Some(keeper) => keeper.run().await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            biased;
            () = self.process.shutdown.cancelled() => Ok(End::Shutdown),
            () = candidacy.wait_to_step_down() => {
                tracing::warn!("another replica took over");
                Ok(End::Stepped)
            }
            () = context.superseded.cancelled() => {
                tracing::warn!(
                    "the member's API server cannot be reached from here, and another replica reports it as ready: this one stands back"
                );
                Ok(End::Stepped)
            }
            () = keep => Ok(End::Reregistered),
            () = self.watch_health() => Ok(End::Shutdown),
            () = self.tell_readiness() => Ok(End::Shutdown),
            departed = self.watch_departure(registrar.as_deref(), &engine) => departed.map(|()| End::Left),
            Some(ended) = parts.join_next() => Err(Error::Part {
                part: ended.as_ref().copied().unwrap_or("part"),
                cause: ended.err().map_or("it returned".to_owned(), |e| e.to_string()),
            }),
        };
        if !stores(&end, candidacy.leads()) {
            engine.hand_over();
        }
        // Parts finish what they are at, Works and status first; the rest is dropped.
        context.shutdown.cancel();
        let stop = async { while parts.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, stop).await.is_err() {
            tracing::warn!("some parts did not stop in time");
            parts.abort_all();
        }
        // Only who works tells.
        context.register_metrics(|registry| *registry = Registry::default());
        if matches!(end, Ok(End::Left)) {
            self.leave(registrar.as_deref()).await;
        }
        if matches!(end, Ok(End::Stepped)) && context.superseded.is_cancelled() {
            tokio::select! {
                biased;
                () = self.process.shutdown.cancelled() => {}
                () = candidacy.stand_back() => {}
            }
        }
        end
    }

    fn keeper(&self, keeping: Keeping) -> Keeper {
        let Keeping {
            registrar,
            secrets,
            handed,
            progress,
            in_force,
        } = keeping;
        let applied = progress.stored.current.clone();
        let mut rng = registrar.env.chance.stream("renewal");
        let schedule = Schedule {
            remaining: registrar.config.renewal_remaining,
            dice: rng.random(),
        };
        let errors = self.context.errors.clone();
        Keeper {
            pace: Pace::new(
                registrar.config.checking_interval,
                &errors,
                registrar.env.chance.stream("cluster-info"),
            ),
            rng,
            registrar,
            secrets,
            handed,
            progress,
            applied,
            in_force,
            hub: self.context.hub.clone(),
            errors,
            schedule,
        }
    }

    /// Shows in readiness whether the hub takes our heartbeats; never ends.
    async fn watch_health(&self) {
        let mut errors = self.context.errors.changed();
        loop {
            match errors.borrow_and_update().get("lease") {
                None => self.process.checks.hub.ok(),
                Some(error) => self.process.checks.hub.fail(error.clone()),
            }
            if errors.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Tells in the member what the hub has of us, for who installs the agent; never ends.
    async fn tell_readiness(&self) {
        let cluster = self.context.cluster.as_str();
        let mut view = self.context.cluster_view.subscribe();
        let mut told = "";
        loop {
            let ready = view
                .borrow_and_update()
                .as_ref()
                .and_then(|view| view.ready.clone());
            let (reason, message) = match ready.as_deref() {
                Some("True") => ("Ready", format!("cluster {cluster:?} is Ready")),
                Some(_) => (
                    "NotReady",
                    format!("cluster {cluster:?} is not Ready: see its conditions on the hub"),
                ),
                // Not seen yet: what was said at the start of the term still holds.
                None => ("", String::new()),
            };
            // Once a change: others have things to say too, which the next tick must not wipe out.
            if !reason.is_empty() && reason != told {
                told = reason;
                self.process
                    .reporter
                    .say(Phase::Running, reason, &message)
                    .await;
            }
            if view.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leader_stores_at_the_end() {
        let cases = [
            (End::Shutdown, true, true),
            (End::Shutdown, false, false),
            // It may lead for its own part where it does not reach the member.
            (End::Stepped, true, false),
            (End::Stepped, false, false),
            (End::Reregistered, true, true),
        ];
        for (end, leads, want) in cases {
            assert_eq!(stores(&Ok(end), leads), want, "{end:?} {leads}");
        }
    }
}
