//! Tables of single rules: who matches, what is skipped, what policies carry, and what wakes whom.

use super::{cluster_policy, nginx, policy};
use crate::controller::detector::choose::{Rank, best, rank};
use crate::controller::detector::marks;
use crate::controller::detector::wake::{Edit, Woken, edit, overrides_of, urgency, woken};
use crate::propagation::{Policy, PolicyName, Template};
use common::queue::Priority;
use serde_json::{Value, json};

#[test]
fn checks_8_and_9_how_closely_a_selector_names_a_template() {
    let labels = |value: &str| json!({"matchLabels": {"app": value}});
    let bad = json!({"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]});
    let cases = [
        (json!({}), Some(Rank::Kind)),
        (json!({"name": "nginx"}), Some(Rank::Name)),
        (json!({"name": "apache"}), None),
        (json!({"labelSelector": labels("web")}), Some(Rank::Labels)),
        (json!({"labelSelector": labels("db")}), None),
        (json!({"labelSelector": {}}), Some(Rank::Labels)),
        (json!({"labelSelector": bad}), None),
        (
            json!({"name": "nginx", "labelSelector": labels("db")}),
            Some(Rank::Name),
        ),
        (
            json!({"name": "apache", "labelSelector": labels("web")}),
            None,
        ),
        (json!({"kind": "StatefulSet"}), None),
        (json!({"apiVersion": "example.org/v1"}), None),
        (json!({"apiVersion": "v1"}), None),
        // Check 71, where the reference knows one version only.
        (json!({"apiVersion": "apps/v1beta1"}), Some(Rank::Kind)),
        (json!({"namespace": "default"}), Some(Rank::Kind)),
        (json!({"namespace": ""}), Some(Rank::Kind)),
        (json!({"namespace": "other"}), None),
    ];
    for (selector, want) in cases {
        let cluster_wide = cluster_policy("c", selector.clone(), json!({}));
        assert_eq!(rank(&cluster_wide, &nginx()), want, "{selector}");
        let own = policy("p", selector.clone(), json!({}));
        assert_eq!(rank(&own, &nginx()), want, "{selector}");
        let elsewhere = Policy {
            name: PolicyName {
                namespace: Some("other".into()),
                name: "p".into(),
            },
            ..own
        };
        assert_eq!(rank(&elsewhere, &nginx()), None, "{selector}");
    }
}

#[test]
fn checks_4_to_6_who_comes_first() {
    let with = |priority: i32| json!({ "priority": priority });
    let name = json!({"name": "nginx"});
    let cases: [(Vec<Policy>, Option<&str>); 8] = [
        (
            vec![
                policy("y", json!({}), with(0)),
                policy("x", json!({}), with(0)),
            ],
            Some("x"),
        ),
        (
            vec![
                policy("a", json!({}), with(1)),
                policy("b", name.clone(), with(0)),
            ],
            Some("a"),
        ),
        (
            vec![
                policy("a", json!({}), with(0)),
                policy("b", name.clone(), with(0)),
            ],
            Some("b"),
        ),
        (
            vec![
                policy("a", json!({}), with(-1)),
                policy("b", json!({}), with(0)),
            ],
            Some("b"),
        ),
        (
            vec![
                cluster_policy("a", name.clone(), with(100)),
                policy("b", json!({}), with(0)),
            ],
            Some("b"),
        ),
        (
            vec![
                cluster_policy("b", json!({}), with(1)),
                cluster_policy("a", name, with(0)),
            ],
            Some("b"),
        ),
        (vec![policy("a", json!({"kind": "Job"}), with(9))], None),
        (vec![], None),
    ];
    for (policies, want) in cases {
        let chosen = best(&policies, &nginx());
        assert_eq!(chosen.map(|it| it.name.name.as_str()), want, "{policies:?}");
    }
    let mut going = policy("a", json!({}), json!({}));
    going.deleting = true;
    let mut nameless = policy("b", json!({}), json!({}));
    nameless.id.clear();
    assert_eq!(best([&going, &nameless], &nginx()), None);
}

#[test]
fn a_policy_carries_its_id_and_a_finalizer_until_it_holds_nothing() {
    let ours = "karmada.io/propagation-policy-controller";
    let new = Policy {
        id: String::new(),
        ..policy("p", json!({}), json!({}))
    };
    let going = |id: &str| Policy {
        id: id.into(),
        deleting: true,
        ..new.clone()
    };
    let known = policy("p", json!({}), json!({}));
    let label = "propagationpolicy.karmada.io/permanent-id";
    let cases: [(&Policy, &[&str], bool, Value); 7] = [
        (
            &new,
            &["x"],
            false,
            json!({"labels": {label: "fresh"}, "finalizers": ["x", ours], "resourceVersion": "7"}),
        ),
        (
            &known,
            &[],
            true,
            json!({"finalizers": [ours], "resourceVersion": "7"}),
        ),
        (&known, &[ours], false, Value::Null),
        (&going("id"), &[ours, "x"], true, Value::Null),
        (
            &going("id"),
            &[ours, "x"],
            false,
            json!({"finalizers": ["x"], "resourceVersion": "7"}),
        ),
        (&going(""), &["x"], false, Value::Null),
        (&going(""), &[], true, Value::Null),
    ];
    for (policy, finalizers, holds, want) in cases {
        let finalizers: Vec<String> = finalizers.iter().map(|it| (*it).to_owned()).collect();
        let patch = marks::patch(policy, "7", &finalizers, holds, "fresh");
        let metadata = patch.map_or(Value::Null, |it| it["metadata"].clone());
        assert_eq!(metadata, want, "{policy:?} {finalizers:?} {holds}");
    }
    let wide = cluster_policy("c", json!({}), json!({}));
    let patch = marks::patch(&wide, "7", &[], false, "fresh").expect("a patch");
    let finalizer = "karmada.io/cluster-propagation-policy-controller";
    assert_eq!(patch["metadata"]["finalizers"], json!([finalizer]));
}

#[test]
fn an_edit_is_what_the_author_wrote() {
    let before = nginx();
    let changed = |change: fn(&mut Template)| {
        let mut after = before.clone();
        change(&mut after);
        edit(Some(&before), &after)
    };
    let content = Some(Edit::Content);
    assert_eq!(edit(None, &before), content);
    assert_eq!(
        changed(|it| it.resource_version = "9".into()),
        None,
        "a status"
    );
    assert_eq!(changed(|it| it.digest += 1), content);
    assert_eq!(changed(|it| it.uid = "uid-9".into()), content);
    let labelled = changed(|it| drop(it.labels.insert("a".into(), "b".into())));
    assert_eq!(labelled, content);
    assert_eq!(changed(|it| drop(it.labels.remove("app"))), content);
    let annotated = changed(|it| drop(it.annotations.insert("example.org/x".into(), "y".into())));
    assert_eq!(annotated, content);
    let claim = |it: &mut Template| {
        it.labels.insert(
            "propagationpolicy.karmada.io/permanent-id".into(),
            "id".into(),
        );
        it.annotations
            .insert("propagationpolicy.karmada.io/name".into(), "p".into());
    };
    assert_eq!(changed(claim), None);
    // What people say in the system's words is carried on, and activates nothing.
    for key in [
        "work.karmada.io/conflict-resolution",
        "resourcetemplate.karmada.io/deletion-protected",
    ] {
        let mut after = before.clone();
        after.annotations.insert(key.to_owned(), "x".to_owned());
        assert_eq!(edit(Some(&before), &after), Some(Edit::Marks), "{key}");
    }
    let skip = |it: &mut Template| {
        it.labels.insert(
            "namespace.karmada.io/skip-auto-propagation".into(),
            "true".into(),
        );
    };
    assert_eq!(changed(skip), content);
    let object = |data: &str, phase: &str| {
        Template::of(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generation": 7},
            "data": {"k": data}, "status": {"phase": phase}}))
        .expect("a template")
    };
    assert_eq!(edit(Some(&object("1", "x")), &object("2", "x")), content);
    assert_eq!(edit(Some(&object("1", "x")), &object("1", "y")), None);
}

#[test]
fn at_a_start_what_nobody_holds_yet_goes_before_what_somebody_does() {
    let free = nginx();
    let with = |place: fn(&mut Template)| {
        let mut changed = nginx();
        place(&mut changed);
        changed
    };
    let held = with(|it| {
        let annotations = [("namespace", "default"), ("name", "p")];
        let claim = annotations.map(|(key, value)| {
            (
                format!("propagationpolicy.karmada.io/{key}"),
                value.to_owned(),
            )
        });
        it.annotations.extend(claim);
        let id = "propagationpolicy.karmada.io/permanent-id".to_owned();
        it.labels.insert(id, "id".to_owned());
    });
    let changed = with(|it| it.digest += 1);
    let status = with(|it| it.resource_version = "9".to_owned());
    // What was there, what is, whether a list tells of it.
    let cases = [
        (None, &free, false, Some(Priority::Urgent)),
        (None, &held, false, Some(Priority::Urgent)),
        (None, &free, true, Some(Priority::Normal)),
        (None, &held, true, Some(Priority::Backlog)),
        (Some(&free), &changed, false, Some(Priority::Urgent)),
        (Some(&free), &changed, true, Some(Priority::Urgent)),
        (Some(&free), &held, false, Some(Priority::Backlog)),
        (Some(&free), &status, false, None),
    ];
    for (number, (old, new, listed, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(urgency(old, new, listed), wanted, "case {number}");
    }
}

#[test]
fn a_policy_wakes_what_it_selected_selects_and_holds() {
    let old = policy(
        "p",
        json!({"name": "a"}),
        json!({"dependentOverrides": ["o"]}),
    );
    let new = policy("p", json!({"name": "b"}), json!({}));
    assert_eq!(woken(Some(&old), Some(&old.clone())), Woken::default());
    let woken = woken(Some(&old), Some(&new));
    assert_eq!(woken.held_by.as_ref(), Some(&old.name));
    let names: Vec<Option<&str>> = woken.selected.iter().map(|it| it.name.as_deref()).collect();
    assert_eq!(names, [Some("a"), Some("b")]);
    assert!(
        woken
            .selected
            .iter()
            .all(|it| it.namespace.as_deref() == Some("default"))
    );
    let waited: Vec<String> = overrides_of(&old).iter().map(ToString::to_string).collect();
    assert_eq!(waited, ["default/o"]);
}
