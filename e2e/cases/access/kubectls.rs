//! Every kubectl that there is, as Ann, with what `towline kubeconfig` makes; and `towline`, which becomes kubectl.
//!
//! `TOWLINE_KUBECTL` names one more besides that of the lab and that of the machine.

use super::rig::{LONG, Stage};
use crate::env::{Parts, Process, ProcessSpec, Run, binary, run, write_private};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Kept by kubectl from the days before WebSockets.
const SPDY: [(&str, &str); 2] = [
    ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"),
    ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false"),
];

/// kubectl as Ann, with a kubeconfig of a member; or `towline`, which becomes kubectl, with one of the hub.
#[derive(Clone)]
pub(super) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    env: Vec<(&'static str, String)>,
    /// What `towline` takes beside the words of kubectl.
    member: &'static [&'static str],
}

impl Kubectl {
    /// The same with one more variable.
    pub(super) fn with(mut self, key: &'static str, value: &str) -> Self {
        self.env.push((key, value.to_owned()));
        self
    }

    /// The same with another kubeconfig.
    pub(super) fn at(mut self, kubeconfig: &Path) -> Self {
        kubeconfig.clone_into(&mut self.kubeconfig);
        self
    }

    /// How messages name it.
    pub(super) fn shown(&self) -> String {
        format!("{} {:?}", self.program.display(), self.env)
    }

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

    /// The minor number of its version.
    pub(super) async fn minor(&self) -> Result<u32> {
        let said = self.says(&["version", "--client", "-o", "json"]).await?;
        let said: Value = serde_json::from_str(&said)?;
        let version = said["clientVersion"]["gitVersion"].as_str();
        let version = version.context("it has no version")?;
        let minor = version.split('.').nth(1).unwrap_or_default();
        minor.parse().with_context(|| version.to_owned())
    }

    pub(super) async fn run(&self, args: &[&str], input: Option<&str>) -> Result<Run> {
        run(self.command(args), input, LONG).await
    }

    /// What it says, if it succeeds.
    pub(super) async fn says(&self, args: &[&str]) -> Result<String> {
        Ok(self.run(args, None).await?.ok()?.stdout)
    }

    /// Fails unless it succeeds and says this.
    pub(super) async fn tells(&self, args: &[&str], text: &str) -> Result<()> {
        let said = self.run(args, None).await?.ok()?;
        ensure!(said.stdout.contains(text), "must say {text:?}: {said:?}");
        Ok(())
    }

    /// Fails unless it fails and says this.
    pub(super) async fn refuses(&self, args: &[&str], text: &str) -> Result<()> {
        let said = self.run(args, None).await?.refused()?;
        ensure!(said.stderr.contains(text), "must say {text:?}: {said:?}");
        Ok(())
    }

    /// What it shows in a terminal of so many rows and columns, once it succeeded.
    pub(super) async fn shows(&self, size: (u16, u16), args: &[&str]) -> Result<String> {
        let words = self.words(args).into_iter().map(|it| format!("'{it}'"));
        let words: Vec<String> = words.collect();
        let line = format!(
            "stty rows {} cols {}; exec '{}' {}",
            size.0,
            size.1,
            self.program.display(),
            words.join(" ")
        );
        let mut command = Command::new("script");
        let env = self.env.iter().map(|(key, value)| (*key, value.as_str()));
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.envs(env);
        Ok(run(command, None, LONG).await?.ok()?.stdout)
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
    made(stage, "m1", &stage.kubeconfig("ann", &[])?).await
}

/// The same where the way to the hub leads through a proxy.
pub(super) async fn through(stage: &Stage, proxy: &str) -> Result<PathBuf> {
    let text = std::fs::read_to_string(stage.kubeconfig("ann", &[])?)?;
    let mut config: Value = serde_yaml::from_str(&text)?;
    config["clusters"][0]["cluster"]["proxy-url"] = json!(proxy);
    let path = stage.scratch.join("ann-proxied.kubeconfig");
    write_private(&path, &serde_yaml::to_string(&config)?)?;
    made(stage, "m1-proxied", &path).await
}

async fn made(stage: &Stage, name: &str, hub: &Path) -> Result<PathBuf> {
    let kubeconfig = stage.scratch.join(format!("{name}.kubeconfig"));
    let hub = hub.display().to_string();
    let file = kubeconfig.display().to_string();
    let make = ["kubeconfig", "-C", "m1", "-o", &file, "--kubeconfig", &hub];
    let made = stage.fleet.towline.cli(make).await?.ok()?;
    ensure!(made.stdout.contains("--context m1 get pods"), "{made:?}");
    Ok(kubeconfig)
}

/// Every kubectl of the lab and of this machine, with what `towline kubeconfig` makes for Ann.
pub(super) async fn kubectls(stage: &Stage) -> Result<Vec<Kubectl>> {
    let mut programs: Vec<PathBuf> = Parts::from_env()?.any_kubectl().into_iter().collect();
    let own = PathBuf::from("/usr/bin/kubectl");
    programs.extend(own.is_file().then_some(own));
    programs.extend(std::env::var_os("TOWLINE_KUBECTL").map(PathBuf::from));
    programs.dedup();
    let kubeconfig = kubeconfig(stage).await?;
    // What kubectl remembers of servers goes with them.
    let home = stage.scratch.join("home").display().to_string();
    let all = programs.into_iter().map(|program| Kubectl {
        program,
        kubeconfig: kubeconfig.clone(),
        env: vec![("HOME", home.clone())],
        member: &[],
    });
    Ok(all.collect())
}

/// Each of them in both ways of taking a connection over.
pub(super) fn both_ways(kubectls: &[Kubectl]) -> Vec<Kubectl> {
    let ways = kubectls.iter().map(|it| {
        let old = SPDY
            .iter()
            .fold(it.clone(), |kubectl, (key, value)| kubectl.with(key, value));
        [it.clone(), old]
    });
    ways.flatten().collect()
}

/// The verbs of `towline` itself, which become the kubectl of another.
pub(super) fn own(stage: &Stage, other: &Kubectl) -> Result<Kubectl> {
    Ok(Kubectl {
        program: binary("towline")?,
        kubeconfig: stage.kubeconfig("ann", &[])?,
        env: vec![("KUBECTL", other.program.display().to_string())],
        member: &["-C", "m1"],
    })
}
