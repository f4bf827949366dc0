//! What runs pods in a member: after a while as many are ready as a Deployment asks for.

use super::books::number;
use super::get;
use crate::apiserver::http::Link;
use crate::serve::tests::rig::ask;
use bytes::Bytes;
use common::chance::SharedStream;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use rand::Rng as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// Plays them, for ever.
pub(super) async fn run(link: Link, draws: SharedStream) {
    let mut due: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        let request = Request::get(format!("{DEPLOYMENTS}?watch=1&resourceVersion=0"));
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let Ok(answer) = tower::ServiceExt::oneshot(link.clone(), request).await;
        let mut body = answer.into_body();
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let first = due.iter().min_by_key(|(_, at)| **at);
            let first = first.map(|(path, at)| (path.clone(), *at));
            tokio::select! {
                biased;
                frame = body.frame() => {
                    let Some(Ok(frame)) = frame else { break };
                    let Ok(data) = frame.into_data() else { continue };
                    rest.extend_from_slice(&data);
                }
                path = falls_due(first) => {
                    due.remove(&path);
                    let object = get(&link, &path).await;
                    if let Some(status) = next(&object) {
                        let patch = json!({"status": status});
                        ask(&link, "PATCH", &format!("{path}/status"), patch).await;
                    }
                    continue;
                }
            }
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).expect("an event");
                let object = &event["object"];
                if event["type"] == "DELETED" || next(object).is_none() {
                    continue;
                }
                let metadata = &object["metadata"];
                let of = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
                let (space, name) = (of("namespace"), of("name"));
                let path = format!("/apis/apps/v1/namespaces/{space}/deployments/{name}");
                let wait = draws.draw(|rng| rng.random_range(100..1_500));
                let at = Instant::now() + Duration::from_millis(wait);
                due.entry(path).or_insert(at);
            }
        }
    }
}

async fn falls_due(first: Option<(String, Instant)>) -> String {
    match first {
        Some((path, at)) => {
            sleep_until(at).await;
            path
        }
        None => std::future::pending().await,
    }
}

/// The status that a Deployment has next: its pods are made, and are ready later; none at rest.
fn next(object: &Value) -> Option<Value> {
    if object["metadata"].is_null() {
        return None;
    }
    let wanted = number(object, "/spec/replicas");
    let generation = number(object, "/metadata/generation");
    let ready = number(object, "/status/readyReplicas");
    let is_made = number(object, "/status/observedGeneration") == generation
        && number(object, "/status/replicas") == wanted;
    let ready = match is_made {
        true if ready == wanted => return None,
        true => wanted,
        false => ready.min(wanted),
    };
    Some(
        json!({"observedGeneration": generation, "replicas": wanted, "updatedReplicas": wanted,
        "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": wanted - ready}),
    )
}
