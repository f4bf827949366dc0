//! The lab's command; `e2e/lab` builds and runs it.

use clap::Parser as _;
use std::process::ExitCode;

mod commands;
mod env;

#[tokio::main]
async fn main() -> ExitCode {
    match commands::Command::parse().run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
