//! Texts that stand for other values.

use crate::apiserver::schema::decode::leaf::parse_duration;
use crate::apiserver::schema::rules;
use chrono::{DateTime, Duration, FixedOffset};

/// `1h30m`, as Go writes durations.
pub(super) fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).map(Duration::nanoseconds)
}

/// `2006-01-02T15:04:05Z`.
pub(super) fn timestamp(text: &str) -> Option<DateTime<FixedOffset>> {
    DateTime::parse_from_rfc3339(text).ok()
}

/// Whether a text is a regular expression.
pub(super) fn is_pattern(text: &str) -> bool {
    rules::compile(text).is_some()
}
