//! A member with a real kubelet and containerd.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, LogParams, PostParams};
use std::path::Path;
use std::time::Duration;

use crate::env::{PAUSE_IMAGE, Parts, Plane, PlaneOptions, Scratch, wait_for};

const WITHIN: Duration = Duration::from_secs(120);

/// A restricted pod runs for real and its log is read through the API; then nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn real_node_runs_a_restricted_pod_and_leaves_nothing() -> Result<()> {
    let scratch = Scratch::new("real-node")?;
    let parts = Parts::from_env()?;
    let mut plane = Plane::start(&parts, &scratch.join("m"), PlaneOptions::real("m")).await?;
    let client = plane.client().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": "strict",
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "strict");
    deployments
        .create(&PostParams::default(), &waiting_deployment()?)
        .await?;
    wait_for("a ready replica", WITHIN, || {
        let deployments = deployments.clone();
        async move {
            let status = deployments.get("web").await?.status.unwrap_or_default();
            Ok(status.ready_replicas == Some(1))
        }
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(client, "strict");
    let list = pods.list(&ListParams::default()).await?;
    let name = list.items[0].metadata.name.clone().context("no name")?;
    // Ready says that the program runs; what it says comes after.
    wait_for("its log", WITHIN, || {
        let (pods, name) = (pods.clone(), name.clone());
        async move {
            let log = pods.logs(&name, &LogParams::default()).await?;
            anyhow::ensure!(log == "waiting\n", "{log:?}");
            Ok(true)
        }
    })
    .await?;

    plane.stop().await;
    drop(plane);
    let ours = scratch.path().display().to_string();
    wait_for("the end of every process", WITHIN, || {
        let left = processes_that_name(&ours);
        async move {
            anyhow::ensure!(left.is_empty(), "{left:?}");
            Ok(true)
        }
    })
    .await?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts.contains(&ours), "{mounts}");
    assert!(!Path::new("/sys/class/net/cni0").exists());
    scratch.passed();
    Ok(())
}

fn waiting_deployment() -> Result<Deployment> {
    Ok(serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "securityContext": {
                        "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": "web",
                        "image": PAUSE_IMAGE,
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    }))?)
}

/// Command lines of processes that name a folder; zombies have none.
fn processes_that_name(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(folder))
        .collect()
}
