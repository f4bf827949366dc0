//! A tenant's overrides against what they must not decide about.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::rig::{MINE, Rig, SOON, THEIRS, as_user, path, policy};
use crate::env::wait_for_some;

/// Pointers that no override may follow.
const POINTERS: [&str; 13] = [
    "",
    "/apiVersion",
    "/kind",
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/finalizers/-",
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/labels/karmada.io~1managed",
    "/metadata/labels/work.karmada.io~1permanent-id",
    "/metadata/annotations/resourcebinding.karmada.io~1name",
];

fn overriding(name: &str, of: &str, overriders: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": of}],
        "overrideRules": [{"overriders": overriders}]}})
}

fn at(pointer: &str, value: Value) -> Value {
    json!({"plaintext": [{"path": pointer, "operator": "add", "value": value}]})
}

/// What a binding shows to be wrong.
async fn degraded(rig: &Rig, binding: &str) -> Result<String> {
    let binding = format!("{}/{binding}", path("ResourceBinding", MINE));
    let what = format!("the condition of {binding}");
    wait_for_some(&what, SOON, async || {
        let held = rig.get(&binding).await?.context("no binding")?;
        let conditions = held["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let found = conditions.find(|it| it["type"] == "Degraded" && it["status"] == "True");
        Ok(found.map(|it| it["message"].as_str().unwrap_or_default().to_owned()))
    })
    .await
}

/// Where it can be seen it is refused at once; what an overrider of another kind does to the same parts is refused
/// when the manifest is made, and the binding says so. The twin changes a value and a label of the tenant's own.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_decides_about_values_alone() -> Result<()> {
    let rig = Rig::begin("override-values").await?;
    let overrides = path("OverridePolicy", MINE);
    for pointer in POINTERS {
        let value = json!("of-another");
        let sent = overriding("bad", "c", at(pointer, value));
        let answer = as_user(&rig.tenant, "POST", &overrides, &sent).await?;
        ensure!(
            answer.code == 422,
            "{pointer:?}: {} {}",
            answer.code,
            answer.body
        );
    }
    for (name, object) in [
        ("c", json!({"k": "v"})),
        ("labelled", json!({"k": "v"})),
        ("annotated", json!({"k": "v"})),
        ("whole", json!({"k": "v"})),
    ] {
        let map = json!({"metadata": {"name": name}, "data": object});
        as_user(&rig.tenant, "POST", &path("ConfigMap", MINE), &map)
            .await?
            .ok()?;
    }
    let twin = json!({"plaintext": [
        {"path": "/data/k", "operator": "replace", "value": "mine"},
        {"path": "/metadata/annotations", "operator": "add", "value": {}}]});
    let refused = as_user(
        &rig.tenant,
        "POST",
        &overrides,
        &overriding("twin", "c", twin),
    )
    .await?;
    ensure!(refused.code == 422, "{} {}", refused.code, refused.body);
    let twin = json!({
        "plaintext": [{"path": "/data/k", "operator": "replace", "value": "mine"}],
        "labelsOverrider": [{"operator": "add", "value": {"team": "mine"}}]});
    let labels = json!({"labelsOverrider": [{"operator": "add",
        "value": {"work.karmada.io/permanent-id": "11111111-1111-4111-8111-111111111111"}}]});
    let annotations = json!({"annotationsOverrider": [{"operator": "add",
        "value": {"resourcebinding.karmada.io/namespace": THEIRS}}]});
    // A text that is patched as a document is a text still: of a label it is none.
    let document = json!({"fieldOverrider": [{"fieldPath": "/metadata/name",
        "json": [{"subPath": "", "operator": "replace", "value": "other"}]}]});
    for (name, of, overriders) in [
        ("twin", "c", twin),
        ("labels", "labelled", labels),
        ("annotations", "annotated", annotations),
        ("document", "whole", document),
    ] {
        let sent = overriding(name, of, overriders);
        as_user(&rig.tenant, "POST", &overrides, &sent)
            .await?
            .ok()?;
    }
    let all = policy("all", "v1", "ConfigMap", None);
    as_user(&rig.tenant, "POST", &path("PropagationPolicy", MINE), &all)
        .await?
        .ok()?;

    let work = rig.placed("m1", "c").await?;
    let manifest = &work["spec"]["workload"]["manifests"][0];
    ensure!(manifest["data"]["k"] == "mine", "{manifest}");
    ensure!(
        manifest["metadata"]["labels"]["team"] == "mine",
        "{manifest}"
    );
    for (of, part) in [
        ("labelled", "/metadata/labels/work.karmada.io~1permanent-id"),
        (
            "annotated",
            "/metadata/annotations/resourcebinding.karmada.io~1namespace",
        ),
    ] {
        let told = degraded(&rig, &format!("{of}-configmap")).await?;
        ensure!(told.contains(part), "{told}");
        let works = rig.works("m1", of).await?;
        ensure!(works.is_empty(), "{works:?}");
    }
    // Whatever it makes of the text, no object of another name leaves the hub.
    degraded(&rig, "whole-configmap").await?;
    for name in ["whole", "other"] {
        let works = rig.works("m1", name).await?;
        ensure!(works.is_empty(), "{works:?}");
    }

    // Mended, it is placed, and nothing is wrong any more.
    rig.delete(&format!("{overrides}/labels")).await?;
    rig.placed("m1", "labelled").await?;
    let binding = format!("{}/labelled-configmap", path("ResourceBinding", MINE));
    crate::env::wait_for("a binding that nothing is wrong with", SOON, async || {
        let held = rig.get(&binding).await?.context("no binding")?;
        ensure!(!held["status"].to_string().contains("Degraded"), "{held}");
        Ok(true)
    })
    .await?;
    rig.end().await
}

/// Why an override does not apply is told to whoever reads Events and bindings: nothing of a Secret is in it.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_tells_nothing_of_a_secret() -> Result<()> {
    const HIDDEN: &str = "SGlkZGVuLUZyb20tRXZlcnlib2R5Cg==";
    let rig = Rig::begin("override-secret").await?;
    for (kind, name, data) in [
        ("Secret", "key", json!({"k": HIDDEN})),
        ("ConfigMap", "map", json!({"k": "No Image"})),
    ] {
        let object = json!({"metadata": {"name": name}, "data": data});
        as_user(&rig.tenant, "POST", &path(kind, MINE), &object)
            .await?
            .ok()?;
        let image = json!({"imageOverrider": [{"component": "Tag", "operator": "replace", "value": "v9",
            "predicate": {"path": "/data/k"}}]});
        let sent = json!({"metadata": {"name": name}, "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": kind, "name": name}],
            "overrideRules": [{"overriders": image}]}});
        as_user(&rig.tenant, "POST", &path("OverridePolicy", MINE), &sent)
            .await?
            .ok()?;
        let placing = policy(name, "v1", kind, Some(name));
        as_user(
            &rig.tenant,
            "POST",
            &path("PropagationPolicy", MINE),
            &placing,
        )
        .await?
        .ok()?;
    }
    // The twin: what everybody may read is told.
    let told = degraded(&rig, "map-configmap").await?;
    ensure!(told.contains("No Image"), "{told}");
    let told = degraded(&rig, "key-secret").await?;
    ensure!(told.contains("Secret") && !told.contains(HIDDEN), "{told}");
    for kind in ["Event", "ResourceBinding"] {
        let all = rig.get(&path(kind, MINE)).await?.context("no list")?;
        ensure!(!all.to_string().contains(HIDDEN), "{all}");
    }
    rig.end().await
}
