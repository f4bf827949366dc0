//! Processes that never outlive the program that started them.
//!
//! Each is the leader of a group of its own and asks the kernel (through setpriv) to be killed when
//! its starter goes. The kernel means the starting *thread* by that, and test threads end early, so
//! one thread that lives as long as the program starts them all.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use super::wait::wait_for;

struct Job {
    command: Command,
    reply: mpsc::SyncSender<std::io::Result<Child>>,
}

static SPAWNER: LazyLock<mpsc::SyncSender<Job>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::sync_channel::<Job>(16);
    std::thread::spawn(move || {
        for mut job in queue {
            // A starter that no longer listens has ended; the child is reaped by init.
            let _ = job.reply.send(job.command.spawn());
        }
    });
    jobs
});

/// What the environment of whoever runs the lab must not change in it.
pub(crate) const FROM_OUTSIDE: [&str; 10] = [
    "KUBECONFIG",
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "RUST_LOG",
];

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct ProcessSpec {
    /// How messages name it.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Environment in addition to ours.
    pub(crate) envs: Vec<(OsString, OsString)>,
    /// The file that takes its output.
    pub(crate) log: PathBuf,
}

impl ProcessSpec {
    /// A program with arguments; its output goes to `<logs>/<name>.log`.
    pub(crate) fn new(name: &str, program: &Path, logs: &Path) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            log: logs.join(format!("{name}.log")),
        }
    }

    /// With one more argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// With more arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// With one more variable.
    pub(crate) fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs
            .push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }
}

/// A process of the lab; dropped, it is killed with its whole group.
#[derive(Debug)]
pub(crate) struct Process {
    spec: ProcessSpec,
    child: Option<Child>,
    absent: bool,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(spec: ProcessSpec) -> Result<Self> {
        let mut process = Self {
            spec,
            child: None,
            absent: false,
        };
        process.restart()?;
        Ok(process)
    }

    /// One that a plane of another kind has no need of: never runs, and never has ended.
    pub(crate) fn absent(name: &str, logs: &Path) -> Self {
        Self {
            spec: ProcessSpec::new(name, Path::new("/nowhere"), logs),
            child: None,
            absent: true,
        }
    }

    /// Starts it again, killing it first if it runs; the log goes on.
    pub(crate) fn restart(&mut self) -> Result<()> {
        if self.absent {
            return Ok(());
        }
        self.kill();
        let spec = &self.spec;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .with_context(|| format!("failed to open {}", spec.log.display()))?;
        let errors = log
            .try_clone()
            .with_context(|| format!("failed to open {}", spec.log.display()))?;
        let mut command = Command::new("setpriv");
        for name in FROM_OUTSIDE {
            command.env_remove(name);
        }
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&spec.program)
            .args(&spec.args)
            .envs(spec.envs.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0);
        let (reply, answer) = mpsc::sync_channel(1);
        if SPAWNER.send(Job { command, reply }).is_err() {
            bail!("the thread that starts processes is gone");
        }
        let child = answer
            .recv()
            .context("the thread that starts processes is gone")?
            .with_context(|| {
                format!("failed to start {} ({})", spec.name, spec.program.display())
            })?;
        self.child = Some(child);
        Ok(())
    }

    /// Changes what the next [`Process::restart`] runs.
    pub(crate) fn spec_mut(&mut self) -> &mut ProcessSpec {
        &mut self.spec
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// The log file.
    pub(crate) fn log(&self) -> &Path {
        &self.spec.log
    }

    /// All that the log holds now.
    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.spec.log).unwrap_or_default()
    }

    /// The process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, or `None` while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.child {
            None if self.absent => Ok(None),
            None => Ok(Some(ExitStatus::from_raw(0))),
            Some(child) => child
                .try_wait()
                .with_context(|| format!("failed to look after {}", self.spec.name)),
        }
    }

    /// Fails with the end of the log when it no longer runs.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!(
                "{} ended ({status}); the end of {}:\n{}",
                self.spec.name,
                self.spec.log.display(),
                tail(&self.spec.log, 2000)
            );
        }
        Ok(())
    }

    /// Waits until it ends of itself.
    pub(crate) async fn wait_ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.spec.name);
        wait_for(&what, within, || {
            let ended = self.ended();
            async move { Ok(ended?.is_some()) }
        })
        .await?;
        Ok(self.ended()?.unwrap_or_default())
    }

    /// Sends a signal to the whole group (`Signal::STOP` and `Signal::CONT` freeze and thaw).
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(child) = &self.child else { return };
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        // No such group: it has ended already, which is what most signals are for.
        let _ = kill_process_group(pid, signal);
    }

    /// Asks it to end, and kills it when it has not by the deadline.
    pub(crate) async fn stop(&mut self, within: Duration) -> Result<ExitStatus> {
        if self.child.is_none() {
            return Ok(ExitStatus::from_raw(0));
        }
        self.signal(Signal::TERM);
        let ended = self.wait_ended(within).await;
        self.kill();
        ended
    }

    /// Kills it and its group, and reaps it.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut child) = self.child.take() {
            // Killed, it ends at once; an error means that it was reaped before.
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of a file.
pub(crate) fn tail(path: &Path, bytes: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_else(|error| format!("(unreadable: {error})"))
}

/// What a command that ran to its end said.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// The command line, for messages.
    pub(crate) command: String,
    /// The exit code; -1 for a signal.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// Fails unless the command succeeded.
    pub(crate) fn ok(self) -> Result<Self> {
        if self.code != 0 {
            bail!(
                "`{}` ended with code {}\nstdout: {}\nstderr: {}",
                self.command,
                self.code,
                self.stdout.trim_end(),
                self.stderr.trim_end()
            );
        }
        Ok(self)
    }

    /// Fails unless the command failed.
    pub(crate) fn refused(self) -> Result<Self> {
        if self.code == 0 {
            bail!(
                "`{}` succeeded, but should not have\nstdout: {}\nstderr: {}",
                self.command,
                self.stdout.trim_end(),
                self.stderr.trim_end()
            );
        }
        Ok(self)
    }
}

/// Runs a command to its end and keeps what it says; `stdin` is given to it whole.
pub(crate) async fn run(
    mut command: tokio::process::Command,
    stdin: Option<&str>,
    within: Duration,
) -> Result<Run> {
    use tokio::io::AsyncWriteExt as _;
    let line = format!("{:?}", command.as_std());
    command
        .stdin(if stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start `{line}`"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes())
            .await
            .with_context(|| format!("failed to write to `{line}`"))?;
    }
    let output = tokio::time::timeout(within, child.wait_with_output())
        .await
        .with_context(|| format!("`{line}` did not end within {within:?}"))?
        .with_context(|| format!("failed to run `{line}`"))?;
    Ok(Run {
        command: line,
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
