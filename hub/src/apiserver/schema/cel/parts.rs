//! Which parts of `self` and `oldSelf` a rule reads, so that only those are brought into CEL: a rule
//! about a name must not cost as much as the object is large.
//!
//! Read from the text, and never too little: whatever is not plainly `self.a.b` means all of it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields that are read, each as a whole or in parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parts {
    whole: bool,
    fields: BTreeMap<String, Parts>,
}

impl Parts {
    /// What an expression reads of these two variables.
    pub(super) fn of(expression: &str) -> Self {
        let mut parts = Self::default();
        parts.add(expression);
        parts
    }

    /// And what another one reads.
    pub(super) fn add(&mut self, expression: &str) {
        for (word, at) in words(expression) {
            // A field that is called so is none of the variables.
            let is_field = expression[..at].ends_with('.');
            if matches!(word, "self" | "oldSelf") && !is_field {
                self.read(&expression[at + word.len()..]);
            }
        }
    }

    /// And what another set of parts has.
    pub(super) fn join(&mut self, other: &Self) {
        self.whole |= other.whole;
        for (name, parts) in &other.fields {
            self.fields.entry(name.clone()).or_default().join(parts);
        }
    }

    /// Follows `.a.b` after a variable, up to what is a call, an index or anything else.
    fn read(&mut self, rest: &str) {
        let mut here = self;
        let mut rest = rest;
        while let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
            let (name, next) = after.split_at(end);
            let is_call = next.trim_start().starts_with('(');
            // Two underlines may stand for a letter that CEL does not take.
            if name.is_empty() || is_call || name.contains("__") {
                break;
            }
            here = here.fields.entry(name.to_owned()).or_default();
            rest = next;
        }
        here.whole = true;
    }

    /// As much of a value as is read; `None` for all of it.
    pub(super) fn take(&self, value: &Value) -> Option<Value> {
        let object = value.as_object().filter(|_| !self.whole)?;
        let mut taken = Map::new();
        for (name, parts) in &self.fields {
            if let Some(inner) = object.get(name) {
                let part = parts.take(inner).unwrap_or_else(|| inner.clone());
                taken.insert(name.clone(), part);
            }
        }
        Some(Value::Object(taken))
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Every word of a text, and where it begins.
fn words(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + text[at..].find(is_word)?;
        let rest = &text[begin..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        at = begin + end;
        Some((&rest[..end], begin))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_gets_what_it_reads_and_nothing_is_missing() {
        let object = json!({"metadata": {"name": "n", "labels": {"a": "b"}},
            "spec": {"a": {"b": 1, "c": 2}, "list": [1]}, "status": {"x": 1}});
        let taken = |rule: &str| Parts::of(rule).take(&object);
        for (rule, wanted) in [
            (
                "self.metadata.name.size() <= 48",
                json!({"metadata": {"name": "n"}}),
            ),
            (
                "has(self.spec.a.b) && self.spec.a.d == 1",
                json!({"spec": {"a": {"b": 1}}}),
            ),
            ("self.spec.list[0] == 1", json!({"spec": {"list": [1]}})),
            (
                "self.spec == oldSelf.spec || self.spec.a.b > 0",
                json!({"spec": object["spec"]}),
            ),
            (
                "self.spec.a.map(k, k)",
                json!({"spec": {"a": {"b": 1, "c": 2}}}),
            ),
            (
                "self.spec.a.x__dash__y == 1",
                json!({"spec": {"a": {"b": 1, "c": 2}}}),
            ),
            ("self.missing.field == 1", json!({})),
            ("true", json!({})),
        ] {
            assert_eq!(taken(rule), Some(wanted), "{rule}");
        }
        for rule in [
            "self == oldSelf",
            "self.map(k, k) == []",
            "self['spec'].a == 1",
            "self.?spec.a.hasValue()",
            "self .spec.a == 1",
            "{'a': self}.a.spec.a == 1",
            "self.spec.a.b == 1 && size(self) > 1",
        ] {
            assert_eq!(taken(rule), None, "{rule}");
        }
        let mut both = Parts::of("self.status.x == 1");
        both.join(&Parts::of("self.metadata.name == 'n'"));
        let wanted = json!({"metadata": {"name": "n"}, "status": {"x": 1}});
        assert_eq!(both.take(&object), Some(wanted));
        assert_eq!(Parts::of("self.a == 1").take(&json!("text")), None);
    }
}
