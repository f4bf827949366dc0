//! Both ends of a tunnel, in memory, by a paused clock.

use super::super::{Asked, Body, Tunnel, UnderWay};
use super::*;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::pending;
use http::{HeaderMap, Method, Request, Response, Uri};
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
    /// Cancelled once HTTP/2 has begun.
    begun: CancellationToken,
    /// How many were answered.
    answered: Arc<Mutex<usize>>,
    held: JoinHandle<Result<(), String>>,
    _serves: AbortOnDropHandle<()>,
    _line: AbortOnDropHandle<()>,
}

impl Agent {
    async fn dials(tunnels: &Tunnels, begins: Begins, over: Over) -> Self {
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
        let (retires, begins_now) = (retire.clone(), CancellationToken::new());
        let begun = begins_now.clone();
        let serves = tokio::spawn(async move {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let keep_alive = tunnel::KEEP_ALIVE;
            let served = tunnel::serve(far, begins, &begun, retires, |far, retires| {
                common::http2::serve(builder, keep_alive, far, service, retires)
            });
            let _ = served.await;
        });
        let before = tunnels.of("m1").map_or(0, |tunnel| tunnel.number);
        let (holds, stop) = (tunnels.clone(), CancellationToken::new());
        let held = tokio::spawn(async move { holds.hold("m1", near, begins, over, stop).await });
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
            begun: begins_now,
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

fn request() -> Request<Sent> {
    let nothing = Empty::new().map_err(|it| match it {}).boxed_unsync();
    let request = Request::get("https://m1/api").body(nothing);
    request.expect("a request")
}

/// Asks by a tunnel that was found before.
async fn ask_by(tunnel: Tunnel) -> Incoming {
    let answer = soon(tunnel.send(request())).await;
    answer.expect("an answer").into_body()
}

async fn ask(tunnels: &Tunnels) -> Incoming {
    ask_by(tunnels.of("m1").expect("a tunnel")).await
}

/// Asks as a user does.
async fn pass(tunnels: &Tunnels) -> Body {
    let headers = HeaderMap::new();
    let asked = Asked {
        cluster: "m1",
        user: "ann",
        groups: &[],
        method: &Method::GET,
        headers: &headers,
        onward: Uri::from_static("/api"),
        stream: "1".to_owned(),
    };
    let tunnel = tunnels.of("m1").expect("a tunnel");
    let answer = tunnel.pass(asked, Empty::<Bytes>::new(), None, pending().boxed(), ());
    soon(answer).await.expect("an answer").into_body()
}

async fn heard(answer: &mut Incoming) -> String {
    let frame = soon(answer.frame()).await.expect("more");
    let data = frame.expect("no break").into_data().expect("data");
    String::from_utf8(data.to_vec()).expect("text")
}

#[tokio::test(start_paused = true)]
async fn http2_begins_when_it_is_asked_for() {
    let tunnels = Tunnels::counted(UnderWay::default());
    let agent = Agent::dials(&tunnels, Begins::WhenAsked, pending().boxed()).await;
    sleep(10 * tunnel::KEEP_ALIVE.silent()).await;
    assert!(!agent.begun.is_cancelled() && !agent.held.is_finished());
    // Several at once begin it once.
    let (one, other) = tokio::join!(ask(&tunnels), ask(&tunnels));
    assert!(agent.begun.is_cancelled());
    drop((one, other));
    sleep(10 * tunnel::KEEP_ALIVE.silent()).await;
    drop(ask(&tunnels).await);
    assert_eq!(*agent.answered.lock().expect("held"), 3);
}

#[tokio::test(start_paused = true)]
async fn who_found_a_tunnel_before_it_was_retired_is_answered_by_it() {
    let tunnels = Tunnels::counted(UnderWay::default());
    let agent = Agent::dials(&tunnels, Begins::WhenAsked, pending().boxed()).await;
    let found = tunnels.of("m1").expect("a tunnel");
    agent.retire.cancel();
    let gone = async {
        while tunnels.of("m1").is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    soon(gone).await;
    drop(ask_by(found).await);
    assert_eq!(*agent.answered.lock().expect("held"), 1);
    assert_eq!(soon(agent.held).await.expect("no panic"), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_lies_still_ends_when_it_is_retired_or_replaced() {
    for retires in [true, false] {
        let tunnels = Tunnels::counted(UnderWay::default());
        let old = Agent::dials(&tunnels, Begins::WhenAsked, pending().boxed()).await;
        if retires {
            old.retire.cancel();
        } else {
            let _new = Agent::dials(&tunnels, Begins::WhenAsked, pending().boxed()).await;
        }
        assert_eq!(soon(old.held).await.expect("no panic"), Ok(()));
        assert!(!old.begun.is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn what_goes_on_in_a_tunnel_outlasts_it() {
    for begins in Begins::ALL {
        let tunnels = Tunnels::counted(UnderWay::default());
        let old = Agent::dials(&tunnels, begins, pending().boxed()).await;
        let mut answer = ask(&tunnels).await;
        old.say("one");
        assert_eq!(heard(&mut answer).await, "one");
        let new = Agent::dials(&tunnels, begins, pending().boxed()).await;
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
}

#[tokio::test(start_paused = true)]
async fn it_breaks_with_the_registration_all_the_same() {
    for begins in Begins::ALL {
        let tunnels = Tunnels::counted(UnderWay::default());
        let over = CancellationToken::new();
        let ends = over.clone().cancelled_owned().boxed();
        let old = Agent::dials(&tunnels, begins, ends).await;
        let mut answer = ask(&tunnels).await;
        old.say("one");
        assert_eq!(heard(&mut answer).await, "one");
        let _new = Agent::dials(&tunnels, begins, pending().boxed()).await;
        old.retire.cancel();
        sleep(tunnel::KEEP_ALIVE.every).await;
        over.cancel();
        let broke = soon(answer.frame()).await.expect("no end in order");
        assert!(broke.is_err());
        assert!(soon(old.held).await.expect("no panic").is_err());
        drop(ask(&tunnels).await);
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_by_a_tunnel_that_ends_is_told() {
    let tunnels = Tunnels::counted(UnderWay::default());
    let over = CancellationToken::new();
    let ends = over.clone().cancelled_owned().boxed();
    let agent = Agent::dials(&tunnels, Begins::WhenAsked, ends).await;
    let found = tunnels.of("m1").expect("a tunnel");
    over.cancel();
    assert!(soon(agent.held).await.expect("no panic").is_err());
    let answer = soon(found.send(request())).await;
    assert!(answer.is_err());
}

/// Who waits for an answer hears of a line that carries nothing sooner than that a tunnel lies still.
#[tokio::test(start_paused = true)]
async fn a_line_that_freezes_is_noticed_sooner_while_something_is_under_way() {
    let cases = [
        (true, tunnel::KEEP_ALIVE_BUSY.silent()),
        (false, tunnel::KEEP_ALIVE.silent()),
    ];
    let cases = Begins::ALL
        .into_iter()
        .flat_map(|begins| cases.map(|it| (begins, it)));
    for (begins, (asks, within)) in cases {
        let tunnels = Tunnels::counted(UnderWay::default());
        let agent = Agent::dials(&tunnels, begins, pending().boxed()).await;
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

/// That another tunnel took the place of the one that froze makes no difference to the last that goes on there.
#[tokio::test(start_paused = true)]
async fn the_last_that_goes_on_in_a_former_tunnel_hears_as_soon_of_a_line_that_freezes() {
    let cases = Begins::ALL.map(|begins| [true, false].map(|freezes| (begins, freezes)));
    for (begins, freezes) in cases.into_iter().flatten() {
        let tunnels = Tunnels::counted(UnderWay::default());
        let old = Agent::dials(&tunnels, begins, pending().boxed()).await;
        let mut answer = pass(&tunnels).await;
        let new = Agent::dials(&tunnels, begins, pending().boxed()).await;
        old.retire.cancel();
        if freezes {
            old.freeze.cancel();
            let within = tunnel::KEEP_ALIVE_BUSY.silent() + Duration::from_secs(1);
            let broke = timeout(within, answer.frame()).await.expect("told");
            assert!(broke.expect("no end in order").is_err());
            assert!(soon(old.held).await.expect("no panic").is_err());
        } else {
            sleep(2 * tunnel::KEEP_ALIVE.silent()).await;
            assert!(!old.held.is_finished());
            drop(old.says);
            let rest = soon(answer.collect()).await.expect("it ends in order");
            assert_eq!(rest.to_bytes(), "");
            assert_eq!(soon(old.held).await.expect("no panic"), Ok(()));
        }
        drop(ask(&tunnels).await);
        assert_eq!(*new.answered.lock().expect("held"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_first_by_a_line_that_froze_is_told_as_soon() {
    let tunnels = Tunnels::counted(UnderWay::default());
    let agent = Agent::dials(&tunnels, Begins::WhenAsked, pending().boxed()).await;
    agent.freeze.cancel();
    let found = tunnels.of("m1").expect("a tunnel");
    let within = tunnel::KEEP_ALIVE_BUSY.silent() + Duration::from_secs(1);
    let answer = timeout(within, found.send(request())).await;
    assert!(answer.expect("told").is_err());
}

/// What an agent says first, and nothing else.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_silent_is_given_up() {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    for (begins, first) in [
        (Begins::AtOnce, &settings[..]),
        (Begins::WhenAsked, b"."),
        (Begins::WhenAsked, b""),
        (Begins::WhenAsked, b"!"),
    ] {
        let (near, mut far) = duplex(64 * 1024);
        far.write_all(first).await.expect("taken");
        let tunnels = Tunnels::counted(UnderWay::default());
        let found = tunnels.clone();
        let stop = CancellationToken::new();
        let held = tunnels.hold("m1", near, begins, pending().boxed(), stop);
        let within = tunnel::KEEP_ALIVE.silent() + Duration::from_secs(1);
        let ended = timeout(within, held).await.expect("given up");
        assert_eq!(ended.is_ok(), first == b"!", "{ended:?}");
        assert!(found.of("m1").is_err());
    }
}
