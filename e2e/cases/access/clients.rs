//! Clients that people use, at a member by what `towline kubeconfig` makes for them.

use super::node::kubeconfig;
use super::rig::{Stage, apply, reach};
use crate::cases::helm;
use anyhow::Result;
use serde_json::json;

/// Helm takes a chart through its life in a member.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_helm() -> Result<()> {
    let stage = Stage::set("access-helm", "impersonate").await?;
    let verbs = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    apply(&stage.fleet.client().await?, reach("ann", &["m1"], &verbs)).await?;
    let member = stage.member().await?;
    let group = "rbac.authorization.k8s.io";
    let all = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "ann-may-all"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    });
    apply(&member, vec![all]).await?;
    let file = kubeconfig(&stage).await?;
    if let Some(rig) = helm::Rig::new(stage.scratch.path(), &file, member)? {
        rig.lives().await?;
    }
    stage.passed().await;
    Ok(())
}
