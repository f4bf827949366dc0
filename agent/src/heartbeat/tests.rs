//! The rhythm against a scripted hub, under paused time.

use super::*;
use crate::testing;
use http::Response;
use kube::client::Body;
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<(Duration, String)>>>;

/// Runs the heartbeat for `length` against a hub that answers renewal `n` as `answer(n)` says:
/// a status code, or none for silence.
async fn observe(length: Duration, answer: fn(usize) -> Option<u16>) -> Vec<(Duration, String)> {
    observe_as(false, length, answer).await
}

/// The same, with hand-made credentials or not.
async fn observe_as(
    by_hand: bool,
    length: Duration,
    answer: fn(usize) -> Option<u16>,
) -> Vec<(Duration, String)> {
    let (log, hub) = scripted(answer);
    let context = match by_hand {
        true => testing::context_by_hand(hub.clone(), hub, false).await,
        false => testing::context(hub.clone(), hub).await,
    };
    beat(context, length, &log).await
}

/// The same of an agent that gives signs of life every second.
async fn observe_signs(
    length: Duration,
    answer: fn(usize) -> Option<u16>,
) -> Vec<(Duration, String)> {
    let (log, hub) = scripted(answer);
    let mut context = testing::context(hub.clone(), hub).await;
    let mut config = (*context.config).clone();
    config.lease.liveness = Some(Duration::from_secs(1));
    context.config = Arc::new(config);
    beat(context, length, &log).await
}

/// A hub that answers like this, and what it was asked: line, body and what is said of the next sign.
fn scripted(answer: fn(usize) -> Option<u16>) -> (Log, Client) {
    let log = Log::default();
    let noted = Arc::clone(&log);
    let start = Instant::now();
    let hub = testing::service(move |request| {
        let log = Arc::clone(&noted);
        async move {
            let (parts, body) = request.into_parts();
            let body = testing::bytes(body).await;
            let next = common::liveness::read(&parts.headers);
            let next = next.map_or_else(String::new, |next| format!(" next {next:?}"));
            let n = {
                let mut log = log.lock().expect("not poisoned");
                let line = format!("{} {} {body}{next}", parts.method, parts.uri.path());
                log.push((start.elapsed(), line));
                log.len() - 1
            };
            match answer(n) {
                Some(code) => {
                    // A Lease without anything in it, or a Status.
                    let body =
                        Body::from(format!(r#"{{"code":{code},"metadata":{{}}}}"#).into_bytes());
                    Response::builder()
                        .status(code)
                        .body(body)
                        .expect("a response")
                }
                None => std::future::pending().await,
            }
        }
    });
    (log, hub)
}

/// Runs the heartbeat for so long, and ends it in order.
async fn beat(context: AgentContext, length: Duration, log: &Log) -> Vec<(Duration, String)> {
    let shutdown = context.shutdown.clone();
    let part = tokio::spawn(run(context));
    tokio::time::sleep(length).await;
    shutdown.cancel();
    part.await.expect("stops");
    let log = log.lock().expect("not poisoned");
    log.clone()
}

fn gaps(log: &[(Duration, String)]) -> Vec<Duration> {
    log.windows(2).map(|w| w[1].0 - w[0].0).collect()
}

#[tokio::test(start_paused = true)]
async fn renewals_touch_nothing_but_the_time() {
    let log = observe(Duration::from_secs(101), |_| Some(200)).await;
    assert!(log[0].0 < Duration::from_secs(1), "at once");
    assert_eq!(log.len(), 10);
    for gap in gaps(&log) {
        assert!(
            gap >= Duration::from_secs(10) && gap <= Duration::from_millis(10_450),
            "{gap:?}"
        );
    }
    let path = "PATCH /apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1 ";
    let body = log[0]
        .1
        .strip_prefix(path)
        .expect("the Lease of the cluster");
    let body: serde_json::Value = serde_json::from_str(body).expect("json");
    let spec = body["spec"].as_object().expect("spec");
    assert_eq!(body.as_object().expect("object").len(), 1);
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["renewTime"]);
}

/// With hand-made credentials a Lease that is not there is made, renewed now; with our own it is not.
#[tokio::test(start_paused = true)]
async fn a_missing_lease_is_made_with_hand_made_credentials() {
    let first_is_missing = |n| Some(if n == 0 { 404 } else { 200 });
    let log = observe_as(true, Duration::from_secs(25), first_is_missing).await;
    let lines: Vec<&str> = log.iter().map(|(_, line)| line.as_str()).collect();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases";
    let made = lines[1]
        .strip_prefix(&format!("POST {leases} "))
        .expect("it is made at once");
    let made: serde_json::Value = serde_json::from_str(made).expect("json");
    assert_eq!(made["metadata"]["name"], "m1");
    assert_eq!(made["spec"]["holderIdentity"], "m1");
    assert_eq!(made["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(made["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
    let renewed = lines[2..]
        .iter()
        .all(|line| line.starts_with(&format!("PATCH {leases}/m1 ")));
    assert!(renewed && lines.len() >= 4, "{lines:?}");

    let log = observe_as(false, Duration::from_secs(5), first_is_missing).await;
    assert!(
        log.iter().all(|(_, line)| line.starts_with("PATCH ")),
        "{log:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_hub_is_asked_again_before_the_grace_is_over() {
    let log = observe(Duration::from_secs(60), |n| (n != 2).then_some(200)).await;
    let gaps = gaps(&log);
    assert!(gaps[2] <= Duration::from_secs(5), "{gaps:?}");
    assert!(gaps[3] >= Duration::from_secs(10), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_refuses_is_not_hammered() {
    let log = observe(Duration::from_secs(600), |_| Some(503)).await;
    assert!(log.len() < 80, "{}", log.len());
}

const EMPTY: &str =
    "PATCH /apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1 {} next ";

#[tokio::test(start_paused = true)]
async fn signs_between_renewals_change_nothing_and_end_with_a_word() {
    let log = observe_signs(Duration::from_millis(29_500), |_| Some(200)).await;
    let (last, all) = log.split_last().expect("some");
    assert_eq!(last.1, format!("{EMPTY}0ns"));
    let renewals = all.iter().filter(|(_, line)| line.contains("renewTime"));
    assert_eq!(renewals.count(), 3);
    for (_, line) in all {
        assert!(line.ends_with(" next 1s"), "{line}");
        assert!(
            line.contains("renewTime") || line.starts_with(EMPTY),
            "{line}"
        );
    }
    for gap in gaps(all) {
        assert!(gap <= Duration::from_millis(1_001), "{gap:?}");
    }
    let usual = observe(Duration::from_secs(5), |_| Some(200)).await;
    assert!(usual.iter().all(|(_, line)| !line.contains("next")));
    assert_eq!(usual.len(), 1, "{usual:?}");
}

/// A sign that is not answered is given again beside it, and then anew; a hub that refuses is not hammered.
#[tokio::test(start_paused = true)]
async fn signs_that_fail_are_made_up() {
    let log = observe_signs(Duration::from_millis(3_900), |n| (n != 1).then_some(200)).await;
    let times = |log: &[(Duration, String)]| -> Vec<u128> {
        let all = log.iter().map(|(at, _)| at.as_millis() / 10 * 10);
        all.collect()
    };
    assert_eq!(times(&log), [0, 1_000, 1_250, 2_000, 3_000, 3_900]);
    let lost = observe_signs(Duration::from_millis(3_900), |n| (n == 0).then_some(200)).await;
    assert_eq!(
        times(&lost)[..7],
        [0, 1_000, 1_250, 1_750, 2_000, 2_500, 2_750]
    );
    let refused = observe_signs(Duration::from_secs(60), |n| {
        Some(if n == 0 { 200 } else { 503 })
    });
    let refused = refused.await;
    assert!(refused.len() < 200, "{}", refused.len());
}
