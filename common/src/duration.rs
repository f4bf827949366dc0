//! Durations as Go writes them (`40s`, `1m30s`, `500ms`), for flags, help texts and messages.

use std::fmt::Write as _;
use std::time::Duration;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    /// Nothing at all.
    #[error("a duration must not be empty; write for example 40s or 1m30s")]
    Empty,
    /// Below zero.
    #[error("duration {0:?} must not be negative")]
    Negative(String),
    /// Not a number followed by a unit.
    #[error("duration {0:?} must be numbers with units (h, m, s, ms, us, ns), for example 1m30s")]
    Syntax(String),
    /// More than can be held.
    #[error("duration {0:?} is too long")]
    TooLong(String),
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration; usable as a clap value parser.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let whole = text;
    if text.is_empty() {
        return Err(InvalidDuration::Empty);
    }
    if text.starts_with('-') {
        return Err(InvalidDuration::Negative(whole.to_owned()));
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let syntax = || InvalidDuration::Syntax(whole.to_owned());
    let too_long = || InvalidDuration::TooLong(whole.to_owned());
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(syntax)?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, nanos) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(syntax)?;
        let part = scaled(number, *nanos).ok_or_else(syntax)?;
        let part = u64::try_from(part).map_err(|_| too_long())?;
        total = total.checked_add(part).ok_or_else(too_long)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(total))
}

/// `number` × `nanos`, where `number` may have a fraction; `None` when it is no number.
fn scaled(number: &str, nanos: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 20 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // More than 18 digits are below a nanosecond for every unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let mut total = whole.checked_mul(u128::from(nanos))?;
    let mut scale = 1_u128;
    let mut digits = 0_u128;
    for digit in fraction.bytes() {
        digits = digits * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    total += digits * u128::from(nanos) / scale;
    Some(total)
}

/// Formats a duration so that [`parse`] reads it back: `1m30s`, `500ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let mut out = String::new();
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let parts = [
        (hours, "h"),
        (minutes, "m"),
        (seconds, "s"),
        (u64::from(duration.subsec_millis()), "ms"),
        (u64::from(duration.subsec_micros() % 1_000), "us"),
        (u64::from(duration.subsec_nanos() % 1_000), "ns"),
    ];
    for (value, unit) in parts {
        if value > 0 {
            // Writing to a String cannot fail.
            let _ = write!(out, "{value}{unit}");
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read() {
        let cases = [
            ("40s", Duration::from_secs(40)),
            ("1m30s", Duration::from_secs(90)),
            ("500ms", Duration::from_millis(500)),
            ("1.5h", Duration::from_secs(5400)),
            (".5s", Duration::from_millis(500)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("24h", Duration::from_secs(86_400)),
            ("1us", Duration::from_micros(1)),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn junk_is_refused() {
        for text in [
            "",
            "40",
            "s",
            "-1s",
            "1x",
            "1s2",
            "1..2s",
            ".s",
            "9999999999999h",
            "1 s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formatting_is_short() {
        assert_eq!(format(Duration::from_secs(90)), "1m30s");
        assert_eq!(format(Duration::from_millis(1_500)), "1s500ms");
        assert_eq!(format(Duration::from_secs(86_400)), "24h");
        assert_eq!(format(Duration::ZERO), "0s");
    }

    proptest! {
        #[test]
        fn formatted_reads_back(nanos in 0..=u64::MAX) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
