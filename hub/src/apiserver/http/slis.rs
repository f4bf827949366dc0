//! `/metrics/slis`: how the checks of health went, by the names that a kube-apiserver has for them.

use common::admin::Checks;
use common::exposition;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Check {
    name: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    name: &'static str,
    status: &'static str,
    r#type: &'static str,
}

/// What is counted; clones share it.
#[derive(Clone)]
pub(super) struct Slis {
    registry: Arc<Registry>,
    last: Family<Check, Gauge>,
    all: Family<Result, Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let mut registry = Registry::default();
        let (last, all) = (Family::default(), Family::default());
        registry.register(
            "kubernetes_healthcheck",
            "Whether a check of health was well when it was last asked for",
            Family::clone(&last),
        );
        registry.register(
            "kubernetes_healthchecks",
            "Checks of health that were asked for, by how they went",
            Family::clone(&all),
        );
        Self {
            registry: Arc::new(registry),
            last,
            all,
        }
    }
}

impl Slis {
    /// Counts the checks of `healthz`, `livez` or `readyz`, which were asked for just now.
    pub(super) fn asked(&self, path: &str, checks: &Checks) {
        let r#type = match path {
            "livez" => "livez",
            "readyz" => "readyz",
            _ => "healthz",
        };
        for (name, well) in [("ping", true)].into_iter().chain(checks.results()) {
            let status = if well { "success" } else { "error" };
            let check = Check { name, r#type };
            self.last.get_or_create(&check).set(i64::from(well));
            let result = Result {
                name,
                status,
                r#type,
            };
            self.all.get_or_create(&result).inc();
        }
    }

    /// What there is to say, and in which form.
    pub(super) fn render(&self, accept: &str) -> Option<(String, &'static str)> {
        exposition::render(&self.registry, accept).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_as_a_kube_apiserver_counts_them() {
        let (slis, checks) = (Slis::default(), Checks::default());
        let store = checks.add("store");
        slis.asked("readyz", &checks);
        store.ok();
        slis.asked("readyz", &checks);
        let (text, _) = slis.render("").expect("renders");
        for line in [
            "# TYPE kubernetes_healthcheck gauge",
            "# TYPE kubernetes_healthchecks_total counter",
            "kubernetes_healthcheck{name=\"store\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"store\",status=\"error\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }
}
