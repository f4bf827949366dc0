//! `towline-hub encryption`: the keys by which a hub encrypts what it keeps.

use super::beside::Beside;
use crate::apiserver::keys::seal_all;
use crate::apiserver::sealing::Keyring;
use crate::apiserver::store::OpenError;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `towline-hub encryption` does.
#[derive(Debug, Subcommand)]
pub enum Encryption {
    /// Make a new key, encrypt everything by it, and drop the old one; the hub must not run meanwhile
    Rotate(EncryptionArgs),
    /// Show which key file is used and the keys in it, never the keys themselves
    Status(EncryptionArgs),
}

/// Flags of `towline-hub encryption`.
#[derive(Debug, Args)]
pub struct EncryptionArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
}

/// Shows which keys there are.
pub fn status(args: &EncryptionArgs) -> anyhow::Result<String> {
    let ring = ring(&Beside::open(&args.data_dir)?)?;
    let mut ids = ring.ids().into_iter();
    let first = ids.next().map(|id| id.to_string()).unwrap_or_default();
    let mut said = format!("{}\n  {first}  encrypts", ring.file().display());
    for id in ids {
        said.push_str(&format!("\n  {id}  decrypts what is left of before"));
    }
    Ok(said)
}

fn ring(beside: &Beside) -> anyhow::Result<Keyring> {
    let file = Keyring::place(beside.dir());
    let ring = Keyring::read(&file)?;
    ring.with_context(|| {
        format!(
            "there is no encryption key file {}: a hub makes it at its first start",
            file.display()
        )
    })
}

/// Replaces the key. Cut short, it is completed by the next call: both keys are in the file until
/// nothing is left of the old one.
pub async fn rotate(args: &EncryptionArgs) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    let _alone = beside.lock_keys()?;
    ring(&beside)?;
    // Nothing is changed beside a hub that runs, and nothing is added to what is not whole yet.
    encrypt(&beside).await?;
    // What is in the file now: it may have been changed by hand until the store was opened by it.
    let ring = ring(&beside)?;
    let ring = match ring.ids().len() {
        1 => ring.with_new_key()?,
        _ => ring,
    };
    encrypt(&beside).await?;
    seal_all(&beside.keys())?;
    let kept = ring.without_old_keys()?;
    let kept: Vec<String> = kept.iter().map(|file| file.display().to_string()).collect();
    Ok(format!(
        "Everything is encrypted by the new key {}, in {}. Keep a copy of it apart from the data and its backups.\n\
         Backups of before need the old key: {}. Keep it where the copies are, and delete it here.",
        ring.first(),
        ring.file().display(),
        kept.join(", ")
    ))
}

/// Opening the store encrypts everything in it by the first key.
async fn encrypt(beside: &Beside) -> anyhow::Result<()> {
    match beside.store().await {
        Ok(store) => {
            store.close().await;
            Ok(())
        }
        Err(error @ OpenError::Locked { .. }) => Err(error).context(
            "the hub runs: stop it for as long as this takes, seconds as a rule; agents go on",
        ),
        Err(error) => Err(error.into()),
    }
}
