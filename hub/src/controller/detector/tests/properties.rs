//! Whatever policies there are: their order does not matter, decisions come to rest, and keys miss nothing.

use super::{Stage, cluster_policy, nginx, policy};
use crate::controller::detector::choose::{best, rank};
use crate::controller::detector::decide;
use crate::controller::detector::wake::{keys_of_policy, keys_of_template};
use crate::propagation::Policy;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn any_selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!({"name": "nginx"})),
        Just(json!({"name": "nginx", "namespace": "default"})),
        Just(json!({"name": "apache"})),
        Just(json!({"namespace": "other"})),
        Just(json!({"kind": "Job"})),
        Just(json!({"apiVersion": "apps/v1beta1"})),
        Just(json!({"labelSelector": {"matchLabels": {"app": "web"}}})),
        Just(json!({"labelSelector": {"matchLabels": {"app": "db"}}})),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let flag = any::<bool>;
    let with = (-1i32..2, flag(), flag(), flag(), flag());
    (any_selector(), "[a-c]", any::<bool>(), with, 0..6u8).prop_map(
        |(selector, name, wide, (priority, always, lazy, waits, keeps), state)| {
            let mut with = json!({ "priority": priority });
            if always {
                with["preemption"] = json!("Always");
            }
            if lazy {
                with["activationPreference"] = json!("Lazy");
            }
            if waits {
                with["dependentOverrides"] = json!(["o"]);
            }
            if keeps {
                with["preserveResourcesOnDeletion"] = json!(true);
            }
            let make = if wide { cluster_policy } else { policy };
            let mut policy = make(&name, selector, with);
            policy.deleting = state == 0;
            if state == 1 {
                policy.id.clear();
            }
            policy
        },
    )
}

fn any_policies() -> impl Strategy<Value = Vec<Policy>> {
    proptest::collection::vec(any_policy(), 0..5).prop_map(|mut policies| {
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        policies.dedup_by(|a, b| a.name == b.name);
        policies
    })
}

proptest! {
    #[test]
    fn the_order_of_policies_does_not_matter(policies in any_policies(), turn in 0usize..5) {
        let mut turned = policies.clone();
        turned.rotate_left(turn.min(policies.len()));
        let name = |policies: &[Policy]| best(policies, &nginx()).map(|it| it.name.clone());
        prop_assert_eq!(name(&turned), name(&policies));
        prop_assert_eq!(decide(&Stage::new(turned).0), decide(&Stage::new(policies).0));
    }

    /// However policies come and go, what is decided comes to rest at once (see [`Stage::settle`]), and who holds
    /// the template is one of those that select it.
    #[test]
    fn decisions_come_to_rest(
        turns in proptest::collection::vec((any_policies(), any::<bool>(), any::<bool>()), 1..5),
    ) {
        let mut stage = Stage::new([]);
        for (policies, edited, override_there) in turns {
            stage.0.policies = policies.into_iter().map(Arc::new).collect();
            stage.0.overrides.clear();
            if override_there {
                let names = stage.0.policies.iter().flat_map(|it| super::super::wake::overrides_of(it));
                stage.0.overrides = names.collect();
            }
            if edited {
                stage.edit();
            }
            let decision = stage.settle();
            let holder = stage.0.policies.iter().find(|it| Some(&it.name) == decision.holder.as_ref());
            prop_assert_eq!(holder.is_some(), decision.holder.is_some());
            if let Some(holder) = holder {
                prop_assert!(rank(holder, &nginx()).is_some() && !holder.deleting);
            } else if decision.problem.is_none() {
                prop_assert_eq!(&stage.0.binding, &None);
            }
        }
    }

    /// A policy that selects a template shares a key with it.
    #[test]
    fn no_selection_is_without_a_key(policy in any_policy(), namespaced in any::<bool>()) {
        let mut template = nginx();
        if !namespaced {
            template.namespace = None;
        }
        if rank(&policy, &template).is_some() {
            let keys = keys_of_template(&template);
            prop_assert!(keys_of_policy(&policy).iter().any(|key| keys.contains(key)));
        }
    }
}
