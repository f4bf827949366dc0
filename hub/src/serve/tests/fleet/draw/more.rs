//! What came to plans later: disks, power, clocks, Works by hand, and people in members.

use super::{SPAN, Timed, act, when};
use crate::serve::tests::fleet::clocks::ALL;
use crate::serve::tests::fleet::intruders::FIRST_BOUND;
use crate::serve::tests::fleet::plan::{Act, Hand, SPACES, Trouble, What};
use common::chance::Chance;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

pub(super) fn steps(chance: &Chance, members: u8) -> Vec<Timed> {
    let mut steps = disk(chance.stream("disk"));
    steps.extend(intruders(chance.stream("intruders")));
    steps.extend(power(chance.stream("power")));
    steps.extend(pause(chance.stream("pause")));
    steps.extend(clock(chance.stream("clock hub"), "hub"));
    for member in 1..=members {
        let host = format!("m{member}");
        steps.extend(clock(chance.stream(&format!("clock {host}")), &host));
        steps.extend(hand(chance.stream(&format!("hand {host}")), member));
        steps.extend(twin(chance.stream(&format!("twin {host}")), member));
        let mut rng = chance.stream(&format!("forget {host}"));
        if rng.random_bool(0.08) {
            steps.push(act(rng.random_range(0..SPAN), Act::Forget(member)));
        }
        steps.extend(tamper(chance.stream(&format!("tamper {host}")), member));
    }
    steps
}

fn disk(mut rng: StdRng) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.75) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut at = when(rng, 0);
    for _ in 0..rng.random_range(1..3) {
        let trouble = match rng.random_range(0..4) {
            0..2 => Trouble::Full,
            2 => Trouble::Broken,
            _ => Trouble::Slow(rng.random_range(20..2_000)),
        };
        let lasts = [200, 2_000, 8_000, 20_000]
            .choose(rng)
            .copied()
            .unwrap_or(200);
        steps.push((at, What::Disk(trouble, lasts)));
        at += lasts + rng.random_range(100..20_000);
    }
    steps
}

fn power(mut rng: StdRng) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.8) {
        return Vec::new();
    }
    let lasts = [100, 3_000, 20_000].choose(rng).copied().unwrap_or(100);
    vec![(rng.random_range(0..SPAN), What::PowerFails(lasts))]
}

/// Everybody goes on hours later: certificates are to be renewed, or have ended.
fn pause(mut rng: StdRng) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.9) {
        return Vec::new();
    }
    let hours = [9, 25].choose(rng).copied().unwrap_or(9);
    vec![(
        rng.random_range(0..SPAN),
        What::Clock(ALL.to_owned(), hours * HOUR),
    )]
}

/// A clock is set up to ten minutes wrong, and right again.
fn clock(mut rng: StdRng, host: &str) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.85) {
        return Vec::new();
    }
    let at = rng.random_range(0..SPAN);
    let set = |by| What::Clock(host.to_owned(), by);
    let by = rng.random_range(MINUTE..10 * MINUTE);
    let by = if rng.random_bool(0.5) { by } else { -by };
    let lasts = rng.random_range(500..40_000);
    vec![(at, set(by)), (at + lasts, set(-by))]
}

fn hand(mut rng: StdRng, member: u8) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.6) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let (mut at, mut name) = (rng.random_range(0..20_000), 1);
    for _ in 0..rng.random_range(1..6) {
        let change = match rng.random_range(0..8) {
            0 => Act::Unhand(member),
            other => {
                // Half of them under another name than the one before.
                name += u8::from(other > 4);
                let maps = (1..5).filter(|_| rng.random_bool(0.6));
                Act::Hand(Hand {
                    member,
                    name: format!("hand-{name}"),
                    maps: maps.collect(),
                    content: rng.random_range(1..5),
                    clears_first: rng.random_bool(0.4),
                })
            }
        };
        steps.push(act(at, change));
        at = when(rng, at);
    }
    steps
}

fn tamper(mut rng: StdRng, member: u8) -> Vec<Timed> {
    let rng = &mut rng;
    let mut steps = Vec::new();
    for _ in 0..[0, 0, 1, 2].choose(rng).copied().unwrap_or(0) {
        let space = SPACES.choose(rng).copied().unwrap_or(SPACES[0]);
        let name = ["web", "api"].choose(rng).copied().unwrap_or("web");
        let (at, replicas) = (when(rng, 10_000), rng.random_range(0..9));
        steps.push(act(
            at,
            Act::Tamper(member, space.to_owned(), name.to_owned(), replicas),
        ));
    }
    steps
}

/// More than the token that they have lets in, and some with one that is for another.
fn intruders(mut rng: StdRng) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.8) {
        return Vec::new();
    }
    let spent = 1..=rng.random_range(2..4);
    let bound = FIRST_BOUND..FIRST_BOUND + rng.random_range(0..2);
    spent
        .chain(bound)
        .map(|number| act(rng.random_range(0..SPAN), Act::Intrude(number)))
        .collect()
}

fn twin(mut rng: StdRng, member: u8) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.85) {
        return Vec::new();
    }
    let lasts = rng.random_range(3_000..60_000);
    vec![(rng.random_range(0..SPAN), What::Twin(member, lasts))]
}
