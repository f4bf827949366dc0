//! Whether clusters that are not heard may be left: when most of a fleet is lost at once, it is the hub or its network
//! that is cut off, and what runs there runs on.
//!
//! Pure. Time is that since the controller began. What a cluster that is heard has to lose is not held: its taints
//! are somebody's word.

use super::super::monitor::decide::NEVER;
use crate::world::{Cluster, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time since the controller began.
pub type Moment = Duration;

/// A cluster is lost for so long before anything leaves it: of clusters that fall silent together, the last is marked
/// as long after the first as lies between two heartbeats.
pub const SETTLE: Duration = Duration::from_secs(15);
/// For so long there must be no more lost clusters than may be, before anything leaves one.
pub const CALM: Duration = Duration::from_secs(60);

/// How a cluster looks from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It is ready.
    Heard,
    /// It was ready, and is not: it fell silent, or says so.
    Lost,
}

impl Sight {
    /// Of a Cluster; none of one that never was of the fleet, or leaves it.
    pub fn of(cluster: &Cluster) -> Option<Self> {
        let ready = cluster.ready.as_ref()?;
        if cluster.lifecycle.deleted.is_some() || &*ready.reason == NEVER {
            return None;
        }
        Some(match ready.status {
            Status::True => Self::Heard,
            Status::False | Status::Unknown => Self::Lost,
        })
    }
}

/// Whether something may leave a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It may.
    Go,
    /// Not before this time has passed.
    Wait(Duration),
    /// Not as long as so much of the fleet is lost.
    Held,
}

/// What a change made of the brake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing.
    None,
    /// It holds now.
    Holds,
    /// It lets go, after a while.
    Eases,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Holding,
    Easing(Moment),
}

/// The brake.
#[derive(Debug)]
pub struct Brake {
    /// The share that may be lost.
    share: f64,
    /// All that count, and since when they are lost.
    clusters: BTreeMap<Arc<str>, Option<Moment>>,
    lost: usize,
    /// All clusters were listed.
    begun: bool,
    state: State,
}

impl Brake {
    /// A brake that has seen no cluster; it holds when more than this share of all is lost.
    pub fn new(share: f64) -> Self {
        Self {
            share,
            clusters: BTreeMap::new(),
            lost: 0,
            begun: false,
            state: State::Open,
        }
    }

    /// How many clusters count, and how many of them are lost.
    pub fn count(&self) -> (usize, usize) {
        (self.clusters.len(), self.lost)
    }

    /// The clusters that are lost.
    pub fn lost(&self) -> impl Iterator<Item = &Arc<str>> {
        let lost = self.clusters.iter().filter(|(_, since)| since.is_some());
        lost.map(|(name, _)| name)
    }

    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.state != State::Open
    }

    /// A cluster was seen.
    pub fn see(&mut self, now: Moment, name: &Arc<str>, sight: Option<Sight>) -> Turn {
        let before = match sight {
            None => self.clusters.remove(name),
            Some(sight) => {
                let known = self.clusters.get(name).copied().flatten();
                let since = (sight == Sight::Lost).then_some(known.unwrap_or(now));
                self.clusters.insert(Arc::clone(name), since)
            }
        };
        self.lost -= usize::from(before.flatten().is_some());
        self.lost += usize::from(sight == Some(Sight::Lost));
        self.look(now)
    }

    /// All clusters were listed: until then nobody knows how many there are.
    pub fn begin(&mut self, now: Moment) -> Turn {
        self.begun = true;
        self.look(now)
    }

    fn look(&mut self, now: Moment) -> Turn {
        let (all, lost) = self.count();
        let share = |part: usize| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
        // One cluster alone is never the fleet.
        let many = self.begun && lost > 1 && share(lost) > share(all) * self.share;
        match (self.state, many) {
            (State::Open | State::Easing(_), true) => {
                self.state = State::Holding;
                Turn::Holds
            }
            (State::Holding, false) => {
                self.state = State::Easing(now);
                Turn::Eases
            }
            _ => Turn::None,
        }
    }

    /// Whether something may leave a cluster now.
    pub fn word(&mut self, now: Moment, name: &str) -> Word {
        let lost = self.clusters.get(name).copied().flatten();
        if let State::Easing(since) = self.state
            && now >= since + CALM
        {
            self.state = State::Open;
        }
        let Some(lost) = lost else {
            return Word::Go;
        };
        let from = match self.state {
            State::Holding => return Word::Held,
            State::Easing(since) => since + CALM,
            State::Open => Moment::ZERO,
        };
        let wait = from.max(lost + SETTLE).saturating_sub(now);
        if wait.is_zero() {
            Word::Go
        } else {
            Word::Wait(wait)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn s(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn name(number: usize) -> Arc<str> {
        format!("m{number}").into()
    }

    /// A fleet in which `lost` of `all` clusters are lost since 0.
    fn fleet(all: usize, lost: usize) -> Brake {
        let mut brake = Brake::new(0.5);
        for number in 0..all {
            let sight = if number < lost {
                Sight::Lost
            } else {
                Sight::Heard
            };
            brake.see(s(0), &name(number), Some(sight));
        }
        brake.begin(s(0));
        brake
    }

    #[test]
    fn more_than_half_of_a_fleet_holds_and_one_cluster_never() {
        for (all, lost, holds) in [
            (1, 1, false),
            (2, 1, false),
            (2, 2, true),
            (3, 1, false),
            (3, 2, true),
            (4, 2, false),
            (4, 3, true),
            (1000, 500, false),
            (1000, 501, true),
        ] {
            let mut brake = fleet(all, lost);
            let want = if holds { Word::Held } else { Word::Go };
            assert_eq!(brake.word(s(15), "m0"), want, "{lost} of {all}");
            assert_eq!(brake.holds(), holds);
            assert_eq!(brake.word(s(0), "elsewhere"), Word::Go);
        }
    }

    #[test]
    fn a_cluster_that_is_heard_is_never_held() {
        let mut brake = fleet(4, 3);
        assert_eq!(brake.word(s(0), "m3"), Word::Go);
    }

    #[test]
    fn nothing_leaves_before_the_last_of_a_storm_is_marked() {
        let mut brake = fleet(3, 0);
        brake.see(s(10), &name(0), Some(Sight::Lost));
        assert_eq!(brake.word(s(12), "m0"), Word::Wait(s(13)));
        // Its status is written again: the time counts on.
        brake.see(s(14), &name(0), Some(Sight::Lost));
        assert_eq!(brake.see(s(20), &name(1), Some(Sight::Lost)), Turn::Holds);
        assert_eq!(brake.word(s(25), "m0"), Word::Held);
    }

    #[test]
    fn it_ends_by_itself_once_things_stay_calm() {
        let mut brake = fleet(3, 2);
        assert_eq!(brake.see(s(100), &name(1), Some(Sight::Heard)), Turn::Eases);
        assert_eq!(brake.word(s(130), "m0"), Word::Wait(s(30)));
        assert!(brake.holds());
        // It comes back in between, and the while begins anew.
        assert_eq!(brake.see(s(140), &name(1), Some(Sight::Lost)), Turn::Holds);
        assert_eq!(brake.see(s(150), &name(1), Some(Sight::Heard)), Turn::Eases);
        assert_eq!(brake.word(s(209), "m0"), Word::Wait(s(1)));
        assert_eq!(brake.word(s(210), "m0"), Word::Go);
        assert!(!brake.holds());
    }

    #[test]
    fn a_list_that_is_half_read_holds_nothing() {
        let mut brake = Brake::new(0.5);
        for number in 0..5 {
            let seen = brake.see(s(0), &name(number), Some(Sight::Lost));
            assert_eq!(seen, Turn::None);
        }
        for number in 5..20 {
            brake.see(s(0), &name(number), Some(Sight::Heard));
        }
        assert_eq!(brake.begin(s(0)), Turn::None);
    }

    proptest! {
        /// Whatever comes and goes: the count is that of a plain map, and while too many are lost none may be left.
        #[test]
        fn too_many_lost_are_never_left(
            seen in proptest::collection::vec((0_usize..6, 0_u8..3, 0_u64..100), 0..60),
        ) {
            let mut brake = fleet(0, 0);
            let mut model: BTreeMap<usize, bool> = BTreeMap::new();
            let mut now = s(0);
            for (number, what, later) in seen {
                now += s(later);
                let sight = [None, Some(Sight::Heard), Some(Sight::Lost)];
                let sight = sight.get(usize::from(what)).copied().flatten();
                brake.see(now, &name(number), sight);
                match sight {
                    None => model.remove(&number),
                    Some(sight) => model.insert(number, sight == Sight::Lost),
                };
                let lost = model.values().filter(|lost| **lost).count();
                prop_assert_eq!(brake.count(), (model.len(), lost));
                for (number, is_lost) in &model {
                    let word = brake.word(now, &name(*number));
                    if lost > 1 && 2 * lost > model.len() && *is_lost {
                        prop_assert_eq!(word, Word::Held);
                    }
                    if !is_lost {
                        prop_assert_eq!(word, Word::Go);
                    }
                }
            }
        }
    }
}
