//! A connection on which an agent offered a tunnel, once it is known to be that agent's.

use super::Tunnels;
use super::lasting::Over;
use super::severed::Severable;
use common::tunnel;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

impl Tunnels {
    /// Reaches a cluster by this connection, until it ends, `stop`, or `over`, by which the agent's registration is no
    /// longer in force: then everything in it ends at once. What goes on in it when another one takes its place, or the
    /// agent wants no more requests in it, goes on.
    pub async fn hold<S>(
        &self,
        cluster: &str,
        stream: S,
        over: Over,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // The agent's pings are read by the library itself, so with nothing going on it is the line that says whether
        // there are any. Who sends something hears of it by pings of the hub's own.
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(tunnel::KEEP_ALIVE.silent()));
        stream.set_write_timeout(Some(tunnel::KEEP_ALIVE.silent()));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(tunnel::STREAM_WINDOW)
            .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
            .max_header_list_size(tunnel::HEADERS_MAX)
            .keep_alive_interval(tunnel::KEEP_ALIVE_BUSY.every)
            .keep_alive_timeout(tunnel::KEEP_ALIVE_BUSY.within)
            .keep_alive_while_idle(false);
        let (cut, closed) = (CancellationToken::new(), CancellationToken::new());
        let stream = Severable::new(Box::pin(stream), cut.clone(), closed.clone());
        let _cuts = cut.drop_guard();
        let begun = builder.handshake(TokioIo::new(stream)).await;
        let (sender, serving) = begun.map_err(|error| error.to_string())?;
        let kept = self.keep(cluster, sender);
        tracing::info!(cluster, "the agent's tunnel is open");
        let served = async move {
            serving.await.map_err(|error| error.to_string())?;
            // It takes no more requests. The library's own task has the connection until the last of them ends.
            drop(kept);
            closed.cancelled().await;
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            () = over => Err("its registration is no longer in force".to_owned()),
            ended = served => ended,
        };
        let why = ended.as_ref().err();
        tracing::info!(cluster, why, "the agent's tunnel is closed");
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::super::UnderWay;
    use super::*;
    use bytes::Bytes;
    use futures::FutureExt as _;
    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use futures::future::pending;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::io::{AsyncWriteExt as _, copy_bidirectional, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};
    use tokio_util::task::AbortOnDropHandle;

    type Piece = Result<Frame<Bytes>, Infallible>;

    /// An agent with one tunnel. The first answer is what is said in it; all others are nothing.
    struct Agent {
        says: UnboundedSender<Piece>,
        /// Cancelled when it wants no more requests in it.
        retire: CancellationToken,
        /// Cancelled when its line carries nothing more, and nobody is told.
        freeze: CancellationToken,
        /// How many were answered.
        answered: Arc<Mutex<usize>>,
        held: JoinHandle<Result<(), String>>,
        _serves: AbortOnDropHandle<()>,
        _line: AbortOnDropHandle<()>,
    }

    impl Agent {
        async fn dials(tunnels: &Tunnels, over: Over) -> Self {
            let (near, mut entry) = duplex(64 * 1024);
            let (mut exit, far) = duplex(64 * 1024);
            let freeze = CancellationToken::new();
            let freezes = freeze.clone();
            let line = tokio::spawn(async move {
                let _ = freezes
                    .run_until_cancelled(copy_bidirectional(&mut entry, &mut exit))
                    .await;
                if freezes.is_cancelled() {
                    pending::<()>().await;
                }
            });
            let (says, said) = unbounded();
            let answers: Arc<Mutex<Option<UnboundedReceiver<Piece>>>> =
                Arc::new(Mutex::new(Some(said)));
            let answered = Arc::new(Mutex::new(0));
            let counts = answered.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                *counts.lock().expect("held") += 1;
                let said = answers.lock().expect("held").take();
                let body = said.map_or_else(
                    || Empty::new().boxed_unsync(),
                    |said| StreamBody::new(said).boxed_unsync(),
                );
                async move { Ok::<_, Infallible>(Response::new(body)) }
            });
            let retire = CancellationToken::new();
            let retires = retire.clone();
            let serves = tokio::spawn(async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let keep_alive = tunnel::KEEP_ALIVE;
                let _ = common::http2::serve(builder, keep_alive, far, service, retires).await;
            });
            let before = tunnels.of("m1").map_or(0, |tunnel| tunnel.number);
            let (holds, stop) = (tunnels.clone(), CancellationToken::new());
            let held = tokio::spawn(async move { holds.hold("m1", near, over, stop).await });
            let stands = async {
                while tunnels.of("m1").map_or(0, |tunnel| tunnel.number) == before {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            soon(stands).await;
            Self {
                says,
                retire,
                freeze,
                answered,
                held,
                _serves: AbortOnDropHandle::new(serves),
                _line: AbortOnDropHandle::new(line),
            }
        }

        fn say(&self, text: &'static str) {
            let piece = Ok(Frame::data(Bytes::from_static(text.as_bytes())));
            self.says.unbounded_send(piece).expect("it listens");
        }
    }

    async fn soon<T>(it: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(5), it).await.expect("in time")
    }

    async fn ask(tunnels: &Tunnels) -> Incoming {
        let request = Request::get("https://m1/api");
        let request = request.body(Empty::new().map_err(|it| match it {}).boxed_unsync());
        let tunnel = tunnels.of("m1").expect("a tunnel");
        let answer = soon(tunnel.send(request.expect("a request"))).await;
        answer.expect("an answer").into_body()
    }

    async fn heard(answer: &mut Incoming) -> String {
        let frame = soon(answer.frame()).await.expect("more");
        let data = frame.expect("no break").into_data().expect("data");
        String::from_utf8(data.to_vec()).expect("text")
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_in_a_tunnel_outlasts_it() {
        let tunnels = Tunnels::counted(UnderWay::default());
        let old = Agent::dials(&tunnels, pending().boxed()).await;
        let mut answer = ask(&tunnels).await;
        old.say("one");
        assert_eq!(heard(&mut answer).await, "one");
        let new = Agent::dials(&tunnels, pending().boxed()).await;
        old.retire.cancel();
        drop(ask(&tunnels).await);
        assert_eq!(*new.answered.lock().expect("held"), 1);
        // Longer than a tunnel is given in which nothing comes.
        sleep(2 * tunnel::KEEP_ALIVE.silent()).await;
        old.say("two");
        assert_eq!(heard(&mut answer).await, "two");
        assert!(!old.held.is_finished());
        drop(old.says);
        let rest = soon(answer.collect()).await.expect("it ends in order");
        assert_eq!(rest.to_bytes(), "");
        assert_eq!(soon(old.held).await.expect("no panic"), Ok(()));
        drop(ask(&tunnels).await);
        assert_eq!(*new.answered.lock().expect("held"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_breaks_with_the_registration_all_the_same() {
        let tunnels = Tunnels::counted(UnderWay::default());
        let over = CancellationToken::new();
        let old = Agent::dials(&tunnels, over.clone().cancelled_owned().boxed()).await;
        let mut answer = ask(&tunnels).await;
        old.say("one");
        assert_eq!(heard(&mut answer).await, "one");
        let _new = Agent::dials(&tunnels, pending().boxed()).await;
        old.retire.cancel();
        sleep(tunnel::KEEP_ALIVE.every).await;
        over.cancel();
        let broke = soon(answer.frame()).await.expect("no end in order");
        assert!(broke.is_err());
        assert!(soon(old.held).await.expect("no panic").is_err());
        drop(ask(&tunnels).await);
    }

    /// Who waits for an answer hears of a line that carries nothing sooner than that a tunnel lies still.
    #[tokio::test(start_paused = true)]
    async fn a_line_that_freezes_is_noticed_sooner_while_something_is_under_way() {
        for (asks, within) in [
            (true, tunnel::KEEP_ALIVE_BUSY.silent()),
            (false, tunnel::KEEP_ALIVE.silent()),
        ] {
            let tunnels = Tunnels::counted(UnderWay::default());
            let agent = Agent::dials(&tunnels, pending().boxed()).await;
            let answer = if asks {
                Some(ask(&tunnels).await)
            } else {
                None
            };
            agent.freeze.cancel();
            let ended = timeout(within + Duration::from_secs(1), agent.held).await;
            assert!(ended.expect("given up").expect("no panic").is_err());
            if let Some(mut answer) = answer {
                let broke = soon(answer.frame()).await.expect("no end in order");
                assert!(broke.is_err());
            }
            assert!(tunnels.of("m1").is_err());
        }
    }

    /// What an agent says first, and nothing else.
    #[tokio::test(start_paused = true)]
    async fn an_agent_that_is_silent_is_given_up() {
        let (near, mut far) = duplex(64 * 1024);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        far.write_all(&settings).await.expect("taken");
        let tunnels = Tunnels::counted(UnderWay::default());
        let held = tunnels.hold("m1", near, pending().boxed(), CancellationToken::new());
        let within = tunnel::KEEP_ALIVE.silent() + Duration::from_secs(1);
        let ended = timeout(within, held).await.expect("given up");
        assert!(ended.is_err(), "{ended:?}");
        assert!(tunnels.of("m1").is_err());
    }
}
