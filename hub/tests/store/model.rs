//! What the parent knows from the lines of its children, and what has to hold of the next one.

use std::collections::BTreeMap;

/// An object: its revision, and the count that was written.
type Version = (u64, String);

/// Everything that was promised so far.
#[derive(Default)]
pub(crate) struct Model {
    /// The highest revision that anybody saw.
    highest: u64,
    /// Objects as they were answered last.
    acked: BTreeMap<String, Version>,
    /// Of each writer the write that was asked for and not answered: name, count or `gone`.
    asked: BTreeMap<String, (String, String)>,
    /// Objects as the watcher saw them.
    watched: BTreeMap<String, Version>,
    /// Up to which revision the watcher has seen everything.
    pub(crate) seen: u64,
    leases: BTreeMap<String, Version>,
    /// What went against a promise.
    pub(crate) broken: Vec<String>,
    pub(crate) writes: u64,
    pub(crate) renewals: u64,
    pub(crate) resumed: u64,
}

/// What one child tells before it writes.
#[derive(Default)]
struct Opening {
    gone: bool,
    has: BTreeMap<String, Version>,
}

impl Model {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(what());
        }
    }

    /// Takes the lines of one child, from its start to its death.
    pub(crate) fn run(&mut self, lines: &[String]) {
        let mut opening = Some(Opening::default());
        let before = self.highest;
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["open", revision] => {
                    let revision = number(revision);
                    self.check(revision >= before, || {
                        format!("opened at {revision}, after {before} was handed out")
                    });
                }
                ["leases", how] => {
                    let first = self.highest == 0;
                    self.check(first || *how == "gone", || {
                        "a Lease watch went on".to_owned()
                    });
                }
                ["gone"] => {
                    if let Some(opening) = &mut opening {
                        opening.gone = true;
                    }
                }
                ["has", name, revision, count] => {
                    if let Some(opening) = &mut opening {
                        let version = (number(revision), (*count).to_owned());
                        opening.has.insert((*name).to_owned(), version);
                    }
                }
                ["lease", name, revision, count] => self.lease(name, number(revision), count),
                ["seen", revision] => {
                    if let Some(opening) = opening.take() {
                        self.opened(opening);
                    }
                    let revision = number(revision);
                    self.check(revision >= self.seen, || {
                        format!("progress went back to {revision}")
                    });
                    self.seen = revision;
                    self.highest = self.highest.max(revision);
                }
                ["try", writer, name, count] => {
                    let write = ((*name).to_owned(), (*count).to_owned());
                    self.asked.insert((*writer).to_owned(), write);
                }
                [
                    what @ ("ack" | "ack-delete" | "ack-renewal"),
                    name,
                    revision,
                    count,
                ] => {
                    self.ack(what, name, number(revision), count, before);
                }
                ["ack-gone", name] => {
                    self.writes += 1;
                    self.asked.retain(|_, (asked, _)| asked != name);
                    self.acked.remove(*name);
                }
                [kind, previous, name, revision, count] if kind.ends_with('d') => {
                    let version = (number(revision), (*count).to_owned());
                    self.event(kind, number(previous), name, version);
                }
                _ => self.broken.push(format!("an unknown line: {line}")),
            }
        }
    }

    fn ack(&mut self, what: &str, name: &str, revision: u64, count: &str, before: u64) {
        self.check(revision > before, || {
            format!("{name} got {revision} after {before} was handed out")
        });
        self.highest = self.highest.max(revision);
        let version = (revision, count.to_owned());
        match what {
            "ack-renewal" => {
                self.renewals += 1;
                self.leases.insert(name.to_owned(), version);
            }
            _ if name.starts_with('l') => {
                self.leases.insert(name.to_owned(), version);
            }
            _ => {
                self.writes += 1;
                self.asked.retain(|_, (asked, _)| asked != name);
                if what == "ack" {
                    self.acked.insert(name.to_owned(), version);
                } else {
                    self.acked.remove(name);
                }
            }
        }
    }

    fn event(&mut self, kind: &str, previous: u64, name: &str, version: Version) {
        let (revision, known) = (version.0, self.watched.get(name).map_or(0, |v| v.0));
        self.check(revision > self.seen, || {
            format!("{kind} {name} {revision} was told twice")
        });
        self.check(previous == known, || {
            format!("{kind} {name} {revision} follows {previous}, and {known} was seen")
        });
        self.check((kind == "added") == (previous == 0), || {
            format!("{kind} after {previous}")
        });
        self.seen = revision;
        self.highest = self.highest.max(revision);
        if kind == "deleted" {
            self.watched.remove(name);
        } else {
            self.watched.insert(name.to_owned(), version);
        }
    }

    /// A renewal may be lost, the Lease may not, and it never has what nobody wrote.
    fn lease(&mut self, name: &str, revision: u64, count: &str) {
        if let Some((last, last_count)) = self.leases.get(name).cloned() {
            self.check(
                revision <= last || number(count) > number(&last_count),
                || format!("lease {name} is at {revision}, after {last} was answered"),
            );
        }
        self.leases
            .insert(name.to_owned(), (revision, count.to_owned()));
    }

    fn opened(&mut self, opening: Opening) {
        if opening.gone {
            self.watched = opening.has.clone();
        } else {
            self.resumed += 1;
            if self.watched != opening.has {
                let (watched, has) = (self.watched.clone(), &opening.has);
                self.broken.push(format!(
                    "a watcher that went on has {watched:?}, not {has:?}"
                ));
                self.watched = opening.has.clone();
            }
        }
        let asked = std::mem::take(&mut self.asked);
        let allowed = |name: &str, version: Option<&Version>| {
            let count = version.map_or("gone", |v| &v.1);
            asked
                .values()
                .any(|(asked, wanted)| asked == name && wanted == count)
        };
        let mut lost = Vec::new();
        for (name, version) in &self.acked {
            let has = opening.has.get(name);
            if has != Some(version) && !allowed(name, has) {
                lost.push(format!("{name} was answered as {version:?} and is {has:?}"));
            }
        }
        for (name, version) in &opening.has {
            if !self.acked.contains_key(name) && !allowed(name, Some(version)) {
                lost.push(format!("{name} is {version:?} and was not there"));
            }
        }
        self.broken.extend(lost);
        self.acked = opening.has;
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}
