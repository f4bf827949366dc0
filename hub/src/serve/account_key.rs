//! `towline-hub service-account-key`: the key that signs tokens of ServiceAccounts.

use super::authority::NOT_YET;
use super::beside::Beside;
use crate::apiserver::keys::account::AccountKeys;
use chrono::SecondsFormat;
use clap::{Args, Subcommand};
use common::time::SharedClock;
use kube::Client;
use serde_json::Value;
use std::path::PathBuf;

/// What `towline-hub service-account-key` does.
#[derive(Debug, Subcommand)]
pub enum ServiceAccountKey {
    /// Sign tokens of ServiceAccounts by a new key
    Rotate(RotateArgs),
}

/// Flags of `towline-hub service-account-key rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// Refuse every token that was signed before, at once: somebody else has the key
    #[arg(long)]
    revoke: bool,
}

/// Rotates, and says what became of earlier tokens, once the hub that runs has taken it over.
pub async fn rotate(args: &RotateArgs, clock: &SharedClock) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    let _alone = beside.lock_keys()?;
    let runs = beside.is_served()?;
    let (id, until) = AccountKeys::rotate(&beside.keys(), args.revoke, clock.now())?;
    if runs {
        let signs = |client| signs_by(client, id.clone());
        beside.until("the new key", signs).await?;
    }
    let said = match until {
        Some(until) => {
            let until = until.to_rfc3339_opts(SecondsFormat::Secs, true);
            format!(
                "Tokens are signed by the new key. Those that were signed before hold until they end, by {until} at the latest."
            )
        }
        None => {
            "Tokens are signed by the new key. All that were signed before are refused.".to_owned()
        }
    };
    Ok(match runs {
        true => said,
        false => format!("{NOT_YET}\n{said}"),
    })
}

/// Whether the hub signs by the key of this id.
async fn signs_by(client: Client, id: String) -> anyhow::Result<bool> {
    let request = http::Request::get("/openid/v1/jwks").body(Vec::new())?;
    let set: Value = client.request(request).await?;
    Ok(set["keys"][0]["kid"] == id.as_str())
}
