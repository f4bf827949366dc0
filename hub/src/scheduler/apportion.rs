//! Gives seats to parties by votes: each seat goes to the largest quotient of votes and 1, 3, 5, ... (Sainte-Laguë).
//!
//! The sum is always exact. Ties go to who has fewer seats, then by rank.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Who gets seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Party {
    /// Its place in the order of names; no two have the same.
    pub rank: usize,
    /// Its votes; nobody without votes gets a seat while another has some.
    pub votes: i64,
}

/// In which order ties fall that seats do not settle: by name, or against it for every other template, so
/// that small remainders do not all meet on one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    ByName,
    AgainstName,
}

impl Ties {
    /// What the UID of a template says: the parity of its FNV-1a hash of 32 bits.
    pub(super) fn of(uid: &str) -> Self {
        let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        if uid.is_empty() || hash.is_multiple_of(2) {
            Self::ByName
        } else {
            Self::AgainstName
        }
    }
}

#[derive(PartialEq, Eq)]
struct Bid {
    votes: i128,
    seats: i64,
    tie: usize,
    place: usize,
}

impl Bid {
    fn divisor(&self) -> i128 {
        2 * i128::from(self.seats) + 1
    }
}

impl Ord for Bid {
    fn cmp(&self, other: &Self) -> Ordering {
        let quotients = (self.votes * other.divisor()).cmp(&(other.votes * self.divisor()));
        quotients
            .then_with(|| Reverse(self.seats).cmp(&Reverse(other.seats)))
            .then_with(|| Reverse(self.tie).cmp(&Reverse(other.tie)))
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The seats of each party, parallel to `parties`; work grows with the parties, not with the seats.
pub(super) fn apportion(seats: i64, parties: &[Party], ties: Ties) -> Vec<i64> {
    let mut given = vec![0; parties.len()];
    if seats <= 0 || parties.is_empty() {
        return given;
    }
    let silent = parties.iter().all(|party| party.votes <= 0);
    let votes = |party: &Party| i128::from(if silent { 1 } else { party.votes });
    let voting = || parties.iter().filter(|party| votes(party) > 0);
    let total: i128 = voting().map(votes).sum();
    let voters = i128::try_from(voting().count()).unwrap_or(i128::MAX);
    // No more than `seats` quotients in all reach total / sure: whoever has one of them has that seat.
    let sure = (2 * i128::from(seats) - voters).max(0);
    let mut open = i128::from(seats);
    let mut bids = BinaryHeap::with_capacity(parties.len());
    for (place, (party, given)) in parties.iter().zip(&mut given).enumerate() {
        let votes = votes(party);
        if votes <= 0 {
            continue;
        }
        if sure > 0 {
            let first = (votes.saturating_mul(sure) + total) / (2 * total);
            *given = i64::try_from(first).unwrap_or(0);
            open -= first;
        }
        bids.push(Bid {
            votes,
            seats: *given,
            tie: match ties {
                Ties::ByName => party.rank,
                Ties::AgainstName => usize::MAX - party.rank,
            },
            place,
        });
    }
    while open > 0 {
        let Some(mut bid) = bids.pop() else {
            break;
        };
        bid.seats += 1;
        open -= 1;
        if let Some(given) = given.get_mut(bid.place) {
            *given = bid.seats;
        }
        bids.push(bid);
    }
    given
}
