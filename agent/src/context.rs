//! What every running part of the agent is given.

use crate::config::Config;
use crate::hub::HubHandle;
use common::api::cluster::OrphanReport;
use common::chance::Chance;
use common::leader::Standing;
use common::names::ClusterName;
use common::network::Network;
use common::proxy::ProxyChoice;
use common::signal;
use common::time::SharedClock;
use common::unregister::Mode;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// Longest error text that is reported to the hub, in bytes.
const ERROR_TEXT_MAX: usize = 1024;

/// Everything the parts share. Cloned freely.
#[derive(Clone)]
pub struct AgentContext {
    /// The cluster this agent speaks for.
    pub cluster: ClusterName,
    /// UID of the member's `kube-system`.
    pub cluster_id: String,
    /// The flags, validated.
    pub config: Arc<Config>,
    /// The hub. The Lease makes its own connection by [`HubHandle::connect`].
    pub hub: HubHandle,
    /// The member's API.
    pub member: kube::Client,
    /// How the member's API is reached.
    pub member_config: kube::Config,
    /// What a proxy on the way there is told.
    pub member_proxy: ProxyChoice,
    /// Time of day.
    pub clock: SharedClock,
    /// What is drawn.
    pub chance: Chance,
    /// What is in the place of sockets; none where they are.
    pub network: Option<Arc<dyn Network>>,
    /// Metrics are registered here, once, before the parts run.
    pub metrics: Arc<Mutex<Registry>>,
    /// Cancelled when the part is to stop: at shutdown, or when this replica no longer leads.
    pub shutdown: CancellationToken,
    /// What the election of replicas showed last; none without one.
    pub standing: Option<signal::Receiver<Standing>>,
    /// Cancelled once another replica reports this member, which this one cannot reach: the status tick sees it.
    pub superseded: CancellationToken,
    /// Our Cluster as the last status patch returned it. The status tick sends, everybody may read.
    pub cluster_view: signal::Sender<Option<ClusterView>>,
    /// Whether the hub answered the last renewal of the Lease: the heartbeat sends.
    pub heard: signal::Sender<bool>,
    /// What the hub unregisters us with, once that is stored: who watches for our departure sends.
    pub told_to_leave: signal::Sender<Option<Mode>>,
    /// That the hub, verified, refuses us: the status tick sends, and clears it when it is answered.
    pub refused: signal::Sender<Option<Refusal>>,
    /// What of the registration is in force, for the Cluster's status; nothing with hand-made credentials.
    pub certified: signal::Receiver<Certified>,
    /// What Works left behind in the member, for the Cluster's status; none before it is known.
    pub orphans: signal::Sender<Option<OrphanReport>>,
    /// Where errors go that the Cluster's status shows.
    pub errors: ErrorReport,
}

impl AgentContext {
    /// Registers metrics under the lock.
    pub fn register_metrics<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// By what the hub knows us and we know the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certified {
    /// The certificate's end.
    pub ends: Option<chrono::DateTime<chrono::Utc>>,
    /// Who issued it.
    pub issuer: Option<String>,
    /// Pins of the authorities by which the hub is verified.
    pub authorities: Vec<String>,
}

/// A 401, 403 or 404 to a request that our registration permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// The hub's words.
    pub message: String,
}

impl Refusal {
    /// Reads an error of a request about our own objects; none when it is no refusal.
    pub fn of(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404) => Some(Self {
                code: status.code,
                message: status.message.clone(),
            }),
            _ => None,
        }
    }
}

/// What the agent needs to know of its Cluster object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion, for patches of lists.
    pub resource_version: String,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// What `towline unregister` asks for.
    pub unregister: Option<Mode>,
    /// Whether the `Unregistering` condition, our acknowledgement, stands in it.
    pub acknowledged: bool,
    /// The registration in force.
    pub registration: Option<String>,
    /// Status of the Ready condition as stored, `Unknown` included.
    pub ready: Option<String>,
}

/// The last error of each part, for `status.agent.lastError`.
#[derive(Debug, Clone, Default)]
pub struct ErrorReport {
    sender: signal::Sender<BTreeMap<&'static str, String>>,
}

impl ErrorReport {
    /// Notes what is wrong with `part`, until it is cleared.
    pub fn report(&self, part: &'static str, error: &dyn std::fmt::Display) {
        let mut text = error.to_string();
        if text.len() > ERROR_TEXT_MAX {
            text.truncate(text.floor_char_boundary(ERROR_TEXT_MAX));
        }
        self.sender
            .send_if_modified(|errors| errors.insert(part, text.clone()).as_ref() != Some(&text));
    }

    /// Notes that `part` works again.
    pub fn clear(&self, part: &'static str) {
        self.sender
            .send_if_modified(|errors| errors.remove(part).is_some());
    }

    /// All errors in one line; none when all is well.
    pub fn text(&self) -> Option<String> {
        let errors = self.sender.borrow();
        let parts: Vec<String> = errors
            .iter()
            .map(|(part, e)| format!("{part}: {e}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Tells when the text may have changed.
    pub fn changed(&self) -> signal::Receiver<BTreeMap<&'static str, String>> {
        self.sender.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorReport;

    #[test]
    fn errors_are_kept_by_part_and_cut() {
        let report = ErrorReport::default();
        assert_eq!(report.text(), None);
        report.report("works", &"member refuses");
        report.report("lease", &"é".repeat(2000));
        let text = report.text().expect("two errors");
        assert!(text.starts_with("lease: é") && text.ends_with("; works: member refuses"));
        assert!(text.len() < 1100);
        report.clear("lease");
        assert_eq!(report.text().as_deref(), Some("works: member refuses"));
    }
}
