//! What can go wrong with the store: one enum for writes, one for files, one for history.

use super::absent::NoDatabase;
use super::key::Key;
use crate::apiserver::sealing;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why a write was not made. Nothing of a write that failed can be read afterwards.
#[derive(Debug, Clone, Error)]
pub enum Error {
    /// An object of that name is there.
    #[error("{resource} {key} exists already")]
    Exists {
        /// Storage name of the resource.
        resource: Arc<str>,
        /// The object.
        key: Key,
    },
    /// The object changed since the revision that the writer has seen.
    #[error("{resource} {key} is at revision {current}, not {expected}; read it again")]
    Conflict {
        /// Storage name of the resource.
        resource: Arc<str>,
        /// The object.
        key: Key,
        /// The revision that was expected.
        expected: u64,
        /// The revision it has.
        current: u64,
    },
    /// There is no such object.
    #[error("{resource} {key} is not there")]
    Missing {
        /// Storage name of the resource.
        resource: Arc<str>,
        /// The object.
        key: Key,
    },
    /// The value is no object with metadata, or nested too deep to be read again.
    #[error("{resource} {key} is no object that can be stored: {why}")]
    Unfit {
        /// Storage name of the resource.
        resource: Arc<str>,
        /// The object.
        key: Key,
        /// What it lacks.
        why: &'static str,
    },
    /// The object is longer than the writer lets it be.
    #[error("{resource} {key} would have {length} bytes, and the limit is {most}")]
    TooLong {
        /// Storage name of the resource.
        resource: Arc<str>,
        /// The object.
        key: Key,
        /// How long it is, encoded.
        length: usize,
        /// How long it may be.
        most: usize,
    },
    /// The disk takes no writes: it is full, or it fails. Reads go on.
    #[error("the disk under the data directory takes no writes ({why}); free some space")]
    Full {
        /// What SQLite said.
        why: Arc<str>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a store could not be opened, copied or restored.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is none, and none is made.
    #[error(transparent)]
    NoDatabase(#[from] NoDatabase),
    /// Another command replaces keys.
    #[error(
        "keys in {} are being replaced by another command{holder}; run this again when that has ended",
        dir.display()
    )]
    Replacing {
        /// The data directory.
        dir: PathBuf,
        /// `, process 123`, where that is known.
        holder: String,
    },
    /// Another process has it open.
    #[error("{} is in use{holder}; only one process can serve a data directory", dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// ` by process 123`, where that is known.
        holder: String,
    },
    /// Others can write into the directory.
    #[error(
        "everybody can write into {} (mode {mode:04o}); name a directory of its own, such as {}, or close it with chmod 700",
        dir.display(),
        dir.join("towline").display()
    )]
    Exposed {
        /// The data directory.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The directory is of something else.
    #[error(
        "{} holds other files and no hub, and others can look into it; name a directory of its own, such as {}",
        dir.display(),
        dir.join("towline").display()
    )]
    Elsewhere {
        /// The directory.
        dir: PathBuf,
    },
    /// A later version wrote it.
    #[error(
        "{} has format {found}, and this program knows formats up to {known}; use the version that wrote it, or a later one",
        file.display()
    )]
    Newer {
        /// The database.
        file: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format of this program.
        known: i64,
    },
    /// It is a file of something else.
    #[error("{} is not a database of this program", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// It is a backup, whose revisions were handed out since.
    #[error("{} is a backup; restore it with `towline-hub restore`", file.display())]
    Backup {
        /// The file.
        file: PathBuf,
    },
    /// It is no backup.
    #[error("{} is no backup of this program", file.display())]
    NoBackup {
        /// The file.
        file: PathBuf,
    },
    /// Its content contradicts itself.
    #[error("{} is damaged: {what}; restore a backup", file.display())]
    Damaged {
        /// The database.
        file: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// What would be overwritten is there.
    #[error("{} exists already; move it away first", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("cannot {action} {}", file.display())]
    Sqlite {
        /// What was tried.
        action: &'static str,
        /// On which database.
        file: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
    /// What is encrypted in it cannot be opened.
    #[error(transparent)]
    Encryption(#[from] sealing::Error),
    /// The task that did it was ended.
    #[error("the backup to {} was interrupted", file.display())]
    Interrupted {
        /// The file.
        file: PathBuf,
    },
}

/// History does not reach back that far: list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("revision {asked} is too old; history begins after {floor}")]
pub struct Gone {
    /// The revision that was asked for.
    pub asked: u64,
    /// The oldest revision that can be asked for.
    pub floor: u64,
}

/// Why a watcher ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ended {
    /// It was too slow, and events it has not seen are forgotten.
    #[error("events were missed: the watcher was too slow")]
    Gone,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
