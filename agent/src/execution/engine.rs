//! The parts of the delivery of Works, wired: sources feed the state, a controller brings Works to the member,
//! another reports to the hub.
//!
//! Queues: Works to work on and Works to report, each without duplicates and so no longer than there are
//! Works; Events, bounded, dropped when full.

use super::Scope;
use super::apply::Applier;
use super::apply::object::ObjectApplier;
use super::contact::Contact;
use super::diagnosis::Diagnoser;
use super::events::Events;
use super::intake::autoscalers::Autoscalers;
use super::intake::objects::ObjectSource;
use super::intake::works::WorkSource;
use super::interpret::Interpreter;
use super::persist::Persister;
use super::prune::Pruner;
use super::prune::orphans::Orphans;
use super::reconcile::Reconciler;
use super::reconcile::deletion::Deletion;
use super::reconcile::rounds::Rounds;
use super::report::reporter::Reporter;
use super::state::Shared;
use super::stored::place::Place;
use super::writes::WorkWriter;
use crate::context::AgentContext;
use crate::hub::HubHandle;
use crate::member::api::Member;
use common::chance::Chance;
use common::controller::{Controller, Metrics, keep_up};
use common::queue::Queue;
use futures::FutureExt as _;
use std::ops::ControlFlow::Continue;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// How many reports are written at the same time.
const REPORTERS: usize = 8;

/// What the engine is told to respect.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Works at the same time.
    pub works: usize,
    /// Requests to the member at the same time.
    pub member: usize,
}

/// Delivers the Works of one cluster.
pub struct Engine {
    scope: Scope,
    hub: HubHandle,
    shutdown: CancellationToken,
    workers: usize,
    metrics: Metrics,
    chance: Chance,
    state: Shared,
    queue: Queue<Arc<str>>,
    events: Arc<Events>,
    contact: Arc<Contact>,
    persister: Arc<Persister>,
    works: Arc<WorkSource>,
    objects: Arc<ObjectSource>,
    autoscalers: Arc<Autoscalers>,
    orphans: Arc<Orphans>,
    pruner: Arc<Pruner>,
    reporter: Arc<Reporter>,
    diagnoser: Arc<Diagnoser>,
    reconciler: Arc<Reconciler>,
}

impl Engine {
    /// An engine over the shared parts; its metrics are registered with theirs.
    pub fn new(ctx: &AgentContext, limits: Limits) -> Arc<Self> {
        let scope = Scope {
            cluster: ctx.cluster.as_str().into(),
            namespace: ctx.cluster.execution_namespace().into(),
        };
        let metrics = ctx.register_metrics(|registry| Metrics::register(registry, "towline_agent"));
        let (state, queue) = (Shared::default(), Queue::new());
        let interpreter = Interpreter::default();
        let events = Arc::new(Events::new(ctx.clock.clone()));
        let contact = Arc::new(Contact::default());
        let permits = Arc::new(Semaphore::new(limits.member.max(1)));
        let config = &ctx.config.member;
        let member = Arc::new(Member::new(
            ctx.member.clone(),
            permits.clone(),
            config.reserved.clone(),
        ));
        let persister = Persister::new(
            scope.namespace.clone(),
            Place::new(
                ctx.member.clone(),
                &config.namespace,
                config.state_dir.as_ref(),
            ),
            permits,
            state.clone(),
            ctx.errors.clone(),
            ctx.chance.clone(),
        );
        let persister = Arc::new(persister.while_it_leads(ctx.standing.clone()));
        let writer = Arc::new(WorkWriter {
            namespace: scope.namespace.clone(),
            hub: ctx.hub.clone(),
            contact: contact.clone(),
            state: state.clone(),
            clock: ctx.clock.clone(),
        });
        let reporter = Arc::new(Reporter {
            scope: scope.clone(),
            state: state.clone(),
            works: writer.clone(),
            contact: contact.clone(),
            events: events.clone(),
            queue: Queue::new(),
        });
        let pruner = Arc::new(Pruner {
            scope: scope.clone(),
            member: member.clone(),
            state: state.clone(),
            queue: queue.clone(),
            persister: persister.clone(),
            events: events.clone(),
        });
        let orphans = Arc::new(Orphans::new(
            member.clone(),
            state.clone(),
            persister.clone(),
            pruner.clone(),
            ctx.orphans.clone(),
        ));
        let autoscalers = Arc::new(Autoscalers::new(
            ctx.member.clone(),
            state.clone(),
            queue.clone(),
            ctx.chance.clone(),
        ));
        let applier = Applier {
            scope: scope.clone(),
            member: member.clone(),
            state: state.clone(),
            autoscalers: autoscalers.clone(),
            objects: ObjectApplier {
                scope: scope.clone(),
                member: member.clone(),
                state: state.clone(),
                queue: queue.clone(),
                persister: persister.clone(),
                interpreter: interpreter.clone(),
                fights: Mutex::default(),
                clock: ctx.clock.clone(),
            },
        };
        let rounds = Rounds {
            state: state.clone(),
            queue: queue.clone(),
            persister: persister.clone(),
            pruner: pruner.clone(),
            reporter: reporter.clone(),
            clock: ctx.clock.clone(),
            errors: ctx.errors.clone(),
            retries: ctx.chance.shared_stream("retries of Works"),
        };
        let deletion = Deletion {
            state: state.clone(),
            queue: queue.clone(),
            persister: persister.clone(),
            pruner: pruner.clone(),
            works: writer.clone(),
            reporter: reporter.clone(),
            view: ctx.cluster_view.subscribe(),
            clock: ctx.clock.clone(),
        };
        let reconciler = Arc::new(Reconciler {
            state: state.clone(),
            contact: contact.clone(),
            works: writer,
            persister: persister.clone(),
            reporter: reporter.clone(),
            orphans: orphans.clone(),
            applier,
            rounds,
            deletion,
        });
        let works = Arc::new(WorkSource {
            state: state.clone(),
            queue: queue.clone(),
            persister: persister.clone(),
            events: events.clone(),
            contact: contact.clone(),
            orphans: orphans.clone(),
            reporter: reporter.clone(),
            errors: ctx.errors.clone(),
            chance: ctx.chance.clone(),
        });
        let diagnoser = Arc::new(Diagnoser::new(
            member.clone(),
            state.clone(),
            reporter.clone(),
        ));
        let objects = Arc::new(ObjectSource {
            scope: scope.clone(),
            member,
            state: state.clone(),
            queue: queue.clone(),
            reporter: reporter.clone(),
            diagnoser: diagnoser.clone(),
            interpreter,
            metrics: metrics.clone(),
            chance: ctx.chance.clone(),
        });
        Arc::new(Self {
            scope,
            hub: ctx.hub.clone(),
            shutdown: ctx.shutdown.clone(),
            workers: limits.works.max(1),
            metrics,
            chance: ctx.chance.clone(),
            state,
            queue,
            events,
            contact,
            persister,
            works,
            objects,
            autoscalers,
            orphans,
            pruner,
            reporter,
            diagnoser,
            reconciler,
        })
    }

    /// Runs until the context's shutdown.
    pub async fn run(self: &Arc<Self>) {
        // What was seen of the hub before comes before what it says now.
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return,
            stopped = self.persister.recall() => if stopped {
                self.contact.forbid_alone();
            },
        }
        let mut tasks = JoinSet::new();
        // What is under way at the end is dropped, as a kill would.
        let never = CancellationToken::new();
        let works = Controller::over(self.queue.clone(), self.reconciler.clone());
        let works = works.workers(self.workers);
        let works = works.run(self.metrics.clone(), self.chance.clone(), never.clone());
        tasks.spawn(works.in_current_span());
        let reports = Controller::over(self.reporter.queue.clone(), self.reporter.clone());
        let reports = reports.workers(REPORTERS);
        let reports = reports.run(self.metrics.clone(), self.chance.clone(), never.clone());
        tasks.spawn(reports.in_current_span());
        let diagnoses = Controller::over(self.diagnoser.queue.clone(), self.diagnoser.clone());
        let diagnoses = diagnoses.run(self.metrics.clone(), self.chance.clone(), never);
        tasks.spawn(diagnoses.in_current_span());
        self.spawn(&mut tasks, "works", |engine| async move {
            engine.works.run(&engine.hub, &engine.scope.namespace).await;
        });
        self.spawn(&mut tasks, "silence", |engine| async move {
            engine.works.await_hub().await;
        });
        self.spawn(&mut tasks, "kinds", |engine| engine.objects.clone().run());
        self.spawn(&mut tasks, "autoscalers", |engine| async move {
            engine.autoscalers.run().await;
        });
        self.spawn(&mut tasks, "persist", |engine| async move {
            engine.persister.run().await;
        });
        self.spawn(&mut tasks, "orphans", |engine| async move {
            engine.orphans.run().await;
        });
        self.spawn(&mut tasks, "events", |engine| async move {
            let is_busy = || engine.queue.is_busy();
            engine
                .events
                .write(&engine.hub, &engine.scope.namespace, is_busy)
                .await;
        });
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {}
            ended = tasks.join_next() => {
                // None of them returns by itself.
                tracing::error!(?ended, "a part of the Work delivery ended");
            }
        }
        tasks.shutdown().await;
        self.persister.flush_at_end().await;
    }

    /// Runs a part for ever; when it panics it begins anew.
    fn spawn<F>(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        name: &'static str,
        part: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = self.clone();
        let part = move || part(engine.clone()).map(Continue);
        let rng = self.chance.stream(name);
        tasks.spawn(keep_up(name, self.metrics.clone(), rng, part).in_current_span());
    }

    /// The verified hub says that our registration is gone: from now on, and in later lives, nothing is
    /// healed, until a hub lists Works again.
    pub async fn stop_healing(&self) {
        self.contact.forbid_alone();
        self.persister.healing_stops().await;
    }

    /// Another replica leads: this one writes the stored set no more.
    pub fn hand_over(&self) {
        self.persister.hand_over();
    }

    /// Takes our marks off whatever still carries them, also of Works that are gone already: the cluster
    /// is unregistered and everything in it stays.
    pub async fn release_rest(&self) {
        self.pruner.release_rest().await;
    }

    /// Whether the hub has told of each Work of ours that it is gone.
    pub fn has_no_works(&self) -> bool {
        let state = self.state.lock();
        state.listed && state.works.is_empty()
    }

    /// Whether nothing waits and nothing is worked on.
    pub fn is_idle(&self) -> bool {
        self.queue.is_idle() && self.reporter.queue.is_idle()
    }

    /// How many Works are in which state and how many objects are orphaned, for metrics.
    pub fn census(&self) -> Census {
        let state = self.state.lock();
        let mut census = Census {
            orphans: state.count_orphans(),
            ..Census::default()
        };
        for record in state.works.values() {
            let applied = common::conditions::get(&record.conditions, super::conditions::APPLIED);
            match applied.map(|c| c.status.as_str()) {
                Some("True") => census.applied += 1,
                Some(_) => census.failed += 1,
                None => census.pending += 1,
            }
        }
        census
    }
}

/// Numbers about Works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Applied is True.
    pub applied: usize,
    /// Applied is False.
    pub failed: usize,
    /// Not tried yet.
    pub pending: usize,
    /// Live objects whose Work the hub does not have.
    pub orphans: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::{lines, map, marked, refusal, scripted};
    use crate::execution::wire::WireWork;
    use crate::testing::context;
    use common::controller::{Reconcile as _, Requeue};
    use serde_json::json;
    use std::sync::atomic::{AtomicBool, Ordering};

    const WORK: &str = "PATCH /apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/w";
    const LIMITS: Limits = Limits {
        works: 1,
        member: 4,
    };

    fn work(metadata: serde_json::Value) -> WireWork {
        let mut work = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "5",
            "generation": 1}, "spec": {"workload": {"manifests": [map("a")]}}});
        for (key, value) in metadata.as_object().expect("a map") {
            work["metadata"][key] = value.clone();
        }
        serde_json::from_value(work).expect("decodes")
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_applied_before_the_work_has_our_finalizer() {
        let ready = Arc::new(AtomicBool::new(false));
        let answers = ready.clone();
        let (hub, told) = scripted(move |_| {
            let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6",
                "finalizers": ["karmada.io/execution-controller"]}});
            let ready = answers.load(Ordering::Relaxed);
            Some(if ready {
                (200, after)
            } else {
                refusal(500, "InternalError")
            })
        });
        let (member, asked) = scripted(|_| Some((201, marked("a", "o", "w"))));
        let engine = Engine::new(&context(hub, member).await, LIMITS);
        engine.contact.answered();
        let (name, _) = engine.state.lock().upsert(&work(json!({})));
        let failed = engine.reconciler.reconcile(&name).await;
        assert!(failed.is_err());
        assert_eq!(lines(&asked), [""; 0]);
        ready.store(true, Ordering::Relaxed);
        let end = engine.reconciler.reconcile(&name).await;
        assert_eq!(end.expect("worked on"), Requeue::Never);
        assert_eq!(lines(&asked).len(), 1);
        assert_eq!(lines(&told), [WORK, WORK, &format!("{WORK}/status")]);
        assert_eq!(engine.census().orphans, 0);
    }

    /// Who else wants what is to go may be on the list's next page.
    #[tokio::test(start_paused = true)]
    async fn nothing_goes_while_the_list_of_works_is_read() {
        let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6"}});
        let (hub, _) = scripted(move |_| Some((200, after.clone())));
        let (member, asked) = scripted(|line| {
            let gone = line.starts_with("DELETE");
            let gone = gone.then(|| json!({"kind": "Status"}));
            Some((200, gone.unwrap_or_else(|| marked("a", "o", "w"))))
        });
        let engine = Engine::new(&context(hub, member).await, LIMITS);
        engine.contact.answered();
        let held = json!({"finalizers": ["karmada.io/execution-controller"]});
        let (name, _) = engine.state.lock().upsert(&work(held));
        engine.state.lock().list_begins();
        let text = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6", "generation": 2,
            "finalizers": ["karmada.io/execution-controller"]},
            "spec": {"workload": {"manifests": []}}});
        let emptied: WireWork = serde_json::from_value(text.clone()).expect("decodes");
        engine.state.lock().upsert(&emptied);
        let deleted = || lines(&asked).iter().any(|line| line.starts_with("DELETE"));
        let round = engine.reconciler.reconcile(&name).await;
        assert_eq!(round.expect("worked on"), Requeue::Never);
        assert!(!deleted(), "what left it");
        let mut going = text;
        going["metadata"]["resourceVersion"] = json!("7");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let going: WireWork = serde_json::from_value(going).expect("decodes");
        engine.state.lock().upsert(&going);
        let round = engine.reconciler.reconcile(&name).await;
        assert_eq!(round.expect("waits"), Requeue::Never);
        assert!(!deleted(), "what it had");
        assert_eq!(
            engine.state.lock().list_ends().held,
            std::slice::from_ref(&name)
        );
        let end = engine.reconciler.reconcile(&name).await;
        assert_eq!(end.expect("worked on"), Requeue::Never);
        assert!(deleted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_is_let_go_after_its_objects() {
        let away = Arc::new(AtomicBool::new(true));
        let is_away = away.clone();
        let after = json!({"metadata": {"name": "w", "uid": "1", "resourceVersion": "6"}});
        let (hub, told) = scripted(move |_| Some((200, after.clone())));
        let (member, asked) = scripted(move |line| {
            if is_away.load(Ordering::Relaxed) {
                return Some(refusal(503, "ServiceUnavailable"));
            }
            let gone = line.starts_with("DELETE");
            let gone = gone.then(|| json!({"kind": "Status"}));
            Some((200, gone.unwrap_or_else(|| marked("a", "o", "w"))))
        });
        let engine = Engine::new(&context(hub, member).await, LIMITS);
        engine.contact.answered();
        let (name, _) = engine.state.lock().upsert(&work(json!({
            "finalizers": ["karmada.io/execution-controller"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"})));
        let waits = engine.reconciler.reconcile(&name).await;
        assert!(matches!(waits, Ok(Requeue::After(_))));
        assert_eq!(lines(&told), [""; 0]);
        away.store(false, Ordering::Relaxed);
        let end = engine.reconciler.reconcile(&name).await;
        assert_eq!(end.expect("worked on"), Requeue::Never);
        let last = lines(&asked).pop().expect("asked");
        assert_eq!(last, "DELETE /api/v1/namespaces/n/configmaps/a");
        assert_eq!(lines(&told), [WORK]);
        assert!(engine.state.lock().works.is_empty());
    }
}
