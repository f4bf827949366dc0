//! Where the keys lie by which a restored directory is encrypted.
//!
//! A link is left to a file that lies apart, as at any start. One that lies in a data directory goes with it, when
//! that is removed or the restored one takes its place: it is copied.

use super::absent::is_a_hubs;
use crate::apiserver::sealing::FILE;
use std::fs;
use std::path::{Path, PathBuf};

/// What is done with the file of keys that was named for a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyFile {
    /// It is the one of the directory already.
    Own,
    /// It stays where it is, and is linked to.
    Linked(PathBuf),
    /// It lies in a data directory, and is copied.
    Copied(PathBuf),
}

impl KeyFile {
    /// Of a file that was named for the data directory `dir`, which is there. One that cannot be found is told when
    /// it is read.
    pub(super) fn of(named: &Path, dir: &Path) -> Self {
        let Ok(named) = std::path::absolute(named) else {
            return Self::Linked(named.to_owned());
        };
        let own = dir.join(FILE);
        if std::path::absolute(&own).is_ok_and(|own| own == named) {
            return Self::Own;
        }
        let Ok(file) = named.canonicalize() else {
            return Self::Linked(named);
        };
        // The same by another name of the directory; a link of its own points elsewhere.
        if !own.is_symlink() && own.canonicalize().is_ok_and(|own| own == file) {
            return Self::Own;
        }
        let homes = [std::path::absolute(dir), dir.canonicalize()];
        let homes: Vec<PathBuf> = homes.into_iter().flatten().collect();
        if lies_in_hub(&file, &homes) {
            return Self::Copied(file);
        }
        // It lies apart, and what was named may be a link to it in a data directory.
        let mut at = named;
        while lies_in_hub(&at, &homes) {
            let Ok(target) = fs::read_link(&at) else {
                return Self::Linked(file);
            };
            at.pop();
            at.push(target);
        }
        Self::Linked(at)
    }
}

/// Whether one of the folders above a file is a data directory.
fn lies_in_hub(file: &Path, homes: &[PathBuf]) -> bool {
    let is_home = |folder: &Path| homes.iter().any(|home| home == folder);
    let mut above = file.ancestors().skip(1);
    above.any(|folder| is_home(folder) || is_a_hubs(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn keys_that_would_go_with_a_data_directory_are_copied() {
        let temp = tempfile::tempdir().expect("a folder");
        let root = temp.path().canonicalize().expect("a path");
        let at = |name: &str| root.join(name);
        for folder in ["old/keys", "left/pki", "new", "apart", "linked"] {
            fs::create_dir_all(at(folder)).expect("made");
        }
        let files = [
            "old/hub.db",
            "old/encryption.key",
            "old/keys/hub.key",
            "left/pki/server.crt",
            "left/encryption.key.0123",
            "linked/hub.db",
            "apart/hub.key",
            "new/hub.key",
        ];
        for file in files {
            fs::write(at(file), "x").expect("written");
        }
        // As an earlier start left it, and one that somebody made in two steps.
        symlink(at("apart/hub.key"), at("linked/encryption.key")).expect("linked");
        symlink("encryption.key", at("linked/again")).expect("linked");
        symlink(at("old/encryption.key"), at("apart/into")).expect("linked");
        symlink(at("new"), at("other-name")).expect("linked");
        let (copied, linked) = (
            |name: &str| KeyFile::Copied(at(name)),
            |name: &str| KeyFile::Linked(at(name)),
        );
        for (named, wanted) in [
            ("old/encryption.key", copied("old/encryption.key")),
            ("old/keys/hub.key", copied("old/keys/hub.key")),
            (
                "left/encryption.key.0123",
                copied("left/encryption.key.0123"),
            ),
            ("apart/into", copied("old/encryption.key")),
            ("new/hub.key", copied("new/hub.key")),
            ("apart/hub.key", linked("apart/hub.key")),
            ("linked/encryption.key", linked("apart/hub.key")),
            ("linked/again", linked("apart/hub.key")),
            ("nowhere", linked("nowhere")),
            ("new/encryption.key", KeyFile::Own),
        ] {
            assert_eq!(KeyFile::of(&at(named), &at("new")), wanted, "{named}");
        }
        fs::write(at("new/encryption.key"), "x").expect("written");
        let named = at("other-name/encryption.key");
        assert_eq!(KeyFile::of(&named, &at("new")), KeyFile::Own);
    }
}
