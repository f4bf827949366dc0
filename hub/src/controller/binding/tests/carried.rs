//! What members are to ask goes along in their Works, follows its customization, and goes with it.

use super::super::overrides::Overrides;
use super::super::overrides::cluster::ClusterFacts;
use super::super::render::{Binding, RenderError, Renderer};
use super::super::write::{content, patch};
use common::api::binding::{ResourceBinding, TargetCluster};
use common::api::interpreter::CustomizationSpec;
use common::api::work::Work;
use common::interpreter::custom::{Customizations, carried};
use common::interpreter::layers::Interpreter;
use common::labels::INTERPRETATION;
use serde_json::{Value, json};
use std::sync::Arc;

fn layer(name: &str, health: &str) -> Arc<Customizations> {
    let spec = json!({"target": {"apiVersion": "shop.example.com/v1", "kind": "Till"}, "customizations": {
        "healthInterpretation": {"luaScript": health}, "replicaResource": {"luaScript": "function GetReplicas() return 1 end"}}});
    let spec: CustomizationSpec = serde_json::from_value(spec).expect("a spec");
    Arc::new(Customizations::new([(name, &spec)]))
}

fn work(interpreter: &Interpreter) -> Result<Work, RenderError> {
    let template: Value = json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
        "metadata": {"name": "till", "namespace": "n", "uid": "u"}, "spec": {}});
    let binding: ResourceBinding = serde_json::from_value(json!({
        "metadata": {"name": "till-till", "namespace": "n", "uid": "b"},
        "spec": {"resource": {"apiVersion": "shop.example.com/v1", "kind": "Till", "name": "till", "namespace": "n"}}}))
    .expect("a binding");
    let overrides = Overrides::of(&template, [], []);
    let of = Binding::new(&binding.metadata, &binding.spec);
    let facts = ClusterFacts {
        name: "m1",
        labels: None,
        provider: None,
        region: None,
        zones: &[],
    };
    let target: TargetCluster = serde_json::from_value(json!({"name": "m1"})).expect("a target");
    Renderer::new(&template, of, &overrides, interpreter)?.render(&target, &facts, None)
}

#[test]
fn scripts_of_members_follow_their_customization() {
    let health = "function InterpretHealth(o) return o.spec ~= nil end";
    let ours = Interpreter::new(layer("ours", health), layer("theirs", "no Lua"));
    let with = work(&ours).expect("a Work");
    let annotations = with.metadata.annotations.clone().unwrap_or_default();
    let text = annotations.get(INTERPRETATION).expect("carried");
    let (gvk, rules) = carried::read(text).expect("reads");
    assert_eq!(gvk.kind, "Till");
    assert!(rules.health(&json!({"spec": {}})).expect("asked").is_ok());
    // The manifest has none of it.
    let manifest = with.spec.workload.manifests[0].to_string();
    assert!(!manifest.contains("InterpretHealth") && !manifest.contains(INTERPRETATION));

    let bare = work(&Interpreter::default()).expect("a Work");
    assert!(!json!(bare).to_string().contains(INTERPRETATION));
    // Each change of them is written, once.
    for (before, after) in [(&bare, &with), (&with, &bare)] {
        let written = patch(content(before).expect("JSON"), after).expect("JSON");
        let mut object = json!(before);
        json_patch::merge(&mut object, &written.expect("a write"));
        let now: Work = serde_json::from_value(object).expect("a Work");
        assert_eq!(
            patch(content(&now).expect("JSON"), after).expect("JSON"),
            None
        );
        assert_eq!(now.metadata.annotations, after.metadata.annotations);
    }
}

#[test]
fn scripts_that_do_not_go_into_a_work_are_an_error() {
    let long = format!(
        "function InterpretHealth() return true end --{}",
        "\"".repeat(70_000)
    );
    let failed = work(&Interpreter::new(layer("long", &long), Arc::default()));
    let told = failed.expect_err("too long").to_string();
    assert!(told.contains("shop.example.com/v1 Till"), "{told}");
}
