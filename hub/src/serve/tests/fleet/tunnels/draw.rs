//! A plan of a seed. Each component draws for itself, and each run has some kinds of fault alone.

use super::plan::{Ask, KINDS, MEMBERS, Plan, Step, USERS, Wanted, What};
use common::chance::Chance;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// How long things happen, in milliseconds.
const SPAN: u64 = 60_000;

/// The plan of a seed; with faults of these kinds, or of some.
pub(super) fn plan(seed: u64, faults: Option<&[String]>) -> Plan {
    let chance = Chance::seeded(seed);
    let mut steps = Vec::new();
    for user in USERS {
        for member in 1..=MEMBERS {
            let rng = &mut chance.stream(&format!("asks {user} m{member}"));
            for _ in 0..rng.random_range(3..8) {
                steps.push(ask(rng, user, member));
            }
        }
    }
    let mut on = chance.stream("kinds");
    for kind in KINDS {
        let is_on = on.random_bool(0.4);
        let is_on = faults.map_or(is_on, |list| list.iter().any(|it| it == kind));
        let rng = &mut chance.stream(kind);
        // More than one of these in a short time would have certificates end.
        let most = if kind == "renew" { 2 } else { 4 };
        for _ in 0..rng.random_range(1..most) {
            let drawn = fault(rng, kind);
            if is_on {
                steps.extend(drawn);
            }
        }
    }
    steps.sort_by_key(|step| step.at);
    Plan { seed, steps }
}

fn ask(rng: &mut StdRng, user: &str, member: u8) -> Step {
    let what = match rng.random_range(0..10) {
        0..2 => Wanted::Get,
        2..4 => Wanted::List,
        4..6 => Wanted::Watch(rng.random_range(1..50)),
        6..7 => Wanted::Put,
        _ => Wanted::Exec(rng.random_range(1..50)),
    };
    let patience = match rng.random_bool(0.3) {
        true => rng.random_range(1..10_000),
        false => 90_000,
    };
    let ask = Ask {
        user: user.to_owned(),
        member,
        what,
        h2: rng.random_bool(0.5),
        patience,
    };
    Step {
        at: rng.random_range(0..SPAN),
        what: What::Ask(ask),
    }
}

/// One fault, and what undoes it.
fn fault(rng: &mut StdRng, kind: &str) -> Vec<Step> {
    let at = rng.random_range(0..SPAN);
    let member = rng.random_range(1..=MEMBERS);
    let user = USERS.choose(rng).copied().unwrap_or("ann").to_owned();
    let in_order = rng.random_bool(0.5);
    let (short, long) = (
        rng.random_range(100..3_000),
        rng.random_range(1_000..60_000),
    );
    // Most runs of bytes are short, and some are long.
    let most = [300, 3_000, 30_000, 400_000];
    let most = most.choose(rng).copied().unwrap_or(300);
    let bytes = rng.random_range(0..most);
    let what = match kind {
        "cut" => What::Cut(member),
        "bytes" => What::CutAfter(member, bytes),
        "freeze" => What::Freeze(member, long),
        "silent" => What::Silence(member),
        "slow" => What::Slow(member, short, long),
        "refuse" => What::Refuse(member, long),
        "relay" => What::CutMember(member),
        "hub" => What::Hub(in_order, short),
        "agent" => What::Agent(member, in_order, short),
        "member" => What::Member(member, in_order, short),
        "renew" => What::Renew,
        "replace" => What::Replace(member, long),
        // One of them stays.
        "leave" => What::Leave(2),
        "right" => What::Right(user.clone(), member, false),
        _ => What::LetIn(user.clone(), member, false),
    };
    let back = match &what {
        What::Right(..) => What::Right(user.clone(), member, true),
        What::LetIn(..) => What::LetIn(user.clone(), member, true),
        _ => return vec![Step { at, what }],
    };
    let meanwhile = What::Ask(under_way(rng, user, member));
    [
        (at.saturating_sub(1_000), meanwhile),
        (at, what),
        (at + long, back),
    ]
    .map(|(at, what)| Step { at, what })
    .into()
}

/// What goes on for longer than anything may that has lost its right.
fn under_way(rng: &mut StdRng, user: String, member: u8) -> Ask {
    let lasts = rng.random_range(35..50);
    let what = match rng.random_bool(0.5) {
        true => Wanted::Watch(lasts),
        false => Wanted::Exec(lasts),
    };
    Ask {
        user,
        member,
        what,
        h2: rng.random_bool(0.5),
        patience: 90_000,
    }
}
