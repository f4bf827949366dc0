//! What happens in one run, as data: what goes wrong, and when a Work is changed.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most members: there are authorities and addresses for more, and a run takes its time with each.
pub(super) const MOST_MEMBERS: u8 = 8;
/// Nothing goes wrong before that: everybody has registered.
const FROM: u64 = 30;
/// Everything is right again from then on.
pub(super) const UNTIL: Duration = Duration::from_secs(150);
/// The longest that one thing is wrong, in seconds.
const LONGEST: u64 = 70;

/// Something that goes wrong between the hub and a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// What is sent is lost.
    Cut,
    /// The same of what the member sends alone.
    CutUp,
    /// The same of what the hub sends.
    CutDown,
    /// What is sent waits.
    Held,
    Slow,
    HubIsDead,
    MachineIsDead,
}

/// All of them, as they are chosen by name.
pub(super) const KINDS: [(&str, Trouble); 7] = [
    ("cut", Trouble::Cut),
    ("up", Trouble::CutUp),
    ("down", Trouble::CutDown),
    ("held", Trouble::Held),
    ("slow", Trouble::Slow),
    ("hub", Trouble::HubIsDead),
    ("machine", Trouble::MachineIsDead),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// The member's Work is changed.
    Change,
    /// That is wrong for so many seconds.
    Wrong(Trouble, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Seconds after the beginning.
    pub(super) at: u64,
    pub(super) member: u8,
    pub(super) what: What,
}

/// All of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) members: u8,
    /// In the order of time.
    pub(super) steps: Vec<Step>,
}

/// How plans are drawn.
#[derive(Debug, Clone, Default)]
pub(super) struct Kind {
    /// How many members there are, unless that is drawn, too.
    pub(super) members: Option<u8>,
    /// What goes wrong, unless anything does.
    pub(super) troubles: Option<Vec<Trouble>>,
}

impl Plan {
    /// The plan of a seed. What concerns one host follows one after the other.
    pub(super) fn draw(seed: u64, kind: &Kind) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        // Few most of the time.
        let most = match rng.random_ratio(1, 5) {
            true => MOST_MEMBERS,
            false => 3,
        };
        let drawn = rng.random_range(1..=most);
        let members = kind.members.unwrap_or(drawn);
        let mut steps = Vec::new();
        let mut hub_until = FROM;
        for member in 1..=members {
            let mut at = FROM + rng.random_range(0..20);
            loop {
                let (_, trouble) = KINDS[rng.random_range(0..KINDS.len())];
                if trouble == Trouble::HubIsDead {
                    at = at.max(hub_until);
                }
                let until = at + rng.random_range(1..=LONGEST);
                if until >= UNTIL.as_secs() {
                    break;
                }
                if trouble == Trouble::HubIsDead {
                    hub_until = until + 1;
                }
                let what = What::Wrong(trouble, until - at);
                steps.push(Step { at, member, what });
                at = until + rng.random_range(1..30);
            }
        }
        if let Some(wanted) = &kind.troubles {
            steps.retain(|it| it.trouble().is_none_or(|it| wanted.contains(&it)));
        }
        for _ in 0..rng.random_range(3..12) {
            steps.push(Step {
                at: rng.random_range(FROM..UNTIL.as_secs()),
                member: rng.random_range(1..=members),
                what: What::Change,
            });
        }
        steps.sort_by_key(|it| it.at);
        Self {
            seed,
            members,
            steps,
        }
    }

    /// What begins and what ends, in order.
    pub(super) fn turns(&self) -> Vec<(Duration, bool, Trouble, u8)> {
        let mut turns = Vec::new();
        for step in &self.steps {
            if let What::Wrong(trouble, lasts) = step.what {
                let at = Duration::from_secs(step.at);
                turns.push((at, true, trouble, step.member));
                turns.push((at + Duration::from_secs(lasts), false, trouble, step.member));
            }
        }
        turns.sort_by_key(|(at, begins, ..)| (*at, *begins));
        turns
    }

    /// Whose Work is changed, and when.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Duration, u8)> {
        let changes = self.steps.iter().filter(|it| it.what == What::Change);
        changes.map(|it| (Duration::from_secs(it.at), it.member))
    }

    /// Whether anything was wrong for a member lately.
    pub(super) fn is_troubled(&self, member: u8, at: Duration, lately: Duration) -> bool {
        self.steps.iter().any(|it| {
            let What::Wrong(trouble, lasts) = it.what else {
                return false;
            };
            let concerns = it.member == member || trouble == Trouble::HubIsDead;
            let (from, until) = (it.at, it.at + lasts);
            concerns && Duration::from_secs(from) <= at && at <= Duration::from_secs(until) + lately
        })
    }

    /// A line a step, as a file that is run again.
    pub(super) fn text(&self) -> String {
        let json = |step: &Step| serde_json::to_string(step).expect("JSON");
        let steps: Vec<String> = self.steps.iter().map(json).collect();
        format!(
            "{{\"seed\": {}, \"members\": {}, \"steps\": [\n{}\n]}}\n",
            self.seed,
            self.members,
            steps.join(",\n")
        )
    }
}

impl Step {
    fn trouble(&self) -> Option<Trouble> {
        match self.what {
            What::Change => None,
            What::Wrong(trouble, _) => Some(trouble),
        }
    }
}

/// What is written as a file is the same plan.
#[test]
fn plans_are_data() {
    for seed in 1..100 {
        let plan = Plan::draw(seed, &Kind::default());
        assert_eq!(plan, Plan::draw(seed, &Kind::default()));
        let read: Plan = serde_json::from_str(&plan.text()).expect("a plan");
        assert_eq!(read, plan);
    }
}

#[test]
fn troubles_and_members_are_chosen() {
    let kind = Kind {
        members: Some(5),
        troubles: Some(vec![Trouble::Held, Trouble::HubIsDead]),
    };
    let plans: Vec<Plan> = (1..50).map(|seed| Plan::draw(seed, &kind)).collect();
    assert!(plans.iter().all(|it| it.members == 5));
    let steps: Vec<Step> = plans.into_iter().flat_map(|it| it.steps).collect();
    let of = |wanted: Trouble| steps.iter().any(|it| it.trouble() == Some(wanted));
    let wrong: Vec<bool> = KINDS.iter().map(|(_, it)| of(*it)).collect();
    assert_eq!(wrong, [false, false, false, true, false, true, false]);
    assert!(steps.iter().any(|it| it.what == What::Change));
}
