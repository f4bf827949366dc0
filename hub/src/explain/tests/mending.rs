//! What is named as the mend of a failure is carried out, as far as it changes what the hub has: the link that was
//! broken holds then, or the hub has only not looked yet.

use super::failures::{Failure, failures};
use super::seeds::policy;
use crate::explain::template::{Seen, explain};
use crate::explain::{Cause, Stage};
use common::api::cluster::Cluster;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a shell would hand to a command: words, and what is in quotes whole.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("a word").push(other),
        }
    }
    words
}

fn change_cluster(cluster: &mut Cluster, patch: &Value) {
    let mut whole = serde_json::to_value(&*cluster).expect("a Cluster");
    json_patch::merge(&mut whole, patch);
    *cluster = serde_json::from_value(whole).expect("a Cluster");
}

/// Does what a command says; false for one that changes nothing that the hub has read.
fn carry_out(seen: &mut Seen, command: &str) -> bool {
    if let Some(yaml) = command.strip_prefix("kubectl apply -f - <<'EOF'\n") {
        let yaml = yaml.strip_suffix("\nEOF").expect("an end");
        let object: Value = serde_yaml::from_str(yaml).expect("YAML");
        if object["spec"]["resourceSelectors"][0]["kind"] == "CustomResourceDefinition" {
            return false;
        }
        let namespace = object["metadata"]["namespace"].as_str();
        let name = object["metadata"]["name"].as_str().expect("a name");
        seen.policies.push(policy(namespace, name, &object["spec"]));
        return true;
    }
    let all = words(command);
    let mut rest: Vec<&str> = all.iter().map(String::as_str).collect();
    if rest.get(1) == Some(&"-n") {
        rest.drain(1..3);
    }
    match rest[..] {
        ["kubectl", "patch", "pp/web", "--type=merge", "-p", patch] => {
            let patch: Value = serde_json::from_str(patch).expect("JSON");
            let mut spec = json!({"spec": seen.policies[0].spec});
            json_patch::merge(&mut spec, &patch);
            seen.policies[0].spec = serde_json::from_value(spec["spec"].clone()).expect("a spec");
            if let Some(bound) = &mut seen.binding {
                bound.spec.placement = Some(Arc::new(seen.policies[0].spec.placement.clone()));
            }
            let of_policy = ["placement", "dependentOverrides", "activationPreference"];
            of_policy.iter().any(|it| patch["spec"].get(*it).is_some())
        }
        [
            "kubectl",
            "patch",
            "cluster",
            name,
            "--type=merge",
            "-p",
            patch,
        ] => {
            let patch: Value = serde_json::from_str(patch).expect("JSON");
            let mut all = seen.clusters.iter_mut();
            let cluster = all.find(|it| it.metadata.name.as_deref() == Some(name));
            change_cluster(cluster.expect("a cluster"), &patch);
            true
        }
        ["kubectl", "label", "cluster", name, "--overwrite", label] => {
            let (key, value) = label.split_once('=').expect("a label");
            let patch = json!({"metadata": {"labels": {key: value}}});
            let mut all = seen.clusters.iter_mut();
            let cluster = all.find(|it| it.metadata.name.as_deref() == Some(name));
            change_cluster(cluster.expect("a cluster"), &patch);
            true
        }
        [
            "kubectl",
            "label",
            "deployments.apps",
            "web",
            "--overwrite",
            label,
        ] => {
            let (key, value) = label.split_once('=').expect("a label");
            seen.template["metadata"]["labels"] = json!({key: value});
            true
        }
        ["kubectl", "scale", "deployments.apps", "web", replicas] => {
            let replicas = replicas.strip_prefix("--replicas=").expect("a number");
            seen.binding.as_mut().expect("there").spec.replicas = replicas.parse().ok();
            true
        }
        [
            "kubectl",
            "patch",
            "rb/web-deployment",
            "--type=merge",
            "-p",
            patch,
        ] => {
            let patch: Value = serde_json::from_str(patch).expect("JSON");
            assert_eq!(patch, json!({"spec": {"suspension": {"scheduling": null}}}));
            seen.binding.as_mut().expect("there").spec.suspension = None;
            true
        }
        ["kubectl", "patch", "ric/webs", "--type=json", "-p", patch] => {
            let patch: Value = serde_json::from_str(patch).expect("JSON");
            let path = patch[0]["path"].as_str().expect("a path");
            assert!(path.starts_with("/spec/customizations/"), "{path}");
            seen.scripts.clear();
            true
        }
        ["towline", "uncordon", ..] => {
            for cluster in &mut seen.clusters {
                cluster.spec.taints.clear();
            }
            true
        }
        _ => false,
    }
}

#[test]
fn what_mends_on_the_hub_mends() {
    let mut mended = Vec::new();
    for failure in failures() {
        let Failure {
            name,
            mut seen,
            stage,
            ..
        } = failure;
        let broken = explain(&seen).broken.expect("broken");
        if broken.mend.member.is_some() {
            continue;
        }
        let mut changed = false;
        for command in &broken.mend.commands {
            changed |= carry_out(&mut seen, command);
        }
        if !changed {
            continue;
        }
        let after = explain(&seen).broken;
        let holds = after
            .as_ref()
            .is_none_or(|it| it.stage > stage || it.cause == Cause::HubIsLate);
        assert!(holds, "{name}: {after:?}");
        mended.push((name, stage));
    }
    let placed = mended
        .iter()
        .filter(|(_, stage)| *stage == Stage::Placement)
        .count();
    assert!(placed >= 7 && mended.len() >= 15, "{mended:?}");
}
