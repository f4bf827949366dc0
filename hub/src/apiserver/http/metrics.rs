//! How many requests there were and how long they took, by the names and labels that dashboards know from
//! kube-apiserver.

use crate::apiserver::request::RequestInfo;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// In seconds. The first ones are finer than kube-apiserver's, the others are among its own.
const BUCKETS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.6, 1.0, 5.0, 30.0,
];

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    component: &'static str,
    dry_run: &'static str,
    group: String,
    resource: String,
    scope: &'static str,
    subresource: String,
    verb: String,
    version: String,
}

/// What is counted; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    requests: Family<Labels, Counter>,
    durations: Family<Timed, Histogram, fn() -> Histogram>,
}

/// A request that was answered.
pub(super) struct Answered<'a> {
    pub(super) info: &'a RequestInfo,
    pub(super) is_apply: bool,
    pub(super) dry_run: bool,
    pub(super) code: u16,
    /// From its head to its answer.
    pub(super) took: Duration,
}

impl Metrics {
    /// Puts the counters into a registry.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        registry.register(
            "apiserver_request",
            "Requests for kinds that are served, when they were answered; a watch, when it began",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "apiserver_request_duration",
            "Time from the head of a request to its answer; watches are not among them",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        metrics
    }

    /// Counts a request. Only for kinds that are served: every other name would be another counter, and
    /// whoever asks chooses the names.
    pub(super) fn count(&self, answered: &Answered<'_>) {
        let info = answered.info;
        let verb = match info.verb.as_str() {
            "create" => "POST".to_owned(),
            "update" => "PUT".to_owned(),
            "patch" if answered.is_apply => "APPLY".to_owned(),
            verb => verb.to_ascii_uppercase(),
        };
        let labels = Labels {
            code: answered.code,
            component: "apiserver",
            dry_run: if answered.dry_run { "All" } else { "" },
            group: info.group.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            verb,
            version: info.version.clone(),
        };
        self.requests.get_or_create(&labels).inc();
        if info.verb == "watch" {
            return;
        }
        let timed = Timed {
            component: labels.component,
            dry_run: labels.dry_run,
            group: labels.group,
            resource: labels.resource,
            scope: scope(info),
            subresource: labels.subresource,
            verb: labels.verb,
            version: labels.version,
        };
        let took = answered.took.as_secs_f64();
        self.durations.get_or_create(&timed).observe(took);
    }
}

/// Whether one object was asked for, those of a namespace, or all.
fn scope(info: &RequestInfo) -> &'static str {
    if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else {
        "cluster"
    }
}
