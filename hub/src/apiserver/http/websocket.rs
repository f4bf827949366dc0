//! Watches over WebSocket (RFC 6455): each event is a message of text. Browsers and some Java clients
//! watch in no other way.

use super::respond::{self, Body};
use crate::access::Upgrade;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    AUTHORIZATION, CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// What a protocol begins with that is a token: a browser can set no other header.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// What the answer to a key is made with, RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a message from the client, of which nothing is read.
const RECEIVED_MAX: usize = 16 * 1024;
/// How long a client may take nothing before its watch ends.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Whether a request asks for a WebSocket.
pub(super) fn is_asked(method: &Method, headers: &HeaderMap) -> bool {
    let is = |value: &str, wanted: &str| value.trim().eq_ignore_ascii_case(wanted);
    *method == Method::GET
        && is(text(headers, &UPGRADE), "websocket")
        && text(headers, &CONNECTION)
            .split(',')
            .any(|one| is(one, "upgrade"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let all = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let all = all.filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .collect()
}

/// Makes a token among the protocols the one that a request bears. The error is that of a token which
/// cannot be read, stands twice, or has no protocol beside it that could be answered.
pub(super) fn bear_token(headers: &mut HeaderMap) -> Result<(), ()> {
    if headers.contains_key(AUTHORIZATION) {
        return Ok(());
    }
    let all = protocols(headers);
    let (tokens, rest): (Vec<&str>, Vec<&str>) = all.iter().partition(|one| one.starts_with(TOKEN));
    let token = match tokens.as_slice() {
        [] => return Ok(()),
        [token] if !rest.is_empty() => token.trim_start_matches(TOKEN),
        _ => return Err(()),
    };
    let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| ())?;
    let token = String::from_utf8(token).map_err(|_| ())?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ())?;
    let rest = HeaderValue::from_str(&rest.join(", ")).map_err(|_| ())?;
    headers.insert(AUTHORIZATION, bearer);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    Ok(())
}

/// The answer to a watch, over a WebSocket if the handshake is one. A browser always says for which site it
/// asks; who does not say so is refused, as by kube-apiserver.
pub(super) fn switched(
    watch: Response<Body>,
    headers: &HeaderMap,
    upgrade: Option<Upgrade>,
) -> Response<Body> {
    if watch.status() != StatusCode::OK {
        return watch;
    }
    let bad = |why: &'static str| respond::bare(StatusCode::BAD_REQUEST, why);
    if text(headers, &SEC_WEBSOCKET_VERSION) != "13" {
        let mut response = bad("missing or bad WebSocket Version");
        let version = HeaderValue::from_static("13");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_VERSION, version);
        return response;
    }
    if matches!(text(headers, &ORIGIN), "" | "null") {
        return respond::bare(StatusCode::FORBIDDEN, "");
    }
    let key = text(headers, &SEC_WEBSOCKET_KEY);
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    let protocols = protocols(headers);
    let (true, [] | [_], Some(upgrade)) = (is_key, protocols.as_slice(), upgrade) else {
        return bad("this is no WebSocket handshake: one key, one protocol at most, HTTP/1.1");
    };
    let mut response = Response::new(respond::whole(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let said = response.headers_mut();
    said.insert(UPGRADE, HeaderValue::from_static("websocket"));
    said.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    for (name, value) in [
        (SEC_WEBSOCKET_ACCEPT, Some(answer_to(key))),
        (
            SEC_WEBSOCKET_PROTOCOL,
            protocols.first().map(|one| (*one).to_owned()),
        ),
    ] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            said.insert(name, value);
        }
    }
    let events = watch.into_body();
    let end = upgrade.taken_over.end;
    upgrade.taken_over.tasks.spawn(async move {
        let sent = async {
            match upgrade.connection.await {
                Ok(connection) => send(events, TokioIo::new(connection)).await,
                Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
            }
        };
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = sent => {}
        }
    });
    response
}

fn answer_to(key: &str) -> String {
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(GUID);
    STANDARD.encode(digest.finish().as_ref())
}

/// Sends the events of a watch until it ends, the client goes, or takes nothing more.
async fn send(mut events: Body, connection: TokioIo<hyper::upgrade::Upgraded>) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(RECEIVED_MAX))
        .max_frame_size(Some(RECEIVED_MAX));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut sink, mut received) = socket.split();
    let mut event = BytesMut::new();
    loop {
        let piece = tokio::select! {
            biased;
            said = received.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // A client has nothing to say; what keeps the connection alive is answered below here.
                Some(Ok(_)) => {
                    if sink.flush().await.is_err() {
                        return;
                    }
                    continue;
                }
            },
            frame = events.frame() => frame,
        };
        let Some(Ok(piece)) = piece else {
            break;
        };
        event.extend_from_slice(&piece.into_data().unwrap_or_default());
        // Each event is a line, in one piece or in several.
        if event.ends_with(b"\n") {
            let Ok(line) = Utf8Bytes::try_from(event.split().freeze()) else {
                break;
            };
            let sent = timeout(TAKEN_WITHIN, sink.send(Message::Text(line))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    }
    let _ = timeout(TAKEN_WITHIN, sink.close()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a value")));
        pairs.collect()
    }

    #[test]
    fn a_handshake_is_known_by_both_of_its_headers() {
        let both = |connection: &str, upgrade: &str| {
            let headers = headers(&[(CONNECTION, connection), (UPGRADE, upgrade)]);
            is_asked(&Method::GET, &headers)
        };
        assert!(both("Upgrade", "websocket") && both("keep-alive, upgrade", "WebSocket"));
        assert!(!both("keep-alive", "websocket") && !both("Upgrade", "h2c"));
        assert_eq!(
            answer_to("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_token_among_the_protocols_is_borne() {
        let token = format!("{TOKEN}{}", URL_SAFE_NO_PAD.encode("secret"));
        let borne = |protocols: &str| {
            let mut headers = headers(&[(SEC_WEBSOCKET_PROTOCOL, protocols)]);
            bear_token(&mut headers).map(|()| {
                let of = |name: &HeaderName| text(&headers, name).to_owned();
                (of(&AUTHORIZATION), of(&SEC_WEBSOCKET_PROTOCOL))
            })
        };
        let fine = |bearer: &str, rest: &str| Ok((bearer.to_owned(), rest.to_owned()));
        assert_eq!(borne("a, b"), fine("", "a, b"));
        assert_eq!(borne(&format!("{token}, b")), fine("Bearer secret", "b"));
        for wrong in [
            token.clone(),
            format!("{token}, {token}, b"),
            format!("{TOKEN}%, b"),
        ] {
            assert_eq!(borne(&wrong), Err(()), "{wrong}");
        }
    }

    #[tokio::test]
    async fn what_is_no_handshake_gets_an_answer() {
        let good = [
            (SEC_WEBSOCKET_VERSION, "13"),
            (ORIGIN, "https://hub.example"),
            (SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
            (SEC_WEBSOCKET_PROTOCOL, "a"),
        ];
        for (name, value, code) in [
            (SEC_WEBSOCKET_VERSION, "12", 400),
            (ORIGIN, "null", 403),
            (SEC_WEBSOCKET_KEY, "short", 400),
            (SEC_WEBSOCKET_PROTOCOL, "a, b", 400),
            // It cannot be taken over.
            (SEC_WEBSOCKET_PROTOCOL, "a", 400),
        ] {
            let mut headers = headers(&good);
            headers.insert(name, HeaderValue::from_str(value).expect("a value"));
            let watch = Response::new(respond::whole(Bytes::new()));
            assert_eq!(switched(watch, &headers, None).status(), code, "{value}");
        }
    }
}
