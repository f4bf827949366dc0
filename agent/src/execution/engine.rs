//! The shell that carries decisions out: watches feed the state, workers bring Works to the member, and
//! reports go back to the hub.
//!
//! Queues: Works to work on and Works to report, each without duplicates and so no longer than there are
//! Works; Events, bounded, dropped when full.

mod autoscalers;
mod contact;
mod deletion;
mod foreign;
mod hub_watch;
mod keeping;
mod kinds;
mod member_watch;
mod object;
mod orphans;
mod sync;
mod writes;

use super::events::{Events, Kind};
use super::queue::{Queue, Urgency};
use super::state::{ObjectKey, State};
use super::stored::place::Place;
use crate::context::{AgentContext, ClusterView, ErrorReport};
use crate::drift::Fights;
use crate::hub::HubHandle;
use crate::member::discovery::{Discovery, Resource};
use crate::member::kinds::Kinds;
use crate::member::rest::{self, Call, Reply};
use common::api::cluster::OrphanReport;
use common::time::SharedClock;
use common::unregister::Mode;
use contact::Contact;
use keeping::{Alone, Keeping};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// First delay after a failure.
const BACKOFF_BASE: Duration = Duration::from_millis(200);
/// Longest delay after failures.
const BACKOFF_CAP: Duration = Duration::from_secs(60);
/// How long a Work waits for the first list of what is live.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// How long an Event waits while Works are worked on, and how often that is looked at.
const EVENT_PATIENCE: Duration = Duration::from_secs(1);
const EVENT_PAUSE: Duration = Duration::from_millis(200);
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
    cluster: String,
    /// The execution namespace.
    namespace: String,
    hub: HubHandle,
    member: kube::Client,
    clock: SharedClock,
    errors: ErrorReport,
    shutdown: CancellationToken,
    limits: Limits,
    permits: Semaphore,
    discovery: Discovery,
    kinds: Kinds,
    state: Mutex<State>,
    works: Mutex<Queue>,
    reports: Mutex<Queue>,
    work_to_do: Notify,
    reports_to_do: Notify,
    events: Events,
    view: watch::Sender<Option<ClusterView>>,
    fights: Mutex<Fights<Arc<ObjectKey>>>,
    /// The agent's own namespace in the member.
    home: String,
    autoscalers_listed: watch::Sender<bool>,
    contact: Contact,
    keeping: Keeping,
    alone: watch::Sender<Alone>,
    orphans: watch::Sender<Option<OrphanReport>>,
    orphans_changed: Notify,
}

impl Engine {
    /// An engine over the shared parts.
    pub fn new(ctx: &AgentContext, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            cluster: ctx.cluster.as_str().to_owned(),
            namespace: ctx.cluster.execution_namespace(),
            hub: ctx.hub.clone(),
            member: ctx.member.clone(),
            clock: ctx.clock.clone(),
            errors: ctx.errors.clone(),
            shutdown: ctx.shutdown.clone(),
            limits,
            permits: Semaphore::new(limits.member.max(1)),
            discovery: Discovery::default(),
            kinds: Kinds::default(),
            state: Mutex::default(),
            works: Mutex::default(),
            reports: Mutex::default(),
            work_to_do: Notify::new(),
            reports_to_do: Notify::new(),
            events: Events::default(),
            view: ctx.cluster_view.clone(),
            fights: Mutex::default(),
            home: ctx.config.member.namespace.clone(),
            autoscalers_listed: watch::Sender::new(false),
            contact: Contact::new(),
            keeping: Keeping::new(Place::new(
                ctx.member.clone(),
                &ctx.config.member.namespace,
                ctx.config.member.state_dir.as_ref(),
            )),
            alone: watch::Sender::new(Alone::NotYet),
            orphans: ctx.orphans.clone(),
            orphans_changed: Notify::new(),
        })
    }

    /// Whether the cluster is being unregistered with its workloads left in place. The hub deletes the
    /// Works only after this was seen and acknowledged.
    fn keeps_workloads(&self) -> bool {
        let view = self.view.borrow();
        view.as_ref()
            .is_some_and(|view| view.deleting && view.unregister == Some(Mode::KeepWorkloads))
    }

    /// Runs until the context's shutdown.
    pub async fn run(self: &Arc<Self>) {
        // What was seen of the hub before comes before what it says now.
        tokio::select! {
            () = self.shutdown.cancelled() => return,
            () = self.recall() => {}
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().watch_hub());
        tasks.spawn(self.clone().await_hub());
        tasks.spawn(self.clone().keep());
        tasks.spawn(self.clone().tell_orphans());
        tasks.spawn(self.clone().dispatch());
        tasks.spawn(self.clone().dispatch_reports());
        tasks.spawn(self.clone().write_events());
        tasks.spawn(self.clone().watch_kinds());
        tasks.spawn(self.clone().watch_autoscalers());
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            ended = tasks.join_next() => {
                // None of them returns by itself.
                tracing::error!(?ended, "a part of the Work delivery ended");
            }
        }
        tasks.shutdown().await;
        self.flush_at_end().await;
    }

    /// How many Works wait and how many objects are orphaned, for metrics.
    pub fn census(&self) -> Census {
        let state = self.state();
        let mut census = Census {
            queued: lock(&self.works).ready(),
            reports: lock(&self.reports).ready(),
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

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn enqueue(&self, work: &Arc<str>, urgency: Urgency) {
        lock(&self.works).push(work, urgency);
        self.work_to_do.notify_one();
    }

    fn enqueue_after(&self, work: &Arc<str>, delay: Duration) {
        lock(&self.works).push_at(work, Instant::now() + delay);
        self.work_to_do.notify_one();
    }

    fn enqueue_at(&self, work: &Arc<str>, at: Instant) {
        lock(&self.works).push_at(work, at);
        self.work_to_do.notify_one();
    }

    /// Has the hub told what changed, once that was gathered; soon when a health has changed.
    fn report_soon(&self, work: &Arc<str>, urgent: bool) {
        let now = Instant::now();
        let pace = self.state().works.get(work).map(|record| record.pace);
        let delay = pace.unwrap_or_default().delay(now, urgent);
        lock(&self.reports).push_at(work, now + delay);
        self.reports_to_do.notify_one();
    }

    /// Hands Works to workers.
    async fn dispatch(self: Arc<Self>) {
        let works = self.limits.works.max(1);
        let always = |_: &Self| None;
        let run = |engine: Arc<Self>, name: Arc<str>| async move {
            engine.sync(&name).await;
            lock(&engine.works).done(&name);
            engine.work_to_do.notify_one();
        };
        drain(&self, &self.works, &self.work_to_do, (works, always), run).await;
    }

    /// Hands Works whose objects changed to reporters.
    async fn dispatch_reports(self: Arc<Self>) {
        let run = |engine: Arc<Self>, name: Arc<str>| async move {
            if let Err(error) = engine.write_report(&name).await {
                tracing::debug!(work = %name, error = %common::errors::chain(&error), "failed to report");
                engine.hub_failed(&error);
                lock(&engine.reports).push_at(&name, Instant::now() + Duration::from_secs(5));
            }
            lock(&engine.reports).done(&name);
            engine.reports_to_do.notify_one();
        };
        let when = |engine: &Self| engine.contact.rests_until();
        drain(
            &self,
            &self.reports,
            &self.reports_to_do,
            (REPORTERS, when),
            run,
        )
        .await;
    }

    /// Takes note that the hub did not answer, if that is why.
    fn hub_failed(&self, error: &rest::Error) {
        if error.is_outage() {
            self.contact.failed();
        }
    }

    /// The hub answers: what waited for it goes on.
    fn hub_answers(&self) {
        self.contact.answered();
        self.reports_to_do.notify_one();
    }

    /// Writes Events while nothing else waits.
    async fn write_events(self: Arc<Self>) {
        loop {
            let event = self.events.next().await;
            // Events are the last thing a hub needs under load; what must wait too long is dropped.
            let patience = Instant::now() + EVENT_PATIENCE;
            while lock(&self.works).is_busy() && Instant::now() < patience {
                tokio::time::sleep(EVENT_PAUSE).await;
            }
            let body = event.body(&self.namespace);
            let uri = format!("/api/v1/namespaces/{}/events", self.namespace);
            if let Err(error) = Call::post(&uri, &body).send(&self.hub.client()).await {
                tracing::debug!(error = %common::errors::chain(&error), "failed to write an Event");
            }
        }
    }

    async fn watch_kinds(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                resource = self.kinds.next_new() => {
                    tasks.spawn(self.clone().watch_kind(resource));
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    fn emit(&self, work: &str, uid: &str, kind: Kind, message: String) {
        let now = self.clock.now();
        self.events.add(work, uid, kind, message, now);
    }

    /// Sends a request to the member, within the limit.
    async fn ask_member(&self, call: Call<'_>) -> Result<Reply, rest::Error> {
        let _permit = self.permits.acquire().await;
        call.send(&self.member).await
    }

    async fn resolve(
        &self,
        gvk: &super::manifest::Gvk,
    ) -> Result<Option<Arc<Resource>>, rest::Error> {
        if let Some(known) = self.discovery.known(gvk) {
            return Ok(Some(known));
        }
        let _permit = self.permits.acquire().await;
        self.discovery.resolve(&self.member, gvk).await
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
    /// Waiting for a worker.
    pub queued: usize,
    /// Waiting to be reported.
    pub reports: usize,
    /// Live objects whose Work the hub does not have.
    pub orphans: usize,
}

/// Runs `work` on every key of `queue` as it comes due, at most `limit` at the same time.
///
/// While `rests` says until when, nothing is begun.
async fn drain<F, A, R>(
    engine: &Arc<Engine>,
    queue: &Mutex<Queue>,
    wake: &Notify,
    (limit, rests): (usize, R),
    work: F,
) where
    F: Fn(Arc<Engine>, Arc<str>) -> A,
    A: Future<Output = ()> + Send + 'static,
    R: Fn(&Engine) -> Option<Instant>,
{
    let mut running = JoinSet::new();
    loop {
        let resting = rests(engine);
        while running.len() < limit && resting.is_none() {
            let Some(key) = lock(queue).pop(Instant::now()) else {
                break;
            };
            running.spawn(work(engine.clone(), key));
        }
        let due = resting.or_else(|| lock(queue).next_due());
        tokio::select! {
            () = wake.notified() => {}
            Some(_) = running.join_next() => {}
            () = sleep_until(due), if running.len() < limit => {}
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one; a poisoned lock still holds a sound value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
