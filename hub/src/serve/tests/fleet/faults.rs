//! What goes wrong on lines, and when: known from the beginning, so that a line only has to ask the time.

use common::chance::{Chance, SharedStream};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A fault of one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault {
    /// Whose line to whom, as `m1>hub`.
    pub(super) way: String,
    /// For how many milliseconds.
    pub(super) lasts: u64,
    pub(super) what: Wrong,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wrong {
    /// Requests and answers take up to so many milliseconds.
    Slow(u64),
    /// Nobody is reached.
    Refuse,
    /// So many of a hundred requests are carried out, and their answers lost.
    Lose(u8),
    /// So many of a hundred requests are never answered.
    Swallow(u8),
    /// So many of a hundred requests are answered by this status, and not carried out.
    Answer(u16, u8),
    /// Every watch ends at the beginning.
    Cut,
    /// Watches tell nothing until the end.
    Freeze,
    /// Watches that go on from a version are told that it is gone.
    Gone,
    /// So many of a hundred workloads are refused by admission, as a quota does.
    Deny(u8),
}

/// What kind of request one is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// A watch that goes on from a version.
    pub(super) resumes: bool,
    /// Writes a workload.
    pub(super) writes: bool,
}

impl Fault {
    /// When it is over, if it begins at `from`.
    pub(super) fn end(&self, from: u64) -> u64 {
        from + self.lasts
    }
}

/// One that has its place in time.
struct Placed {
    from: Instant,
    to: Instant,
    fault: Fault,
    draws: SharedStream,
}

impl Placed {
    fn is_of(&self, way: &str) -> bool {
        self.fault.way == way
    }

    fn holds(&self, way: &str, now: Instant) -> bool {
        self.is_of(way) && self.from <= now && now < self.to
    }

    fn hits(&self, percent: u8) -> bool {
        self.draws.draw(|rng| rng.random_range(0..100)) < percent
    }
}

/// Everything that goes wrong in one run. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Faults(Arc<Vec<Placed>>);

/// What becomes of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// How long each way takes in addition.
    pub(super) slow: Duration,
    pub(super) end: End,
}

/// How it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    #[default]
    Answered,
    /// Not reached.
    Refused,
    /// Carried out, and the connection is gone.
    Lost,
    /// Never.
    Silence,
    /// By this status.
    Status(u16),
}

impl Faults {
    /// From when each begins, by its number; each draws for itself.
    pub(super) fn new<'a>(
        seed: u64,
        began: Instant,
        faults: impl IntoIterator<Item = (u32, u64, &'a Fault)>,
    ) -> Self {
        let chance = Chance::seeded(seed);
        let place = |(number, from, fault): (u32, u64, &Fault)| Placed {
            from: began + Duration::from_millis(from),
            to: began + Duration::from_millis(fault.end(from)),
            fault: fault.clone(),
            draws: chance.shared_stream(&format!("fault {number}")),
        };
        Self(Arc::new(faults.into_iter().map(place).collect()))
    }

    /// Whether nobody is reached.
    pub(super) fn refuses(&self, way: &str) -> bool {
        let now = Instant::now();
        let mut all = self.0.iter();
        all.any(|it| it.fault.what == Wrong::Refuse && it.holds(way, now))
    }

    /// What becomes of a request that is made now.
    pub(super) fn fate(&self, way: &str, asked: Asked) -> Fate {
        let now = Instant::now();
        let mut fate = Fate::default();
        for it in self.0.iter().filter(|it| it.holds(way, now)) {
            let end = match it.fault.what {
                Wrong::Slow(most) => {
                    let slow = it.draws.draw(|rng| rng.random_range(0..=most));
                    fate.slow += Duration::from_millis(slow);
                    continue;
                }
                Wrong::Refuse => End::Refused,
                Wrong::Lose(percent) if it.hits(percent) => End::Lost,
                Wrong::Swallow(percent) if it.hits(percent) => End::Silence,
                Wrong::Answer(status, percent) if it.hits(percent) => End::Status(status),
                Wrong::Gone if asked.resumes => End::Status(410),
                Wrong::Deny(percent) if asked.writes && it.hits(percent) => End::Status(403),
                _ => continue,
            };
            if fate.end == End::Answered {
                fate.end = end;
            }
        }
        fate
    }

    /// When watches that were there at `since` are cut.
    pub(super) fn cut(&self, way: &str, since: Instant) -> Option<Instant> {
        let cuts = self.0.iter();
        let cuts = cuts.filter(|it| matches!(it.fault.what, Wrong::Cut) && it.is_of(way));
        cuts.map(|it| it.from).filter(|at| *at > since).min()
    }

    /// Until when a watch tells nothing.
    pub(super) fn frozen(&self, way: &str) -> Option<Instant> {
        let now = Instant::now();
        let all = self.0.iter().filter(|it| it.holds(way, now));
        let frozen = all.filter(|it| it.fault.what == Wrong::Freeze);
        frozen.map(|it| it.to).max()
    }
}
