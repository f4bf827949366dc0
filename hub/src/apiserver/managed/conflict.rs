//! Fields of an apply that belong to others.

use super::element::Element;
use super::entries::Id;
use super::set::Set;
use crate::apiserver::error::{ApiError, LONGEST_TOLD, MOST_TOLD, StatusCause};

/// Fields and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) of: Id,
    pub(super) fields: Set,
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
fn shown(path: &[&Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// The answer to an apply that is not to take fields from others. All of them are counted, and the first are
/// named: an apply may reach a hundred thousand of them.
pub(super) fn refused(conflicts: &[Conflict]) -> ApiError {
    let count: usize = conflicts.iter().map(|one| one.fields.count()).sum();
    let mut causes: Vec<StatusCause> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for Conflict { of, fields } in conflicts {
        let of = of.to_string();
        let mut is_named = false;
        fields.each(&mut |path| {
            if causes.len() >= MOST_TOLD || length > LONGEST_TOLD {
                return false;
            }
            if !is_named {
                lines.push(format!("conflicts with {of}:"));
                is_named = true;
            }
            let field = shown(path);
            length += of.len() + 2 * field.len();
            lines.push(format!("- {field}"));
            causes.push(StatusCause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {of}"),
                field,
            });
            true
        });
    }
    let more = count.saturating_sub(causes.len());
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    let message = match causes.as_slice() {
        [one] if count == 1 => {
            format!(
                "Apply failed with 1 conflict: {}: {}",
                one.message, one.field
            )
        }
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    ApiError::apply_conflict(causes, message)
}
