//! How an agent shows between two renewals of its Lease that it lives: it patches the Lease without changing anything,
//! and says in a header after which time it does so again.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// Milliseconds, in decimal, until the next sign of life at the latest, if all goes well; 0 where none follows.
pub const HEADER: HeaderName = HeaderName::from_static("towline-liveness-interval");

/// The least time between two signs.
pub const LEAST: Duration = Duration::from_millis(500);

/// The header's value.
pub fn value(next: Duration) -> HeaderValue {
    u64::try_from(next.as_millis()).unwrap_or(u64::MAX).into()
}

/// What the header of a request says; none without it, or where it is no number.
pub fn read(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read() {
        let read_of = |value: HeaderValue| read(&HeaderMap::from_iter([(HEADER, value)]));
        for next in [Duration::ZERO, LEAST, Duration::from_secs(3600)] {
            assert_eq!(read_of(value(next)), Some(next));
        }
        for bad in ["", "x", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(read_of(HeaderValue::from_static(bad)), None, "{bad}");
        }
        assert_eq!(read(&HeaderMap::new()), None);
    }
}
