//! Tables of single cases, and properties over random histories.

mod signs;

use super::*;
use proptest::prelude::*;

const GRACE: Grace = Grace {
    running: Duration::from_secs(40),
    startup: Duration::from_secs(60),
    signs: None,
};

fn s(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

fn posted(fingerprint: u64) -> Seen {
    let ready = Ready {
        unknown: false,
        by_hub: false,
        fingerprint,
    };
    Seen {
        pull: true,
        ready: Some(ready),
    }
}

fn marked() -> Seen {
    let ready = Ready {
        unknown: true,
        by_hub: true,
        fingerprint: u64::MAX,
    };
    Seen {
        pull: true,
        ready: Some(ready),
    }
}

fn new() -> Seen {
    Seen {
        pull: true,
        ready: None,
    }
}

/// One thing that happens to cluster "c".
enum Step {
    Cluster(u64, Seen),
    Lease(u64, &'static str),
    Gap(u64, u64),
    Away(u64, u64),
    Relist(u64, Seen),
}
use Step::{Away, Cluster, Gap, Lease, Relist};

/// Plays steps on a fleet that began at 0, then finds when "c" is marked if nothing else happens.
fn verdict_after(first: Seen, steps: &[Step]) -> Option<(u64, &'static str)> {
    let mut fleet = Fleet::new(GRACE);
    fleet.cluster_seen(s(0), "c", first.clone());
    fleet.lease_seen(s(0), "c", Some("r0"));
    fleet.begin(s(0));
    let (mut seen, mut renewed, mut last) = (first, "r0", 0);
    for step in steps {
        match step {
            Cluster(at, now) => {
                fleet.cluster_seen(s(*at), "c", now.clone());
                (seen, last) = (now.clone(), *at);
            }
            Lease(at, value) => {
                fleet.lease_seen(s(*at), "c", Some(value));
                (renewed, last) = (value, *at);
            }
            Gap(from, to) => {
                fleet.gap(s(*from), s(*to));
                last = *to;
            }
            Away(from, to) => {
                fleet.away(s(*from));
                fleet.back(s(*to));
                last = *to;
            }
            Relist(at, now) => {
                fleet.cluster_seen(s(*at), "c", now.clone());
                (seen, last) = (now.clone(), *at);
            }
        }
    }
    let live = Live {
        cluster: Read::Present(seen),
        renewed: Read::Present(Some(renewed.to_owned())),
    };
    // A deadline that was set for another state is judged, and moved.
    while let Some(at) = fleet.next_deadline(s(last)) {
        assert!(
            fleet.due(at - Duration::from_micros(1), 9).is_empty(),
            "due too early"
        );
        assert_eq!(fleet.due(at, 9).len(), 1);
        if let Verdict::Mark(reason) = fleet.judge(at, "c", &live) {
            return Some((at.as_secs(), reason));
        }
    }
    None
}

#[test]
fn silence_is_judged_at_its_deadline() {
    let up = || posted(1);
    type Case = (&'static str, Seen, Vec<Step>, Option<(u64, &'static str)>);
    let table: Vec<Case> = vec![
        ("never posted", new(), vec![], Some((60, NEVER))),
        ("posted once", up(), vec![], Some((40, STOPPED))),
        (
            "first post",
            new(),
            vec![Cluster(30, up())],
            Some((70, STOPPED)),
        ),
        ("renewed", up(), vec![Lease(25, "r1")], Some((65, STOPPED))),
        (
            "the same renewTime again",
            up(),
            vec![Lease(25, "r0")],
            Some((40, STOPPED)),
        ),
        (
            "an older renewTime is a sign too",
            up(),
            vec![Lease(25, "0001")],
            Some((65, STOPPED)),
        ),
        (
            "Ready changed",
            up(),
            vec![Cluster(10, posted(2))],
            Some((50, STOPPED)),
        ),
        (
            "the same Ready again",
            up(),
            vec![Cluster(10, up())],
            Some((40, STOPPED)),
        ),
        (
            "a list is no sign",
            up(),
            vec![Relist(30, up())],
            Some((40, STOPPED)),
        ),
        (
            "a list that shows a change",
            up(),
            vec![Relist(30, posted(2))],
            Some((70, STOPPED)),
        ),
        (
            "the hub's own mark",
            up(),
            vec![Cluster(10, marked())],
            None,
        ),
        (
            "marked, renewed only",
            up(),
            vec![Cluster(10, marked()), Lease(20, "r1")],
            None,
        ),
        (
            "marked, posted",
            up(),
            vec![Cluster(10, marked()), Cluster(20, up())],
            Some((60, STOPPED)),
        ),
        ("a watch gap", up(), vec![Gap(10, 25)], Some((55, STOPPED))),
        (
            "the hub away",
            up(),
            vec![Away(10, 310)],
            Some((340, STOPPED)),
        ),
        (
            "away with a gap inside",
            up(),
            vec![Away(10, 310), Gap(5, 311)],
            Some((346, STOPPED)),
        ),
        (
            "a push cluster",
            Seen {
                pull: false,
                ready: None,
            },
            vec![],
            None,
        ),
        (
            "status taken away",
            up(),
            vec![Cluster(5, marked()), Cluster(9, new())],
            Some((60, NEVER)),
        ),
    ];
    for (name, first, steps, want) in table {
        assert_eq!(verdict_after(first, &steps), want, "{name}");
    }
}

#[test]
fn a_live_read_saves_a_cluster_and_gives_it_a_new_deadline() {
    let mut fleet = Fleet::new(GRACE);
    fleet.cluster_seen(s(0), "c", posted(1));
    fleet.begin(s(0));
    assert_eq!(fleet.due(s(40), 9).len(), 1);
    let live = Live {
        cluster: Read::Present(posted(1)),
        renewed: Read::Present(Some("9999-12-31T23:59:59.999999Z".to_owned())),
    };
    assert_eq!(fleet.judge(s(41), "c", &live), Verdict::Leave);
    assert_eq!(fleet.next_deadline(s(41)), Some(s(81)));
}

#[test]
fn objects_that_cannot_be_read_are_judged_on_what_is_known() {
    let mut fleet = Fleet::new(GRACE);
    fleet.cluster_unreadable(s(0), "odd");
    fleet.cluster_seen(s(0), "c", posted(1));
    fleet.begin(s(0));
    assert_eq!(fleet.due(s(40), 9), [Arc::from("c")]);
    let broken = Live {
        cluster: Read::Broken,
        renewed: Read::Broken,
    };
    assert_eq!(fleet.judge(s(40), "c", &broken), Verdict::Mark(STOPPED));
    let gone = Live {
        cluster: Read::Missing,
        renewed: Read::Missing,
    };
    assert_eq!(fleet.due(s(60), 9), [Arc::from("odd")]);
    assert_eq!(fleet.judge(s(60), "odd", &gone), Verdict::Leave);
    assert_eq!(fleet.len(), 1);
}

#[test]
fn nobody_is_due_while_the_hub_is_away() {
    let mut fleet = Fleet::new(GRACE);
    fleet.cluster_seen(s(0), "c", posted(1));
    fleet.begin(s(0));
    fleet.away(s(39));
    assert!(fleet.due(s(1000), 9).is_empty());
    assert_eq!(fleet.next_deadline(s(1000)), None);
    fleet.back(s(1000));
    assert!(fleet.due(s(1000), 9).is_empty());
    assert_eq!(fleet.next_deadline(s(1000)), Some(s(1001)));
}

/// A step of a random history: what happens, and how many seconds pass before it.
#[derive(Debug, Clone)]
enum Random {
    Renew(usize, u8),
    Post(usize, u8),
    Gap(u64),
    Away(u64),
    Idle,
    Relist,
}

fn history() -> impl Strategy<Value = Vec<(u64, Random)>> {
    let step = prop_oneof![
        4 => (0_usize..3, any::<u8>()).prop_map(|(who, to)| Random::Renew(who, to % 4)),
        2 => (0_usize..3, any::<u8>()).prop_map(|(who, to)| Random::Post(who, to % 4)),
        1 => (1_u64..30).prop_map(Random::Gap),
        1 => (1_u64..400).prop_map(Random::Away),
        2 => Just(Random::Idle),
        1 => Just(Random::Relist),
    ];
    proptest::collection::vec((0_u64..35, step), 1..60)
}

proptest! {
    /// Against a model that counts seconds of contact one by one: nobody is marked before grace after
    /// the last sign of life, everybody is at the deadline itself, and nobody twice.
    #[test]
    fn marks_come_exactly_at_the_deadline(history in history()) {
        const NAMES: [&str; 3] = ["a", "b", "c"];
        let mut fleet = Fleet::new(GRACE);
        let mut model = [Model::default(), Model::default(), Model::default()];
        for name in NAMES {
            fleet.cluster_seen(s(0), name, new());
        }
        fleet.begin(s(0));
        let mut now = 0;
        for (wait, step) in history {
            for _ in 0..wait {
                now += 1;
                for m in &mut model {
                    m.silent_for += 1;
                }
                tick(&mut fleet, &mut model, &NAMES, now)?;
            }
            match step {
                Random::Renew(who, to) => {
                    fleet.lease_seen(s(now), NAMES[who], Some(&format!("r{to}")));
                    if model[who].renewed.replace(to) != Some(to) {
                        model[who].silent_for = 0;
                    }
                }
                Random::Post(who, to) => {
                    fleet.cluster_seen(s(now), NAMES[who], posted(u64::from(to)));
                    if model[who].ready.replace(posted(u64::from(to))) != Some(posted(u64::from(to))) {
                        model[who].silent_for = 0;
                    }
                }
                Random::Gap(length) => {
                    // Seconds that pass unseen: nothing is heard, nothing counts.
                    fleet.gap(s(now), s(now + length));
                    now += length;
                }
                Random::Away(length) => {
                    fleet.away(s(now));
                    prop_assert!(fleet.due(s(now + length), 9).is_empty());
                    now += length;
                    fleet.back(s(now));
                }
                Random::Idle => {}
                Random::Relist => {
                    for (name, m) in NAMES.iter().zip(&model) {
                        fleet.cluster_seen(s(now), name, m.seen());
                    }
                }
            }
            tick(&mut fleet, &mut model, &NAMES, now)?;
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Model {
    silent_for: u64,
    renewed: Option<u8>,
    ready: Option<Seen>,
}

impl Model {
    fn seen(&self) -> Seen {
        self.ready.clone().unwrap_or_else(new)
    }

    fn expects_mark(&self) -> bool {
        let grace = if self.ready.is_some() { 40 } else { 60 };
        let unknown = self.seen() == marked();
        self.silent_for >= grace && !unknown
    }
}

fn tick(
    fleet: &mut Fleet,
    model: &mut [Model; 3],
    names: &[&str; 3],
    now: u64,
) -> Result<(), TestCaseError> {
    let due = fleet.due(s(now), 9);
    let mut marks = Vec::new();
    for name in due {
        let who = names.iter().position(|n| **n == *name).expect("known");
        let live = Live {
            cluster: Read::Present(model[who].seen()),
            renewed: Read::Present(model[who].renewed.map(|to| format!("r{to}"))),
        };
        if let Verdict::Mark(_) = fleet.judge(s(now), &name, &live) {
            fleet.marked(s(now), &name, marked());
            marks.push(who);
        }
    }
    for (who, m) in model.iter_mut().enumerate() {
        prop_assert_eq!(
            marks.contains(&who),
            m.expects_mark(),
            "cluster {} at {}",
            who,
            now
        );
        if m.expects_mark() {
            m.ready = Some(marked());
        }
    }
    Ok(())
}
