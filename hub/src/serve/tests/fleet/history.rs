//! What became of single objects, in words: for whoever looks at a run that fails.

use super::books::Key;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many events of an object are kept.
const EVENTS: usize = 8;
/// So many bytes of what an event changed are told.
const LONGEST: usize = 400;
/// What changes with every write, or says the same a second time.
const IDLE: [&str; 3] = ["managedFields", "resourceVersion", "kubectl.kubernetes.io"];

/// The last events of every object of the hub and the members.
#[derive(Default)]
pub(super) struct History(BTreeMap<(String, Key), VecDeque<String>>);

impl History {
    pub(super) fn note(
        &mut self,
        place: &str,
        key: &Key,
        at: Duration,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        let mut changes = Vec::new();
        let what = match (old, new) {
            (_, None) => "gone",
            (None, Some(new)) => {
                differences("", &Value::Null, new, &mut changes);
                "there"
            }
            (Some(old), Some(new)) => {
                differences("", old, new, &mut changes);
                "changed"
            }
        };
        let mut changes = changes.join(" ");
        if changes.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|it| changes.is_char_boundary(*it));
            changes.truncate(end.unwrap_or(0));
            changes.push('…');
        }
        let at = at.as_secs_f64();
        let events = self.0.entry((place.to_owned(), key.clone())).or_default();
        events.push_back(format!("{at:9.3} s {place} {key} {what} {changes}"));
        if events.len() > EVENTS {
            events.pop_front();
        }
    }

    /// Of the objects that a text names, in the order of time.
    pub(super) fn of(&self, text: &str) -> Vec<String> {
        let named = |key: &Key| {
            let name = key.to_string();
            text.match_indices(&name).any(|(at, _)| {
                let next = text[at + name.len()..].chars().next();
                next.is_none_or(|it| !(it.is_alphanumeric() || it == '-'))
            })
        };
        let events = self.0.iter().filter(|((_, key), _)| named(key));
        let mut all: Vec<String> = events.flat_map(|(_, it)| it.iter().cloned()).collect();
        all.sort();
        all
    }
}

/// Each value that differs, by its path.
fn differences(path: &str, old: &Value, new: &Value, all: &mut Vec<String>) {
    if old == new || IDLE.iter().any(|it| path.contains(it)) {
        return;
    }
    match (old, new) {
        (_, Value::Object(fields)) => {
            for (name, value) in fields {
                differences(&format!("{path}/{name}"), &old[name], value, all);
            }
            for name in old.as_object().into_iter().flat_map(|it| it.keys()) {
                if !fields.contains_key(name) {
                    differences(&format!("{path}/{name}"), &old[name], &Value::Null, all);
                }
            }
        }
        (_, Value::Array(items)) => {
            let count = items.len().max(old.as_array().map_or(0, Vec::len));
            for at in 0..count {
                differences(&format!("{path}/{at}"), &old[at], &new[at], all);
            }
        }
        _ => all.push(format!("{path}={new}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_changes_of_what_is_named_are_told() {
        let mut history = History::default();
        let (web, web2) = (
            Key::new("Deployment", "a", "web"),
            Key::new("Deployment", "a", "web-2"),
        );
        let object = |number| json!({"metadata": {"resourceVersion": number}, "spec": {"replicas": number, "kept": [1]}});
        for number in 0..10 {
            let at = Duration::from_secs(number);
            let old = (number > 0).then(|| object(number - 1));
            history.note("hub", &web, at, old.as_ref(), Some(&object(number)));
        }
        history.note("m1", &web2, Duration::ZERO, None, Some(&object(1)));
        history.note("hub", &web, Duration::from_secs(10), Some(&object(9)), None);
        let told = history.of("sums: Deployment a/web wants more");
        assert_eq!(told.len(), EVENTS);
        assert_eq!(
            told[0].trim(),
            "3.000 s hub Deployment a/web changed /spec/replicas=3"
        );
        assert_eq!(told[7].trim(), "10.000 s hub Deployment a/web gone");
        assert_eq!(history.of("Deployment a/web-2").len(), 1);
        assert!(history.of("Deployment a/other").is_empty());
    }
}
