//! What was measured, for people and for programs.

use serde::Serialize;
use std::fmt;

use crate::commands::latency::Latency;

/// Everything.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) hub: String,
    pub(super) agents: usize,
    pub(super) registered_seconds: f64,
    pub(super) seconds: f64,
    pub(super) renewals: usize,
    pub(super) failures: usize,
    pub(super) renewal: Latency,
    pub(super) hub_cpu_percent: f64,
    pub(super) simulator_cpu_percent: f64,
    pub(super) hub_mib_before: f64,
    pub(super) hub_mib: f64,
    pub(super) kib_per_agent: f64,
    pub(super) connections_per_agent: f64,
    pub(super) not_ready: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restart: Option<Restart>,
}

/// The hub was killed and started again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Restart {
    /// From the kill until it was ready.
    pub(super) hub_ready_seconds: f64,
    /// From then until each agent's watch delivered.
    pub(super) watches: Latency,
    /// From then until each agent's Lease was renewed.
    pub(super) leases: Latency,
    pub(super) failed_renewals: usize,
    pub(super) not_ready: usize,
    pub(super) hub_mib: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, text: String| writeln!(f, "{name:<28}{text}");
        row("hub", self.hub.clone())?;
        let rate = self.agents as f64 / self.registered_seconds;
        let took = self.registered_seconds;
        row(
            "agents",
            format!("{}, registered in {took:.1} s ({rate:.1}/s)", self.agents),
        )?;
        row(
            "connections of an agent",
            format!("{:.2}", self.connections_per_agent),
        )?;
        let rate = self.renewals as f64 / self.seconds;
        let (renewals, failures) = (self.renewals, self.failures);
        row(
            "renewals",
            format!("{renewals} ({rate:.1}/s), {failures} failed"),
        )?;
        row("time of a renewal", self.renewal.to_string())?;
        row(
            "processor time of the hub",
            format!("{:.1} % of a core", self.hub_cpu_percent),
        )?;
        let here = self.simulator_cpu_percent;
        row(
            "processor time of the agents",
            format!("{here:.1} % of a core"),
        )?;
        let (before, each) = (self.hub_mib_before, self.kib_per_agent);
        let memory = format!(
            "{:.1} MiB; {before:.1} MiB without agents, {each:.0} KiB an agent",
            self.hub_mib
        );
        row("memory of the hub", memory)?;
        row("Clusters not Ready", self.not_ready.to_string())?;
        let Some(restart) = &self.restart else {
            return Ok(());
        };
        row(
            "killed and started: ready",
            format!("{:.2} s after the kill", restart.hub_ready_seconds),
        )?;
        row("  watches back after that", restart.watches.to_string())?;
        row("  Leases renewed after that", restart.leases.to_string())?;
        row(
            "  renewals that failed",
            restart.failed_renewals.to_string(),
        )?;
        row("  Clusters not Ready", restart.not_ready.to_string())?;
        row("  memory of the hub", format!("{:.1} MiB", restart.hub_mib))
    }
}
