//! Who is silent: a pure state machine over what was seen and when.
//!
//! A sign of life is a Lease `renewTime` that differs from the last one seen, or a Ready condition that
//! changed and was not written by the hub. What either of them claims decides nothing, and seeing the
//! same again, as after a new list, is no sign. Each cluster has one deadline on the contact clock.

use super::contact::{ContactClock, ContactTime, Moment};
use crate::world::Condition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Reason of a cluster that fell silent.
pub const STOPPED: &str = "ClusterStatusUnknown";
/// Reason of a cluster that never posted.
pub const NEVER: &str = "ClusterStatusNeverUpdated";

/// How long a cluster may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Once it has posted a status.
    pub running: Duration,
    /// Before that.
    pub startup: Duration,
    /// The least time between two signs of an agent that gives them between renewals; none where they do not count.
    pub signs: Option<Duration>,
}

/// How many times as long as it said an agent may let its next sign be waited for. With what marking takes, a cluster
/// is Unknown within three times as long.
const PATIENCE: f64 = 2.8;

/// The Ready condition of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Whether its status is Unknown.
    pub unknown: bool,
    /// Whether the hub wrote it.
    pub by_hub: bool,
    /// Differs when any field differs.
    pub fingerprint: u64,
}

/// What matters of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whether an agent is expected to report: one in the member, or one beside the hub that has registered.
    pub pull: bool,
    /// Its Ready condition.
    pub ready: Option<Ready>,
}

impl Seen {
    /// By its mode and its condition Ready.
    pub fn of(pull: bool, ready: Option<&Condition>) -> Self {
        let ready = ready.map(|ready| Ready {
            unknown: ready.says_unknown,
            by_hub: ready.says_unknown && [STOPPED, NEVER].contains(&&*ready.reason),
            fingerprint: ready.fingerprint,
        });
        Self { pull, ready }
    }
}

/// What reading Cluster and Lease told just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The Cluster.
    pub cluster: Read<Seen>,
    /// The Lease's `renewTime`, if it has one.
    pub renewed: Read<Option<String>>,
}

/// One object, read while the API server was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// It was read.
    Present(T),
    /// There is none.
    Missing,
    /// It cannot be read, though others can.
    Broken,
}

/// What is to be done about a cluster whose deadline came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it lives after all, is known to be silent, or is gone.
    Leave,
    /// Ready becomes Unknown for this reason.
    Mark(&'static str),
}

/// All clusters and their deadlines.
#[derive(Debug)]
pub struct Fleet {
    grace: Grace,
    clock: ContactClock,
    /// Both lists were read once.
    begun: bool,
    clusters: BTreeMap<Arc<str>, Record>,
    /// The last `renewTime` of each Lease, kept when the Lease goes: a new one with it is no sign.
    leases: BTreeMap<Arc<str>, Box<str>>,
    timers: BTreeSet<(ContactTime, Arc<str>)>,
}

#[derive(Debug)]
struct Record {
    seen: Seen,
    /// The last sign of life.
    sign: ContactTime,
    /// The last one between renewals, and within which time the next is to come; none where none is.
    shown: Option<(ContactTime, Duration)>,
    /// The entry in `timers`.
    timer: Option<ContactTime>,
    /// Whether it is being judged.
    judging: bool,
}

impl Fleet {
    /// No clusters yet; nobody is judged before [`Fleet::begin`].
    pub fn new(grace: Grace) -> Self {
        Self {
            grace,
            clock: ContactClock::default(),
            begun: false,
            clusters: BTreeMap::new(),
            leases: BTreeMap::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Both lists are complete for the first time: everybody has full grace from now on.
    pub fn begin(&mut self, now: Moment) {
        self.begun = true;
        let names: Vec<Arc<str>> = self.clusters.keys().cloned().collect();
        for name in names {
            self.sign_of_life(now, &name);
        }
    }

    /// The least time between two signs of life between renewals; none where they do not count.
    pub fn least_between_signs(&self) -> Option<Duration> {
        self.grace.signs
    }

    /// How many clusters are known.
    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Whether no cluster is known.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// A Cluster was listed, watched or read.
    pub fn cluster_seen(&mut self, now: Moment, name: &str, seen: Seen) {
        let Some((key, record)) = self.clusters.get_key_value(name) else {
            let key: Arc<str> = name.into();
            let record = Record {
                seen,
                sign: self.clock.now(now),
                shown: None,
                timer: None,
                judging: false,
            };
            self.clusters.insert(Arc::clone(&key), record);
            if self.begun {
                self.sign_of_life(now, &key);
            }
            return;
        };
        let key = Arc::clone(key);
        let posted = match (&record.seen.ready, &seen.ready) {
            (before, Some(after)) => before.as_ref() != Some(after) && !after.by_hub,
            // Taken away altogether: not by an agent, whose writes have one.
            (_, None) => false,
        };
        let joined = seen.pull && !record.seen.pull;
        let (begun, grace) = (self.begun, self.grace);
        let record = self.record(&key);
        record.seen = seen;
        let at = record.deadline(grace);
        let unwatched = record.timer.is_none() && !record.judging && !record.is_silent();
        if posted || joined {
            self.sign_of_life(now, &key);
        } else if begun && unwatched {
            // Somebody else took the Unknown away: the silence goes on counting.
            self.arm(&key, at);
        }
    }

    /// A Cluster is there but cannot be decoded: it keeps what was known of it.
    pub fn cluster_unreadable(&mut self, now: Moment, name: &str) {
        if !self.clusters.contains_key(name) {
            self.cluster_seen(now, name, Seen::of(true, None));
        }
    }

    /// A Cluster is gone.
    pub fn cluster_gone(&mut self, name: &str) {
        if let Some(record) = self.clusters.remove(name)
            && let Some(at) = record.timer
        {
            self.timers.remove(&(at, name.into()));
        }
        self.leases.remove(name);
    }

    /// A Lease was listed, watched or read.
    pub fn lease_seen(&mut self, now: Moment, name: &str, renewed: Option<&str>) {
        let Some(renewed) = renewed else { return };
        if self.leases.get(name).is_some_and(|last| **last == *renewed) {
            return;
        }
        let key: Arc<str> = name.into();
        self.leases.insert(Arc::clone(&key), renewed.into());
        self.sign_of_life(now, &key);
    }

    /// An agent showed between two renewals that it lives, and will again after `next`; never, where that is zero. It
    /// makes its silence count sooner than its Lease does, and never later.
    pub fn life_shown(&mut self, at: Moment, name: &str, next: Duration) {
        let (Some(least), contact) = (self.grace.signs, self.clock.now(at)) else {
            return;
        };
        let (begun, grace) = (self.begun, self.grace);
        let Some(record) = self.clusters.get_mut(name) else {
            return;
        };
        let within = next.max(least).mul_f64(PATIENCE);
        record.shown = (!next.is_zero()).then_some((contact, within));
        let (pull, deadline) = (record.seen.pull, record.deadline(grace));
        if begun && pull {
            self.arm(name, deadline);
        }
    }

    /// A Lease is gone.
    pub fn lease_gone(&mut self, name: &str) {
        if !self.clusters.contains_key(name) {
            self.leases.remove(name);
        }
    }

    /// A watch lost what happened in this span.
    pub fn gap(&mut self, from: Moment, to: Moment) {
        if self.begun {
            self.clock.exclude(from, to);
        }
    }

    /// The hub has been away from its API server since `since`.
    pub fn away(&mut self, since: Moment) {
        self.clock.leave(since);
    }

    /// The hub reaches its API server again.
    pub fn back(&mut self, now: Moment) {
        self.clock.back(now);
    }

    /// Whether the hub is away.
    pub fn is_away(&self) -> bool {
        self.clock.is_away()
    }

    /// When the next deadline comes, if nothing happens before.
    pub fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let (at, _) = self.timers.first()?;
        self.clock.moment(*at, now)
    }

    /// Takes the clusters whose deadline has come, at most `limit`; each must be given back by
    /// [`Fleet::judge`] or [`Fleet::retry`].
    pub fn due(&mut self, now: Moment, limit: usize) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        if self.clock.is_away() {
            return due;
        }
        let contact = self.clock.now(now);
        while due.len() < limit && self.timers.first().is_some_and(|(at, _)| *at <= contact) {
            let Some((_, name)) = self.timers.pop_first() else {
                break;
            };
            let record = self.record(&name);
            record.timer = None;
            if !record.judging {
                record.judging = true;
                due.push(name);
            }
        }
        due
    }

    /// Judges a cluster on what was read live. After [`Verdict::Mark`] it is told how the write went by
    /// [`Fleet::marked`] or [`Fleet::retry`].
    pub fn judge(&mut self, now: Moment, name: &str, live: &Live) -> Verdict {
        match &live.cluster {
            Read::Present(seen) => self.cluster_seen(now, name, seen.clone()),
            Read::Missing => self.cluster_gone(name),
            Read::Broken => {}
        }
        if let Read::Present(renewed) = &live.renewed {
            self.lease_seen(now, name, renewed.as_deref());
        }
        let contact = self.clock.now(now);
        let (begun, grace) = (self.begun, self.grace);
        let Some(record) = self.clusters.get_mut(name) else {
            return Verdict::Leave;
        };
        if !begun || record.deadline(grace) > contact {
            record.judging = false;
            let at = record.deadline(grace);
            self.arm(name, at);
            return Verdict::Leave;
        }
        if record.is_silent() {
            // No deadline until it gives a sign of life.
            record.judging = false;
            return Verdict::Leave;
        }
        // It may be back without them.
        record.shown = None;
        Verdict::Mark(match record.seen.ready {
            None => NEVER,
            Some(_) => STOPPED,
        })
    }

    /// The write succeeded; `seen` is what it left.
    pub fn marked(&mut self, now: Moment, name: &str, seen: Seen) {
        if let Some(record) = self.clusters.get_mut(name) {
            record.judging = false;
            self.cluster_seen(now, name, seen);
        }
    }

    /// The cluster could not be read or written; it is judged again after `delay`.
    pub fn retry(&mut self, now: Moment, name: &str, delay: Duration) {
        let at = self.clock.now(now).plus(delay);
        if let Some(record) = self.clusters.get_mut(name) {
            record.judging = false;
            self.arm(name, at);
        }
    }

    fn sign_of_life(&mut self, now: Moment, name: &str) {
        let contact = self.clock.now(now);
        let grace = self.grace;
        let Some(record) = self.clusters.get_mut(name) else {
            return;
        };
        record.sign = contact;
        let pull = record.seen.pull;
        let at = record.deadline(grace);
        if self.begun && pull {
            self.arm(name, at);
        }
    }

    fn arm(&mut self, name: &str, at: ContactTime) {
        let Some((key, _)) = self.clusters.get_key_value(name) else {
            return;
        };
        let key = Arc::clone(key);
        let record = self.record(&key);
        if let Some(before) = record.timer.replace(at) {
            self.timers.remove(&(before, Arc::clone(&key)));
        }
        self.timers.insert((at, key));
    }

    fn record(&mut self, name: &str) -> &mut Record {
        self.clusters
            .get_mut(name)
            .expect("invariant: a timer is removed with its cluster")
    }
}

impl Record {
    /// Nothing can be concluded from its silence: it is known, or nobody expects a sign.
    fn is_silent(&self) -> bool {
        !self.seen.pull || self.seen.ready.as_ref().is_some_and(|ready| ready.unknown)
    }

    fn deadline(&self, grace: Grace) -> ContactTime {
        let by_lease = self.sign.plus(match self.seen.ready {
            Some(_) => grace.running,
            None => grace.startup,
        });
        match self.shown.filter(|_| self.seen.ready.is_some()) {
            Some((at, within)) => by_lease.min(at.max(self.sign).plus(within)),
            None => by_lease,
        }
    }
}

#[cfg(test)]
mod tests;
