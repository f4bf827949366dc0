//! Deletions that give an object time: it is marked, and gone when somebody says so.

use crate::apiserver::metadata;
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::strategies::Strategy;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

/// No time of day may run over: nearly three hundred years.
const LONGEST: i64 = 9_000_000_000;

/// What a deletion means for an object of such a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// It is not one of those, or its time is over.
    None,
    /// It is ending, and not sooner for this deletion.
    Pending,
    /// It was marked, with so many seconds.
    Seconds(i64),
}

/// Marks an object with the time that it is given.
pub(super) fn begin(
    strategy: &dyn Strategy,
    options: &DeleteOptions,
    object: &mut Value,
    now: DateTime<Utc>,
) -> Grace {
    let Some(first) = strategy.grace(object, options) else {
        return Grace::None;
    };
    if !metadata::is_deleting(object) {
        metadata::set_grace(object, now + seconds(first), first);
        let generation = metadata::generation(object);
        if generation > 0 {
            metadata::set_generation(object, generation + 1);
        }
        return Grace::Seconds(first);
    }
    // What is ending may end sooner, and never later.
    let had = metadata::grace(object).unwrap_or(0);
    match options.grace_period_seconds.map(metadata::at_least) {
        _ if had == 0 => Grace::None,
        Some(wanted) if wanted < had => {
            let (end, given) = sooner(object, had, wanted, now);
            metadata::set_grace(object, end, given);
            Grace::Seconds(given)
        }
        _ => Grace::Pending,
    }
}

/// When it ends now: never in the past, and not at once when it was given any time.
fn sooner(object: &Value, had: i64, wanted: i64, now: DateTime<Utc>) -> (DateTime<Utc>, i64) {
    let text = object["metadata"]["deletionTimestamp"].as_str();
    let end = text.and_then(|text| DateTime::parse_from_rfc3339(text).ok());
    let end = end.map_or(now, |end| end.with_timezone(&Utc));
    let end = end - seconds(had) + seconds(wanted);
    if end >= now {
        return (end, wanted);
    }
    (now, wanted.min(1))
}

fn seconds(count: i64) -> TimeDelta {
    TimeDelta::seconds(count.clamp(0, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::scheme::Scheme;
    use crate::apiserver::strategies;
    use serde_json::json;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(second)
    }

    #[test]
    fn a_pod_ends_no_later_for_another_deletion() {
        let kinds = Scheme::new().snapshot();
        let pods = kinds.resource("", "v1", "pods").expect("pods");
        let strategy = strategies::of(&pods);
        let options = |seconds: Option<i64>| DeleteOptions {
            grace_period_seconds: seconds,
            ..DeleteOptions::default()
        };
        let mut pod = json!({"metadata": {"generation": 1},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 20}});
        let first = begin(strategy, &options(None), &mut pod, at(100));
        assert_eq!(first, Grace::Seconds(20));
        assert_eq!(
            pod["metadata"],
            json!({"generation": 2, "deletionGracePeriodSeconds": 20,
            "deletionTimestamp": "1970-01-01T00:02:00Z"})
        );
        for later in [None, Some(20), Some(i64::MAX)] {
            let again = begin(strategy, &options(later), &mut pod, at(101));
            assert_eq!(again, Grace::Pending);
        }
        let sooner = begin(strategy, &options(Some(5)), &mut pod, at(101));
        assert_eq!(sooner, Grace::Seconds(5));
        assert_eq!(pod["metadata"]["deletionTimestamp"], "1970-01-01T00:01:45Z");
        let late = begin(strategy, &options(Some(3)), &mut pod, at(110));
        assert_eq!(late, Grace::Seconds(1));
        let now = begin(strategy, &options(Some(0)), &mut pod, at(110));
        assert_eq!(now, Grace::Seconds(0));
        assert_eq!(
            begin(strategy, &options(None), &mut pod, at(110)),
            Grace::None
        );
    }

    #[test]
    fn what_does_not_run_and_other_kinds_end_at_once() {
        let kinds = Scheme::new().snapshot();
        let options = DeleteOptions {
            grace_period_seconds: Some(i64::MAX),
            ..DeleteOptions::default()
        };
        let pods = kinds.resource("", "v1", "pods").expect("pods");
        for mut pod in [
            json!({"metadata": {}}),
            json!({"metadata": {}, "spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}),
        ] {
            let ends = begin(strategies::of(&pods), &options, &mut pod, at(1));
            assert_eq!(ends, Grace::Seconds(0));
        }
        let mut runs = json!({"metadata": {}, "spec": {"nodeName": "n"}});
        let ends = begin(strategies::of(&pods), &options, &mut runs, at(1));
        assert_eq!(ends, Grace::Seconds(i64::MAX));
        let secrets = kinds.resource("", "v1", "secrets").expect("secrets");
        let mut secret = json!({"metadata": {}});
        let ends = begin(strategies::of(&secrets), &options, &mut secret, at(1));
        assert_eq!((ends, secret), (Grace::None, json!({"metadata": {}})));
    }
}
