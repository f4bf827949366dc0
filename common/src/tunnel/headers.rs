//! The headers of a tunnel's requests, and which of a client's and of a member's are passed on: those that are listed
//! here. Everything else ends where it came from, the caller's credentials first.

use http::HeaderMap;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING,
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, EXPIRES, HeaderName, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, USER_AGENT, VARY, WARNING,
    X_CONTENT_TYPE_OPTIONS,
};
use std::fmt;

/// Who asks, as the member is to call them; once.
pub const USER: &str = "towline-user";
/// A group of theirs; any number of times.
pub const GROUP: &str = "towline-group";
/// The id of the request in the audit log of the hub and in the log of the agent. Never the client's own.
pub const STREAM: &str = "towline-stream";
/// The method of a request whose connection is to be taken over: the tunnel's is CONNECT.
pub const METHOD: &str = "towline-method";
/// Which protocol a connection was taken over for, as the member's API server writes it, such as `SPDY/3.1`.
pub const UPGRADE: &str = "towline-upgrade";

/// How the tunnel stands, from the hub to whoever asked through it: [`Stands`].
pub const TUNNEL: &str = "towline-tunnel";

/// As whom users of the hub come into the member, from the agent to whoever asked: [`super::Comes`].
pub const COMES: &str = "towline-comes-as";

/// How a tunnel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stands {
    /// For how long.
    pub seconds: u64,
    /// Requests under way in it, the one that asks among them.
    pub streams: u64,
}

impl fmt::Display for Stands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seconds={}, streams={}", self.seconds, self.streams)
    }
}

impl Stands {
    /// Reads the header.
    pub fn read(text: &str) -> Option<Self> {
        let (seconds, streams) = text.split_once(", ")?;
        Some(Self {
            seconds: seconds.strip_prefix("seconds=")?.parse().ok()?,
            streams: streams.strip_prefix("streams=")?.parse().ok()?,
        })
    }
}

/// Of a client.
const ASKED: [HeaderName; 15] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    RANGE,
    USER_AGENT,
    HeaderName::from_static("audit-id"),
    HeaderName::from_static("kubectl-command"),
    HeaderName::from_static("kubectl-session"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-stream-protocol-version"),
];
/// Of a client whose connection is to be taken over, beside those.
const TAKING_OVER: [HeaderName; 3] = [
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION,
];
/// Of a member.
const ANSWERED: [HeaderName; 23] = [
    ACCEPT_RANGES,
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    DATE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    RETRY_AFTER,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_PROTOCOL,
    VARY,
    WARNING,
    X_CONTENT_TYPE_OPTIONS,
    HeaderName::from_static("x-stream-protocol-version"),
    HeaderName::from_static("x-accepted-stream-protocol-versions"),
    HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
    HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
    HeaderName::from_static(UPGRADE),
    HeaderName::from_static(COMES),
];

/// What of a client's headers the member may see.
pub fn asked(from: &HeaderMap, takes_over: bool) -> HeaderMap {
    let more = TAKING_OVER.iter().filter(|_| takes_over);
    picked(from, ASKED.iter().chain(more))
}

/// What of a member's headers the client may see.
pub fn answered(from: &HeaderMap) -> HeaderMap {
    picked(from, ANSWERED.iter())
}

fn picked<'a>(from: &HeaderMap, names: impl Iterator<Item = &'a HeaderName>) -> HeaderMap {
    let mut picked = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            picked.append(name, value.clone());
        }
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn all(names: &[&'static str]) -> HeaderMap {
        let one = |name: &&'static str| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static("x"))
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn how_a_tunnel_stands_is_read_as_it_was_written() {
        let stands = Stands {
            seconds: 7,
            streams: 3,
        };
        assert_eq!(Stands::read(&stands.to_string()), Some(stands));
        for bad in [
            "",
            "seconds=1",
            "seconds=x, streams=1",
            "streams=1, seconds=1",
        ] {
            assert_eq!(Stands::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_what_is_listed_is_passed_on() {
        let sent = all(&[
            "accept",
            "authorization",
            "cookie",
            "connection",
            "impersonate-user",
            "impersonate-extra-x",
            "x-remote-user",
            "x-forwarded-for",
            "origin",
            "te",
            "transfer-encoding",
            "sec-websocket-key",
            USER,
            GROUP,
            STREAM,
            METHOD,
            UPGRADE,
        ]);
        assert_eq!(asked(&sent, false), all(&["accept"]));
        assert_eq!(asked(&sent, true), all(&["accept", "sec-websocket-key"]));
        let came = all(&[
            "content-type",
            "set-cookie",
            "location",
            "www-authenticate",
            "access-control-allow-origin",
            "audit-id",
            "connection",
            TUNNEL,
            USER,
            COMES,
        ]);
        assert_eq!(answered(&came), all(&["content-type", COMES]));
    }
}
