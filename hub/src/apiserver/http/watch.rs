//! Watches: frames as they come, until they end or must.

use super::negotiate::Shape;
use super::respond::{Body, Reply};
use super::router::Router;
use crate::access::Cut;
use crate::apiserver::registry::{FrameKind, WatchFrame, WatchStream};
use crate::apiserver::scheme::Resource;
use crate::limit::Ticket;
use bytes::{Bytes, BytesMut};
use common::time::SharedClock;
use futures::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use std::sync::Arc;

/// Objects from this size on are shared between watchers rather than copied for each.
const SHARE_FROM: usize = 8 * 1024;

/// The answer to a watch: its head at once, its frames as they come.
pub(super) fn answer(
    frames: WatchStream,
    end: impl Future<Output = ()> + Send + 'static,
    reply: Reply,
    resource: Arc<Resource>,
    ticket: Option<Ticket>,
    clock: SharedClock,
) -> Response<Body> {
    let mut headers_wanted = true;
    // No event can be shown as a list: the first one ends the watch.
    let as_list = matches!(reply.accepted.shape, Shape::PartialList(_));
    let frames = frames.take_until(Box::pin(end));
    let frames = frames
        .take_while(move |frame| std::future::ready(!as_list || frame.kind == FrameKind::Error));
    let pieces = frames.flat_map(move |frame| {
        // It is counted until its stream is dropped.
        let _counted = &ticket;
        // Ages are those of the moment, however long ago the watch began.
        let reply = Reply {
            now: clock.now(),
            ..reply
        };
        let frame = shape(frame, &reply, &resource, &mut headers_wanted);
        stream::iter(
            encode(frame)
                .into_iter()
                .map(|piece| Ok::<_, Cut>(Frame::data(piece))),
        )
    });
    let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn shape(frame: WatchFrame, reply: &Reply, resource: &Resource, headers: &mut bool) -> WatchFrame {
    if reply.accepted.shape == Shape::Object || frame.kind == FrameKind::Error {
        return frame;
    }
    let object = match reply.accepted.shape {
        Shape::Partial(_) => reply.read(&frame.object),
        _ => serde_json::from_slice::<Value>(&frame.object).ok(),
    };
    let Some(object) = object else {
        return frame;
    };
    let shaped = reply.shaped(object, resource, std::mem::take(headers));
    WatchFrame {
        object: shaped.to_string().into(),
        ..frame
    }
}

/// One line of a watch.
fn encode(frame: WatchFrame) -> Vec<Bytes> {
    let head: &'static [u8] = match frame.kind {
        FrameKind::Added => br#"{"type":"ADDED","object":"#,
        FrameKind::Modified => br#"{"type":"MODIFIED","object":"#,
        FrameKind::Deleted => br#"{"type":"DELETED","object":"#,
        FrameKind::Bookmark => br#"{"type":"BOOKMARK","object":"#,
        FrameKind::Error => br#"{"type":"ERROR","object":"#,
    };
    let tail: &'static [u8] = b"}\n";
    if frame.object.len() >= SHARE_FROM {
        return vec![
            Bytes::from_static(head),
            frame.object,
            Bytes::from_static(tail),
        ];
    }
    let mut line = BytesMut::with_capacity(head.len() + frame.object.len() + tail.len());
    line.extend_from_slice(head);
    line.extend_from_slice(&frame.object);
    line.extend_from_slice(tail);
    vec![line.freeze()]
}

impl Router {
    /// Ends when a watch must, whoever watches: the server stops, or the kind is no longer what it was.
    pub(super) fn end_of_watch(
        &self,
        resource: &Arc<Resource>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let parts = self.parts();
        let shutdown = parts.shutdown.clone();
        let kind = kind_changed(parts.scheme.clone(), resource.clone());
        async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = kind => {}
            }
        }
    }
}

async fn kind_changed(scheme: crate::apiserver::scheme::Scheme, was: Arc<Resource>) {
    if !was.is_custom() {
        return std::future::pending().await;
    }
    let mut changes = scheme.changes();
    loop {
        let now = scheme.resource(&was.group, &was.version, &was.plural);
        if now.is_none_or(|now| !Arc::ptr_eq(&now, &was)) {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ages_are_those_of_the_moment() {
        use common::time::{Clock as _, SimClock};
        let began = chrono::DateTime::UNIX_EPOCH;
        let clock = SimClock::starting_at(began);
        let resource = crate::apiserver::scheme::Scheme::new()
            .resource("", "v1", "configmaps")
            .expect("a kind");
        let made = clock.clone();
        let frames = stream::once(async move {
            tokio::time::sleep(std::time::Duration::from_secs(600)).await;
            let object =
                serde_json::json!({"metadata": {"name": "a", "creationTimestamp": made.now()}});
            WatchFrame {
                kind: FrameKind::Added,
                object: object.to_string().into(),
            }
        });
        let mut reply = Reply {
            now: began,
            ..Reply::default()
        };
        reply.accepted.shape = Shape::Table("v1");
        let end = std::future::pending();
        let clock = Arc::new(clock);
        let response = answer(Box::pin(frames), end, reply, resource, None, clock);
        let body = response.into_body().collect().await.expect("a body");
        let event: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
        assert_eq!(
            event["object"]["rows"][0]["cells"],
            serde_json::json!(["a", 0, "0s"])
        );
    }

    #[test]
    fn small_frames_are_one_piece_and_large_ones_share_their_object() {
        let frame = |object: &str| WatchFrame {
            kind: FrameKind::Added,
            object: Bytes::from(object.to_owned()),
        };
        let small = encode(frame("{}"));
        assert_eq!(small, ["{\"type\":\"ADDED\",\"object\":{}}\n"]);
        let large = encode(frame(&"x".repeat(SHARE_FROM)));
        assert_eq!(large.len(), 3);
    }
}
