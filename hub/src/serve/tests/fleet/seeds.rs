//! Propagation while everything goes wrong: many seeds, each a plan of its own, and plans that failed once.
//!
//! `TOWLINE_SEEDS` says how many are run or which (`FROM..TO`); `TOWLINE_FIRST` ends at the first that fails.
//! `TOWLINE_SEED` runs one alone and makes its plan smaller if it fails. `TOWLINE_PLAN` runs one from a file, and
//! writes all that passed on lines to `TOWLINE_TRACE`.

use super::draw;
use super::plan::Plan;
use super::runs::{run, smaller};
use crate::serve::tests::rig::assert_same;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds of a run that says nothing else.
const SEEDS: [u64; 9] = [1, 2, 3, 5, 6, 7, 8, 9, 10];

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

fn read(file: &Path) -> Plan {
    let text = std::fs::read_to_string(file).expect("a file");
    serde_json::from_str(&text).expect("a plan")
}

/// Those of a run: the default, so many, or `FROM..TO`.
fn seeds() -> Vec<u64> {
    let Some(wanted) = given("TOWLINE_SEEDS") else {
        return SEEDS.to_vec();
    };
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match wanted.split_once("..") {
        Some((from, to)) => (number(from)..number(to)).collect(),
        None => (1..=number(&wanted)).collect(),
    }
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

/// Does something with each of many, as many at once as there are cores.
fn on_all_cores<T: Sync>(all: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
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

#[test]
fn everything_converges_whatever_goes_wrong() {
    if let Some(file) = given("TOWLINE_PLAN") {
        let trace = given("TOWLINE_TRACE");
        let outcome = run(&read(file.as_ref()), trace.is_some());
        if let Some(trace) = trace {
            std::fs::write(trace, &outcome.trace).expect("written");
        }
        let problems = outcome.problems;
        assert!(problems.is_empty(), "{problems:#?}");
        return;
    }
    if let Some(seed) = given("TOWLINE_SEED") {
        let plan = draw::plan(seed.parse().expect("a number"));
        let problems = run(&plan, false).problems;
        assert!(problems.is_empty(), "{}", told(&plan));
        return;
    }
    let seeds = seeds();
    let failed = Mutex::new(Vec::new());
    let first = given("TOWLINE_FIRST").is_some();
    on_all_cores(&seeds, |seed| {
        if first && !failed.lock().expect("held").is_empty() {
            return;
        }
        if let Some(first) = run(&draw::plan(*seed), false).problems.first() {
            // Whoever waits for hundreds of others need not.
            eprintln!("seed {seed}: {first}");
            failed.lock().expect("held").push(*seed);
        }
    });
    let mut failed = failed.into_inner().expect("held");
    failed.sort_unstable();
    assert!(
        failed.is_empty(),
        "{} of {} seeds: {failed:?} (the smallest plan that fails: TOWLINE_SEED=NUMBER, with cargo test -p hub --lib \
         fleet::seeds)",
        failed.len(),
        seeds.len()
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
