//! The watcher over a scripted service in process, under paused time.

mod refusals;
mod streams;

use super::*;
use crate::chance::Chance;
use bytes::Bytes;
use futures::StreamExt as _;
use http::Request;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

type Bytes_ = Result<Frame<Bytes>, Infallible>;
type AnyBody = Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = Infallible> + Send>>;

/// One expected request and its answer.
enum Step {
    /// A body that is complete.
    Answer(u16, String),
    /// A body that begins like this and never ends.
    Stuck(u16, String),
    /// A watch that sends these lines, then stays open or ends.
    Watch(Vec<String>, Then),
    /// No answer: the connection breaks.
    Broken,
}

#[derive(PartialEq)]
enum Then {
    Ends,
    Stays,
}

/// The requests that came, as path and query.
type Asked = Arc<Mutex<Vec<String>>>;

fn scripted(steps: Vec<Step>) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let notes = asked.clone();
    let steps = Arc::new(Mutex::new(VecDeque::from(steps)));
    let service = tower::service_fn(move |request: Request<Body>| {
        notes
            .lock()
            .expect("no panic")
            .push(request.uri().to_string());
        let step = steps.lock().expect("no panic").pop_front();
        async move {
            let body: AnyBody = match step {
                None => std::future::pending().await,
                Some(Step::Broken) => return Err(std::io::Error::other("broken pipe")),
                Some(Step::Answer(status, body)) => {
                    return Ok(answer(status, Box::pin(Full::new(Bytes::from(body)))));
                }
                Some(Step::Stuck(status, begun)) => {
                    let begun: Bytes_ = Ok(Frame::data(Bytes::from(begun)));
                    let endless = futures::stream::iter([begun]).chain(futures::stream::pending());
                    return Ok(answer(status, Box::pin(StreamBody::new(endless))));
                }
                Some(Step::Watch(lines, then)) => {
                    let (sender, receiver) = mpsc::channel::<Bytes_>(lines.len() + 1);
                    for line in lines {
                        let data = Bytes::from(line + "\n");
                        sender.try_send(Ok(Frame::data(data))).expect("room");
                    }
                    if then == Then::Stays {
                        tokio::spawn(async move { sender.closed().await });
                    }
                    let stream = futures::stream::unfold(receiver, |mut receiver| async {
                        Some((receiver.recv().await?, receiver))
                    });
                    Box::pin(StreamBody::new(stream))
                }
            };
            Ok(Response::new(body))
        }
    });
    (kube::Client::new(service, "default"), asked)
}

fn answer(status: u16, body: AnyBody) -> Response<AnyBody> {
    let mut answer = Response::new(body);
    *answer.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    answer
}

fn list(version: u64, next: &str, items: &[&str]) -> Step {
    let items = items.join(",");
    Step::Answer(
        200,
        format!(
            r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#
        ),
    )
}

fn object(name: &str, version: u64) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn status(code: u16, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","status":"Failure","message":"{message}","reason":"x","code":{code}}}"#
    )
}

/// What an event says, short enough to compare.
fn told(event: Event<ConfigMap>) -> String {
    match event {
        Event::Init => "restarted".to_owned(),
        Event::Applied(map) => format!("+{}", map.metadata.name.unwrap_or_default()),
        Event::Undecodable(broken) => format!("?{}", broken.key.name),
        Event::Deleted(key) => format!("-{}", key.name),
        Event::InitDone { gap, .. } => format!("listed {}", gap.is_some()),
        Event::Disconnected { .. } => "disconnected".to_owned(),
        Event::Resumed { .. } => "resumed".to_owned(),
    }
}

async fn first(count: usize, steps: Vec<Step>) -> (Vec<String>, Vec<String>) {
    let (client, asked) = scripted(steps);
    let config = WatchConfig {
        ..WatchConfig::new(&Chance::seeded(1))
    };
    let events = watch::<ConfigMap>(client, Collection::of::<ConfigMap>(Some("ns")), config);
    let events = events.take(count).map(told).collect::<Vec<String>>();
    // Far more than all deadlines: a watch that hangs fails, and does not hang its test.
    let events = tokio::time::timeout(Duration::from_secs(3_600), events).await;
    let asked = asked.lock().expect("no panic").clone();
    (events.expect("so many events"), asked)
}

#[tokio::test(start_paused = true)]
async fn pages_are_listed_and_then_watched_and_a_broken_object_hides_no_other() {
    let broken = r#"{"metadata":{"name":"b","resourceVersion":"6"},"data":{"x":7}}"#;
    // Nested deeper than a decoder goes.
    let deep = format!(
        r#"{{"metadata":{{"name":"d","resourceVersion":"12"}},"data":{}{}}}"#,
        r#"{"x":"#.repeat(130) + "1",
        "}".repeat(130)
    );
    let (events, asked) = first(
        9,
        vec![
            list(10, "next", &[&object("a", 5), broken]),
            list(10, "", &[&object("c", 7)]),
            Step::Watch(
                vec![
                    event("ADDED", &deep),
                    String::new(),
                    event("MODIFIED", &object("a", 13)),
                    event("BOOKMARK", r#"{"metadata":{"resourceVersion":"20"}}"#),
                    event("DELETED", &object("b", 21)),
                ],
                Then::Ends,
            ),
            // It ended soon, so it is asked first whether the server still is where we are.
            list(25, "", &[]),
            Step::Watch(vec![event("ADDED", &object("e", 30))], Then::Stays),
        ],
    )
    .await;
    assert_eq!(
        events,
        [
            "restarted",
            "+a",
            "?b",
            "+c",
            "listed false",
            "?d",
            "+a",
            "-b",
            "+e"
        ]
    );
    assert!(
        asked[0].contains("limit=50") && !asked[0].contains("continue="),
        "{}",
        asked[0]
    );
    assert!(asked[1].contains("continue=next"), "{}", asked[1]);
    assert!(
        asked[2].contains("resourceVersion=10") && asked[2].contains("allowWatchBookmarks=true")
    );
    assert!(
        asked[4].contains("resourceVersion=21"),
        "a regular end resumes: {}",
        asked[4]
    );
    let timeout = asked[2]
        .split("timeoutSeconds=")
        .nth(1)
        .and_then(|t| t.split('&').next());
    let timeout: u64 = timeout.and_then(|t| t.parse().ok()).expect("a timeout");
    assert!((100..=200).contains(&timeout));
}

/// A server that minds no limit is cut off, with fewer objects asked for each time, and then with an error;
/// one that merely has large objects is listed in smaller pages.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_long_is_cut_off() {
    let long = format!(
        r#"{{"metadata":{{"name":"{}"}}}}"#,
        "x".repeat(17 * 1024 * 1024)
    );
    let endless = || list(10, "", &[&long]);
    let (events, asked) = first(1, (0..4).map(|_| endless()).collect()).await;
    assert_eq!(events, ["disconnected"]);
    let limits: Vec<&str> = asked
        .iter()
        .filter_map(|uri| uri.split("limit=").nth(1)?.split('&').next())
        .collect();
    assert_eq!(limits, ["50", "12", "3", "1"]);

    let steps = vec![
        list(10, "next", &[&object("a", 5)]),
        endless(),
        list(10, "more", &[&object("b", 6)]),
        list(10, "", &[&object("c", 7)]),
    ];
    let (events, asked) = first(5, steps).await;
    assert_eq!(events, ["restarted", "+a", "+b", "+c", "listed false"]);
    assert!(
        asked[2].contains("limit=12") && asked[2].contains("continue=next"),
        "{}",
        asked[2]
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_has_as_many_objects_as_fit() {
    let small = |first: u64| -> Vec<String> {
        let names = (first..first + 10).map(|number| format!("o{number}"));
        names.map(|name| object(&name, 5)).collect()
    };
    let page = |objects: &[String], next| {
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        list(10, next, &objects)
    };
    let large = format!(
        r#"{{"metadata":{{"name":"x","resourceVersion":"5"}},"data":{{"x":"{}"}}}}"#,
        "x".repeat(3000)
    );
    let (client, asked) = scripted(vec![
        page(&small(0), "a"),
        page(&small(10), "b"),
        page(&small(20), "c"),
        page(&[large], "d"),
        page(&small(30), ""),
    ]);
    let config = WatchConfig {
        page_size: 10,
        page_bytes: Some(6000),
        ..WatchConfig::new(&Chance::seeded(1))
    };
    let events = watch::<ConfigMap>(client, Collection::of::<ConfigMap>(Some("ns")), config);
    let events: Vec<String> = events.take(43).map(told).collect().await;
    assert_eq!(events.last().map(String::as_str), Some("listed false"));
    let asked = asked.lock().expect("no panic").clone();
    let limits: Vec<u32> = asked
        .iter()
        .filter_map(|uri| uri.split("limit=").nth(1)?.split('&').next()?.parse().ok())
        .collect();
    // At most four times as many as before; then those of some sixty bytes that fit; one, after a large one.
    assert_eq!(limits[..2], [10, 40]);
    assert!((80..=110).contains(&limits[2]), "{limits:?}");
    assert_eq!(limits[3], limits[2]);
    assert_eq!(limits[4], 1);
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_told_and_resumed_without_loss() {
    let (client, asked) = scripted(vec![
        list(10, "", &[]),
        Step::Watch(Vec::new(), Then::Ends),
        Step::Broken,
        Step::Broken,
        list(10, "", &[]),
        Step::Watch(vec![event("ADDED", &object("a", 11))], Then::Stays),
    ]);
    let events = watch::<ConfigMap>(
        client,
        Collection::of::<ConfigMap>(None),
        WatchConfig::new(&Chance::seeded(1)),
    );
    let mut events = pin!(events);
    for expected in ["restarted", "listed false"] {
        assert_eq!(told(events.next().await.expect("endless")), expected);
    }
    let heard = Instant::now();
    for _ in 0..2 {
        let Some(Event::Disconnected { since, .. }) = events.next().await else {
            unreachable!("the connection broke")
        };
        assert_eq!(since, heard);
    }
    let Some(Event::Resumed { gap }) = events.next().await else {
        unreachable!("nothing was lost")
    };
    assert_eq!(gap, Instant::now() - heard);
    assert!(gap > Duration::ZERO);
    assert_eq!(told(events.next().await.expect("endless")), "+a");
    assert!(
        asked
            .lock()
            .expect("no panic")
            .last()
            .is_some_and(|q| q.contains("resourceVersion=10"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_version_lists_anew_and_says_so() {
    for gone in [
        Step::Answer(410, status(410, "too old")),
        Step::Watch(vec![event("ERROR", &status(410, "too old"))], Then::Stays),
        Step::Answer(
            504,
            status(504, "Too large resource version: 10, current: 3"),
        ),
    ] {
        let (events, _) = first(
            4,
            vec![list(10, "", &[]), gone, list(3, "", &[&object("a", 2)])],
        )
        .await;
        assert_eq!(events, ["restarted", "listed false", "restarted", "+a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_is_listed_anew() {
    // After an outage the newest version there is older than ours.
    let steps = vec![
        list(10, "", &[]),
        Step::Broken,
        list(4, "", &[]),
        list(4, "", &[&object("a", 2)]),
    ];
    let (events, _) = first(6, steps).await;
    let expected = [
        "restarted",
        "listed false",
        "disconnected",
        "restarted",
        "+a",
        "listed true",
    ];
    assert_eq!(events, expected);
}

/// A watch that ends soon is opened again after a while, in which the server may be restored.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_between_two_watches_is_listed_anew() {
    let steps = vec![
        list(10, "", &[]),
        Step::Watch(vec![event("ADDED", &object("a", 20))], Then::Ends),
        list(5, "", &[]),
        list(5, "", &[&object("b", 4)]),
    ];
    let (events, _) = first(5, steps).await;
    assert_eq!(
        events,
        ["restarted", "listed false", "+a", "restarted", "+b"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_given_up_at_its_idle_deadline() {
    let begun = Instant::now();
    let steps = vec![
        list(10, "", &[]),
        Step::Watch(Vec::new(), Then::Stays),
        list(10, "", &[]),
    ];
    let (events, _) = first(3, steps).await;
    assert_eq!(events, ["restarted", "listed false", "disconnected"]);
    assert!(begun.elapsed() <= IDLE_HTTP1 + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn reconnecting_slows_down_to_the_cap_and_never_beyond() {
    let (client, _) = scripted((0..12).map(|_| Step::Broken).collect());
    let events = watch::<ConfigMap>(
        client,
        Collection::of::<ConfigMap>(None),
        WatchConfig::new(&Chance::seeded(1)),
    );
    let mut events = pin!(events);
    let mut last = Instant::now();
    let mut delays = Vec::new();
    for _ in 0..12 {
        assert_eq!(told(events.next().await.expect("endless")), "disconnected");
        delays.push(last.elapsed());
        last = Instant::now();
    }
    assert!(
        delays
            .iter()
            .all(|d| *d <= RECONNECT_CAP + Duration::from_millis(2)),
        "{delays:?}"
    );
    assert!(delays[11] >= RECONNECT_CAP / 2, "{delays:?}");
}

/// As it is while the rights of one agent after the other are taken away.
#[tokio::test(start_paused = true)]
async fn watches_that_are_ended_again_and_again_are_opened_again_soon() {
    let begun = Instant::now();
    let one = |version: u64| {
        let seen = vec![event("ADDED", &object("a", version))];
        [Step::Watch(seen, Then::Ends), list(version, "", &[])]
    };
    let steps = [list(10, "", &[])];
    let steps = steps.into_iter().chain((11..31).flat_map(one)).collect();
    let (events, _) = first(22, steps).await;
    assert_eq!(events[2..], ["+a"; 20]);
    let took = begun.elapsed();
    assert!(
        took <= 20 * REOPEN_CAP && took >= 8 * REOPEN_CAP,
        "{took:?}"
    );
}

/// As kube-apiserver answers for a moment when the definition of the kind has changed.
#[tokio::test(start_paused = true)]
async fn a_kind_whose_storage_is_not_ready_is_asked_for_again_soon() {
    let begun = Instant::now();
    let busy = r#"{"kind":"Status","code":429,"message":"storage is (re)initializing","details":{"retryAfterSeconds":1}}"#;
    let mut steps: Vec<Step> = (0..10)
        .map(|_| Step::Answer(429, busy.to_owned()))
        .collect();
    steps.push(list(1, "", &[]));
    let (events, _) = first(11, steps).await;
    assert_eq!(events[10], "restarted");
    let took = begun.elapsed();
    assert!(
        took <= 10 * REOPEN_CAP && took >= Duration::from_secs(10),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_server_may_ask_to_be_left_alone() {
    let busy = r#"{"kind":"Status","code":429,"message":"x","details":{"retryAfterSeconds":9}}"#;
    let begun = Instant::now();
    let (events, _) = first(
        2,
        vec![Step::Answer(429, busy.to_owned()), list(1, "", &[])],
    )
    .await;
    assert_eq!(events, ["disconnected", "restarted"]);
    assert!(begun.elapsed() >= Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_every_version_is_not_asked_in_a_loop() {
    let begun = Instant::now();
    let steps = (0..20).flat_map(|_| [list(10, "", &[]), Step::Answer(410, status(410, "old"))]);
    first(20, steps.collect()).await;
    assert!(begun.elapsed() > Duration::from_secs(60));
}
