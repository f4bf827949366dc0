//! `towline demo --once`: every step holds, and nothing is left running.

use anyhow::{Result, ensure};

use crate::env::{Scratch, Towline};

#[tokio::test]
async fn every_step_of_the_demo_holds() -> Result<()> {
    let scratch = Scratch::new("demo")?;
    let towline = Towline::new(scratch.path())?;
    let data = scratch.join("data").display().to_string();
    let said = towline
        .cli(["demo", "--once", "--dir", &data])
        .await?
        .ok()?;
    for step in [
        "member3 is Ready",
        "Applied and Healthy",
        "Ready is Unknown",
        "Every step held",
    ] {
        ensure!(said.stdout.contains(step), "no {step:?} in {}", said.stdout);
    }
    scratch.passed();
    Ok(())
}
