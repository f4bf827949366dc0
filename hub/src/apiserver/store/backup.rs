//! Carrying a store away and beginning anew with it.

use super::directory::UNFINISHED;
use super::disk::{Content, Edit, Restoring, check, copy, read_copy, sync_dir_of};
use super::error::OpenError;
use super::key_file::KeyFile;
use super::{DATABASE, Store, directory};
use crate::apiserver::files::give_to_owner;
use crate::apiserver::sealing::Keyring;
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
    /// Writes everything as it is now to a file that is not there, for its owner only, encrypted as it is
    /// here. Writes go on meanwhile: it is made from memory.
    pub async fn backup(
        &self,
        target: &Path,
        attachments: Vec<Attachment>,
    ) -> Result<u64, OpenError> {
        let content = self.content(attachments);
        let revision = content.revision;
        let target = target.to_owned();
        let file = target.clone();
        let written = tokio::task::spawn_blocking(move || copy(&content, &target)).await;
        written.unwrap_or(Err(OpenError::Interrupted { file }))?;
        Ok(revision)
    }

    /// The same as a file that has no name: when it is closed, or this process ends, nothing is left of it.
    /// `beside` is a name for the moment in which it is written.
    pub async fn backup_unnamed(
        &self,
        beside: &Path,
        attachments: Vec<Attachment>,
    ) -> Result<fs::File, OpenError> {
        let content = self.content(attachments);
        let target = beside.to_owned();
        let file = target.clone();
        // All of it on that thread: whoever waits may go away in between.
        let made = tokio::task::spawn_blocking(move || {
            copy(&content, &target)?;
            let io = |source| OpenError::Io {
                action: "open",
                path: target.clone(),
                source,
            };
            let opened = fs::File::open(&target);
            let removed = fs::remove_file(&target);
            let opened = opened.map_err(io)?;
            removed.map_err(io).map(|()| opened)
        });
        made.await.unwrap_or(Err(OpenError::Interrupted { file }))
    }

    fn content(&self, attachments: Vec<Attachment>) -> Content {
        // The lock is not held while the copy is written.
        let (revision, mut resources) = {
            let state = self.inner.shared.read();
            let tables = state.resources.iter();
            let tables = tables.map(|(name, resource)| (name.clone(), resource.table.clone()));
            (state.revision, tables.collect::<Vec<_>>())
        };
        resources.sort_by(|(a, _), (b, _)| a.cmp(b));
        let files = attachments.into_iter().map(|a| (a.path, a.content));
        Content {
            ring: self.keyring().clone(),
            revision,
            resources,
            files: files.collect(),
        }
    }
}

/// Refuses a file that is no backup, is damaged or not whole, or is of a later version.
pub fn check_backup(file: &Path) -> Result<(), OpenError> {
    check(file)
}

/// What a restore needs.
#[derive(Debug, Clone, Copy)]
pub struct Restore<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// A directory that had no store before.
    pub dir: &'a Path,
    /// The file of keys by which the backup is encrypted, and what is made of it; the one in `dir` unless
    /// named. One that is named is linked to, or copied where it lies in a data directory itself.
    pub key_file: Option<&'a Path>,
    /// The time of day.
    pub now: DateTime<Utc>,
}

/// Makes a data directory of a backup, of which `edit` may take something out. Revisions go on above any
/// that was handed out since the backup, and every watch from before begins anew. Blocks meanwhile.
/// `last` is handed what `edit` told when all files are there but the one without which there is no store.
pub fn restore<T, E: From<OpenError>>(
    what: &Restore<'_>,
    edit: impl FnOnce(&mut Edit<'_>) -> Result<T, OpenError>,
    last: impl FnOnce(&T) -> Result<(), E>,
) -> Result<(u64, T), E> {
    let Restore { backup, dir, .. } = *what;
    check(backup)?;
    directory::open(dir)?;
    let _lock = directory::lock(dir)?;
    // Of a directory with a hub it is told below that nothing is restored into it.
    let database = dir.join(DATABASE);
    if !database.exists() {
        attach(backup, dir, UNFINISHED, &[])?;
    }
    let seconds = u64::try_from(what.now.timestamp()).unwrap_or_default();
    let named = what.key_file.map(|named| KeyFile::of(named, dir));
    let (key_file, copied) = match named {
        Some(KeyFile::Copied(file)) => (file, true),
        Some(KeyFile::Linked(file)) => (prepared(dir, Some(&file))?, false),
        Some(KeyFile::Own) | None => (prepared(dir, None)?, false),
    };
    let restoring = Restoring {
        backup,
        target: &database,
        key_file: &key_file,
        begin: seconds << REVISIONS_A_SECOND,
    };
    let restored = read_copy(
        &restoring,
        |transaction, ring, begin| {
            let mut open = Edit {
                transaction,
                ring,
                file: backup,
                revision: begin,
            };
            let told = edit(&mut open)?;
            Ok((open.revision, told))
        },
        |ring, files, told| {
            // It opens the backup. What follows is encrypted by it.
            let kept = match copied {
                true => ring.put_into(dir),
                false => Keyring::link(dir, &key_file),
            };
            kept.map_err(OpenError::from)?;
            for (path, content) in files {
                attach(backup, dir, &path, &sealed(ring, &path, content)?)?;
            }
            last(told)
        },
    )?;
    let unfinished = dir.join(UNFINISHED);
    fs::remove_file(&unfinished).map_err(|source| OpenError::Io {
        action: "remove",
        path: unfinished.clone(),
        source,
    })?;
    sync_dir_of(&unfinished)?;
    Ok(restored)
}

fn prepared(dir: &Path, key_file: Option<&Path>) -> Result<PathBuf, OpenError> {
    Ok(Keyring::prepare(dir, key_file)?)
}

/// A file of keys as it lies on disk: encrypted by the first key.
fn sealed(ring: &Keyring, path: &str, content: Vec<u8>) -> Result<Vec<u8>, OpenError> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let sealed = ring.reseal_file(name, &content)?;
    Ok(sealed.unwrap_or(content))
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
        directory::open(parent)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&target).map_err(io)?;
    give_to_owner(&file, &target).map_err(io)?;
    file.write_all(content).map_err(io)?;
    file.sync_all().map_err(io)?;
    sync_dir_of(&target)
}
