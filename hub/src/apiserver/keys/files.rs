//! Files that hold secrets: written whole or not at all, for their owner alone.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Why keys cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder.
    #[error("failed to {doing} {path}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A key or certificate could not be made.
    #[error("failed to make {0}")]
    Make(&'static str, #[source] rcgen::Error),
    /// The machine gave no key.
    #[error("failed to make {0}: no randomness, or a key that is not of P-256")]
    Key(&'static str),
    /// A certificate cannot be read.
    #[error("failed to read the certificates in {path}")]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: common::tls::Error,
    },
    /// A file that should be there is not, beside one that is.
    #[error("{0} is missing beside the other keys; restore it from a backup")]
    Missing(PathBuf),
    /// What is in a file is not what belongs there.
    #[error("{path} does not hold {wanted}; restore it from a backup")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What belongs there.
        wanted: &'static str,
    },
}

/// Makes a folder that nobody else can look into.
pub(super) fn folder(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::File {
        doing: "make",
        path: path.to_owned(),
        source,
    };
    std::fs::create_dir_all(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)
}

/// Reads a text; `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File {
            doing: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Writes a file of mode 0600 in place of the one that is there.
pub fn secret_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |source| Error::File {
        doing: "write",
        path: path.to_owned(),
        source,
    };
    let write = || -> io::Result<()> {
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_replaced_whole_and_stays_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        assert_eq!(read(&path).expect("no error"), None);
        for text in ["one", "two"] {
            secret_file(&path, text.as_bytes()).expect("written");
            assert_eq!(read(&path).expect("read").as_deref(), Some(text));
            let mode = std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
