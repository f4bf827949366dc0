//! What comes out of a tunnel, as long as it may: an answer that breaks off never looks like one that ends.

use super::super::respond::Body;
use super::super::sending::Cut;
use super::super::standing::Standing;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An answer of a member: cut short once whoever asked may no longer have it. `with` is dropped with it.
pub(in crate::apiserver::http) fn lasting(
    body: Incoming,
    standing: Option<Arc<Standing>>,
    with: impl Send + 'static,
) -> Body {
    Lasting {
        body,
        over: over(standing),
        _with: with,
    }
    .boxed_unsync()
}

/// Ends when whoever asked would no longer be allowed to.
pub(super) fn over(standing: Option<Arc<Standing>>) -> BoxFuture<'static, ()> {
    match standing {
        Some(standing) => standing.ended().boxed(),
        None => pending().boxed(),
    }
}

struct Lasting<T> {
    body: Incoming,
    over: BoxFuture<'static, ()>,
    _with: T,
}

// Nothing in it is pinned in place.
impl<T> Unpin for Lasting<T> {}

impl<T> hyper::body::Body for Lasting<T> {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.over.poll_unpin(context).is_ready() {
            self.over = pending().boxed();
            return Poll::Ready(Some(Err(Cut)));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.map_err(|_| Cut)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
