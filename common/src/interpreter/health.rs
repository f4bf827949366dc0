//! Whether a live object does what it should.
//!
//! Pure. The first eight rules are the reference's; the rest replace its default of `Healthy`.

use crate::api::work::ResourceHealth;
use crate::gvk::Gvk;
use serde_json::Value;

/// The health of a live object.
pub fn health(gvk: &Gvk, live: &Value) -> ResourceHealth {
    if is_healthy(gvk, &Object(live)) {
        ResourceHealth::Healthy
    } else {
        ResourceHealth::Unhealthy
    }
}

fn is_healthy(gvk: &Gvk, live: &Object<'_>) -> bool {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("apps", "v1", "Deployment" | "StatefulSet") => {
            let updated = live.number("/status/updatedReplicas");
            live.observed()
                && live
                    .maybe_number("/spec/replicas")
                    .is_none_or(|wanted| updated >= wanted)
                && live.number("/status/availableReplicas") >= updated
        }
        ("apps", "v1", "ReplicaSet") => {
            live.observed()
                && live.number("/status/availableReplicas") >= live.number("/spec/replicas")
        }
        ("apps", "v1", "DaemonSet") => {
            let updated = live.number("/status/updatedNumberScheduled");
            live.observed()
                && updated >= live.number("/status/desiredNumberScheduled")
                && live.number("/status/numberAvailable") >= updated
        }
        ("", "v1", "Service") => {
            live.text("/spec/type") != "LoadBalancer" || live.has_ingress_address()
        }
        ("networking.k8s.io", "v1", "Ingress") => live.has_ingress_address(),
        ("", "v1", "PersistentVolumeClaim") => live.text("/status/phase") == "Bound",
        ("", "v1", "Pod") => match live.text("/status/phase") {
            "Succeeded" => true,
            "Running" => live.condition("Ready") == Some("True"),
            _ => false,
        },
        ("policy", "v1", "PodDisruptionBudget") => {
            live.number("/status/currentHealthy") >= live.number("/status/desiredHealthy")
        }
        ("", "v1", "PersistentVolume") => live.text("/status/phase") != "Failed",
        ("", "v1", "Namespace") => live.text("/status/phase") != "Terminating",
        ("batch", "v1", "Job") => live.condition("Failed") != Some("True"),
        ("batch", "v1", "CronJob") => true,
        ("autoscaling", _, "HorizontalPodAutoscaler") => {
            live.condition("AbleToScale") != Some("False")
                && live.condition("ScalingActive") != Some("False")
        }
        ("apiextensions.k8s.io", _, "CustomResourceDefinition") => {
            live.condition("Established") == Some("True")
        }
        ("apiregistration.k8s.io", _, "APIService") => live.condition("Available") == Some("True"),
        _ if is_custom(gvk) => {
            live.seen_by_its_controller()
                && ["Ready", "Available"]
                    .iter()
                    .all(|kind| live.condition(kind).is_none_or(|status| status == "True"))
                && ["Failed", "Stalled"]
                    .iter()
                    .all(|kind| live.condition(kind) != Some("True"))
        }
        _ => true,
    }
}

/// Whether a kind is nobody's built-in: its group has a dot and is not Kubernetes' own.
fn is_custom(gvk: &Gvk) -> bool {
    gvk.group.contains('.') && !gvk.group.ends_with(".k8s.io") || gvk.group.ends_with(".x-k8s.io")
}

struct Object<'a>(&'a Value);

impl<'a> Object<'a> {
    fn maybe_number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    fn number(&self, pointer: &str) -> i64 {
        self.maybe_number(pointer).unwrap_or(0)
    }

    fn text(&self, pointer: &str) -> &'a str {
        self.0
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn observed(&self) -> bool {
        self.number("/status/observedGeneration") == self.number("/metadata/generation")
    }

    /// As [`Object::observed`], of kinds that may not count generations at all.
    fn seen_by_its_controller(&self) -> bool {
        self.maybe_number("/status/observedGeneration")
            .is_none_or(|seen| seen >= self.number("/metadata/generation"))
    }

    fn has_ingress_address(&self) -> bool {
        self.0
            .pointer("/status/loadBalancer/ingress")
            .and_then(Value::as_array)
            .is_some_and(|all| {
                all.iter().any(|one| {
                    ["ip", "hostname"].iter().any(|key| {
                        one.get(key)
                            .and_then(Value::as_str)
                            .is_some_and(|s| !s.is_empty())
                    })
                })
            })
    }

    fn condition(&self, kind: &str) -> Option<&'a str> {
        self.0
            .pointer("/status/conditions")
            .and_then(Value::as_array)?
            .iter()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?
            .get("status")?
            .as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(version: &str, kind: &str, live: Value, want: bool) {
        let gvk = Gvk::new(version, kind).expect("sound");
        let got = health(&gvk, &live) == ResourceHealth::Healthy;
        assert_eq!(got, want, "{kind} {live}");
    }

    fn with(kind: &str, status: &str) -> Value {
        json!({"status": {"conditions": [{"type": kind, "status": status}]}})
    }

    #[test]
    fn replicas_must_be_updated_and_available() {
        let deployment = |generation: i64, updated: i64, available: i64| {
            json!({"metadata": {"generation": generation}, "spec": {"replicas": 3},
                "status": {"observedGeneration": 2, "updatedReplicas": updated, "availableReplicas": available}})
        };
        for kind in ["Deployment", "StatefulSet"] {
            check("apps/v1", kind, deployment(2, 3, 3), true);
            check("apps/v1", kind, deployment(3, 3, 3), false);
            check("apps/v1", kind, deployment(2, 2, 3), false);
            check("apps/v1", kind, deployment(2, 3, 2), false);
        }
        check(
            "apps/v1",
            "Deployment",
            json!({"metadata": {"generation": 1}}),
            false,
        );
        check(
            "apps/v1",
            "ReplicaSet",
            json!({"spec": {"replicas": 1}, "status": {"availableReplicas": 1}}),
            true,
        );
        check(
            "apps/v1",
            "DaemonSet",
            json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
            false,
        );
    }

    #[test]
    fn addresses_volumes_and_pods() {
        let ingress = |one: Value| json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [one]}}});
        check(
            "v1",
            "Service",
            json!({"spec": {"type": "ClusterIP"}}),
            true,
        );
        check(
            "v1",
            "Service",
            json!({"spec": {"type": "LoadBalancer"}}),
            false,
        );
        check("v1", "Service", ingress(json!({"ip": "10.0.0.1"})), true);
        check("v1", "Service", ingress(json!({"hostname": ""})), false);
        check(
            "networking.k8s.io/v1",
            "Ingress",
            ingress(json!({"hostname": "a"})),
            true,
        );
        check("networking.k8s.io/v1", "Ingress", json!({}), false);
        check(
            "v1",
            "PersistentVolumeClaim",
            json!({"status": {"phase": "Pending"}}),
            false,
        );
        check(
            "v1",
            "PersistentVolumeClaim",
            json!({"status": {"phase": "Bound"}}),
            true,
        );
        check("v1", "Pod", json!({"status": {"phase": "Pending"}}), false);
        check("v1", "Pod", json!({"status": {"phase": "Succeeded"}}), true);
        check(
            "v1",
            "Pod",
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
            true,
        );
        check(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"status": {"currentHealthy": 1, "desiredHealthy": 2}}),
            false,
        );
    }

    #[test]
    fn kinds_without_a_rule_are_healthy_and_custom_ones_speak_for_themselves() {
        check("v1", "ConfigMap", json!({}), true);
        check(
            "v1",
            "ConfigMap",
            json!({"status": with("Ready", "False")["status"]}),
            true,
        );
        check("batch/v1", "Job", with("Failed", "True"), false);
        check("batch/v1", "Job", json!({}), true);
        check("example.com/v1", "Widget", json!({}), true);
        check("example.com/v1", "Widget", with("Ready", "False"), false);
        check("example.com/v1", "Widget", with("Available", "True"), true);
        check("example.com/v1", "Widget", with("Stalled", "True"), false);
        check(
            "example.com/v1",
            "Widget",
            json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
            false,
        );
        check(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            with("ScalingActive", "False"),
            false,
        );
        check(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({}),
            false,
        );
    }

    #[test]
    fn odd_shapes_are_absent_values() {
        for odd in [
            json!(null),
            json!([]),
            json!({"status": []}),
            json!({"status": {"conditions": {}}}),
        ] {
            check("apps/v1", "Deployment", odd.clone(), true);
            check("v1", "Pod", odd, false);
        }
    }
}
