//! That objects stay in the members is said to a binding before it goes.

use super::{Stage, cluster_policy, dependent, nginx, policy};
use crate::controller::detector::wake::Edit;
use crate::controller::detector::{Decision, Write, claim, keep, wake};
use crate::propagation::{Binding, Policy, Template};
use common::api::binding::TargetCluster;
use common::api::policy::{
    ActivationPreference, ConflictResolution, PriorityClassSource, SchedulePriority,
};
use serde_json::{Value, json};

/// One that holds the template, for a while.
fn held(policy: Policy) -> Stage {
    let mut stage = Stage::new([policy]);
    stage.settle();
    stage
}

fn keep_objects(policy: &mut Policy) {
    policy.spec.preserve_resources_on_deletion = Some(true);
}

fn preserved(binding: &Binding) -> Option<Write> {
    let mut wanted = binding.clone();
    wanted.spec.preserve_resources_on_deletion = Some(true);
    Some(Write::Update(Box::new(wanted)))
}

/// As it is when a policy is patched and then deleted, before the detector comes to a template.
#[test]
fn what_a_policy_says_last_is_written_before_the_binding_goes() {
    type Make = fn(&str, Value, Value) -> Policy;
    let makes: [Make; 2] = [policy, cluster_policy];
    let with = [json!({}), json!({"activationPreference": "Lazy"})];
    for (make, with) in makes
        .iter()
        .flat_map(|make| with.iter().map(move |it| (make, it)))
    {
        let mut stage = held(make("p", json!({}), with.clone()));
        let before = stage.0.binding.clone().expect("a binding");
        stage.change("p", |policy| {
            keep_objects(policy);
            policy.deleting = true;
        });
        let first = stage.carry_out();
        assert_eq!(first.binding, preserved(&before), "{with}");
        assert_eq!(first.claim, None, "the policy stays until then");
        assert!(first.goes_on);
        let then = stage.settle();
        assert!(matches!(then.binding, Some(Write::Delete(_))), "{then:?}");
        assert_eq!((stage.holder(), then.goes_on), (None, false));
    }
}

#[test]
fn a_binding_that_has_nothing_more_to_say_goes_at_once() {
    // What the policy says while it holds the template, and what when it is deleted.
    for (before, after) in [(None, None), (None, Some(false)), (Some(true), Some(true))] {
        let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
        stage.change("p", |it| it.spec.preserve_resources_on_deletion = before);
        stage.settle();
        stage.change("p", |it| {
            it.spec.preserve_resources_on_deletion = after;
            it.deleting = true;
        });
        let decision = stage.carry_out();
        assert!(matches!(decision.binding, Some(Write::Delete(_))));
        assert!(decision.claim.is_some() && !decision.goes_on);
    }
}

#[test]
fn the_binding_of_a_former_template_says_it_too_and_the_edit_is_not_forgotten() {
    let mut stage = held(policy("p", json!({}), json!({})));
    let before = stage.0.binding.clone().expect("a binding");
    stage.change("p", keep_objects);
    stage.0.template = Template {
        uid: "uid-2".into(),
        ..nginx()
    };
    stage.0.edited = Some(Edit::Content);
    let first = stage.carry_out();
    assert_eq!((first.claim, first.binding), (None, preserved(&before)));
    assert_eq!(stage.0.edited, Some(Edit::Content));
    let then = stage.carry_out();
    assert!(matches!(then.binding, Some(Write::Replace(_))), "{then:?}");
}

/// What makes it undecidable what the policy `p` asks for.
pub(super) const BREAKS: [fn(&mut Stage); 3] = [
    |stage| stage.0.replicas = Err("the script fails".into()),
    |stage| stage.change("p", |it| it.spec.dependent_overrides = vec!["o".into()]),
    |stage| {
        stage.change("p", |it| {
            it.spec.schedule_priority = Some(SchedulePriority {
                priority_class_source: PriorityClassSource::KubePriorityClass,
                priority_class_name: "gone".into(),
            });
        });
    },
];

/// The template, or the policy, may be deleted while it lasts.
#[test]
fn that_objects_stay_is_written_where_nothing_else_can_be_decided() {
    for broken in BREAKS {
        let mut stage = held(policy("p", json!({}), json!({})));
        let before = stage.0.binding.clone().expect("a binding");
        broken(&mut stage);
        // Nothing else is written, and without that nothing at all.
        let decision = stage.settle();
        assert_eq!(decision.binding, None);
        let why = decision.problem.clone();
        assert!(why.is_some());
        stage.change("p", |it| {
            keep_objects(it);
            it.spec.conflict_resolution = ConflictResolution::Overwrite;
        });
        let decision = stage.settle();
        assert_eq!(decision.binding, preserved(&before), "{why:?}");
        assert_eq!(decision.problem, why);
    }
}

#[test]
fn while_a_lazy_policy_waits_for_an_edit_nothing_of_it_is_written() {
    let mut stage = held(policy("p", json!({}), json!({})));
    let before = stage.0.binding.clone().expect("a binding");
    stage.change("p", |it| {
        keep_objects(it);
        it.spec.activation_preference = Some(ActivationPreference::Lazy);
        it.spec.dependent_overrides = vec!["o".into()];
    });
    let decision = stage.settle();
    assert_eq!(decision.binding, None);
    assert!(decision.problem.is_some(), "it waits for overrides");
    stage.edit();
    let decision = stage.settle();
    assert_eq!(decision.binding, preserved(&before));
}

/// Whose finalizer it waits for, and how long, nobody here knows.
#[test]
fn a_template_that_does_not_end_holds_no_policy_that_does() {
    type Make = fn(&str, Value, Value) -> Policy;
    let makes: [Make; 2] = [policy, cluster_policy];
    for (make, keeps) in makes
        .iter()
        .flat_map(|make| [false, true].map(|keeps| (make, keeps)))
    {
        let mut stage = held(make("p", json!({}), json!({})));
        stage.0.template.deleting = true;
        assert_eq!(stage.settle(), Decision::default(), "the policy stays");
        let before = stage.0.binding.clone().expect("a binding");
        stage.change("p", |policy| {
            policy.spec.preserve_resources_on_deletion = keeps.then_some(true);
            policy.deleting = true;
        });
        if keeps {
            let first = stage.carry_out();
            assert_eq!((first.claim, first.binding), (None, preserved(&before)));
            assert!(first.goes_on);
        }
        let then = stage.settle();
        assert_eq!(then.binding, None, "it ends with its template");
        assert_eq!(wake::holder(&stage.0.template), None);
    }
}

/// One that is placed on m3, and that another one takes along to m1.
#[test]
fn what_others_take_along_says_it_too_when_its_policy_lets_it_go() {
    // What its binding says, what its policy says last, what the other one's says, and whether its objects stay in m3.
    let cases = [
        (None, None, false, false),
        (None, Some(true), false, true),
        (Some(true), Some(true), false, true),
        (Some(true), None, false, true),
        (None, Some(true), true, true),
    ];
    for (of_binding, last, of_other, stay) in cases {
        let mut stage = Stage::new([policy(
            "p",
            json!({}),
            json!({"activationPreference": "Lazy"}),
        )]);
        stage.change("p", |it| {
            it.spec.preserve_resources_on_deletion = of_binding;
        });
        let mut other = dependent("web-deployment");
        other.preserve = of_other;
        stage.0.dependents = vec![other];
        stage.settle();
        let binding = stage.0.binding.as_mut().expect("a binding");
        binding.spec.clusters = vec![TargetCluster {
            name: "m3".into(),
            ..TargetCluster::default()
        }];
        stage.change("p", |it| {
            it.spec.preserve_resources_on_deletion = last;
            it.deleting = true;
        });
        let first = stage.carry_out();
        let left = stage.0.binding.clone().expect("a binding").spec;
        assert!(left.clusters.is_empty(), "it leaves m3");
        assert_eq!((left.placement, left.required_by.len()), (None, 1));
        let case = format!("{of_binding:?} {last:?} {of_other}");
        assert_eq!(left.preserve_resources_on_deletion, Some(stay), "{case}");
        let goes_on = stay && !of_other;
        assert_eq!(first.goes_on, goes_on, "{case}");
        assert_eq!(first.claim.is_none(), goes_on, "{case}");
        // And then what the other one's says, once the Works were told (see `leaving`).
        stage.settle();
        let spec = stage.0.binding.clone().expect("a binding").spec;
        assert_eq!(spec.preserve_resources_on_deletion, Some(of_other));
        assert_eq!(stage.holder(), None);
    }
}

#[test]
fn a_binding_waits_for_works_that_it_leaves_and_that_do_not_say_it() {
    let mut wanted = Binding::default();
    wanted.spec.clusters = dependent("x").clusters;
    // The members that have a Work, and whether it was told; whether one is left untold.
    let cases: [(&[(&str, bool)], bool); 5] = [
        (&[], false),
        (&[("m1", false)], false),
        (&[("m1", false), ("m3", true)], false),
        (&[("m3", false)], true),
        (&[("m1", true), ("m2", true), ("m3", false)], true),
    ];
    for (works, is_untold) in cases {
        let found = keep::is_untold(&wanted, works.iter().copied());
        assert_eq!(found, is_untold, "{works:?}");
    }
}

#[test]
fn a_policy_says_itself_that_objects_stay_no_longer() {
    let says = |stay: Option<bool>, policy: Option<&Policy>| {
        let mut binding = Binding::default();
        binding.spec.preserve_resources_on_deletion = stay;
        claim::set(policy, &mut binding.labels, &mut binding.annotations);
        binding
    };
    let p = policy("p", json!({}), json!({}));
    // What a binding says, whose it is, what it is to say, and whether that may have to wait.
    let cases = [
        (Some(true), None, Some(false), true),
        (Some(true), None, None, true),
        (Some(true), None, Some(true), false),
        (Some(false), None, Some(false), false),
        (Some(true), Some(&p), Some(false), false),
    ];
    for (stay, policy, next, waits) in cases {
        let found = keep::takes_back(&says(stay, policy), &says(next, None));
        assert_eq!(found, waits, "{stay:?} {next:?}");
    }
}

#[test]
fn a_policy_of_another_namespace_says_nothing() {
    let mut elsewhere = policy("p", json!({}), json!({}));
    keep_objects(&mut elsewhere);
    let mut binding = Binding {
        namespace: Some("other".into()),
        ..Binding::default()
    };
    claim::set(
        Some(&elsewhere),
        &mut binding.labels,
        &mut binding.annotations,
    );
    assert_eq!(keep::first(&binding, [&elsewhere]), None);
    binding.namespace.clone_from(&elsewhere.name.namespace);
    assert!(keep::first(&binding, [&elsewhere]).is_some());
}
