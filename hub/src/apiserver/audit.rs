//! The audit log: one line of JSON for each write and each refusal, without any body, in files that are
//! rotated. Writes that change nothing and renewals of Leases are left out: a fleet at rest makes a hundred
//! a second, and what an administrator did would be gone within the hour. Anybody can be refused as often as they like, so of too many refusals of one user within a
//! minute the rest is only counted: nobody pushes out of the files what was done before.

use super::caller::Caller;
use super::http::info::RequestInfo;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A file is put aside at this size.
const ROTATE_AT: u64 = 16 * 1024 * 1024;
/// Files that were put aside and are kept.
const KEPT: usize = 4;
const FILE: &str = "audit.log";
/// Refusals of one user that are written within a minute.
const REFUSALS: u64 = 60;
/// How much of a path is written.
const PATH_MAX: usize = 1024;

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
    /// Whether nothing was kept.
    pub dry_run: bool,
    /// Status code of the answer.
    pub code: u16,
}

/// A line, its members in the order of their names.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Who<'a>>,
    /// How many refusals of this user before it stand nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    path: &'a str,
    time: String,
    user: Who<'a>,
    verb: &'a str,
}

#[derive(Serialize)]
struct Who<'a> {
    groups: &'a [String],
    username: &'a str,
}

impl<'a> Who<'a> {
    fn of(caller: &'a Caller) -> Self {
        Self {
            groups: &caller.groups,
            username: &caller.user,
        }
    }
}

impl Entry<'_> {
    const fn is_refusal(&self) -> bool {
        matches!(self.code, 401 | 403)
    }

    fn line(&self, left_out: u64) -> Vec<u8> {
        let path = &self.info.path;
        let line = Line {
            audit_id: self.id,
            code: self.code,
            dry_run: self.dry_run.then_some(true),
            impersonated_user: self.acting.map(Who::of),
            left_out: (left_out > 0).then_some(left_out),
            path: &path[..path.floor_char_boundary(PATH_MAX)],
            time: self.now.to_rfc3339_opts(SecondsFormat::Micros, true),
            user: Who::of(self.user),
            verb: &self.info.verb,
        };
        let mut text = Vec::with_capacity(512);
        // Texts and numbers can always be encoded, and memory be written to.
        let _ = serde_json::to_writer(&mut text, &line);
        text.push(b'\n');
        text
    }
}

/// The log. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Audit(Option<Arc<Mutex<Log>>>);

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    /// Whether the last line could not be written, so that this is said once.
    failing: bool,
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
    /// A log in a folder.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let (file, size) = append(&path)?;
        let log = Log {
            path,
            file,
            size,
            failing: false,
            refusals: Refusals::default(),
        };
        Ok(Self(Some(Arc::new(Mutex::new(log)))))
    }

    /// Writes a line.
    pub fn write(&self, entry: &Entry<'_>) {
        let Some(log) = &self.0 else { return };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        if entry.is_refusal() {
            let minute = entry.now.timestamp().div_euclid(60);
            match log.refusals.one_more(&entry.user.user, minute) {
                Some(before) => left_out = before,
                None => return,
            }
        }
        log.write(&entry.line(left_out));
    }
}

impl Log {
    fn write(&mut self, line: &[u8]) {
        let written = self.rotate().and_then(|()| self.file.write_all(line));
        match written {
            Ok(()) => {
                self.size += line.len() as u64;
                self.failing = false;
            }
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(%error, path = %self.path.display(), "failed to write the audit log");
            }
            Err(_) => {}
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.size < ROTATE_AT {
            return Ok(());
        }
        let numbered = |number: usize| {
            let mut path = self.path.as_os_str().to_owned();
            path.push(format!(".{number}"));
            PathBuf::from(path)
        };
        for number in (1..KEPT).rev() {
            match std::fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(1))?;
        (self.file, self.size) = append(&self.path)?;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_without_end_push_nothing_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(dir.path()).expect("opened");
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
        let audit = Audit::open(dir.path()).expect("opened");
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
            dry_run: false,
            code: 201,
        };
        audit.write(&entry);
        let text = std::fs::read_to_string(dir.path().join(FILE)).expect("read");
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect("JSON");
        assert_eq!(line["verb"], "create");
        for _ in 0..6 {
            let log = audit.0.as_ref().expect("open");
            log.lock().expect("unpoisoned").size = ROTATE_AT;
            audit.write(&entry);
        }
        let files = std::fs::read_dir(dir.path()).expect("read").count();
        assert_eq!(files, KEPT + 1);
    }
}
