//! Stock kubectl at the pods of a member with a real kubelet: logs, exec, cp and port-forward, over WebSockets and over
//! SPDY.

use super::clients::by_kube_rs;
use super::long::{Silence, broken_off, many_files, quiet_container};
use super::rig::{LONG, Stage, apply};
use crate::env::{
    Image, Parts, Process, ProcessSpec, Run, binary, free_port, http_get, run, wait_for,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::path::PathBuf;
use tokio::process::Command;

const IMAGE: &str = "towline.lab/shell:1";
pub(super) const POD: &str = "shell";
/// What a file that is copied weighs; `TOWLINE_COPY_MIB` is another weight.
const COPIED: usize = 24;
/// Kept by kubectl from the days before WebSockets.
const SPDY: [(&str, &str); 2] = [
    ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"),
    ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false"),
];
/// Counts every fifth of a second on standard output.
pub(super) const COUNTS: &str = "n=0; while true; do echo line $n; n=$((n+1)); sleep 0.2; done";
/// Answers HTTP with no module of its own, each connection in a process of its own.
const SERVES: &str = "$SIG{CHLD}='IGNORE'; socket(S,2,1,0); setsockopt(S,1,2,pack('i',1)); \
                      bind(S,pack('S n N x8',2,8080,0)) or die; listen(S,99); \
                      while(accept(C,S)){ if(fork){ close(C); next } sysread(C,$q,9999); \
                      syswrite(C,\"HTTP/1.1 200 OK\\r\\nContent-Length: 9\\r\\nConnection: close\\r\\n\\r\\nfrom here\"); \
                      exit }";

/// kubectl as Ann, with a kubeconfig of a member; or `towline`, which becomes kubectl, with one of the hub.
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    kubeconfig: PathBuf,
    env: Vec<(&'static str, String)>,
    /// What `towline` takes beside the words of kubectl.
    member: &'static [&'static str],
}

impl Kubectl {
    fn words<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let file = ["--kubeconfig", self.kubeconfig.to_str().unwrap_or_default()];
        // What is `towline`'s own stands behind the verb, kubectl's file before it.
        let (verb, rest) = args.split_at(usize::from(!self.member.is_empty()));
        [verb, self.member, &file, rest].concat()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let env = self.env.iter().map(|(key, value)| (*key, value.as_str()));
        command.args(self.words(args)).envs(env);
        command
    }

    /// Whether it takes connections over by WebSocket.
    pub(super) fn by_websocket(&self) -> bool {
        !self.env.iter().any(|(key, _)| *key == SPDY[0].0)
    }

    pub(super) async fn run(&self, args: &[&str], input: Option<&str>) -> Result<Run> {
        run(self.command(args), input, LONG).await
    }

    /// Starts what goes on until it is stopped.
    pub(super) fn start(&self, stage: &Stage, name: &str, args: &[&str]) -> Result<Process> {
        let mut spec =
            ProcessSpec::new(name, &self.program, stage.scratch.path()).args(self.words(args));
        for (key, value) in &self.env {
            spec = spec.env(key, value);
        }
        Process::start(spec)
    }
}

/// What `towline kubeconfig` makes for Ann.
pub(super) async fn kubeconfig(stage: &Stage) -> Result<PathBuf> {
    let kubeconfig = stage.scratch.join("m1.kubeconfig");
    let hub = stage.kubeconfig("ann", &[])?.display().to_string();
    let file = kubeconfig.display().to_string();
    let make = ["kubeconfig", "-C", "m1", "-o", &file, "--kubeconfig", &hub];
    let made = stage.fleet.towline.cli(make).await?.ok()?;
    ensure!(made.stdout.contains("--context m1 get pods"), "{made:?}");
    Ok(kubeconfig)
}

/// Every kubectl of the lab and of this machine, each in both ways, with what `towline kubeconfig` makes for Ann.
pub(super) async fn kubectls(stage: &Stage) -> Result<Vec<Kubectl>> {
    let mut programs: Vec<PathBuf> = Parts::from_env()?.any_kubectl().into_iter().collect();
    let own = PathBuf::from("/usr/bin/kubectl");
    programs.extend(own.is_file().then_some(own));
    programs.dedup();
    let kubeconfig = kubeconfig(stage).await?;
    let spdy = SPDY.map(|(key, value)| (key, value.to_owned())).to_vec();
    let ways = [Vec::new(), spdy];
    let all = programs.iter().flat_map(|program| {
        ways.iter().map(|env| Kubectl {
            program: program.clone(),
            kubeconfig: kubeconfig.clone(),
            env: env.clone(),
            member: &[],
        })
    });
    Ok(all.collect())
}

/// The verbs of `towline` itself, which become the kubectl of another.
fn own(stage: &Stage, other: &Kubectl) -> Result<Kubectl> {
    Ok(Kubectl {
        program: binary("towline")?,
        kubeconfig: stage.kubeconfig("ann", &[])?,
        env: vec![("KUBECTL", other.program.display().to_string())],
        member: &["-C", "m1"],
    })
}

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
    let programs = ["bash", "cat", "sleep", "tar", "perl"];
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
    let all = kubectls(&stage).await?;
    ensure!(!all.is_empty(), "there is no kubectl");
    let towline = own(&stage, &all[0])?;
    let silence = Silence::begin(&stage, &all)?;
    for kubectl in all.iter().chain([&towline]) {
        let shown = format!("{} {:?}", kubectl.program.display(), kubectl.env);
        logs(&stage, kubectl).await.context(shown.clone())?;
        exec(kubectl).await.context(shown.clone())?;
        copy(&stage, kubectl).await.context(shown.clone())?;
        forward(&stage, kubectl).await.context(shown)?;
    }
    by_kube_rs(&stage).await.context("kube-rs")?;
    many_files(&stage, &towline).await?;
    silence.ends(&towline).await?;
    broken_off(&mut stage, &all).await?;
    stage.passed().await;
    Ok(())
}

async fn logs(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let tail = kubectl.run(&["logs", POD, "-c", "counts", "--tail=2"], None);
    let tail = tail.await?.ok()?;
    ensure!(tail.stdout.lines().count() == 2, "{}", tail.stdout);
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
    kubectl
        .run(&["cp", "-c", "counts", &there, &back], None)
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
