//! Plans as they are shown.

use super::screen::{self, text};
use crate::cli::approved;
use crate::plan::tests::{
    apply, cluster, delete, deployment, hub, image, planned, policy, tainted, weighed,
};
use crate::plan::{Difference, Plan, Refused};
use serde_json::{Value, json};

fn approve(name: &str, plan: &Plan) {
    approved::screens("cli/plan/screens", name, |_, colours| text(plan, colours));
}

fn web() -> [Value; 2] {
    [
        policy("web", weighed(&[("m1", 2), ("m2", 1)])),
        deployment("web", 6),
    ]
}

#[test]
fn what_moves_is_shown_by_cluster() {
    let hub = hub(&[
        apply(web()[0].clone()),
        apply(web()[1].clone()),
        apply(image("m2", "2")),
    ]);
    let moved = apply(policy("web", weighed(&[("m2", 1), ("m3", 2)])));
    approve("moved", &planned(&hub, &[moved, apply(image("m2", "3"))]));
    approve("same", &planned(&hub, &[apply(web()[0].clone())]));
    approve("released", &planned(&hub, &[delete(&web()[0])]));
    approve("without", &planned(&hub, &[delete(&cluster("m1"))]));
    let drain = json!([{"key": "drain", "effect": "NoExecute"}]);
    approve("drained", &planned(&hub, &[apply(tainted("m1", drain))]));
}

#[test]
fn what_cannot_be_known_or_done_is_shown() {
    let mut new = deployment("web", 3);
    new["metadata"]
        .as_object_mut()
        .expect("an object")
        .remove("uid");
    let even = policy("web", weighed(&[("m1", 1), ("m2", 1)]));
    let mut plan = planned(&hub(&[]), &[apply(even), apply(new)]);
    plan.templates[0].otherwise = vec!["held by PropagationPolicy shop/one".to_owned()];
    plan.unknown
        .push("m3 has not reported what room it has".to_owned());
    let refused = Refused::of(&apply(image("m1", "1")), "it is not to be".to_owned());
    plan.refused.extend(refused);
    approve("open", &plan);
    let nowhere = policy("web", json!({"clusterAffinity": {"clusterNames": ["m9"]}}));
    approve(
        "nowhere",
        &planned(&hub(&[]), &[apply(nowhere), apply(deployment("web", 2))]),
    );
}

#[test]
fn what_is_held_back_and_what_stays_is_shown() {
    let [mut suspended, template] = web();
    suspended["spec"]["suspension"] = json!({"dispatching": true});
    let known = hub(&[apply(suspended), apply(template.clone())]);
    let scaled = apply(deployment("web", 9));
    approve("held_back", &planned(&known, &[scaled]));
    approve("resumed", &planned(&known, &[apply(web()[0].clone())]));
    let [mut preserving, _] = web();
    preserving["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let known = hub(&[apply(preserving.clone()), apply(template)]);
    approve("preserved", &planned(&known, &[delete(&preserving)]));
}

#[test]
fn a_difference_does_nothing_to_a_terminal() {
    let one = Difference {
        path: "spec.\u{1b}[2J\n.a".to_owned(),
        before: Some(json!("\u{9b}31m")),
        after: None,
    };
    let told = screen::difference(&one);
    assert_eq!(told, "- spec.\\u{1b}[2J .a: \"\\u{9b}31m\"");
}
