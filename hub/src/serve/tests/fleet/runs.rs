//! One run of a plan, from the first step to the silence at its end; and the smallest part of a plan that still fails.

use super::super::rig::alone;
use super::image::image;
use super::plan::{Plan, What};
use super::stage::Stage;
use super::{acts, rest};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::sleep;

/// How often who has ended or left is looked after.
const TICK: Duration = Duration::from_millis(500);
/// Everything has converged so long after the last fault, and nobody has written since a while.
const CONVERGED_WITHIN: Duration = Duration::from_secs(200);
/// That while.
const SILENCE: Duration = Duration::from_secs(30);
/// Runs that making a plan smaller may take.
const SMALLER_RUNS: usize = 120;

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What did not hold; empty when all did.
    pub(super) problems: Vec<String>,
    /// Everything that passed on lines, if it was asked for.
    pub(super) trace: String,
}

impl Outcome {
    /// Which invariant did not hold first.
    fn kind(&self) -> Option<&str> {
        self.problems
            .first()
            .map(|it| it.split(':').next().unwrap_or(it))
    }
}

/// Runs a plan in a world of its own.
pub(super) fn run(plan: &Plan, traced: bool) -> Outcome {
    // Made before anything else, in a world of its own.
    image();
    let live = || alone(LocalSet::new().run_until(live(plan, traced)));
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        Outcome {
            problems: vec![format!("panic: {}", text.unwrap_or_default())],
            ..Outcome::default()
        }
    })
}

/// What happens at one time.
enum Now<'a> {
    Step(&'a What),
    HubReturns,
    AgentReturns(u8),
}

fn timeline(plan: &Plan) -> Vec<(u64, Now<'_>)> {
    let mut all = Vec::new();
    for step in &plan.steps {
        all.push((step.at, Now::Step(&step.what)));
        match step.what {
            What::HubDies(lasts) => all.push((step.at + lasts, Now::HubReturns)),
            What::AgentDies(member, lasts) => {
                all.push((step.at + lasts, Now::AgentReturns(member)));
            }
            _ => {}
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

async fn live(plan: &Plan, traced: bool) -> Outcome {
    let mut stage = Stage::begin(plan, traced).await;
    let mut problems = play(plan, &mut stage).await;
    if problems.is_empty() {
        problems = settle(&mut stage).await;
    }
    Outcome {
        problems,
        trace: stage.world.told(),
    }
}

fn problems(stage: &Stage) -> Vec<String> {
    stage.ledger.look(|books| books.problems.clone())
}

/// Waits until a time of the plan; what does not hold meanwhile.
async fn reach(stage: &mut Stage, at: u64) -> Vec<String> {
    let at = Duration::from_millis(at);
    loop {
        stage.look_after().await;
        let problems = problems(stage);
        let left = at.saturating_sub(stage.world.age());
        if !problems.is_empty() || left.is_zero() {
            return problems;
        }
        sleep(left.min(TICK)).await;
    }
}

async fn play(plan: &Plan, stage: &mut Stage) -> Vec<String> {
    // What people do waits for the hub.
    let mut waiting = Vec::new();
    for (at, now) in timeline(plan) {
        let problems = reach(stage, at).await;
        if !problems.is_empty() {
            return problems;
        }
        match now {
            Now::Step(What::Act(act)) => waiting.push(act),
            Now::Step(What::HubDies(_)) => stage.kill_hub().await,
            Now::Step(What::AgentDies(member, _)) => stage.kill_agent(*member).await,
            Now::Step(What::Fault(_)) => {}
            Now::HubReturns => stage.start_hub().await,
            Now::AgentReturns(member) => stage.start_agent(member),
        }
        if stage.link().is_some() {
            for act in waiting.drain(..) {
                acts::carry_out(stage, act).await;
            }
        }
    }
    reach(stage, plan.calm()).await
}

/// Nothing goes wrong any more: within its time all has converged, and nobody writes.
async fn settle(stage: &mut Stage) -> Vec<String> {
    let began = stage.world.age();
    loop {
        sleep(2 * TICK).await;
        stage.look_after().await;
        let problems = problems(stage);
        if !problems.is_empty() {
            return problems;
        }
        let now = stage.world.age();
        let (silent, what) = stage.ledger.look(|books| {
            let (at, what) = &books.written;
            (now.saturating_sub(*at.max(&began)), what.clone())
        });
        let late = now - began > CONVERGED_WITHIN;
        // Looking at everything takes its time, and is worth nothing while somebody writes.
        if silent < SILENCE && !late {
            continue;
        }
        let open = stage.ledger.look(|books| rest::open(books));
        match (open.is_empty(), stage.unsettled(), silent < SILENCE) {
            (true, None, false) => return Vec::new(),
            _ if !late => {}
            (true, None, true) => return vec![format!("silence: {what} is still written at rest")],
            (true, Some(who), _) => return vec![format!("settled: {who}")],
            (false, ..) => return open,
        }
    }
}

/// Leaves steps out for as long as the same invariant does not hold.
pub(super) fn smaller(plan: &Plan) -> (Plan, Vec<String>) {
    let first = run(plan, false);
    let kind = first.kind().map(str::to_owned);
    let (mut plan, mut problems) = (plan.clone(), first.problems);
    let mut runs = 0;
    let mut part = plan.steps.len().div_ceil(2);
    while part > 0 && runs < SMALLER_RUNS {
        let mut from = 0;
        while from < plan.steps.len() && runs < SMALLER_RUNS {
            let mut less = plan.clone();
            let to = (from + part).min(less.steps.len());
            less.steps.drain(from..to);
            runs += 1;
            let outcome = run(&less, false);
            if outcome.kind().map(str::to_owned) == kind {
                (plan, problems) = (less, outcome.problems);
            } else {
                from += part;
            }
        }
        part /= 2;
    }
    (plan, problems)
}
