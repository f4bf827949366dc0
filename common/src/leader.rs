//! Leader election over a Lease: a pure decision, and a shell that reads, writes and waits.
//!
//! The usual rule: a holder that was not seen renewing for the Lease's duration has lost it, where
//! "seen" is by this process's own monotonic clock; nobody's written time decides anything.

use crate::backoff::jitter;
use crate::client::{Problem, classify};
use crate::env::Env;
use crate::signal;
use crate::time::{SharedClock, to_micro_time};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// What an election is about and how patient it is.
#[derive(Debug, Clone)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are; different for every process.
    pub identity: String,
    /// How long others wait for a silent leader.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew goes on.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
    /// The leader goes on for ever while the API server cannot be asked, until somebody else's
    /// renewal shows, or it is told that somebody else leads, by [`Running::give_up`]. For an agent whose other duty, its
    /// heartbeat, needs no API of the member.
    pub lead_while_unreachable: bool,
}

impl Election {
    /// The usual 15 s, 10 s and 2 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            lead_while_unreachable: false,
        }
    }
}

/// What was read of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Observed {
    /// There is none.
    Absent,
    /// It is held, or free with an empty holder.
    Held {
        /// By whom.
        holder: String,
        /// What its holder wrote last; only that it differs from before means something.
        renewed: Option<MicroTime>,
        /// For how long its holder says to be waited for.
        duration: Duration,
    },
}

/// What this process knows between two rounds. Times are monotonic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The last state of the Lease that differed from the one before, and when it was seen.
    seen: Option<(Observed, Instant)>,
    /// When our own last renewal succeeded, by the time it was begun.
    renewed: Option<Instant>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Make the Lease with us as its holder.
    Create,
    /// Write us as its holder.
    Take,
    /// Renew what is ours.
    Renew,
    /// Somebody else leads.
    Follow,
}

/// Decides from what was read now.
pub fn decide(
    now: Instant,
    election: &Election,
    memory: &mut Memory,
    observed: Observed,
) -> Decision {
    let Observed::Held {
        holder, duration, ..
    } = &observed
    else {
        memory.seen = None;
        return Decision::Create;
    };
    let duration = (*duration).min(election.lease_duration * 4);
    if *holder == election.identity {
        memory.seen = Some((observed, now));
        return Decision::Renew;
    }
    if holder.is_empty() {
        return Decision::Take;
    }
    match &memory.seen {
        Some((seen, at)) if *seen == observed => {
            if now.duration_since(*at) >= duration {
                Decision::Take
            } else {
                Decision::Follow
            }
        }
        _ => {
            memory.seen = Some((observed, now));
            Decision::Follow
        }
    }
}

/// Whether one that led still leads when the Lease could not be read or written.
pub fn still_leads(now: Instant, election: &Election, memory: &Memory) -> bool {
    match memory.renewed {
        None => false,
        Some(_) if election.lead_while_unreachable => true,
        Some(at) => now.duration_since(at) < election.renew_deadline,
    }
}

/// Whether another one leads, but has let so many attempts to renew go by that it may be gone: an answer that is late, or
/// one that fails, is no more than one or two of them.
pub fn is_silent(now: Instant, election: &Election, memory: &Memory) -> bool {
    match &memory.seen {
        Some((Observed::Held { holder, .. }, at)) if *holder != election.identity => {
            now.duration_since(*at) >= election.retry_period * 3
        }
        _ => false,
    }
}

/// What the last round of an election showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Standing {
    /// Nothing yet.
    #[default]
    Unknown,
    /// We lead.
    Leads,
    /// Somebody else holds the Lease: this one.
    Follows(String),
    /// The Lease could not be read or written.
    Failing(Problem),
}

impl Standing {
    /// Says in the log why we do not lead. `lease` is the Lease in words, `prepare` what to do where there is no place for
    /// it.
    pub fn tell(&self, lease: &str, prepare: &str) {
        match self {
            Self::Unknown | Self::Leads => {}
            Self::Follows(holder) => {
                tracing::info!(holder, "another replica is at work; waiting");
            }
            Self::Failing(problem) if problem.code() == Some(404) => {
                tracing::error!(%problem, "{lease} cannot be made: {prepare}; trying again");
            }
            Self::Failing(problem) => {
                tracing::warn!(%problem, "{lease} cannot be read or written; trying again");
            }
        }
    }
}

/// An election that runs.
#[derive(Debug)]
pub struct Running {
    /// Whether we lead.
    pub leading: signal::Receiver<bool>,
    /// Whether we lead, or the one who does is silent, so that we soon may: time to read what a leader has to know.
    pub near: signal::Receiver<bool>,
    /// What the last round showed.
    pub standing: signal::Receiver<Standing>,
    /// Told that somebody else leads while the Lease cannot be read, it leads no more before it was read again.
    pub give_up: Arc<Notify>,
    /// Ends after the stop, the Lease released.
    pub task: AbortOnDropHandle<()>,
}

/// Takes part in the election until `stop`; then releases the Lease, so that another need not wait.
pub fn run(election: Election, client: kube::Client, env: Env, stop: CancellationToken) -> Running {
    let (sender, leading) = signal::channel(false);
    let (nearing, near) = signal::channel(false);
    let (told, standing) = signal::channel(Standing::default());
    let give_up = Arc::<Notify>::default();
    let gives_up = give_up.clone();
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut candidate = Candidate {
            api: Api::namespaced(client, &election.namespace),
            election,
            clock: env.clock,
            memory: Memory::default(),
            leading: sender,
            near: nearing,
            standing: told,
        };
        let mut rng = env.chance.stream("leader election");
        loop {
            let round = candidate.within(candidate.election.retry_period * 2);
            let done = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                done = tokio::time::timeout(round, candidate.round()) => done,
            };
            candidate.note(done.unwrap_or(Err(None)));
            let pause = candidate.within(jitter(candidate.election.retry_period, &mut rng));
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = gives_up.notified() => candidate.memory.renewed = None,
                () = tokio::time::sleep(pause) => {}
            }
            candidate.expire();
        }
        candidate.release().await;
    }));
    Running {
        leading,
        near,
        standing,
        give_up,
        task,
    }
}

struct Candidate {
    api: Api<Lease>,
    election: Election,
    clock: SharedClock,
    memory: Memory,
    leading: signal::Sender<bool>,
    near: signal::Sender<bool>,
    standing: signal::Sender<Standing>,
}

impl Candidate {
    /// Reads, decides, writes. Returns whether we lead; an error when that cannot be known.
    async fn round(&mut self) -> Result<bool, Option<Problem>> {
        let begun = Instant::now();
        let found = self
            .api
            .get_opt(&self.election.name)
            .await
            .map_err(unknown)?;
        let decision = decide(
            begun,
            &self.election,
            &mut self.memory,
            observe(found.as_ref()),
        );
        let written = match (decision, found) {
            (Decision::Follow, _) => {
                self.memory.renewed = None;
                return Ok(false);
            }
            (Decision::Create, _) | (_, None) => {
                self.api
                    .create(&PostParams::default(), &self.lease(None))
                    .await
            }
            // A replace carries the resourceVersion that was judged: of two takers one fails.
            (_, Some(found)) => {
                let lease = self.lease(Some(found));
                self.api
                    .replace(&self.election.name, &PostParams::default(), &lease)
                    .await
            }
        };
        match written {
            Ok(lease) => {
                self.memory.seen = Some((observe(Some(&lease)), begun));
                self.memory.renewed = Some(begun);
                Ok(true)
            }
            Err(error) => Err(unknown(error)),
        }
    }

    /// `wait`, cut so that a leader never waits past the end of its leadership.
    fn within(&self, wait: Duration) -> Duration {
        let ends = self
            .memory
            .renewed
            .filter(|_| !self.election.lead_while_unreachable);
        match ends.map(|at| (at + self.election.renew_deadline).duration_since(Instant::now())) {
            Some(left) if !left.is_zero() && *self.leading.borrow() => wait.min(left),
            _ => wait,
        }
    }

    /// Stops leading when the last renewal is too long ago.
    fn expire(&self) {
        if *self.leading.borrow() && !still_leads(Instant::now(), &self.election, &self.memory) {
            self.note(Err(None));
        }
    }

    fn note(&self, round: Result<bool, Option<Problem>>) {
        let led = *self.leading.borrow();
        let (leads, near) = match round {
            Ok(true) => {
                self.tell(Standing::Leads);
                (true, true)
            }
            Ok(false) => {
                self.tell(Standing::Follows(self.holder()));
                let silent = is_silent(Instant::now(), &self.election, &self.memory);
                (false, silent)
            }
            Err(problem) => {
                let silent = || Problem::Other("no answer in time".to_owned());
                let problem = problem.unwrap_or_else(silent);
                self.tell(Standing::Failing(problem.clone()));
                tracing::debug!(
                    lease = self.election.name,
                    %problem,
                    "failed to renew or read"
                );
                let leads = led && still_leads(Instant::now(), &self.election, &self.memory);
                // Of one who followed it is as it was.
                (leads, leads || !led && *self.near.borrow())
            }
        };
        if leads != led {
            tracing::info!(lease = self.election.name, leads, "leadership changed");
            self.leading.send_replace(leads);
        }
        if near != *self.near.borrow() {
            self.near.send_replace(near);
        }
    }

    fn tell(&self, standing: Standing) {
        self.standing.send_if_modified(|told| {
            let news = *told != standing;
            *told = standing;
            news
        });
    }

    /// Who held the Lease when it was read last.
    fn holder(&self) -> String {
        match &self.memory.seen {
            Some((Observed::Held { holder, .. }, _)) => holder.clone(),
            _ => String::new(),
        }
    }

    async fn release(&mut self) {
        let led = self.leading.send_replace(false);
        self.near.send_replace(false);
        if !led {
            return;
        }
        let freed = async {
            let found = self.api.get(&self.election.name).await?;
            let mine = found
                .spec
                .as_ref()
                .and_then(|s| s.holder_identity.as_deref());
            if mine != Some(self.election.identity.as_str()) {
                return Ok(());
            }
            let mut lease = self.lease(Some(found));
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
            }
            self.api
                .replace(&self.election.name, &PostParams::default(), &lease)
                .await
                .map(|_| ())
        };
        // Others take over after the Lease's duration if this does not work.
        if let Ok(Err(error)) = tokio::time::timeout(self.election.retry_period, freed).await {
            let problem = classify(&error);
            tracing::debug!(lease = self.election.name, %problem, "failed to release");
        }
    }

    fn lease(&self, found: Option<Lease>) -> Lease {
        let now = to_micro_time(self.clock.now());
        let mut lease = found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                namespace: Some(self.election.namespace.clone()),
                name: Some(self.election.name.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_deref() != Some(self.election.identity.as_str()) {
            spec.holder_identity = Some(self.election.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.lease_duration_seconds = whole_seconds(self.election.lease_duration);
        spec.renew_time = Some(now);
        lease
    }
}

/// Others wait as long as is written: no shorter than we go on without a renewal, and at least the second that
/// the API asks for.
fn whole_seconds(duration: Duration) -> Option<i32> {
    let part = u64::from(duration.subsec_nanos() > 0);
    let seconds = duration.as_secs().saturating_add(part).max(1);
    i32::try_from(seconds).ok()
}

/// What happened is not known: the write may have arrived.
fn unknown(error: kube::Error) -> Option<Problem> {
    Some(classify(&error))
}

fn observe(lease: Option<&Lease>) -> Observed {
    let Some(lease) = lease else {
        return Observed::Absent;
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or(0);
    Observed::Held {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time,
        duration: Duration::from_secs(seconds),
    }
}

#[cfg(test)]
mod tests;
