//! What the agent says about itself in the member: phase, reason, message and time, for people and for
//! `towline register --wait`, who may have no other way to see it.
//!
//! Written only when it changes. A failure to write is logged and never stops the agent. A pod of an
//! earlier installation may still write while the next one starts, so each report names its own.

use crate::credentials;
use common::errors::chain;
use common::time::{SharedClock, to_time};
use common::{labels, names};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;

/// File name in the state directory.
const FILE: &str = "status.json";
/// How long a write may hold the agent up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest message, in bytes.
const MESSAGE_MAX: usize = 4096;

/// How far the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// On its way to a certificate.
    Registering,
    /// At work.
    Running,
    /// Stopped, or unable to go on without an operator.
    Failed,
    /// Unregistered, and removing itself.
    Unregistered,
}

impl Phase {
    /// The phase as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registering => "Registering",
            Self::Running => "Running",
            Self::Failed => "Failed",
            Self::Unregistered => "Unregistered",
        }
    }
}

/// One thing to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How far the agent is.
    pub phase: Phase,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

enum Target {
    Member(Box<Api<ConfigMap>>),
    File(PathBuf),
}

/// Writes reports to where the operator looks.
pub struct Reporter {
    target: Target,
    /// What `towline register` calls the installation this process belongs to.
    installation: Option<String>,
    clock: SharedClock,
    last: Mutex<Option<Report>>,
}

impl Reporter {
    /// Reports in the ConfigMap `towline-agent-status` of `namespace`.
    pub fn in_member(
        member: kube::Client,
        namespace: &str,
        installation: Option<String>,
        clock: SharedClock,
    ) -> Self {
        Self {
            target: Target::Member(Box::new(Api::namespaced(member, namespace))),
            installation,
            clock,
            last: Mutex::default(),
        }
    }

    /// Reports in a file of the state directory.
    pub fn in_directory(directory: &std::path::Path, clock: SharedClock) -> Self {
        Self {
            target: Target::File(directory.join(FILE)),
            installation: None,
            clock,
            last: Mutex::default(),
        }
    }

    /// Says `report`, unless it was the last thing said.
    pub async fn say(&self, phase: Phase, reason: &'static str, message: &str) {
        let cut = message.floor_char_boundary(MESSAGE_MAX.min(message.len()));
        let report = Report {
            phase,
            reason,
            message: message[..cut].to_owned(),
        };
        // Held over the write, so that of two parts that report at once the later one stays.
        let mut last = self.last.lock().await;
        if last.as_ref() == Some(&report) {
            return;
        }
        match tokio::time::timeout(WRITE_TIMEOUT, self.write(&report)).await {
            Ok(Ok(())) => *last = Some(report),
            Ok(Err(error)) => tracing::warn!(%error, "status report not written"),
            Err(_) => tracing::warn!(error = "no answer in time", "status report not written"),
        }
    }

    async fn write(&self, report: &Report) -> Result<(), String> {
        let mut data = json!({
            "phase": report.phase.as_str(),
            "reason": report.reason,
            "message": report.message,
            "time": to_time(self.clock.now()),
        });
        if let Some(installation) = &self.installation {
            data[names::REPORT_INSTALLATION] = installation.as_str().into();
        }
        match &self.target {
            Target::Member(api) => {
                let object = json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": names::STATUS_CONFIG_MAP,
                        "labels": {
                            labels::PART_OF: labels::PART_OF_VALUE,
                            labels::MANAGED_BY: names::AGENT_NAME,
                        },
                    },
                    "data": data,
                });
                let params = PatchParams::apply(labels::AGENT_FIELD_MANAGER).force();
                let name = names::STATUS_CONFIG_MAP;
                let written = api.patch(name, &params, &Patch::Apply(&object)).await;
                written.map(drop).map_err(|e| chain(&e).to_string())
            }
            Target::File(path) => credentials::replace_file(path, data.to_string().as_bytes())
                .map_err(|e| chain(&e).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::{SimClock, to_micro_time};
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn reports_are_written_on_change() {
        let base = tempfile::tempdir().expect("directory");
        let start = chrono::DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        let clock = Arc::new(SimClock::starting_at(start));
        let reporter = Reporter::in_directory(base.path(), clock);
        let read = || std::fs::read_to_string(base.path().join(FILE)).expect("written");
        let long = "é".repeat(5000);
        reporter
            .say(Phase::Registering, "HubUnreachable", &long)
            .await;
        let first = read();
        assert!(first.contains("HubUnreachable") && first.len() < 4300);
        assert!(first.contains(&to_micro_time(start).0.strftime("%FT%TZ").to_string()));
        tokio::time::advance(Duration::from_secs(5)).await;
        reporter
            .say(Phase::Registering, "HubUnreachable", &long)
            .await;
        assert_eq!(read(), first);
        reporter.say(Phase::Running, "Registered", "as m1").await;
        assert!(read().contains(r#""phase":"Running""#));
    }
}
