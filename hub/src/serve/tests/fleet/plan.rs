//! What happens in one run, as data: what operators and users do, what goes wrong, and when.
//!
//! A plan is complete: nothing but draws of how faults hit and how long requests are on their way comes from its
//! seed. Steps can be left out, and the others stay as they are.

use super::faults::Fault;
use serde::{Deserialize, Serialize};

/// The namespaces of templates.
pub(super) const SPACES: [&str; 2] = ["blue", "green"];
/// How many members there are.
pub(super) const MEMBERS: u8 = 3;

/// The taints that people give clusters; `broken` only makes leave what is there.
pub(super) const TAINTS: [&str; 3] = ["cluster.karmada.io/unschedulable", "spare", "broken"];

/// A whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// In the order of time.
    pub(super) steps: Vec<Step>,
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
    /// The cluster is unregistered, and comes back after so many milliseconds.
    Leave(u8, Option<u64>),
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
            What::Act(_) => step.at,
            What::Fault(fault) => fault.end(step.at),
            What::HubDies(lasts) | What::AgentDies(_, lasts) => step.at + lasts,
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

    /// A line a step, as a file that is run again.
    pub(super) fn text(&self) -> String {
        let json = |value: &Step| serde_json::to_string(value).expect("JSON");
        let steps: Vec<String> = self.steps.iter().map(json).collect();
        format!(
            "{{\"seed\": {}, \"steps\": [\n{}\n]}}\n",
            self.seed,
            steps.join(",\n")
        )
    }
}
