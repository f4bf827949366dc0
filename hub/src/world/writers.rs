//! Whose a write was, by the field managers of the object before and after. Pure.
//!
//! An API server notes with each write who made it, through which subresource and in which second.
//! Agents write as `towline-agent…` or `karmada-agent…`, or say no name; admission refuses them every
//! other one (`install::admission`, `apiserver::agents`), so what another manager wrote was not theirs.

use common::identity::is_agents_manager;
use common::labels::ANCIENT_CHANGES;
use serde::Deserialize;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// One entry of `metadata.managedFields`, without what it owns.
#[derive(Debug, Deserialize)]
pub struct Entry {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    time: String,
}

/// One writer of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Writer {
    /// Manager, operation and subresource.
    who: u64,
    /// The second of its last write, as the server wrote it: such times compare as text does.
    time: Box<str>,
    agents: bool,
    /// Not a writer but a heap of old ones.
    ancient: bool,
}

/// One version of an object, as far as it tells who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    writers: Vec<Writer>,
    /// Differs when what only an agent writes differs: the status, and its finalizer on a Work.
    content: u64,
}

impl Version {
    /// Reads the entries of an object.
    pub fn of(entries: &[Entry], content: u64) -> Self {
        let writer = |entry: &Entry| {
            let mut who = DefaultHasher::new();
            (&entry.manager, &entry.operation, &entry.subresource).hash(&mut who);
            Writer {
                who: who.finish(),
                time: entry.time.as_str().into(),
                agents: is_agents_manager(&entry.manager),
                ancient: entry.manager == ANCIENT_CHANGES,
            }
        };
        Self {
            writers: entries.iter().map(writer).collect(),
            content,
        }
    }

    /// Whether nobody but agents has written it, ever.
    pub fn is_agents_alone(&self) -> bool {
        self.writers.iter().all(|writer| writer.agents)
    }

    /// Whether the write that made this of `before` was an agent's.
    pub fn is_agents_over(&self, before: &Self) -> bool {
        let is_new = |writer: &&Writer| {
            let was = before.writers.iter().find(|one| one.who == writer.who);
            was.is_none_or(|was| was.time != writer.time)
        };
        let mut moved = self.writers.iter().filter(is_new).peekable();
        if moved.peek().is_some() {
            // A heap moves when a new manager comes, and says nothing beside it.
            let (mut agents, mut others) = (false, false);
            for writer in moved {
                agents |= writer.agents;
                others |= !writer.agents && !writer.ancient;
            }
            return agents || !others;
        }
        // Again in the same second: one of those who wrote in it.
        let last = self.writers.iter().map(|writer| &writer.time).max();
        let lately = || {
            self.writers
                .iter()
                .filter(|one| Some(&one.time) == last && !one.ancient)
        };
        match (
            lately().any(|one| one.agents),
            lately().any(|one| !one.agents),
        ) {
            (true, true) => self.content != before.content,
            // With no entry at all somebody took them away, and that is the agent's own affair.
            (agents, others) => agents || !others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `manager[/subresource]@second` each; the content last.
    fn version(entries: &[&str], content: u64) -> Version {
        let entries: Vec<Entry> = entries
            .iter()
            .map(|text| {
                let (who, second) = text.split_once('@').expect("a time");
                let (manager, subresource) = who.split_once('/').unwrap_or((who, ""));
                Entry {
                    manager: manager.to_owned(),
                    operation: "Update".to_owned(),
                    subresource: subresource.to_owned(),
                    time: format!("2026-01-01T00:00:{second:0>2}Z"),
                }
            })
            .collect();
        Version::of(&entries, content)
    }

    #[test]
    fn whoever_wrote_is_counted_whatever_changed() {
        const AGENT: &str = "towline-agent/status@1";
        /// What is told, managers and content before, and after, whether the agent wrote.
        type Case = (
            &'static str,
            &'static [&'static str],
            u64,
            &'static [&'static str],
            u64,
            bool,
        );
        let cases: [Case; 13] = [
            ("its status", &["hub@0"], 0, &["hub@0", AGENT], 1, true),
            (
                "its status once more",
                &["hub@0", AGENT],
                1,
                &["hub@0", "towline-agent/status@9"],
                2,
                true,
            ),
            (
                "within the same second",
                &["hub@0", AGENT],
                1,
                &["hub@0", AGENT],
                2,
                true,
            ),
            (
                "an operator's label",
                &["hub@0", AGENT],
                1,
                &["hub@0", AGENT, "kubectl-label@5"],
                1,
                false,
            ),
            (
                "the same label again in the same second",
                &["hub@0", AGENT, "kubectl-label@5"],
                1,
                &["hub@0", AGENT, "kubectl-label@5"],
                1,
                false,
            ),
            (
                "a label in the agent's own second",
                &[AGENT, "kubectl-label@1"],
                1,
                &[AGENT, "kubectl-label@1"],
                1,
                false,
            ),
            (
                "a status in the operator's second",
                &[AGENT, "kubectl-label@1"],
                1,
                &[AGENT, "kubectl-label@1"],
                2,
                true,
            ),
            (
                "a condition of the hub's",
                &[AGENT],
                1,
                &[AGENT, "towline-hub/status@2"],
                2,
                false,
            ),
            (
                "that condition again",
                &[AGENT, "towline-hub/status@2"],
                2,
                &[AGENT, "towline-hub/status@3"],
                3,
                false,
            ),
            (
                "somebody else's status",
                &[AGENT],
                1,
                &[AGENT, "kubectl-edit/status@2"],
                2,
                false,
            ),
            (
                "a stock agent, as a manager too many",
                &["a@0", "b@0"],
                1,
                &["ancient-changes@0", "karmada-agent/status@2"],
                2,
                true,
            ),
            (
                "an operator, as a manager too many",
                &["a@0", "b@0", AGENT],
                1,
                &["ancient-changes@0", AGENT, "kubectl@2"],
                1,
                false,
            ),
            ("no name at all", &["hub@0"], 0, &["hub@0", "@2"], 0, true),
        ];
        for (case, before, old, after, new, expected) in cases {
            let (before, after) = (version(before, old), version(after, new));
            assert_eq!(after.is_agents_over(&before), expected, "{case}");
        }
    }

    #[test]
    fn who_wrote_alone_is_told() {
        assert!(version(&["towline-agent/status@1"], 1).is_agents_alone());
        assert!(!version(&["kubectl@1"], 1).is_agents_alone());
    }
}
