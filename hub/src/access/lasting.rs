//! What comes out of a tunnel, as long as it may: an answer that breaks off never looks like one that ends.

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming, SizeHint};
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Cut>;

/// Ends when whoever asked would no longer be allowed to.
pub type Over = BoxFuture<'static, ()>;

/// An answer that is cut short.
#[derive(Debug, thiserror::Error)]
#[error("the answer is cut short")]
pub struct Cut;

/// An answer of a member: cut short once whoever asked may no longer have it. `with` is dropped with it.
pub(super) fn lasting(body: Incoming, over: Over, with: impl Send + 'static) -> Body {
    Lasting {
        body,
        over,
        _with: with,
    }
    .boxed_unsync()
}

struct Lasting<T> {
    body: Incoming,
    over: Over,
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
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // Headers that come after the body are headers that nobody has looked through.
        let frame = frame.filter(|frame| frame.as_ref().map_or(true, Frame::is_data));
        Poll::Ready(frame.map(|frame| frame.map_err(|_| Cut)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
