//! Lists and watches a collection, raw first: every object is decoded on its own, and a broken one hides
//! no other.
//!
//! Not `kube_runtime::watcher`: it decodes whole typed pages, so that one undecodable object fails its
//! neighbours, and it does not tell its consumer how long a gap was or whether anything was lost in it.
//! Nothing beyond one page or one watch line is held.

mod ask;
mod event;
mod lines;
mod pages;
mod wire;

#[cfg(test)]
mod tests;

pub use event::{Collection, Decode, Event, Undecodable, WatchConfig};
pub use wire::ObjectKey;

use crate::backoff::{Backoff, jitter};
use crate::client::Problem;
use crate::watch::ask::{ANSWER_WITHIN, send};
use crate::watch::lines::Lines;
use crate::watch::wire::WireEvent;
use futures::Stream;
use http::{Response, Version};
use kube::client::Body;
use kube::core::params::WatchParams;
use kube::core::request;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

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

/// Watches a collection for ever. Nothing happens unless the stream is polled.
pub fn watch<K>(
    client: kube::Client,
    collection: Collection,
    config: WatchConfig,
) -> impl Stream<Item = Event<K>> + Send
where
    K: Decode,
{
    let rng = config
        .chance
        .stream(&format!("watch of {}", collection.path()));
    let page_size = config.page_size.max(1);
    let streams = config.streams;
    let watcher = Watcher {
        client,
        collection,
        config,
        rng,
        backoff: Backoff::new(RECONNECT_BASE, RECONNECT_CAP),
        reopening: Backoff::new(RECONNECT_BASE, REOPEN_CAP),
        page_size,
        page_failures: 0,
        streams,
        queue: VecDeque::new(),
        phase: begin(streams),
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
    /// How often in a row the page did not come that is asked for.
    page_failures: u32,
    /// The server sends a list as the beginning of a watch, as far as is known.
    streams: bool,
    queue: VecDeque<Event<K>>,
    phase: Phase,
    /// Where the watch goes on, and the version of the list while it comes by pages.
    version: Option<String>,
    /// When the server was heard last after the first list began.
    heard: Option<Instant>,
    /// Since when nothing is known.
    outage: Option<Instant>,
}

enum Phase {
    /// Ask for the list as the beginning of a watch.
    Stream,
    /// Ask for the first page, or for the one with this token.
    List(Option<String>),
    /// Ask whether the server still knows our version, then open, or go on with the list at this token.
    Check(Option<String>),
    /// Open a watch.
    Open,
    /// Read it.
    Read(Reading),
    /// Wait, then go on with something.
    Wait(Duration, Box<Phase>),
}

/// How a list begins.
fn begin(streams: bool) -> Phase {
    match streams {
        true => Phase::Stream,
        false => Phase::List(None),
    }
}

struct Reading {
    lines: Lines,
    opened: Instant,
    idle: Duration,
    /// What comes is the list, until the mark at its end.
    initial: bool,
}

impl<K: Decode> Watcher<K> {
    async fn next(&mut self) -> Event<K> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            // A step that is dropped half-way lists anew; the stream itself never drops one.
            let anew = begin(self.streams);
            match std::mem::replace(&mut self.phase, anew) {
                Phase::Stream => self.stream().await,
                Phase::List(token) => self.list(token).await,
                Phase::Check(token) => self.check(token).await,
                Phase::Open => self.open().await,
                Phase::Read(reading) => self.read(reading).await,
                Phase::Wait(delay, then) => {
                    tokio::time::sleep(delay).await;
                    self.phase = *then;
                }
            }
        }
    }

    /// Everything that there was at a version was told.
    fn listed(&mut self, version: String) {
        self.version = Some(version.clone());
        let now = Instant::now();
        let since = self.outage.take().or(self.heard);
        self.queue.push_back(Event::InitDone {
            gap: since.map(|since| now - since),
            version,
        });
        self.heard = Some(now);
    }

    /// A server with the feature WatchList sends everything from memory, as of now, and goes on with what happens;
    /// pages it may have to read from storage, one after the other. Where it does not, they have to do, and from then
    /// on: also when this breaks off, for a list that takes longer than whatever ends it would never be whole.
    async fn stream(&mut self) {
        let (answer, timeout) = match self.ask_watch("", true).await {
            Ok(answered) => answered,
            Err(Problem::Api {
                code: 400 | 422, ..
            }) => {
                self.streams = false;
                self.phase = begin(self.streams);
                return;
            }
            Err(problem) => return self.failed(problem, begin(self.streams)),
        };
        self.queue.push_back(Event::Init);
        self.phase = Phase::Read(Reading {
            idle: idle(&answer, timeout),
            lines: Lines::new(answer.into_body()),
            opened: Instant::now(),
            initial: true,
        });
    }

    async fn open(&mut self) {
        let version = self.version.clone().unwrap_or_default();
        let (answer, timeout) = match self.ask_watch(&version, false).await {
            Ok(answered) => answered,
            Err(problem) if is_gone(&problem) => return self.relist(),
            Err(problem) => return self.failed(problem, Phase::Check(None)),
        };
        let now = Instant::now();
        if let Some(since) = self.outage.take() {
            self.queue.push_back(Event::Resumed { gap: now - since });
        }
        self.heard = Some(now);
        self.phase = Phase::Read(Reading {
            idle: idle(&answer, timeout),
            lines: Lines::new(answer.into_body()),
            opened: now,
            initial: false,
        });
    }

    /// Asks for a watch, and says how long the server was asked to keep it.
    async fn ask_watch(
        &mut self,
        version: &str,
        initial: bool,
    ) -> Result<(Response<Body>, Duration), Problem> {
        let timeout = jitter(self.config.timeout.min(WATCH_TIMEOUT), &mut self.rng);
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: u32::try_from(timeout.as_secs().max(1)).ok(),
            bookmarks: true,
            send_initial_events: initial,
        };
        let request = request::Request::new(self.collection.path());
        let built = if self.config.metadata_only {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        let request = built.map_err(|error| Problem::Other(error.to_string()))?;
        Ok((send(&self.client, request).await?, timeout))
    }

    async fn read(&mut self, mut reading: Reading) {
        let idle = match reading.initial {
            true => ANSWER_WITHIN,
            false => reading.idle,
        };
        let line = match tokio::time::timeout(idle, reading.lines.next()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) if reading.initial => {
                let problem = Problem::Other("a list ended before its end".to_owned());
                return self.broke(problem, &reading);
            }
            Ok(Ok(None)) => return self.ended(&reading),
            Ok(Err(problem)) => return self.broke(problem, &reading),
            Err(_) => {
                let idle = crate::duration::format(idle);
                let problem = Problem::Other(format!("nothing was heard on a watch for {idle}"));
                return self.broke(problem, &reading);
            }
        };
        if reading.initial {
            return self.take_initial(&line, reading);
        }
        self.heard = Some(Instant::now());
        match WireEvent::parse(&line) {
            Ok(WireEvent::Applied(object, event)) => {
                let key = ObjectKey::of(object);
                if is_behind(&key.resource_version, self.version.as_deref()) {
                    return self.relist();
                }
                self.moved_to(&key);
                self.queue.push_back(event);
            }
            Ok(WireEvent::Deleted(object)) => {
                let key = ObjectKey::of(object);
                self.moved_to(&key);
                self.queue.push_back(Event::Deleted(key));
            }
            Ok(WireEvent::Bookmark(object)) => self.moved_to(&ObjectKey::of(object)),
            Ok(WireEvent::Error(problem)) if is_gone(&problem) => return self.relist(),
            Ok(WireEvent::Error(problem)) => return self.broke(problem, &reading),
            Err(error) => return self.broke(Problem::Decode(error.to_string()), &reading),
        }
        if reading.opened.elapsed() >= SHORT_LIVED {
            self.backoff.reset();
            self.reopening.reset();
        }
        self.phase = Phase::Read(reading);
    }

    /// What is listed comes in no order of versions, and with what happens meanwhile.
    fn take_initial(&mut self, line: &[u8], mut reading: Reading) {
        match WireEvent::parse(line) {
            Ok(WireEvent::Applied(_, event)) => self.queue.push_back(event),
            Ok(WireEvent::Deleted(object)) => {
                self.queue.push_back(Event::Deleted(ObjectKey::of(object)));
            }
            Ok(WireEvent::Bookmark(object)) => {
                if wire::ends_list(object) {
                    self.listed(ObjectKey::of(object).resource_version);
                    reading.initial = false;
                }
            }
            Ok(WireEvent::Error(problem)) => return self.broke(problem, &reading),
            Err(error) => return self.broke(Problem::Decode(error.to_string()), &reading),
        }
        self.phase = Phase::Read(reading);
    }

    /// A watch is of no use any more.
    fn broke(&mut self, problem: Problem, reading: &Reading) {
        if reading.initial {
            self.streams = false;
            self.failed(problem, Phase::List(None));
        } else {
            self.failed(problem, Phase::Check(None));
        }
    }

    /// The server ended the watch, as it does at its timeout.
    fn ended(&mut self, reading: &Reading) {
        self.phase = if reading.opened.elapsed() < SHORT_LIVED {
            // In that time the server may be restored to before our version.
            let delay = self.reopening.next(&mut self.rng);
            Phase::Wait(delay, Box::new(Phase::Check(None)))
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
        self.phase = Phase::Wait(delay, Box::new(begin(self.streams)));
    }

    fn moved_to(&mut self, key: &ObjectKey) {
        if !key.resource_version.is_empty()
            && !is_behind(&key.resource_version, self.version.as_deref())
        {
            self.version = Some(key.resource_version.clone());
        }
    }
}

/// How long nothing may be heard on a watch.
fn idle(answer: &Response<Body>, timeout: Duration) -> Duration {
    let longest = timeout + IDLE_GRACE;
    match answer.version() {
        Version::HTTP_2 => longest,
        _ => IDLE_HTTP1.min(longest),
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
