//! Notices clusters that fell silent and marks them Unknown, each at its own deadline.
//!
//! Lease and status events feed one timer queue; when a deadline comes, Lease and Cluster are read live,
//! and only then is anything concluded. Time in which the hub could not have heard an agent does not
//! count (see [`contact`]). Only the elected hub runs this; a new one gives everybody full grace.
//!
//! The hub counts as away from the last thing it heard of its API server until the next: whenever
//! nothing was heard for [`QUIET`], or a watch breaks, it asks for an object that always exists; so it does before it
//! leads, while it reads. Time in which the hub itself stood still counts for nobody either.

mod apply;
pub mod contact;
pub mod decide;
mod metrics;
mod observe;
#[cfg(test)]
mod tests;

use crate::liveness::Signs;
use crate::world::{Cluster, Lease, Told, World};
use apply::{Found, Written};
use common::env::Env;
use common::signal;
use common::time::SharedClock;
use contact::Moment;
use decide::{Fleet, Grace, Seen, Verdict};
use kube::Client;
pub use metrics::Metrics;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Clusters that are read or written at once.
const CONCURRENCY: usize = 64;
/// After this long without a word from the API server it is asked for one.
const QUIET: Duration = Duration::from_secs(5);
/// No turn waits longer than [`QUIET`]; one that took this long was not a wait.
const PAUSED: Duration = Duration::from_secs(10);
/// Between two questions while it is away, and before a cluster that could not be judged is read again.
const RETRY: Duration = Duration::from_secs(1);
/// Before a Cluster that cannot be decoded, and so cannot be written, is read again.
const RETRY_BROKEN: Duration = Duration::from_secs(30);

/// The monitor.
pub struct Monitor {
    client: Client,
    clock: SharedClock,
    clusters: mpsc::Receiver<Told<Cluster>>,
    leases: mpsc::Receiver<Told<Lease>>,
    /// What agents show between renewals, and at least how often it is looked at.
    signs: Option<(Signs, Duration)>,
    metrics: Metrics,
    start: Instant,
    fleet: Fleet,
    tasks: JoinSet<Report>,
    /// Clusters in `tasks`.
    busy: usize,
    /// The lists that were read once: Clusters, Leases.
    listed: (bool, bool),
    /// Both were: deadlines run.
    begun: bool,
    /// When the API server was last heard.
    heard: Moment,
    /// When it is asked next.
    ask_at: Moment,
    asking: bool,
}

/// What a task found.
enum Report {
    Reached(Result<(), String>),
    Read {
        name: Arc<str>,
        due: Moment,
        found: Found,
    },
    Written {
        name: Arc<str>,
        due: Moment,
        reason: &'static str,
        written: Written,
    },
}

impl Monitor {
    /// A monitor that has seen nothing yet.
    pub fn new(client: Client, env: Env, grace: Grace, metrics: Metrics, world: &World) -> Self {
        Self {
            client,
            clock: env.clock,
            clusters: world.clusters.subscribe(),
            leases: world.leases.subscribe(),
            signs: None,
            metrics,
            start: Instant::now(),
            fleet: Fleet::new(grace),
            tasks: JoinSet::new(),
            busy: 0,
            listed: (false, false),
            begun: false,
            heard: Moment::ZERO,
            ask_at: QUIET,
            asking: false,
        }
    }

    /// Hears what agents show between renewals, too, if that is to count.
    #[must_use]
    pub fn hearing(mut self, signs: Option<&Signs>) -> Self {
        self.signs = self
            .fleet
            .least_between_signs()
            .zip(signs)
            .map(|(least, signs)| {
                signs.count();
                (signs.clone(), least)
            });
        self
    }

    /// Watches until `shutdown`, and from the moment that this hub leads does what is due. Reads and writes under way are
    /// dropped: whoever leads next begins anew.
    pub async fn run(mut self, mut leading: signal::Receiver<bool>, shutdown: CancellationToken) {
        let mut leads = *leading.borrow();
        loop {
            self.ask();
            if leads {
                self.work();
            }
            let since = self.now();
            let wake = self.start + self.next_wake(leads);
            tokio::select! {
                // Results free places and deadlines are exact, so both come before a flood of events;
                // neither can starve the views, for each deadline ends in a live read.
                biased;
                () = shutdown.cancelled() => break,
                led = leading.wait_for(|leads| *leads), if !leads => match led {
                    Ok(_) => leads = true,
                    Err(signal::Closed) => break,
                },
                Some(report) = self.tasks.join_next() => {
                    self.awake(since);
                    match report {
                        Ok(report) => self.reported(report),
                        Err(error) => tracing::error!(%error, "a task of the monitor panicked"),
                    }
                }
                () = sleep_until(wake) => self.awake(since),
                Some(told) = self.clusters.recv() => {
                    self.awake(since);
                    self.cluster(told);
                }
                Some(told) = self.leases.recv() => {
                    self.awake(since);
                    self.lease(told);
                }
            }
        }
    }

    /// Whoever waited far longer than asked was paused, and perhaps the API server with it: a machine that
    /// slept, a process that was stopped. In that time nobody could be heard.
    fn awake(&mut self, since: Moment) {
        let now = self.now();
        let paused = self
            .signs
            .as_ref()
            .map_or(PAUSED, |(_, least)| PAUSED.min(*least * 2));
        if now.saturating_sub(since) > paused {
            tracing::warn!(
                seconds = (now - since).as_secs_f64(),
                "the hub stood still; that time counts for nobody"
            );
            self.fleet.gap(since, now);
        }
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// Asks for a word of the API server, when that is due.
    fn ask(&mut self) {
        if self.now() >= self.ask_at && !self.asking {
            self.asking = true;
            let client = self.client.clone();
            self.tasks
                .spawn(async move { Report::Reached(apply::reach(&client).await) });
        }
    }

    /// Starts what is due.
    fn work(&mut self) {
        let now = self.now();
        self.take_signs();
        for name in self.fleet.due(now, CONCURRENCY.saturating_sub(self.busy)) {
            self.busy += 1;
            let client = self.client.clone();
            self.tasks.spawn(async move {
                let found = apply::read(&client, &name).await;
                Report::Read {
                    name,
                    due: now,
                    found,
                }
            });
        }
        self.metrics.fleet(self.fleet.len(), self.fleet.is_away());
    }

    /// Takes in what agents showed between renewals since the last time.
    fn take_signs(&mut self) {
        let Some((signs, _)) = &self.signs else {
            return;
        };
        for (name, sign) in signs.take() {
            let at = sign.at.saturating_duration_since(self.start);
            self.fleet.life_shown(at, &name, sign.next);
        }
    }

    fn next_wake(&self, leads: bool) -> Moment {
        let now = self.now();
        // With every place taken, a result wakes us.
        let deadline = self
            .fleet
            .next_deadline(now)
            .filter(|_| leads && self.busy < CONCURRENCY);
        let ask = (!self.asking).then_some(self.ask_at);
        let far = now
            + self
                .signs
                .as_ref()
                .map_or(QUIET, |(_, least)| QUIET.min(*least));
        deadline.into_iter().chain(ask).fold(far, Moment::min)
    }

    fn cluster(&mut self, told: Told<Cluster>) {
        let now = self.now();
        match told {
            Told::Changed(change) => {
                self.hear(now);
                let name = &change.name.name;
                match (change.new.is_some(), change.after()) {
                    (false, _) => self.fleet.cluster_gone(name),
                    (true, Some(cluster)) => {
                        let seen = Seen::of(cluster.pull, cluster.ready.as_ref());
                        self.fleet.cluster_seen(now, name, seen);
                    }
                    (true, None) => {
                        self.metrics.undecodable("Cluster");
                        self.fleet.cluster_unreadable(now, name);
                    }
                }
            }
            Told::Complete { gap, .. } => {
                self.listed.0 = true;
                self.complete(now, gap);
            }
            Told::Lost(problem) => self.broken("Clusters", &problem),
        }
    }

    fn lease(&mut self, told: Told<Lease>) {
        let now = self.now();
        match told {
            Told::Changed(change) => {
                self.hear(now);
                let name = &change.name.name;
                match (change.new.is_some(), change.after()) {
                    (false, _) => self.fleet.lease_gone(name),
                    (true, Some(lease)) => {
                        self.fleet.lease_seen(now, name, lease.renewed.as_deref());
                    }
                    (true, None) => self.metrics.undecodable("Lease"),
                }
            }
            Told::Complete { gap, .. } => {
                self.listed.1 = true;
                self.complete(now, gap);
            }
            Told::Lost(problem) => self.broken("Leases", &problem),
        }
    }

    /// A list is complete.
    fn complete(&mut self, now: Moment, gap: Option<Duration>) {
        self.hear(now);
        if let Some(gap) = gap {
            self.fleet.gap(now.saturating_sub(gap), now);
        }
        // A first list may come after failures, and then it has a gap too.
        if self.listed == (true, true) && !self.begun {
            self.begun = true;
            tracing::info!(clusters = self.fleet.len(), "the monitor has begun");
            self.fleet.begin(now);
        }
    }

    /// A watch broke: perhaps only the watch, perhaps the hub is away.
    fn broken(&mut self, what: &str, problem: &common::client::Problem) {
        tracing::debug!(what, %problem, "a watch of the monitor broke");
        self.ask_at = self.ask_at.min(self.now());
    }

    /// The API server was heard.
    fn hear(&mut self, now: Moment) {
        self.heard = now;
        self.ask_at = now + QUIET;
        if self.fleet.is_away() {
            self.fleet.back(now);
            tracing::info!("the hub reaches its API server again");
        }
    }

    /// It was not.
    fn miss(&mut self, error: &str) {
        if !self.fleet.is_away() {
            tracing::warn!(
                error,
                "the hub does not reach its API server; nobody is marked meanwhile"
            );
        }
        self.fleet.away(self.heard);
    }

    fn reported(&mut self, report: Report) {
        let now = self.now();
        match report {
            Report::Reached(Ok(())) => {
                self.asking = false;
                self.hear(now);
            }
            Report::Reached(Err(error)) => {
                self.asking = false;
                self.ask_at = now + RETRY;
                self.miss(&error);
            }
            Report::Read { name, due, found } => self.judge(now, name, due, found),
            Report::Written {
                name,
                due,
                reason,
                written,
            } => {
                self.busy -= 1;
                match written {
                    Written::Done(seen) => {
                        self.hear(now);
                        self.fleet.marked(now, &name, seen);
                        self.metrics.marked(reason, now.saturating_sub(due));
                        tracing::info!(cluster = %name, reason, "cluster is silent: Ready is Unknown");
                    }
                    Written::Conflict => self.fleet.retry(now, &name, Duration::ZERO),
                    Written::Gone => self.fleet.cluster_gone(&name),
                    Written::Failed(error) => {
                        tracing::warn!(cluster = %name, error, "cannot mark a silent cluster");
                        self.ask_at = self.ask_at.min(now);
                        self.fleet.retry(now, &name, RETRY);
                    }
                }
            }
        }
    }

    fn judge(&mut self, now: Moment, name: Arc<str>, due: Moment, found: Found) {
        self.busy -= 1;
        let reading = match found {
            Found::Live(reading) => reading,
            Found::Away(error) => {
                self.ask_at = self.ask_at.min(now + RETRY);
                self.miss(&error);
                return self.fleet.retry(now, &name, RETRY);
            }
        };
        self.hear(now);
        self.take_signs();
        let Verdict::Mark(reason) = self.fleet.judge(now, &name, &reading.live) else {
            return;
        };
        let Some(cluster) = reading.cluster else {
            self.metrics.undecodable("Cluster");
            return self.fleet.retry(now, &name, RETRY_BROKEN);
        };
        self.busy += 1;
        let (client, at) = (self.client.clone(), self.clock.now());
        self.tasks.spawn(async move {
            let written = apply::mark(&client, &cluster, reason, at).await;
            Report::Written {
                name,
                due,
                reason,
                written,
            }
        });
    }
}
