//! Where the administrator's kubeconfig lies: in the data directory, or elsewhere with a link there.

use crate::apiserver::files::{is_same_place, leads_to, link_file};
use crate::apiserver::keys::Error;
use std::path::{Path, PathBuf};

fn failed(own: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::File {
        doing: "link to the administrator's kubeconfig from",
        path: own.to_owned(),
        source,
    }
}

/// Where it is to be: where that was asked for, else where the link in the data directory leads.
pub(in crate::serve) fn place(own: &Path, named: Option<&Path>) -> Result<PathBuf, Error> {
    match named {
        Some(named) => std::path::absolute(named).map_err(failed(own)),
        None => Ok(led_to(own)),
    }
}

fn led_to(own: &Path) -> PathBuf {
    match (std::fs::read_link(own), own.parent()) {
        (Ok(target), Some(folder)) => folder.join(target),
        _ => own.to_owned(),
    }
}

/// The same, and a link to it is all that is left in the data directory, by which commands find it. Only for one that
/// is there: the next start follows the link, whatever it is told.
pub(in crate::serve) fn settle(own: &Path, named: Option<&Path>) -> Result<PathBuf, Error> {
    let there = place(own, named)?;
    if there != led_to(own) && !leads_to(&there, own) {
        link_file(own, &there).map_err(failed(own))?;
    }
    Ok(there)
}

/// Has it written at its place; what `write` returns. The one that was there before stays until that is done, but for a
/// link in the data directory where the file itself is to be.
pub(in crate::serve) fn keep<T>(
    own: &Path,
    there: &Path,
    write: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    if own.is_symlink() && is_same_place(own, there) {
        std::fs::remove_file(own).map_err(failed(own))?;
    }
    let written = write(there)?;
    settle(own, Some(there))?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::super::ADMIN_FILE;
    use super::*;
    use crate::apiserver::keys::secret_file;

    #[test]
    fn the_administrators_file_can_lie_elsewhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let (own, apart) = (dir.path().join(ADMIN_FILE), dir.path().join("apart"));
        assert_eq!(settle(&own, None).expect("settled"), own);
        std::fs::write(&own, "a private key").expect("written");
        assert_eq!(settle(&own, Some(&own)).expect("settled"), own);
        assert!(!own.is_symlink());
        assert_eq!(settle(&own, Some(&apart)).expect("settled"), apart);
        std::fs::write(&apart, "another").expect("written");
        assert_eq!(std::fs::read_to_string(&own).expect("linked"), "another");
        for named in [None, Some(apart.as_path())] {
            assert_eq!(settle(&own, named).expect("settled"), apart);
        }
        std::fs::remove_file(&own).expect("removed");
        std::os::unix::fs::symlink("apart", &own).expect("linked by somebody");
        assert_eq!(settle(&own, None).expect("settled"), apart);
    }

    #[test]
    fn a_place_that_is_refused_is_not_gone_to_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let own = dir.path().join(ADMIN_FILE);
        let folder = dir.path().join("folder");
        let named = folder.join("hub");
        let there = place(&own, Some(&named)).expect("a path");
        let keep = || keep(&own, &there, |path| secret_file(path, b"new"));
        // At a first start, and at a later one.
        keep().expect_err("no such folder");
        assert_eq!(place(&own, None).expect("a path"), own);
        std::fs::write(&own, "before").expect("written");
        keep().expect_err("no such folder");
        assert_eq!(place(&own, None).expect("a path"), own);
        assert_eq!(std::fs::read_to_string(&own).expect("there"), "before");
        std::fs::create_dir(&folder).expect("made");
        keep().expect("written");
        assert_eq!(place(&own, None).expect("a path"), named);
        assert_eq!(std::fs::read_to_string(&own).expect("linked"), "new");
    }

    #[test]
    fn the_administrators_file_comes_back_into_the_data_directory() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("data")).expect("made");
        std::os::unix::fs::symlink("data", at("other-name")).expect("linked");
        let own = at("data").join(ADMIN_FILE);
        let write = |path: &Path| secret_file(path, b"text");
        for named in [own.clone(), at("other-name").join(ADMIN_FILE)] {
            keep(&own, &at("apart"), write).expect("written");
            assert!(own.is_symlink());
            let there = place(&own, Some(&named)).expect("a path");
            for _ in 0..2 {
                keep(&own, &there, write).expect("written");
                assert!(!own.is_symlink(), "{named:?}");
                assert_eq!(std::fs::read_to_string(&own).expect("there"), "text");
            }
        }
    }
}
