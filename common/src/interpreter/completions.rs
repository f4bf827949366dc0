//! How the completions of a Job are divided between members: by Webster's method, weighted by the replicas
//! that each was given.
//!
//! Pure. The next completion goes to the largest weight/(2·seats+1); a tie to fewer seats, then by name.

use crate::names::fnv1a;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// The share of each member; none when no weight is above zero. `uid` of the template says which end of the
/// alphabet wins ties, so that not every Job favours the same members.
pub fn divide<'a>(
    completions: i32,
    weights: impl IntoIterator<Item = (&'a str, i32)>,
    uid: &str,
) -> Option<BTreeMap<&'a str, i32>> {
    let descending = fnv1a(uid) % 2 == 1;
    let mut shares = BTreeMap::new();
    let mut members: Vec<Member<'a>> = Vec::new();
    for (name, weight) in weights {
        shares.insert(name, 0);
        if let Ok(weight @ 1..) = u128::try_from(weight) {
            members.push(Member {
                name,
                weight,
                seats: 0,
                descending,
            });
        }
    }
    if members.is_empty() {
        return None;
    }
    let wanted = u128::try_from(completions).unwrap_or_default();
    let mut left = wanted - seat_what_is_certain(&mut members, wanted);
    let mut members: BinaryHeap<Member<'a>> = members.into();
    while left > 0
        && let Some(mut first) = members.pop()
    {
        first.seats += 1;
        left -= 1;
        members.push(first);
    }
    for member in members {
        shares.insert(
            member.name,
            i32::try_from(member.seats).unwrap_or(completions),
        );
    }
    Some(shares)
}

/// Gives every seat whose quotient is above a bound that leaves at most one seat for each member, and says how
/// many these are. One by one, a large number of completions would take as many steps.
fn seat_what_is_certain(members: &mut [Member<'_>], wanted: u128) -> u128 {
    let count = members.len() as u128;
    let weights: u128 = members.iter().map(|member| member.weight).sum();
    let Some(scale) = (2 * wanted).checked_sub(count) else {
        return 0;
    };
    let mut given = 0;
    for member in members {
        // Seats s with weight/(2s+1) > weights/scale.
        member.seats = ((member.weight * scale).saturating_sub(1) / weights).div_ceil(2);
        given += member.seats;
    }
    given
}

/// The greatest is the next to get a seat.
#[derive(Debug, PartialEq, Eq)]
struct Member<'a> {
    name: &'a str,
    weight: u128,
    seats: u128,
    descending: bool,
}

impl Ord for Member<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = self.weight * (2 * other.seats + 1);
        let theirs = other.weight * (2 * self.seats + 1);
        let by_name = || match self.descending {
            true => self.name.cmp(other.name),
            false => other.name.cmp(self.name),
        };
        ours.cmp(&theirs)
            .then_with(|| other.seats.cmp(&self.seats))
            .then_with(by_name)
    }
}

impl PartialOrd for Member<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts whose FNV-1a is even and odd.
    const ASCENDING: &str = "a";
    const DESCENDING: &str = "b";

    fn divided(completions: i32, weights: &[(&'static str, i32)], uid: &str) -> Option<Vec<i32>> {
        let shares = divide(completions, weights.iter().copied(), uid)?;
        Some(shares.into_values().collect())
    }

    #[test]
    fn completions_follow_the_replicas() {
        assert_eq!((fnv1a(ASCENDING) % 2, fnv1a(DESCENDING) % 2), (0, 1));
        type Case = (i32, &'static [(&'static str, i32)], Option<Vec<i32>>);
        let cases: [Case; 9] = [
            (10, &[("m1", 3), ("m2", 2)], Some(vec![6, 4])),
            (7, &[("m1", 1), ("m2", 2)], Some(vec![2, 5])),
            (3, &[("m1", 2), ("m2", 4)], Some(vec![1, 2])),
            (10, &[("m1", 3), ("m2", 6)], Some(vec![3, 7])),
            (1, &[("m1", 1), ("m2", 5)], Some(vec![0, 1])),
            (0, &[("m1", 1), ("m2", 5)], Some(vec![0, 0])),
            (4, &[("m1", 0), ("m2", 5)], Some(vec![0, 4])),
            (4, &[("m1", 0), ("m2", 0)], None),
            (4, &[], None),
        ];
        for (completions, weights, want) in cases {
            for uid in [ASCENDING, DESCENDING] {
                assert_eq!(
                    divided(completions, weights, uid),
                    want,
                    "{completions} {weights:?}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_fewer_seats_then_by_name() {
        let even = [("m1", 1), ("m2", 1), ("m3", 1)];
        assert_eq!(divided(4, &even, ASCENDING), Some(vec![2, 1, 1]));
        assert_eq!(divided(4, &even, DESCENDING), Some(vec![1, 1, 2]));
        // After one seat for m1, its 3/3 ties with 1/1 of m2.
        let uneven = [("m1", 3), ("m2", 1)];
        assert_eq!(divided(2, &uneven, ASCENDING), Some(vec![1, 1]));
        assert_eq!(divided(2, &uneven, DESCENDING), Some(vec![1, 1]));
    }

    #[test]
    fn the_largest_job_takes_no_longer() {
        let names: Vec<String> = (0..1000).map(|n| format!("m{n}")).collect();
        let weights = names.iter().map(|name| (name.as_str(), i32::MAX));
        let shares = divide(i32::MAX, weights, ASCENDING).expect("weights");
        assert_eq!(
            shares.values().map(|n| i64::from(*n)).sum::<i64>(),
            i64::from(i32::MAX)
        );
    }

    /// One by one, as the rule is told.
    fn slowly(completions: i32, weights: &[i32], descending: bool) -> Vec<i32> {
        let mut seats = vec![0_i32; weights.len()];
        for _ in 0..completions {
            let better = |a: usize, b: usize| {
                let (wa, wb) = (i64::from(weights[a]), i64::from(weights[b]));
                let (sa, sb) = (i64::from(seats[a]), i64::from(seats[b]));
                (wb * (2 * sa + 1))
                    .cmp(&(wa * (2 * sb + 1)))
                    .then(sa.cmp(&sb))
                    .then(if descending { b.cmp(&a) } else { a.cmp(&b) })
                    .is_lt()
            };
            let first = (0..weights.len())
                .filter(|n| weights[*n] > 0)
                .reduce(|best, n| if better(n, best) { n } else { best })
                .expect("a weight");
            seats[first] += 1;
        }
        seats
    }

    proptest! {
        #[test]
        fn the_short_way_ends_where_the_long_one_does(
            completions in 0..300_i32,
            weights in proptest::collection::vec(0..20_i32, 1..12),
            descending in any::<bool>(),
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let names: Vec<String> = (0..weights.len()).map(|n| format!("m{n:02}")).collect();
            let named = names.iter().map(String::as_str).zip(weights.iter().copied());
            let uid = if descending { DESCENDING } else { ASCENDING };
            let shares = divide(completions, named, uid).expect("a weight");
            let shares: Vec<i32> = shares.into_values().collect();
            prop_assert_eq!(shares, slowly(completions, &weights, descending));
        }
    }
}
