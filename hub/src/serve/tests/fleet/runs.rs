//! One run of a plan, from the first step to the silence at its end; and the smallest part of a plan that still fails.

use super::super::rig::alone;
use super::crash::Counted;
use super::fewer::fewer;
use super::image::image;
use super::plan::{Act, Plan, Step, What};
use super::stage::Stage;
use super::{acts, rest};
use std::any::Any;
use std::collections::VecDeque;
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
/// Requests under way on one line at rest, and tasks at rest of the hub and of each member with its agent.
const UNDER_WAY: usize = 8;
const TASKS: usize = 200;
/// Runs that making a plan smaller may take.
const SMALLER_RUNS: usize = 120;

/// What is kept of a run beside what did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    /// Everything that passed on lines.
    Trace,
    /// What became of the objects that are named by what did not hold.
    History,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What did not hold; empty when all did.
    pub(super) problems: Vec<String>,
    /// When the run ended, in milliseconds: at the first thing that did not hold.
    pub(super) ended: u64,
    pub(super) trace: String,
    pub(super) history: Vec<String>,
    /// Of the process that is killed, if one is.
    pub(super) counted: Counted,
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
pub(super) fn run(plan: &Plan, keep: Keep) -> Outcome {
    // Made before anything else, in a world of its own.
    image(plan.members);
    let live = || alone(LocalSet::new().run_until(live(plan, keep)));
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| Outcome {
        problems: vec![format!("panic: {}", panicked(panic.as_ref()))],
        ..Outcome::default()
    })
}

/// What a panic says.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
    text.unwrap_or_default()
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
            What::HubDies(lasts) | What::PowerFails(lasts) => {
                all.push((step.at + lasts, Now::HubReturns));
            }
            What::AgentDies(member, lasts) => {
                all.push((step.at + lasts, Now::AgentReturns(member)));
            }
            _ => {}
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

async fn live(plan: &Plan, keep: Keep) -> Outcome {
    let mut stage = Stage::begin(plan, keep).await;
    let mut problems = play(plan, &mut stage).await;
    if problems.is_empty() {
        problems = settle(&mut stage).await;
    }
    let history = stage.ledger.look(|books| books.history.take());
    let history = history.map(|it| it.of(&problems.join("\n")));
    Outcome {
        ended: u64::try_from(stage.world.age().as_millis()).unwrap_or(u64::MAX),
        trace: stage.world.told(),
        history: history.unwrap_or_default(),
        counted: stage.world.crashes.counted(),
        problems,
    }
}

/// How many tasks there are in this world.
fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// A moment, or less if somebody is to be killed.
async fn pause(stage: &Stage, moment: Duration) {
    tokio::select! {
        biased;
        () = stage.world.crashes.is_due() => {}
        () = sleep(moment) => {}
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
        pause(stage, left.min(TICK)).await;
    }
}

async fn play(plan: &Plan, stage: &mut Stage) -> Vec<String> {
    // What people do waits for the hub.
    let mut waiting = VecDeque::new();
    for (at, now) in timeline(plan) {
        let problems = reach(stage, at).await;
        if !problems.is_empty() {
            return problems;
        }
        match now {
            Now::Step(What::Act(act)) => waiting.push_back(act),
            Now::Step(What::HubDies(_)) => stage.kill_hub().await,
            Now::Step(What::AgentDies(member, _)) => stage.kill_agent(*member).await,
            Now::Step(What::PowerFails(_)) => stage.lose_power().await,
            Now::Step(What::Disk(trouble, lasts)) => stage.trouble_disk(*trouble, *lasts),
            Now::Step(What::Twin(member, lasts)) => stage.start_twin(*member, *lasts),
            Now::Step(What::Clock(host, by)) => stage.set_clock(host, *by),
            Now::Step(What::Crash(crash)) => stage.arm(crash),
            Now::Step(What::Fault(_)) => {}
            Now::HubReturns => stage.start_hub().await,
            Now::AgentReturns(member) => stage.start_agent(member),
        }
        carry_out(stage, &mut waiting).await;
    }
    loop {
        let problems = reach(stage, plan.calm()).await;
        carry_out(stage, &mut waiting).await;
        if waiting.is_empty() || !problems.is_empty() {
            return problems;
        }
        pause(stage, TICK).await;
    }
}

/// Does what can be done now; the rest waits on.
async fn carry_out(stage: &mut Stage, waiting: &mut VecDeque<&Act>) {
    while let Some(act) = waiting.front() {
        if stage.link().is_none() || !acts::carry_out(stage, act).await {
            return;
        }
        waiting.pop_front();
    }
}

/// Nothing goes wrong any more: within its time all has converged, and nobody writes.
async fn settle(stage: &mut Stage) -> Vec<String> {
    let calm = stage.world.age();
    loop {
        pause(stage, 2 * TICK).await;
        stage.look_after().await;
        // Whoever needs a new token waits for a person.
        let began = calm.max(stage.handed_over);
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
            (true, None, false) => return bounds(stage),
            _ if !late => {}
            (true, None, true) => return vec![format!("silence: {what} is still written at rest")],
            (true, Some(who), _) => return vec![who],
            (false, ..) => return open,
        }
    }
}

/// Nothing is left of what is over: neither requests nor tasks.
fn bounds(stage: &Stage) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some((way, count)) = stage.world.busiest().filter(|it| it.1 > UNDER_WAY) {
        problems.push(format!(
            "bounds: {count} requests are under way on {way} at rest"
        ));
    }
    let (tasks, most) = (tasks(), TASKS * (1 + stage.members.len()));
    if tasks > most {
        problems.push(format!(
            "bounds: there are {tasks} tasks at rest, and {most} would be many"
        ));
    }
    problems
}

/// The plan with fewer steps, of which the same invariant does not hold.
pub(super) fn smaller(plan: &Plan) -> Plan {
    let part = |steps: &[Step]| Plan {
        steps: steps.to_vec(),
        ..plan.clone()
    };
    let kind = |plan: &Plan| run(plan, Keep::Nothing).kind().map(str::to_owned);
    let first = kind(plan);
    part(&fewer(&plan.steps, SMALLER_RUNS, |steps| {
        kind(&part(steps)) == first
    }))
}
