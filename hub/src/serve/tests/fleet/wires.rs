//! The network of a simulation: servers by their addresses, and lines to them that take their time and write
//! down what is asked on them and what is answered.

use super::super::rig::Trace;
use super::essence::essence;
use crate::apiserver::http::Link;
use crate::apiserver::http::router::Router;
use bytes::Bytes;
use common::chance::SharedStream;
use common::client::HostPort;
use common::network::{Line, LineBody, Network, Reached};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response, header, request};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use rand::Rng as _;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::BoxError;
use tower::util::BoxCloneService;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The longest way of a request, and of its answer.
const LONGEST_WAY: Duration = Duration::from_millis(20);

/// A server that can be reached.
#[derive(Clone)]
struct Site {
    name: String,
    router: Router,
    chain: Vec<CertificateDer<'static>>,
}

/// All servers, and everything that passes between them and their clients. Clones share it.
#[derive(Clone)]
pub(super) struct World {
    sites: Arc<Mutex<BTreeMap<HostPort, Site>>>,
    pub(super) trace: Trace,
    began: Instant,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            sites: Arc::default(),
            trace: Trace::default(),
            began: Instant::now(),
        }
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
        };
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.insert(at, site);
    }

    fn site(&self, at: &HostPort) -> Option<Site> {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        sites.get(at).cloned()
    }

    /// Writes a line down, with the time since the world began.
    pub(super) fn note(&self, text: &str) {
        let at = self.began.elapsed().as_millis();
        self.trace.note(&format!("{at:>6} {text}\n"));
    }

    /// A line within a server, by whoever holds this link; it takes no time.
    pub(super) fn within(&self, who: &str, link: Link) -> Line {
        let end = End {
            world: self.clone(),
            way: who.to_owned(),
            who: String::new(),
            delays: None,
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
        let delays = self.delays.clone();
        async move {
            let open = Box::new(move |mine: Vec<CertificateDer<'static>>| {
                let end = End {
                    world,
                    way,
                    who: common_name(&mine),
                    delays: Some(delays),
                    link: site.router.link(source, &mine),
                };
                end.line()
            });
            Ok(Reached {
                shown: site.chain,
                open,
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
    link: Link,
}

impl End {
    fn line(self) -> Line {
        BoxCloneService::new(tower::service_fn(move |request| {
            let end = self.clone();
            async move { end.exchange(request).await }
        }))
    }

    async fn pass(&self) {
        if let Some(delays) = &self.delays {
            let longest = LONGEST_WAY.as_micros().try_into().unwrap_or(u64::MAX);
            let way = delays.draw(|rng| rng.random_range(1_000..=longest));
            sleep(Duration::from_micros(way)).await;
        }
    }

    async fn exchange(self, request: Request<Body>) -> Result<Response<LineBody>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = self.asked(&head, &body);
        let endless = head
            .uri
            .query()
            .is_some_and(|query| query.contains("watch="));
        self.pass().await;
        let request = Request::from_parts(head, Full::new(body));
        let Ok(answer) = tower::ServiceExt::oneshot(self.link.clone(), request).await;
        self.pass().await;
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        if endless && head.status.is_success() {
            self.world.note(&format!("{asked} {status} watching"));
            let mut lines = Lines::default();
            let body = body.map_frame(move |frame| {
                if let Some(data) = frame.data_ref() {
                    for event in lines.of(data) {
                        self.world
                            .note(&format!("{asked} event {}", essence(&event)));
                    }
                }
                frame
            });
            return Ok(Response::from_parts(
                head,
                body.map_err(Into::into).boxed_unsync(),
            ));
        }
        let body = body.collect().await?.to_bytes();
        self.world
            .note(&format!("{asked} {status} {}", essence(&body)));
        let body = Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync();
        Ok(Response::from_parts(head, body))
    }

    /// Who asks whom for what.
    fn asked(&self, head: &request::Parts, body: &Bytes) -> String {
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
