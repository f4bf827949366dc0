//! What a run of the simulated fleets is asked for, and how what failed is told. `e2e/sim` asks by these variables:
//!
//! * `TOWLINE_SEEDS`: how many seeds, or which (`FROM..TO`); `TOWLINE_SEED`: one; `TOWLINE_PLAN`: a plan's file.
//! * `TOWLINE_CLUSTERS`, `TOWLINE_FAULTS`: how many members there are, and which kinds of fault (with commas).
//! * `TOWLINE_MORE`: there is what `draw::more` draws, too.
//! * `TOWLINE_FIRST`: no other seed is begun after one that failed. `TOWLINE_TELL`: seeds that hold are told, too.
//! * `TOWLINE_KEEP`: the folder where plans that fail are kept, made smaller as far as it goes.
//! * `TOWLINE_TWICE`: every seed is run a second time, and all that passes on lines has to be the same.
//! * `TOWLINE_TRACE`: the file for all that passes on lines in the run of a plan.
//! * `TOWLINE_SIGNS`: for how many hours signs of life are given over bad lines.
//! * `TOWLINE_POINTS`: `all` crash points, or the scenario whose they are; `TOWLINE_SHARE`: one of so many.

use super::draw::Kind;
use super::plan::{KINDS, MEMBERS, OTHERS, Plan};
use super::runs::{Keep, Outcome, run, smaller};
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most members: there is an address and a key for each.
const MOST_MEMBERS: u8 = 12;

pub(super) fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

pub(super) fn read<P: DeserializeOwned>(file: &Path) -> P {
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is no plan: {error}", file.display()))
}

fn number(text: &str) -> u64 {
    let number = text.parse();
    number.unwrap_or_else(|_| panic!("\"{text}\" is no number"))
}

/// Those of a run: the default, so many, or `FROM..TO`.
pub(super) fn seeds(default: &[u64]) -> Vec<u64> {
    let Some(wanted) = given("TOWLINE_SEEDS") else {
        return default.to_vec();
    };
    match wanted.split_once("..") {
        Some((from, to)) => (number(from)..number(to)).collect(),
        None => (1..=number(&wanted)).collect(),
    }
}

pub(super) fn seed() -> Option<u64> {
    given("TOWLINE_SEED").map(|it| number(&it))
}

/// Of so many crash points one is taken.
pub(super) fn share() -> usize {
    let share = given("TOWLINE_SHARE").map_or(1, |it| number(&it));
    usize::try_from(share).unwrap_or(usize::MAX).max(1)
}

/// Of which kind plans are.
pub(super) fn kind() -> Kind {
    let members = given("TOWLINE_CLUSTERS").map_or(u64::from(MEMBERS), |it| number(&it));
    let members = u8::try_from(members)
        .ok()
        .filter(|it| (1..=MOST_MEMBERS).contains(it));
    let faults: Option<Vec<String>> = given("TOWLINE_FAULTS").map(|list| {
        let all: Vec<&str> = KINDS.into_iter().chain(OTHERS).collect();
        let each = list.split(',').map(|it| {
            let name = it.trim();
            assert!(
                all.contains(&name),
                "no fault is called \"{name}\"; there are {}",
                all.join(", ")
            );
            name.to_owned()
        });
        each.collect()
    });
    let usual = ["hub", "agent"];
    let is_more = |it: &String| {
        it == "deny" || (OTHERS.contains(&it.as_str()) && !usual.contains(&it.as_str()))
    };
    let wants_more = |list: &Vec<String>| list.iter().any(is_more);
    let more = given("TOWLINE_MORE").is_some() || faults.as_ref().is_some_and(wants_more);
    Kind {
        members: members.unwrap_or_else(|| panic!("there can be 1 to {MOST_MEMBERS} clusters")),
        faults,
        more,
    }
}

/// Everything about a plan that fails: what did not hold, when, and what became of the objects that it names.
/// `less` leaves out of the plan whatever is not needed for that.
pub(super) fn told(plan: &Plan, less: bool) -> String {
    let plan = match less {
        true => smaller(plan),
        false => plan.clone(),
    };
    let Outcome {
        problems,
        ended,
        history,
        ..
    } = run(&plan, Keep::History);
    let mut text = format!("seed {}:\n", plan.seed);
    // Writing to a String cannot fail.
    for problem in &problems {
        let _ = writeln!(text, "  {problem}");
    }
    let step = plan
        .step_at(ended)
        .map(|it| serde_json::to_string(it).expect("JSON"));
    let step = step.unwrap_or_else(|| "the beginning".to_owned());
    let _ = writeln!(
        text,
        "{:.3} s after the beginning; the last step was {step}",
        ended as f64 / 1000.0
    );
    if !history.is_empty() {
        let _ = writeln!(
            text,
            "the last events of these objects:\n  {}",
            history.join("\n  ")
        );
    }
    let name = match plan.crash() {
        Some(crash) => format!("crash-{}", crash.text()),
        None => format!("seed-{}", plan.seed),
    };
    text.push_str(&kept(&name, plan.steps.len(), &plan.text()));
    text
}

/// Writes a plan where plans that fail are kept, and says where; the plan itself if none are.
pub(super) fn kept(name: &str, steps: usize, plan: &str) -> String {
    let Some(folder) = given("TOWLINE_KEEP") else {
        return format!("by this plan of {steps} steps:\n{plan}\n");
    };
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).expect("made");
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, plan).expect("written");
    format!("plan of {steps} steps: {}\n", file.display())
}

/// Runs each of these plans, and says of each that does not hold what does not, with all about it (`told`) where it is
/// the only one, or is to be made smaller; fails if there is one. `again` is what runs a single seed.
pub(super) fn hold<P: Sync>(
    plans: &[P],
    number: impl Fn(&P) -> u64 + Sync,
    fails: impl Fn(&P) -> Option<String> + Sync,
    told: impl Fn(&P, bool) -> String + Sync,
    again: &str,
) {
    let [first, tell, shrink] =
        ["TOWLINE_FIRST", "TOWLINE_TELL", "TOWLINE_SHRINK"].map(|it| given(it).is_some());
    let less = shrink || seed().is_some();
    let failed = Mutex::new(Vec::new());
    on_all_cores(plans, |plan| {
        if first && !failed.lock().expect("held").is_empty() {
            return;
        }
        let seed = number(plan);
        match fails(plan) {
            // Whoever waits for hundreds of others need not.
            Some(problem) => {
                eprintln!("seed {seed}: {problem}");
                failed.lock().expect("held").push(seed);
                if less || plans.len() == 1 {
                    eprintln!("{}", told(plan, less));
                }
            }
            None if tell => eprintln!("seed {seed} holds"),
            None => {}
        }
    });
    let mut failed = failed.into_inner().expect("held");
    failed.sort_unstable();
    assert!(
        failed.is_empty(),
        "{} of {} seeds: {failed:?} (the smallest plan that fails: {again} NUMBER)",
        failed.len(),
        plans.len()
    );
}

/// The files of plans that failed once, in a folder beside the tests.
pub(super) fn failed_once(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/serve/tests/fleet")
        .join(folder);
    let files = std::fs::read_dir(&folder).expect("a folder");
    let mut files: Vec<_> = files.map(|it| it.expect("read").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no plan in {}", folder.display());
    files
}

/// Does something with each of many, as many at once as there are cores.
pub(super) fn on_all_cores<T: Sync>(all: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = match given("TOWLINE_JOBS") {
        Some(jobs) => usize::try_from(number(&jobs)).unwrap_or(1).max(1),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(one);
                }
            });
        }
    });
}
