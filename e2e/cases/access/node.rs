//! Stock kubectl at the pods of a member with a real kubelet: logs, exec, cp and port-forward, over WebSockets and over
//! SPDY.

use super::clients::{by_kube_rs, unbound};
use super::kubectls::{Kubectl, both_ways, kubectls, own, through};
use super::long::{Silence, broken_off, many_files, quiet_container};
use super::rig::{LONG, Stage, apply};
use crate::env::{ConnectProxy, Image, free_port, http_get, wait_for};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use ring::digest::{SHA256, digest};
use serde_json::json;

const IMAGE: &str = "towline.lab/shell:1";
pub(super) const POD: &str = "shell";
/// What a file that is copied weighs; `TOWLINE_COPY_MIB` is another weight.
const COPIED: usize = 24;
/// Counts every fifth of a second on standard output.
pub(super) const COUNTS: &str = "n=0; while true; do echo line $n; n=$((n+1)); sleep 0.2; done";
/// Answers HTTP with no module of its own, each connection in a process of its own.
const SERVES: &str = "$SIG{CHLD}='IGNORE'; socket(S,2,1,0); setsockopt(S,1,2,pack('i',1)); \
                      bind(S,pack('S n N x8',2,8080,0)) or die; listen(S,99); \
                      while(accept(C,S)){ if(fork){ close(C); next } sysread(C,$q,9999); \
                      syswrite(C,\"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\nConnection: close\\r\\n\\r\\nfrom here\"); \
                      exit }";

#[tokio::test(flavor = "multi_thread")]
async fn real_node_is_reached_through_kube_apiserver() -> Result<()> {
    reached(Stage::real("access-node", "impersonate", false).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn real_node_is_reached_through_the_built_in_hub() -> Result<()> {
    reached(Stage::real("access-node-built-in", "impersonate", true).await?).await
}

async fn reached(mut stage: Stage) -> Result<()> {
    let node = stage.lab.members[0].node.as_ref();
    let node = node.context("the member has a node")?;
    let programs = ["bash", "cat", "sh", "sleep", "tail", "tar", "perl"];
    node.import(&Image::of_programs(IMAGE, &programs, "0:0")?)
        .await?;
    let container = |name: &str, command: &[&str]| json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                container("counts", &["bash", "-c", COUNTS]),
                container("serves", &["perl", "-e", SERVES]),
                quiet_container(IMAGE),
            ],
        },
    });
    let member = stage.member().await?;
    apply(&member, vec![pod]).await?;
    let pods: Api<Pod> = Api::namespaced(member, "default");
    wait_for("the pod", LONG, async || {
        let status = pods.get(POD).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.status == "True"))
    })
    .await?;
    let programs = kubectls(&stage).await?;
    ensure!(!programs.is_empty(), "there is no kubectl");
    let all = both_ways(&programs);
    let towline = own(&stage, &all[0])?;
    let silence = Silence::begin(&stage, &all)?;
    for kubectl in all.iter().chain([&towline]) {
        logs(&stage, kubectl).await.context(kubectl.shown())?;
        exec(kubectl).await.context(kubectl.shown())?;
        terminal(&stage, kubectl).await.context(kubectl.shown())?;
        copy(&stage, kubectl).await.context(kubectl.shown())?;
        forward(&stage, kubectl).await.context(kubectl.shown())?;
    }
    unbound(&stage).await?;
    for kubectl in &programs {
        debug(kubectl).await.context(kubectl.shown())?;
    }
    by_a_proxy(&stage, &all).await?;
    by_kube_rs(&stage).await.context("kube-rs")?;
    many_files(&stage, &towline).await?;
    silence.ends(&towline).await?;
    broken_off(&mut stage, &all).await?;
    stage.passed().await;
    Ok(())
}

async fn logs(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    wait_for("the last two lines", LONG, async || {
        let tail = kubectl.run(&["logs", POD, "-c", "counts", "--tail=2"], None);
        let tail = tail.await?.ok()?;
        ensure!(tail.stdout.lines().count() == 2, "{}", tail.stdout);
        Ok(true)
    })
    .await?;
    let mut follows = kubectl.start(
        stage,
        "logs",
        &["logs", "-f", POD, "-c", "counts", "--tail=1"],
    )?;
    wait_for("lines that follow", LONG, async || {
        follows.check()?;
        Ok(follows.log_text().lines().count() > 10)
    })
    .await?;
    follows.kill();
    std::fs::remove_file(follows.log()).context("failed to remove a log")
}

async fn exec(kubectl: &Kubectl) -> Result<()> {
    let says = [
        "exec",
        POD,
        "-c",
        "counts",
        "--",
        "bash",
        "-c",
        "echo out; echo err >&2; exit 42",
    ];
    let said = kubectl.run(&says, None).await?;
    ensure!(said.code == 42 && said.stdout == "out\n", "{said:?}");
    ensure!(said.stderr.contains("err\n"), "{said:?}");
    // The end of input ends the program.
    let reads = ["exec", "-i", POD, "-c", "counts", "--", "cat"];
    let read = kubectl
        .run(&reads, Some("through all of it\n"))
        .await?
        .ok()?;
    ensure!(read.stdout == "through all of it\n", "{read:?}");
    let none = ["exec", "nobody", "--", "cat"];
    let none = kubectl.run(&none, None).await?.refused()?;
    ensure!(none.stderr.contains("\"nobody\" not found"), "{none:?}");
    Ok(())
}

/// A terminal in a container is as large as the one that shows it; what a container says is shown to whoever attaches.
async fn terminal(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    // The size comes after the terminal, however soon.
    let size = "shopt -s checkwinsize; until (:;:); [ -n \"$LINES\" ]; do sleep 0.1; done; \
                echo $LINES rows, $COLUMNS columns";
    let asks = ["exec", "-it", POD, "-c", "counts", "--", "bash", "-c", size];
    let shown = kubectl.shows((33, 101), &asks).await?;
    ensure!(shown.contains("33 rows, 101 columns"), "{shown:?}");
    let mut attached = kubectl.start(stage, "attach", &["attach", POD, "-c", "counts"])?;
    wait_for("lines of whom it is attached to", LONG, async || {
        attached.check()?;
        Ok(attached.log_text().matches("line ").count() > 3)
    })
    .await?;
    attached.kill();
    std::fs::remove_file(attached.log()).context("failed to remove a log")
}

/// A container that is put beside those of a pod runs, and its logs are read.
async fn debug(kubectl: &Kubectl) -> Result<()> {
    let name = format!("beside-{}", kubectl.minor().await?);
    let image = format!("--image={IMAGE}");
    let beside = [
        "debug",
        POD,
        "-c",
        &name,
        &image,
        "--image-pull-policy=Never",
        "--profile=general",
        "--attach=false",
        "--",
        "bash",
        "-c",
        "echo seen from beside; sleep 86400",
    ];
    kubectl.run(&beside, None).await?.ok()?;
    wait_for("the logs of a container beside", LONG, async || {
        kubectl
            .tells(&["logs", POD, "-c", &name], "seen from beside")
            .await?;
        Ok(true)
    })
    .await
}

/// What takes a connection over does so through an HTTP proxy as well.
async fn by_a_proxy(stage: &Stage, kubectls: &[Kubectl]) -> Result<()> {
    let proxy = ConnectProxy::start(None).await?;
    let proxied = through(stage, &format!("http://{}", proxy.address())).await?;
    for kubectl in kubectls {
        let kubectl = kubectl.clone().at(&proxied);
        let before = proxy.tunnels();
        logs(stage, &kubectl).await.context(kubectl.shown())?;
        exec(&kubectl).await.context(kubectl.shown())?;
        forward(stage, &kubectl).await.context(kubectl.shown())?;
        ensure!(
            proxy.tunnels() > before,
            "{} went around the proxy",
            kubectl.shown()
        );
    }
    Ok(())
}

async fn copy(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let (sent, back) = (stage.scratch.join("sent"), stage.scratch.join("back"));
    let weight = std::env::var("TOWLINE_COPY_MIB").unwrap_or_else(|_| COPIED.to_string());
    let weight = weight.parse::<usize>().context("TOWLINE_COPY_MIB")? * 1024 * 1024;
    let mut seed = 1_u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed.to_be_bytes()[0]
    })
    .take(weight)
    .collect();
    std::fs::write(&sent, &bytes).context("failed to write a file")?;
    let there = format!("{POD}:/file");
    let (sent, back) = (sent.display().to_string(), back.display().to_string());
    kubectl
        .run(&["cp", "-c", "counts", &sent, &there], None)
        .await?
        .ok()?;
    // Over SPDY the end of what the container said is lost at times, also when the member is asked without a hub:
    // kube-apiserver and the kubelet carry neither direction on once one of them broke. kubectl cannot tell, and says
    // "unexpected EOF"; so it asks for the rest.
    let retries = match kubectl.by_websocket() {
        true => "--retries=0",
        false => "--retries=5",
    };
    kubectl
        .run(&["cp", "-c", "counts", retries, &there, &back], None)
        .await?
        .ok()?;
    let got = std::fs::read(&back).context("failed to read what came back")?;
    let same = digest(&SHA256, &got).as_ref() == digest(&SHA256, &bytes).as_ref();
    ensure!(same, "{} bytes came back of {weight}", got.len());
    std::fs::remove_file(&back).context("failed to remove a file")
}

async fn forward(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let port = free_port()?;
    let ports = format!("{port}:8080");
    let mut forwards = kubectl.start(stage, "forward", &["port-forward", POD, &ports])?;
    let address = format!("127.0.0.1:{port}");
    wait_for("an answer through a forwarded port", LONG, async || {
        forwards.check()?;
        let (code, body) = http_get(&address, "/").await?;
        ensure!(code == 200 && body.contains("from here"), "{code} {body}");
        Ok(true)
    })
    .await?;
    let many = (0..20).map(|_| http_get(&address, "/"));
    for answer in futures::future::join_all(many).await {
        ensure!(answer?.0 == 200, "one of many was not answered");
    }
    forwards.kill();
    Ok(())
}
