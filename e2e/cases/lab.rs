//! The lab itself.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::{Cluster, READY};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, PostParams};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{Lab, LabOptions, Parts, Run, Scratch, client, run, target_dir, wait_for};

/// For all that a command of the lab does, on a machine that does other things.
const COMMAND_WITHIN: Duration = Duration::from_secs(300);

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
        let left = Path::new("/proc").join(id.to_string()).exists();
        assert!(!left, "{name} still runs as {id}");
    }
    scratch.passed();
    Ok(())
}

/// `e2e/lab` for a folder of its own; dropped, what it left running is ended.
struct Command {
    program: PathBuf,
    dir: PathBuf,
    cache: PathBuf,
}

impl Command {
    fn new(scratch: &Scratch) -> Result<Self> {
        let program = target_dir()?.join("examples/lab");
        ensure!(
            program.exists(),
            "{} is missing; run `cargo build -p hub --example lab`",
            program.display()
        );
        Ok(Self {
            program,
            dir: scratch.join("lab"),
            cache: scratch.join("programs"),
        })
    }

    async fn run(&self, args: &[&str]) -> Result<Run> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(args)
            .env("TOWLINE_LAB_DIR", &self.dir)
            .env("TOWLINE_LAB_CACHE", &self.cache)
            .env_remove("KUBEBUILDER_ASSETS");
        run(command, None, COMMAND_WITHIN).await?.ok()
    }

    /// Names and ids of what `status` says, and the kubeconfigs it names.
    async fn status(&self) -> Result<(Vec<(String, u32)>, Vec<PathBuf>)> {
        let said = self.run(&["status"]).await?.stdout;
        let (mut processes, mut kubeconfigs) = (Vec::new(), Vec::new());
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [name, id, "runs"] => processes.push(((*name).to_owned(), id.parse()?)),
                ["export", kubeconfig, ..] => {
                    let path = kubeconfig.trim_start_matches("KUBECONFIG=");
                    kubeconfigs.push(PathBuf::from(path));
                }
                ["a", "lab", "runs", "in", .., id] => {
                    let id = id.trim_end_matches(')').parse()?;
                    processes.push(("keeper".to_owned(), id));
                }
                _ => anyhow::bail!("unexpected: {line}"),
            }
        }
        Ok((processes, kubeconfigs))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let mut down = std::process::Command::new(&self.program);
        // Nothing runs any more where a test passed.
        let _ = down.arg("down").env("TOWLINE_LAB_DIR", &self.dir).output();
    }
}

fn runs(id: u32) -> bool {
    // One that has ended and that nobody has waited for yet has no command line.
    let line = Path::new("/proc").join(id.to_string()).join("cmdline");
    std::fs::read(line).is_ok_and(|line| !line.is_empty())
}

async fn all_end(processes: &[(String, u32)]) -> Result<()> {
    wait_for("the end of all of the lab", COMMAND_WITHIN, || async {
        let left: Vec<_> = processes.iter().filter(|(_, id)| runs(*id)).collect();
        ensure!(left.is_empty(), "these run: {left:?}");
        Ok(true)
    })
    .await
}

/// A lab of built-in servers needs none but this project's programs. `status` names what runs; after
/// `down`, and when its keeper is killed, nothing does.
#[tokio::test(flavor = "multi_thread")]
async fn a_lab_of_built_in_servers_comes_and_goes() -> Result<()> {
    let scratch = Scratch::new("lab-built-in")?;
    let lab = Command::new(&scratch)?;
    let up = ["up", "--hub", "builtin", "--member", "builtin"];
    lab.run(&up).await?;
    let (processes, kubeconfigs) = lab.status().await?;
    let names: Vec<&str> = processes.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "keeper",
        "member1/workloads",
        "member1/towline-hub-serve",
        "hub/towline-hub-serve",
        "member1/towline-agent",
    ];
    ensure!(names == expected, "{names:?}");
    let hub = kubeconfigs.last().context("the hub's kubeconfig")?;
    let clusters: Api<Cluster> = Api::all(client(hub).await?);
    let cluster = clusters.get("member1").await?;
    let ready = cluster.condition(READY).map(|ready| ready.status.clone());
    ensure!(ready.as_deref() == Some("True"), "{ready:?}");
    let twice = lab.run(&up).await.expect_err("a second lab in one folder");
    ensure!(format!("{twice:#}").contains("runs already"), "{twice:#}");
    lab.run(&["down"]).await?;
    let left: Vec<_> = processes.iter().filter(|(_, id)| runs(*id)).collect();
    ensure!(left.is_empty(), "after `down` these run: {left:?}");
    let said = lab.run(&["status"]).await?.stdout;
    ensure!(said.contains("has ended"), "{said}");

    lab.run(&["up", "--bare", "--hub=builtin", "--member=builtin"])
        .await?;
    let (processes, _) = lab.status().await?;
    let [(_, keeper), ..] = processes.as_slice() else {
        anyhow::bail!("nothing runs");
    };
    let keeper = i32::try_from(*keeper).ok();
    let keeper = keeper.and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(keeper.context("an id")?, rustix::process::Signal::KILL)?;
    all_end(&processes).await?;
    ensure!(!lab.cache.exists(), "something was built");
    drop(lab);
    scratch.passed();
    Ok(())
}
