//! Setting Kubernetes conditions: the transition time moves only when the status does. Pure.

use crate::time::to_time;
use chrono::{DateTime, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// A condition without its times, which [`set`] decides.
pub fn new(
    type_: &str,
    status: bool,
    reason: &str,
    message: impl Into<String>,
    now: DateTime<Utc>,
) -> Condition {
    with_status(
        type_,
        if status { "True" } else { "False" },
        reason,
        message,
        now,
    )
}

/// A condition of any status: `True`, `False` or `Unknown`.
pub fn with_status(
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: DateTime<Utc>,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.into(),
        last_transition_time: to_time(now),
        observed_generation: None,
    }
}

/// Puts `condition` in the list, in place of the one of its type. Returns whether anything changed;
/// `lastTransitionTime` becomes `now` only when the status differs from the one before.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: DateTime<Utc>) -> bool {
    let Some(current) = conditions.iter_mut().find(|c| c.type_ == condition.type_) else {
        condition.last_transition_time = to_time(now);
        conditions.push(condition);
        return true;
    };
    condition.last_transition_time = if current.status == condition.status {
        current.last_transition_time.clone()
    } else {
        to_time(now)
    };
    if *current == condition {
        return false;
    }
    *current = condition;
    true
}

/// The condition of a type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of a type is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|c| c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    #[test]
    fn transition_time_moves_only_with_status() {
        let mut list = Vec::new();
        assert!(set(&mut list, new("Ready", true, "A", "up", at(0)), at(0)));
        assert!(!set(&mut list, new("Ready", true, "A", "up", at(5)), at(5)));
        assert!(set(
            &mut list,
            new("Ready", true, "B", "still up", at(6)),
            at(6)
        ));
        assert_eq!(list[0].last_transition_time, to_time(at(0)));
        assert!(set(
            &mut list,
            new("Ready", false, "C", "down", at(7)),
            at(7)
        ));
        assert_eq!(list[0].last_transition_time, to_time(at(7)));
        assert!(!is_true(&list, "Ready"));
        assert_eq!(list.len(), 1);
    }
}
