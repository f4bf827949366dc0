//! What the status of the Cluster should say, from what was observed.
//!
//! Pure. The decision starts from what the hub has, so what others wrote there stays.

use super::enablements::Enablements;
use super::modeling::{self, Grade};
use super::probe::Health;
use super::resources::{Ledger, list};
use super::threshold::Believed;
use chrono::{DateTime, Utc};
use common::api::cluster::{
    AgentInfo, AllocatableModeling, COMPLETE_API_ENABLEMENTS, ClusterStatus, NodeSummary, READY,
    ResourceModel, ResourceSummary, UNREGISTERING,
};
use common::conditions;
use common::quantity::Quantity;
use common::unregister::Mode;

/// Condition: the sums over nodes and pods are those of now; its transition time is the age of what
/// is there when they are not.
pub const COMPLETE_RESOURCE_SUMMARY: &str = "CompleteResourceSummary";
/// Longest error text that is reported.
const MAX_ERROR: usize = 1024;
const MAX_APIS: usize = 2000;
const MAX_RESOURCES_OF_API: usize = 1000;

/// Everything a tick knows.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The status as the hub has it.
    pub seen: &'a ClusterStatus,
    /// What the member's health endpoint said.
    pub health: Health,
    /// Whether that has lasted long enough.
    pub believed: Believed,
    /// The member's version; none when it was not to be had.
    pub version: Option<String>,
    /// The member's APIs; none before they were first asked for.
    pub enablements: Option<&'a Enablements>,
    /// Nodes and pods.
    pub sums: Sums<'a>,
    /// The Cluster's resource models.
    pub models: &'a [ResourceModel],
    /// The agent itself.
    pub agent: AgentInfo,
    /// What the hub asked for when it began to delete the Cluster, as [`acknowledged`] has it.
    pub unregister: Option<Mode>,
}

/// What of an unregistration is acknowledged: what is asked for, once it is stored. The hub deletes the Works after that,
/// and a later life that knew nothing of it would take workloads away that are to be kept.
pub fn acknowledged(asked: Option<Mode>, stored: Option<Mode>) -> Option<Mode> {
    asked.filter(|mode| stored == Some(*mode))
}

/// How far the fold over nodes and pods is.
#[derive(Debug)]
pub enum Sums<'a> {
    /// Not wanted by the configuration: what is there stays.
    Off,
    /// The first lists are not complete yet, but there is still time.
    Syncing,
    /// The lists did not complete in time, or the watch is cut off.
    Late(&'a str),
    /// Current.
    Known(&'a Ledger),
}

/// The status to have.
pub fn wanted(now: DateTime<Utc>, observed: &Observed<'_>) -> ClusterStatus {
    let mut status = observed.seen.clone();
    let health = observed.health;
    if observed.believed == Believed::Observed {
        let ready = conditions::new(READY, health.ready, health.reason, health.message, now);
        conditions::set(&mut status.conditions, ready, now);
    }
    let ready = conditions::is_true(&status.conditions, READY);
    if health.ready && ready {
        collect(now, observed, &mut status);
    } else if !ready && !matches!(observed.sums, Sums::Off) && status.resource_summary.is_some() {
        let message = "the member is not ready; version, API list and sums are from before";
        note(&mut status, "Unknown", "MemberNotReady", message, now);
    }
    if let Some(mode) = observed.unregister {
        let reason = match mode {
            Mode::RemoveWorkloads => "RemoveWorkloads",
            Mode::KeepWorkloads => "KeepWorkloads",
            Mode::Force => "Force",
        };
        let message = "the agent cleans up and removes itself";
        let leaving = conditions::new(UNREGISTERING, true, reason, message, now);
        conditions::set(&mut status.conditions, leaving, now);
    }
    let mut agent = observed.agent.clone();
    agent.last_error = agent
        .last_error
        .map(|text| text.chars().take(MAX_ERROR).collect());
    status.agent = Some(agent);
    status
}

/// Whether the two statuses differ in more than what may wait for the next minute.
pub fn urgent(seen: &ClusterStatus, wanted: &ClusterStatus) -> bool {
    let without_slow = |status: &ClusterStatus| {
        let mut status = status.clone();
        status.resource_summary = None;
        if let Some(agent) = &mut status.agent {
            agent.last_error = None;
        }
        status
    };
    let first_sums = seen.resource_summary.is_none() && wanted.resource_summary.is_some();
    first_sums || without_slow(seen) != without_slow(wanted)
}

fn collect(now: DateTime<Utc>, observed: &Observed<'_>, status: &mut ClusterStatus) {
    // A version that cannot be had is an empty one, as in the reference.
    status.kubernetes_version = Some(observed.version.clone().unwrap_or_default());
    if let Some(found) = observed.enablements {
        let (complete, reason, message) = found.condition();
        status.api_enablements = found.apis.iter().take(MAX_APIS).cloned().collect();
        for api in &mut status.api_enablements {
            api.resources.truncate(MAX_RESOURCES_OF_API);
        }
        let condition = conditions::new(COMPLETE_API_ENABLEMENTS, complete, reason, message, now);
        conditions::set(&mut status.conditions, condition, now);
    }
    match observed.sums {
        Sums::Off | Sums::Syncing => {}
        Sums::Late(why) => {
            let why: String = why.chars().take(MAX_ERROR).collect();
            note(status, "False", "NotSynced", &why, now);
        }
        Sums::Known(ledger) => {
            let sums = ledger.sums();
            status.node_summary = Some(NodeSummary {
                total_num: i64::from(sums.nodes),
                ready_num: i64::from(sums.ready_nodes),
            });
            status.resource_summary = Some(ResourceSummary {
                allocatable: list(&sums.allocatable),
                allocating: list(&sums.allocating),
                allocated: list(&sums.allocated),
                allocatable_modelings: modelings(observed.models, ledger),
            });
            note(
                status,
                "True",
                "Complete",
                "nodes and pods are watched",
                now,
            );
        }
    }
}

fn note(status: &mut ClusterStatus, state: &str, reason: &str, message: &str, now: DateTime<Utc>) {
    let condition = conditions::with_status(COMPLETE_RESOURCE_SUMMARY, state, reason, message, now);
    conditions::set(&mut status.conditions, condition, now);
}

fn modelings(models: &[ResourceModel], ledger: &Ledger) -> Vec<AllocatableModeling> {
    if models.is_empty() {
        return Vec::new();
    }
    let mut grades: Vec<Grade> = models
        .iter()
        .map(|model| Grade {
            grade: model.grade,
            minima: model
                .ranges
                .iter()
                .filter_map(|r| Some((r.name.clone(), Quantity::parse(&r.min.0).ok()?)))
                .collect(),
        })
        .collect();
    grades.sort_by_key(|grade| grade.grade);
    modeling::count(&grades, &ledger.rooms())
        .into_iter()
        .map(|(grade, count)| AllocatableModeling { grade, count })
        .collect()
}

#[cfg(test)]
mod tests;
