//! Carrying a store away and beginning anew with it.

use super::disk::{Content, copy, read_copy};
use super::error::OpenError;
use super::{DATABASE, Store, lock, private_dir};
use chrono::{DateTime, Utc};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

/// How many revisions a second a store never hands out, as a power of two. A restored store begins
/// above what any before it can have reached by then.
const REVISIONS_A_SECOND: u32 = 20;

/// A file of the data directory that belongs to a backup, such as a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its path within the data directory.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl Store {
    /// Writes everything as it is now to a file that is not there, for its owner only. Writes go on
    /// meanwhile: it is made from memory.
    pub async fn backup(
        &self,
        target: &Path,
        attachments: Vec<Attachment>,
    ) -> Result<u64, OpenError> {
        // The lock is not held while the copy is written.
        let (revision, mut resources) = {
            let state = self.inner.shared.read();
            let tables = state.resources.iter();
            let tables = tables.map(|(name, resource)| (name.clone(), resource.table.clone()));
            (state.revision, tables.collect::<Vec<_>>())
        };
        resources.sort_by(|(a, _), (b, _)| a.cmp(b));
        let files = attachments.into_iter().map(|a| (a.path, a.content));
        let content = Content {
            revision,
            resources,
            files: files.collect(),
        };
        let target = target.to_owned();
        let file = target.clone();
        let written = tokio::task::spawn_blocking(move || copy(&content, &target)).await;
        written.unwrap_or(Err(OpenError::Interrupted { file }))?;
        Ok(revision)
    }
}

/// Makes a data directory of a backup, which had no store before. Revisions go on above any that was
/// handed out since the backup, and every watch from before begins anew. Blocks meanwhile.
pub fn restore(backup: &Path, dir: &Path, now: DateTime<Utc>) -> Result<u64, OpenError> {
    private_dir(dir)?;
    let _lock = lock(dir)?;
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let begin = seconds << REVISIONS_A_SECOND;
    read_copy(backup, &dir.join(DATABASE), begin, |files| {
        for (path, content) in files {
            attach(backup, dir, &path, &content)?;
        }
        Ok(())
    })
}

fn attach(backup: &Path, dir: &Path, path: &str, content: &[u8]) -> Result<(), OpenError> {
    let relative = PathBuf::from(path);
    let inside = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    if !inside || path.is_empty() {
        return Err(OpenError::Damaged {
            file: backup.to_owned(),
            what: format!("it holds a file for {path:?}"),
        });
    }
    let target = dir.join(relative);
    let io = |source| OpenError::Io {
        action: "write",
        path: target.clone(),
        source,
    };
    if let Some(parent) = target.parent() {
        private_dir(parent)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&target).map_err(io)?;
    file.write_all(content).map_err(io)?;
    file.sync_all().map_err(io)
}
