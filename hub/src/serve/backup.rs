//! `towline-hub backup`: everything of a hub in one file, encrypted by a key that is not in it.

use super::beside::Beside;
use crate::apiserver::backup::{BESIDE, PAGE, attachments};
use crate::apiserver::sealing::Keyring;
use crate::apiserver::store::{self, OpenError};
use anyhow::{Context as _, bail};
use clap::Args;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use futures::AsyncReadExt as _;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file that stands for standard output.
const OUTPUT: &str = "-";

/// Flags of `towline-hub backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// File to write, which must not be there; `-` for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl BackupArgs {
    /// Whether the backup goes to standard output, where nothing else may go then.
    pub fn is_to_output(&self) -> bool {
        self.file.as_os_str() == OUTPUT
    }
}

/// Makes a backup, of a hub that runs by asking it.
pub async fn backup(args: &BackupArgs) -> anyhow::Result<String> {
    if args.is_to_output() {
        let output = std::io::stdout();
        let is_terminal = output.is_terminal();
        return backup_to(output, is_terminal, &args.data_dir).await;
    }
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
        Err(OpenError::Locked { .. }) => {
            let mut partial = args.file.as_os_str().to_owned();
            partial.push(".partial");
            let partial = Partial(PathBuf::from(partial));
            fetch(&args.data_dir, &partial).await?;
            let kept = std::fs::hard_link(&partial.0, &args.file);
            kept.with_context(|| format!("failed to make {}", args.file.display()))?;
        }
        Err(error) => return Err(error.into()),
    }
    said(&args.file.display().to_string(), &args.data_dir)
}

/// The same into something that is read from its beginning to its end. It is whole before the first byte of it goes
/// there, and lies in the data directory until then, without a name.
async fn backup_to(
    mut output: impl Write,
    is_terminal: bool,
    data_dir: &Path,
) -> anyhow::Result<String> {
    if is_terminal {
        bail!(
            "a backup is no text, and standard output is a terminal: name a file, or send it into one or into a pipe"
        );
    }
    let beside = Beside::open(data_dir)?;
    let path = data_dir.join(format!("{BESIDE}of-{}", std::process::id()));
    // Of one that was killed: nobody else has this number now.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("failed to remove {}", path.display()));
        }
        _ => {}
    }
    let mut made = match beside.store().await {
        Ok(store) => {
            let files = attachments(data_dir, store.keyring())?;
            let made = store.backup_unnamed(&path, files).await?;
            store.close().await;
            made
        }
        Err(OpenError::Locked { .. }) => {
            let partial = Partial(path);
            fetch(data_dir, &partial).await?;
            let made = File::open(&partial.0);
            made.with_context(|| format!("failed to open {}", partial.0.display()))?
        }
        Err(error) => return Err(error.into()),
    };
    let written = std::io::copy(&mut made, &mut output).and_then(|_| output.flush());
    written.context("failed to write the backup to its end; what was written of it is none")?;
    said("standard output", data_dir)
}

fn said(to: &str, data_dir: &Path) -> anyhow::Result<String> {
    let key_file = Keyring::place(data_dir);
    let key = Keyring::read(&key_file)?.context("the encryption key file is gone")?;
    Ok(format!(
        "Written to {to}. Secrets and keys in it are encrypted by key {}, which is not in it: keep a copy of {} \
         apart from it, for without it nobody can restore this.",
        key.first(),
        key_file.display()
    ))
}

/// Has the hub that runs make one, into a file that is whole when this returns.
async fn fetch(data_dir: &Path, into: &Partial) -> anyhow::Result<()> {
    let kubeconfig = data_dir.join(super::kubeconfig::ADMIN_FILE);
    let options = ClientOptions::new("backup").with_timeout(std::time::Duration::from_secs(3600));
    let (client, _) = kubeconfig_client(Some(&kubeconfig), None, &options, &Env::system())
        .await
        .context("failed to make a client of the hub that runs")?;
    let request = http::Request::post(PAGE).body(Vec::new())?;
    let stream = client
        .request_stream(request)
        .await
        .context("failed to ask the hub that runs for a backup")?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(&into.0);
    let mut file = file.with_context(|| format!("failed to make {}", into.0.display()))?;
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
    store::check_backup(&into.0)?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::keys::Keys;
    use crate::apiserver::store::{Change, Class, Expect, Key, Options, Store, Write as Commit};
    use clap::Parser;
    use common::time::{SharedClock, SystemClock};
    use serde_json::json;
    use std::sync::Arc;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        backup: BackupArgs,
    }

    #[test]
    fn a_dash_is_standard_output() {
        for (file, is) in [("-", true), ("./-", false), ("hub.backup", false)] {
            let cli = Cli::try_parse_from(["backup", "--data-dir", "d", file]);
            assert_eq!(cli.expect("flags").backup.is_to_output(), is, "{file}");
        }
    }

    #[tokio::test]
    async fn a_backup_goes_into_a_pipe_and_to_no_terminal() {
        let dir = tempfile::tempdir().expect("a folder");
        let data_dir = dir.path().join("data");
        let store = Store::open(&data_dir, Options::default()).expect("opens");
        let clock: SharedClock = Arc::new(SystemClock);
        Keys::open(&data_dir, &clock).expect("made");
        let write = Commit {
            resource: "/configmaps".into(),
            key: Key::new("default", "a"),
            expect: Expect::Absent,
            change: Change::Put(json!({"metadata": {"name": "a", "namespace": "default"}})),
            class: Class::Durable,
        };
        store.commit(write).await.expect("made");
        store.close().await;
        let mut written = Vec::new();
        let refused = backup_to(&mut written, true, &data_dir).await;
        let refused = refused.expect_err("a terminal").to_string();
        assert!(refused.contains("terminal"), "{refused}");
        assert!(written.is_empty());
        let told = backup_to(&mut written, false, &data_dir).await;
        let told = told.expect("written");
        assert!(told.contains("standard output"), "{told}");
        let file = dir.path().join("backup");
        std::fs::write(&file, &written).expect("written");
        store::check_backup(&file).expect("whole");
        let names = std::fs::read_dir(&data_dir).expect("lists");
        let names = names.map(|it| it.expect("an entry").file_name());
        let left = names.filter(|it| it.to_string_lossy().starts_with(BESIDE));
        assert_eq!(left.count(), 0, "nothing of it is left");
    }
}
