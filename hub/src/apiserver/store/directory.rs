//! The data directory itself: made for its owner alone, or found as it is, and served by one process.
//!
//! A directory that was there keeps its mode, for it may be somebody's home. Files in it are closed each
//! by itself, so a mode that lets others look is told and no more; one that lets others write is refused.

use super::error::OpenError;
use crate::apiserver::files::give_to_owner;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Held by the process that serves a data directory.
const LOCK: &str = "lock";
/// Held by a command that replaces keys.
const REPLACING: &str = "replacing.lock";
/// There while a restore is not whole: a hub that began on what one leaves that fails would be a new one.
pub(super) const UNFINISHED: &str = "restore.unfinished";
/// What a hub has there, or is given before its start: a directory with one of these is a hub's.
const OURS: [&str; 4] = [
    super::DATABASE,
    crate::apiserver::keys::FOLDER,
    LOCK,
    "encryption.key",
];
/// What a file system puts into its root.
const OF_THE_FILE_SYSTEM: &str = "lost+found";

/// What to make of a directory that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Take,
    /// Others can look into it.
    Tell,
    /// Others can write into it.
    Writable,
    /// It holds what is somebody else's, and others can look into it.
    Foreign,
}

/// From its mode, and the names in it.
fn judge(mode: u32, names: &[String]) -> Verdict {
    let ours = names.iter().any(|name| OURS.contains(&name.as_str()));
    let foreign = names.iter().any(|name| name != OF_THE_FILE_SYSTEM) && !ours;
    match mode & 0o777 {
        mode if mode & 0o002 != 0 => Verdict::Writable,
        mode if mode & 0o077 == 0 => Verdict::Take,
        _ if foreign => Verdict::Foreign,
        _ => Verdict::Tell,
    }
}

/// The directory: made, for nobody else, or taken as it is.
pub(super) fn open(dir: &Path) -> Result<(), OpenError> {
    let failed = |action| {
        move |source| OpenError::Io {
            action,
            path: dir.to_owned(),
            source,
        }
    };
    let found = match fs::metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return make(dir).map_err(failed("create"));
        }
        Err(error) => return Err(failed("look at")(error)),
    };
    let mode = found.permissions().mode() & 0o7777;
    let names = names(dir).map_err(failed("look into"))?;
    match judge(mode, &names) {
        Verdict::Take => Ok(()),
        Verdict::Tell => {
            tracing::warn!(
                directory = %dir.display(),
                mode = format!("{mode:04o}"),
                "others can look into the data directory; close it: chmod 700 {}",
                dir.display()
            );
            Ok(())
        }
        Verdict::Writable => Err(OpenError::Exposed {
            dir: dir.to_owned(),
            mode,
        }),
        Verdict::Foreign => Err(OpenError::Elsewhere {
            dir: dir.to_owned(),
        }),
    }
}

fn make(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)?;
    give_to_owner(&File::open(dir)?, dir)
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    fs::read_dir(dir)?.map(name).collect()
}

/// Held while the file lives; the system lets go of it when the process ends, however it ends.
pub(super) fn lock(dir: &Path) -> Result<File, OpenError> {
    take(&dir.join(LOCK))?.map_err(|holder| locked(dir, holder))
}

/// The same for a command that replaces keys: each reads what is there before it writes, and two at once would
/// take each other's keys away. A hub that serves the directory does not hold it.
pub fn lock_keys(dir: &Path) -> Result<File, OpenError> {
    let held = take(&dir.join(REPLACING))?;
    held.map_err(|holder| OpenError::Replacing {
        dir: dir.to_owned(),
        holder: holder.map_or_else(String::new, |process| format!(", process {process}")),
    })
}

fn locked(dir: &Path, holder: Option<String>) -> OpenError {
    OpenError::Locked {
        dir: dir.to_owned(),
        holder: holder.map_or_else(String::new, |process| format!(" by process {process}")),
    }
}

/// A lock of this process, or who has it as far as that is known.
fn take(path: &Path) -> Result<Result<File, Option<String>>, OpenError> {
    let io = |source| OpenError::Io {
        action: "lock",
        path: path.to_owned(),
        source,
    };
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let mut file = options.open(path).map_err(io)?;
    give_to_owner(&file, path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0).map_err(io)?;
            write!(file, "{}", std::process::id()).map_err(io)?;
            Ok(Ok(file))
        }
        Err(fs::TryLockError::WouldBlock) => Ok(Err(holder(&mut file))),
        Err(fs::TryLockError::Error(source)) => Err(io(source)),
    }
}

/// The process that has a lock, as it wrote it down.
fn holder(file: &mut File) -> Option<String> {
    let mut holder = String::new();
    let known = file.read_to_string(&mut holder).is_ok() && !holder.is_empty();
    known.then_some(holder)
}

/// Keeps processes from serving the directory while the file lives, and refuses if one does. Nothing is made for
/// that: one that was never served has no file to hold.
pub fn keep_unserved(dir: &Path) -> Result<Option<File>, OpenError> {
    let path = dir.join(LOCK);
    let io = |source| OpenError::Io {
        action: "look at",
        path: path.clone(),
        source,
    };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Err(locked(dir, holder(&mut file))),
        Err(fs::TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Whether a process serves the directory; nothing is made or held for the answer.
pub fn is_served(dir: &Path) -> Result<bool, OpenError> {
    match keep_unserved(dir) {
        Ok(_) => Ok(false),
        Err(OpenError::Locked { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o7777
    }

    #[test]
    fn a_directory_that_was_there_keeps_its_mode_or_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let with = |name: &str, mode: u32, file: Option<&str>| {
            let dir = base.path().join(name);
            fs::create_dir(&dir).expect("made");
            if let Some(file) = file {
                fs::write(dir.join(file), "x").expect("written");
            }
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set");
            dir
        };
        for (name, mode, file, taken) in [
            ("closed", 0o700, Some("notes"), true),
            ("empty", 0o755, None, true),
            ("volume", 0o2770, Some(OF_THE_FILE_SYSTEM), true),
            ("hub", 0o755, Some("lock"), true),
            ("home", 0o755, Some("notes"), false),
            ("tmp", 0o1777, None, false),
        ] {
            let dir = with(name, mode, file);
            let opened = open(&dir);
            assert_eq!(opened.is_ok(), taken, "{name}: {opened:?}");
            assert_eq!(mode_of(&dir), mode, "{name}");
        }
        let made = base.path().join("made/below");
        open(&made).expect("made");
        assert_eq!(mode_of(&made), 0o700);
    }

    #[test]
    fn who_serves_a_directory_is_seen_without_a_trace() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(!is_served(dir.path()).expect("looked"));
        assert!(!dir.path().join(LOCK).exists());
        let held = lock(dir.path()).expect("locked");
        assert!(is_served(dir.path()).expect("looked"));
        drop(held);
        assert!(!is_served(dir.path()).expect("looked"));
        let kept = keep_unserved(dir.path()).expect("looked");
        assert!(matches!(lock(dir.path()), Err(OpenError::Locked { .. })));
        drop(kept);
        lock(dir.path()).expect("locked");
    }

    #[test]
    fn one_command_at_a_time_replaces_keys_beside_a_hub_that_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        let _hub = lock(dir.path()).expect("locked");
        let held = lock_keys(dir.path()).expect("locked");
        assert_eq!(mode_of(&dir.path().join(REPLACING)), 0o600);
        let said = lock_keys(dir.path()).expect_err("held").to_string();
        let process = format!("another command, process {};", std::process::id());
        assert!(said.contains(&process), "{said}");
        drop(held);
        lock_keys(dir.path()).expect("locked");
    }
}
