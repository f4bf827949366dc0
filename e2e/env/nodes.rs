//! Nodes that kwok plays, or nobody.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

/// Creates `count` nodes, called `node-0`, `node-1`, …, as large as given.
pub(crate) async fn create(client: &Client, count: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for index in 0..count {
        let name = format!("node-{index}");
        let resources = serde_json::json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
        let node: Node = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {
                    "kwok.x-k8s.io/node": "fake",
                    "node.alpha.kubernetes.io/ttl": "0",
                },
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "type": "kwok",
                },
            },
            "status": {"allocatable": resources, "capacity": resources},
        }))
        .context("a node of the lab is not a Node")?;
        match api.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => {
                other.with_context(|| format!("failed to create Node {name}"))?;
            }
        }
    }
    Ok(())
}

/// The same on a plane where nobody plays nodes, and nobody waits for their heartbeats: ready once and for
/// all.
pub(crate) async fn create_ready(client: &Client, count: usize) -> Result<()> {
    create(client, count).await?;
    let api: Api<Node> = Api::all(client.clone());
    for index in 0..count {
        let name = format!("node-{index}");
        let ready = json!({"type": "Ready", "status": "True", "reason": "Lab", "message": "as the lab wants it"});
        let status = json!({"status": {"conditions": [ready]}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .with_context(|| format!("failed to make Node {name} ready"))?;
    }
    Ok(())
}
