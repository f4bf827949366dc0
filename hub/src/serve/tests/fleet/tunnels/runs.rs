//! One run of a plan: what users ask and what goes wrong, judged after every step, and the silence at its end.

use super::super::super::super::*;
use super::super::super::rig::alone;
use super::super::fewer::fewer;
use super::super::image::image;
use super::asks::{MAPS, Record, made};
use super::judge;
use super::plan::{Ask, MEMBERS, Plan, Step, USERS, Wanted, What};
use super::stage::Stage;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::task::LocalSet;

/// How often it is looked after everything.
const TICK: Duration = Duration::from_millis(250);
/// A tunnel stands so long after a fleet begins.
const BEGUN_WITHIN: Duration = Duration::from_secs(60);
/// All that runs at rest runs so long after that.
const RESTED: Duration = Duration::from_secs(20);
/// A tunnel stands again so long after nothing goes wrong any more: an agent waits a minute at most before it dials again, and gives a
/// tunnel up that carries nothing.
const BACK_WITHIN: Duration = Duration::from_secs(120);
/// What users have asked has ended by then.
const ASKED_WITHIN: Duration = Duration::from_secs(100);
/// Nothing is left of it so long after: connections that lie unused among it.
const GONE_WITHIN: Duration = Duration::from_secs(130);
/// Tasks that come and go at rest.
const TASKS: usize = 12;

/// What came of a run.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What did not hold; empty when all did.
    pub(super) problems: Vec<String>,
    pub(super) trace: String,
    /// How many requests were answered by which status, and how they ended.
    pub(super) counted: Vec<(String, usize)>,
}

impl Outcome {
    /// Which invariant did not hold first.
    pub(super) fn kind(&self) -> Option<&str> {
        let first = self.problems.first();
        first.map(|it| it.split(':').next().unwrap_or(it))
    }
}

/// Runs a plan in a world of its own.
pub(super) fn run(plan: &Plan, traced: bool) -> Outcome {
    in_its_world(async || {
        let mut stage = Stage::begin(plan.seed, traced).await;
        let mut problems = begun(&mut stage).await;
        let rest = stage.world.age() + RESTED;
        problems.extend(reach(&mut stage, rest).await);
        let tasks = tasks();
        if problems.is_empty() {
            problems = play(plan, &mut stage).await;
        }
        if problems.is_empty() {
            problems = settle(&mut stage, tasks).await;
        }
        Outcome {
            problems,
            trace: stage.world.told(),
            counted: counted(&stage),
        }
    })
}

/// Runs something, of which a panic is a problem.
pub(super) fn in_its_world(live: impl AsyncFnOnce() -> Outcome) -> Outcome {
    // Made before anything else, in a world of its own.
    image(MEMBERS);
    let live = || alone(LocalSet::new().run_until(live()));
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        Outcome {
            problems: vec![format!("panic: {}", text.unwrap_or_default())],
            ..Outcome::default()
        }
    })
}

/// How many tasks there are in this world.
pub(super) fn tasks() -> usize {
    let metrics = tokio::runtime::Handle::current().metrics();
    metrics.num_alive_tasks()
}

fn counted(stage: &Stage) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    stage.records.look(|all| {
        for it in all {
            let status = it.answered.map_or(0, |(_, status)| status);
            let how = it.ended.as_ref().map(|(_, how)| format!("{how:?}"));
            let how = how.unwrap_or_default();
            let how = how.split('(').next().unwrap_or_default();
            let kind = format!("{:?}", it.ask.what);
            let kind = kind.split('(').next().unwrap_or_default();
            *counts.entry(format!("{kind} {status} {how}")).or_default() += 1;
        }
    });
    counts.into_iter().collect()
}

/// Waits until every member can be reached.
pub(super) async fn begun(stage: &mut Stage) -> Vec<String> {
    let until = Instant::now() + BEGUN_WITHIN;
    while Instant::now() < until {
        let mut open = stage.open().into_iter();
        if open.all(|number| stage.tunnel(number).standing() == 1) {
            return Vec::new();
        }
        sleep(TICK).await;
        let problems = looked_after(stage).await;
        if !problems.is_empty() {
            return problems;
        }
    }
    vec![format!(
        "liveness: no tunnel within {BEGUN_WITHIN:?} of the beginning"
    )]
}

/// Looks after the processes; what does not hold now.
pub(super) async fn looked_after(stage: &mut Stage) -> Vec<String> {
    stage.look_after().await;
    let (now, asked) = (stage.world.age(), stage.asked());
    let (heard, rights) = (stage.world.heard.clone(), stage.rights.clone());
    let mut problems: Vec<String> = stage.records.look(|all| {
        let open = all.iter().filter(|it| it.ended.is_none());
        let ended = asked.iter().map(|number| &all[*number]);
        let judge = |it: &Record| judge::problem(it, &heard, &rights.borrow(), now);
        let overheard = ended.clone().filter_map(|it| judge::overheard(it, &heard));
        open.chain(ended)
            .filter_map(judge)
            .chain(overheard)
            .collect()
    });
    for number in asked {
        problems.extend(kept(stage, number).await);
        stage.records.forget(number);
    }
    let unknown = stage.told.unknown();
    let open = stage.open().into_iter();
    let open = open.filter(|it| !stage.may_be_silent(*it));
    let unknown = open
        .map(|it| format!("m{it}"))
        .filter(|name| unknown.contains_key(name));
    problems.extend(unknown.map(|it| format!("heartbeat: cluster {it} is Unknown")));
    problems
}

/// What a member has of an object that a user made: all of it, or nothing; and all where it was said that it was made.
async fn kept(stage: &Stage, number: usize) -> Option<String> {
    let (wanted, member, answered) = stage.records.look(|all| {
        let it = &all[number];
        (it.ask.what, it.ask.member, it.answered)
    });
    if wanted != Wanted::Put {
        return None;
    }
    let path = format!("{MAPS}/made-{number}");
    let has = stage.member_has(member, &path).await?;
    let sent: Value = serde_json::from_str(&made(number)).expect("JSON");
    let was_made = answered.is_some_and(|(_, status)| status == 201);
    match (has["data"] == sent["data"], has.is_null()) {
        (true, _) => None,
        (false, true) => {
            was_made.then(|| format!("whole: made-{number} was made and is not there"))
        }
        (false, false) => Some(format!(
            "whole: member {member} has a part of made-{number}"
        )),
    }
}

/// Waits until a time; what does not hold meanwhile.
pub(super) async fn reach(stage: &mut Stage, at: Duration) -> Vec<String> {
    loop {
        let problems = looked_after(stage).await;
        let left = at.saturating_sub(stage.world.age());
        if !problems.is_empty() || left.is_zero() {
            return problems;
        }
        sleep(left.min(TICK)).await;
    }
}

async fn play(plan: &Plan, stage: &mut Stage) -> Vec<String> {
    let began = stage.world.age();
    // What people do waits for whom they do it to.
    let mut waiting = VecDeque::new();
    for step in &plan.steps {
        let problems = reach(stage, began + Duration::from_millis(step.at)).await;
        if !problems.is_empty() {
            return problems;
        }
        waiting.push_back(&step.what);
        carry_out(stage, &mut waiting).await;
    }
    let calm = began + Duration::from_millis(plan.calm());
    loop {
        let problems = reach(stage, calm).await;
        carry_out(stage, &mut waiting).await;
        if waiting.is_empty() || !problems.is_empty() {
            return problems;
        }
        sleep(TICK).await;
    }
}

/// Does what can be done now; the rest waits on.
async fn carry_out(stage: &mut Stage, waiting: &mut VecDeque<&What>) {
    for _ in 0..waiting.len() {
        let Some(what) = waiting.pop_front() else {
            return;
        };
        if !act(stage, what).await {
            waiting.push_back(what);
        }
    }
}

/// Does something; false if it cannot be done now.
async fn act(stage: &mut Stage, what: &What) -> bool {
    let millis = Duration::from_millis;
    let deafen = |stage: &Stage, member: u8, lasts: u64| {
        let at = stage.world.age();
        stage.rights.borrow_mut().deafen(member, at, millis(lasts));
    };
    if !matches!(what, What::Ask(_)) {
        stage.world.note(&format!("{what:?}"));
    }
    match what {
        What::Ask(ask) => stage.begin_to_ask(ask),
        What::Cut(member) => stage.tunnel(*member).cut(),
        What::CutAfter(member, bytes) => {
            let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
            stage.tunnel(*member).cut_after(bytes);
        }
        What::Freeze(member, lasts) => {
            deafen(stage, *member, *lasts);
            stage.tunnel(*member).freeze(millis(*lasts));
        }
        What::Silence(member) => {
            deafen(stage, *member, 0);
            stage.tunnel(*member).silence();
        }
        What::Slow(member, by, lasts) => {
            deafen(stage, *member, *lasts);
            stage.tunnel(*member).slow(millis(*by), millis(*lasts));
        }
        What::Refuse(member, lasts) => stage.tunnel(*member).refuse(millis(*lasts)),
        What::CutMember(member) => stage.relay(*member).cut(),
        What::Hub(in_order, lasts) => stage.end_hub(*in_order, *lasts).await,
        What::Agent(member, in_order, lasts) => stage.end_agent(*member, *in_order, *lasts).await,
        What::Member(member, in_order, lasts) => {
            // Meanwhile its agent cannot ask who is let in.
            deafen(stage, *member, *lasts);
            stage.end_member(*member, *in_order, *lasts).await;
        }
        What::Renew => stage.renew(),
        What::Replace(member, lasts) => stage.replace(*member, *lasts, None),
        What::Leave(member) => return stage.unregister(*member).await,
        What::Right(user, member, has) => return stage.set_right(user, *member, *has).await,
        What::LetIn(user, member, has) => return stage.let_in(user, *member, *has).await,
    }
    true
}

/// Nothing goes wrong any more: what users asked ends, every member can be reached, and then nothing of it is left.
async fn settle(stage: &mut Stage, tasks_at_rest: usize) -> Vec<String> {
    for number in stage.open() {
        stage.tunnel(number).heal();
        let granted = USERS.map(|user| {
            [
                What::Right(user.to_owned(), number, true),
                What::LetIn(user.to_owned(), number, true),
            ]
        });
        let granted: Vec<What> = granted.into_iter().flatten().collect();
        let mut waiting: VecDeque<&What> = granted.iter().collect();
        while !waiting.is_empty() {
            carry_out(stage, &mut waiting).await;
            let problems = looked_after(stage).await;
            if !problems.is_empty() {
                return problems;
            }
            sleep(TICK).await;
        }
    }
    for number in stage.open() {
        let problems = is_reached(stage, number).await;
        if !problems.is_empty() {
            return problems;
        }
    }
    let until = stage.world.age() + ASKED_WITHIN;
    while stage.asking() > 0 {
        let problems = looked_after(stage).await;
        if !problems.is_empty() {
            return problems;
        }
        if stage.world.age() > until {
            return vec![format!("leak: {} requests do not end", stage.asking())];
        }
        sleep(TICK).await;
    }
    let until = stage.world.age() + GONE_WITHIN;
    loop {
        let problems = looked_after(stage).await;
        if !problems.is_empty() {
            return problems;
        }
        let left = left(stage, tasks_at_rest).await;
        if left.is_empty() || stage.world.age() > until {
            return left;
        }
        sleep(4 * TICK).await;
    }
}

/// A member is reached again within its time.
async fn is_reached(stage: &mut Stage, number: u8) -> Vec<String> {
    let until = stage.world.age() + BACK_WITHIN;
    let ask = Ask {
        user: USERS[0].to_owned(),
        member: number,
        what: Wanted::Get,
        h2: false,
        patience: 10_000,
    };
    loop {
        let first = stage.records.look(<[Record]>::len);
        stage.begin_to_ask(&ask);
        loop {
            sleep(TICK).await;
            let problems = looked_after(stage).await;
            if !problems.is_empty() {
                return problems;
            }
            if stage.records.look(|all| all[first].ended.is_some()) {
                break;
            }
        }
        let answered = stage.records.look(|all| all[first].answered);
        if answered.is_some_and(|(_, status)| status == 200) {
            return Vec::new();
        }
        if stage.world.age() > until {
            return vec![format!(
                "liveness: m{number} cannot be reached {BACK_WITHIN:?} after nothing goes wrong any more: {answered:?}"
            )];
        }
    }
}

/// What is left of what users asked, where nothing should be.
async fn left(stage: &Stage, tasks_at_rest: usize) -> Vec<String> {
    let mut left = Vec::new();
    let open = stage.open().len();
    let Some(metrics) = stage.metrics().await else {
        return vec!["leak: the hub is away".to_owned()];
    };
    for (name, count) in &metrics {
        let is_stream = name.starts_with("towline_hub_tunnel_streams{");
        if is_stream && *count > 0.0 {
            left.push(format!("leak: {name} is {count} at rest"));
        }
    }
    let tunnels = metrics.get("towline_hub_tunnels").copied().unwrap_or(-1.0);
    if tunnels != open as f64 {
        left.push(format!(
            "leak: the hub has {tunnels} tunnels of {open} members"
        ));
    }
    for (way, count) in stage.world.standing() {
        let is_tunnel = way.contains(" rh2");
        if !is_tunnel || count > 1 {
            left.push(format!("leak: {count} connections {way} at rest"));
        }
    }
    let (tasks, most) = (tasks(), tasks_at_rest + TASKS);
    if tasks > most {
        left.push(format!(
            "tasks: there are {tasks} at rest, where {tasks_at_rest} were"
        ));
    }
    left
}

/// The plan with fewer steps, of which the same invariant does not hold.
pub(super) fn smaller(plan: &Plan, most: usize) -> Plan {
    let part = |steps: &[Step]| Plan {
        steps: steps.to_vec(),
        ..plan.clone()
    };
    let kind = |plan: &Plan| run(plan, false).kind().map(str::to_owned);
    let first = kind(plan);
    part(&fewer(&plan.steps, most, |steps| {
        kind(&part(steps)) == first
    }))
}
