//! What a running lab has written about itself, and `status` and `down` from it.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{remove_cgroups, repository, wait_for, write_private};

/// Where the lab of this checkout lies: `TOWLINE_LAB_DIR`, or `target/lab`.
pub(crate) fn lab_dir() -> Result<PathBuf> {
    let dir = match std::env::var_os("TOWLINE_LAB_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => repository().join("target/lab"),
    };
    std::path::absolute(&dir).with_context(|| format!("{} is no path", dir.display()))
}

/// The file `state.json` of a lab.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The process that holds the lab.
    pub(crate) keeper: u32,
    /// Whether everything has started.
    pub(crate) ready: bool,
    /// Kubeconfigs by plane.
    pub(crate) kubeconfigs: Vec<(String, PathBuf)>,
    /// What runs: name and process id.
    pub(crate) processes: Vec<(String, u32)>,
}

impl State {
    /// Reads the state in `dir`, if there is any.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join("state.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let state = serde_json::from_str(&text)
            .with_context(|| format!("{} is not the state of a lab", path.display()))?;
        Ok(Some(state))
    }

    /// Writes it whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("failed to write a state")?;
        let fresh = dir.join("state.json.new");
        write_private(&fresh, &text)?;
        std::fs::rename(&fresh, dir.join("state.json"))
            .with_context(|| format!("failed to write the state in {}", dir.display()))
    }

    /// Whether the keeper runs, and is a keeper (ids are used again).
    pub(crate) fn alive(&self) -> bool {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.keeper)).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        runs(self.keeper) && words.any(|word| word == b"keep")
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

fn runs(id: u32) -> bool {
    pid(id).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Says what runs.
pub(crate) fn status() -> Result<()> {
    let dir = lab_dir()?;
    let Some(state) = State::read(&dir)? else {
        println!("no lab in {}", dir.display());
        return Ok(());
    };
    if !state.alive() {
        println!("the lab in {} has ended; its logs are there", dir.display());
        return Ok(());
    }
    println!("a lab runs in {} (process {})", dir.display(), state.keeper);
    for (name, id) in &state.processes {
        let word = if runs(*id) { "runs" } else { "ENDED" };
        println!("  {name:<36} {id:>8}  {word}");
    }
    for (name, path) in &state.kubeconfigs {
        println!("  export KUBECONFIG={}  # {name}", path.display());
    }
    Ok(())
}

/// Ends the lab and verifies that nothing of it is left.
pub(crate) async fn down() -> Result<()> {
    let dir = lab_dir()?;
    let Some(state) = State::read(&dir)? else {
        println!("no lab in {}", dir.display());
        return Ok(());
    };
    if let Some(keeper) = pid(state.keeper).filter(|_| state.alive()) {
        kill_process(keeper, Signal::TERM).context("failed to signal the lab's keeper")?;
        wait_for(
            "the end of the lab's keeper",
            Duration::from_secs(60),
            || {
                let ended = !state.alive();
                async move { Ok(ended) }
            },
        )
        .await?;
    }
    // A keeper that was killed could not do this.
    for plane in std::fs::read_dir(dir.join("planes"))
        .into_iter()
        .flatten()
        .flatten()
    {
        remove_cgroups(&plane.path().join("node"));
    }
    let is_ours = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
    };
    let left: Vec<String> = state
        .processes
        .iter()
        .filter(|(_, id)| runs(*id) && is_ours(*id))
        .map(|(name, id)| format!("{name} ({id})"))
        .collect();
    if !left.is_empty() {
        bail!(
            "the lab has ended, but these still run: {}",
            left.join(", ")
        );
    }
    println!("the lab in {} has ended; its logs are there", dir.display());
    Ok(())
}
