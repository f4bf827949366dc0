//! What is under way for users of the hub, so that it ends when the member's owner lets one of them in no more.

use super::account::Account;
use super::listed::{Listed, Whom};
use bytes::Bytes;
use common::lock::lock;
use common::tunnel::Identity;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::BoxError;

/// How often it is asked whether whoever has something under way is still let in.
const EVERY: Duration = Duration::from_secs(15);

/// Requests by number, with their users.
#[derive(Debug, Default)]
pub(super) struct Open {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    next: u64,
    of: BTreeMap<u64, (Identity, Whom, CancellationToken)>,
}

/// One that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream {
    open: Arc<Open>,
    number: u64,
    over: CancellationToken,
}

impl Open {
    /// One more for a user, who is somebody in the member.
    pub(super) fn begin(self: &Arc<Self>, user: Identity, whom: Whom) -> Stream {
        let over = CancellationToken::new();
        let mut streams = lock(&self.streams);
        streams.next += 1;
        let number = streams.next;
        streams.of.insert(number, (user, whom, over.clone()));
        Stream {
            open: self.clone(),
            number,
            over,
        }
    }

    /// How many began so far, if none is under way now.
    fn at_rest(&self) -> Option<u64> {
        let streams = lock(&self.streams);
        streams.of.is_empty().then_some(streams.next)
    }

    /// Ends once for so long nothing was under way.
    pub(super) async fn unused(&self, long: Duration) {
        let mut before = None;
        loop {
            let now = self.at_rest();
            if now.is_some() && now == before {
                return;
            }
            before = now;
            sleep(long).await;
        }
    }

    /// Ends what is under way for users who are let in no more, or not with all of their groups; never returns. Who cannot
    /// be asked about stays.
    pub(super) async fn follow(&self, account: &Account) {
        loop {
            sleep(EVERY).await;
            if lock(&self.streams).of.is_empty() {
                continue;
            }
            match account.acting().await {
                Ok(acting) => self.keep(&acting.listed),
                Err(error) => tracing::debug!(%error, "nobody knows who is let in"),
            }
        }
    }

    fn keep(&self, listed: &Listed) {
        for (user, whom, over) in lock(&self.streams).of.values() {
            if !whom.holds(&listed.whom(user)) {
                over.cancel();
            }
        }
    }
}

impl Stream {
    /// Cancelled once its user is let in no more.
    pub(super) fn over(&self) -> &CancellationToken {
        &self.over
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.open.streams).of.remove(&self.number);
    }
}

/// An answer of the member, broken off once `over` is cancelled. `seen` is told how long each piece is, and dropped
/// with it.
pub(super) fn lasting(
    body: Incoming,
    over: &CancellationToken,
    seen: impl Fn(usize) + Send + 'static,
) -> super::refusal::Body {
    Lasting {
        body,
        over: Box::pin(over.clone().cancelled_owned()),
        seen,
    }
    .boxed_unsync()
}

struct Lasting<F> {
    body: Incoming,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    seen: F,
}

// Nothing in it is pinned in place.
impl<F> Unpin for Lasting<F> {}

impl<F: Fn(usize)> Body for Lasting<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.over.as_mut().poll(context).is_ready() {
            let ended = io::Error::from(io::ErrorKind::PermissionDenied);
            return Poll::Ready(Some(Err(ended.into())));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            let Some(data) = frame.data_ref() else {
                // Headers that come after the body are headers that nobody has looked through.
                return Poll::Ready(None);
            };
            (self.seen)(data.len());
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::rbac::v1::PolicyRule;
    use serde_json::json;
    use tokio::time::Instant;

    #[test]
    fn who_is_let_in_no_more_has_nothing_under_way() {
        let listed = |names: &[&str]| {
            let rules: Vec<PolicyRule> = serde_json::from_value(json!([
                {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": names},
            ]))
            .expect("rules");
            Listed::of(&rules, &[])
        };
        let before = listed(&["ann", "bob"]);
        let open = Arc::new(Open::default());
        let begin = |user: &str| {
            let user = Identity::of(user, &[]).expect("fit");
            let whom = before.whom(&user).expect("let in");
            open.begin(user, whom)
        };
        let (ann, bob) = (begin("ann"), begin("bob"));
        open.keep(&listed(&["ann"]));
        assert!(!ann.over().is_cancelled() && bob.over().is_cancelled());
        drop((ann, bob));
        assert!(lock(&open.streams).of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_used_now_and_then_is_not_unused() {
        const LONG: Duration = Duration::from_secs(600);
        let (open, began) = (Arc::new(Open::default()), Instant::now());
        let begin = || {
            let ann = Identity::of("ann", &[]).expect("fit");
            open.begin(ann, Whom::default())
        };
        let uses = async {
            for _ in 0..4 {
                sleep(LONG - Duration::from_secs(1)).await;
                drop(begin());
            }
            let goes_on = begin();
            sleep(10 * LONG).await;
            drop(goes_on);
            Instant::now()
        };
        let (ends, last) = tokio::join!(
            async {
                open.unused(LONG).await;
                Instant::now()
            },
            uses
        );
        assert!(
            ends - last >= LONG && ends - last <= 2 * LONG,
            "{:?}",
            ends - began
        );
    }
}
