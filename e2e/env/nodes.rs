//! Nodes that kwok plays.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, PostParams};

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
