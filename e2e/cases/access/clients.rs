//! Clients that people use, at a member by what `towline kubeconfig` makes for them.

use super::kubectls::{kubeconfig, through};
use super::node::POD;
use super::rig::{LONG, Stage, apply, ask_with, reach, to};
use crate::cases::helm;
use crate::env::{ConnectProxy, Part, Parts, client, left_out, wait_for};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Helm takes a chart through its life in a member.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_helm() -> Result<()> {
    let stage = Stage::set("access-helm", "impersonate").await?;
    let file = kubeconfig(&stage).await?;
    helm_lives(&stage, &file).await?;
    stage.passed().await;
    Ok(())
}

/// The same where the way to the hub leads through a proxy.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_helm_through_a_proxy() -> Result<()> {
    let stage = Stage::set("access-helm-proxied", "impersonate").await?;
    let proxy = ConnectProxy::start(None).await?;
    let file = through(&stage, &format!("http://{}", proxy.address())).await?;
    let before = proxy.tunnels();
    if helm_lives(&stage, &file).await? {
        ensure!(proxy.tunnels() > before, "nothing went through the proxy");
    }
    stage.passed().await;
    Ok(())
}

/// Whether there is a Helm that went through everything.
async fn helm_lives(stage: &Stage, kubeconfig: &Path) -> Result<bool> {
    unbound(stage).await?;
    let member = stage.member().await?;
    let rig = helm::Rig::new(stage.scratch.path(), kubeconfig, member)?;
    if let Some(rig) = &rig {
        rig.lives().await?;
    }
    Ok(rig.is_some())
}

/// Lets Ann do whatever there is, on the way and in the member.
pub(super) async fn unbound(stage: &Stage) -> Result<()> {
    let verbs = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    apply(&stage.fleet.client().await?, reach("ann", &["m1"], &verbs)).await?;
    apply(&stage.member().await?, vec![all_rights()]).await
}

/// Every right of a cluster, for Ann.
pub(super) fn all_rights() -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "ann-may-all"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}],
    })
}

/// What an informer of client-go has told so far.
fn told(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.map_while(Result::ok).collect()
}

async fn tells(log: &Path, what: &str, name: &str) -> Result<()> {
    wait_for(&format!("{what} of {name:?}"), LONG, async || {
        let is = |line: &Value| {
            line["what"] == what
                && line["kind"] == "configmaps"
                && line["name"].as_str().unwrap_or_default() == name
        };
        ensure!(told(log).iter().any(is), "not told");
        Ok(true)
    })
    .await
}

/// An informer of client-go holds what is in a member, also when the tunnel was gone for a while.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_by_informers() -> Result<()> {
    let mut stage = Stage::set("access-informer", "impersonate").await?;
    let program = match Parts::from_env()?.path(Part::Informer) {
        Ok(program) => program,
        Err(error) => {
            left_out("informers of client-go at a member", &format!("{error:#}"));
            stage.passed().await;
            return Ok(());
        }
    };
    let (log, errors) = (
        stage.scratch.join("informer.out"),
        stage.scratch.join("informer.log"),
    );
    let mut informer = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig(&stage).await?)
        .args(["--namespace", "default", "--json"])
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&log)?)
        .stderr(std::fs::File::create(&errors)?)
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the informer")?;
    tells(&log, "add", "here").await?;
    let maps = "/api/v1/namespaces/default/configmaps";
    let ann = stage.client("ann", &[]).await?;
    let map =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    ask_with(&ann, "POST", &to("m1", maps), &[], Some(&map("meanwhile")))
        .await?
        .is(201, "meanwhile")?;
    tells(&log, "add", "meanwhile").await?;
    ensure!(
        told(&log)
            .iter()
            .any(|it| it["what"] == "watch" && it["kind"] == "configmaps" && it["initial"] == true),
        "it did not begin with a watch that lists: {:?}",
        told(&log)
    );

    stage.agent.kill();
    tells(&log, "broken", "").await?;
    let unseen = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unseen", "namespace": "default"}});
    apply(&stage.member().await?, vec![unseen]).await?;
    stage.agent.restart()?;
    stage.opened().await?;
    tells(&log, "add", "unseen").await?;

    drop(informer.stdin.take());
    let status = timeout(LONG, informer.wait()).await??;
    ensure!(
        status.success(),
        "{status}: {}",
        std::fs::read_to_string(&errors)?
    );
    let all = told(&log);
    let held = |name: &str| {
        let mut held = all.iter().filter(|it| it["what"] == "store");
        held.any(|it| it["name"] == name && it["kind"] == "configmaps")
    };
    for name in ["here", "meanwhile", "unseen"] {
        ensure!(held(name), "{name} is not held: {all:?}");
    }
    stage.passed().await;
    Ok(())
}

/// kube-rs runs commands, attaches and forwards ports.
pub(super) async fn by_kube_rs(stage: &Stage) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client(&kubeconfig(stage).await?).await?, "default");
    let params = AttachParams::default().container("counts").stdin(true);
    let mut command = pods.exec(POD, ["cat"], &params).await?;
    let (stdin, stdout) = (command.stdin(), command.stdout());
    let (mut stdin, mut stdout) = (stdin.context("no input")?, stdout.context("no output")?);
    stdin.write_all(b"through all of it\n").await?;
    stdin.flush().await?;
    let mut line = [0; 18];
    timeout(LONG, stdout.read_exact(&mut line)).await??;
    ensure!(&line == b"through all of it\n", "{line:?}");
    drop(stdin);
    command.abort();

    let fails = ["bash", "-c", "exit 42"];
    let params = AttachParams::default().container("counts");
    let mut command = pods.exec(POD, fails, &params).await?;
    let status = command.take_status().context("no status")?;
    let status = timeout(LONG, status).await?.context("no status came")?;
    let said = status.message.unwrap_or_default();
    ensure!(said.contains("42"), "{said}");

    let mut attached = pods.attach(POD, &params).await?;
    let mut stdout = attached.stdout().context("no output")?;
    let mut begin = [0; 5];
    timeout(LONG, stdout.read_exact(&mut begin)).await??;
    ensure!(&begin == b"line ", "{begin:?}");
    attached.abort();

    let mut forwarded = pods.portforward(POD, &[8080]).await?;
    let mut port = forwarded.take_stream(8080).context("no port")?;
    port.write_all(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
        .await?;
    let mut text = String::new();
    timeout(LONG, port.read_to_string(&mut text)).await??;
    ensure!(text.ends_with("from here"), "{text}");
    // Joined, it would say that the other end has closed first.
    forwarded.abort();
    Ok(())
}
