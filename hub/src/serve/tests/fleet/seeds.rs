//! Propagation while everything goes wrong: many seeds, each a plan of its own, and plans that failed once.
//! `asked` has the variables that say which.

use super::asked::{failed_once, given, hold, kind, read, seed, seeds, told};
use super::draw::{self, Kind};
use super::plan::Plan;
use super::runs::{Keep, run};
use crate::serve::tests::rig::assert_same;

/// Seeds of a run that says nothing else.
const SEEDS: [u64; 9] = [1, 2, 3, 5, 6, 7, 8, 9, 10];

/// What did not hold first; none when all did.
fn fails(plan: &Plan) -> Option<String> {
    if given("TOWLINE_TWICE").is_none() {
        return run(plan, Keep::Nothing).problems.into_iter().next();
    }
    let [one, again] = [(); 2].map(|()| run(plan, Keep::Trace));
    let differs = || "twice: two runs of it are not the same".to_owned();
    let differs = (one.trace != again.trace).then(differs);
    one.problems.into_iter().next().or(differs)
}

/// The plans of this run.
fn plans() -> Vec<Plan> {
    if let Some(file) = given("TOWLINE_PLAN") {
        return vec![read(file.as_ref())];
    }
    let kind = kind();
    let seeds = match seed() {
        Some(seed) => vec![seed],
        None => seeds(&SEEDS),
    };
    seeds.iter().map(|it| draw::plan(*it, &kind)).collect()
}

#[test]
fn everything_converges_whatever_goes_wrong() {
    let plans = plans();
    if let Some(trace) = given("TOWLINE_TRACE") {
        std::fs::write(trace, run(&plans[0], Keep::Trace).trace).expect("written");
    }
    hold(&plans, |it| it.seed, fails, told, "e2e/sim --seed");
}

/// Plans that failed once, by the fleet or by what was asked of it.
#[test]
fn what_failed_once_holds() {
    for file in failed_once("plans") {
        let problems = run(&read(&file), Keep::Nothing).problems;
        assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
    }
}

/// A seed says everything that passes on any line.
#[test]
fn a_seed_says_every_request_of_a_run() {
    for seed in [3, 4] {
        let plan = draw::plan(seed, &Kind::default());
        let [one, again] = [(); 2].map(|()| run(&plan, Keep::Trace).trace);
        assert!(one.lines().count() > 500, "{one}");
        assert_same(&one, &again);
    }
}

/// What is written as a file is the same plan, and leaving a step out shifts no other.
#[test]
fn plans_are_data() {
    for seed in 1..200 {
        let kind = Kind::default();
        let plan = draw::plan(seed, &kind);
        assert_eq!(plan, draw::plan(seed, &kind));
        let read: Plan = serde_json::from_str(&plan.text()).expect("a plan");
        assert_eq!(read, plan);
    }
}

/// Of the kinds of fault none but those that are wanted are there, and what people do stays the same.
#[test]
fn faults_are_chosen_by_name() {
    let kind = Kind {
        faults: Some(vec!["lose".to_owned(), "hub".to_owned()]),
        ..Kind::default()
    };
    let acts = |plan: &Plan| {
        let all = plan.steps.iter().filter(|it| it.what.kind().is_none());
        all.map(|it| (it.at, it.what.clone())).collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for seed in 1..20 {
        let (chosen, usual) = (draw::plan(seed, &kind), draw::plan(seed, &Kind::default()));
        seen.extend(chosen.steps.iter().filter_map(|it| it.what.kind()));
        assert_eq!(acts(&chosen), acts(&usual));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, ["hub", "lose"]);
}
