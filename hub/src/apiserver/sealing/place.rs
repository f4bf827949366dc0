//! Where the file of keys lies: in the data directory, or elsewhere with a link there.

use super::{Error, FILE, Keyring};
use crate::apiserver::files::{leads_to, link_file};
use std::fs;
use std::path::{Path, PathBuf};

impl Keyring {
    /// Where the file of keys of a data directory lies: where its link points to.
    pub fn place(data_dir: &Path) -> PathBuf {
        let own = data_dir.join(FILE);
        match fs::read_link(&own) {
            Ok(target) => data_dir.join(target),
            Err(_) => own,
        }
    }

    /// Where the keys are to lie: where it was asked for, else where they are. Those that lie elsewhere are copied
    /// there. Nothing else is changed: commands find them there once they were opened, see [`Self::link`].
    pub fn prepare(data_dir: &Path, named: Option<&Path>) -> Result<PathBuf, Error> {
        let here = Self::place(data_dir);
        let Some(named) = named else {
            return Ok(here);
        };
        let there = std::path::absolute(named).map_err(|source| Error::Link {
            file: named.to_owned(),
            source,
        })?;
        if there == here || leads_to(&there, &data_dir.join(FILE)) {
            return Ok(there);
        }
        match (Self::read(&here), Self::read(&there)) {
            (Ok(Some(ring)), Ok(None)) => ring.write(&there)?,
            (Ok(Some(ring)), Ok(Some(other))) => {
                ring.ids().into_iter().try_for_each(|id| other.has(id))?;
            }
            // Those that were used until now need not be this user's to read. Whether these are the same shows when
            // something is opened by them.
            (Ok(None), Ok(_)) | (Err(_), Ok(Some(_))) => {}
            (_, Err(error)) | (Err(error), _) => return Err(error),
        }
        Ok(there)
    }

    /// Has every command find the keys that were prepared, by a link in the data directory. Only for keys that are
    /// there and open what is encrypted: the next start follows the link, whatever it is told.
    pub fn link(data_dir: &Path, there: &Path) -> Result<(), Error> {
        let own = data_dir.join(FILE);
        if there == Self::place(data_dir) || leads_to(there, &own) {
            return Ok(());
        }
        link_file(&own, there).map_err(|source| Error::Link {
            file: there.to_owned(),
            source,
        })
    }

    /// Makes these keys the own file of a data directory, in place of a link or of fewer of them; durable when
    /// this returns.
    pub fn put_into(&self, data_dir: &Path) -> Result<(), Error> {
        if let Some(there) = Self::read(&Self::place(data_dir))? {
            there.ids().into_iter().try_for_each(|id| self.has(id))?;
        }
        self.write(&data_dir.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn keys_are_moved_apart_and_found_by_their_link() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        let settle = |named: Option<&Path>| {
            let there = Keyring::prepare(&data, named)?;
            Keyring::link(&data, &there).map(|()| there)
        };
        let own = settle(None).expect("settled");
        assert_eq!(own, data.join(FILE));
        let first = Keyring::create(&own).expect("made");
        let apart = dir.path().join("apart");
        let there = settle(Some(&apart)).expect("moved");
        assert_eq!((&there, Keyring::place(&data)), (&apart, apart.clone()));
        let is_link = fs::symlink_metadata(&own).expect("there").is_symlink();
        let moved = Keyring::read(&there).expect("read").expect("there");
        assert!(is_link && moved.ids() == first.ids());
        assert_eq!(settle(Some(&apart)).expect("again"), apart);
        // Another file, of other keys, is not taken in its place.
        let others = dir.path().join("others");
        Keyring::create(&others).expect("made");
        let refused = settle(Some(&others));
        assert!(matches!(refused, Err(Error::Unknown { .. })), "{refused:?}");
        assert_eq!(Keyring::place(&data), apart);
        let others = Keyring::read(&others).expect("read").expect("there");
        let refused = others.put_into(&data);
        assert!(matches!(refused, Err(Error::Unknown { .. })), "{refused:?}");
        // A copy takes the place of the link.
        moved.put_into(&data).expect("copied");
        assert_eq!(Keyring::place(&data), own);
        fs::remove_file(&apart).expect("removed");
        let copied = Keyring::read(&own).expect("read").expect("there");
        assert_eq!(copied.ids(), first.ids());
        let mode = fs::symlink_metadata(&own).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_place_that_is_refused_is_not_gone_to_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        let own = data.join(FILE);
        let nowhere = dir.path().join("nowhere/key");
        // Of a directory without keys only what is made there later can tell.
        let there = Keyring::prepare(&data, Some(&nowhere)).expect("nothing to copy");
        assert_eq!(there, nowhere);
        Keyring::create(&there).expect_err("no such folder");
        assert_eq!(Keyring::prepare(&data, None).expect("prepared"), own);
        // Keys that are there stay where they are.
        let first = Keyring::create(&own).expect("made");
        Keyring::prepare(&data, Some(&nowhere)).expect_err("no such folder");
        assert_eq!(Keyring::place(&data), own);
        let kept = Keyring::read(&own).expect("read").expect("there");
        assert_eq!(kept.ids(), first.ids());
    }

    #[test]
    fn keys_that_cannot_be_read_hold_up_no_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("data")).expect("made");
        fs::write(at("unread"), "no key").expect("written");
        symlink(at("unread"), at("data").join(FILE)).expect("linked");
        let prepare = || Keyring::prepare(&at("data"), Some(&at("apart")));
        prepare().expect_err("there is none to go on with");
        Keyring::create(&at("apart")).expect("made");
        let there = prepare().expect("prepared");
        Keyring::link(&at("data"), &there).expect("linked");
        assert_eq!(Keyring::place(&at("data")), at("apart"));
        // One that was asked for has to be one.
        let refused = Keyring::prepare(&at("data"), Some(&at("unread")));
        assert!(matches!(refused, Err(Error::Line { .. })), "{refused:?}");
    }

    #[test]
    fn keys_in_the_data_directory_stay_whatever_they_are_called() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("data")).expect("made");
        symlink("data", at("other-name")).expect("linked");
        symlink(at("data").join(FILE), at("alias")).expect("linked");
        let first = Keyring::create(&at("data").join(FILE)).expect("made");
        for named in [
            at("data").join(FILE),
            at("other-name").join(FILE),
            at("alias"),
        ] {
            let there = Keyring::prepare(&at("data"), Some(&named)).expect("prepared");
            Keyring::link(&at("data"), &there).expect("linked");
            let kept = Keyring::read(&at("data").join(FILE)).expect("read");
            assert_eq!(kept.expect("there").ids(), first.ids(), "{named:?}");
        }
    }
}
