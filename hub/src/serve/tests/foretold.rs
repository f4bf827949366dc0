//! What `hub::plan` foretells, against what then happens: on a hub with all its controllers, under simulated time,
//! objects and changes of them are drawn from seeds; each change is planned, carried out, and waited for until nothing
//! moves any more. Placements, replicas, claims and every manifest have to be those of the plan.
//!
//! A seed is a walk: each change meets what those before it left. `draw` makes what is applied, `hub` is the hub that it
//! is applied to, `outcome` compares. A walk of which something was foretold wrong is told as data, and is kept in
//! `walks` once that is mended.

mod draw;
mod hub;
mod outcome;

use super::rig::alone;
use crate::plan::{Change, TemplatePlan};
use common::chance::Chance;
use draw::Wanted;
use hub::Fleet;
use outcome::Real;
use rand::Rng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::env;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// Changes of one walk.
const STEPS: usize = 26;
/// Of these, the first ones, by which templates and policies come.
const FIRST: usize = 6;
/// Walks of a run that says nothing else. `TOWLINE_SEEDS=0..20` makes 520 changes of each sort, in minutes.
const SEEDS: Range<u64> = 0..2;

/// What came of walks.
#[derive(Debug, Default)]
struct Tally {
    /// Plans that were held against what happened.
    held: usize,
    /// Of these, plans of more than one change.
    several: usize,
    /// Of these again, those whose changes came all at once.
    together: usize,
    /// Plans by which something changes.
    changing: usize,
    /// Plans that named several ends, one of which is settled by a UID, or by which change comes first.
    open: usize,
    /// Changes that the hub refused, as was foretold.
    refused: usize,
    /// In how many places plans were wrong.
    wrong: usize,
}

impl Tally {
    fn add(&mut self, other: &Self, wrong: usize) {
        self.held += other.held;
        self.several += other.several;
        self.together += other.together;
        self.changing += other.changing;
        self.open += other.open;
        self.refused += other.refused;
        self.wrong += wrong;
    }
}

/// Changes that are planned together.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    changes: Vec<Wanted>,
    /// Whether each is carried out before the next is made.
    one_by_one: bool,
}

/// Changes of one hub; of a walk that is kept, these, and of another as many as its seed says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Walk {
    seed: u64,
    /// Whether several changes are planned together.
    #[serde(default)]
    several: bool,
    /// Whether objects say what was applied last, so that what a file no longer says goes, as kubectl has it.
    #[serde(default)]
    applied: bool,
    steps: Vec<Step>,
}

/// Changes of a step of this number.
async fn drawn(walk: &Walk, fleet: &Fleet, step: usize, mut rng: StdRng) -> Step {
    let many = match walk.several {
        true => rng.random_range(2..4),
        false => 1,
    };
    Step {
        changes: fleet
            .possible(draw::changes(&mut rng, many, step < FIRST))
            .await,
        one_by_one: rng.random_bool(0.5),
    }
}

/// Makes a walk: one that is kept, or one that a seed draws; and what it was, where something was wrong.
async fn walk(kept: &Walk) -> (Tally, Vec<String>, Option<Walk>) {
    let seed = kept.seed;
    let fleet = Fleet::begin(seed, kept.applied).await;
    let chance = Chance::seeded(seed);
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let mut made = Walk {
        steps: Vec::new(),
        ..kept.clone()
    };
    let steps = match kept.steps.len() {
        0 => STEPS,
        many => many,
    };
    for step in 0..steps {
        fleet.rejoin().await;
        let next = match kept.steps.get(step) {
            Some(kept) => Step {
                changes: fleet.possible(kept.changes.clone()).await,
                ..kept.clone()
            },
            None => drawn(kept, &fleet, step, chance.stream(&format!("step {step}"))).await,
        };
        made.steps.push(next.clone());
        let found = one(&fleet, &next.changes, next.one_by_one, &mut tally).await;
        let shown: Vec<String> = next.changes.iter().map(Wanted::shown).collect();
        wrong.extend(found.into_iter().map(|it| {
            format!(
                "seed {seed} step {step}: {it}\n    by {}",
                shown.join("\n    then ")
            )
        }));
        if !wrong.is_empty() {
            // What follows meets another hub than was meant.
            break;
        }
    }
    fleet.end().await;
    let made = (!wrong.is_empty()).then_some(made);
    (tally, wrong, made)
}

fn tell(what: &str, walk: &Walk) {
    let text = serde_json::to_string(walk).expect("JSON");
    eprintln!("seed {} {what} {text}", walk.seed);
}

/// A walk by which something is foretold wrong, without the steps that it is wrong without.
fn shortened(mut wrong: Walk) -> Walk {
    let mut many = wrong.steps.len() / 2;
    while many > 0 {
        let mut from = 0;
        while from + many < wrong.steps.len() {
            let mut shorter = wrong.clone();
            shorter.steps.drain(from..from + many);
            match alone(walk(&shorter)).2 {
                Some(made) => wrong = made,
                None => from += many,
            }
        }
        many /= 2;
    }
    wrong
}

/// Plans changes, makes them, and says in what the plan was wrong.
async fn one(fleet: &Fleet, wanted: &[Wanted], one_by_one: bool, tally: &mut Tally) -> Vec<String> {
    let (asked, mut changes, refused) = fleet.asked(wanted).await;
    let plan = asked.plan(&changes);
    let before = Real::of(fleet).await;
    let mut wrong = fleet.carry_out(wanted, &refused, one_by_one).await;
    let after = Real::of(fleet).await;
    tally.held += 1;
    tally.several += usize::from(changes.len() > 1);
    tally.together += usize::from(changes.len() > 1 && !one_by_one);
    tally.changing += usize::from(plan.changes());
    tally.refused += refused.len();
    let open = plan.templates.iter().any(TemplatePlan::is_open);
    tally.open += usize::from(open);
    wrong.extend(outcome::possible(&plan, &before, &after));
    // With the UIDs that new templates got, ties fall as they fell.
    after.name_new(&mut changes);
    // Where the last change leaves a cluster untold, it has what those before it came to.
    let earlier = parts(&changes, one_by_one);
    let earlier: Vec<_> = earlier
        .iter()
        .flat_map(|part| asked.each(part, one_by_one))
        .collect();
    // Each way is one thing that nobody can know before.
    let ways = asked.each(&changes, one_by_one);
    wrong.extend(outcome::exact(&plan, &ways, &earlier, &before, &after));
    wrong
}

/// The changes that a hub may have seen before it saw all of them: the first ones, or any.
fn parts(changes: &[Change], one_by_one: bool) -> Vec<Vec<Change>> {
    if one_by_one {
        return (1..changes.len())
            .map(|many| changes[..many].to_vec())
            .collect();
    }
    let all = 1..(1_usize << changes.len()) - 1;
    let part = |set: usize| {
        let within = changes
            .iter()
            .enumerate()
            .filter(|(place, _)| set >> place & 1 == 1);
        within.map(|(_, change)| change.clone()).collect()
    };
    all.map(part).collect()
}

/// `TOWLINE_SEEDS` says which walks are made: `7..9`, or one.
fn seeds() -> Range<u64> {
    let Ok(given) = env::var("TOWLINE_SEEDS") else {
        return SEEDS;
    };
    let number = |text: &str| text.parse().expect("a number");
    match given.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&given)..number(&given) + 1,
    }
}

/// Makes walks, on every processor one.
fn on_all_cores(walks: impl Iterator<Item = Walk> + Send) -> Tally {
    let (next, all) = (Mutex::new(walks), Mutex::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = next.lock().expect("held").next();
                    let Some(next) = next else { return };
                    let (tally, found, made) = alone(walk(&next));
                    found.iter().for_each(|it| eprintln!("{it}"));
                    if let Some(made) = made {
                        tell("was the walk", &made);
                        tell("in short was the walk", &shortened(made));
                    }
                    let mut all: MutexGuard<'_, Tally> = all.lock().expect("held");
                    all.add(&tally, found.len());
                }
            });
        }
    });
    all.into_inner().expect("held")
}

#[test]
fn what_was_foretold_wrong_once_is_what_happens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve/tests/foretold/walks");
    let files = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = files.map(|it| it.expect("a file").path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| -> Walk {
        let text = std::fs::read_to_string(file).expect("a text");
        let walk: Walk = serde_json::from_str(&text).expect("a walk");
        assert!(!walk.steps.is_empty(), "{}", file.display());
        walk
    };
    let walks: Vec<Walk> = files.iter().map(read).collect();
    let steps: usize = walks.iter().map(|it| it.steps.len()).sum();
    let all = on_all_cores(walks.into_iter());
    assert_eq!((all.wrong, all.held), (0, steps), "{all:?}");
    assert!(!files.is_empty());
}

/// Walks that seeds draw.
fn draw_walks(several: bool) -> Tally {
    let walk = |seed| Walk {
        seed,
        several,
        applied: true,
        steps: Vec::new(),
    };
    let all = on_all_cores(seeds().map(walk));
    eprintln!("{all:?}");
    assert_eq!(all.wrong, 0, "{all:?}");
    assert_eq!(all.held, STEPS * seeds().count(), "{all:?}");
    all
}

#[test]
fn what_is_planned_is_what_happens() {
    let all = draw_walks(false);
    assert_eq!(all.several, 0, "{all:?}");
    assert!(
        all.changing * 4 > all.held,
        "too few change anything: {all:?}"
    );
    assert!(all.refused > 0, "{all:?}");
    assert!(all.open * 8 < all.held, "too much is left open: {all:?}");
}

#[test]
fn several_changes_that_are_planned_together_are_what_happens() {
    let all = draw_walks(true);
    assert!(all.several * 10 > all.held * 7, "{all:?}");
    assert!(all.together * 3 > all.several, "{all:?}");
    assert!(
        all.changing * 4 > all.held,
        "too few change anything: {all:?}"
    );
    assert!(all.open * 3 < all.held, "too much is left open: {all:?}");
}
