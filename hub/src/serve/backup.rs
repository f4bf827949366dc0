//! `towline-hub backup`: everything of a hub in one file, encrypted by a key that is not in it.

use super::beside::Beside;
use crate::apiserver::backup::{PAGE, attachments};
use crate::apiserver::sealing::Keyring;
use crate::apiserver::store::{self, OpenError};
use anyhow::{Context as _, bail};
use clap::Args;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use futures::AsyncReadExt as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// Flags of `towline-hub backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// File to write; it must not be there
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes a backup, of a hub that runs by asking it.
pub async fn backup(args: &BackupArgs) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    if args.file.exists() {
        bail!("{} exists already; move it away first", args.file.display());
    }
    match beside.store().await {
        Ok(store) => {
            let files = attachments(&args.data_dir, store.keyring())?;
            store.backup(&args.file, files).await?;
            store.close().await;
        }
        Err(OpenError::Locked { .. }) => fetch(args).await?,
        Err(error) => return Err(error.into()),
    }
    let key_file = Keyring::place(&args.data_dir);
    let key = Keyring::read(&key_file)?.context("the encryption key file is gone")?;
    Ok(format!(
        "Written to {}. Secrets and keys in it are encrypted by key {}, which is not in it: keep a copy of {} \
         apart from it, for without it nobody can restore this.",
        args.file.display(),
        key.first(),
        key_file.display()
    ))
}

async fn fetch(args: &BackupArgs) -> anyhow::Result<()> {
    let kubeconfig = args.data_dir.join(super::kubeconfig::ADMIN_FILE);
    let options = ClientOptions::new("backup").with_timeout(std::time::Duration::from_secs(3600));
    let (client, _) = kubeconfig_client(Some(&kubeconfig), None, &options, &Env::system())
        .await
        .context("failed to make a client of the hub that runs")?;
    let request = http::Request::post(PAGE).body(Vec::new())?;
    let stream = client
        .request_stream(request)
        .await
        .context("failed to ask the hub that runs for a backup")?;
    let mut partial = args.file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Partial(PathBuf::from(partial));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(&partial.0);
    let mut file = file.with_context(|| format!("failed to make {}", partial.0.display()))?;
    let mut stream = std::pin::pin!(stream);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = stream.read(&mut buffer).await;
        match read.context("failed to read the backup to its end; nothing is left of it")? {
            0 => break,
            read => file.write_all(&buffer[..read])?,
        }
    }
    file.sync_all()?;
    // One that was cut short looks whole to whoever counts no bytes.
    store::check_backup(&partial.0)?;
    let kept = std::fs::hard_link(&partial.0, &args.file);
    kept.with_context(|| format!("failed to make {}", args.file.display()))
}

/// A file on its way, gone when this is.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "what was written of the backup was not removed");
        }
    }
}
