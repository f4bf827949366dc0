//! How many requests there were, by the name and the labels that dashboards know from kube-apiserver.

use super::info::RequestInfo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: u16,
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    subresource: String,
    verb: String,
    version: String,
}

/// The counters; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics {
    requests: Family<Labels, Counter>,
}

impl Metrics {
    /// Puts the counters into a registry.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "apiserver_request",
            "Requests for kinds that are served, when they were answered; a watch, when it began",
            metrics.requests.clone(),
        );
        metrics
    }

    /// Counts a request. Only for kinds that are served: every other name would be another counter, and
    /// whoever asks chooses the names.
    pub(super) fn count(&self, info: &RequestInfo, is_apply: bool, dry_run: bool, code: u16) {
        let verb = match info.verb.as_str() {
            "create" => "POST".to_owned(),
            "update" => "PUT".to_owned(),
            "patch" if is_apply => "APPLY".to_owned(),
            verb => verb.to_ascii_uppercase(),
        };
        let labels = Labels {
            code,
            component: "apiserver",
            dry_run: if dry_run { "All" } else { "" },
            group: info.group.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            verb,
            version: info.version.clone(),
        };
        self.requests.get_or_create(&labels).inc();
    }
}
