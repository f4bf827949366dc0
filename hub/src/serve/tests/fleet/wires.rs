//! The network of a simulation: servers by their addresses, and lines to them that take their time and write
//! down what is asked on them and what is answered.

mod answers;
mod bytes;
mod heard;
mod played;
mod under_way;

pub(super) use bytes::{Endpoint, Way};
pub(super) use heard::Heard;

use super::super::rig::Trace;
use super::crash::Crashes;
use super::essence::essence;
use super::faults::{self, Asked, Fate, Faults};
use super::plan::SPACES;
use crate::apiserver::http::router::Router;
use crate::apiserver::http::{Link, Protocol};
use ::bytes::Bytes;
use answers::{refusal, reset, whole};
use common::chance::SharedStream;
use common::client::HostPort;
use common::lock::lock;
use common::network::{Agreed, Line, LineBody, Network, Reached};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header, request};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use kube::client::Body;
use played::Played;
use rand::Rng as _;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::util::BoxCloneService;
use under_way::Counts;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The longest way of a request, and of its answer.
const LONGEST_WAY: Duration = Duration::from_millis(20);

/// A server that can be reached.
#[derive(Clone)]
struct Site {
    name: String,
    router: Router,
    chain: Vec<CertificateDer<'static>>,
    /// Cancelled when it is killed: every connection breaks.
    killed: CancellationToken,
    /// Cancelled when it ends in order.
    ends: CancellationToken,
}

/// All servers, and everything that passes between them and their clients. Clones share it.
#[derive(Clone)]
pub(super) struct World {
    sites: Arc<Mutex<BTreeMap<HostPort, Site>>>,
    /// What happened; none where nobody compares it.
    trace: Option<Trace>,
    began: Instant,
    faults: Faults,
    /// Who is killed at one of its requests or commits.
    pub(super) crashes: Crashes,
    /// How many requests are under way, by their ways; watches are none.
    under_way: Counts,
    /// How it is on ways of bytes, such as `m1>hub rh2-late`.
    ways: Arc<Mutex<BTreeMap<String, Way>>>,
    /// What members hear there.
    pub(super) heard: Heard,
}

impl World {
    /// Where nothing goes wrong, and everything is written down.
    pub(super) fn new() -> Self {
        Self::with(Faults::default(), true)
    }

    /// Where these things go wrong.
    pub(super) fn with(faults: Faults, traced: bool) -> Self {
        Self {
            sites: Arc::default(),
            trace: traced.then(Trace::default),
            began: Instant::now(),
            faults,
            crashes: Crashes::default(),
            under_way: Counts::default(),
            ways: Arc::default(),
            heard: Heard::default(),
        }
    }

    /// What was written down.
    pub(super) fn told(&self) -> String {
        self.trace.as_ref().map_or_else(String::new, Trace::whole)
    }

    /// How long it exists.
    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Puts a server in its place, with the certificate that it shows.
    pub(super) fn add(
        &self,
        name: &str,
        at: HostPort,
        router: Router,
        chain: &[CertificateDer<'static>],
    ) {
        let site = Site {
            name: name.to_owned(),
            router,
            chain: chain.to_vec(),
            killed: CancellationToken::new(),
            ends: CancellationToken::new(),
        };
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.insert(at, site);
    }

    /// Takes a server from its place; what is under way to it breaks.
    pub(super) fn kill(&self, at: &HostPort) {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = sites.remove(at) {
            site.killed.cancel();
        }
    }

    /// Has a server end its connections of bytes in order, and take no more.
    pub(super) fn close(&self, at: &HostPort) {
        if let Some(site) = self.site(at) {
            site.ends.cancel();
        }
    }

    /// How it is on the way from one host to another, for a protocol.
    pub(super) fn way(&self, from: &str, to: &str, protocol: Protocol) -> Way {
        let protocol = String::from_utf8_lossy(protocol.name());
        let name = format!("{from}>{to} {protocol}");
        lock(&self.ways).entry(name).or_default().clone()
    }

    /// How many connections stand, by their ways.
    pub(super) fn standing(&self) -> BTreeMap<String, usize> {
        let ways = lock(&self.ways);
        let standing = ways
            .iter()
            .map(|(name, way)| (name.clone(), way.standing()));
        standing.filter(|(_, count)| *count > 0).collect()
    }

    /// Connects to a server as somebody who shows it these certificates.
    pub(super) fn connect(
        &self,
        who: &str,
        address: IpAddr,
        at: &HostPort,
        chain: Vec<CertificateDer<'static>>,
        protocol: Protocol,
    ) -> io::Result<Endpoint> {
        let site = self.site(at).ok_or(io::ErrorKind::ConnectionRefused)?;
        Ok(self.wire(who, address, site, chain, protocol, None))
    }

    fn wire(
        &self,
        who: &str,
        address: IpAddr,
        site: Site,
        chain: Vec<CertificateDer<'static>>,
        protocol: Protocol,
        delays: Option<SharedStream>,
    ) -> Endpoint {
        let way = self.way(who, &site.name, protocol);
        let is_member = site.name.starts_with("member");
        let hears = match is_member {
            true => self.heard.on_connection(),
            false => bytes::nobody(),
        };
        let (mine, theirs, carry) = bytes::pair(&way, delays, hears);
        let Site {
            name,
            router,
            killed,
            ends,
            ..
        } = site;
        if way.is_refused() || ends.is_cancelled() {
            return mine;
        }
        let played = is_member.then(|| Played {
            name,
            router: router.clone(),
            heard: self.heard.clone(),
        });
        let serve = async move {
            match played {
                Some(played) => played.serve(address, chain, theirs, ends).await,
                // How it ended is for who is at the other end to say.
                None => drop(router.wire(address, &chain, protocol, theirs, ends).await),
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = killed.cancelled() => {}
                _ = async { tokio::join!(carry, serve) } => {}
            }
        });
        mine
    }

    /// Where most requests are under way, and how many.
    pub(super) fn busiest(&self) -> Option<(String, usize)> {
        self.under_way.most()
    }

    fn site(&self, at: &HostPort) -> Option<Site> {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.get(at).cloned()
    }

    /// Writes a line down, with the time since the world began.
    pub(super) fn note(&self, text: &str) {
        if let Some(trace) = &self.trace {
            let at = self.began.elapsed().as_millis();
            trace.note(&format!("{at:>6} {text}\n"));
        }
    }

    /// A line within a server, by whoever holds this link; it takes no time.
    pub(super) fn within(&self, who: &str, link: Link) -> Line {
        let end = End {
            world: self.clone(),
            way: who.to_owned(),
            who: String::new(),
            delays: None,
            killed: CancellationToken::new(),
            link,
        };
        end.line()
    }
}

/// The network as one host sees it.
pub(super) struct Wires {
    pub(super) world: World,
    /// The host's name in the trace.
    pub(super) host: String,
    /// Where its connections come from.
    pub(super) address: IpAddr,
    /// How long requests and answers are on their way.
    pub(super) delays: SharedStream,
}

impl Network for Wires {
    fn reach(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Reached>> {
        let Some(site) = self.world.site(&HostPort::new(host, port)) else {
            return async { Err(io::ErrorKind::ConnectionRefused.into()) }.boxed();
        };
        let (world, source) = (self.world.clone(), self.address);
        let way = format!("{}>{}", self.host, site.name);
        if world.faults.refuses(&way) {
            return async { Err(io::ErrorKind::ConnectionRefused.into()) }.boxed();
        }
        let delays = self.delays.clone();
        let carries = (self.world.clone(), self.host.clone(), site.clone());
        let spread = self.delays.clone();
        let agree = Box::new(
            move |mine: Vec<CertificateDer<'static>>, offered: &[Vec<u8>]| {
                let (world, host, site) = carries;
                let is_member = site.name.starts_with("member");
                let speaks = |it: &Protocol| !is_member || *it == Protocol::Http1;
                let mut all = Protocol::ALL.into_iter().filter(speaks);
                let protocol = all.find(|it| offered.iter().any(|name| name == it.name()))?;
                let end = world.wire(&host, source, site, mine, protocol, Some(spread));
                Some(Agreed {
                    wire: Box::new(end),
                    protocol: Some(protocol.name().to_vec()),
                })
            },
        );
        let chain = site.chain.clone();
        async move {
            let open = Box::new(move |mine: Vec<CertificateDer<'static>>| {
                let end = End {
                    world,
                    way,
                    who: common_name(&mine),
                    delays: Some(delays),
                    killed: site.killed,
                    link: site.router.link(source, &mine),
                };
                end.line()
            });
            Ok(Reached {
                shown: chain,
                open,
                agree,
            })
        }
        .boxed()
    }
}

/// Whom a client certificate names; nothing without one.
fn common_name(chain: &[CertificateDer<'_>]) -> String {
    let name = chain.first().and_then(|der| {
        let (_, read) = X509Certificate::from_der(der).ok()?;
        let name = read.subject().iter_common_name().next()?;
        name.as_str().ok().map(str::to_owned)
    });
    name.unwrap_or_default()
}

/// The client's end of a connection.
#[derive(Clone)]
struct End {
    world: World,
    /// From whom to whom.
    way: String,
    /// The name in the certificate that is shown.
    who: String,
    delays: Option<SharedStream>,
    killed: CancellationToken,
    link: Link,
}

impl End {
    fn line(self) -> Line {
        BoxCloneService::new(tower::service_fn(move |request| {
            let end = self.clone();
            async move {
                let killed = end.killed.clone();
                tokio::select! {
                    biased;
                    () = killed.cancelled() => Err(reset()),
                    answer = end.exchange(request) => answer,
                }
            }
        }))
    }

    async fn pass(&self, slow: Duration) {
        if let Some(delays) = &self.delays {
            let longest = LONGEST_WAY.as_micros().try_into().unwrap_or(u64::MAX);
            let way = delays.draw(|rng| rng.random_range(1_000..=longest));
            sleep(Duration::from_micros(way) + slow).await;
        } else if !slow.is_zero() {
            sleep(slow).await;
        }
    }

    async fn exchange(self, request: Request<Body>) -> Result<Response<LineBody>, BoxError> {
        let _under_way = self.world.under_way.begin(&self.way);
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = self.asked(&head, &body);
        let query = head.uri.query().unwrap_or_default();
        let endless = query.contains("watch=");
        let changes = head.method != Method::GET;
        let asked_for = Asked {
            resumes: endless && !query.contains("resourceVersion=0"),
            writes: changes && is_workload(head.uri.path()),
        };
        let crashes = self.world.crashes.clone();
        let Some(ticket) = crashes.begins(&self.way, changes) else {
            return std::future::pending().await;
        };
        let Fate { slow, end } = self.world.faults.fate(&self.way, asked_for);
        self.pass(slow).await;
        match end {
            faults::End::Refused => return Err(reset()),
            faults::End::Silence => std::future::pending().await,
            faults::End::Status(status) => {
                self.world.note(&format!("{asked} {status} by a fault"));
                self.pass(slow).await;
                return Ok(refusal(status));
            }
            faults::End::Answered | faults::End::Lost => {}
        }
        let request = Request::from_parts(head, Full::new(body));
        let Ok(answer) = tower::ServiceExt::oneshot(self.link.clone(), request).await;
        if !crashes.is_heard(&self.way, ticket) {
            return std::future::pending().await;
        }
        self.pass(slow).await;
        if end == faults::End::Lost {
            self.world.note(&format!("{asked} lost"));
            return Err(reset());
        }
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        if endless && head.status.is_success() {
            self.world.note(&format!("{asked} {status} watching"));
            return Ok(Response::from_parts(head, self.events(asked, body)));
        }
        let body = body.collect().await?.to_bytes();
        if self.world.trace.is_some() {
            self.world
                .note(&format!("{asked} {status} {}", essence(&body)));
        }
        Ok(Response::from_parts(head, whole(body)))
    }

    /// The events of a watch, as they come through.
    fn events<B>(self, asked: String, body: B) -> LineBody
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let cut = self.world.faults.cut(&self.way, Instant::now());
        let watch = Watch {
            end: self,
            asked,
            lines: Lines::default(),
            cut,
            body,
        };
        let frames = futures::stream::unfold(Some(watch), async |watch| {
            let mut watch = watch?;
            match watch.next().await {
                Some(Ok(frame)) => Some((Ok(frame), Some(watch))),
                Some(Err(error)) => Some((Err(error), None)),
                None => None,
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Who asks whom for what.
    fn asked(&self, head: &request::Parts, body: &Bytes) -> String {
        if self.world.trace.is_none() {
            return String::new();
        }
        let token = head.headers.get(header::AUTHORIZATION);
        let token = token.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let who = match (token.and_then(|token| token.split('.').next()), &self.who) {
            (Some(id), _) => format!("token:{id}"),
            (None, who) if who.is_empty() => "-".to_owned(),
            (None, who) => who.clone(),
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let body = match body.is_empty() {
            true => "-".to_owned(),
            false => essence(body),
        };
        format!("{} {who} {} {path} {body}", self.way, head.method)
    }
}

/// A watch on its way to the client.
struct Watch<B> {
    end: End,
    asked: String,
    lines: Lines,
    /// When it is cut.
    cut: Option<Instant>,
    body: B,
}

impl<B> Watch<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// The next that comes through; none at its end.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let (killed, cut) = (self.end.killed.clone(), self.cut);
        let is_cut = async move {
            match cut {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = killed.cancelled() => Some(Err(reset())),
            () = is_cut => None,
            frame = self.arrives() => frame,
        }
    }

    async fn arrives(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let frame = match self.body.frame().await? {
            Ok(frame) => frame,
            Err(error) => return Some(Err(error.into())),
        };
        let World { faults, trace, .. } = &self.end.world;
        while let Some(end) = faults.frozen(&self.end.way) {
            sleep_until(end).await;
        }
        if !self.end.world.crashes.lets_pass(&self.end.way) {
            return std::future::pending().await;
        }
        let Fate { slow, .. } = faults.fate(&self.end.way, Asked::default());
        self.end.pass(slow).await;
        if let (Some(data), Some(_)) = (frame.data_ref(), trace) {
            for event in self.lines.of(data) {
                let event = essence(&event);
                self.end
                    .world
                    .note(&format!("{} event {event}", self.asked));
            }
        }
        Some(Ok(frame))
    }
}

/// Whether a path is that of something that Works bring.
fn is_workload(path: &str) -> bool {
    let within = |space: &str| path.contains(&format!("/namespaces/{space}/"));
    within("default") || SPACES.iter().any(|it| within(it))
}

/// Bytes cut into lines, however they come.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn of(&mut self, data: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(data);
        let mut whole: Vec<Vec<u8>> = self.0.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
        self.0 = whole.pop().unwrap_or_default();
        whole
    }
}
