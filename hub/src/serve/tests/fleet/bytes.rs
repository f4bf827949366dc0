//! A fleet whose hosts talk over simulated TCP: every byte goes through the TLS and the HTTP that ship. Lines are cut,
//! held up or slow, and hosts die, so that connections are left half open, stall and break; the kernel's keepalive
//! is not there, so that it is deadlines and pings alone that find out. Two runs of a seed do the same, but for the tick
//! of the network in which a connection ends that breaks.
//!
//! Where whole fleets exchange messages (`runs`) a seed costs a tenth of it and decides much more.

mod hosts;
mod operator;
mod plan;
mod sockets;

use super::super::rig::Trace;
use super::asked::{given, hold, kept, read, seed, seeds};
use super::fewer::fewer;
use super::host::{HUB, authority};
use super::runs::panicked;
use hosts::Ground;
use operator::Operator;
use plan::{KINDS, Kind, MOST_MEMBERS, Plan, Step, Trouble};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use turmoil::{Builder, Sim};

/// How far the network moves at once. Messages take their time besides.
const TICK: Duration = Duration::from_millis(5);
const FASTEST: Duration = Duration::from_millis(1);
const SLOWEST: Duration = Duration::from_millis(30);
/// A line that is slow takes so long for a message, at most.
const SLOW: Duration = Duration::from_secs(3);
/// Longer than the longest run.
const LONGEST: Duration = Duration::from_secs(900);
/// Writes on their way on one connection; more wait.
const UNDER_WAY: usize = 1024;
/// Seeds of a run that says nothing else.
const SEEDS: [u64; 2] = [1, 2];
/// Runs that making a plan smaller may take.
const SMALLER_RUNS: usize = 60;

/// What came of a run.
#[derive(Debug, Default)]
struct Outcome {
    /// What did not hold, by the invariant's name.
    problem: Option<String>,
    /// What became of connections, what the operator was answered, and when.
    trace: String,
}

impl Outcome {
    /// Which invariant did not hold.
    fn kind(&self) -> Option<String> {
        let name = |it: &String| it.split(':').next().map(str::to_owned);
        self.problem.as_ref().and_then(name)
    }
}

/// Notes what happens now.
fn note(trace: &Trace, what: &str) {
    let at = turmoil::sim_elapsed().map_or(0, |it| it.as_millis());
    trace.note(&format!("{at:>6} {what}\n"));
}

/// Runs a plan.
fn run(plan: &Plan) -> Outcome {
    let dir = tempfile::tempdir().expect("a folder");
    common::tls::install_provider();
    let ground = Ground::new(dir.path(), plan);
    let trace = ground.trace.clone();
    let problem = match catch_unwind(AssertUnwindSafe(|| play(ground, plan))) {
        Ok(played) => played.err(),
        Err(panic) => Some(format!("panic: {}", panicked(panic.as_ref()))),
    };
    Outcome {
        problem,
        trace: trace.whole(),
    }
}

/// What did not hold.
fn play(ground: Ground, plan: &Plan) -> Result<(), String> {
    let mut sim = Builder::new()
        .rng_seed(plan.seed)
        .tick_duration(TICK)
        .min_message_latency(FASTEST)
        .max_message_latency(SLOWEST)
        .simulation_duration(LONGEST)
        .tcp_capacity(UNDER_WAY)
        .build();
    let hub = ground.clone();
    sim.host(HUB.ip(), move || hosts::hub(hub.clone()));
    for number in 1..=plan.members {
        let machine = ground.clone();
        sim.host(hosts::ip(number), move || {
            hosts::machine(machine.clone(), number)
        });
    }
    let operator = Operator::new(ground, plan.clone());
    sim.client("operator", async move {
        operator.work().await.map_err(Into::into)
    });
    let mut turns = plan.turns().into_iter().peekable();
    loop {
        while let Some((_, begins, trouble, member)) = turns.next_if(|it| it.0 <= sim.elapsed()) {
            happen(&mut sim, begins, trouble, member);
        }
        if sim.step().map_err(|error| error.to_string())? {
            return Ok(());
        }
    }
}

/// Has something go wrong, or right again.
fn happen(sim: &mut Sim<'_>, begins: bool, trouble: Trouble, member: u8) {
    let (hub, member) = (HUB.ip(), hosts::ip(member));
    match (trouble, begins) {
        (Trouble::Cut, true) => sim.partition(hub, member),
        (Trouble::CutUp, true) => sim.partition_oneway(member, hub),
        (Trouble::CutDown, true) => sim.partition_oneway(hub, member),
        (Trouble::Cut | Trouble::CutUp | Trouble::CutDown, false) => sim.repair(hub, member),
        (Trouble::Held, true) => sim.hold(hub, member),
        (Trouble::Held, false) => sim.release(hub, member),
        (Trouble::Slow, true) => sim.set_link_latency(hub, member, SLOW),
        (Trouble::Slow, false) => sim.set_link_latency(hub, member, SLOWEST),
        (Trouble::HubIsDead, true) => sim.crash(hub),
        (Trouble::HubIsDead, false) => sim.bounce(hub),
        (Trouble::MachineIsDead, true) => sim.crash(member),
        (Trouble::MachineIsDead, false) => sim.bounce(member),
    }
}

/// What is asked for by name.
fn kind() -> Kind {
    let members = given("TOWLINE_CLUSTERS").map(|it| {
        let number = it.parse().ok().filter(|it| (1..=MOST_MEMBERS).contains(it));
        number.unwrap_or_else(|| panic!("there can be 1 to {MOST_MEMBERS} clusters, not {it}"))
    });
    let named = |it: &str| {
        let found = KINDS.iter().find(|(name, _)| *name == it);
        let all = KINDS.map(|(name, _)| name).join(", ");
        let found = found.unwrap_or_else(|| {
            panic!("no fault of connections is called \"{it}\"; there are {all}")
        });
        found.1
    };
    let troubles = given("TOWLINE_FAULTS");
    Kind {
        members,
        troubles: troubles.map(|list| list.split(',').map(|it| named(it.trim())).collect()),
    }
}

/// The plans of this run.
fn plans() -> Vec<Plan> {
    if let Some(file) = given("TOWLINE_PLAN") {
        return vec![read(file.as_ref())];
    }
    let kind = kind();
    let all = seed().map_or_else(|| seeds(&SEEDS), |one| vec![one]);
    all.into_iter().map(|it| Plan::draw(it, &kind)).collect()
}

/// The plan with fewer steps, of which the same invariant does not hold.
fn smaller(plan: &Plan) -> Plan {
    let part = |steps: &[Step]| Plan {
        steps: steps.to_vec(),
        ..plan.clone()
    };
    // What does not fail again cannot be made smaller.
    let Some(first) = run(plan).kind() else {
        return plan.clone();
    };
    part(&fewer(&plan.steps, SMALLER_RUNS, |steps| {
        run(&part(steps)).kind().as_ref() == Some(&first)
    }))
}

/// What did not hold, and a plan of that, smaller if that is wanted.
fn told(plan: &Plan, less: bool) -> String {
    let plan = match less {
        true => smaller(plan),
        false => plan.clone(),
    };
    let problem = run(&plan).problem;
    let problem = problem.unwrap_or_else(|| "it did not fail when it was run again".to_owned());
    let name = format!("bytes-{}", plan.seed);
    format!(
        "  {problem}\n{}",
        kept(&name, plan.steps.len(), &plan.text())
    )
}

#[test]
fn connections_break_in_every_way() {
    let plans = plans();
    if let Some(trace) = given("TOWLINE_TRACE") {
        std::fs::write(trace, run(&plans[0]).trace).expect("written");
    }
    let again = "e2e/sim --world bytes --seed";
    hold(&plans, |it| it.seed, |it| run(it).problem, told, again);
}
