//! A scripted API server in process: it replays lists, watches and 410s, and judges nothing.
//!
//! Objects change only when a test says so, or when the monitor writes; every write is recorded with its
//! time. It can refuse, answer errors, swallow what it is sent, break its watches, and forget history.

use bytes::Bytes;
use common::client::REQUEST_TIMEOUT;
use common::signal;
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// How it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Well.
    Up,
    /// Every connection is silent: nothing is answered and nothing refused.
    Hole,
    /// New connections are refused and old ones closed.
    Refuse,
    /// It answers, but its store is gone.
    Broken,
}

/// A write of the monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: Duration,
    pub(super) name: String,
    pub(super) reason: String,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// `clusters` or `leases`, then name.
    objects: BTreeMap<(&'static str, String), Value>,
    /// Version, resource, line.
    history: Vec<(u64, &'static str, String)>,
    /// What is older is gone.
    floor: u64,
    marks: Vec<Mark>,
}

/// The server; clones share it.
#[derive(Clone)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
    mode: signal::Sender<Mode>,
    /// Counts changes of the state, and breaks of watches.
    changed: signal::Sender<(u64, u64)>,
    start: Instant,
    latency: Duration,
    running: Arc<AtomicUsize>,
    pub(super) most: Arc<AtomicUsize>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            state: Arc::default(),
            mode: signal::Sender::new(Mode::Up),
            changed: signal::Sender::new((0, 0)),
            start: Instant::now(),
            latency: Duration::from_millis(1),
            running: Arc::default(),
            most: Arc::default(),
        }
    }

    pub(super) fn client(&self) -> Client {
        let world = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let world = world.clone();
            async move { world.answer(request).await }
        });
        Client::new(service, "default")
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn marks(&self) -> Vec<Mark> {
        self.lock().marks.clone()
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.break_watches();
        }
    }

    /// Ends every open watch.
    pub(super) fn break_watches(&self) {
        self.changed.send_modify(|(_, breaks)| *breaks += 1);
    }

    /// Forgets history: the next watch from an old version is answered 410.
    pub(super) fn compact(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.floor = state.version;
        state.history.clear();
    }

    /// Makes a pull Cluster and a Lease that was never renewed.
    pub(super) fn create(&self, name: &str) {
        self.put("clusters", name, json!({"spec": {"syncMode": "Pull"}}));
        self.put("leases", name, json!({"spec": {"holderIdentity": name}}));
    }

    /// The agent posts a Ready of this message.
    pub(super) fn post(&self, name: &str, message: &str) {
        let ready = json!({"type": "Ready", "status": "True", "reason": "ClusterReady", "message": message});
        let status = json!({"spec": {"syncMode": "Pull"}, "status": {"conditions": [ready]}});
        self.put("clusters", name, status);
    }

    /// The agent renews, claiming this time.
    pub(super) fn renew(&self, name: &str, claimed: &str) {
        self.put(
            "leases",
            name,
            json!({"spec": {"holderIdentity": name, "renewTime": claimed}}),
        );
    }

    /// Stores an object as it is.
    pub(super) fn put(&self, resource: &'static str, name: &str, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        object["metadata"] =
            json!({"name": name, "uid": name, "resourceVersion": version.to_string()});
        let line = json!({"type": "MODIFIED", "object": object}).to_string();
        state.objects.insert((resource, name.to_owned()), object);
        state.history.push((version, resource, line));
        drop(state);
        self.changed.send_modify(|(changes, _)| *changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while holding it")
    }

    async fn answer(&self, request: Request<Body>) -> Result<Answer, std::io::Error> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let _running = Running(Arc::clone(&self.running));
        sleep(self.latency).await;
        let mode = self.mode();
        match mode {
            // As the client's own layer does, below which this is.
            Mode::Hole => {
                sleep(REQUEST_TIMEOUT).await;
                return Err(std::io::Error::other("no answer"));
            }
            Mode::Refuse => return Err(std::io::Error::other("connection refused")),
            Mode::Broken => return Ok(status(500, "the store is gone")),
            Mode::Up => {}
        }
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().trim_matches('/').to_owned();
        let query: HashMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let words: Vec<&str> = path.split('/').collect();
        Ok(match (parts.method, words.as_slice()) {
            (Method::GET, ["api", "v1", "namespaces", name]) => {
                json_answer(&json!({"metadata": {"name": name}}))
            }
            (Method::GET, [.., "clusters"]) => self.collection("clusters", &query),
            (Method::GET, [.., "leases"]) => self.collection("leases", &query),
            (Method::GET, [.., "clusters", name]) => self.get("clusters", name),
            (Method::GET, [.., "leases", name]) => self.get("leases", name),
            (Method::PATCH, [.., "clusters", name, "status"]) => {
                let bytes = body.collect().await.expect("a body").to_bytes();
                self.patch(name, &serde_json::from_slice(&bytes).expect("JSON"))
            }
            (method, _) => panic!("not in the script: {method} {path}"),
        })
    }

    fn get(&self, resource: &'static str, name: &str) -> Answer {
        match self.lock().objects.get(&(resource, name.to_owned())) {
            Some(object) => json_answer(object),
            None => status(404, "not found"),
        }
    }

    fn patch(&self, name: &str, patch: &Value) -> Answer {
        let current = {
            let state = self.lock();
            state.objects.get(&("clusters", name.to_owned())).cloned()
        };
        let Some(mut object) = current else {
            return status(404, "not found");
        };
        if patch["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return status(409, "somebody was faster");
        }
        let ready = patch["status"]["conditions"]
            .as_array()
            .and_then(|list| list.iter().find(|c| c["type"] == "Ready"))
            .expect("the monitor writes Ready");
        let mark = Mark {
            at: self.elapsed(),
            name: name.to_owned(),
            reason: ready["reason"].as_str().expect("a reason").to_owned(),
        };
        object["status"] = patch["status"].clone();
        self.lock().marks.push(mark);
        self.put("clusters", name, object);
        self.get("clusters", name)
    }

    fn collection(&self, resource: &'static str, query: &HashMap<String, String>) -> Answer {
        if query.contains_key("sendInitialEvents") {
            // As Kubernetes 1.33.
            return status(422, "sendInitialEvents is forbidden");
        }
        if query.contains_key("watch") {
            let from = query
                .get("resourceVersion")
                .and_then(|v| v.parse().ok())
                .unwrap_or(0);
            let seconds = query
                .get("timeoutSeconds")
                .and_then(|v| v.parse().ok())
                .unwrap_or(200);
            return self.watch(resource, from, Duration::from_secs(seconds));
        }
        let number = |key: &str| query.get(key).and_then(|value| value.parse::<usize>().ok());
        let (skip, limit) = (
            number("continue").unwrap_or(0),
            number("limit").unwrap_or(usize::MAX),
        );
        let state = self.lock();
        let all: Vec<&Value> = state
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == resource)
            .map(|(_, object)| object)
            .collect();
        let items: Vec<&Value> = all.iter().skip(skip).take(limit).copied().collect();
        let next = skip + items.len();
        let more = if next < all.len() {
            next.to_string()
        } else {
            String::new()
        };
        json_answer(&json!({
            "kind": "List",
            "metadata": {"resourceVersion": state.version.to_string(), "continue": more},
            "items": items,
        }))
    }

    fn watch(&self, resource: &'static str, from: u64, lasts: Duration) -> Answer {
        if from < self.lock().floor {
            return status(410, "too old");
        }
        let watching = Watching {
            world: self.clone(),
            resource,
            sent: from,
            end: Instant::now() + lasts,
            breaks: self.changed.borrow().1,
        };
        let lines = stream::unfold(watching, |mut watching| async move {
            let line = watching.next().await?;
            Some((
                Ok::<_, Infallible>(Frame::data(Bytes::from(line + "\n"))),
                watching,
            ))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

struct Watching {
    world: World,
    resource: &'static str,
    sent: u64,
    end: Instant,
    breaks: u64,
}

impl Watching {
    /// The next line; none at the end.
    async fn next(&mut self) -> Option<String> {
        let mut changed = self.world.changed.subscribe();
        let mut mode = self.world.mode.subscribe();
        // Bookmarks come about once a minute from a real server.
        let bookmark = Instant::now() + Duration::from_secs(60);
        loop {
            while *mode.borrow_and_update() == Mode::Hole {
                mode.changed()
                    .await
                    .expect("the world outlives its watches");
            }
            if changed.borrow_and_update().1 != self.breaks {
                return None;
            }
            let line = {
                let state = self.world.lock();
                let newer = state
                    .history
                    .partition_point(|(version, ..)| *version <= self.sent);
                let mut rest = state.history[newer..].iter();
                rest.find(|(_, kind, _)| *kind == self.resource).cloned()
            };
            if let Some((version, _, line)) = line {
                self.sent = version;
                return Some(line);
            }
            tokio::select! {
                biased;
                changed = changed.changed() => changed.expect("the world outlives its watches"),
                changed = mode.changed() => changed.expect("the world outlives its watches"),
                () = sleep_until(self.end) => return None,
                () = sleep_until(bookmark) => {
                    let metadata = json!({"resourceVersion": self.sent.to_string()});
                    let object = json!({"metadata": metadata});
                    return Some(json!({"type": "BOOKMARK", "object": object}).to_string());
                }
            }
        }
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn json_answer(value: &Value) -> Answer {
    Response::new(Full::from(value.to_string()).boxed_unsync())
}

fn status(code: u16, message: &str) -> Answer {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "reason": reason, "message": message, "code": code,
    });
    let mut response = json_answer(&body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}

/// An agent that renews every ten seconds while it can, trying again every two while it cannot.
pub(super) async fn agent(world: World, name: String, until: Instant) {
    let mut count = 0_u64;
    loop {
        let up = world.mode() == Mode::Up;
        if up {
            count += 1;
            world.renew(&name, &format!("{name}-{count}"));
        }
        let pause = Duration::from_secs(if up { 10 } else { 2 });
        if timeout_at(until, sleep(pause)).await.is_err() {
            return;
        }
    }
}
