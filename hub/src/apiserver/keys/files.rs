//! The files of keys: private ones are encrypted.

use super::sealed;
use crate::apiserver::files::{self, give_to_owner, write_file};
use crate::apiserver::sealing::{self, Keyring};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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
    /// A private key cannot be encrypted or decrypted.
    #[error(transparent)]
    Encryption(#[from] Box<sealing::Error>),
    /// A file of somebody else.
    #[error(
        "{path} belongs to user {owner} and cannot be read by user {us}: run this as root or as the user of \
         the data directory, or give all of it to the user that the hub runs as (chown -R)"
    )]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Ours.
        us: u32,
    },
    /// The step of a replacement that was asked for is not the next one.
    #[error(
        "the certificate authorities in {0} were changed by another command meanwhile, and nothing by this one; see \
         `towline-hub ca status`, and run this again for the step that is next then"
    )]
    NotNext(PathBuf),
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

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        Self::File {
            doing: "write",
            path: error.path,
            source: error.source,
        }
    }
}

/// Makes a folder that nobody else can look into.
pub(super) fn folder(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::File {
        doing: "make",
        path: path.to_owned(),
        source,
    };
    let fresh = !path.is_dir();
    fs::create_dir_all(path).map_err(failed)?;
    if fresh {
        File::open(path)
            .and_then(|made| give_to_owner(&made, path))
            .map_err(failed)?;
    }
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)
}

/// Why a file could not be read.
fn unread(path: &Path, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::PermissionDenied {
        // What lies in a folder that is closed to us cannot be asked for its owner, the folder can.
        let known = path.ancestors().find_map(|p| fs::metadata(p).ok());
        if let Some(known) = known {
            return Error::Foreign {
                path: path.to_owned(),
                owner: known.uid(),
                us: rustix::process::geteuid().as_raw(),
            };
        }
    }
    Error::File {
        doing: "read",
        path: path.to_owned(),
        source,
    }
}

/// Reads a text, decrypted where it is encrypted; `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) if Keyring::is_sealed_file(&text) => sealed::open(path, text).map(Some),
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(unread(path, source)),
    }
}

/// Writes a file of mode 0600 in place of the one that is there; a private key of a data directory is
/// encrypted.
pub fn secret_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    match sealed::content(path, content)? {
        Some(sealed) => write_file(path, &sealed)?,
        None => write_file(path, content)?,
    }
    Ok(())
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
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
