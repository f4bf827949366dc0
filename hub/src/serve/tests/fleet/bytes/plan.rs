//! What goes wrong in one run, drawn from its seed.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::fmt;
use std::time::Duration;

/// Nothing goes wrong before that: everybody has registered.
const FROM: u64 = 30;
/// Everything is right again from then on.
pub(super) const UNTIL: Duration = Duration::from_secs(150);
/// The longest that one thing is wrong, in seconds.
const LONGEST: u64 = 70;

/// Something that goes wrong between the hub and a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// What is sent is lost.
    Cut,
    /// The same of what the member sends alone.
    CutUp,
    /// The same of what the hub sends.
    CutDown,
    /// What is sent waits.
    Held,
    Slow,
    HubIsDead,
    MachineIsDead,
}

const ALL: [What; 7] = [
    What::Cut,
    What::CutUp,
    What::CutDown,
    What::Held,
    What::Slow,
    What::HubIsDead,
    What::MachineIsDead,
];

/// What is wrong, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) what: What,
    pub(super) member: u8,
}

/// A change of a Work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) at: Duration,
    pub(super) member: u8,
}

/// All of a run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) members: u8,
    pub(super) troubles: Vec<Trouble>,
    /// In the order of their times.
    pub(super) changes: Vec<Change>,
}

impl Plan {
    /// The plan of a seed. What concerns one host follows one after the other.
    pub(super) fn draw(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        // Few most of the time.
        let most = if rng.random_ratio(1, 5) { 8 } else { 3 };
        let members = rng.random_range(1..=most);
        let mut troubles = Vec::new();
        let mut hub_until = FROM;
        for member in 1..=members {
            let mut at = FROM + rng.random_range(0..20);
            loop {
                let what = ALL[rng.random_range(0..ALL.len())];
                if what == What::HubIsDead {
                    at = at.max(hub_until);
                }
                let until = at + rng.random_range(1..=LONGEST);
                if until >= UNTIL.as_secs() {
                    break;
                }
                if what == What::HubIsDead {
                    hub_until = until + 1;
                }
                troubles.push(Trouble {
                    from: Duration::from_secs(at),
                    until: Duration::from_secs(until),
                    what,
                    member,
                });
                at = until + rng.random_range(1..30);
            }
        }
        let changes = rng.random_range(3..12);
        let mut changes: Vec<Change> = (0..changes)
            .map(|_| Change {
                at: Duration::from_secs(rng.random_range(FROM..UNTIL.as_secs())),
                member: rng.random_range(1..=members),
            })
            .collect();
        changes.sort_by_key(|change| change.at);
        Self {
            seed,
            members,
            troubles,
            changes,
        }
    }

    /// What begins and what ends, in order.
    pub(super) fn turns(&self) -> Vec<(Duration, bool, Trouble)> {
        let begins = self.troubles.iter().map(|it| (it.from, true, *it));
        let ends = self.troubles.iter().map(|it| (it.until, false, *it));
        let mut turns: Vec<_> = begins.chain(ends).collect();
        turns.sort_by_key(|(at, begins, _)| (*at, *begins));
        turns
    }

    /// Whether anything was wrong for a member lately.
    pub(super) fn is_troubled(&self, member: u8, at: Duration, lately: Duration) -> bool {
        self.troubles.iter().any(|it| {
            let concerns = it.member == member || it.what == What::HubIsDead;
            concerns && it.from <= at && at <= it.until + lately
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} members", self.members)?;
        for it in &self.troubles {
            let (from, until) = (it.from.as_secs(), it.until.as_secs());
            writeln!(f, "{from:>4} to {until} s: {:?}, m{}", it.what, it.member)?;
        }
        for it in &self.changes {
            writeln!(f, "{:>4} s: a change for m{}", it.at.as_secs(), it.member)?;
        }
        Ok(())
    }
}
