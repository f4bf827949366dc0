//! Stock kubectl at the objects of a member, with what `towline kubeconfig` makes.

use super::node::{Kubectl, kubectls};
use super::rig::{LONG, Stage};
use crate::env::{left_out, wait_for};
use anyhow::{Context as _, Result, ensure};

const MAP: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_kubectl() -> Result<()> {
    let stage = Stage::set("access-kubectl", "impersonate").await?;
    let all = kubectls(&stage).await?;
    if all.is_empty() {
        left_out("kubectl at a member", "there is no kubectl");
    }
    for kubectl in all {
        let shown = kubectl.program.display().to_string();
        objects(&stage, &kubectl).await.context(shown)?;
    }
    stage.passed().await;
    Ok(())
}

async fn objects(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let said =
        async |args: &[&str], input| anyhow::Ok(kubectl.run(args, input).await?.ok()?.stdout);
    let here = ["get", "configmap", "here", "-o", "jsonpath={.data.cluster}"];
    let got = said(&here, None).await?;
    ensure!(got == "m1", "{got}");
    let me = said(
        &[
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ],
        None,
    )
    .await?;
    ensure!(me == "ann", "{me}");
    let mut watch = kubectl.start(
        stage,
        "watch",
        &["get", "configmaps", "--watch", "-o", "name"],
    )?;
    wait_for("what is there", LONG, async || {
        watch.check()?;
        Ok(watch.log_text().contains("configmap/here"))
    })
    .await?;
    let applied = said(&["apply", "-f", "-"], Some(MAP)).await?;
    ensure!(applied.contains("configmap/applied created"), "{applied}");
    wait_for("what was applied", LONG, async || {
        watch.check()?;
        Ok(watch.log_text().contains("configmap/applied"))
    })
    .await?;
    watch.kill();
    std::fs::remove_file(watch.log()).context("failed to remove a log")?;
    let gone = said(&["delete", "configmap", "applied"], None).await?;
    ensure!(gone.contains("deleted"), "{gone}");
    let secrets = kubectl.run(&["get", "secrets"], None).await?.refused()?;
    ensure!(
        secrets.stderr.contains("User \"ann\" cannot list"),
        "{secrets:?}"
    );
    Ok(())
}
