//! One term: the parts of the agent at work while this replica leads.

use super::{Candidacy, Process, metrics};
use crate::context::{AgentContext, Certified, ClusterView, ErrorReport, Refusal};
use crate::departure::{self, Decision, Seen};
use crate::error::Error;
use crate::execution::engine::Engine;
use crate::execution::stored::place::Place;
use crate::following::Pace;
use crate::hub::HubHandle;
use crate::registration::Registrar;
use crate::registration::bootstrap::Handed;
use crate::registration::progress::Progress;
use crate::report::Phase;
use crate::rotation::Schedule;
use crate::upkeep::{InForce, Keeper};
use crate::{cluster_status, execution, heartbeat, proxy, uninstall};
use common::api::work::Work;
use common::errors::chain;
use common::leader::Standing;
use common::names::ClusterName;
use common::signal;
use common::unregister::Mode;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use prometheus_client::registry::Registry;
use rand::Rng as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// How long parts may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often departure is looked at when nothing changes.
const LOOK: Duration = Duration::from_secs(2);

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
        // Parts finish what they are at, Works and status first; the rest is dropped.
        context.shutdown.cancel();
        let stop = async { while parts.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, stop).await.is_err() {
            tracing::warn!("some parts did not stop in time");
            parts.abort_all();
        }
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

    /// Returns when the agent is to leave its member; an error when its registration is gone.
    async fn watch_departure(
        &self,
        registrar: Option<&Registrar>,
        engine: &Engine,
    ) -> Result<(), Error> {
        let mut view = self.context.cluster_view.subscribe();
        let mut refused = self.context.refused.subscribe();
        let mut seen = Seen {
            remembered: self.told,
            ..Seen::default()
        };
        let mut refused_since: Option<Instant> = None;
        let mut counted = None;
        loop {
            seen.view.clone_from(&view.borrow_and_update());
            let refusal = refused.borrow_and_update().clone();
            seen.refused = refusal.map(|refusal| {
                let since = refused_since.get_or_insert_with(Instant::now);
                (since.elapsed(), refusal)
            });
            if seen.refused.is_none() {
                refused_since = None;
            }
            seen.works_left =
                departure::works_left(seen.refused.is_some(), counted, engine.has_no_works());
            let ends = self.context.certified.borrow().ends;
            seen.certificate_is_over = ends.is_some_and(|ends| self.context.clock.now() >= ends);
            match departure::decide(&seen) {
                Decision::Stay => {}
                Decision::Remember(mode) => {
                    let stored = self.remember(registrar, mode).await;
                    if stored.is_some() {
                        seen.remembered = stored;
                        // The hub is told now, and not before.
                        self.context.told_to_leave.send_replace(stored);
                    }
                    if stored == Some(mode) {
                        continue;
                    }
                }
                Decision::CountWorks => match self.has_works().await {
                    Ok(left) => {
                        counted = Some(left);
                        if !left {
                            continue;
                        }
                    }
                    Err(error) => {
                        if let Some(refusal) = Refusal::of(&error) {
                            self.context.refused.send_replace(Some(refusal));
                        }
                    }
                },
                Decision::Leave => {
                    let mode = seen.view.as_ref().and_then(|view| view.unregister);
                    if mode.or(self.told) == Some(Mode::KeepWorkloads) {
                        engine.release_rest().await;
                    }
                    return Ok(());
                }
                Decision::Gone(Refusal { code, message }) => {
                    engine.stop_healing().await;
                    return Err(Error::RegistrationGone(format!("{code}: {message}")));
                }
            }
            // Whichever comes first; a closed channel cannot be, the context holds its senders.
            tokio::select! {
                biased;
                _ = view.changed() => {}
                _ = refused.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Stores what the hub told us, and says what is stored; none where that is not known.
    async fn remember(&self, registrar: Option<&Registrar>, mode: Mode) -> Option<Mode> {
        tracing::info!(mode = mode.as_str(), "the hub unregisters this cluster");
        let Some(registrar) = registrar else {
            return Some(mode);
        };
        let remembered = async {
            let mut progress = Progress::load(registrar.store.clone())
                .await
                .map_err(|e| chain(&e).to_string())?;
            let stored = progress.remember_to_leave(mode).await;
            stored.map_err(|e| chain(&e).to_string())?;
            // A conflict was answered by reading; the next round writes again.
            Ok::<Option<Mode>, String>(progress.stored.told_to_leave)
        };
        remembered.await.unwrap_or_else(|error| {
            tracing::warn!(error, "not stored that this cluster is unregistered");
            None
        })
    }

    async fn has_works(&self) -> Result<bool, kube::Error> {
        let namespace = self.context.cluster.execution_namespace();
        let api: Api<Work> = Api::namespaced(self.context.hub.client(), &namespace);
        let found = api.list_metadata(&ListParams::default().limit(1)).await?;
        Ok(!found.items.is_empty())
    }

    async fn leave(&self, registrar: Option<&Registrar>) {
        let message = "unregistered; the agent removes itself";
        tracing::info!("{message}");
        let reporter = &self.process.reporter;
        reporter
            .say(Phase::Unregistered, "Unregistered", message)
            .await;
        let Some(registrar) = registrar else {
            return;
        };
        let MemberPlace {
            namespace,
            by_files,
        } = self.place();
        let member = &self.context.member;
        let state_dir = self.process.config.member.state_dir.as_ref();
        let works = Place::new(member.clone(), namespace, state_dir);
        let removed = if by_files {
            uninstall::remove_state(&registrar.store, &works).await
        } else {
            uninstall::remove_from_member(member, &registrar.store, &works, namespace).await
        };
        if let Err(error) = removed {
            tracing::error!(error = %chain(&error), "something of the agent is left behind");
        }
    }

    fn place(&self) -> MemberPlace<'_> {
        let member = &self.process.config.member;
        MemberPlace {
            namespace: &member.namespace,
            by_files: member.state_dir.is_some(),
        }
    }
}

struct MemberPlace<'a> {
    namespace: &'a str,
    by_files: bool,
}
