//! The programs under test: the operator's command, the hub, agents.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::dirs::target_dir;
use super::process::{FROM_OUTSIDE, Process, ProcessSpec, Run, run};

/// No command of ours may take longer, whatever it waits for.
const COMMAND_WITHIN: Duration = Duration::from_secs(360);

/// A binary that was built beside this program.
pub(crate) fn binary(name: &str) -> Result<PathBuf> {
    let path = target_dir()?.join(name);
    if !path.exists() {
        bail!(
            "{} does not exist; run `cargo build -p hub -p agent --bins`",
            path.display()
        );
    }
    Ok(path)
}

/// How tests run Towline: which binaries, and where logs and states go.
#[derive(Debug, Clone)]
pub(crate) struct Towline {
    dir: PathBuf,
}

impl Towline {
    /// Logs and states below `dir`.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("failed to create {}", dir.display()))?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Runs `towline` with arguments and keeps what it says.
    pub(crate) async fn cli<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Run> {
        self.cli_with_input(args, None).await
    }

    /// The same, with something on standard input.
    pub(crate) async fn cli_with_input<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: Option<&str>,
    ) -> Result<Run> {
        run(self.command(args)?, input, COMMAND_WITHIN).await
    }

    /// `towline` with arguments, which whoever calls this runs.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(binary("towline")?);
        command.args(args);
        for name in FROM_OUTSIDE {
            command.env_remove(name);
        }
        Ok(command)
    }

    /// Starts `towline-hub run` with the hub's kubeconfig and more flags.
    pub(crate) fn hub(&self, name: &str, kubeconfig: &Path, args: &[&str]) -> Result<Process> {
        let spec = ProcessSpec::new(name, &binary("towline-hub")?, &self.dir)
            .arg("run")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(args);
        Process::start(spec)
    }

    /// What starts `towline-agent run` for a member, with its state in a folder of its own.
    pub(crate) fn agent_spec(
        &self,
        name: &str,
        member_kubeconfig: &Path,
        args: &[&str],
    ) -> Result<ProcessSpec> {
        let state = self.dir.join(format!("{name}-state"));
        Ok(ProcessSpec::new(name, &binary("towline-agent")?, &self.dir)
            .arg("run")
            .arg("--kubeconfig")
            .arg(member_kubeconfig)
            .arg("--state-dir")
            .arg(state)
            .args(args))
    }

    /// Starts an agent (see [`Towline::agent_spec`]).
    pub(crate) fn agent(
        &self,
        name: &str,
        member_kubeconfig: &Path,
        args: &[&str],
    ) -> Result<Process> {
        Process::start(self.agent_spec(name, member_kubeconfig, args)?)
    }
}
