//! Files in a data directory: written whole or not at all, for their owner alone.
//!
//! Their owner is that of the folder they lie in. Root, who works on a data directory beside a hub that
//! runs as another user, leaves nothing there that the hub cannot read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown, symlink};
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

/// How many links in a row are followed, as Linux does.
const LINKS: usize = 40;

/// Whether two paths are of one place, by whichever names of its folder. A link there is not followed.
pub fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let path = std::path::absolute(path).ok()?;
        let folder = path.parent()?;
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Some(folder.join(path.file_name()?))
    };
    place(one).is_some_and(|one| place(other).is_some_and(|other| one == other))
}

/// Whether `there` is `path`, or a link to it: a link from `path` to there would lead to itself.
pub fn leads_to(there: &Path, path: &Path) -> bool {
    let mut at = there.to_owned();
    for _ in 0..LINKS {
        if is_same_place(&at, path) {
            return true;
        }
        let Ok(target) = fs::read_link(&at) else {
            return false;
        };
        at.pop();
        at.push(target);
    }
    false
}

/// Puts a link to `there` in the place of what is at `path`, which is gone only once the link is there.
pub fn link_file(path: &Path, there: &Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(there, &beside)?;
    fs::rename(&beside, path)
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
    #[test]
    fn a_place_is_known_by_any_of_its_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("folder")).expect("made");
        symlink("folder", at("other-name")).expect("linked");
        symlink(at("other-name/file"), at("alias")).expect("linked");
        symlink("alias", at("again")).expect("linked");
        symlink("round", at("round")).expect("linked");
        for exists in [false, true] {
            for (there, same, leads) in [
                ("folder/file", true, true),
                ("other-name/file", true, true),
                ("alias", false, true),
                ("again", false, true),
                ("round", false, false),
                ("folder/another", false, false),
                ("nowhere/file", false, false),
            ] {
                let (there, path) = (at(there), at("folder/file"));
                assert_eq!(is_same_place(&there, &path), same, "{exists} {there:?}");
                assert_eq!(leads_to(&there, &path), leads, "{exists} {there:?}");
            }
            fs::write(at("folder/file"), "x").expect("written");
        }
    }

    #[test]
    fn a_link_takes_the_place_of_a_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, there) = (dir.path().join("file"), dir.path().join("there"));
        fs::write(&there, "that").expect("written");
        fs::write(&path, "this").expect("written");
        for _ in 0..2 {
            link_file(&path, &there).expect("linked");
            assert_eq!(fs::read_link(&path).expect("a link"), there);
            assert_eq!(fs::read_to_string(&path).expect("read"), "that");
        }
        let none = dir.path().join("none/file");
        link_file(&none, &there).expect_err("no folder");
    }
}
