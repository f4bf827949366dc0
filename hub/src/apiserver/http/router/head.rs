//! The head of a request: what is asked, in which form the answer is wanted, and how long it may take.

use super::super::connection::Connection;
use super::super::negotiate::{self, Accepted};
use super::super::respond::{self, Body, Reply};
use super::super::websocket;
use super::header;
use crate::access::Upgrade;
use crate::apiserver::backup;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Malformed, Query, RequestInfo};
use crate::apiserver::table::IncludeObject;
use crate::go::quote;
use chrono::{DateTime, Utc};
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Method, Response, Uri};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time of a request that is no watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The head of a request, read.
pub(super) struct Head {
    /// When it was there.
    pub(super) began: Instant,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    pub(super) info: RequestInfo,
    /// Where it came from; none within the process.
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) reply: Reply,
    /// The same for what is no object: never a table.
    pub(super) plain: Reply,
    /// Whether anything that is accepted can be written.
    pub(super) acceptable: bool,
    /// How long it may take until the answer begins; a watch goes on to a deadline of its own.
    pub(super) limit: Duration,
    pub(super) socket: Option<Socket>,
    /// The connection, if it can be taken over.
    pub(super) upgrade: Option<Upgrade>,
    /// As it was sent.
    pub(super) uri: Uri,
}

/// A WebSocket that is wanted.
pub(super) struct Socket {
    /// Whether the token among its protocols is one, or there is none.
    pub(super) token: Result<(), ()>,
}

impl Head {
    /// Reads a head; what cannot be asked is answered at once.
    pub(super) fn read(head: Parts, now: DateTime<Utc>) -> Result<Self, Response<Body>> {
        let began = Instant::now();
        let (method, mut headers, mut extensions) = (head.method, head.headers, head.extensions);
        let upgrade = Upgrade::take(&mut extensions);
        let socket = websocket::is_asked(&method, &headers).then(|| Socket {
            token: websocket::bear_token(&mut headers),
        });
        let connection = extensions.remove::<Arc<Connection>>();
        let query = Query::read(head.uri.query());
        let user_agent = header(&headers, USER_AGENT);
        let accepted = negotiate::accepted(header(&headers, ACCEPT), &query, user_agent);
        let reply = Reply {
            accepted: accepted.unwrap_or_default(),
            include: IncludeObject::default(),
            gzip: header(&headers, ACCEPT_ENCODING).contains("gzip"),
            now,
        };
        let plain = Reply {
            accepted: Accepted {
                shape: Default::default(),
                ..reply.accepted
            },
            ..reply
        };
        let path = head.uri.path();
        let info = RequestInfo::read(&method, path, &query);
        let info = info.map_err(|why| no_path(&plain, path, why))?;
        let limit = limit(&info, &query).map_err(|error| plain.error(&error))?;
        Ok(Self {
            began,
            method,
            headers,
            query,
            info,
            connection,
            reply,
            plain,
            acceptable: accepted.is_some(),
            limit,
            socket,
            upgrade,
            uri: head.uri,
        })
    }

    /// Where the request came from, as far as that is known.
    pub(super) fn source(&self) -> Option<IpAddr> {
        let connection = self.connection.as_ref();
        connection.map(|connection| connection.address)
    }
}

/// The answer to a path that nothing can have.
fn no_path(plain: &Reply, path: &str, why: Malformed) -> Response<Body> {
    match why {
        Malformed::Dots(name) => plain.error(&ApiError::bad_request(format!(
            "Name parameter invalid: \"{name}\": may not be '{name}'"
        ))),
        Malformed::DotsBefore(key) => plain.error(&ApiError::plain(
            500,
            "",
            format!("invalid key: {}", quote(&key)),
        )),
        Malformed::Other if path.starts_with("/api/") => plain.error(&ApiError::no_such_path()),
        Malformed::Other => respond::not_found(),
    }
}

/// How long a request may take until its answer begins.
fn limit(info: &RequestInfo, query: &Query) -> Result<Duration, ApiError> {
    match negotiate::deadline(query) {
        Ok(_) if info.path == backup::PAGE => Ok(backup::WITHIN),
        Ok(limit) if info.verb != "watch" => Ok(limit.min(REQUEST_TIMEOUT)),
        Err(error) if info.verb != "watch" => Err(error),
        _ => Ok(REQUEST_TIMEOUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn read(uri: &str) -> Result<Head, u16> {
        let request = Request::get(uri).body(()).expect("a request");
        let (head, ()) = request.into_parts();
        Head::read(head, DateTime::UNIX_EPOCH).map_err(|answer| answer.status().as_u16())
    }

    #[test]
    fn a_request_may_take_a_minute_and_less_if_it_says_so() {
        for (uri, seconds) in [
            ("/api/v1/pods", 60),
            ("/api/v1/pods?timeout=5s", 5),
            ("/api/v1/pods?timeout=1h", 60),
            ("/api/v1/pods?timeout=0s", 60),
            ("/api/v1/pods?watch=1&timeout=5s", 60),
            ("/api/v1/pods?watch=1&timeout=x", 60),
            ("/version?timeout=1s", 1),
            (backup::PAGE, 3600),
        ] {
            let head = read(uri).unwrap_or_else(|code| panic!("{uri}: {code}"));
            assert_eq!(head.limit, Duration::from_secs(seconds), "{uri}");
        }
        assert_eq!(read("/api/v1/pods?timeout=x").err(), Some(400));
    }

    #[test]
    fn what_no_path_can_be_is_answered_at_once() {
        for (uri, code) in [
            ("/api/v1/namespaces/default/pods/..", 400),
            ("/api/v1/namespaces/../pods/a", 500),
            ("/api//pods", 404),
            ("/a%00b", 404),
        ] {
            assert_eq!(read(uri).err(), Some(code), "{uri}");
        }
    }
}
