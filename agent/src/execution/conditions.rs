//! The conditions of a Work and their texts, which users and tests of the reference compare literally.
//!
//! Pure.

/// Type of the condition that says whether the manifests are in the member.
pub const APPLIED: &str = "Applied";
/// Type of the condition that says whether the Work is being delivered.
pub const DISPATCHING: &str = "Dispatching";
/// Type of the condition that says what keeps a deletion from finishing, and what is not healed.
pub const DEGRADED: &str = "Degraded";
/// Its reason while a deletion waits for others.
pub const DELETION_BLOCKED: &str = "DeletionBlocked";
/// Longest message we write: the API server's limit is 32,768 bytes.
pub const MESSAGE_LIMIT: usize = 32_000;

/// What a condition should say; the transition time is added when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// Condition type.
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: bool,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text for a human.
    pub message: String,
}

/// The Applied condition after trying `total` manifests.
pub fn applied(total: usize, errors: &[String]) -> Verdict {
    if errors.is_empty() {
        return Verdict {
            kind: APPLIED,
            status: true,
            reason: "AppliedSuccessful",
            message: "Manifest has been successfully applied".into(),
        };
    }
    // As the reference joins errors: one stands bare, several in brackets, each text once.
    let mut texts: Vec<&str> = Vec::new();
    for error in errors {
        if !texts.contains(&error.as_str()) {
            texts.push(error);
        }
    }
    let joined = match texts.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    };
    let done = total.saturating_sub(errors.len());
    let message = format!("Failed to apply all manifests ({done}/{total}): {joined}");
    Verdict {
        kind: APPLIED,
        status: false,
        reason: "AppliedFailed",
        message: cut(message, MESSAGE_LIMIT),
    }
}

/// The Dispatching condition.
pub fn dispatching(suspended: bool) -> Verdict {
    let (reason, message) = if suspended {
        (
            "SuspendDispatching",
            "Work dispatching is in a suspended state.",
        )
    } else {
        (
            "Dispatching",
            "Work is being dispatched to member clusters.",
        )
    };
    Verdict {
        kind: DISPATCHING,
        status: !suspended,
        reason,
        message: message.into(),
    }
}

/// The condition while the deletion of a Work waits for others.
pub fn deletion_blocked(blockers: &[String]) -> Verdict {
    degraded(blockers, &[])
}

/// The condition that tells what waits to be deleted, and what is deliberately not healed; or that nothing is any more.
pub fn degraded(blockers: &[String], notes: &[String]) -> Verdict {
    let blocked = format!("Deletion waits for: {}", blockers.join("; "));
    let notes = notes.join("; ");
    let (reason, message) = match (blockers.is_empty(), notes.is_empty()) {
        (true, true) => ("Healing", "Every drift is healed.".to_owned()),
        (true, false) => ("HealingPaused", notes),
        (false, true) => (DELETION_BLOCKED, blocked),
        (false, false) => (DELETION_BLOCKED, format!("{blocked}. {notes}")),
    };
    Verdict {
        kind: DEGRADED,
        status: reason != "Healing",
        reason,
        message: cut(message, MESSAGE_LIMIT),
    }
}

/// Cuts a text at `limit` bytes, on a character, and says so.
pub fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    const MARK: &str = "… (cut; the agent's log has all of it)";
    let mut end = limit.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(MARK);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_the_references() {
        assert_eq!(
            applied(2, &[]).message,
            "Manifest has been successfully applied"
        );
        assert_eq!(
            applied(2, &["a".into()]).message,
            "Failed to apply all manifests (1/2): a"
        );
        assert_eq!(
            applied(3, &["a".into(), "b".into(), "a".into()]).message,
            "Failed to apply all manifests (0/3): [a, b]"
        );
        assert_eq!(dispatching(true).reason, "SuspendDispatching");
        assert!(!dispatching(true).status && dispatching(false).status);
    }

    #[test]
    fn one_condition_tells_what_waits_and_what_is_not_healed() {
        let (waits, held) = (["ConfigMap n/a".to_owned()], ["b is held".to_owned()]);
        for (blockers, notes, want) in [
            (
                &[][..],
                &[][..],
                (false, "Healing", "Every drift is healed."),
            ),
            (&[], &held, (true, "HealingPaused", "b is held")),
            (
                &waits,
                &[],
                (true, "DeletionBlocked", "Deletion waits for: ConfigMap n/a"),
            ),
            (
                &waits,
                &held,
                (
                    true,
                    "DeletionBlocked",
                    "Deletion waits for: ConfigMap n/a. b is held",
                ),
            ),
        ] {
            let told = degraded(blockers, notes);
            assert_eq!((told.status, told.reason, &*told.message), want);
        }
    }

    proptest! {
        #[test]
        fn a_cut_text_fits(text in "\\PC{0,300}", limit in 60usize..200) {
            prop_assert!(cut(text, limit).len() <= limit);
        }
    }
}
