//! Waiting on a condition with a deadline; nothing else in the lab or the tests may sleep.

use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Waits until `condition` yields a value; an error of the condition is shown if the deadline
/// passes, and does not end the wait.
pub(crate) async fn wait_for_some<T>(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut last = String::from("the condition did not hold");
    loop {
        match timeout_at(deadline, condition()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => "the condition did not hold".clone_into(&mut last),
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => last = format!("the check itself did not return; before that: {last}"),
        }
        if Instant::now() + pause > deadline {
            bail!("{what} did not happen within {within:?}: {last}");
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// Waits until `condition` is true.
pub(crate) async fn wait_for(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    wait_for_some(what, within, async || Ok(condition().await?.then_some(()))).await
}
