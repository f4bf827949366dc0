//! In which order kinds are applied, and deleted in reverse.
//!
//! Pure. Manifests of one rank go at the same time; a rank starts when the one before it has been tried.

use common::gvk::Gvk;

/// Rank of kinds that nothing says anything about: custom resources, workloads.
pub const WORKLOAD: u8 = 7;

/// The rank of a kind, lowest first.
pub fn rank(gvk: &Gvk) -> u8 {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        // Quotas and limits bind what comes after them; classes are named by what comes after them.
        ("", "ResourceQuota" | "LimitRange")
        | ("scheduling.k8s.io" | "node.k8s.io" | "storage.k8s.io", _)
        | ("networking.k8s.io", "IngressClass" | "NetworkPolicy")
        | ("policy", "PodDisruptionBudget") => 2,
        ("", "ServiceAccount") | ("rbac.authorization.k8s.io", _) => 3,
        ("", "ConfigMap" | "Secret") => 4,
        ("", "PersistentVolume" | "PersistentVolumeClaim") => 5,
        ("", "Service" | "Endpoints") | ("discovery.k8s.io", _) => 6,
        ("networking.k8s.io", "Ingress") | ("autoscaling", _) => 8,
        // An aggregated API or a webhook whose Service has no pods yet refuses what comes after it.
        ("apiregistration.k8s.io", _) => 9,
        ("admissionregistration.k8s.io", _) => 10,
        _ => WORKLOAD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_comes_before_what_needs_it() {
        let order = [
            ("v1", "Namespace"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("v1", "ConfigMap"),
            ("v1", "PersistentVolumeClaim"),
            ("v1", "Service"),
            ("apps/v1", "Deployment"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("apiregistration.k8s.io/v1", "APIService"),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
            ),
        ];
        let ranks: Vec<u8> = order
            .iter()
            .map(|(v, k)| rank(&Gvk::new(v, k).expect("sound")))
            .collect();
        assert!(ranks.is_sorted(), "{ranks:?}");
        let custom = Gvk::new("example.com/v1", "Widget").expect("sound");
        assert_eq!(rank(&custom), WORKLOAD);
    }
}
