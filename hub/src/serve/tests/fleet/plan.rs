//! What happens in one run, as data: what operators and users do, what goes wrong, and when.
//!
//! A plan is complete: nothing but draws of how faults hit and how long requests are on their way comes from its
//! seed. Steps can be left out, and the others stay as they are.

use super::crash::Crash;
use super::faults::{Fault, Wrong};
use serde::{Deserialize, Serialize};

/// The namespaces of templates.
pub(super) const SPACES: [&str; 2] = ["blue", "green"];
/// How many members there are, where nothing else is said.
pub(super) const MEMBERS: u8 = 3;
/// The kinds of fault that a line can have.
pub(super) const KINDS: [&str; 9] = [
    "slow", "refuse", "lose", "swallow", "answer", "cut", "freeze", "gone", "deny",
];
/// And those of processes and hosts.
pub(super) const OTHERS: [&str; 6] = ["hub", "agent", "power", "disk", "clock", "twin"];

/// The taints that people give clusters; `broken` only makes leave what is there.
pub(super) const TAINTS: [&str; 3] = ["cluster.karmada.io/unschedulable", "spare", "broken"];

/// A whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How many members there are.
    #[serde(default = "members")]
    pub(super) members: u8,
    /// In the order of time.
    pub(super) steps: Vec<Step>,
}

fn members() -> u8 {
    MEMBERS
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Stays the same when others are left out.
    pub(super) number: u32,
    /// Milliseconds after the beginning.
    pub(super) at: u64,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// Somebody does something.
    Act(Act),
    /// A line has a fault.
    Fault(Fault),
    /// The hub's process is gone for so many milliseconds.
    HubDies(u64),
    /// The process of a member's agent is.
    AgentDies(u8, u64),
    /// The hub's host is without power for so many milliseconds; what its disk did not have for good is gone.
    PowerFails(u64),
    /// The hub's disk is so for so many milliseconds.
    Disk(Trouble, u64),
    /// The clock of a host is set, by so many milliseconds: `hub`, the member of a cluster with its agent, as `m1`, or
    /// `all`.
    Clock(String, i64),
    /// A member has a second agent for so many milliseconds.
    Twin(u8, u64),
    /// A process is killed at one of its requests or commits.
    Crash(Crash),
}

/// What a disk does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// Nothing fits on it.
    Full,
    /// It fails.
    Broken,
    /// Every transaction takes so many milliseconds.
    Slow(u64),
}

impl What {
    /// The kind of fault; none for what people do.
    pub(super) fn kind(&self) -> Option<&'static str> {
        let kind = match self {
            Self::Act(_) => return None,
            Self::HubDies(_) => OTHERS[0],
            Self::AgentDies(..) => OTHERS[1],
            Self::PowerFails(_) => OTHERS[2],
            Self::Disk(..) => OTHERS[3],
            Self::Clock(..) => OTHERS[4],
            Self::Twin(..) => OTHERS[5],
            Self::Crash(_) => "crash",
            Self::Fault(fault) => match fault.what {
                Wrong::Slow(_) => KINDS[0],
                Wrong::Refuse => KINDS[1],
                Wrong::Lose(_) => KINDS[2],
                Wrong::Swallow(_) => KINDS[3],
                Wrong::Answer(..) => KINDS[4],
                Wrong::Cut => KINDS[5],
                Wrong::Freeze => KINDS[6],
                Wrong::Gone => KINDS[7],
                Wrong::Deny(_) => KINDS[8],
            },
        };
        Some(kind)
    }
}

/// What people do. What cannot be done, because there is nothing to do it to, is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Act {
    /// A Deployment is made: namespace, name, replicas, version of its image, label.
    Deploy(String, String, i64, u8, String),
    Scale(String, String, i64),
    Roll(String, String, u8),
    Relabel(String, String, String),
    Undeploy(String, String),
    /// The ConfigMap of a namespace gets this content, and is made if need be.
    Configure(String, u8),
    Unconfigure(String),
    /// A policy gets this content, and is made if need be.
    Policy(Policy),
    /// Without a namespace a cluster-wide one.
    Unpolicy(Option<String>, String),
    /// The image's version in one member.
    Override(String, u8, u8),
    Unoverride(String),
    /// The cluster's taints from now on that keep newcomers away, by key.
    Taint(u8, Vec<String>),
    /// Those that make leave what is there.
    Evict(u8, Vec<String>),
    /// Its tier.
    Label(u8, String),
    /// Processors of its only node.
    Room(u8, u32),
    /// A user of the member deletes what a Work made there.
    Meddle(u8, String, String),
    /// A user of the member scales what a Work made there.
    Tamper(u8, String, String, i64),
    /// Whoever writes Works by hand has this one in a cluster, and no other.
    Hand(Hand),
    /// None.
    Unhand(u8),
    /// The member loses what its agent was registered with, and the agent is registered anew in the place of the old.
    Forget(u8),
    /// A stranger asks to be let in as a cluster of its own.
    Intrude(u8),
    /// The cluster is unregistered, and comes back after so many milliseconds.
    Leave(u8, Option<u64>),
}

/// A Work that somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hand {
    pub(super) member: u8,
    pub(super) name: String,
    /// The ConfigMaps that it brings, by their numbers.
    pub(super) maps: Vec<u8>,
    /// What is in each.
    pub(super) content: u8,
    /// Whether one of another name goes before this one is there; else after.
    pub(super) clears_first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Policy {
    /// None for a cluster-wide one.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) priority: i32,
    pub(super) selects: Selects,
    /// Whether it selects ConfigMaps, too.
    pub(super) maps: bool,
    /// Whether what templates refer to goes along.
    pub(super) deps: bool,
    pub(super) affinity: Affinity,
    pub(super) divides: Divides,
    /// By region or by cluster, at least and at most.
    pub(super) spread: Option<(bool, u32, u32)>,
    /// Whether it tolerates the taint `spare`.
    pub(super) tolerates: bool,
    /// For how many seconds it tolerates that its cluster is broken or lost.
    #[serde(default)]
    pub(super) endures: Option<u32>,
    /// Whether what leaves a cluster is taken away there before it is made elsewhere.
    #[serde(default)]
    pub(super) directly: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Selects {
    All,
    Name(String),
    Label(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Affinity {
    Any,
    Names(Vec<u8>),
    Tier(String),
    Without(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Divides {
    /// Nothing is said.
    Unsaid,
    Whole,
    /// By these weights.
    Static(Vec<(u8, i64)>),
    Dynamic,
    Aggregated,
}

impl Plan {
    /// When the last fault is over and everybody is back.
    pub(super) fn calm(&self) -> u64 {
        let end = |step: &Step| match &step.what {
            What::Act(_) | What::Clock(..) => step.at,
            What::Fault(fault) => fault.end(step.at),
            What::HubDies(lasts)
            | What::AgentDies(_, lasts)
            | What::Twin(_, lasts)
            | What::PowerFails(lasts)
            | What::Disk(_, lasts) => step.at + lasts,
            What::Crash(crash) => step.at + crash.within,
        };
        self.steps.iter().map(end).max().unwrap_or(0)
    }

    /// The faults of lines, with their numbers and beginnings.
    pub(super) fn faults(&self) -> impl Iterator<Item = (u32, u64, &Fault)> {
        self.steps.iter().filter_map(|step| match &step.what {
            What::Fault(fault) => Some((step.number, step.at, fault)),
            _ => None,
        })
    }

    /// The crash point that it has.
    pub(super) fn crash(&self) -> Option<&Crash> {
        self.steps.iter().find_map(|step| match &step.what {
            What::Crash(crash) => Some(crash),
            _ => None,
        })
    }

    /// The last step that had begun at a time.
    pub(super) fn step_at(&self, at: u64) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.at <= at)
    }

    /// A line a step, as a file that is run again.
    pub(super) fn text(&self) -> String {
        let json = |value: &Step| serde_json::to_string(value).expect("JSON");
        let steps: Vec<String> = self.steps.iter().map(json).collect();
        let members = match self.members {
            MEMBERS => String::new(),
            other => format!("\"members\": {other}, "),
        };
        format!(
            "{{\"seed\": {}, {members}\"steps\": [\n{}\n]}}\n",
            self.seed,
            steps.join(",\n")
        )
    }
}
