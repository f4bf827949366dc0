//! Certificates that no longer count although their authority is trusted and their time is not over.
//!
//! They are in `pki/revoked.json`: what an operator shut out by `towline-hub revoke`, and registrations of
//! agents that were removed or replaced. A certificate is in it while an entry names it; an entry is
//! dropped when whatever it names has ended.

use super::files::{self, Error};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

const FILE: &str = "revoked.json";
/// Entries at most; past it the oldest give way, which end first.
const ENTRIES: usize = 20_000;

/// What an entry is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Whom {
    /// The certificate of this serial number, in lower-case hex without leading zeros.
    Serial(String),
    /// Certificates of this user.
    User(String),
    /// Certificates of this group; an agent's has one for its registration alone.
    Group(String),
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What it is about.
    #[serde(flatten)]
    pub whom: Whom,
    /// Certificates whose time began after this are not meant; all are, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_by: Option<DateTime<Utc>>,
    /// When every certificate that is meant has ended; never, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
}

/// What of a certificate can be named.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Its serial number, as [`Whom::Serial`].
    pub serial: &'a str,
    /// The common name of its subject.
    pub user: &'a str,
    /// The organisations of its subject.
    pub groups: &'a [String],
    /// When its time began.
    pub begun: DateTime<Utc>,
}

/// Certificates that hold no longer, though their time is not over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    #[serde(default)]
    revoked: Vec<Entry>,
}

impl Revoked {
    /// Where it lies in a folder of keys.
    pub fn place(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Reads the file of a folder of keys; without one, nothing is revoked.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        Ok(Self::find(folder)?.unwrap_or_default())
    }

    /// The same, and `None` without a file. A list that has become empty keeps its file: where there is none,
    /// nothing was ever revoked, or what was is not known any more.
    pub fn find(folder: &Path) -> Result<Option<Self>, Error> {
        let path = Self::place(folder);
        let Some(text) = files::read(&path)? else {
            return Ok(None);
        };
        let read = serde_json::from_str(&text).map_err(|_| Error::Content {
            path,
            wanted: "a list of revoked certificates",
        });
        read.map(Some)
    }

    /// Changes the file of a folder of keys, which nobody else changes meanwhile; what it holds then.
    pub fn change(folder: &Path, with: impl FnOnce(&mut Self)) -> Result<Self, Error> {
        let _lock = lock(folder)?;
        let before = Self::read(folder)?;
        let mut after = before.clone();
        with(&mut after);
        if after != before {
            let text = serde_json::to_string_pretty(&after).unwrap_or_default();
            files::secret_file(&Self::place(folder), text.as_bytes())?;
        }
        Ok(after)
    }

    /// Every entry, the oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.revoked
    }

    /// Whether a certificate is named as such or by its user; by a group is [`Revoked::has_group`].
    pub fn names(&self, certificate: &Named<'_>) -> bool {
        self.any(certificate, |whom| match whom {
            Whom::Serial(serial) => serial == certificate.serial,
            Whom::User(user) => user == certificate.user,
            Whom::Group(_) => false,
        })
    }

    /// Whether a certificate is named by one of its groups.
    pub fn has_group(&self, certificate: &Named<'_>) -> bool {
        self.any(certificate, |whom| match whom {
            Whom::Group(group) => certificate.groups.contains(group),
            _ => false,
        })
    }

    /// Whether an entry is about this group.
    pub fn is_group(&self, group: &str) -> bool {
        let about = |entry: &Entry| matches!(&entry.whom, Whom::Group(of) if of == group);
        self.revoked.iter().any(about)
    }

    fn any(&self, certificate: &Named<'_>, means: impl Fn(&Whom) -> bool) -> bool {
        let mut entries = self.revoked.iter();
        let in_time = |entry: &Entry| entry.begun_by.is_none_or(|by| certificate.begun <= by);
        entries.any(|entry| in_time(entry) && means(&entry.whom))
    }

    /// Takes an entry in, in place of one about the same. Where there are too many, those that end go, the oldest first;
    /// what was revoked for good stays so.
    pub fn add(&mut self, entry: Entry, now: DateTime<Utc>) {
        self.revoked
            .retain(|old| old.whom != entry.whom && old.until.is_none_or(|until| until > now));
        self.revoked.push(entry);
        let mut over = self.revoked.len().saturating_sub(ENTRIES);
        self.revoked.retain(|old| {
            let goes = over > 0 && old.until.is_some();
            over -= usize::from(goes);
            !goes
        });
    }

    /// Forgets an entry; whether there was one.
    pub fn remove(&mut self, whom: &Whom) -> bool {
        let before = self.revoked.len();
        self.revoked.retain(|entry| entry.whom != *whom);
        self.revoked.len() < before
    }
}

/// Held while the file is read and written: the hub writes it, and commands do. The folder itself is locked,
/// so that nothing belongs to whoever came first.
fn lock(folder: &Path) -> Result<File, Error> {
    let failed = |source| Error::File {
        doing: "lock",
        path: folder.to_owned(),
        source,
    };
    let file = File::open(folder).map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    fn entry(whom: Whom) -> Entry {
        Entry {
            whom,
            begun_by: Some(at("2026-01-02T00:00:00Z")),
            until: None,
        }
    }

    #[test]
    fn what_was_revoked_for_good_gives_way_to_nothing() {
        let of = |number: usize, until: Option<&str>| Entry {
            until: until.map(at),
            ..entry(Whom::Serial(format!("{number:x}")))
        };
        let end = Some("2026-06-01T00:00:00Z");
        let mut revoked = Revoked::default();
        revoked.revoked.push(of(0, None));
        let passing = (1..ENTRIES).map(|number| of(number, end));
        revoked.revoked.extend(passing);
        revoked.add(of(ENTRIES, end), at("2026-01-02T00:00:00Z"));
        assert_eq!(revoked.entries().len(), ENTRIES);
        assert_eq!(revoked.entries()[..2], [of(0, None), of(2, end)]);
        assert_eq!(revoked.entries().last(), Some(&of(ENTRIES, end)));
    }

    #[test]
    fn a_certificate_is_named_by_serial_user_or_group_until_a_time() {
        let groups = ["devs".to_owned(), "towline:cluster:m1:abc".to_owned()];
        let named = |begun: &str| Named {
            serial: "40ff",
            user: "bob",
            groups: &groups,
            begun: at(begun),
        };
        let (early, late) = (named("2026-01-02T00:00:00Z"), named("2026-01-02T00:00:01Z"));
        for whom in [
            Whom::Serial("40ff".to_owned()),
            Whom::User("bob".to_owned()),
        ] {
            let mut revoked = Revoked::default();
            revoked.add(entry(whom.clone()), at("2026-01-02T00:00:00Z"));
            assert!(revoked.names(&early) && !revoked.names(&late), "{whom:?}");
            assert!(!revoked.has_group(&early), "{whom:?}");
            assert!(revoked.remove(&whom) && !revoked.names(&early), "{whom:?}");
        }
        let mut revoked = Revoked::default();
        let group = Whom::Group("towline:cluster:m1:abc".to_owned());
        revoked.add(entry(group), at("2026-01-02T00:00:00Z"));
        assert!(revoked.has_group(&early) && !revoked.names(&early));
    }

    #[test]
    fn the_file_is_changed_by_one_at_a_time_and_forgets_what_has_ended() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-02T00:00:00Z");
        assert_eq!(Revoked::read(dir.path()).expect("none"), Revoked::default());
        assert_eq!(Revoked::find(dir.path()).expect("none"), None);
        let add = |name: &str, until| {
            let whom = Whom::User(name.to_owned());
            let entry = Entry {
                until,
                ..entry(whom)
            };
            Revoked::change(dir.path(), |all| all.add(entry, now)).expect("written")
        };
        add("ended", Some(at("2026-01-01T23:59:59Z")));
        add("bob", Some(at("2026-02-01T00:00:00Z")));
        let all = add("bob", None);
        assert_eq!(all.entries(), [entry(Whom::User("bob".to_owned()))]);
        assert_eq!(Revoked::read(dir.path()).expect("read"), all);
        let bob = Whom::User("bob".to_owned());
        Revoked::change(dir.path(), |all| assert!(all.remove(&bob))).expect("written");
        let left = Revoked::find(dir.path()).expect("read");
        assert_eq!(left, Some(Revoked::default()), "its file stays");
        std::fs::write(dir.path().join(FILE), "x").expect("written");
        assert!(Revoked::read(dir.path()).is_err());
    }
}
