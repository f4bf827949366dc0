//! The lab itself.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use std::time::Duration;

use crate::env::{Lab, LabOptions, Parts, Scratch, wait_for};

/// A member's Deployment becomes ready, an API server can be killed and brought back, and nothing
/// is left at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_lab_lives_and_ends() -> Result<()> {
    let scratch = Scratch::new("lab-lives")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(1)).await?;
    let client = lab.members[0].client().await?;
    let api: Api<Deployment> = Api::namespaced(client, "default");
    let deployment: Deployment = serde_json::from_value(serde_json::json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "registry.invalid/web"}]},
            },
        },
    }))?;
    api.create(&PostParams::default(), &deployment).await?;
    wait_for("three ready replicas", Duration::from_secs(120), || {
        let api = api.clone();
        async move {
            let status = api.get("web").await?.status.unwrap_or_default();
            Ok(status.ready_replicas == Some(3))
        }
    })
    .await?;

    lab.members[0].kill_api();
    assert!(api.get("web").await.is_err());
    lab.members[0].restart_api().await?;
    api.get("web").await?;

    let members = lab.members.iter_mut();
    let pids: Vec<_> = members.flat_map(|plane| plane.pids()).collect();
    // Of a built-in member: the API server, and what makes workloads ready.
    let count = if lab.members[0].options.builtin { 2 } else { 5 };
    assert_eq!(pids.len(), count, "{pids:?}");
    lab.stop().await;
    for (name, id) in pids {
        let left = std::path::Path::new("/proc").join(id.to_string()).exists();
        assert!(!left, "{name} still runs as {id}");
    }
    scratch.passed();
    Ok(())
}
