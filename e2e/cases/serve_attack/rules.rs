//! Selectors, patterns and rules that take longer to decide than anybody would wait.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::wire::{exchange, request};
use super::{Rig, SOON};
use crate::env::{JSON, ask, wait_for};

/// Defines a kind of the group `lab.towline.dev` and waits until it is served.
pub(super) async fn define(rig: &Rig, plural: &str, kind: &str, schema: Value) -> Result<()> {
    let (code, body) = try_define(rig, plural, kind, schema).await?;
    ensure!(code == 201, "{code} {body}");
    let path = format!("/apis/lab.towline.dev/v1/namespaces/mine/{plural}");
    wait_for("the kind", SOON, async || {
        Ok(ask(&rig.admin, "GET", &path, None).await?.code == 200)
    })
    .await
}

async fn try_define(rig: &Rig, plural: &str, kind: &str, schema: Value) -> Result<(u16, String)> {
    let object = json!({
        "metadata": {"name": format!("{plural}.lab.towline.dev")},
        "spec": {"group": "lab.towline.dev", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = ask(&rig.admin, "POST", path, Some((JSON, &object.to_string()))).await?;
    Ok((answer.code, answer.body))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_and_patterns_end() -> Result<()> {
    let rig = Rig::begin("serve-attack-rules").await?;
    let ruled = |longest: usize, rule: &str| {
        let list = json!({"type": "array", "maxItems": longest, "items": {"type": "integer"}});
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"list": list, "text": {"type": "string", "pattern": "^(a+)+$"}}}}})
    };
    // What could cost too much is no definition.
    let rule = "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))";
    let (code, body) = try_define(&rig, "ruled", "Ruled", ruled(50_000, rule)).await?;
    ensure!(
        code == 422 && body.contains("exceeds budget"),
        "{code} {body}"
    );
    // What is within bounds as it stands may still cost too much for one object.
    let rule = "self.list.all(a, self.list.all(b, a + b >= 0))";
    define(&rig, "ruled", "Ruled", ruled(1_000, rule)).await?;
    let make = async |name: &str, spec: Value| {
        let object = json!({"apiVersion": "lab.towline.dev/v1", "kind": "Ruled",
            "metadata": {"name": name}, "spec": spec});
        let path = "/apis/lab.towline.dev/v1/namespaces/mine/ruled";
        ask(&rig.admin, "POST", path, Some((JSON, &object.to_string()))).await
    };
    make("few", json!({"list": [1, 2, 3]})).await?.ok()?;
    let answer = make("many", json!({"list": vec![1; 1_000]})).await?;
    ensure!(answer.code == 422, "{} {}", answer.code, answer.body);
    ensure!(answer.body.contains("cost"), "{}", answer.body);
    make("text", json!({"list": [], "text": "aaa"}))
        .await?
        .ok()?;
    let answer = make(
        "trap",
        json!({"list": [], "text": format!("{}b", "a".repeat(200_000))}),
    )
    .await?;
    ensure!(answer.code == 422, "{}", answer.code);

    // What cannot be read in bounds is no definition.
    let of = |rule: &str| json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
    for schema in [
        of(&format!("{}true{}", "(".repeat(7000), ")".repeat(7000))),
        of(&format!("1{} > 0", "+1".repeat(7000))),
        of(&format!("{} == 1", " ".repeat(1_000_000))),
        json!({"type": "object", "properties": {"a": {"type": "string",
            "pattern": "((a{1000}){1000}){1000}"}}}),
    ] {
        let (code, body) = try_define(&rig, "unread", "Unread", schema).await?;
        let shown: String = body.chars().take(400).collect();
        ensure!(code == 422, "{code} {shown}");
    }
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_end() -> Result<()> {
    let rig = Rig::begin("serve-attack-selectors").await?;
    let maps = "/api/v1/namespaces/mine/configmaps";
    let values: Vec<String> = (0..8000).map(|n| format!("v{n}")).collect();
    let within = format!("{maps}?labelSelector=a%20in%20({})", values.join(","));
    let terms: Vec<String> = (0..4000).map(|n| format!("k{n}!=v")).collect();
    let get = async |path: &str| exchange(&rig.plane, false, &request("GET", path, "")).await;
    let told = get(&within).await?.is(&[200])?;
    ensure!(!told.body.contains("\"of\""), "{}", told.body);
    let path = format!("{maps}?labelSelector={}", terms.join(","));
    let told = get(&path).await?.is(&[200])?;
    ensure!(told.body.contains("\"of\""), "{}", told.body);
    for selector in [
        "((((((((", "a in (((", "!!!!!!!!", ",,,,,,,,", "a=b=c=d", "a in (",
    ] {
        let selector = selector.replace(' ', "%20");
        let path = format!("{maps}?labelSelector={}", selector.repeat(500));
        get(&path).await?.is(&[400])?;
    }
    rig.end().await
}
