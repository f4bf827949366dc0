//! Tunnels into members, while everything goes wrong: lines are cut at any byte, carry nothing and are slow, processes
//! die and are started anew, certificates are renewed, registrations replaced, and people lose the rights by which they
//! ask. What ships runs on connections of bytes (`wires::bytes`), from a user's request to the member's answer.
//!
//! `draw` makes a `plan` of a seed, and `runs` plays it on a `stage`. Users ask (`asks`), and `judge` says what has to hold
//! of each request by the `rights` that they had, after every step: none outlives its rights, what is cut short never
//! looks whole, nobody is refused what is theirs, and no heartbeat waits. At the end every member is reached, and nothing
//! is left of what was asked: no request, connection or task. `cuts` cuts a tunnel at every point of what passes on it,
//! and `ends` has the certificate end by which one was dialled.

mod asks;
mod cuts;
mod draw;
mod ends;
mod judge;
mod plan;
mod rights;
mod runs;
mod stage;

use super::asked::{failed_once, given, hold, kept, read, seed, seeds};
use crate::serve::tests::rig::assert_same;
use plan::{KINDS, Plan};
use runs::{Outcome, run, smaller};
use std::fmt::Write as _;

/// Seeds of a run that says nothing else.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
/// Runs that making a plan smaller may take.
const SMALLER_RUNS: usize = 100;

/// The plans of this run.
fn plans() -> Vec<Plan> {
    if let Some(file) = given("TOWLINE_PLAN") {
        return vec![read(file.as_ref())];
    }
    let faults: Option<Vec<String>> = given("TOWLINE_FAULTS").map(|list| {
        let named = |it: &str| {
            let all = KINDS.join(", ");
            assert!(
                KINDS.contains(&it),
                "no fault of tunnels is called \"{it}\"; there are {all}"
            );
            it.to_owned()
        };
        list.split(',').map(|it| named(it.trim())).collect()
    });
    let all = match seed() {
        Some(seed) => vec![seed],
        None => seeds(&SEEDS),
    };
    let plan = |it: &u64| draw::plan(*it, faults.as_deref());
    all.iter().map(plan).collect()
}

/// What did not hold first, and a plan of that, smaller if that is wanted.
fn told(plan: &Plan, less: bool) -> String {
    let plan = match less {
        true => smaller(plan, SMALLER_RUNS),
        false => plan.clone(),
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    for problem in run(&plan, false).problems {
        let _ = writeln!(text, "  {problem}");
    }
    let name = format!("tunnels-{}", plan.seed);
    text.push_str(&kept(&name, plan.steps.len(), &plan.text()));
    text
}

/// What did not hold first; none when all did.
fn fails(plan: &Plan) -> Option<String> {
    let twice = given("TOWLINE_TWICE").is_some();
    let Outcome {
        problems,
        trace,
        counted,
    } = run(plan, twice);
    if given("TOWLINE_COUNT").is_some() {
        eprintln!("seed {}: {counted:?}", plan.seed);
    }
    let differs = || "twice: two runs of it are not the same".to_owned();
    let differs = (twice && trace != run(plan, true).trace).then(differs);
    problems.into_iter().next().or(differs)
}

#[test]
fn nothing_outlives_its_rights_and_nothing_is_left() {
    let plans = plans();
    if let Some(trace) = given("TOWLINE_TRACE") {
        std::fs::write(trace, run(&plans[0], true).trace).expect("written");
    }
    hold(
        &plans,
        |it| it.seed,
        fails,
        told,
        "e2e/sim --tunnels --seed",
    );
}

/// Plans that failed once.
#[test]
fn what_failed_once_holds() {
    for file in failed_once("tunnels/plans") {
        let problems = run(&read(&file), false).problems;
        assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
    }
}

/// A seed says everything that is asked and answered.
#[test]
fn a_seed_says_every_request_of_a_run() {
    let plan = draw::plan(3, None);
    let [one, again] = [(); 2].map(|()| run(&plan, true).trace);
    assert!(one.lines().count() > 200, "{one}");
    assert_same(&one, &again);
}

/// What is written as a file is the same plan.
#[test]
fn plans_are_data() {
    for seed in 1..100 {
        let plan = draw::plan(seed, None);
        assert_eq!(plan, draw::plan(seed, None));
        let read: Plan = serde_json::from_str(&plan.text()).expect("a plan");
        assert_eq!(read, plan);
    }
}
