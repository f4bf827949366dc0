//! The audit log: one line of JSON for each write and each refusal, each read of Secrets, each backup and
//! whatever somebody does as somebody else, without any body, in files that are rotated, or on standard
//! output for whoever carries it off this machine. Writes that change nothing and renewals of Leases are left
//! out: a fleet at rest makes a hundred a second.
//!
//! Nobody pushes out of the files what was done before. Anybody can be refused as often as they like, so of
//! too many refusals of one user within a minute the rest is only counted. What is granted is always written,
//! but who has filled an eighth of a file goes on in a second log ([`BUSY`]), which such users share.

mod files;
mod line;

use super::caller::{Caller, MASTERS};
use crate::apiserver::request::RequestInfo;
use chrono::{DateTime, Utc};
use files::{Log, Output};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub use files::BUSY;

/// The log within a data directory.
const FILE: &str = "audit.log";
/// What users begin with that are ServiceAccounts; their namespace follows.
const ACCOUNTS: &str = "system:serviceaccount:";
/// Refusals of one user that are written within a minute.
const REFUSALS: u64 = 60;

/// What one request did.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// When it ended.
    pub now: DateTime<Utc>,
    /// What it was about.
    pub info: &'a RequestInfo,
    /// Who made it.
    pub user: &'a Caller,
    /// As whom, when as somebody else.
    pub acting: Option<&'a Caller>,
    /// Where it came from; none within the process.
    pub source: Option<IpAddr>,
    /// Whether nothing was kept.
    pub dry_run: bool,
    /// Status code of the answer.
    pub code: u16,
}

impl Entry<'_> {
    const fn is_refusal(&self) -> bool {
        self.code >= 400
    }

    /// Whose share of a file it takes; nobody's for administrators.
    fn share(&self) -> Option<&str> {
        let user = &self.user.user;
        if self.user.is_in(MASTERS) && *self.user != Caller::system() {
            return None;
        }
        // Whoever may make one ServiceAccount may make a thousand.
        let account = user
            .strip_prefix(ACCOUNTS)
            .and_then(|rest| rest.split_once(':'));
        Some(match account {
            Some((namespace, _)) => &user[..ACCOUNTS.len() + namespace.len()],
            None => user,
        })
    }
}

/// Where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A file, and those that are put aside.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

impl Destination {
    /// `-` for standard output, a file otherwise; without any, one in the data directory.
    pub fn of(named: Option<&Path>, data_dir: &Path) -> Self {
        match named {
            Some(path) if path == Path::new("-") => Self::Stdout,
            Some(path) => Self::File(path.to_owned()),
            None => Self::File(data_dir.join(FILE)),
        }
    }
}

/// The log. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Audit(Option<Arc<Mutex<Inner>>>);

#[derive(Debug)]
struct Inner {
    output: Output,
    refusals: Refusals,
}

/// How many refusals there were, by user, in one minute of the clock.
#[derive(Debug, Default)]
struct Refusals {
    minute: i64,
    counts: HashMap<String, u64>,
    /// Those of before that were only counted.
    left_out: HashMap<String, u64>,
}

impl Refusals {
    /// Whether one more is written, and if so how many were not before it.
    fn one_more(&mut self, user: &str, minute: i64) -> Option<u64> {
        if minute != self.minute {
            self.minute = minute;
            for (user, count) in self.counts.drain().filter(|(_, count)| *count > REFUSALS) {
                *self.left_out.entry(user).or_default() += count - REFUSALS;
            }
        }
        let count = self.counts.entry(user.to_owned()).or_insert(0);
        *count += 1;
        if *count > REFUSALS {
            return None;
        }
        Some(self.left_out.remove(user).unwrap_or_default())
    }
}

impl Audit {
    /// A log that is written there.
    pub fn open(to: &Destination) -> io::Result<Self> {
        let output = match to {
            Destination::File(path) => Output::Files(Log::open(path)?),
            Destination::Stdout => Output::stdout()?,
        };
        Ok(Self(Some(Arc::new(Mutex::new(Inner {
            output,
            refusals: Refusals::default(),
        })))))
    }

    /// Writes a line.
    pub fn write(&self, entry: &Entry<'_>) {
        let Some(inner) = &self.0 else { return };
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        if entry.is_refusal() {
            let minute = entry.now.timestamp().div_euclid(60);
            match inner.refusals.one_more(&entry.user.user, minute) {
                Some(before) => left_out = before,
                None => return,
            }
        }
        inner.output.write(entry.share(), line::of(entry, left_out));
    }
}

#[cfg(test)]
mod tests {
    use super::files::{KEPT, ROTATE_AT};
    use super::line::PATH_MAX;
    use super::*;

    fn open(dir: &Path) -> Audit {
        Audit::open(&Destination::of(None, dir)).expect("opened")
    }

    #[test]
    fn refusals_without_end_push_nothing_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = open(dir.path());
        let info = RequestInfo {
            path: "/é".repeat(2000),
            ..RequestInfo::default()
        };
        let (nobody, bob) = (Caller::anonymous(), Caller::system());
        let write = |user: &Caller, second: i64, code| {
            audit.write(&Entry {
                id: "x",
                now: DateTime::from_timestamp(second, 0).expect("a time"),
                info: &info,
                user,
                acting: None,
                source: None,
                dry_run: false,
                code,
            });
        };
        (0..1000).for_each(|_| write(&nobody, 0, 403));
        write(&bob, 1, 403);
        write(&nobody, 2, 201);
        write(&nobody, 60, 401);
        write(&nobody, 61, 401);
        let text = std::fs::read_to_string(dir.path().join(FILE)).expect("read");
        let lines = text.lines().skip(60);
        let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<serde_json::Value> = lines.collect();
        let said: Vec<_> = lines
            .iter()
            .map(|line| (&line["code"], &line["leftOut"]))
            .collect();
        let none = serde_json::Value::Null;
        let codes = [403, 201, 401, 401].map(serde_json::Value::from);
        let left_out = serde_json::Value::from(940);
        assert_eq!(
            said,
            [
                (&codes[0], &none),
                (&codes[1], &none),
                (&codes[2], &left_out),
                (&codes[3], &none)
            ]
        );
        assert!(
            lines[0]["path"]
                .as_str()
                .is_some_and(|path| path.len() <= PATH_MAX)
        );
    }

    #[test]
    fn lines_are_kept_and_files_put_aside() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = open(dir.path());
        let info = RequestInfo {
            verb: "create".to_owned(),
            path: "/api/v1/namespaces".to_owned(),
            ..RequestInfo::default()
        };
        let caller = Caller::system();
        let entry = Entry {
            id: "x",
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            info: &info,
            user: &caller,
            acting: None,
            source: Some(IpAddr::from([192, 0, 2, 7])),
            dry_run: false,
            code: 201,
        };
        audit.write(&entry);
        let text = std::fs::read_to_string(dir.path().join(FILE)).expect("read");
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect("JSON");
        assert_eq!(line["verb"], "create");
        assert_eq!(line["sourceIPs"], serde_json::json!(["192.0.2.7"]));
        for _ in 0..6 {
            let inner = audit.0.as_ref().expect("open");
            match &mut inner.lock().expect("unpoisoned").output {
                Output::Files(log) => log.set_size(ROTATE_AT),
                Output::Stdout(_) => panic!("it has files"),
            }
            audit.write(&entry);
        }
        let files = std::fs::read_dir(dir.path()).expect("read").count();
        assert_eq!(files, KEPT + 1);
    }

    /// What a tenant does, however often and as whomever of its own, leaves what others did where it is.
    #[test]
    fn who_does_much_pushes_out_their_own_lines_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = open(dir.path());
        let info = RequestInfo {
            verb: "create".to_owned(),
            path: "/x".repeat(400),
            ..RequestInfo::default()
        };
        let caller = |user: &str| Caller {
            user: user.to_owned(),
            groups: vec!["g".repeat(2000); 100],
            ..Caller::default()
        };
        let write = |user: &Caller, code| {
            audit.write(&Entry {
                id: "x",
                now: "2026-01-01T00:00:00Z".parse().expect("a time"),
                info: &info,
                user,
                acting: None,
                source: None,
                dry_run: false,
                code,
            });
        };
        write(&caller("bob"), 201);
        // A line of theirs is as long as a line can be.
        for number in 0..8_000 {
            write(
                &caller(&format!("system:serviceaccount:tenant:{number}")),
                201,
            );
        }
        for _ in 0..1000 {
            write(&caller("eve"), 404);
        }
        write(&caller("carol"), 201);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("there");
        let main = read(FILE);
        for user in ["bob", "carol"] {
            assert!(main.contains(&format!("\"username\":\"{user}\"")), "{user}");
        }
        assert!(!dir.path().join("audit.log.1").exists());
        let longest = main.lines().map(str::len).max().unwrap_or_default();
        assert!(longest < 8 << 10, "{longest}");
        let theirs = main.matches("serviceaccount:tenant:").count();
        assert!(theirs > 100 && main.len() < usize::try_from(ROTATE_AT).expect("small") / 4);
        assert!(read(BUSY).contains("serviceaccount:tenant:7999"));
        assert_eq!(main.matches("\"username\":\"eve\"").count(), 60);
    }
}
