//! What a hub's control plane makes for itself. Every member's makes its own. Pure.

use super::Template;

/// With which API servers label the roles and bindings that they make at their start.
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

impl Template {
    /// Whether it speaks of this hub's API server, and would mislead whoever reads it in a member.
    pub fn is_of_control_plane(&self) -> bool {
        let place = self.namespace.as_deref();
        match (self.group(), self.kind.as_str(), self.name.as_str()) {
            ("", "ConfigMap", "kube-root-ca.crt") => place.is_some(),
            ("", "Service" | "Endpoints", "kubernetes")
            | ("discovery.k8s.io", "EndpointSlice", "kubernetes") => place == Some("default"),
            _ => false,
        }
    }

    /// Whether every control plane makes it by itself, so that it is meant only where it is named.
    pub fn is_made_everywhere(&self) -> bool {
        let account = self.group().is_empty() && self.kind == "ServiceAccount";
        let role = self.group() == "rbac.authorization.k8s.io";
        account && self.name == "default" || role && self.labels.contains_key(BOOTSTRAPPING)
    }
}
