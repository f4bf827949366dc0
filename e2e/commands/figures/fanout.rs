//! One namespace with many watchers, each on a connection of its own.

use anyhow::{Context as _, Result};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::server::{Server, ask, send};
use super::writers::make_namespace;
use crate::commands::latency::Latency;

const NAMESPACE: &str = "fan-out";
/// Pause between two events while the time of one is measured: it has to be over by then.
const PACE: Duration = Duration::from_millis(250);
/// Events that are written one upon the other to see how many are delivered a second.
const BURST: usize = 100;
const CONNECTING: usize = 32;
const WITHIN: Duration = Duration::from_secs(300);

/// What the watchers saw.
pub(super) struct Seen {
    /// From the answer to a write until one watcher had its event.
    pub(super) latency: Latency,
    /// Deliveries a second.
    pub(super) rate: f64,
}

/// Shared by the writer and the watchers.
#[derive(Default)]
struct Board {
    /// When each write was answered.
    written: Mutex<Vec<Instant>>,
    /// When each watcher had each event, and the number of the event.
    seen: Mutex<Vec<(usize, Instant)>>,
    count: AtomicUsize,
    wanted: AtomicUsize,
    all: Notify,
}

impl Board {
    fn saw(&self, event: usize) {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((event, now));
        drop(seen);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.all.notify_one();
        }
    }

    /// Waits until so many deliveries were made in all.
    async fn wait(&self, wanted: usize) -> Result<()> {
        self.wanted.store(wanted, Ordering::Relaxed);
        let deadline = Instant::now() + WITHIN;
        while self.count.load(Ordering::Relaxed) < wanted {
            let looked = (Instant::now() + Duration::from_secs(1)).min(deadline);
            tokio::select! {
                biased;
                () = self.all.notified() => {}
                () = sleep_until(looked) => {}
            }
            let count = self.count.load(Ordering::Relaxed);
            anyhow::ensure!(
                Instant::now() < deadline,
                "{count} of {wanted} deliveries were made"
            );
        }
        Ok(())
    }
}

/// Lets so many watch while one writes, first slowly and then as fast as it can.
pub(super) async fn measure(server: &Server, count: usize, within: Duration) -> Result<Seen> {
    let writer = server.writer().await?;
    make_namespace(&writer, NAMESPACE).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let version = revision(server, &path).await?;
    let watch = &format!(
        "{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600&fieldSelector=metadata.name%21%3Dkube-root-ca.crt"
    );
    let board = Arc::new(Board::default());
    let bodies: Vec<(kube::Client, Body)> = stream::iter((0..count).map(|_| async move {
        let client = server.writer().await?;
        let answer = ask(&client, Method::GET, watch, Vec::new()).await?;
        anyhow::ensure!(answer.status().is_success(), "{watch}: {}", answer.status());
        Ok((client, answer.into_body()))
    }))
    .buffer_unordered(CONNECTING)
    .try_collect()
    .await?;
    let mut watchers = JoinSet::new();
    for (client, body) in bodies {
        watchers.spawn(follow(client, body, board.clone()));
    }
    let paced = usize::try_from(within.as_millis() / PACE.as_millis())
        .unwrap_or(1)
        .max(1);
    let began = Instant::now();
    for number in 0..paced {
        sleep_until(began + PACE * u32::try_from(number)?).await;
        write(&writer, &path, number, &board).await?;
    }
    board.wait(paced * count).await?;
    let latency = {
        let written = board.written.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = board.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // An event may be there before the answer to its write.
        let times = seen
            .iter()
            .filter_map(|(event, at)| Some(at.saturating_duration_since(*written.get(*event)?)));
        Latency::of(&times.collect::<Vec<_>>())
    };
    let began = Instant::now();
    for number in paced..paced + BURST {
        write(&writer, &path, number, &board).await?;
    }
    board.wait((paced + BURST) * count).await?;
    Ok(Seen {
        latency,
        rate: (BURST * count) as f64 / began.elapsed().as_secs_f64(),
    })
}

async fn write(client: &kube::Client, path: &str, number: usize, board: &Board) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("e-{number}")}, "data": {"k": "v".repeat(200)}});
    send(client, Method::POST, path, object.to_string().into_bytes()).await?;
    let mut written = board.written.lock().unwrap_or_else(PoisonError::into_inner);
    written.push(Instant::now());
    Ok(())
}

/// Counts the lines of a watch: each is the next event. The client keeps the connection.
async fn follow(client: kube::Client, mut body: Body, board: Arc<Board>) {
    let mut event = 0;
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        for _ in data.iter().filter(|byte| **byte == b'\n') {
            board.saw(event);
            event += 1;
        }
    }
    drop(client);
}

async fn revision(server: &Server, path: &str) -> Result<String> {
    let client = server.writer().await?;
    let answer = ask(&client, Method::GET, path, Vec::new());
    let answer = timeout(WITHIN, answer)
        .await
        .context("no answer to a list")??;
    let list = answer.into_body().collect().await?.to_bytes();
    let list: serde_json::Value = serde_json::from_slice(&list)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version
        .context("a list without a resourceVersion")?
        .to_owned())
}
