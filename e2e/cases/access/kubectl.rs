//! Stock kubectl at the objects of a member: what it reads, as whom, and through which proxies.

use super::clients::unbound;
use super::kubectls::{Kubectl, kubectls, through};
use super::rig::{LONG, Stage, apply, to};
use super::verbs;
use crate::env::{ConnectProxy, free_port, http_get, left_out, wait_for};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;

const HERE: [&str; 5] = ["get", "configmap", "here", "-o", "jsonpath={.data.cluster}"];
const MAP: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}"#;
/// From this minor version on `kubectl get --raw PATH` stays below the server's path; before it, PATH is one of the hub.
const RAW_STAYS_BELOW: u32 = 34;

#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_kubectl() -> Result<()> {
    let stage = Stage::set("access-kubectl", "impersonate").await?;
    let all = kubectls(&stage).await?;
    if all.is_empty() {
        left_out("kubectl at a member", "there is no kubectl");
    }
    for kubectl in &all {
        as_far_as_allowed(&stage, kubectl)
            .await
            .with_context(|| kubectl.shown())?;
    }
    unbound(&stage).await?;
    for (number, kubectl) in all.iter().enumerate() {
        reads(kubectl).await.with_context(|| kubectl.shown())?;
        verbs::all(&stage, kubectl, number)
            .await
            .with_context(|| kubectl.shown())?;
    }
    stage.passed().await;
    Ok(())
}

/// With the rights of Ann, and no others.
async fn as_far_as_allowed(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    kubectl.tells(&HERE, "m1").await?;
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
    let applied = kubectl.run(&["apply", "-f", "-"], Some(MAP)).await?.ok()?;
    ensure!(
        applied.stdout.contains("configmap/applied created"),
        "{applied:?}"
    );
    wait_for("what was applied", LONG, async || {
        watch.check()?;
        Ok(watch.log_text().contains("configmap/applied"))
    })
    .await?;
    watch.kill();
    std::fs::remove_file(watch.log()).context("failed to remove a log")?;
    kubectl
        .tells(&["delete", "configmap", "applied"], "deleted")
        .await?;
    kubectl
        .refuses(&["get", "secrets"], "User \"ann\" cannot list")
        .await?;
    kubectl
        .tells(&["auth", "can-i", "list", "configmaps"], "yes")
        .await?;
    let may_not = kubectl.run(&["auth", "can-i", "list", "secrets"], None);
    let may_not = may_not.await?.refused()?;
    ensure!(may_not.stdout == "no\n", "{may_not:?}");
    Ok(())
}

/// What changes nothing.
async fn reads(kubectl: &Kubectl) -> Result<()> {
    let me = "jsonpath={.status.userInfo.username}";
    kubectl.tells(&["auth", "whoami", "-o", me], "ann").await?;
    let everywhere = ["get", "configmaps", "-A"];
    kubectl.tells(&everywhere, "here").await?;
    let named = [&everywhere[..], &["-o", "name", "--chunk-size=0"]].concat();
    let whole = kubectl.says(&named).await?;
    let paged = [&everywhere[..], &["-o", "name", "--chunk-size=1", "-v=6"]].concat();
    let paged = kubectl.run(&paged, None).await?.ok()?;
    let pages = paged.stderr.matches("continue=").count();
    ensure!(
        paged.stdout == whole && pages > 1,
        "{pages} pages, {whole:?}, {paged:?}"
    );
    let wide = kubectl.says(&["get", "nodes", "-o", "wide"]).await?;
    ensure!(
        wide.contains("KERNEL-VERSION") && wide.contains("node-0"),
        "{wide}"
    );
    kubectl
        .tells(&["explain", "deployments.spec.replicas"], "<integer>")
        .await?;
    let apps = ["api-resources", "--api-group=apps", "-o", "name"];
    kubectl.tells(&apps, "deployments.apps").await?;

    let below = "/api/v1/namespaces/default/configmaps/here";
    let on_the_hub = to("m1", below);
    let raw = async |path: &str| kubectl.run(&["get", "--raw", path], None).await;
    let (found, missed) = match kubectl.minor().await? >= RAW_STAYS_BELOW {
        true => (raw(below).await?, raw(&on_the_hub).await?),
        false => (raw(&on_the_hub).await?, raw(below).await?),
    };
    let found = found.ok()?.stdout;
    ensure!(found.contains("\"m1\""), "{found}");
    missed.refused()?;
    Ok(())
}

/// Whoever may act as others on the hub does so in a member, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_kubectl_as_others_and_through_proxies() -> Result<()> {
    let stage = Stage::set("access-kubectl-ways", "impersonate").await?;
    unbound(&stage).await?;
    let all = kubectls(&stage).await?;
    if all.is_empty() {
        left_out("kubectl as others", "there is no kubectl");
    }
    let secrets = ["get", "secrets", "--as=reader"];
    for kubectl in &all {
        kubectl.tells(&secrets[..2], "").await?;
        kubectl.refuses(&secrets, "cannot impersonate").await?;
    }
    let rbac = "rbac.authorization.k8s.io";
    let name = "ann-may-act-as-reader";
    let act = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["users"], "resourceNames": ["reader"], "verbs": ["impersonate"]}],
    });
    let bound = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "ann"}],
    });
    let hub = stage.fleet.client().await?;
    apply(&hub, vec![act, bound]).await?;
    for kubectl in &all {
        wait_for("the right to act as another", LONG, async || {
            kubectl
                .refuses(&secrets, "User \"reader\" cannot list resource \"secrets\"")
                .await?;
            Ok(true)
        })
        .await?;
        let here = [&HERE[..], &["--as=reader"]].concat();
        kubectl.tells(&here, "m1").await?;
        let carl = ["get", "configmaps", "--as=carl"];
        kubectl.refuses(&carl, "cannot impersonate").await?;
    }
    for kubectl in &all {
        by_kubectl_proxy(&stage, kubectl)
            .await
            .with_context(|| kubectl.shown())?;
        by_connect(&stage, kubectl)
            .await
            .with_context(|| kubectl.shown())?;
    }
    stage.passed().await;
    Ok(())
}

/// `kubectl proxy` serves a member on a port; without `--append-server-path` it serves the hub.
async fn by_kubectl_proxy(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    for (more, member) in [(&["--append-server-path"][..], true), (&[], false)] {
        let port = free_port()?;
        let flag = format!("--port={port}");
        let args = [&["proxy", &flag, "--accept-hosts=.*"][..], more].concat();
        let mut proxy = kubectl.start(stage, "proxy", &args)?;
        let address = format!("127.0.0.1:{port}");
        let path = "/api/v1/namespaces/default/configmaps/here";
        wait_for("an answer of kubectl proxy", LONG, async || {
            proxy.check()?;
            let (code, body) = http_get(&address, path).await?;
            match member {
                true => ensure!(code == 200 && body.contains("\"m1\""), "{code} {body}"),
                // Of the hub's own ConfigMaps Ann may read none.
                false => ensure!(
                    code == 403 && body.contains("User \\\"ann\\\" cannot get"),
                    "{code} {body}"
                ),
            }
            Ok(true)
        })
        .await?;
        proxy.kill();
    }
    Ok(())
}

/// Through an HTTP proxy that stands before the hub: what is asked, written, and watched.
async fn by_connect(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let proxy = ConnectProxy::start(None).await?;
    let proxied = through(stage, &format!("http://{}", proxy.address())).await?;
    let before = proxy.tunnels();
    let kubectl = kubectl.clone().at(&proxied);
    kubectl.tells(&HERE, "m1").await?;
    let mut watch = kubectl.start(stage, "proxied", &["get", "configmaps", "-w", "-o", "name"])?;
    let applied = ["apply", "--server-side", "-f", "-"];
    let applied = kubectl.run(&applied, Some(MAP)).await?.ok()?;
    ensure!(applied.stdout.contains("serverside-applied"), "{applied:?}");
    wait_for("what was applied", LONG, async || {
        watch.check()?;
        Ok(watch.log_text().contains("configmap/applied"))
    })
    .await?;
    watch.kill();
    std::fs::remove_file(watch.log()).context("failed to remove a log")?;
    kubectl
        .tells(&["delete", "configmap", "applied"], "deleted")
        .await?;
    ensure!(proxy.tunnels() > before, "nothing went through the proxy");
    Ok(())
}
