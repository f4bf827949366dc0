//! What a 409 of server-side apply says: which fields belong to whom, and whether to insist.
//!
//! Pure. A field that we owned at our last apply is drift, and taken back; any other owner is left
//! alone and named, unless the manifest says `overwrite`.

use super::fields::sets_path;
use common::labels::{FIELD_MANAGER, RETAINED_FIELD_MANAGER};
use serde_json::Value;
use std::fmt;

/// One field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// Its path, as the API server writes it.
    pub field: String,
    /// The owner.
    pub manager: String,
}

impl fmt::Display for FieldConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is owned by {:?}", self.field, self.manager)
    }
}

/// Reads the conflicts out of a `Status`; empty when it is a 409 of another sort.
pub fn read(status: &Value) -> Vec<FieldConflict> {
    let causes = status
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut conflicts: Vec<_> = causes
        .iter()
        .filter(|cause| cause.get("reason").and_then(Value::as_str) == Some("FieldManagerConflict"))
        .map(|cause| {
            let text = |key| cause.get(key).and_then(Value::as_str).unwrap_or_default();
            // The message is `conflict with "manager" using v1 at …`.
            let manager = text("message").split('"').nth(1).unwrap_or("unknown");
            FieldConflict {
                field: text("field").to_owned(),
                manager: manager.to_owned(),
            }
        })
        .collect();
    conflicts.sort();
    conflicts.dedup();
    conflicts
}

/// What to do about conflicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// All of them are drift, or the manifest overwrites: apply with force.
    Force,
    /// These belong to others.
    Yield(Vec<FieldConflict>),
}

/// Decides about `conflicts`. `last` is the manifest at our last apply of this very object.
pub fn answer(conflicts: &[FieldConflict], overwrite: bool, last: Option<&Value>) -> Answer {
    if overwrite {
        return Answer::Force;
    }
    let foreign: Vec<_> = conflicts
        .iter()
        .filter(|c| c.manager != RETAINED_FIELD_MANAGER && c.manager != FIELD_MANAGER)
        .filter(|c| !last.is_some_and(|last| sets_path(last, &c.field)))
        .cloned()
        .collect();
    if foreign.is_empty() {
        Answer::Force
    } else {
        Answer::Yield(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status() -> Value {
        json!({"code": 409, "reason": "Conflict", "details": {"causes": [
            {"reason": "FieldManagerConflict", "field": ".data.a", "message": "conflict with \"kubectl-edit\" using v1 at 2026-01-01T00:00:00Z"},
            {"reason": "FieldManagerConflict", "field": ".data.b", "message": "conflict with \"other\" using v1"},
            {"reason": "Else", "field": ".data.c", "message": ""}]}})
    }

    #[test]
    fn drift_is_forced_and_other_owners_are_named() {
        let conflicts = read(&status());
        assert_eq!(conflicts.len(), 2);
        let both = json!({"data": {"a": "1", "b": "2"}});
        assert_eq!(answer(&conflicts, false, Some(&both)), Answer::Force);
        assert_eq!(answer(&conflicts, true, None), Answer::Force);
        let Answer::Yield(foreign) = answer(&conflicts, false, Some(&json!({"data": {"a": "1"}})))
        else {
            panic!("b is not ours");
        };
        assert_eq!(foreign[0].to_string(), ".data.b is owned by \"other\"");
        assert_eq!(foreign.len(), 1);
    }
}
