//! The bottom of every client: a pool of connections, a deadline for each request, headers of ours.

use super::authorization::Authorization;
use super::connect::Connector;
use super::pool::{Answer, Pool};
use super::problem::TimedOut;
use super::{AnswerWithin, ClientOptions, RequestBody, user_agent};
use crate::tls::CertificateSwap;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tower::BoxError;

/// How long a server that answers 401 is not connected to again for that.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);

/// The client certificate: whether another connection would show another one.
pub(super) enum Identity {
    /// There is none, or it stays the same.
    Fixed,
    /// It is exchanged in this process.
    Swapped(CertificateSwap),
    /// It is read from its file for each connection, and somebody else may renew that.
    File,
}

impl Identity {
    /// Moves when it is exchanged, as far as that is known.
    fn version(&self) -> u64 {
        match self {
            Self::Swapped(swap) => swap.version(),
            Self::Fixed | Self::File => 0,
        }
    }
}

/// A service for kube's client. Clones share the pool.
#[derive(Clone)]
pub(crate) struct Transport(Arc<Shared>);

struct Shared {
    connector: Connector,
    timeout: Duration,
    answer_max: Option<usize>,
    user_agent: HeaderValue,
    authorization: Authorization,
    identity: Identity,
    pool: Mutex<Generation>,
}

/// A pool and what it was made for.
struct Generation {
    pool: Pool,
    number: u64,
    certificate: u64,
    /// When one was last replaced because the server answered 401.
    refused: Option<Instant>,
}

impl Transport {
    pub(crate) fn new(
        connector: Connector,
        options: &ClientOptions,
        authorization: Authorization,
        identity: Identity,
    ) -> Self {
        let pool = Mutex::new(Generation {
            pool: Pool::new(&connector),
            number: 0,
            certificate: identity.version(),
            refused: None,
        });
        Self(Arc::new(Shared {
            connector,
            timeout: options.request_timeout,
            answer_max: options.answer_max,
            user_agent: user_agent(options.purpose),
            authorization,
            identity,
            pool,
        }))
    }
}

impl Shared {
    /// The pool to use now; a new one once the certificate was exchanged.
    fn current(&self) -> (Pool, u64) {
        let mut current = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let certificate = self.identity.version();
        if current.certificate != certificate {
            current.certificate = certificate;
            current.number += 1;
            current.pool = Pool::new(&self.connector);
        }
        (current.pool.clone(), current.number)
    }

    /// Gives up the pool in which a request found no answer, once.
    fn give_up(&self, number: u64) {
        let mut current = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.number += 1;
            current.pool = Pool::new(&self.connector);
            self.connector.distrust_current();
        }
    }

    /// The server answered 401 to a request in this pool. It knows a connection by the certificate of its handshake for
    /// as long as it lives, and answers so once that has ended; the next request shows what the file has by then.
    fn refused(&self, number: u64) {
        if !matches!(self.identity, Identity::File) {
            return;
        }
        let mut current = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if current.number == number && connects_anew(current.refused, now) {
            current.refused = Some(now);
            current.number += 1;
            current.pool = Pool::new(&self.connector);
        }
    }
}

/// Whether a 401 is a reason for a new connection, when one last was; not for each request to a server that knows
/// nobody.
fn connects_anew(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= REFUSED_AGAIN)
}

/// A watch, or another answer without an end: no deadline for its body.
fn is_endless(uri: &http::Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        matches!(key, "watch" | "follow") && matches!(value, "true" | "1")
    })
}

impl tower::Service<Request<RequestBody>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let shared = self.0.clone();
        request
            .headers_mut()
            .insert(USER_AGENT, shared.user_agent.clone());
        let own = request.extensions().get::<AnswerWithin>();
        let timeout = own.map_or(shared.timeout, |within| within.0);
        let timed_out = TimedOut {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            after: timeout,
        };
        let endless = is_endless(request.uri());
        Box::pin(async move {
            let deadline = Instant::now() + timeout;
            let header = tokio::time::timeout_at(deadline, shared.authorization.header()).await;
            let Ok(header) = header else {
                return Err(timed_out.into());
            };
            let header = header?;
            if let Some(header) = &header {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let (pool, number) = shared.current();
            let Ok(answer) = tokio::time::timeout_at(deadline, pool.request(request)).await else {
                shared.give_up(number);
                return Err(timed_out.into());
            };
            let answer = answer?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                if let Some(header) = &header {
                    shared.authorization.refused(header).await;
                }
                shared.refused(number);
            }
            Ok(answer.map(|body| ResponseBody {
                body,
                left: shared.answer_max.filter(|_| !endless),
                deadline: (!endless).then(|| Deadline {
                    sleep: Box::pin(tokio::time::sleep_until(deadline)),
                    timed_out,
                    number,
                    shared,
                }),
            }))
        })
    }
}

/// The body of an answer; it fails when the request's deadline passes before its end.
pub(crate) struct ResponseBody {
    body: Answer,
    /// Bytes that may still come.
    left: Option<usize>,
    deadline: Option<Deadline>,
}

struct Deadline {
    sleep: Pin<Box<Sleep>>,
    timed_out: TimedOut,
    number: u64,
    shared: Arc<Shared>,
}

/// An answer is longer than this client reads.
#[derive(Debug, thiserror::Error)]
#[error("the answer is longer than this client reads")]
struct TooLong;

impl ResponseBody {
    /// Lets a frame pass, or cuts the answer off.
    fn count(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
        if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
            *left = left.checked_sub(data.len()).ok_or(TooLong)?;
        }
        Ok(frame)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| self.count(frame?)));
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.sleep.as_mut().poll(cx).is_ready()
        {
            let timed_out = deadline.timed_out.clone();
            deadline.shared.give_up(deadline.number);
            self.deadline = None;
            return Poll::Ready(Some(Err(timed_out.into())));
        }
        Poll::Pending
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

    #[test]
    fn a_server_that_knows_nobody_is_not_connected_to_for_each_request() {
        let last = Instant::now();
        assert!(connects_anew(None, last));
        for (since, expected) in [(0, false), (9_999, false), (10_000, true), (60_000, true)] {
            let now = last + Duration::from_millis(since);
            assert_eq!(connects_anew(Some(last), now), expected, "{since}");
        }
    }
}
