//! Texts that stand for other values.

use crate::apiserver::schema::decode::leaf::parse_duration;
use crate::apiserver::schema::rules;
use chrono::{DateTime, Duration, FixedOffset, NaiveDate, NaiveTime};

const SECOND: i64 = 1_000_000_000;

/// `1h30m`, as Go writes durations.
pub(super) fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).map(Duration::nanoseconds)
}

/// `2006-01-02T15:04:05Z`.
pub(super) fn timestamp(text: &str) -> Option<DateTime<FixedOffset>> {
    DateTime::parse_from_rfc3339(text).ok()
}

/// `2006-01-02`, at its beginning.
pub(super) fn day(text: &str) -> Option<DateTime<FixedOffset>> {
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(day.and_time(NaiveTime::MIN).and_utc().fixed_offset())
}

/// `1h30m`, or a number and a unit in words, as the format of a schema takes them.
pub(super) fn span(text: &str) -> Option<Duration> {
    duration(text).or_else(|| {
        let end = text.find(|c: char| !c.is_ascii_digit())?;
        let (count, unit) = text.split_at(end);
        let (one, of) = match unit.trim_start() {
            "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => (1, 1),
            "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => (1, 1_000),
            "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => (1, 1_000_000),
            "s" | "sec" | "secs" | "second" | "seconds" => (1, SECOND),
            "m" | "min" | "mins" | "minute" | "minutes" => (60, SECOND),
            "h" | "hr" | "hour" | "hours" => (60 * 60, SECOND),
            "d" | "day" | "days" => (24 * 60 * 60, SECOND),
            "w" | "wk" | "week" | "weeks" => (7 * 24 * 60 * 60, SECOND),
            _ => return None,
        };
        // As Go reckons it, past the longest time and around again.
        let count: i64 = count.parse().ok()?;
        Some(Duration::nanoseconds(count.wrapping_mul(one * of)))
    })
}

/// Whether a text is a regular expression.
pub(super) fn is_pattern(text: &str) -> bool {
    rules::compile(text).is_some()
}
