//! What goes on for long through a tunnel: it lives while nothing is said, and is broken off loudly when the hub dies.
//!
//! `TOWLINE_QUIET_SECONDS` is how long nothing is said at the least; what the rest of the case takes if it is not set.

use super::kubectls::Kubectl;
use super::node::POD;
use super::rig::{LONG, Stage};
use crate::env::{Process, wait_for};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A container that says nothing until somebody makes this file.
const QUIET: &str = "quiet";
const UNTIL: &str = "while [ ! -e /told ]; do sleep 0.2; done; echo told";
/// Small files that are copied at once; `TOWLINE_COPY_FILES` is another number. Of more than what fits into the buffers of
/// the connections kube-apiserver has cut off the end, on a busy machine: it closed while kubectl was still unpacking.
const FILES: usize = 500;

/// The command of the container that says nothing.
pub(super) fn quiet_container(image: &str) -> Value {
    let command = ["bash", "-c", &format!("{UNTIL}; sleep 86400")];
    json!({"name": QUIET, "image": image, "imagePullPolicy": "Never", "command": command})
}

/// Logs that are followed and a command that runs, by each kubectl, while nothing is said.
pub(super) struct Silence {
    began: Instant,
    listeners: Vec<Process>,
}

impl Silence {
    pub(super) fn begin(stage: &Stage, kubectls: &[Kubectl]) -> Result<Self> {
        let mut listeners = Vec::new();
        for (number, kubectl) in kubectls.iter().enumerate() {
            let follows = ["logs", "-f", POD, "-c", QUIET];
            let waits = ["exec", POD, "-c", QUIET, "--", "bash", "-c", UNTIL];
            for (what, args) in [("follows", &follows[..]), ("waits", &waits[..])] {
                let name = format!("{what}-{number}");
                listeners.push(kubectl.start(stage, &name, args)?);
            }
        }
        Ok(Self {
            began: Instant::now(),
            listeners,
        })
    }

    /// All of them hear what is said at last.
    pub(super) async fn ends(mut self, kubectl: &Kubectl) -> Result<()> {
        let seconds = std::env::var("TOWLINE_QUIET_SECONDS").unwrap_or_else(|_| "0".to_owned());
        let seconds = seconds.parse().context("TOWLINE_QUIET_SECONDS")?;
        sleep_until(self.began + Duration::from_secs(seconds)).await;
        for listener in &mut self.listeners {
            listener.check()?;
            let heard = listener.log_text();
            ensure!(heard.is_empty(), "{}: {heard}", listener.name());
        }
        let tell = ["exec", POD, "-c", QUIET, "--", "bash", "-c", "> /told"];
        kubectl.run(&tell, None).await?.ok()?;
        wait_for("all to hear it", LONG, async || {
            for listener in &self.listeners {
                let heard = listener.log_text();
                ensure!(heard == "told\n", "{}: {heard:?}", listener.name());
            }
            Ok(true)
        })
        .await?;
        for listener in &mut self.listeners {
            if listener.name().starts_with("waits") {
                let status = listener.wait_ended(LONG).await?;
                ensure!(status.success(), "{}: {status}", listener.name());
            }
        }
        println!(
            "{} logs and commands said nothing for {} s",
            self.listeners.len(),
            self.began.elapsed().as_secs()
        );
        Ok(())
    }
}

/// Many small files come back as they went.
pub(super) async fn many_files(stage: &Stage, kubectl: &Kubectl) -> Result<()> {
    let files = std::env::var("TOWLINE_COPY_FILES").unwrap_or_else(|_| FILES.to_string());
    let files: usize = files.parse().context("TOWLINE_COPY_FILES")?;
    let (sent, back) = (stage.scratch.join("tree"), stage.scratch.join("tree-back"));
    for number in 0..files {
        let folder = sent.join(format!("{:02}", number % 50));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("{number}")), format!("file {number}\n"))?;
    }
    let there = format!("{POD}:/tree");
    let (from, to) = (sent.display().to_string(), back.display().to_string());
    let copied = ["cp", "-c", "counts", &from, &there];
    kubectl.run(&copied, None).await?.ok()?;
    let copied = ["cp", "-c", "counts", &there, &to];
    kubectl.run(&copied, None).await?.ok()?;
    for number in 0..files {
        let path = back.join(format!("{:02}/{number}", number % 50));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{} did not come back", path.display()))?;
        ensure!(
            text == format!("file {number}\n"),
            "{}: {text:?}",
            path.display()
        );
    }
    std::fs::remove_dir_all(&sent)?;
    std::fs::remove_dir_all(&back).context("failed to remove a folder")
}

/// The process that serves tunnels is killed: nobody takes for an end what was broken off.
pub(super) async fn broken_off(stage: &mut Stage, kubectls: &[Kubectl]) -> Result<()> {
    let mut listeners = Vec::new();
    for (number, kubectl) in kubectls.iter().enumerate() {
        let follows = ["logs", "-f", POD, "-c", "counts", "--tail=1"];
        listeners.push(kubectl.start(stage, &format!("broken-logs-{number}"), &follows)?);
        // Over SPDY kubectl takes a connection that is lost for the end of a command, whoever loses it.
        if kubectl.by_websocket() {
            let runs = [
                "exec",
                POD,
                "-c",
                "counts",
                "--",
                "bash",
                "-c",
                super::node::COUNTS,
            ];
            listeners.push(kubectl.start(stage, &format!("broken-exec-{number}"), &runs)?);
        }
    }
    wait_for("lines of all", LONG, async || {
        for listener in &mut listeners {
            listener.check()?;
            let lines = listener.log_text().lines().count();
            ensure!(lines > 2, "{}: {lines} lines", listener.name());
        }
        Ok(true)
    })
    .await?;
    match stage.lab.hub.options.builtin {
        true => stage.lab.hub.kill_api(),
        false => stage.fleet.hub.kill(),
    }
    for listener in &mut listeners {
        let status = listener.wait_ended(LONG).await?;
        let said = listener.log_text();
        let last = said.lines().last().unwrap_or_default();
        ensure!(
            !status.success() && last.contains("rror"),
            "{}: {status} {last:?}",
            listener.name()
        );
    }
    Ok(())
}
