//! What the kernel says of a process: its memory and the processor time that it has used.

use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;
use std::time::Duration;

/// Resident memory of a process, in bytes.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let line = line.with_context(|| format!("{path} tells no memory"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Processor time that a process has used.
pub(super) fn processor_time(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    // The name of the program, which comes second, may hold anything.
    let (_, fields) = text
        .rsplit_once(')')
        .context("no name in a process's state")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(
        ticks as f64 / clock_ticks_per_second() as f64,
    ))
}

/// The same of several processes together.
pub(super) fn of_all<T: std::iter::Sum>(pids: &[u32], of: impl Fn(u32) -> Result<T>) -> Result<T> {
    pids.iter().map(|pid| of(*pid)).sum()
}

/// Bytes as MiB.
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
