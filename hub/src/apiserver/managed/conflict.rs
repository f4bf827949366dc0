//! Fields of an apply that belong to others.

use super::element::Element;
use super::entries::Id;
use crate::apiserver::error::{ApiError, StatusCause};

/// A field and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) of: Id,
    pub(super) path: Vec<Element>,
}

/// Why a write cannot be told to the managers there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// Fields are others'.
    Conflicts(Vec<Conflict>),
    /// An object is none in the version of a manager.
    Unread(String),
}

/// As conflicts name fields: `.spec.containers[name="a"].image`.
fn shown(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// The answer to an apply that is not to take fields from others.
pub(super) fn refused(conflicts: &[Conflict]) -> ApiError {
    let causes = conflicts
        .iter()
        .map(|conflict| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", conflict.of),
            field: shown(&conflict.path),
        })
        .collect();
    let message = if let [one] = conflicts {
        let (of, path) = (&one.of, shown(&one.path));
        format!("Apply failed with 1 conflict: conflict with {of}: {path}")
    } else {
        let mut lines: Vec<String> = Vec::new();
        let mut last: Option<&Id> = None;
        for conflict in conflicts {
            if last != Some(&conflict.of) {
                lines.push(format!("conflicts with {}:", conflict.of));
                last = Some(&conflict.of);
            }
            lines.push(format!("- {}", shown(&conflict.path)));
        }
        let (count, lines) = (conflicts.len(), lines.join("\n"));
        format!("Apply failed with {count} conflicts: {lines}")
    };
    ApiError::apply_conflict(causes, message)
}
