//! WorkloadRebalancers of the hub in memory.

use super::hub::{Hub, binding_key};
use crate::controller::rebalancer::decide::{Observed, decide};
use common::api::rebalancer::{RebalancerSpec, WorkloadReference};
use common::time::to_time;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// When each of them was made.
const MADE: chrono::DateTime<chrono::Utc> = chrono::DateTime::UNIX_EPOCH;

impl Hub {
    /// Carries out what each WorkloadRebalancer asks for.
    pub(super) fn rebalance(&mut self) {
        let of_kind = |key: &&String| key.starts_with("WorkloadRebalancer/");
        let keys: Vec<String> = self.objects.keys().filter(of_kind).cloned().collect();
        for key in keys {
            let object = &self.objects[&key];
            let spec: RebalancerSpec =
                serde_json::from_value(object["spec"].clone()).expect("a rebalancer");
            let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
            let asked = |workload: &WorkloadReference| {
                let held = self.bindings.get(&key_of(workload))?;
                let time = held.binding.spec.reschedule_triggered_at.as_ref();
                Some((workload.clone(), time.map(|time| time.0.as_second())))
            };
            let bindings: BTreeMap<_, _> = spec.workloads.iter().filter_map(asked).collect();
            let seen = Observed {
                generation: object["metadata"]["generation"].as_i64().unwrap_or(0),
                status: serde_json::from_value(status).expect("a status"),
                created: MADE.timestamp(),
                bindings,
                spec,
            };
            let decision = decide(MADE, &seen);
            for workload in &decision.asked {
                let key = key_of(workload);
                let mut binding = self.bindings[&key].binding.clone();
                binding.spec.reschedule_triggered_at = Some(to_time(MADE));
                self.write(&key, binding);
            }
            if let Some(status) = decision.status {
                let object = self.objects.get_mut(&key).expect("there");
                object["status"] = json!(status);
            }
        }
    }
}

fn key_of(workload: &WorkloadReference) -> String {
    binding_key(
        workload.namespace.as_deref(),
        &workload.kind,
        &workload.name,
    )
}

/// A status as the recorder shows it.
pub(super) fn shown(status: &Value) -> Value {
    let mut shown = status.clone();
    if let Some(map) = shown.as_object_mut() {
        map.remove("finishTime");
    }
    shown
}
