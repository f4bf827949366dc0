//! Changes of clusters: cordons, taints, and the end of one.

use super::*;

#[test]
fn a_cordon_moves_nothing_and_a_cluster_that_goes_moves_what_is_there() {
    let mut everywhere = by_room();
    everywhere["clusterAffinity"] = json!({"clusterNames": ["m1", "m2", "m3"]});
    let hub = hub(&[
        apply(policy("web", everywhere)),
        apply(deployment("web", 6)),
    ]);
    let taint = json!([{"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}]);
    let plan = planned(&hub, &[apply(tainted("m1", taint))]);
    assert!(!plan.changes(), "{plan:?}");
    let plan = planned(&hub, &[delete(&cluster("m1"))]);
    assert_eq!(
        told(&plan),
        ["m1 Lost 2 -", "m2 Changed 2 3", "m3 Changed 2 3"]
    );
}

#[test]
fn what_does_not_tolerate_a_taint_leaves_and_what_does_for_a_while_later() {
    let drain = json!([{"key": "drain", "effect": "NoExecute"}]);
    let plan = planned(&hub(&web()), &[apply(tainted("m1", drain.clone()))]);
    assert_eq!(told(&plan), ["m1 Lost 4 -", "m2 Changed 2 6"]);
    let mut placement = weighed(&[("m1", 2), ("m2", 1)]);
    placement["clusterTolerations"] = json!([{"key": "drain", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    let hub = hub(&[apply(policy("web", placement)), apply(deployment("web", 6))]);
    let plan = planned(&hub, &[apply(tainted("m1", drain))]);
    let template = &plan.templates[0];
    assert!(
        template.after_seconds.is_some_and(|it| it >= 60),
        "{template:?}"
    );
}
