//! A data directory without its database: whether one is made there, or somebody is told that it is missing.
//!
//! The first start of a hub makes the database, then objects in it, then the server's certificate. So where that
//! certificate is a hub has begun, and a database that is not there, or holds no object, was lost.

use super::DATABASE;
use super::directory::UNFINISHED;
use crate::apiserver::keys::FOLDER;
use crate::apiserver::keys::server::CERTIFICATE;
use std::io;
use std::path::{Path, PathBuf};

/// When a database is made where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Make {
    /// Whatever else is in the directory.
    #[default]
    Always,
    /// Where no hub was before, and no restore was begun.
    AtFirst,
    /// Never: only one that holds objects is opened.
    Never,
}

/// Why a directory has no database, and none is made there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoDatabase {
    /// The keys are there, the objects are not.
    #[error(
        "{dir} holds the keys of a hub, but its database {DATABASE} is gone or empty. Put it back; or restore a backup \
         into another directory (towline-hub restore) and serve that; or begin an empty hub with these keys by \
         `towline-hub serve --new-database`: agents are then strangers and have to be registered again, and nothing \
         in their members is deleted",
        dir = .0.display()
    )]
    Lost(PathBuf),
    /// A restore into it did not end.
    #[error(
        "a restore into {dir} failed or was killed; a hub that began there would be a new one, without clusters. Run the \
         same `towline-hub restore` again, or begin a new hub in another directory",
        dir = .0.display()
    )]
    HalfRestored(PathBuf),
    /// No hub has begun there.
    #[error(
        "{dir} holds no object of a hub yet: the first start of `towline-hub serve` makes the database {DATABASE} there",
        dir = .0.display()
    )]
    NotYet(PathBuf),
}

/// What tells, beside a database that is not there, what has become of it.
#[derive(Debug, Clone, Copy)]
struct Traces {
    /// A restore was begun.
    unfinished: bool,
    /// A hub was ready once; what it had is in a backup too, and so in a directory that is half restored.
    certificate: bool,
}

/// What becomes of a directory without a database; `None` where one may be made.
fn judge(traces: Traces, make: Make) -> Option<fn(PathBuf) -> NoDatabase> {
    let why: fn(PathBuf) -> NoDatabase = match (traces.unfinished, traces.certificate) {
        (true, _) => NoDatabase::HalfRestored,
        (false, true) => NoDatabase::Lost,
        (false, false) => NoDatabase::NotYet,
    };
    let was_here = traces.unfinished || traces.certificate;
    match make {
        Make::Always => None,
        Make::AtFirst => was_here.then_some(why),
        Make::Never => Some(why),
    }
}

/// Whether a hub has begun in a directory.
fn has_begun(dir: &Path) -> bool {
    dir.join(FOLDER).join(CERTIFICATE).exists()
}

/// Whether a directory is the data directory of a hub, or what is left of one.
pub(super) fn is_a_hubs(dir: &Path) -> bool {
    dir.join(DATABASE).exists() || has_begun(dir)
}

/// Whether a file of a database is there with something in it. SQLite writes its first page before it has a
/// log, and throws away a log beside an empty file.
fn has_file(dir: &Path) -> bool {
    match std::fs::metadata(dir.join(DATABASE)) {
        Ok(found) => found.len() > 0,
        // One that cannot be looked at is told as such when it is opened.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Refuses a directory without a file of a database, unless one is to be made there.
pub(super) fn check_file(dir: &Path, make: Make) -> Result<(), NoDatabase> {
    match has_file(dir) {
        true => Ok(()),
        false => check_empty(dir, make),
    }
}

/// The same of a directory whose database holds no object.
pub(super) fn check_empty(dir: &Path, make: Make) -> Result<(), NoDatabase> {
    let traces = Traces {
        unfinished: dir.join(UNFINISHED).exists(),
        certificate: has_begun(dir),
    };
    judge(traces, make).map_or(Ok(()), |why| Err(why(dir.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_made_where_no_hub_was() {
        let dir = || PathBuf::from("d");
        let (lost, half, not_yet) = (
            Some(NoDatabase::Lost(dir())),
            Some(NoDatabase::HalfRestored(dir())),
            Some(NoDatabase::NotYet(dir())),
        );
        for (unfinished, certificate, make, wanted) in [
            (false, false, Make::Always, None),
            (false, true, Make::Always, None),
            (true, true, Make::Always, None),
            (false, false, Make::AtFirst, None),
            (false, true, Make::AtFirst, lost.clone()),
            (true, false, Make::AtFirst, half.clone()),
            (true, true, Make::AtFirst, half.clone()),
            (false, false, Make::Never, not_yet),
            (false, true, Make::Never, lost),
            (true, false, Make::Never, half.clone()),
            (true, true, Make::Never, half),
        ] {
            let traces = Traces {
                unfinished,
                certificate,
            };
            let said = judge(traces, make).map(|why| why(dir()));
            assert_eq!(said, wanted, "{traces:?}, {make:?}");
        }
    }

    #[test]
    fn a_file_without_a_page_is_no_database_whatever_its_log() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("written");
        };
        assert!(!has_file(dir.path()), "nothing is there");
        write(DATABASE, "");
        assert!(!has_file(dir.path()), "an empty file");
        write("hub.db-wal", "x");
        assert!(!has_file(dir.path()), "SQLite throws that log away");
        write(DATABASE, "x");
        assert!(has_file(dir.path()));
    }
}
