//! Propagation while everything goes wrong: many seeds, each a plan of its own, and plans that failed once.
//!
//! `TOWLINE_SEEDS` says how many are run, `TOWLINE_SEED` runs one alone, `TOWLINE_PLAN` one from a file.

use super::draw;
use super::plan::Plan;
use super::runs::{run, smaller};
use crate::serve::tests::rig::assert_same;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds of a run that says nothing else.
const SEEDS: [u64; 3] = [1, 3, 5];
/// Seeds that fail are not all told.
const TOLD: usize = 3;

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

fn read(file: &Path) -> Plan {
    let text = std::fs::read_to_string(file).expect("a file");
    serde_json::from_str(&text).expect("a plan")
}

/// What to say of a plan that fails.
fn told(plan: &Plan) -> String {
    let (plan, problems) = smaller(plan);
    let problems = problems.join("\n  ");
    format!(
        "seed {seed}:\n  {problems}\nby this plan (run it by TOWLINE_PLAN=FILE, the whole by TOWLINE_SEED={seed}, with \
         cargo test -p hub --lib fleet::seeds; keep it in hub/src/serve/tests/fleet/plans):\n{text}",
        seed = plan.seed,
        text = plan.text()
    )
}

#[test]
fn everything_converges_whatever_goes_wrong() {
    if let Some(file) = given("TOWLINE_PLAN") {
        let problems = run(&read(file.as_ref()), false).problems;
        assert!(problems.is_empty(), "{problems:#?}");
        return;
    }
    let number = |name| given(name).map(|it| it.parse::<u64>().expect("a number"));
    let seeds: Vec<u64> = match (number("TOWLINE_SEED"), number("TOWLINE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (1..=count).collect(),
        (None, None) => SEEDS.to_vec(),
    };
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&seed) = seeds.get(at) else { return };
                    let plan = draw::plan(seed);
                    let outcome = run(&plan, false);
                    if !outcome.problems.is_empty() {
                        let first = outcome.problems[0].clone();
                        failed.lock().expect("held").push((seed, first, plan));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("held");
    failed.sort_by_key(|(seed, ..)| *seed);
    let all: Vec<String> = failed
        .iter()
        .map(|(seed, first, _)| format!("seed {seed}: {first}"))
        .collect();
    let smallest = failed.iter().take(TOLD).map(|(_, _, plan)| told(plan));
    let smallest: Vec<String> = smallest.collect();
    assert!(
        failed.is_empty(),
        "{}\n\n{}",
        all.join("\n"),
        smallest.join("\n\n")
    );
}

/// Plans that failed once, by the fleet or by what was asked of it.
#[test]
fn what_failed_once_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/serve/tests/fleet/plans");
    let files = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = files.map(|it| it.expect("read").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no plan in {folder}");
    for file in files {
        let problems = run(&read(&file), false).problems;
        assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
    }
}

/// A seed says everything that passes on any line.
#[test]
fn a_seed_says_every_request_of_a_run() {
    for seed in [3, 4] {
        let plan = draw::plan(seed);
        let [one, again] = [(); 2].map(|()| run(&plan, true).trace);
        assert!(one.lines().count() > 500, "{one}");
        assert_same(&one, &again);
    }
}

/// What is written as a file is the same plan, and leaving a step out shifts no other.
#[test]
fn plans_are_data() {
    for seed in 1..200 {
        let plan = draw::plan(seed);
        assert_eq!(plan, draw::plan(seed));
        let read: Plan = serde_json::from_str(&plan.text()).expect("a plan");
        assert_eq!(read, plan);
    }
}
