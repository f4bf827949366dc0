//! Which taints a cluster has by the ClusterTaintPolicies. Pure.

use crate::controller::cluster::decide::{may_put_on, may_take_off};
use crate::scheduler::from_api;
use crate::world::{Cluster, Whole};
use chrono::{DateTime, Utc};
use common::api::cluster::{READY, Taint, TaintEffect};
use common::api::taint_policy::{
    ClusterTaintSpec, MatchCondition, MatchOperator, PolicyTaint, PolicyTaintEffect,
};
use common::time::to_time;
use std::sync::Arc;

/// A policy as it is held.
pub type Policy = Whole<ClusterTaintSpec>;

/// Policies in the order in which they have their say: the oldest first.
pub fn in_order(policies: &mut [Arc<Policy>]) {
    policies.sort_by(|a, b| {
        let key = |it: &Policy| {
            (
                it.metadata.creation_timestamp.clone(),
                it.metadata.name.clone(),
            )
        };
        key(a).cmp(&key(b))
    });
}

/// The taints that a cluster is to have; none when it has them. Of one that a policy takes off and another puts on, what
/// is there stays as it is. Taints that come and go by Ready are left to the controller of clusters, those with NoExecute
/// while there is `failover`.
pub fn decide(
    now: DateTime<Utc>,
    failover: bool,
    cluster: &Cluster,
    policies: &[Arc<Policy>],
) -> Option<Vec<Taint>> {
    let placing = cluster.placing.as_ref()?;
    let ready = cluster.conditions.get(READY).map(|status| &**status);
    if cluster.lifecycle.deleted.is_some() {
        return None;
    }
    let mut wanted = cluster.taints.clone();
    for policy in policies {
        let spec = &policy.spec;
        let targets = spec.target_clusters.as_ref().map(from_api::affinity);
        let is_meant = targets.is_none_or(|it| it.matches(placing));
        if policy.metadata.deletion_timestamp.is_some() || !is_meant {
            continue;
        }
        let all_hold = |conditions: &[MatchCondition]| {
            !conditions.is_empty() && conditions.iter().all(|it| holds(cluster, it))
        };
        if all_hold(&spec.add_on_conditions) {
            let stays = |it: &&PolicyTaint| may_put_on(ready, failover, &it.key, effect(it));
            for taint in spec.taints.iter().filter(stays) {
                if !wanted.iter().any(|it| is_same(it, taint)) {
                    let before = cluster.taints.iter().find(|it| is_same(it, taint));
                    wanted.push(before.cloned().unwrap_or_else(|| made(now, taint)));
                }
            }
        }
        if all_hold(&spec.remove_on_conditions) {
            let goes = |it: &&PolicyTaint| may_take_off(failover, &it.key, effect(it));
            let off = spec.taints.iter().filter(goes);
            wanted.retain(|it| !off.clone().any(|taint| is_same(it, taint)));
        }
    }
    let same =
        wanted.len() == cluster.taints.len() && wanted.iter().all(|it| cluster.taints.contains(it));
    (!same).then_some(wanted)
}

fn holds(cluster: &Cluster, condition: &MatchCondition) -> bool {
    let Some(status) = cluster.conditions.get(condition.condition_type.as_str()) else {
        return false;
    };
    let listed = condition.status_values.iter().any(|it| **it == **status);
    listed == (condition.operator == MatchOperator::In)
}

fn effect(taint: &PolicyTaint) -> TaintEffect {
    match taint.effect {
        PolicyTaintEffect::NoSchedule => TaintEffect::NoSchedule,
        PolicyTaintEffect::NoExecute => TaintEffect::NoExecute,
    }
}

/// A taint is known by key and effect; what value it has, is whoever's put it on first.
fn is_same(taint: &Taint, policy: &PolicyTaint) -> bool {
    taint.key == policy.key && taint.effect == effect(policy)
}

fn made(now: DateTime<Utc>, taint: &PolicyTaint) -> Taint {
    Taint {
        key: taint.key.clone(),
        value: taint.value.clone().filter(|it| !it.is_empty()),
        effect: effect(taint),
        time_added: Some(to_time(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Record as _;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
    }

    fn cluster(conditions: &[(&str, &str)], taints: &Value) -> Cluster {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status}))
            .collect();
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": "u", "labels": {"env": "test"}},
            "spec": {"syncMode": "Pull", "taints": taints},
            "status": {"conditions": conditions},
        });
        let read = Cluster::read(&object.to_string());
        read.expect("an object").expect("held")
    }

    fn policy(created: u32, spec: &Value) -> Arc<Policy> {
        let created = format!("2026-01-01T00:00:{created:02}Z");
        let object = json!({"metadata": {"name": "p", "creationTimestamp": created}, "spec": spec});
        Arc::new(serde_json::from_value(object).expect("a policy"))
    }

    fn on(kind: &str, operator: &str, values: &[&str]) -> Value {
        json!([{"conditionType": kind, "operator": operator, "statusValues": values}])
    }

    fn adds(on: &Value) -> Value {
        json!({"addOnConditions": on, "taints": [{"key": "a", "value": "v", "effect": "NoExecute"}]})
    }

    fn removes(on: &Value) -> Value {
        json!({"removeOnConditions": on, "taints": [{"key": "a", "effect": "NoExecute"}]})
    }

    fn shown(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        let shown = |it: Taint| {
            let added = it.time_added.map(|it| it.0.as_second());
            format!("{}={} {added:?}", it.key, it.value.unwrap_or_default())
        };
        taints.map(|all| all.into_iter().map(shown).collect())
    }

    #[test]
    fn conditions_bring_and_take_taints() {
        let bad = on("Net", "In", &["False", "Unknown"]);
        let good = on("Net", "NotIn", &["False", "Unknown"]);
        let there = || json!([{"key": "a", "value": "mine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
        let added = || Some(vec![format!("a=v {:?}", Some(now().timestamp()))]);
        let meant = |mut spec: Value, target: Value| {
            spec["targetClusters"] = target;
            spec
        };
        let both = json!([bad[0], on("Disk", "In", &["False"])[0]]);
        let cases = [
            (
                "comes",
                vec![adds(&bad)],
                vec![("Net", "False")],
                json!([]),
                added(),
            ),
            (
                "does not hold",
                vec![adds(&bad)],
                vec![("Net", "True")],
                json!([]),
                None,
            ),
            (
                "no such condition",
                vec![adds(&bad)],
                vec![],
                json!([]),
                None,
            ),
            ("nor by NotIn", vec![adds(&good)], vec![], json!([]), None),
            (
                "NotIn",
                vec![adds(&good)],
                vec![("Net", "True")],
                json!([]),
                added(),
            ),
            (
                "no conditions",
                vec![adds(&json!([]))],
                vec![("Net", "False")],
                json!([]),
                None,
            ),
            (
                "all have to hold",
                vec![adds(&both)],
                vec![("Net", "False")],
                json!([]),
                None,
            ),
            (
                "all hold",
                vec![adds(&both)],
                vec![("Net", "False"), ("Disk", "False")],
                json!([]),
                added(),
            ),
            (
                "there already, with its value",
                vec![adds(&bad)],
                vec![("Net", "False")],
                there(),
                None,
            ),
            (
                "stays when it holds no more",
                vec![adds(&bad)],
                vec![("Net", "True")],
                there(),
                None,
            ),
            (
                "goes",
                vec![removes(&good)],
                vec![("Net", "True")],
                there(),
                Some(vec![]),
            ),
            (
                "not meant",
                vec![meant(adds(&bad), json!({"clusterNames": ["m2"]}))],
                vec![("Net", "False")],
                json!([]),
                None,
            ),
            (
                "meant by label",
                vec![meant(
                    adds(&bad),
                    json!({"labelSelector": {"matchLabels": {"env": "test"}}}),
                )],
                vec![("Net", "False")],
                json!([]),
                added(),
            ),
            (
                "the younger has the last word",
                vec![adds(&bad), removes(&bad)],
                vec![("Net", "False")],
                json!([]),
                None,
            ),
            (
                "it puts on what the older took off",
                vec![removes(&bad), adds(&bad)],
                vec![("Net", "False")],
                there(),
                None,
            ),
        ];
        for (name, policies, conditions, taints, want) in cases {
            let mut policies: Vec<_> = (0..)
                .zip(&policies)
                .map(|(at, it)| policy(at, it))
                .collect();
            policies.reverse();
            in_order(&mut policies);
            let found = decide(now(), true, &cluster(&conditions, &taints), &policies);
            assert_eq!(shown(found), want, "{name}");
        }
    }

    #[test]
    fn a_policy_that_goes_and_a_cluster_that_goes_are_left_alone() {
        let bad = on("Net", "In", &["False"]);
        let mut going = Arc::into_inner(policy(0, &adds(&bad))).expect("ours alone");
        going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
        let seen = cluster(&[("Net", "False")], &json!([]));
        assert_eq!(decide(now(), true, &seen, &[Arc::new(going)]), None);
        let mut leaving = seen.clone();
        leaving.lifecycle.deleted = Some("2026-01-01T00:00:00Z".into());
        assert_eq!(
            decide(now(), true, &leaving, &[policy(0, &adds(&bad))]),
            None
        );
    }

    proptest! {
        /// What was decided is what is there: nothing is decided again.
        #[test]
        fn it_comes_to_rest(
            all in proptest::collection::vec((any::<bool>(), 0_usize..3), 0..6),
            had in any::<bool>(),
        ) {
            let kinds = ["True", "False", "Unknown"];
            let policies: Vec<_> = all.iter().map(|(add, kind)| {
                let on = on("Net", "NotIn", &kinds[*kind..=*kind]);
                policy(0, &if *add { adds(&on) } else { removes(&on) })
            }).collect();
            let taints = if had { json!([{"key": "a", "effect": "NoExecute"}]) } else { json!([]) };
            let mut seen = cluster(&[("Net", "False")], &taints);
            if let Some(wanted) = decide(now(), true, &seen, &policies) {
                seen.taints = wanted;
                let later = now() + chrono::Duration::seconds(9);
                prop_assert_eq!(decide(later, true, &seen, &policies), None);
            }
        }
    }
}
