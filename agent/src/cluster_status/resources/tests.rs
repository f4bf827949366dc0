//! Tables and properties of the fold.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn node(name: &str, ready: bool, cpu: &str, memory: &str, pods: u32) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods.to_string()},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": if ready { "True" } else { "Unknown" }},
            ],
        },
    }))
    .expect("a node")
}

fn pod(name: &str, node: &str, phase: &str, requests: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }))
    .expect("a pod")
}

fn texts(amounts: &Amounts) -> Vec<(String, String)> {
    list(amounts)
        .into_iter()
        .map(|(name, quantity)| (name, quantity.0))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[test]
fn records_stay_small() {
    assert!(size_of::<PodRecord>() <= 40, "{}", size_of::<PodRecord>());
}

#[test]
fn nodes_and_pods_add_up() {
    let mut ledger = Ledger::default();
    ledger.node(&node("a", true, "32", "128Gi", 110));
    ledger.node(&node("b", false, "3500m", "16412345Ki", 110));
    let small = json!({"cpu": "250m", "memory": "256Mi"});
    ledger.pod(&pod("p1", "a", "Running", small.clone()));
    ledger.pod(&pod(
        "p2",
        "b",
        "Pending",
        json!({"cpu": "1", "example.com/gpu": "2"}),
    ));
    ledger.pod(&pod("p3", "", "Pending", small.clone()));
    ledger.pod(&pod("p4", "a", "Succeeded", small.clone()));
    ledger.pod(&pod("p5", "a", "Failed", small));
    let sums = ledger.sums();
    assert_eq!((sums.nodes, sums.ready_nodes), (2, 1));
    assert_eq!(
        texts(&sums.allocatable),
        pairs(&[
            ("cpu", "35500m"),
            ("memory", "150630073Ki"),
            ("pods", "220")
        ]),
    );
    assert_eq!(
        texts(&sums.allocating),
        pairs(&[("cpu", "250m"), ("memory", "256Mi"), ("pods", "1")]),
    );
    assert_eq!(
        texts(&sums.allocated),
        pairs(&[
            ("cpu", "1250m"),
            ("example.com/gpu", "2"),
            ("memory", "256Mi"),
            ("pods", "2")
        ]),
    );
}

#[test]
fn a_pod_moves_and_goes() {
    let mut ledger = Ledger::default();
    ledger.node(&node("a", true, "4", "8Gi", 10));
    let ask = json!({"cpu": "1"});
    ledger.pod(&pod("p", "", "Pending", ask.clone()));
    assert!(ledger.take_changed());
    ledger.pod(&pod("p", "a", "Pending", ask.clone()));
    assert!(ledger.sums().allocating.is_empty());
    assert_eq!(
        texts(&ledger.sums().allocated),
        pairs(&[("cpu", "1"), ("pods", "1")])
    );
    let rooms = ledger.rooms();
    assert_eq!(
        texts(&rooms[0].taken),
        pairs(&[("cpu", "1"), ("pods", "1")])
    );
    assert!(ledger.take_changed());
    ledger.pod(&pod("p", "a", "Running", ask.clone()));
    ledger.node(&node("a", true, "4", "8Gi", 10));
    assert!(
        !ledger.take_changed(),
        "neither a phase nor a heartbeat moves a sum"
    );
    ledger.pod(&pod("p", "a", "Succeeded", ask));
    assert!(ledger.take_changed());
    assert!(ledger.sums().allocated.is_empty());
}

#[test]
fn a_new_list_drops_what_it_does_not_show() {
    let mut ledger = Ledger::default();
    ledger.node(&node("a", true, "4", "8Gi", 10));
    ledger.node(&node("b", true, "4", "8Gi", 10));
    ledger.pod(&pod("p", "a", "Running", json!({"cpu": "1"})));
    ledger.nodes_restart();
    ledger.pods_restart();
    ledger.node(&node("b", true, "4", "8Gi", 10));
    assert_eq!(
        ledger.sums().nodes,
        2,
        "nothing goes before the list is complete"
    );
    ledger.nodes_listed();
    ledger.pods_listed();
    assert_eq!(ledger.sums().nodes, 1);
    assert!(ledger.sums().allocated.is_empty());
}

#[test]
fn the_list_is_bounded_and_keeps_what_matters() {
    let mut amounts: Amounts = (0..100)
        .map(|n| (format!("a.example/{n:03}"), 1000))
        .collect();
    amounts.insert("cpu".into(), 1000);
    amounts.insert("pods".into(), 0);
    let list = list(&amounts);
    assert_eq!(list.len(), MAX_RESOURCES);
    assert!(list.contains_key("cpu") && !list.contains_key("pods"));
}

proptest! {
    /// Amounts that do not fit the short fields of a record are kept exactly all the same.
    #[test]
    fn records_are_exact(cpu in any::<u64>(), milli_bytes in 0i128..i128::from(u64::MAX) * 4000) {
        let mut ledger = Ledger::default();
        let cpu = i128::from(cpu) / 8;
        let ask = json!({
            "cpu": format!("{cpu}m"),
            "memory": Quantity::from_milli(milli_bytes / 8).canonical(Format::Decimal).to_string(),
        });
        let pod = pod("p", "a", "Running", ask);
        let wanted = pod.requests();
        ledger.pod(&pod);
        let got = ledger.sums().allocated;
        for name in ["cpu", "memory"] {
            prop_assert_eq!(got.get(name).copied().unwrap_or(0), wanted[name]);
        }
    }

    /// The sums depend on what exists, not on the order or repetition of events.
    #[test]
    fn order_does_not_matter(events in proptest::collection::vec((0u8..6, 0u8..3, 0u32..3, any::<bool>()), 0..60)) {
        let mut ledger = Ledger::default();
        let mut model: BTreeMap<u8, Pod> = BTreeMap::new();
        for (name, node, cpu, delete) in events {
            let node = ["", "a", "b"][usize::from(node)];
            let pod = pod(&name.to_string(), node, "Running", json!({"cpu": cpu.to_string()}));
            if delete {
                ledger.pod_deleted("default", &name.to_string());
                model.remove(&name);
            } else {
                ledger.pod(&pod);
                model.insert(name, pod);
            }
        }
        let mut fresh = Ledger::default();
        for pod in model.values().rev() {
            fresh.pod(pod);
        }
        prop_assert_eq!(ledger.sums(), fresh.sums());
    }
}
