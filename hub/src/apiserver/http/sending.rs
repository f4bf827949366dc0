//! Answers while they are sent: in pieces, each with what is held for the answer until it has left, and cut
//! short when whoever asked may no longer have it.

use super::respond::Body;
use crate::access::Cut;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How much of an answer is handed to the connection at once: so much of it may lie there although the client
/// takes nothing.
const PIECE: usize = 64 * 1024;
/// How long a client may take for an answer, and for how much more of it a second more.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
const BYTES_A_SECOND: u64 = 8 * 1024;

/// A body, and what is kept until it has left the server or nobody wants it any more.
pub(crate) fn kept(body: Body, with: impl Send + Sync + 'static) -> Body {
    Sending {
        body,
        rest: Bytes::new(),
        kept: Some(Arc::new(with)),
        holds: None,
    }
    .boxed_unsync()
}

/// A body that is cut short once `holds` says no; asked before each piece.
pub(super) fn while_holds(body: Body, holds: impl Fn() -> bool + Send + 'static) -> Body {
    Sending {
        body,
        rest: Bytes::new(),
        kept: None,
        holds: Some(Box::new(holds)),
    }
    .boxed_unsync()
}

/// Whether an answer of this size is handed over at once, and is not worth a second look.
pub(super) fn is_one_piece(size: &SizeHint) -> bool {
    size.exact().is_some_and(|size| size <= PIECE as u64)
}

struct Sending {
    body: Body,
    /// What of the body was read and is not handed over.
    rest: Bytes,
    kept: Option<Arc<dyn Send + Sync>>,
    holds: Option<Box<dyn Fn() -> bool + Send>>,
}

/// A piece, and what is kept as long as it is somewhere.
struct Held {
    piece: Bytes,
    _kept: Arc<dyn Send + Sync>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        if self.holds.as_ref().is_some_and(|holds| !holds()) {
            return Poll::Ready(Some(Err(Cut)));
        }
        let size = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(size);
        let piece = match &self.kept {
            Some(kept) => Bytes::from_owner(Held {
                piece,
                _kept: kept.clone(),
            }),
            None => piece,
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut size = SizeHint::new();
        if let Some(upper) = body.upper() {
            size.set_upper(upper + rest);
        }
        size.set_lower(body.lower() + rest);
        size
    }
}

/// The answers of one connection that have not left it, and by when they must.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    open: Mutex<Open>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    ends: BTreeSet<(Instant, u64)>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Leaving {
    of: Arc<Unsent>,
    key: (Instant, u64),
}

impl Unsent {
    /// An answer of a size that begins to leave now.
    pub(super) fn begin(self: &Arc<Self>, size: u64) -> Leaving {
        let more = Duration::from_secs(size / BYTES_A_SECOND);
        let key = {
            let mut open = self.lock();
            open.next += 1;
            let key = (Instant::now() + TAKEN_WITHIN + more, open.next);
            open.ends.insert(key);
            key
        };
        self.added.notify_one();
        Leaving {
            of: self.clone(),
            key,
        }
    }

    /// Ends when an answer has not left in its time.
    pub(super) async fn overdue(&self) {
        loop {
            let first = self.lock().ends.first().map(|(end, _)| *end);
            let Some(end) = first else {
                self.added.notified().await;
                continue;
            };
            let now = Instant::now();
            if end <= now {
                return;
            }
            // One that ends earlier may come meanwhile; it has at least this long.
            sleep_until(end.min(now + TAKEN_WITHIN)).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.of.lock().ends.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::respond::whole;
    use super::*;
    use hyper::body::Body as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_is_kept_stays_with_the_last_piece() {
        let kept_here = Arc::new(());
        let body = whole(vec![b'x'; 2 * PIECE + 1]);
        let mut body = kept(body, kept_here.clone());
        assert_eq!(body.size_hint().exact(), Some(2 * PIECE as u64 + 1));
        let mut sizes = Vec::new();
        let mut last = Bytes::new();
        while let Some(frame) = body.frame().await {
            last = frame.expect("sent").into_data().expect("data");
            sizes.push(last.len());
        }
        assert_eq!(sizes, [PIECE, PIECE, 1]);
        assert!(body.is_end_stream());
        drop(body);
        assert_eq!(Arc::strong_count(&kept_here), 2, "the last piece is here");
        drop(last);
        assert_eq!(Arc::strong_count(&kept_here), 1);
    }

    #[tokio::test]
    async fn an_answer_ends_between_two_pieces() {
        let may = Arc::new(AtomicBool::new(true));
        let asked = may.clone();
        let body = whole(vec![b'x'; PIECE + 1]);
        let mut body = while_holds(body, move || asked.load(Ordering::Relaxed));
        assert!(body.frame().await.expect("a piece").is_ok());
        may.store(false, Ordering::Relaxed);
        assert!(body.frame().await.expect("an end").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_half_a_minute_and_more_when_it_is_long() {
        let unsent = Arc::new(Unsent::default());
        let hour = Duration::from_secs(3600);
        assert!(timeout(hour, unsent.overdue()).await.is_err());
        let began = Instant::now();
        let long = unsent.begin(BYTES_A_SECOND * 3600);
        // One that leaves in time moves nothing.
        drop(unsent.begin(10));
        let short = unsent.begin(10);
        unsent.overdue().await;
        assert_eq!(began.elapsed().as_secs(), TAKEN_WITHIN.as_secs());
        drop(short);
        unsent.overdue().await;
        assert_eq!(began.elapsed(), TAKEN_WITHIN + hour);
        drop(long);
        assert!(timeout(hour, unsent.overdue()).await.is_err());
    }
}
