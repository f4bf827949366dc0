//! The document as a file: directory 0700, file 0600, replaced whole, on disk before it counts.

use super::{DOCUMENT, Error, Stored, Version};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the file whose lock says that an agent uses the directory.
const LOCK: &str = "lock";

/// A directory that one agent holds.
#[derive(Debug)]
pub struct DirectoryStore {
    path: PathBuf,
    // Held, never read: the lock goes when the file is closed, also by a kill.
    _lock: File,
}

impl DirectoryStore {
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|e| file_error("create directory", &path, e))?;
        // One that exists may be wider than it should be.
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))
            .map_err(|e| file_error("restrict directory", &path, e))?;
        let lock_path = path.join(LOCK);
        let lock = private_file(OpenOptions::new().create(true).truncate(false), &lock_path)
            .map_err(|e| file_error("open", &lock_path, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse(path)),
            Err(std::fs::TryLockError::Error(e)) => Err(file_error("lock", &lock_path, e)),
        }
    }

    pub(super) fn load(&self) -> Result<(Stored, Version), Error> {
        match self.read()? {
            Some(bytes) => Ok((Stored::decode(&bytes)?, version_of(&bytes))),
            None => Ok((Stored::default(), Version::default())),
        }
    }

    pub(super) fn save(&self, stored: &Stored, over: &Version) -> Result<Version, Error> {
        let found = self
            .read()?
            .map_or_else(Version::default, |b| version_of(&b));
        if found != *over {
            return Err(Error::Conflict);
        }
        let bytes = stored.encode()?;
        replace(&self.path.join(DOCUMENT), &bytes)?;
        Ok(version_of(&bytes))
    }

    /// Removes the document; the directory and its lock stay with the process.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let path = self.path.join(DOCUMENT);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(file_error("remove", &path, e))
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(DOCUMENT);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(file_error("read", &path, e)),
        }
    }
}

/// Replaces `path` whole, readable by our user alone; on disk when this returns.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = private_file(OpenOptions::new().create(true).truncate(true), &temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The rename itself is on disk only when the directory is.
        path.parent()
            .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    };
    write().map_err(|e| file_error("write", path, e))
}

fn private_file(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let file = options.write(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn version_of(bytes: &[u8]) -> Version {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    Version(Some(format!("{sum:?}")))
}

fn file_error(verb: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File {
        verb,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::registration;
    use super::*;

    #[test]
    fn directory_is_private_and_held_by_one_agent() {
        let base = tempfile::tempdir().expect("directory");
        let path = base.path().join("state");
        let store = DirectoryStore::open(path.clone()).expect("opened");
        let second = DirectoryStore::open(path.clone());
        assert!(matches!(second, Err(Error::InUse(_))), "{second:?}");
        let (empty, none) = store.load().expect("loaded");
        assert_eq!((&empty, &none), (&Stored::default(), &Version::default()));

        let stored = Stored::new(Some(registration("m1", "a")), None);
        let first = store.save(&stored, &none).expect("saved");
        assert!(matches!(store.save(&stored, &none), Err(Error::Conflict)));
        let mode = |p: &Path| std::fs::metadata(p).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(DOCUMENT)), 0o600);
        assert_eq!(
            store.load().expect("loaded"),
            (stored.clone(), first.clone())
        );
        drop(store);

        let again = DirectoryStore::open(path).expect("opened again");
        assert_eq!(again.load().expect("loaded").0, stored);
        again.save(&Stored::default(), &first).expect("saved over");
        again.remove().expect("removed");
        again.remove().expect("removed twice");
        assert_eq!(again.load().expect("loaded").1, Version::default());
    }
}
