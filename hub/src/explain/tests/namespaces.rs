//! What is said of Namespaces, which have no binding, and of the Works that carry them.

use super::seeds::{applied, cluster, condition, healthy, now, work};
use crate::explain::template::explain;
use crate::explain::{Cause, Stage};
use common::api::work::Work;
use serde_json::{Value, json};

/// The Work of the Namespace for m2, as far as it was applied.
fn work_of_namespace(applied: &Value) -> Work {
    let mut work = work("m2", std::slice::from_ref(applied), &json!({}));
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": "n", "controller": true}]);
    work.metadata.annotations = None;
    work.metadata.owner_references = serde_json::from_value(owner).expect("owners");
    work.spec = serde_json::from_value(json!({"workload": {"manifests": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}]}}))
    .expect("a spec");
    work
}

#[test]
fn a_namespace_is_where_its_works_are_applied() {
    let forbidden = condition(
        "Applied",
        "False",
        "AppliedFailed",
        "Namespace shop: the agent may not patch namespaces; allow it in the member with `towline register --allow namespaces` or with a role",
    );
    let asked = |works: Vec<Work>| {
        let mut seen = healthy();
        seen.resource = "namespaces".into();
        seen.template = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "n"}});
        (seen.binding, seen.works) = (None, works);
        explain(&seen)
    };
    assert!(asked(Vec::new()).well);
    let well = asked(vec![work_of_namespace(&applied())]);
    assert!(well.well, "{well:?}");
    assert_eq!(well.links.last().map(|it| it.stage), Some(Stage::Health));
    let broken = asked(vec![work_of_namespace(&forbidden)]).broken;
    let broken = broken.expect("broken");
    assert_eq!(
        (broken.stage, broken.cause, broken.cluster.as_deref()),
        (Stage::Applied, Cause::PermissionMissing, Some("m2"))
    );
}

#[test]
fn a_work_of_a_namespace_says_so() {
    let seen = |work| crate::explain::work::Seen {
        now: now(),
        work,
        cluster: Some(cluster("m2", &json!({}))),
        renewed: Some(now()),
        hub: None,
        unseen: Vec::new(),
    };
    let mut by_hand = work_of_namespace(&applied());
    by_hand.metadata.owner_references = None;
    for (work, said) in [
        (
            work_of_namespace(&applied()),
            "Namespace, made of the Namespace shop for what lies in it",
        ),
        (by_hand, "Namespace, written by hand"),
    ] {
        let report = crate::explain::work::explain(&seen(work));
        assert_eq!(report.links[0].what, said);
    }
}
