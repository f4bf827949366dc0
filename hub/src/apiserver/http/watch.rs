//! Watches: frames as they come, until they end or must.

use super::limit::Ticket;
use super::negotiate::Shape;
use super::respond::{Body, Reply};
use super::router::{Asked, Router, attributes};
use crate::apiserver::agents;
use crate::apiserver::caller::Caller;
use crate::apiserver::catalogue::Resource;
use crate::apiserver::registry::{FrameKind, WatchFrame, WatchStream};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch::Receiver;
use tokio::time::{Duration, Instant, sleep_until};

/// Objects from this size on are shared between watchers rather than copied for each.
const SHARE_FROM: usize = 8 * 1024;
/// A watch without another end.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// The answer to a watch: its head at once, its frames as they come.
pub(super) fn answer(
    frames: WatchStream,
    end: impl Future<Output = ()> + Send + 'static,
    reply: Reply,
    resource: Arc<Resource>,
    ticket: Option<Ticket>,
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
        let frame = shape(frame, &reply, &resource, &mut headers_wanted);
        stream::iter(
            encode(frame)
                .into_iter()
                .map(|piece| Ok::<_, Infallible>(Frame::data(piece))),
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
    /// Ends when a watch must: the server stops, the kind is no longer what it was, an agent's
    /// certificate ends or its rights are gone.
    pub(super) fn end_of_watch(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        resource: &Arc<Resource>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let parts = self.parts();
        let shutdown = parts.shutdown.clone();
        let kind = kind_changed(parts.catalogue.clone(), resource.clone());
        let rights = rights_gone(
            agents::is_agent(caller).then(|| parts.authorizer.changes()),
            {
                let (authorizer, caller) = (parts.authorizer.clone(), caller.clone());
                let attributes = attributes(asked.info);
                move || !authorizer.decide(&caller, &attributes).allowed
            },
        );
        let left = match asked.peer.ends() {
            Some(end) if agents::is_agent(caller) => (end - parts.clock.now()).to_std(),
            _ => Ok(FAR),
        };
        let expiry = Instant::now() + left.unwrap_or_default().min(FAR);
        async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = kind => {}
                () = rights => {}
                () = sleep_until(expiry) => {}
            }
        }
    }
}

async fn kind_changed(catalogue: crate::apiserver::catalogue::Catalogue, was: Arc<Resource>) {
    if !was.is_custom() {
        return std::future::pending().await;
    }
    let mut changes = catalogue.changes();
    loop {
        let now = catalogue.resource(&was.group, &was.version, &was.plural);
        if now.is_none_or(|now| !Arc::ptr_eq(&now, &was)) {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn rights_gone(changes: Option<Receiver<u64>>, gone: impl Fn() -> bool) {
    let Some(mut changes) = changes else {
        return std::future::pending().await;
    };
    while changes.changed().await.is_ok() {
        if gone() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
