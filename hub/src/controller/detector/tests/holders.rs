//! Who holds a template: claims, releases, what is waited for, and who takes from whom.

use super::{Stage, cluster_policy, policy, told};
use crate::controller::detector::{Decision, Write, claim, wake};
use crate::propagation::{Policy, PolicyName, Template};
use common::interpreter::replicas::Replicas;
use serde_json::json;

#[test]
fn check_3_the_closest_selector_wins_and_the_next_one_follows() {
    let mut stage = Stage::new([
        policy("a", json!({}), json!({})),
        policy(
            "b",
            json!({"labelSelector": {"matchLabels": {"app": "web"}}}),
            json!({}),
        ),
        policy("c", json!({"name": "nginx"}), json!({})),
    ]);
    stage.settle();
    assert_eq!(stage.holder().as_deref(), Some("c"));
    stage.change("c", |policy| policy.deleting = true);
    let decision = stage.settle();
    assert!(
        matches!(decision.binding, Some(Write::Update(_))),
        "without a gap"
    );
    assert_eq!(stage.holder().as_deref(), Some("b"));
}

#[test]
fn check_7_a_cluster_policy_keeps_what_it_has_until_it_goes() {
    let mut stage = Stage::new([cluster_policy("c", json!({}), json!({"priority": -1}))]);
    let decision = stage.settle();
    assert_eq!(
        told(&decision),
        ["ApplyPolicySucceed Apply cluster policy(c) succeed"]
    );
    stage.add(policy(
        "p",
        json!({"name": "nginx"}),
        json!({"priority": 9}),
    ));
    assert_eq!(stage.settle().binding, None);
    assert_eq!(stage.holder().as_deref(), Some("c"));
    stage.remove("c");
    stage.settle();
    assert_eq!(stage.holder().as_deref(), Some("p"));
    let cluster_key = |key: &String| key.starts_with("clusterpropagationpolicy");
    let binding = stage.0.binding.expect("a binding");
    for texts in [
        &stage.0.template.labels,
        &stage.0.template.annotations,
        &binding.labels,
    ] {
        assert!(!texts.keys().any(cluster_key), "{texts:?}");
    }
}

/// Checks 10 to 12, where the reference leaves claim, binding and Works.
#[test]
fn checks_10_to_12_what_no_policy_selects_is_released() {
    let selector = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let ways: [fn(&mut Stage); 4] = [
        |stage| drop(stage.0.template.labels.insert("app".into(), "db".into())),
        |stage| {
            stage.change("p", |policy| {
                policy.spec.resource_selectors[0].kind = "Job".into();
            });
        },
        |stage| stage.change("p", |policy| policy.deleting = true),
        |stage| stage.remove("p"),
    ];
    for leave in ways {
        let mut stage = Stage::new([policy("p", selector.clone(), json!({}))]);
        stage.settle();
        let binding = stage.0.binding.as_mut().expect("a binding");
        binding.uid = "uid of binding".into();
        leave(&mut stage);
        let decision = stage.settle();
        assert_eq!(
            decision.binding,
            Some(Write::Delete("uid of binding".into()))
        );
        assert_eq!((stage.holder(), decision.holder), (None, None));
    }
}

#[test]
fn a_binding_that_shows_no_policy_is_not_ours_to_delete() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    let binding = stage.0.binding.as_mut().expect("a binding");
    claim::set(None, &mut binding.labels, &mut binding.annotations);
    stage.remove("p");
    let decision = stage.settle();
    assert!(decision.claim.is_some() && stage.0.binding.is_some());
}

#[test]
fn check_19_overrides_are_waited_for() {
    let wait = json!({"dependentOverrides": ["o", "q"]});
    let mut stage = Stage::new([policy("p", json!({}), wait.clone())]);
    let decision = stage.settle();
    let text =
        "ApplyPolicyFailed Apply policy(default/p) failed: waiting for dependent overrides: o, q";
    assert_eq!(told(&decision), [text]);
    assert_eq!((decision.holder, stage.holder()), (None, None));
    let there = |namespace: Option<&str>, name: &str| PolicyName {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    stage.0.overrides = [there(None, "o"), there(Some("default"), "q")].into();
    assert!(
        stage.settle().problem.is_some(),
        "of the policy's own kind and namespace"
    );
    stage.0.overrides.insert(there(Some("default"), "o"));
    stage.settle();
    assert_eq!(stage.holder().as_deref(), Some("p"));
    // Gone again: what is there stays.
    stage.0.overrides.clear();
    let before = stage.0.binding.clone();
    assert!(stage.settle().problem.is_some());
    assert_eq!(
        (stage.holder().as_deref(), stage.0.binding.clone()),
        (Some("p"), before)
    );
    // Its successor waits: nobody's, but still there until it is known that no other one comes.
    stage.add(policy("r", json!({}), wait));
    stage.remove("p");
    assert!(stage.settle().problem.is_some());
    assert_eq!(wake::holder(&stage.0.template), None);
    assert!(stage.0.binding.is_some());
    stage.remove("r");
    stage.settle();
    assert_eq!(stage.0.binding, None);
}

#[test]
fn check_20_a_lazy_policy_waits_for_an_edit() {
    let mut stage = Stage::new([]);
    stage.settle();
    stage.add(policy(
        "p",
        json!({}),
        json!({"activationPreference": "Lazy"}),
    ));
    let decision = stage.settle();
    assert!(decision.claim.is_some() && stage.0.binding.is_none());
    assert_eq!(told(&decision), [""; 0]);
    stage.edit();
    stage.settle();
    assert_eq!(stage.holder().as_deref(), Some("p"));
    assert!(stage.0.binding.is_some());
}

#[test]
fn check_21_a_lazy_policy_changes_nothing_before_an_edit() {
    let mut stage = Stage::new([policy(
        "p",
        json!({}),
        json!({"activationPreference": "Lazy"}),
    )]);
    stage.settle();
    let before = stage.0.binding.clone().expect("at once");
    stage.change("p", |policy| {
        policy.spec.preserve_resources_on_deletion = Some(true);
    });
    assert_eq!(
        stage.settle(),
        Decision {
            holder: Some(stage.0.policies[0].name.clone()),
            ..Decision::default()
        }
    );
    assert_eq!(stage.0.binding.as_ref(), Some(&before));
    stage.edit();
    stage.settle();
    let after = stage.0.binding.expect("a binding").spec;
    assert_eq!(after.preserve_resources_on_deletion, Some(true));
}

#[test]
fn a_lazy_policy_follows_a_scale_that_nobody_saw() {
    let lazy = json!({"activationPreference": "Lazy"});
    let mut stage = Stage::new([policy("p", json!({}), lazy)]);
    stage.settle();
    // As after a start: what was listed was not edited, as far as anybody saw.
    stage.0.replicas = Ok(Some(Replicas {
        replicas: 5,
        requirements: None,
    }));
    stage.settle();
    let binding = stage.0.binding.expect("a binding");
    assert_eq!(binding.spec.replicas, Some(5));
}

#[test]
fn checks_22_and_23_who_takes_from_whom() {
    let always = |priority: i32| json!({"preemption": "Always", "priority": priority});
    let by_name = json!({"name": "nginx"});
    let whole = json!({"name": "nginx", "namespace": "default"});
    let quiet = |priority: i32| json!({ "priority": priority });
    let cases = [
        (
            policy("a", json!({}), quiet(1)),
            policy("b", by_name.clone(), always(2)),
            true,
        ),
        (
            policy("a", json!({}), quiet(1)),
            policy("b", by_name.clone(), always(1)),
            false,
        ),
        (
            policy("a", json!({}), quiet(1)),
            policy("b", by_name.clone(), quiet(2)),
            false,
        ),
        (
            policy("a", json!({}), quiet(1)),
            policy("b", json!({}), always(2)),
            false,
        ),
        (
            cluster_policy("a", json!({}), quiet(9)),
            policy("b", by_name.clone(), always(0)),
            true,
        ),
        (
            cluster_policy("a", json!({}), quiet(1)),
            cluster_policy("b", whole.clone(), always(2)),
            true,
        ),
        (
            cluster_policy("a", json!({}), quiet(1)),
            cluster_policy("b", by_name, always(2)),
            false,
        ),
        (
            policy("a", json!({}), quiet(1)),
            cluster_policy("b", whole, always(9)),
            false,
        ),
    ];
    for (victim, preemptor, takes) in cases {
        let context = format!("{victim:?}\n{preemptor:?}");
        let mut stage = Stage::new([victim]);
        stage.settle();
        stage.add(preemptor);
        let decision = stage.settle();
        assert_eq!(
            stage.holder().as_deref(),
            Some(if takes { "b" } else { "a" }),
            "{context}"
        );
        let text = told(&decision);
        assert_eq!(
            text.iter().any(|it| it.starts_with("PreemptPolicySucceed")),
            takes,
            "{context}"
        );
    }
}

#[test]
fn preemption_is_told_in_the_words_of_the_reference() {
    let always = json!({"preemption": "Always", "priority": 2});
    let selector = json!({"name": "nginx", "namespace": "default"});
    let cases = [
        (
            policy("a", json!({}), json!({})),
            policy("b", selector.clone(), always.clone()),
            "Propagation policy(default/b) preempted propagation policy(default/a) successfully",
        ),
        (
            cluster_policy("a", json!({}), json!({})),
            policy("b", selector.clone(), always.clone()),
            "Propagation policy(default/b) preempted cluster propagation policy(a) successfully",
        ),
        (
            cluster_policy("a", json!({}), json!({})),
            cluster_policy("b", selector, always),
            "Cluster propagation policy(b) preempted cluster propagation policy(a) successfully",
        ),
    ];
    for (victim, preemptor, text) in cases {
        let mut stage = Stage::new([victim]);
        stage.settle();
        stage.add(preemptor);
        let told = told(&stage.settle());
        assert_eq!(told[0], format!("PreemptPolicySucceed {text}"));
        assert!(told[1].starts_with("ApplyPolicySucceed"), "{told:?}");
    }
}

#[test]
fn a_preemptor_that_waits_for_overrides_takes_nothing() {
    let mut stage = Stage::new([policy("a", json!({}), json!({}))]);
    stage.settle();
    let with = json!({"preemption": "Always", "priority": 2, "dependentOverrides": ["o"]});
    stage.add(policy("b", json!({"name": "nginx"}), with));
    assert_eq!(stage.settle().problem, None);
    assert_eq!(stage.holder().as_deref(), Some("a"));
}

/// A claim that somebody wrote himself gives nothing that the policy does not.
#[test]
fn a_forged_claim_is_worth_nothing() {
    let mut other = policy("p", json!({"namespace": "default"}), json!({}));
    other.name.namespace = Some("other".into());
    let mut stage = Stage::new([
        other,
        cluster_policy("c", json!({"name": "apache"}), json!({})),
    ]);
    for forged in stage.0.policies.clone() {
        let Template {
            labels,
            annotations,
            ..
        } = &mut stage.0.template;
        claim::set(Some(&forged), labels, annotations);
        stage.settle();
        assert_eq!((stage.holder(), stage.0.binding.clone()), (None, None));
    }
}

/// A claim is what anybody writes on an object of theirs: a policy elsewhere does not wait for it.
#[test]
fn a_claim_of_another_namespaces_policy_holds_nothing() {
    let mut template = super::nginx();
    let theirs = Policy {
        name: PolicyName {
            namespace: Some("theirs".into()),
            name: "p".into(),
        },
        ..policy("p", json!({}), json!({}))
    };
    for (policy, holds) in [
        (theirs, false),
        (policy("p", json!({}), json!({})), true),
        (cluster_policy("p", json!({}), json!({})), true),
    ] {
        claim::set(
            Some(&policy),
            &mut template.labels,
            &mut template.annotations,
        );
        let holder = wake::holder(&template);
        assert_eq!(holder, holds.then_some(policy.name));
    }
}
