//! A request for a cluster whose tunnel another replica has: who that is, and the request passed on to it, once.
//!
//! The replica that has the tunnel judges it all over again: who asks, as the API server's front proxy said, what they may,
//! and how much of it there is. The one that passes it on answers for nothing but who asked it.

use super::VERSION;
use super::front;
use super::replicas::decide::Way;
use super::replicas::{Peer, Replicas};
use super::server::{Answer, Port};
use crate::access::{Asked, Failure, Upgrade, pass_on};
use common::client::never_left;
use common::errors::chain;
use common::tunnel::headers;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tower::BoxError;

/// By which name a replica passes a request on, in the request; and in an answer, that it has no tunnel of the cluster.
pub(super) const HOP: HeaderName = HeaderName::from_static("towline-hop");
/// Where replicas ask each other who has the tunnel of a cluster, whose name follows.
const TUNNELS: &str = "/tunnels/";
/// How long they may take to say so.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// Whether a replica asks for the tunnel of a cluster, and of which.
pub(super) fn tunnel_of<'a>(method: &Method, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(TUNNELS)
        .filter(|_| *method == Method::HEAD)
}

/// What a replica is told that asks for, or passes a request on to, a tunnel that is not here.
pub(super) fn elsewhere() -> Answer {
    let mut answer = Response::new(crate::apiserver::http::respond::whole(""));
    *answer.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    let headers = answer.headers_mut();
    headers.insert(HOP, HeaderValue::from_static(VERSION));
    answer
}

/// Whether an answer says so: no member can, whose headers pass by a list.
fn is_elsewhere(answer: &Response<Incoming>) -> bool {
    answer.status() == StatusCode::MISDIRECTED_REQUEST && answer.headers().contains_key(HOP)
}

impl Replicas {
    /// Who has the tunnel of a cluster, as far as it is known; with `sure`, whoever says now that they have it.
    async fn find(&self, cluster: &str, sure: bool) -> Option<Arc<Peer>> {
        let living = self.living();
        match self.way(cluster, false, false) {
            Way::To(id) if !sure => living.into_iter().find(|peer| peer.id == id),
            Way::Here | Way::Elsewhere | Way::Nowhere => None,
            Way::To(_) | Way::Ask => {
                let asked = living.into_iter().map(|peer| self.ask(peer, cluster));
                let mut asked: FuturesUnordered<_> = asked.collect();
                let mut found = None;
                while let Some(answer) = asked.next().await {
                    found = answer;
                    if found.is_some() {
                        break;
                    }
                }
                let id = found.as_ref().map(|peer| peer.id.as_str());
                self.remember(cluster, id);
                found
            }
        }
    }

    /// The replica, if it says that it has the tunnel.
    async fn ask(&self, peer: Arc<Peer>, cluster: &str) -> Option<Arc<Peer>> {
        let why = match self.head(&peer, cluster).await {
            Ok(answer) if answer.status().is_success() => return Some(peer),
            Ok(answer) if is_elsewhere(&answer) => return None,
            Ok(answer) => format!("it answers {}", answer.status()),
            Err(why) => why,
        };
        let replica = &peer.id;
        tracing::debug!(
            replica,
            cluster,
            why,
            "a replica cannot be asked for a tunnel"
        );
        None
    }

    /// Whether a replica answers, whatever it is.
    pub(super) async fn is_there(&self, peer: &Peer) -> bool {
        self.head(peer, "").await.is_ok()
    }

    /// What a replica says of the tunnel of a cluster.
    async fn head(&self, peer: &Peer, cluster: &str) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(None);
        *request.method_mut() = Method::HEAD;
        let at = format!("{TUNNELS}{cluster}").parse::<Uri>();
        *request.uri_mut() = at.map_err(|error| error.to_string())?;
        let named = HeaderValue::from_str(self.id());
        let named = named.map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOP, named);
        match timeout(ASKED_WITHIN, peer.relay.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(chain(error.as_ref()).to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        }
    }
}

/// What became of a request that was passed on.
enum Sent {
    Answered(Response<Incoming>),
    /// Nobody there has done anything for it.
    NotThere(String),
    Lost(BoxError),
}

impl Port {
    /// Passes a request on to the replica that has the cluster's tunnel. A body is sent once: who has the tunnel is asked
    /// for beforehand. `came` is where the path leads here, and under which headers the front proxy said who asks.
    pub(super) async fn pass_on(
        &self,
        asked: Asked<'_>,
        (came, uri): (&HeaderMap, &Uri),
        mut body: Option<Incoming>,
        upgrade: Option<(&'static str, Upgrade)>,
        kept: impl Send + 'static,
    ) -> Result<Answer, Failure> {
        let cluster = asked.cluster;
        let once = body.is_some();
        let sent = self.onward(&asked, came, upgrade.as_ref().map(|(name, _)| *name))?;
        for sure in [once, true] {
            let peer = self.replicas.find(cluster, sure).await;
            let peer = peer.ok_or_else(|| Failure::NoTunnel(cluster.to_owned()))?;
            let mut request = Request::new(body.take());
            *request.method_mut() = asked.method.clone();
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = sent.clone();
            let (stream, replica) = (&asked.stream, &peer.id);
            tracing::info!(stream, cluster, replica, "another replica is asked");
            match send(&peer, request).await {
                Sent::Answered(answer) => return pass_on(&asked, answer, upgrade, kept),
                Sent::NotThere(why) => {
                    tracing::info!(stream, replica, why, "its tunnel is elsewhere by now");
                    self.replicas.remember(cluster, None);
                    if once {
                        break;
                    }
                }
                // It may have been carried out: nobody asks again.
                Sent::Lost(error) => {
                    return Err(Failure::Lost {
                        cluster: cluster.to_owned(),
                        why: format!("replica {replica} of the hub: {}", chain(error.as_ref())),
                    });
                }
            }
        }
        Err(Failure::Moved(cluster.to_owned()))
    }

    /// The headers of a request that is passed on: what a member may see of them, who asks, and who passes it on.
    fn onward(
        &self,
        asked: &Asked<'_>,
        came: &HeaderMap,
        protocol: Option<&'static str>,
    ) -> Result<HeaderMap, Failure> {
        let trust = self.trusted.now();
        let mut sent = headers::asked(asked.headers, protocol.is_some());
        front::carry(came, trust.headers(), &mut sent);
        let value = |text: &str| {
            let value = HeaderValue::from_str(text);
            value.map_err(|error| Failure::Unmade(error.into()))
        };
        sent.insert(HOP, value(self.replicas.id())?);
        sent.insert(headers::STREAM, value(&asked.stream)?);
        if let Some(protocol) = protocol {
            sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            sent.insert(UPGRADE, HeaderValue::from_static(protocol));
        }
        Ok(sent)
    }
}

async fn send(peer: &Peer, request: Request<Option<Incoming>>) -> Sent {
    match peer.relay.send(request).await {
        Ok(answer) if is_elsewhere(&answer) => Sent::NotThere("it has no tunnel".to_owned()),
        Ok(answer) => Sent::Answered(answer),
        Err(error) if never_left(&error) => Sent::NotThere(chain(error.as_ref()).to_string()),
        Err(error) => Sent::Lost(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_asked_for_by_the_name_of_a_cluster() {
        assert_eq!(tunnel_of(&Method::HEAD, "/tunnels/m1"), Some("m1"));
        assert_eq!(tunnel_of(&Method::GET, "/tunnels/m1"), None);
        assert_eq!(tunnel_of(&Method::HEAD, "/apis"), None);
    }
}
