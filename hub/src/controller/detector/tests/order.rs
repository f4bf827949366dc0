//! Which template goes first.

use crate::controller::bindings::Bindings;
use crate::controller::detector::Detector;
use crate::controller::detector::holdings::Holdings;
use crate::controller::detector::skip::Skips;
use crate::controller::detector::unsettled::Unsettled;
use crate::controller::notices::Notices;
use crate::controller::scheduler::Placing;
use crate::world::testing::{nobody, unreachable};
use common::chance::Chance;
use serde_json::{Value, json};

fn binding(template: &str) -> Value {
    let resource =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": template});
    json!({"metadata": {"namespace": "n", "name": format!("{template}-configmap"),
        "resourceVersion": "1"}, "spec": {"resource": resource}})
}

#[tokio::test]
async fn what_comes_after_a_start_goes_before_what_was_there() {
    let world = unreachable();
    let bindings = Bindings::new(nobody(), world.clone(), Notices::default());
    let detector = Detector::watching(
        nobody(),
        (bindings, Placing::watching(&world)),
        Skips::default(),
        (Holdings::default(), Unsettled::default()),
        &Chance::seeded(1),
        &world,
    );
    let queue = detector.queue();
    let views = &world.propagation;
    views.bindings.listed(&[binding("a"), binding("b")]).await;
    views.bindings.sent(&[binding("new")]).await;
    let taken = std::iter::from_fn(|| queue.try_next());
    let names: Vec<String> = taken.map(|it| it.name.name.to_string()).collect();
    assert_eq!(names, ["new", "a", "b"]);
}
