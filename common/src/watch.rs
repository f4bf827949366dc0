//! Lists and watches a collection, raw first: every object is decoded on its own, and a broken one hides
//! no other.
//!
//! Not `kube_runtime::watcher`: it decodes whole typed pages, so that one undecodable object fails its
//! neighbours, and it does not tell its consumer how long a gap was or whether anything was lost in it.
//! Nothing beyond one page or one watch line is held.

mod event;
mod lines;
mod wire;

#[cfg(test)]
mod tests;

pub use event::{Collection, Event, Undecodable, WatchConfig};
pub use wire::ObjectKey;

use crate::backoff::{Backoff, jitter};
use crate::client::{Problem, classify};
use crate::watch::lines::Lines;
use crate::watch::wire::{Page, WireEvent};
use bytes::Bytes;
use futures::Stream;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::params::{ListParams, WatchParams};
use kube::core::request;
use rand::rngs::StdRng;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Longest time the server is asked to keep a watch open.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(200);
/// Longest delay between two attempts to reconnect.
pub const RECONNECT_CAP: Duration = Duration::from_secs(30);
/// The same after a server ended a watch soon, but in order: it answers, and has its reasons, as the change of a CRD.
const REOPEN_CAP: Duration = Duration::from_secs(2);
/// The first delay.
const RECONNECT_BASE: Duration = Duration::from_millis(500);
/// A watch that ends sooner counts as a failure.
const SHORT_LIVED: Duration = Duration::from_secs(5);
/// Over HTTP/1.1 only bookmarks, about one a minute, show that an idle watch lives.
const IDLE_HTTP1: Duration = Duration::from_secs(80);
/// Over HTTP/2 the connection is pinged, so only a server that forgot the watch's end is waited for.
const IDLE_GRACE: Duration = Duration::from_secs(15);
/// How long a page is waited for. Clients made here have a shorter deadline of their own; one that has
/// none must not silence its consumer for ever.
const ANSWER_WITHIN: Duration = Duration::from_secs(45);
/// Longest page that is read: several times the largest object that etcd takes. A longer one is asked for
/// again with fewer objects; a server that minds no limit costs no more memory than this.
const PAGE_MAX: usize = 16 * 1024 * 1024;
/// By how much fewer; and a page has at most so many times as many objects as the one before.
const PAGE_STEP: u32 = 4;
/// Longest answer that is an error.
const ERROR_MAX: usize = 64 * 1024;

/// Watches a collection for ever. Nothing happens unless the stream is polled.
pub fn watch<K>(
    client: kube::Client,
    collection: Collection,
    config: WatchConfig,
) -> impl Stream<Item = Event<K>> + Send
where
    K: DeserializeOwned + Send + 'static,
{
    let rng = config
        .chance
        .stream(&format!("watch of {}", collection.path()));
    let config_page_size = config.page_size.max(1);
    let watcher = Watcher {
        client,
        collection,
        config,
        rng,
        backoff: Backoff::new(RECONNECT_BASE, RECONNECT_CAP),
        reopening: Backoff::new(RECONNECT_BASE, REOPEN_CAP),
        page_size: config_page_size,
        queue: VecDeque::new(),
        ahead: None,
        phase: Phase::List(None),
        version: None,
        heard: None,
        outage: None,
    };
    futures::stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await;
        Some((event, watcher))
    })
}

struct Watcher<K> {
    client: kube::Client,
    collection: Collection,
    config: WatchConfig,
    rng: StdRng,
    backoff: Backoff,
    /// Of watches that were ended in order.
    reopening: Backoff,
    /// Objects that are asked for at once: fewer after a page that was too long, and as many as fit.
    page_size: u32,
    queue: VecDeque<Event<K>>,
    /// The next page, asked for while the objects of this one are taken.
    ahead: Option<Ahead>,
    phase: Phase,
    /// Where the watch goes on.
    version: Option<String>,
    /// When the server was heard last after the first list began.
    heard: Option<Instant>,
    /// Since when nothing is known.
    outage: Option<Instant>,
}

type Ahead = AbortOnDropHandle<Result<Bytes, Unread>>;

enum Phase {
    /// Ask for the first page, or for the one with this token.
    List(Option<String>),
    /// Ask whether the server still knows our version, then open.
    Check,
    /// Open a watch.
    Open,
    /// Read it.
    Read(Reading),
    /// Wait, then go on with something.
    Wait(Duration, Box<Phase>),
}

struct Reading {
    lines: Lines,
    opened: Instant,
    idle: Duration,
}

impl<K: DeserializeOwned + Send + 'static> Watcher<K> {
    async fn next(&mut self) -> Event<K> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            // A step that is dropped half-way lists anew; the stream itself never drops one.
            match std::mem::replace(&mut self.phase, Phase::List(None)) {
                Phase::List(token) => self.list(token).await,
                Phase::Check => self.check().await,
                Phase::Open => self.open().await,
                Phase::Read(reading) => self.read(reading).await,
                Phase::Wait(delay, then) => {
                    tokio::time::sleep(delay).await;
                    self.phase = *then;
                }
            }
        }
    }

    async fn list(&mut self, token: Option<String>) {
        let ahead = self.ahead.take().filter(|_| token.is_some());
        let page = match ahead {
            Some(asked) => asked
                .await
                .unwrap_or_else(|ended| Err(Unread::Problem(Problem::Other(ended.to_string())))),
            None => self.page(token.clone()).await,
        };
        let bytes = match page {
            Ok(bytes) => bytes,
            Err(Unread::TooLong) if self.page_size > 1 => {
                self.page_size = (self.page_size / PAGE_STEP).max(1);
                self.phase = Phase::List(token);
                return;
            }
            Err(Unread::Problem(problem)) if token.is_some() && problem.code() == Some(410) => {
                // The pages no longer belong together: from the beginning.
                self.phase = Phase::Wait(
                    self.backoff.next(&mut self.rng),
                    Box::new(Phase::List(None)),
                );
                return;
            }
            Err(unread) => return self.failed(unread.into(), Phase::List(token)),
        };
        let page = match Page::parse(&bytes) {
            Ok(page) => page,
            Err(error) => {
                return self.failed(Problem::Decode(error.to_string()), Phase::List(token));
            }
        };
        if token.is_none() {
            self.queue.push_back(Event::Init);
        }
        self.queue.extend(page.items().map(|item| decode(item)));
        if let Some(next) = page.next() {
            if let Some(wanted) = self.config.page_bytes {
                self.page_size = next_page(self.page_size, page.len(), bytes.len(), wanted);
                let page = self.page(Some(next.clone()));
                self.ahead = Some(AbortOnDropHandle::new(tokio::spawn(page)));
            }
            self.phase = Phase::List(Some(next));
            return;
        }
        self.version = Some(page.version());
        let now = Instant::now();
        let since = self.outage.take().or(self.heard);
        self.queue.push_back(Event::InitDone {
            gap: since.map(|since| now - since),
        });
        self.heard = Some(now);
        self.phase = Phase::Open;
    }

    /// After an outage the server may be one that was restored from a backup: a watch from a version
    /// it has not reached yet would stay silent until it has.
    async fn check(&mut self) {
        let params = ListParams {
            limit: Some(1),
            ..ListParams::default()
        };
        let result = match self.get_page(params).await {
            Ok(bytes) => Page::parse(&bytes)
                .map(|page| page.version())
                .map_err(|error| Problem::Decode(error.to_string())),
            Err(unread) => Err(unread.into()),
        };
        match result {
            Ok(theirs) if is_behind(&theirs, self.version.as_deref()) => self.relist(),
            Ok(_) => self.phase = Phase::Open,
            Err(problem) => self.failed(problem, Phase::Check),
        }
    }

    async fn open(&mut self) {
        let timeout = jitter(self.config.timeout.min(WATCH_TIMEOUT), &mut self.rng);
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: u32::try_from(timeout.as_secs().max(1)).ok(),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = request::Request::new(self.collection.path());
        let version = self.version.clone().unwrap_or_default();
        let built = if self.config.metadata_only {
            request.watch_metadata(&params, &version)
        } else {
            request.watch(&params, &version)
        };
        let answer = match built {
            Ok(request) => send(&self.client, request).await,
            Err(error) => Err(Problem::Other(error.to_string())),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(problem) if is_gone(&problem) => return self.relist(),
            Err(problem) => return self.failed(problem, Phase::Check),
        };
        let now = Instant::now();
        if let Some(since) = self.outage.take() {
            self.queue.push_back(Event::Resumed { gap: now - since });
        }
        self.heard = Some(now);
        let idle = if answer.version() == Version::HTTP_2 {
            timeout + IDLE_GRACE
        } else {
            IDLE_HTTP1.min(timeout + IDLE_GRACE)
        };
        self.phase = Phase::Read(Reading {
            lines: Lines::new(answer.into_body()),
            opened: now,
            idle,
        });
    }

    async fn read(&mut self, mut reading: Reading) {
        let line = match tokio::time::timeout(reading.idle, reading.lines.next()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return self.ended(&reading),
            Ok(Err(problem)) => return self.failed(problem, Phase::Check),
            Err(_) => {
                let idle = crate::duration::format(reading.idle);
                let problem = Problem::Other(format!("nothing was heard on a watch for {idle}"));
                return self.failed(problem, Phase::Check);
            }
        };
        self.heard = Some(Instant::now());
        match WireEvent::parse(&line) {
            Ok(WireEvent::Applied(object)) => {
                let key = ObjectKey::of(object);
                if is_behind(&key.resource_version, self.version.as_deref()) {
                    return self.relist();
                }
                self.moved_to(&key);
                self.queue.push_back(decode(object));
            }
            Ok(WireEvent::Deleted(object)) => {
                let key = ObjectKey::of(object);
                self.moved_to(&key);
                self.queue.push_back(Event::Deleted(key));
            }
            Ok(WireEvent::Bookmark(object)) => self.moved_to(&ObjectKey::of(object)),
            Ok(WireEvent::Error(problem)) if is_gone(&problem) => return self.relist(),
            Ok(WireEvent::Error(problem)) => return self.failed(problem, Phase::Check),
            Err(error) => {
                return self.failed(Problem::Decode(error.to_string()), Phase::Check);
            }
        }
        if reading.opened.elapsed() >= SHORT_LIVED {
            self.backoff.reset();
            self.reopening.reset();
        }
        self.phase = Phase::Read(reading);
    }

    /// The server ended the watch, as it does at its timeout.
    fn ended(&mut self, reading: &Reading) {
        self.phase = if reading.opened.elapsed() < SHORT_LIVED {
            // In that time the server may be restored to before our version.
            let delay = self.reopening.next(&mut self.rng);
            Phase::Wait(delay, Box::new(Phase::Check))
        } else {
            self.backoff.reset();
            self.reopening.reset();
            Phase::Open
        };
    }

    fn failed(&mut self, problem: Problem, then: Phase) {
        let since = *self
            .outage
            .get_or_insert(self.heard.unwrap_or_else(Instant::now));
        let backoff = if is_initializing(&problem) {
            &mut self.reopening
        } else {
            &mut self.backoff
        };
        let mut delay = backoff.next(&mut self.rng);
        if let Problem::Api {
            retry_after: Some(asked),
            ..
        } = &problem
        {
            delay = delay.max((*asked).min(RECONNECT_CAP));
        }
        self.queue.push_back(Event::Disconnected { since, problem });
        self.phase = Phase::Wait(delay, Box::new(then));
    }

    /// Our version is of no use any more. The first time at once; a server that says so of every
    /// version is not asked in a loop.
    fn relist(&mut self) {
        self.version = None;
        let first = self.backoff.failures() == 0;
        let delay = self.backoff.next(&mut self.rng);
        let delay = if first { Duration::ZERO } else { delay };
        self.phase = Phase::Wait(delay, Box::new(Phase::List(None)));
    }

    fn moved_to(&mut self, key: &ObjectKey) {
        if !key.resource_version.is_empty()
            && !is_behind(&key.resource_version, self.version.as_deref())
        {
            self.version = Some(key.resource_version.clone());
        }
    }

    /// A page of the list, the first one without a token.
    fn page(
        &self,
        token: Option<String>,
    ) -> impl Future<Output = Result<Bytes, Unread>> + Send + use<K> {
        self.get_page(ListParams {
            limit: Some(self.page_size),
            continue_token: token,
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..ListParams::default()
        })
    }

    fn get_page(
        &self,
        params: ListParams,
    ) -> impl Future<Output = Result<Bytes, Unread>> + Send + use<K> {
        let request = request::Request::new(self.collection.path());
        let built = if self.config.metadata_only {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let client = self.client.clone();
        async move {
            let request = built.map_err(|error| Problem::Other(error.to_string()))?;
            in_time(async {
                let answer = send(&client, request).await?;
                let body = Limited::new(answer.into_body(), PAGE_MAX).collect().await;
                Ok(body.map_err(unread)?.to_bytes())
            })
            .await
        }
    }
}

/// How many objects the page after one has that was asked for `limit` of them.
fn next_page(limit: u32, objects: usize, bytes: usize, wanted: u32) -> u32 {
    let each = (bytes / objects.max(1)).max(1);
    let fitting = u32::try_from(wanted as usize / each).unwrap_or(u32::MAX);
    fitting.clamp(1, limit.saturating_mul(PAGE_STEP))
}

fn decode<K: DeserializeOwned>(object: &str) -> Event<K> {
    match serde_json::from_str(object) {
        Ok(object) => Event::Applied(object),
        Err(error) => Event::Undecodable(Undecodable {
            key: ObjectKey::of(object),
            error: error.to_string(),
        }),
    }
}

/// The version is too old, or the server was restored and has not reached it.
fn is_gone(problem: &Problem) -> bool {
    match problem {
        Problem::Api { code: 410, .. } => true,
        Problem::Api { message, .. } => message.contains("Too large resource version"),
        _ => false,
    }
}

/// The kind's definition changed just now: the server answers, and will soon serve it again.
fn is_initializing(problem: &Problem) -> bool {
    matches!(problem, Problem::Api { code: 429, message, .. } if message.contains("initializing"))
}

/// Whether `theirs` is an older version than `ours`; versions of built-in kinds and CRDs are decimal.
fn is_behind(theirs: &str, ours: Option<&str>) -> bool {
    match (theirs.parse::<u64>(), ours.map(str::parse::<u64>)) {
        (Ok(theirs), Some(Ok(ours))) => theirs < ours,
        _ => false,
    }
}

/// Why a page is not there.
enum Unread {
    /// It is longer than [`PAGE_MAX`].
    TooLong,
    /// Anything else.
    Problem(Problem),
}

impl From<Problem> for Unread {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLong => Self::Decode(format!(
                "a list of one object is longer than {} MiB: the server minds no limit",
                PAGE_MAX / (1024 * 1024)
            )),
            Unread::Problem(problem) => problem,
        }
    }
}

fn unread(error: Box<dyn std::error::Error + Send + Sync>) -> Unread {
    if error.is::<LengthLimitError>() {
        return Unread::TooLong;
    }
    Unread::Problem(match error.downcast::<kube::Error>() {
        Ok(error) => classify(&error),
        Err(error) => Problem::Other(error.to_string()),
    })
}

async fn in_time<T, E: From<Problem>>(answer: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::time::timeout(ANSWER_WITHIN, answer)
        .await
        .unwrap_or_else(|_| {
            let waited = crate::duration::format(ANSWER_WITHIN);
            Err(Problem::Other(format!("no answer within {waited}")).into())
        })
}

async fn send(client: &kube::Client, request: Request<Vec<u8>>) -> Result<Response<Body>, Problem> {
    let answer = client
        .send(request.map(Body::from))
        .await
        .map_err(|error| classify(&error))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ERROR_MAX).collect().await;
    let text = body.map(|b| b.to_bytes()).unwrap_or_default();
    Err(wire::status_problem(&text, code))
}
