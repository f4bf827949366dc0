//! Plans from seeds. Each thing draws from a stream of its own: what is drawn for one shifts no other.

mod more;

use super::faults::{Fault, Wrong};
use super::plan::{
    Act, Affinity, Divides, KINDS, MEMBERS, Plan, Policy, SPACES, Selects, Step, What,
};
use common::chance::Chance;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// In which time, in milliseconds, everything happens.
const SPAN: u64 = 70_000;
/// After so long a cluster that is silent has been left.
const LOST: u64 = 100_000;

/// What all plans of some seeds have in common.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// How many members there are.
    pub(super) members: u8,
    /// The kinds of fault that there are, always; without it each is in some of the runs.
    pub(super) faults: Option<Vec<String>>,
    /// Whether there is what `more` draws.
    pub(super) more: bool,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            members: MEMBERS,
            faults: None,
            more: false,
        }
    }
}

/// What happens in the run of a seed.
pub(super) fn plan(seed: u64, of: &Kind) -> Plan {
    let chance = Chance::seeded(seed);
    let members = of.members;
    let mut steps = Vec::new();
    for space in SPACES {
        // A quarter of the runs has one namespace.
        if space == SPACES[1] && chance.stream("spaces").random_bool(0.4) {
            continue;
        }
        for name in ["web", "api"] {
            let rng = chance.stream(&format!("template {space} {name}"));
            steps.extend(template(rng, space, name, members));
        }
        steps.extend(map(chance.stream(&format!("map {space}")), space));
        for name in ["one", "two"] {
            let rng = chance.stream(&format!("policy {space} {name}"));
            steps.extend(policies(rng, Some(space), name, members));
        }
        let rng = chance.stream(&format!("override {space}"));
        steps.extend(overrides(rng, space, members));
    }
    steps.extend(policies(chance.stream("policy"), None, "all", members));
    for member in 1..=members {
        steps.extend(cluster(chance.stream(&format!("cluster {member}")), member));
        steps.extend(evictions(
            chance.stream(&format!("evictions {member}")),
            member,
        ));
        let rng = chance.stream(&format!("agent {member}"));
        let of = |lasts| What::AgentDies(member, lasts);
        steps.extend(deaths(rng, &[50, 1_000, 5_000, 30_000, LOST], of));
    }
    if of.more {
        steps.extend(more::steps(&chance, members));
    }
    let rng = chance.stream("hub");
    steps.extend(deaths(rng, &[50, 1_000, 5_000, 30_000], What::HubDies));
    let mut swarm = chance.stream("kinds of faults");
    let on: [bool; KINDS.len()] = std::array::from_fn(|_| swarm.random_bool(0.4));
    let on = match &of.faults {
        // What admission refuses is drawn last.
        None if !of.more => std::array::from_fn(|kind| on[kind] && kind < KINDS.len() - 1),
        None => on,
        Some(list) => KINDS.map(|kind| list.iter().any(|it| it == kind)),
    };
    for way in ways(members) {
        let rng = chance.stream(&format!("faults {way}"));
        steps.extend(faults(rng, &way, &on));
    }
    if let Some(list) = &of.faults {
        steps.retain(|(_, what)| {
            what.kind()
                .is_none_or(|kind| list.iter().any(|it| it == kind))
        });
    }
    // Those of one time stay in the order in which they were drawn.
    steps.sort_by_key(|(at, _)| *at);
    let numbered = (1..).zip(steps);
    let steps = numbered.map(|(number, (at, what))| Step { number, at, what });
    Plan {
        seed,
        members,
        steps: steps.collect(),
    }
}

/// Whose lines can have faults.
fn ways(members: u8) -> Vec<String> {
    let of = |member: u8| {
        [
            format!("m{member}>hub"),
            format!("m{member}>member{member}"),
        ]
    };
    let agents = (1..=members).flat_map(of);
    agents.chain(["controllers".to_owned()]).collect()
}

type Timed = (u64, What);

fn act(at: u64, act: Act) -> Timed {
    (at, What::Act(act))
}

fn when(rng: &mut StdRng, from: u64) -> u64 {
    rng.random_range(from..SPAN.max(from + 1))
}

fn label(rng: &mut StdRng) -> String {
    ["red", "dark"]
        .choose(rng)
        .copied()
        .unwrap_or("red")
        .to_owned()
}

fn template(mut rng: StdRng, space: &str, name: &str, members: u8) -> Vec<Timed> {
    let rng = &mut rng;
    if name != "web" && rng.random_bool(0.4) {
        return Vec::new();
    }
    let of = || (space.to_owned(), name.to_owned());
    let mut steps = Vec::new();
    let mut at = rng.random_range(0..15_000);
    let deploy = |rng: &mut StdRng| {
        let ((space, name), replicas, version) =
            (of(), rng.random_range(0..9), rng.random_range(1..5));
        let label = label(rng);
        Act::Deploy(space, name, replicas, version, label)
    };
    steps.push(act(at, deploy(rng)));
    for _ in 0..rng.random_range(0..5) {
        at = when(rng, at);
        let (space, name) = of();
        let change = match rng.random_range(0..10) {
            0..4 => Act::Scale(space, name, rng.random_range(0..12)),
            4..7 => Act::Roll(space, name, rng.random_range(1..5)),
            7..8 => Act::Relabel(space, name, label(rng)),
            8..9 => Act::Meddle(rng.random_range(1..=members), space, name),
            _ => {
                steps.push(act(at, Act::Undeploy(space, name)));
                // Sometimes at once.
                at += [0, 200, 3_000, 20_000].choose(rng).copied().unwrap_or(0);
                deploy(rng)
            }
        };
        steps.push(act(at, change));
    }
    if rng.random_bool(0.15) {
        let (space, name) = of();
        steps.push(act(when(rng, at), Act::Undeploy(space, name)));
    }
    steps
}

fn map(mut rng: StdRng, space: &str) -> Vec<Timed> {
    let rng = &mut rng;
    let mut steps = Vec::new();
    let mut at = rng.random_range(0..20_000);
    for _ in 0..rng.random_range(0..4) {
        let content = rng.random_range(1..5);
        steps.push(act(at, Act::Configure(space.to_owned(), content)));
        at = when(rng, at);
    }
    if rng.random_bool(0.2) {
        steps.push(act(at, Act::Unconfigure(space.to_owned())));
    }
    steps
}

fn policies(mut rng: StdRng, namespace: Option<&str>, name: &str, members: u8) -> Vec<Timed> {
    let rng = &mut rng;
    let often = match (namespace, name) {
        (Some(_), "one") => 1.0,
        (Some(_), _) => 0.4,
        (None, _) => 0.25,
    };
    if !rng.random_bool(often) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut at = rng.random_range(0..20_000);
    let (namespace, name) = (namespace.map(str::to_owned), name.to_owned());
    for edit in 0..rng.random_range(1..4) {
        if edit > 0 && rng.random_bool(0.3) {
            steps.push(act(at, Act::Unpolicy(namespace.clone(), name.clone())));
            at = when(rng, at);
        }
        let policy = Act::Policy(policy(rng, namespace.clone(), name.clone(), members));
        steps.push(act(at, policy));
        at = when(rng, at);
    }
    if rng.random_bool(0.2) {
        steps.push(act(at, Act::Unpolicy(namespace, name)));
    }
    steps
}

fn policy(rng: &mut StdRng, namespace: Option<String>, name: String, members: u8) -> Policy {
    let selects = match rng.random_range(0..4) {
        0..2 => Selects::All,
        2 => Selects::Name("web".to_owned()),
        _ => Selects::Label(label(rng)),
    };
    let affinity = match rng.random_range(0..8) {
        0..4 => Affinity::Any,
        4..6 => {
            let some = (1..=members).filter(|_| rng.random_bool(0.6));
            Affinity::Names(some.collect())
        }
        6 => Affinity::Tier("gold".to_owned()),
        _ => Affinity::Without(rng.random_range(1..=members)),
    };
    let affinity = match affinity {
        Affinity::Names(names) if names.is_empty() => Affinity::Any,
        other => other,
    };
    let divides = match rng.random_range(0..7) {
        0 => Divides::Unsaid,
        1 => Divides::Whole,
        2..4 => Divides::Static(
            (1..=members)
                .map(|it| (it, rng.random_range(1..4)))
                .collect(),
        ),
        4..6 => Divides::Dynamic,
        _ => Divides::Aggregated,
    };
    let spread = rng.random_bool(0.3).then(|| {
        let least = rng.random_range(1..=2);
        (rng.random_bool(0.3), least, rng.random_range(least..=3))
    });
    Policy {
        namespace,
        name,
        priority: rng.random_range(0..3),
        selects,
        maps: rng.random_bool(0.2),
        deps: rng.random_bool(0.5),
        affinity,
        divides,
        spread,
        tolerates: rng.random_bool(0.3),
        endures: rng.random_bool(0.3).then(|| rng.random_range(0..20)),
        directly: rng.random_bool(0.2),
    }
}

fn overrides(mut rng: StdRng, space: &str, members: u8) -> Vec<Timed> {
    let rng = &mut rng;
    if rng.random_bool(0.5) {
        return Vec::new();
    }
    let mut at = rng.random_range(0..40_000);
    let mut steps = Vec::new();
    for _ in 0..rng.random_range(1..3) {
        let (member, version) = (rng.random_range(1..=members), rng.random_range(5..9));
        steps.push(act(at, Act::Override(space.to_owned(), member, version)));
        at = when(rng, at);
    }
    if rng.random_bool(0.3) {
        steps.push(act(at, Act::Unoverride(space.to_owned())));
    }
    steps
}

fn cluster(mut rng: StdRng, member: u8) -> Vec<Timed> {
    let rng = &mut rng;
    let mut steps = Vec::new();
    let mut at = 0;
    for _ in 0..rng.random_range(0..4) {
        at = when(rng, at);
        let change = match rng.random_range(0..8) {
            0..3 => {
                let keys = ["cluster.karmada.io/unschedulable", "spare"];
                let some = keys.iter().filter(|_| rng.random_bool(0.4));
                Act::Taint(member, some.map(|it| (*it).to_owned()).collect())
            }
            3..5 => {
                let tier = ["gold", "lead"].choose(rng).copied().unwrap_or("lead");
                Act::Label(member, tier.to_owned())
            }
            5..7 => Act::Room(member, rng.random_range(1..9)),
            _ => {
                let back = rng
                    .random_bool(0.7)
                    .then(|| rng.random_range(1_000..20_000));
                Act::Leave(member, back)
            }
        };
        steps.push(act(at, change));
    }
    steps
}

/// What makes leave what is there, and is over later or never.
fn evictions(mut rng: StdRng, member: u8) -> Vec<Timed> {
    let rng = &mut rng;
    let mut steps = Vec::new();
    if rng.random_bool(0.7) {
        return steps;
    }
    let mut at = rng.random_range(5_000..40_000);
    for _ in 0..rng.random_range(1..3) {
        let some = ["spare", "broken"].iter();
        let some = some.filter(|_| rng.random_bool(0.6));
        let keys = some.map(|it| (*it).to_owned()).collect();
        steps.push(act(at, Act::Evict(member, keys)));
        at += rng.random_range(500..30_000);
    }
    if rng.random_bool(0.7) {
        steps.push(act(at, Act::Evict(member, Vec::new())));
    }
    steps
}

fn deaths(mut rng: StdRng, lengths: &[u64], of: impl Fn(u64) -> What) -> Vec<Timed> {
    let rng = &mut rng;
    let count = [0, 0, 0, 1, 1, 2].choose(rng).copied().unwrap_or(0);
    let mut at = 0;
    let mut steps = Vec::new();
    for _ in 0..count {
        at = when(rng, at);
        let lasts = lengths.choose(rng).copied().unwrap_or(50);
        steps.push((at, of(lasts)));
        at += lasts + 1;
    }
    steps
}

fn faults(mut rng: StdRng, way: &str, on: &[bool; KINDS.len()]) -> Vec<Timed> {
    let rng = &mut rng;
    // The hub's own controllers have no timeouts in a process of their own, and what refuses them lasts shorter.
    let own = way == "controllers";
    let mut steps = Vec::new();
    for kind in on
        .iter()
        .enumerate()
        .filter_map(|(kind, on)| on.then_some(kind))
    {
        for _ in 0..[0, 0, 1, 2].choose(rng).copied().unwrap_or(0) {
            let at = rng.random_range(0..SPAN);
            let lasts = rng.random_range(200..if own { 5_000 } else { 20_000 });
            let percent = rng.random_range(5..80);
            let status = [409, 429, 500, 503].choose(rng).copied().unwrap_or(503);
            let what = match kind {
                0 => Wrong::Slow(rng.random_range(20..3_000)),
                1 => Wrong::Refuse,
                2 => Wrong::Lose(percent),
                3 if own => continue,
                3 => Wrong::Swallow(percent),
                4 => Wrong::Answer(status, percent),
                5 => Wrong::Cut,
                6 => Wrong::Freeze,
                7 => Wrong::Gone,
                _ if way.contains(">member") => Wrong::Deny(percent),
                _ => continue,
            };
            let lasts = if what == Wrong::Cut { 0 } else { lasts };
            let way = way.to_owned();
            steps.push((at, What::Fault(Fault { way, lasts, what })));
        }
    }
    steps
}
