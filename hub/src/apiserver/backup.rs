//! The page that answers with a backup of the hub: everything in the store, and the keys.
//!
//! It is a resource of its own to whoever decides about rights: to `create` `backups` of `towline.dev`. A right
//! to read every page is none to read every Secret.

use super::authz::Attributes;
use super::error::ApiError;
use super::keys::FOLDER;
use super::sealing::{self, Keyring};
use super::store::{Attachment, Store};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Where it is asked for; a `POST`.
pub const PAGE: &str = "/towline.dev/backup";
/// How long it may take to make one.
pub(super) const WITHIN: Duration = Duration::from_secs(3600);
/// What the name begins with that it has in the data directory for the moment in which it is written.
pub const BESIDE: &str = ".backup-";

/// The right that whoever asks for one must have.
pub(super) fn right() -> Attributes {
    Attributes {
        verb: "create".to_owned(),
        group: "towline.dev".to_owned(),
        resource: "backups".to_owned(),
        ..Attributes::default()
    }
}

/// Removes what a process that was killed left of one.
pub(super) fn sweep(data_dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(data_dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(BESIDE) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Why the files beside the database could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("failed to read the keys")]
    Read(#[from] io::Error),
    /// One of them cannot be encrypted.
    #[error(transparent)]
    Encryption(#[from] sealing::Error),
}

/// The files beside the database that belong to a backup, private keys encrypted.
pub fn attachments(data_dir: &Path, ring: &Keyring) -> Result<Vec<Attachment>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data_dir.join(FOLDER))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Half-written files are nobody's.
        if !entry.file_type()?.is_file() || name.ends_with(".new") {
            continue;
        }
        let content = std::fs::read(entry.path())?;
        let sealed = ring.reseal_file(&name, &content)?;
        files.push(Attachment {
            path: format!("{FOLDER}/{name}"),
            content: sealed.unwrap_or(content),
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Makes a backup of the store and of what lies beside it: a file that is gone when it is closed. `number` tells
/// it from others of the same moment.
pub(super) async fn make(store: &Store, data_dir: &Path, number: u64) -> Result<File, ApiError> {
    let path = data_dir.join(format!("{BESIDE}{number:016x}"));
    let files = attachments(data_dir, store.keyring());
    let files = files.map_err(|error| ApiError::internal(common::errors::chain(&error)))?;
    let made = store.backup_unnamed(&path, files).await;
    made.map_err(|error| ApiError::internal(common::errors::chain(&error)))
}
