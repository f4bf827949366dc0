//! `towline-hub ca rotate`: one step of replacing the hub's certificate authority.

use crate::apiserver::keys::authority::{Authorities, Step};
use crate::apiserver::keys::{Error, FOLDER, Keys};
use clap::{Args, Subcommand};
use common::time::SharedClock;
use std::path::PathBuf;

/// What `towline-hub ca` does.
#[derive(Debug, Subcommand)]
pub enum Ca {
    /// Take the next of the three steps that replace the certificate authority
    Rotate(RotateArgs),
}

/// Flags of `towline-hub ca rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
}

/// Takes a step, and says what it did and what comes next. A hub that runs notices by itself.
pub fn rotate(args: &RotateArgs, clock: &SharedClock) -> Result<&'static str, Error> {
    Keys::existing(&args.data_dir)?;
    let step = Authorities::advance(&args.data_dir.join(FOLDER), clock.now())?;
    Ok(match step {
        Step::Introduced => {
            "A new certificate authority is trusted and published in cluster-info beside the old one, \
             which still signs. Run this again once every agent and every kubeconfig trusts both."
        }
        Step::Promoted => {
            "The new certificate authority signs; the old one is still trusted. Run this again once \
             every agent has renewed its certificate, at the latest after its lifetime."
        }
        Step::Finished => {
            "The old certificate authority is no longer trusted. The rotation is complete."
        }
    })
}
