//! Policies beside the controller of clusters, which puts taints on the same Clusters and takes them off.

use super::decide::{Policy, decide, in_order};
use crate::controller::cluster::decide as lifecycle;
use crate::controller::cluster::observe::{ClusterState, Leftovers, NamespaceState, Observed};
use crate::world::{Cluster, Record as _};
use chrono::{DateTime, Utc};
use common::api::cluster::{READY, Taint};
use common::labels::{CLUSTER_FINALIZER, TAINT_NOT_READY, TAINT_UNREACHABLE};
use common::names::ClusterName;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const AFTER: Duration = Duration::from_secs(300);
/// More rounds than both need to come to rest.
const ROUNDS: usize = 4;

/// A Cluster, and what is written to it.
struct Fleet {
    ready: &'static str,
    net: &'static str,
    failover: Option<Duration>,
    policies: Vec<Arc<Policy>>,
    taints: Vec<Taint>,
    failover_taint: Option<String>,
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
}

fn policies(specs: &[Value]) -> Vec<Arc<Policy>> {
    let mut all: Vec<Arc<Policy>> = (0..)
        .zip(specs)
        .map(|(created, spec): (u32, _)| {
            let created = format!("2026-01-01T00:00:{created:02}Z");
            let metadata = json!({"name": "p", "creationTimestamp": created});
            let object = json!({"metadata": metadata, "spec": spec});
            Arc::new(serde_json::from_value(object).expect("a policy"))
        })
        .collect();
    in_order(&mut all);
    all
}

impl Fleet {
    fn read(&self) -> Cluster {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": "u"},
            "spec": {"syncMode": "Pull", "taints": self.taints},
            "status": {"conditions": [{"type": READY, "status": self.ready},
                {"type": "Net", "status": self.net}]},
        });
        let read = Cluster::read(&object.to_string());
        read.expect("an object").expect("held")
    }

    /// Both have their say once; whether anything was written.
    fn round(&mut self, now: DateTime<Utc>) -> bool {
        let cluster = ClusterState {
            finalizers: vec![CLUSTER_FINALIZER.to_owned()],
            ready: Some(self.ready.to_owned()),
            taints: self.taints.clone(),
            failover_taint: self.failover_taint.clone(),
            ..ClusterState::default()
        };
        let observed = Observed {
            name: ClusterName::parse("m1").expect("valid"),
            cluster,
            namespace: NamespaceState::Owned,
            leftovers: Leftovers::default(),
        };
        let options = lifecycle::Options {
            deletion_timeout: AFTER,
            failover_after: self.failover,
        };
        let decision = lifecycle::decide(now, options, &observed);
        let mut written = !decision.effects.is_empty();
        for effect in decision.effects {
            if let lifecycle::Effect::UpdateCluster(change) = effect {
                self.taints = change.taints.unwrap_or(self.taints.clone());
                let own = change.failover_taint;
                self.failover_taint = own.unwrap_or(self.failover_taint.clone());
            }
        }
        let failover = self.failover.is_some();
        if let Some(taints) = decide(now, failover, &self.read(), &self.policies) {
            self.taints = taints;
            written = true;
        }
        written
    }

    /// Whether both come to rest, at first and when the time of failover is over.
    fn rests(&mut self) -> bool {
        let mut begins = [0, 1000].into_iter();
        begins.all(|begin| {
            let mut rounds = (begin..).take(ROUNDS);
            rounds.any(|second| !self.round(at(second)))
        })
    }

    fn shown(&self) -> Vec<String> {
        let shown = |it: &Taint| format!("{}:{:?}", it.key, it.effect);
        self.taints.iter().map(shown).collect()
    }
}

fn on(kind: &str, operator: &str, values: &[&str]) -> Value {
    json!([{"conditionType": kind, "operator": operator, "statusValues": values}])
}

#[test]
fn a_policy_over_taints_of_ready_and_their_controller_come_to_rest() {
    let not_ready = |effect: &str| json!([{"key": TAINT_NOT_READY, "effect": effect}]);
    let users = json!({"addOnConditions": on(READY, "NotIn", &["True"]),
        "removeOnConditions": on(READY, "In", &["True"]), "taints": not_ready("NoExecute")});
    let both = json!({"addOnConditions": on(READY, "NotIn", &["True"]), "taints": [
        {"key": TAINT_NOT_READY, "effect": "NoExecute"}, {"key": TAINT_UNREACHABLE, "effect": "NoExecute"}]});
    let another = |effect: &str| json!({"addOnConditions": on("Net", "In", &["False"]), "taints": not_ready(effect)});
    let takes_off = json!({"removeOnConditions": on(READY, "In", &["Unknown"]), "taints": [
        {"key": TAINT_UNREACHABLE, "effect": "NoSchedule"}, {"key": TAINT_UNREACHABLE, "effect": "NoExecute"}]});
    let (on, off) = (Some(AFTER), None);
    let (schedule, execute) = ("NoSchedule", "NoExecute");
    let unreachable = |effects: &[&str]| -> Vec<String> {
        let shown = |effect: &&str| format!("{TAINT_UNREACHABLE}:{effect}");
        effects.iter().map(shown).collect()
    };
    let lost = unreachable(&[schedule, execute]);
    let mut without = unreachable(&[schedule]);
    without.push(format!("{TAINT_NOT_READY}:{execute}"));
    let cases = [
        (
            "as users have it",
            users.clone(),
            "Unknown",
            on,
            lost.clone(),
        ),
        ("as Karmada does it", users, "Unknown", off, without),
        ("both keys", both, "Unknown", on, lost.clone()),
        ("another condition", another(schedule), "True", on, vec![]),
        ("that and failover", another(execute), "True", on, vec![]),
        (
            "that and no failover",
            another(execute),
            "True",
            off,
            vec![format!("{TAINT_NOT_READY}:{execute}")],
        ),
        ("one that takes them off", takes_off, "Unknown", on, lost),
    ];
    for (case, policy, ready, failover, want) in cases {
        let mut fleet = Fleet {
            ready,
            net: "False",
            failover,
            policies: policies(&[policy]),
            taints: Vec::new(),
            failover_taint: None,
        };
        assert!(fleet.rests(), "{case}: {:?}", fleet.shown());
        assert_eq!(fleet.shown(), want, "{case}");
    }
}

proptest! {
    #[test]
    fn whatever_policies_say_all_comes_to_rest(
        ready in proptest::sample::select(vec!["True", "False", "Unknown"]),
        net in proptest::sample::select(vec!["True", "False"]),
        (failover, own) in any::<(bool, bool)>(),
        all in proptest::collection::vec(any::<(bool, bool, bool, bool, u8)>(), 0..5),
        had in proptest::collection::vec((0_usize..3, any::<bool>()), 0..4),
    ) {
        let key = |number: usize| [TAINT_NOT_READY, TAINT_UNREACHABLE, "a"][number % 3];
        let effect = |leaves: bool| if leaves { "NoExecute" } else { "NoSchedule" };
        let specs: Vec<Value> = all.iter().map(|&(adds, by_ready, equal, leaves, number)| {
            let (kind, status) = if by_ready { (READY, ready) } else { ("Net", net) };
            // Half of them hold.
            let conditions = on(kind, if equal { "In" } else { "NotIn" }, &[status]);
            let taints = json!([{"key": key(number.into()), "effect": effect(leaves)}]);
            let when = if adds { "addOnConditions" } else { "removeOnConditions" };
            json!({when: conditions, "taints": taints})
        }).collect();
        let had: std::collections::BTreeSet<_> = had.into_iter().collect();
        let taints = had.iter().map(|&(number, leaves)| {
            json!({"key": key(number), "effect": effect(leaves), "timeAdded": "2026-01-01T00:00:00Z"})
        });
        let taints: Vec<Value> = taints.collect();
        let mut fleet = Fleet {
            ready,
            net,
            failover: failover.then_some(AFTER),
            policies: policies(&specs),
            taints: serde_json::from_value(json!(taints)).expect("taints"),
            failover_taint: own.then(|| TAINT_UNREACHABLE.to_owned()),
        };
        prop_assert!(fleet.rests(), "{:?}", fleet.shown());
    }
}
