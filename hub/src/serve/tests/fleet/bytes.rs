//! A fleet whose hosts talk over simulated TCP: every byte goes through the TLS and the HTTP that ship. Lines are cut,
//! held up or slow, and hosts die, so that connections are left half open, stall and break; the kernel's keepalive
//! is not there, so that it is deadlines and pings alone that find out.
//!
//! Where whole fleets exchange messages (`runs`) a seed costs a tenth of it and decides much more.

mod hosts;
mod operator;
mod plan;
mod sockets;

use super::asked::{hold, seed, seeds};
use super::host::{HUB, authority};
use super::runs::panicked;
use hosts::Ground;
use operator::Operator;
use plan::{Plan, Trouble, What};
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

/// One run of a plan; what did not hold.
fn run(plan: &Plan) -> Result<(), String> {
    common::tls::install_provider();
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let ground = Ground::new(dir.path(), plan);
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
        while let Some((_, begins, trouble)) = turns.next_if(|(at, ..)| *at <= sim.elapsed()) {
            happen(&mut sim, begins, trouble);
        }
        if sim.step().map_err(|error| error.to_string())? {
            return Ok(());
        }
    }
}

/// Has something go wrong, or right again.
fn happen(sim: &mut Sim<'_>, begins: bool, trouble: Trouble) {
    let (hub, member) = (HUB.ip(), hosts::ip(trouble.member));
    match (trouble.what, begins) {
        (What::Cut, true) => sim.partition(hub, member),
        (What::CutUp, true) => sim.partition_oneway(member, hub),
        (What::CutDown, true) => sim.partition_oneway(hub, member),
        (What::Cut | What::CutUp | What::CutDown, false) => sim.repair(hub, member),
        (What::Held, true) => sim.hold(hub, member),
        (What::Held, false) => sim.release(hub, member),
        (What::Slow, true) => sim.set_link_latency(hub, member, SLOW),
        (What::Slow, false) => sim.set_link_latency(hub, member, SLOWEST),
        (What::HubIsDead, true) => sim.crash(hub),
        (What::HubIsDead, false) => sim.bounce(hub),
        (What::MachineIsDead, true) => sim.crash(member),
        (What::MachineIsDead, false) => sim.bounce(member),
    }
}

/// What does not hold of a plan.
fn fails(plan: &Plan) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(plan))) {
        Ok(ran) => ran.err(),
        Err(panic) => Some(panicked(panic.as_ref())),
    }
}

#[test]
fn connections_break_in_every_way() {
    let asked = seed().map_or_else(|| seeds(&SEEDS), |one| vec![one]);
    let plans: Vec<Plan> = asked.into_iter().map(Plan::draw).collect();
    let again = "e2e/sim --world bytes --seed";
    hold(
        &plans,
        |it| it.seed,
        fails,
        |plan, _| plan.to_string(),
        again,
    );
}
