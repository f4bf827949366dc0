//! What a binding shows of Works that cannot be made: the condition `Degraded`, as long as it is so.
//!
//! Pure. Events are gone after an hour; an override that does not apply stays until somebody mends it.

use chrono::{DateTime, Utc};
use common::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Why, in one word; also that of the event.
pub const REASON: &str = "SyncWorkFailed";
/// The condition.
pub const DEGRADED: &str = "Degraded";
/// Most of what it tells, in bytes: of a thousand clusters most fail for the same reason.
const MESSAGE: usize = 4 * 1024;

/// The conditions of a binding as they are to be; none when nothing changes.
pub fn decide(
    now: DateTime<Utc>,
    before: &[Condition],
    problem: Option<&str>,
) -> Option<Vec<Condition>> {
    let mut after = before.to_vec();
    match problem {
        None => after.retain(|it| it.type_ != DEGRADED),
        Some(problem) => {
            let end = problem.floor_char_boundary(MESSAGE);
            let condition = conditions::new(DEGRADED, true, REASON, &problem[..end], now);
            conditions::set(&mut after, condition, now);
        }
    }
    (after != before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_as_long_as_something_is_wrong() {
        let at = |second| DateTime::from_timestamp(second, 0).expect("in range");
        let scheduled = conditions::new("Scheduled", true, "Success", "", at(0));
        let healthy = vec![scheduled];
        assert_eq!(decide(at(1), &healthy, None), None);

        let wrong = decide(at(1), &healthy, Some("no")).expect("a change");
        assert_eq!(wrong.len(), 2);
        assert!(conditions::is_true(&wrong, DEGRADED));
        assert_eq!(decide(at(2), &wrong, Some("no")), None);
        let other = decide(at(2), &wrong, Some("never")).expect("a change");
        let told = conditions::get(&other, DEGRADED).expect("there");
        assert_eq!(told.message, "never");
        assert_eq!(told.last_transition_time, common::time::to_time(at(1)));
        assert_eq!(decide(at(3), &other, None), Some(healthy));
    }

    #[test]
    fn it_is_no_longer_than_a_condition_should_be() {
        let at = DateTime::from_timestamp(0, 0).expect("in range");
        let told = decide(at, &[], Some(&"\u{e4}".repeat(MESSAGE))).expect("a change");
        assert_eq!(told[0].message.len(), MESSAGE);
    }
}
