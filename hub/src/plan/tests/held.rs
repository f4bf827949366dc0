//! Templates that a policy holds back: by suspension, or while it waits for overrides.

use super::*;

/// The Deployment `web` with another image.
fn edited() -> Value {
    let mut edited = deployment("web", 6);
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.io/web:2");
    edited
}

#[test]
fn what_is_edited_while_its_policy_suspends_dispatching_changes_in_no_member() {
    let suspended = saying("suspension", json!({"dispatching": true}));
    let hub = hub(&[apply(suspended), apply(deployment("web", 6))]);
    let plan = planned(&hub, &[apply(edited())]);
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Stays 4 4", "m2 Stays 2 2"]);
    let clusters = &plan.templates[0].clusters;
    assert!(clusters.iter().all(|it| it.held && it.changes.is_empty()));
    assert_eq!(plan.unchanged, 1);
}

#[test]
fn what_was_held_back_goes_where_it_is_so_no_longer() {
    let some = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
    let hub = hub(&[
        apply(saying("suspension", some)),
        apply(deployment("web", 6)),
    ]);
    let plan = planned(&hub, &web()[..1]);
    assert!(plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Changed 4 4", "m2 Stays 2 2"]);
    let clusters = plan.templates[0].clusters.iter();
    let released: Vec<bool> = clusters.map(|it| it.released).collect();
    assert_eq!(released, [true, false]);
    let [unknown] = plan.unknown.as_slice() else {
        panic!("{plan:?}");
    };
    assert!(unknown.contains("held back from m1"), "{unknown}");
}

#[test]
fn a_policy_that_waits_for_an_override_says_so() {
    let mut waiting = policy("web", json!({}));
    waiting["spec"]["dependentOverrides"] = json!(["image"]);
    let hub = hub(&[apply(deployment("web", 1))]);
    let plan = planned(&hub, &[apply(waiting)]);
    assert!(plan.changes());
    let waits = plan.templates[0].waits.after.as_deref();
    assert_eq!(waits, Some("waiting for dependent overrides: image"));
}

#[test]
fn what_waits_already_is_told_where_it_stays() {
    let waiting = |weights| {
        let mut waiting = policy("web", weighed(weights));
        waiting["spec"]["dependentOverrides"] = json!(["image"]);
        apply(waiting)
    };
    let hub = then(&hub(&web()), &[waiting(&[("m1", 2), ("m2", 1)])]);
    let plan = planned(&hub, &[waiting(&[("m3", 1)])]);
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!(told(&plan), ["m1 Stays 4 4", "m2 Stays 2 2"]);
    let waits = &plan.templates[0].waits;
    assert_eq!(waits.before, waits.after);
    assert!(waits.after.is_some());
    assert_eq!(plan.unchanged, 1);
}

#[test]
fn what_waits_and_is_not_concerned_is_not_told() {
    let waiting = saying("dependentOverrides", json!(["missing"]));
    let hub = then(&hub(&web()), &[apply(waiting)]);
    let mut elsewhere = image("m1", "2");
    elsewhere["metadata"]["namespace"] = json!("else");
    let plan = planned(&hub, &[apply(elsewhere)]);
    assert!(!plan.changes(), "{plan:?}");
    assert_eq!((plan.templates.len(), plan.unchanged), (0, 1));
    // One that is about it has its Works made.
    let plan = planned(&hub, &[apply(image("m2", "2"))]);
    assert_eq!(told(&plan), ["m1 Stays 4 4", "m2 Changed 2 2"]);
    let waits = &plan.templates[0].waits;
    assert!(waits.after.is_some() && waits.before == waits.after);
}

#[test]
fn what_is_edited_while_its_policy_waits_goes_along_only_when_its_works_are_made_later() {
    let waiting = saying("dependentOverrides", json!(["missing"]));
    let hub = then(&hub(&web()), &[apply(waiting)]);
    let taint = json!([{"key": "spare", "effect": "NoSchedule"}]);
    let labelled = |name: &str| {
        let mut cluster = cluster(name);
        cluster["metadata"]["labels"] = json!({"tier": "gold"});
        cluster
    };
    let mut of_hub = image("m9", "3");
    of_hub["kind"] = json!("ClusterOverridePolicy");
    of_hub["metadata"] = json!({"name": "all"});
    let (stays, changes) = (
        ["m1 Stays 4 4", "m2 Stays 2 2"],
        ["m1 Changed 4 4", "m2 Changed 2 2"],
    );
    // What changes too, and what becomes of the template where that comes after its edit.
    let cases = [
        (tainted("m1", taint.clone()), stays),
        (tainted("m3", taint), stays),
        (labelled("m3"), stays),
        (labelled("m1"), changes),
        (of_hub, changes),
    ];
    for (other, wanted) in cases {
        let (edited, other) = (apply(edited()), apply(other));
        let after = planned(&hub, &[edited.clone(), other.clone()]);
        assert_eq!(told(&after), wanted, "{other:?}");
        let before = planned(&hub, &[other.clone(), edited]);
        assert_eq!(told(&before), stays, "{other:?}");
        // In which order the hub sees them nobody knows.
        let open = [&after, &before].map(|it| it.templates[0].is_open());
        assert_eq!(open, [wanted == changes; 2], "{other:?}");
    }
}

#[test]
fn what_is_edited_once_its_policy_waits_leaves_members_what_they_had_then() {
    let waiting = || apply(saying("dependentOverrides", json!(["missing"])));
    let hub = hub(&web());
    let manifest = |changes: &[Change]| -> Option<Value> {
        let plans = each(now(), &options(), &hub, changes, true);
        let template = plans[0].templates.first();
        template.and_then(|it| it.clusters[0].manifest.clone())
    };
    let overridden = manifest(&[apply(image("m1", "3"))]);
    assert!(overridden.is_some());
    let changes = [apply(image("m1", "3")), waiting(), apply(edited())];
    assert_eq!(manifest(&changes), overridden);
}

/// Of what could not be made it is tried whichever cluster becomes another.
#[test]
fn what_waits_and_could_not_be_made_is_made_with_any_cluster() {
    let mut broken = image("m1", "3");
    broken["spec"]["overrideRules"][0]["overriders"] =
        json!({"plaintext": [{"path": "/spec/none/such", "operator": "replace", "value": 1}]});
    let waiting = saying("dependentOverrides", json!(["missing"]));
    let hub = then(&hub(&web()), &[apply(broken), apply(waiting)]);
    let mut labelled = cluster("m3");
    labelled["metadata"]["labels"] = json!({"tier": "gold"});
    let spare = tainted("m3", json!([{"key": "spare", "effect": "NoSchedule"}]));
    for (other, wanted) in [(labelled, "m2 Changed 2 2"), (spare, "m2 Stays 2 2")] {
        let plan = planned(&hub, &[apply(edited()), apply(other.clone())]);
        assert_eq!(told(&plan)[1], wanted, "{other}");
    }
}
