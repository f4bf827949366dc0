//! `towline-hub backup` and `restore`: everything of a hub in one file, its keys too.

use crate::apiserver::backup::{PAGE, attachments};
use crate::apiserver::keys::FOLDER;
use crate::apiserver::store::{self, OpenError, Options, Store};
use anyhow::{Context as _, bail};
use clap::Args;
use common::client::{ClientOptions, kubeconfig_client};
use common::time::SharedClock;
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

/// Flags of `towline-hub restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A data directory without a hub
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// File that `towline-hub backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes a backup, of a hub that runs by asking it.
pub async fn backup(args: &BackupArgs) -> anyhow::Result<String> {
    if !args.data_dir.join(FOLDER).is_dir() {
        bail!("there is no hub in {}", args.data_dir.display());
    }
    let dir = args.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open(&dir, Options::default())).await?;
    match opened {
        Ok(store) => {
            let files = attachments(&args.data_dir).context("failed to read the keys")?;
            store.backup(&args.file, files).await?;
            store.close().await;
        }
        Err(OpenError::Locked { .. }) => fetch(args).await?,
        Err(error) => return Err(error.into()),
    }
    Ok(format!(
        "Written to {}. It holds every Secret and the keys of the certificate authority: keep it as safe.",
        args.file.display()
    ))
}

async fn fetch(args: &BackupArgs) -> anyhow::Result<()> {
    let kubeconfig = args.data_dir.join(super::kubeconfig::ADMIN_FILE);
    let options = ClientOptions::new("backup").with_timeout(std::time::Duration::from_secs(3600));
    let (client, _) = kubeconfig_client(Some(&kubeconfig), None, &options)
        .await
        .context("failed to make a client of the hub that runs")?;
    let request = http::Request::get(PAGE).body(Vec::new())?;
    let stream = client
        .request_stream(request)
        .await
        .context("failed to ask the hub that runs for a backup")?;
    let mut stream = std::pin::pin!(stream);
    let mut file = std::fs::OpenOptions::new();
    let mut file = file
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.file)
        .with_context(|| format!("failed to make {}", args.file.display()))?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = stream
            .read(&mut buffer)
            .await
            .context("failed to read the backup")?;
        if read == 0 {
            break;
        }
        file.write_all(&buffer[..read])?;
    }
    file.sync_all()?;
    Ok(())
}

/// Makes a data directory of a backup.
pub async fn restore(args: RestoreArgs, clock: &SharedClock) -> anyhow::Result<String> {
    let now = clock.now();
    let (file, dir) = (args.file.clone(), args.data_dir.clone());
    tokio::task::spawn_blocking(move || store::restore(&file, &dir, now)).await??;
    Ok(format!(
        "Restored into {dir}. Next:\n  towline-hub serve --data-dir {dir} --advertise HOST:PORT\n\
         Agents look for the hub where they knew it; they learn other addresses from it.",
        dir = args.data_dir.display()
    ))
}
