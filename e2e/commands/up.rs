//! `up`: a keeper in the background holds the lab; this waits until it says that all is ready.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::status::{State, lab_dir};
use crate::env::{LabOptions, Part, Parts, Version, missing_for_a_real_node, wait_for};

const UP_WITHIN: Duration = Duration::from_secs(300);

/// What a lab is to be.
#[derive(Debug, Clone, Args)]
pub(crate) struct LabArgs {
    /// Number of members
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) members: usize,
    /// Give the first member a real kubelet and containerd (needs root)
    #[arg(long)]
    pub(crate) real_node: bool,
    /// Control planes only, without Towline
    #[arg(long)]
    pub(crate) bare: bool,
    /// What the hub is: kube-apiserver, or Towline's own
    #[arg(long, value_enum, default_value_t = Foundation::Real, value_name = "KIND")]
    pub(crate) hub: Foundation,
    /// What the members are
    #[arg(long, value_enum, default_value_t = Foundation::Real, value_name = "KIND")]
    pub(crate) member: Foundation,
    /// Kubernetes of the members: 1.36, 1.33 or 1.30
    #[arg(long, default_value = "1.36", value_name = "V")]
    pub(crate) member_version: Version,
    /// Kubernetes of the hub: 1.36 or 1.33
    #[arg(long, default_value = "1.36", value_name = "V")]
    pub(crate) hub_version: Version,
    /// With `build`: everything that tests run, at the newest version of Kubernetes
    #[arg(long, hide = true)]
    pub(crate) for_tests: bool,
    /// Build and run Towline as it is shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    pub(crate) release: bool,
}

/// What serves the API of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Foundation {
    /// kube-apiserver and etcd.
    Real,
    /// `towline-hub serve`.
    Builtin,
}

impl LabArgs {
    /// The lab they describe.
    pub(crate) fn options(&self) -> LabOptions {
        let mut options = LabOptions::versions(self.members, self.hub_version, self.member_version);
        options.hub.builtin |= self.hub == Foundation::Builtin;
        for member in &mut options.members {
            member.builtin |= self.member == Foundation::Builtin;
        }
        if let Some(first) = options.members.first_mut().filter(|_| self.real_node) {
            first.make_real();
        }
        options
    }

    /// Builds what the lab needs, and kubectl to look at it; of built-in servers alone, nothing.
    pub(crate) async fn build(&self) -> Result<()> {
        let mut parts = self.options().parts();
        if parts.is_empty() && !self.for_tests {
            return Ok(());
        }
        parts.push(Part::Kubectl);
        if self.for_tests {
            parts.extend([Part::Informer, Part::Helm]);
            // Without root no test of a real node runs.
            if missing_for_a_real_node().is_empty() {
                parts.extend(Part::of_the_node());
            }
        }
        Parts::from_env()?.build(&parts).await
    }

    fn to_args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--members={}", self.members),
            format!("--member-version={}", self.member_version),
            format!("--hub-version={}", self.hub_version),
        ];
        let builtin = |foundation| foundation == Foundation::Builtin;
        for (given, flag) in [
            (self.bare, "--bare"),
            (self.real_node, "--real-node"),
            (builtin(self.hub), "--hub=builtin"),
            (builtin(self.member), "--member=builtin"),
        ] {
            if given {
                args.push(flag.to_owned());
            }
        }
        args
    }
}

/// Starts a lab and leaves it running.
pub(crate) async fn up(args: &LabArgs) -> Result<()> {
    let dir = lab_dir()?;
    if let Some(state) = State::read(&dir)?.filter(State::alive) {
        bail!(
            "a lab runs already in {} (process {}); `e2e/lab down` ends it",
            dir.display(),
            state.keeper
        );
    }
    args.build().await?;
    if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("failed to remove the lab of before in {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    let log = dir.join("keeper.log");
    let output = std::fs::File::create(&log)
        .with_context(|| format!("failed to create {}", log.display()))?;
    let errors = output.try_clone().context("failed to share a log file")?;
    let me = std::env::current_exe().context("failed to find this program's own path")?;
    let mut keeper = std::process::Command::new("setsid")
        .arg(me)
        .arg("keep")
        .args(args.to_args())
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("failed to start the lab's keeper")?;
    let mut shown = 0;
    let ready = wait_for("a ready lab", UP_WITHIN, || {
        let outcome = (|| {
            shown = copy_from(&log, shown)?;
            if keeper
                .try_wait()
                .context("failed to watch the keeper")?
                .is_some()
            {
                // Reported below, by its log.
                return Ok(true);
            }
            Ok(State::read(&dir)?.is_some_and(|state| state.ready))
        })();
        async move { outcome }
    })
    .await;
    copy_from(&log, shown)?;
    if ready.is_err() {
        // Its children go with it. An error here means that it has gone already.
        let _ = keeper.kill();
    }
    ready?;
    if keeper
        .try_wait()
        .context("failed to watch the keeper")?
        .is_some()
    {
        bail!("the lab did not come up; logs are in {}", dir.display());
    }
    super::status::status()
}

/// Prints what a log holds beyond `from`; returns its new end.
fn copy_from(path: &Path, from: u64) -> Result<u64> {
    let read = || -> std::io::Result<u64> {
        let mut file = std::fs::File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        eprint!("{}", String::from_utf8_lossy(&text));
        Ok(from + text.len() as u64)
    };
    read().with_context(|| format!("failed to read {}", path.display()))
}
