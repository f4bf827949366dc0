//! A member's API server on a connection of bytes: the simulated one, and `exec` in its pods, which it does not have and
//! which is played here: it says in which member it runs, and then whatever it is told, until nothing more is said.

use super::heard::Heard;
use crate::apiserver::http::router::Router;
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::BoxError;

type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A member, and what it hears.
#[derive(Clone)]
pub(super) struct Played {
    pub(super) name: String,
    pub(super) router: Router,
    pub(super) heard: Heard,
}

impl Played {
    /// Serves until the connection ends, or in order once `stop` is cancelled.
    pub(super) async fn serve<S>(
        self,
        address: IpAddr,
        chain: Vec<CertificateDer<'static>>,
        stream: S,
        stop: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let link = self.router.link(address, &chain);
        let taken = TaskTracker::new();
        let end = CancellationToken::new();
        let _ends = end.clone().drop_guard();
        let (played, tasks) = (Arc::new(self), taken.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (link, played) = (link.clone(), played.clone());
            let (tasks, end) = (tasks.clone(), end.clone());
            async move {
                if request.uri().path().ends_with("/exec") {
                    return Ok(played.exec(request, &tasks, end));
                }
                let Ok(answer) = tower::ServiceExt::oneshot(link, request).await;
                Ok::<_, Infallible>(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        // What passes is the same in every run.
        builder.timer(TokioTimer::new()).auto_date_header(false);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection.with_upgrades());
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            ended = connection.as_mut() => ended,
        };
        if ended.is_ok() {
            taken.close();
            taken.wait().await;
        }
    }

    fn exec(
        &self,
        mut request: Request<Incoming>,
        tasks: &TaskTracker,
        end: CancellationToken,
    ) -> Response<Body> {
        let nothing = || Empty::new().map_err(|never| match never {}).boxed_unsync();
        let mut answer = Response::new(nothing());
        let text = |name: &str| {
            let value = request.headers().get(name);
            value
                .and_then(|it| it.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let (id, who) = (text("audit-id"), text("impersonate-user"));
        if text("upgrade") != "websocket" || who.is_empty() {
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            return answer;
        }
        let greeting = format!("{} {who}\n", self.name);
        let heard = self.heard.clone();
        let connection = hyper::upgrade::on(&mut request);
        let echo = async move {
            let connection = connection.await.ok()?;
            let mut stream = TokioIo::new(connection);
            stream.write_all(greeting.as_bytes()).await.ok()?;
            let mut piece = vec![0; 1024];
            loop {
                match stream.read(&mut piece).await.ok()? {
                    0 => break,
                    size => stream.write_all(&piece[..size]).await.ok()?,
                }
            }
            heard.ended(&id);
            stream.shutdown().await.ok()
        };
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                _ = echo => {}
            }
        });
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        answer
    }
}
