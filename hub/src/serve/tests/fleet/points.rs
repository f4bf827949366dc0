//! Every crash point of what a fleet does: once it is done and the victim's requests and commits are counted, then it
//! is done again and the victim killed at each of them, before its effect and after it. All has to converge as ever.

use super::asked::{given, on_all_cores, share, told};
use super::clocks::ALL;
use super::crash::{Counted, Crash, Point};
use super::plan::{Act, Affinity, Divides, Hand, MEMBERS, Plan, Policy, Selects, Step, What};
use super::runs::{Keep, run};
use std::collections::BTreeMap;
use std::sync::Mutex;

const SPACE: &str = "blue";
/// When the victim's requests and commits begin to be counted, and all before it is done.
const FROM: u64 = 14_000;
/// For how long.
const WITHIN: u64 = 15_000;
/// A run that asks for nothing else takes one of so many points of these.
const SHARE: usize = 50;
const USUAL: [&str; 4] = ["apply", "delete", "prune", "unregister"];

/// Something that a fleet does.
struct Scenario {
    name: &'static str,
    /// What people do before, and when.
    before: Vec<(u64, Act)>,
    /// What happens once it counts, after so many milliseconds.
    then: Vec<(u64, What)>,
    within: u64,
}

fn policy(clusters: &[u8]) -> Act {
    Act::Policy(Policy {
        namespace: Some(SPACE.to_owned()),
        name: "one".to_owned(),
        priority: 0,
        selects: Selects::All,
        maps: false,
        deps: true,
        affinity: Affinity::Names(clusters.to_vec()),
        divides: Divides::Static(clusters.iter().map(|it| (*it, 1)).collect()),
        spread: None,
        tolerates: false,
        endures: None,
        directly: false,
    })
}

fn deploy() -> Act {
    Act::Deploy(SPACE.to_owned(), "web".to_owned(), 4, 1, "red".to_owned())
}

fn scenarios() -> Vec<Scenario> {
    let web = || (SPACE.to_owned(), "web".to_owned());
    let placed = |clusters| vec![(1_000, policy(clusters)), (1_500, deploy())];
    let of = |name, before, then: Vec<(u64, Act)>| Scenario {
        name,
        before,
        then: then
            .into_iter()
            .map(|(at, act)| (at, What::Act(act)))
            .collect(),
        within: WITHIN,
    };
    let hand = |name: &str, maps: &[u8], content| {
        Act::Hand(Hand {
            member: 1,
            name: name.to_owned(),
            maps: maps.to_vec(),
            content,
            clears_first: false,
        })
    };
    let later = |hours: i64| vec![(0, What::Clock(ALL.to_owned(), hours * 3_600_000))];
    let settings = |content| Act::Configure(SPACE.to_owned(), content);
    vec![
        of(
            "apply",
            vec![(1_000, policy(&[1, 2]))],
            vec![(0, deploy()), (1_000, settings(1))],
        ),
        of(
            "change",
            placed(&[1, 2]),
            vec![
                (0, Act::Roll(web().0, web().1, 2)),
                (1_000, Act::Scale(web().0, web().1, 6)),
            ],
        ),
        of(
            "delete",
            placed(&[1, 2]),
            vec![(0, Act::Undeploy(web().0, web().1))],
        ),
        of("schedule", placed(&[1, 2]), vec![(0, policy(&[2, 3]))]),
        of(
            "evict",
            placed(&[1, 2, 3]),
            vec![(0, Act::Evict(1, vec!["broken".to_owned()]))],
        ),
        of(
            "unregister",
            placed(&[1, 2, 3]),
            vec![(0, Act::Leave(1, None))],
        ),
        of(
            "prune",
            vec![(1_000, hand("hand-1", &[1, 2, 3], 1))],
            vec![
                (0, hand("hand-1", &[1, 3], 2)),
                (4_000, hand("hand-2", &[1, 4], 2)),
                (8_000, Act::Unhand(1)),
            ],
        ),
        Scenario {
            name: "start",
            before: placed(&[1, 2, 3]),
            then: vec![(0, What::HubDies(100))],
            within: WITHIN,
        },
        // A certificate is looked at once a minute.
        Scenario {
            name: "rotate",
            before: placed(&[1, 2, 3]),
            then: later(9),
            within: 5 * WITHIN,
        },
        Scenario {
            name: "registration",
            before: [
                placed(&[1, 2, 3]),
                vec![(2_500, Act::Leave(1, Some(FROM - 2_500)))],
            ]
            .concat(),
            then: Vec::new(),
            within: 2 * WITHIN,
        },
    ]
}

impl Scenario {
    fn plan(&self, crash: Crash) -> Plan {
        let then = self
            .then
            .iter()
            .map(|(after, what)| (FROM + after, what.clone()));
        let before = self
            .before
            .iter()
            .map(|(at, act)| (*at, What::Act(act.clone())));
        // The counting begins before what is counted.
        let all = before.chain([(FROM, What::Crash(crash))]).chain(then);
        let steps = (1..)
            .zip(all)
            .map(|(number, (at, what))| Step { number, at, what });
        Plan {
            seed: 1,
            members: MEMBERS,
            steps: steps.collect(),
        }
    }

    /// What a victim asks and commits, undisturbed.
    fn counted(&self, victim: &str) -> Counted {
        let nowhere = self.crash(victim, Point::Request, usize::MAX, false);
        let outcome = run(&self.plan(nowhere), Keep::Nothing);
        let problems = outcome.problems;
        assert!(
            problems.is_empty(),
            "{} without a crash: {problems:#?}",
            self.name
        );
        outcome.counted
    }

    fn crash(&self, victim: &str, point: Point, number: usize, after: bool) -> Crash {
        Crash {
            of: victim.to_owned(),
            point,
            number,
            after,
            within: self.within,
        }
    }

    /// All points of a victim. That a request which reads was answered is no other point than before the next.
    fn points(&self, victim: &str, counted: &Counted) -> Vec<Crash> {
        let mut all = Vec::new();
        for (number, changes) in counted.requests.iter().enumerate() {
            all.push(self.crash(victim, Point::Request, number, false));
            if *changes {
                all.push(self.crash(victim, Point::Request, number, true));
            }
        }
        for number in 0..counted.commits {
            for after in [false, true] {
                all.push(self.crash(victim, Point::Commit, number, after));
            }
        }
        all
    }
}

#[test]
fn all_converges_whoever_is_killed_at_whatever_request_or_commit() {
    let mut all = scenarios();
    let share = match given("TOWLINE_POINTS").as_deref() {
        None => {
            all.retain(|it| USUAL.contains(&it.name));
            SHARE
        }
        Some("all") => share(),
        Some(name) => {
            all.retain(|it| it.name == name);
            share()
        }
    };
    assert!(!all.is_empty(), "nothing is called so");
    let victims: Vec<(&Scenario, &str)> = all
        .iter()
        .flat_map(|it| [(it, "hub"), (it, "m1")])
        .collect();
    let points = Mutex::new(BTreeMap::new());
    on_all_cores(&victims, |(scenario, victim)| {
        let counted = scenario.counted(victim);
        let (requests, commits) = (counted.requests.len(), counted.commits);
        let mine = scenario.points(victim, &counted);
        eprintln!(
            "{}: {victim} has {requests} requests and {commits} commits, {} points",
            scenario.name,
            mine.len()
        );
        // Nobody who does nothing would be killed.
        assert!(!mine.is_empty(), "{}: {victim} does nothing", scenario.name);
        points
            .lock()
            .expect("held")
            .insert((scenario.name, *victim), mine);
    });
    let points = points.into_inner().expect("held");
    let of = |name: &str| all.iter().find(|it| it.name == name).expect("one of them");
    let points = points
        .into_iter()
        .flat_map(|((name, _), mine)| mine.into_iter().map(move |it| (name, it)));
    let points: Vec<_> = points.step_by(share).collect();
    let failed = Mutex::new(Vec::new());
    on_all_cores(&points, |(name, crash)| {
        let plan = of(name).plan(crash.clone());
        let outcome = run(&plan, Keep::Nothing);
        let text = format!("{name}, {}", crash.text());
        if let Some(problem) = outcome.problems.first() {
            eprintln!("{text}: {problem}\n{}", told(&plan, false));
            failed.lock().expect("held").push(text);
        } else if given("TOWLINE_TELL").is_some() {
            eprintln!("{text} holds");
        }
    });
    let mut failed = failed.into_inner().expect("held");
    failed.sort();
    assert!(
        failed.is_empty(),
        "{} of {} crash points: {failed:#?}",
        failed.len(),
        points.len()
    );
    eprintln!("{} crash points hold", points.len());
}
