//! Files in a data directory: written whole or not at all, for their owner alone.
//!
//! Their owner is that of the folder they lie in. Root, who works on a data directory beside a hub that
//! runs as another user, leaves nothing there that the hub cannot read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {path}")]
pub struct Error {
    /// Which file.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

/// Gives what root has just made to the owner of the folder it lies in. Nobody else can give anything
/// away, nor needs to: theirs is the folder.
pub fn give_to_owner(made: &File, path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let wanted = fs::metadata(folder)?;
    let has = made.metadata()?;
    if (has.uid(), has.gid()) == (wanted.uid(), wanted.gid()) {
        return Ok(());
    }
    fchown(made, Some(wanted.uid()), Some(wanted.gid()))
}

/// Writes a file of mode 0600 in place of the one that is there, as it is given.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |source| Error {
        path: path.to_owned(),
        source,
    };
    let write = || -> io::Result<()> {
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        give_to_owner(&file, &beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
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
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_and_stays_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        for text in ["one", "two"] {
            write_file(&path, text.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), text);
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let none = dir.path().join("none/file");
        let error = write_file(&none, b"").expect_err("no folder");
        assert_eq!(error.path, none);
    }
}
