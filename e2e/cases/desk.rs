//! Where commands are typed as a person types them: a shell that finds `towline` and `kubectl`, in a folder of its own.

use anyhow::Result;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

use crate::env::{Run, binary, run};

/// The folder, and where programs are found from there.
pub(super) struct Desk {
    pub(super) folder: PathBuf,
    path: OsString,
}

impl Desk {
    /// Makes the folder.
    pub(super) fn new(folder: PathBuf, kubectl: &Path) -> Result<Self> {
        let programs = folder.join("bin");
        fs::create_dir_all(&programs)?;
        for (name, program) in [
            ("towline", binary("towline")?),
            ("kubectl-towline", binary("towline")?),
            ("kubectl", kubectl.to_owned()),
        ] {
            symlink(program, programs.join(name))?;
        }
        let outside = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(programs).chain(std::env::split_paths(&outside));
        Ok(Self {
            folder,
            path: std::env::join_paths(path)?,
        })
    }

    /// What a line does, typed with this kubeconfig.
    pub(super) async fn typed(
        &self,
        line: &str,
        kubeconfig: &Path,
        within: Duration,
    ) -> Result<Run> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder);
        command
            .env("PATH", &self.path)
            .env("HOME", &self.folder)
            .env("KUBECONFIG", kubeconfig);
        run(command, None, within).await
    }
}
