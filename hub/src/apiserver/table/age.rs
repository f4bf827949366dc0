//! How long something took, or how long ago it was, for people.

use chrono::{DateTime, Utc};

/// How long ago a time was.
pub(super) fn since(time: &str, now: DateTime<Utc>) -> String {
    match DateTime::parse_from_rfc3339(time) {
        Ok(then) => shown((now - then.to_utc()).num_milliseconds()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// How long it is from one time to another; empty if there is no such time.
pub(super) fn between(from: &str, to: &str) -> String {
    let times = (
        DateTime::parse_from_rfc3339(from),
        DateTime::parse_from_rfc3339(to),
    );
    match times {
        (Ok(from), Ok(to)) => shown((to - from).num_milliseconds()),
        _ => String::new(),
    }
}

fn pair(large: i64, unit: char, small: i64, part: char) -> String {
    if small == 0 {
        format!("{large}{unit}")
    } else {
        format!("{large}{unit}{small}{part}")
    }
}

/// Two or three figures are enough. Clocks may differ by a second.
pub(crate) fn shown(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_or_three_figures() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(shown(seconds * 1000), text, "{seconds}");
        }
    }
}
