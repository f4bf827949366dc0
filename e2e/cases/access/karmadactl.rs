//! What karmadactl asks the built-in hub, as `karmadactl.txt` has it, and what comes of it in a member.

use super::clients::{all_rights, unbound};
use super::rig::{LONG, Stage, apply, ask, ask_with};
use crate::env::{repository, wait_for};
use anyhow::{Context as _, Result, bail, ensure};
use common::labels::{MANAGED, MANAGED_VALUE};
use kube::Client;
use serde_json::{Value, json};

const KEPT: [&str; 2] = [
    "/api/v1/namespaces/legacy/configmaps/kept",
    "/apis/apps/v1/namespaces/legacy/deployments/old",
];

/// One request, and what is answered.
#[derive(Debug, Default)]
struct Asked<'t> {
    command: &'t str,
    method: &'t str,
    path: &'t str,
    headers: Vec<(&'t str, &'t str)>,
    body: Option<Value>,
    code: u16,
    says: &'t str,
}

fn recorded(text: &str) -> Result<Vec<Asked<'_>>> {
    let mut all = Vec::new();
    for session in text.split("\n### ").skip(1) {
        let (command, lines) = session.split_once('\n').unwrap_or_default();
        let mut asked = Asked::default();
        for line in lines.lines().filter(|line| !line.is_empty()) {
            if let Some(answer) = line.strip_prefix("= ") {
                let (code, says) = answer.split_once(' ').context("no text")?;
                (asked.code, asked.says) = (code.parse()?, says);
                asked.command = command;
                all.push(std::mem::take(&mut asked));
            } else if line.starts_with('{') {
                asked.body = Some(serde_json::from_str(line)?);
            } else if let Some(header) = line.split_once(": ") {
                asked.headers.push(header);
            } else if let Some((method, path)) = line.split_once(' ') {
                (asked.method, asked.path) = (method, path);
            } else {
                bail!("{line:?} is nothing that was recorded");
            }
        }
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_requests_of_karmadactl() -> Result<()> {
    let file = repository().join("e2e/cases/access/karmadactl.txt");
    let text = std::fs::read_to_string(file).context("failed to read karmadactl.txt")?;
    let all = recorded(&text)?;
    ensure!(all.len() > 40, "{} requests", all.len());
    let stage = Stage::on_built_in_hub("access-karmadactl", "impersonate").await?;
    unbound(&stage).await?;
    apply(&stage.fleet.client().await?, vec![all_rights()]).await?;
    let member = stage.member().await?;
    measured(&member).await?;
    apply(&member, legacy()).await?;
    let before = uids(&member).await?;
    let ann = stage.client("ann", &[]).await?;
    for asked in &all {
        let body = asked.body.as_ref();
        let answer = ask_with(&ann, asked.method, asked.path, &asked.headers, body);
        let answer = answer.await?.is(asked.code, asked.says);
        answer.with_context(|| format!("{asked:?}"))?;
    }
    // What was promoted is the hub's now, and is what it was.
    wait_for("what was promoted to be kept", LONG, async || {
        for path in KEPT {
            let found = ask(&member, "GET", path, &[]).await?.is(200, "")?;
            let found: Value = serde_json::from_str(&found.body)?;
            let labels = &found["metadata"]["labels"];
            ensure!(labels[MANAGED] == MANAGED_VALUE, "{found}");
        }
        Ok(true)
    })
    .await?;
    ensure!(uids(&member).await? == before, "it was made anew");
    stage.passed().await;
    Ok(())
}

async fn uids(member: &Client) -> Result<Vec<Value>> {
    let mut uids = Vec::new();
    for path in KEPT {
        let found = ask(member, "GET", path, &[]).await?.is(200, "uid")?;
        let found: Value = serde_json::from_str(&found.body)?;
        uids.push(found["metadata"]["uid"].clone());
    }
    Ok(uids)
}

/// Kinds and objects in the place of those of a metrics server, and a Pod.
async fn measured(member: &Client) -> Result<()> {
    let kind = |kind: &str, plural: &str, scope: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.metrics.k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, in the place of a metrics server"},
            },
            "spec": {
                "group": "metrics.k8s.io", "scope": scope,
                "names": {"plural": plural, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}],
            },
        })
    };
    let kinds = vec![
        kind("PodMetrics", "pods", "Namespaced"),
        kind("NodeMetrics", "nodes", "Cluster"),
    ];
    apply(member, kinds).await?;
    let usage = |cpu: &str| json!({"cpu": cpu, "memory": "34Mi"});
    let amounts = [
        (
            "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods",
            json!({
                "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": "pod"},
                "timestamp": "2026-11-25T20:00:00Z", "window": "30s",
                "containers": [{"name": "web", "usage": usage("12m")}],
            }),
        ),
        (
            "/apis/metrics.k8s.io/v1beta1/nodes",
            json!({
                "apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": "node-0"},
                "timestamp": "2026-11-25T20:00:00Z", "window": "30s", "usage": usage("120m"),
            }),
        ),
    ];
    for (path, amount) in amounts {
        wait_for("kinds of metrics", LONG, async || {
            let made = ask_with(member, "POST", path, &[], Some(&amount)).await?;
            made.is(201, "metrics.k8s.io")?;
            Ok(true)
        })
        .await?;
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"nodeName": "node-0", "containers": [{"name": "web", "image": "registry.invalid/web:1"}]},
    });
    apply(member, vec![pod]).await
}

/// What the member had before it had a hub.
fn legacy() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "legacy"}}),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "legacy"},
            "data": {"a": "b"},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "old", "namespace": "legacy", "labels": {"app": "old"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "old"}}, "template": {
                "metadata": {"labels": {"app": "old"}},
                "spec": {"containers": [{"name": "old", "image": "registry.invalid/old:1"}]},
            }},
        }),
    ]
}
