//! Pods: what follows from their specs when they are made.

use crate::apiserver::metadata::{self, at_least};
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::schema::quantity;
use crate::apiserver::value::{list, number, put, text};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";

/// The status that a new pod begins with.
pub(super) fn first_status(pod: &mut Value, now: DateTime<Utc>) {
    let class = class(pod);
    put(pod, &["status", "qosClass"], Some(json!(class)));
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": GATED,
            "lastProbeTime": null,
            "lastTransitionTime": metadata::timestamp(now),
        });
        put(pod, &["status", "conditions"], Some(json!([condition])));
    }
}

/// How many seconds a pod has to end: none if nothing of it runs.
pub(super) fn grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let over = matches!(text(pod, &["status", "phase"]), "Failed" | "Succeeded");
    if over || text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = number(pod, &["spec", "terminationGracePeriodSeconds"]);
    at_least(options.grace_period_seconds.or(own).unwrap_or(0))
}

/// How surely a pod gets what it asks for.
fn class(pod: &Value) -> &'static str {
    let all = ["containers", "initContainers"];
    let all = all.iter().flat_map(|key| list(pod, &["spec", key]));
    let amount = |container: &Value, kind: &str, resource: &str| {
        let given = text(container, &["resources", kind, resource]);
        let given = quantity::parse(given).ok().map(quantity::Quantity::nano);
        given.filter(|given| *given != 0)
    };
    let (mut asks, mut sure) = (false, true);
    for container in all {
        for resource in ["cpu", "memory"] {
            let asked = amount(container, "requests", resource);
            let most = amount(container, "limits", resource);
            asks |= asked.is_some() || most.is_some();
            sure &= most.is_some() && asked == most;
        }
    }
    match (asks, sure) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_as_sure_as_its_least_sure_container() {
        let sure = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        let cases = [
            (json!([{}]), "BestEffort"),
            (
                json!([{"resources": {"requests": {"cpu": "0"}}}]),
                "BestEffort",
            ),
            (
                json!([{"resources": {"requests": {"cpu": "1"}}}]),
                "Burstable",
            ),
            (json!([{"resources": sure}]), "Guaranteed"),
            (json!([{"resources": sure}, {}]), "Burstable"),
        ];
        for (containers, want) in cases {
            let mut pod = json!({"spec": {"containers": containers}});
            first_status(&mut pod, DateTime::UNIX_EPOCH);
            assert_eq!(pod["status"]["qosClass"], want, "{pod}");
        }
    }
}
