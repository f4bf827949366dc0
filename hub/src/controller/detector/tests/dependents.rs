//! That what takes a template along waits for it no longer than it has to, whatever becomes of the template.

use super::keep::BREAKS;
use super::{Stage, dependent, policy};
use crate::controller::detector::wake::Edit;
use crate::controller::detector::{Decision, Problem, Write};
use serde_json::json;

/// One that these take along, and that the policy `p` holds.
fn taken_along(names: &[&str]) -> Stage {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.0.dependents = names.iter().map(|it| dependent(it)).collect();
    stage.settle();
    stage
}

/// Who its binding lists; none without one.
fn listed(stage: &Stage) -> Option<Vec<String>> {
    let parents = stage.0.binding.as_ref()?.spec.required_by.iter();
    Some(parents.map(|it| it.name.clone()).collect())
}

fn names(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|it| (*it).to_owned()).collect())
}

#[test]
fn where_nothing_can_be_decided_a_binding_still_follows_those_that_take_it_along() {
    for broken in BREAKS {
        let mut stage = taken_along(&["a", "b"]);
        broken(&mut stage);
        stage.change("p", |it| {
            it.spec.preserve_resources_on_deletion = Some(true);
        });
        let before = stage.0.binding.clone().expect("a binding").spec;
        stage.0.dependents = vec![dependent("b"), dependent("c")];
        let decision = stage.settle();
        assert!(decision.problem.is_some());
        assert_eq!(listed(&stage), names(&["b", "c"]));
        let mut after = stage.0.binding.clone().expect("a binding").spec;
        assert_eq!(after.preserve_resources_on_deletion, Some(true));
        after.preserve_resources_on_deletion = before.preserve_resources_on_deletion;
        after.required_by.clone_from(&before.required_by);
        assert_eq!(after, before, "nothing else of what the policy says");
    }
}

#[test]
fn what_only_others_take_along_follows_them_though_its_policy_cannot_be_carried_out() {
    for broken in BREAKS {
        let mut stage = Stage::new([]);
        stage.0.dependents = vec![dependent("a"), dependent("b")];
        stage.settle();
        stage.add(policy("p", json!({}), json!({})));
        broken(&mut stage);
        stage.0.dependents.remove(0);
        let decision = stage.settle();
        assert!(decision.problem.is_some());
        assert_eq!(listed(&stage), names(&["b"]));
        stage.0.dependents.clear();
        let decision = stage.settle();
        assert!(matches!(decision.binding, Some(Write::Delete(_))));
    }
}

#[test]
fn a_binding_that_waits_for_its_next_policy_follows_others_too() {
    let mut stage = taken_along(&["a"]);
    stage.remove("p");
    stage.add(policy("q", json!({}), json!({"dependentOverrides": ["o"]})));
    stage.0.dependents.clear();
    let decision = stage.settle();
    assert!(matches!(decision.problem, Some(Problem::Overrides(_))));
    assert_eq!(listed(&stage), names(&[]));
}

#[test]
fn the_binding_of_a_template_that_does_not_end_loses_those_that_left_and_gains_none() {
    let mut stage = taken_along(&["a", "b"]);
    stage.0.template.deleting = true;
    stage.0.dependents = vec![dependent("a"), dependent("b"), dependent("c")];
    assert_eq!(stage.settle(), Decision::default());
    stage.0.dependents.remove(0);
    stage.settle();
    assert_eq!(listed(&stage), names(&["b"]));
    stage.0.dependents.clear();
    stage.settle();
    assert_eq!(listed(&stage), names(&[]));
    assert_eq!(stage.settle(), Decision::default());
    // Nor when its policy goes too.
    let mut stage = taken_along(&["a"]);
    stage.0.template.deleting = true;
    stage.change("p", |it| it.deleting = true);
    stage.0.dependents.clear();
    stage.settle();
    assert_eq!(listed(&stage), names(&[]));
}

/// Its Works then go by what those said that took it along (see `Sync::preserves`).
#[test]
fn what_only_followed_goes_with_the_last_though_its_template_does_not_end() {
    // Whether a policy holds the template, which it is not carried out for.
    for is_held in [false, true] {
        let mut stage = Stage::new([]);
        if is_held {
            let lazy = json!({"activationPreference": "Lazy"});
            stage.add(policy("p", json!({}), lazy));
            stage.0.edited = Some(Edit::Marks);
        }
        stage.0.dependents = vec![dependent("a"), dependent("b")];
        stage.settle();
        stage.0.template.deleting = true;
        stage.0.dependents.remove(0);
        stage.settle();
        assert_eq!(listed(&stage), names(&["b"]));
        stage.0.dependents.clear();
        let decision = stage.settle();
        assert!(matches!(decision.binding, Some(Write::Delete(_))));
        let holder = decision.holder.map(|it| it.name);
        assert_eq!(holder.as_deref(), is_held.then_some("p"), "it is confirmed");
        assert_eq!(stage.settle(), Decision::default());
    }
}

#[test]
fn a_binding_that_goes_or_is_anothers_is_left_alone_while_its_template_ends() {
    for is_going in [true, false] {
        let mut stage = taken_along(&["a"]);
        stage.0.template.deleting = true;
        stage.0.dependents.clear();
        let binding = stage.0.binding.as_mut().expect("a binding");
        binding.deleting = is_going;
        if !is_going {
            binding.owner.as_mut().expect("an owner").uid = "uid-9".into();
        }
        assert_eq!(stage.settle(), Decision::default());
    }
}
