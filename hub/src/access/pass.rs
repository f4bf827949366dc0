//! A request of a user through a tunnel, and its answer.

use super::lasting::{Body, Over, lasting};
use super::taken::{Source, Upgrade, join};
use super::{NotAList, Sent, Tunnel};
use bytes::Bytes;
use common::errors::chain;
use common::tunnel::{Identity, NotForwarded, Unfit, forwarded, headers};
use futures::FutureExt as _;
use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use std::future::pending;
use std::time::Duration;
use tokio::time::Instant;
use tower::BoxError;

/// What connections are taken over for.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];

/// Why a member does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The path does not begin as a path to a member does.
    #[error("the path to a member must begin with {0:?}")]
    Elsewhere(String),
    /// The path is one that no member is asked for.
    #[error(transparent)]
    NotForwarded(#[from] NotForwarded),
    /// The path is none.
    #[error("the path to a member cannot be read")]
    Unreadable,
    /// It is for all clusters, and no list.
    #[error(transparent)]
    NotAList(#[from] NotAList),
    /// HTTP/2 cannot be switched.
    #[error("a connection can be taken over only when it is one of HTTP/1.1")]
    NotTakenOver,
    /// No member may be told of such a user.
    #[error("you cannot be named to a member: {0}")]
    Unfit(#[from] Unfit),
    /// The agent dialled none.
    #[error(
        "cluster {0:?} has no tunnel to this hub: its owner opens one by `towline register --proxy read-only` or \
         `--proxy impersonate`, run on that cluster; `towline check {0}` says whether its agent is there"
    )]
    NoTunnel(String),
    /// It has one at another replica than a moment ago, or a body was on its way meanwhile.
    #[error(
        "the tunnel of cluster {0:?} has just moved to another replica of this hub, please try again"
    )]
    Moved(String),
    /// So many of a cluster that it answers no more.
    #[error("too many requests are under way to cluster {0:?}, please try again later")]
    TooMany(String),
    /// Whoever asked may not, before the member has answered.
    #[error(
        "you may not ask cluster {0:?} any more; it may have done what was asked just before that"
    )]
    Ended(String),
    /// The tunnel broke while the member was asked.
    #[error("cluster {cluster:?} was lost while it was asked: {why}")]
    Lost {
        /// Its name.
        cluster: String,
        /// What happened.
        why: String,
    },
    /// An answer that would lead the client elsewhere.
    #[error("cluster {cluster:?} answered {code}, which is not passed on")]
    NotPassedOn {
        /// Its name.
        cluster: String,
        /// The status.
        code: StatusCode,
    },
    /// An answer as if nothing had been asked for but it.
    #[error("cluster {cluster:?} answered {code} where it was asked to switch to {protocol:?}")]
    NotSwitched {
        /// Its name.
        cluster: String,
        /// The status.
        code: StatusCode,
        /// What the connection was to be taken over for.
        protocol: &'static str,
    },
    /// A defect.
    #[error("a request to a member cannot be made: {0}")]
    Unmade(#[source] http::Error),
}

/// For which protocol a connection is to be taken over.
pub fn protocol(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: HeaderName| {
        let value = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let asked = text(CONNECTION);
    let mut asked = asked.split(',').map(str::trim);
    let upgrades = asked.any(|one| one.eq_ignore_ascii_case("upgrade"));
    let wanted = text(UPGRADE);
    let mut known = PROTOCOLS.into_iter();
    known.find(|name| upgrades && wanted.trim().eq_ignore_ascii_case(name))
}

/// What of a request's address is the member's: path and query as they were sent, after `prefix`.
pub fn onward(uri: &Uri, prefix: &str) -> Result<Uri, Failure> {
    let rest = uri.path().strip_prefix(prefix);
    let rest = rest.ok_or_else(|| Failure::Elsewhere(prefix.to_owned()))?;
    let path = forwarded(rest)?;
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let onward = format!("{path}{query}").parse();
    onward.map_err(|_| Failure::Unreadable)
}

/// What is asked of a member, and by whom.
pub struct Asked<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// Who asks, by the hub's name.
    pub user: &'a str,
    /// Their groups on the hub.
    pub groups: &'a [String],
    /// The method.
    pub method: &'a Method,
    /// What the client sent; what of it is passed on is decided here.
    pub headers: &'a HeaderMap,
    /// Path and query in the member.
    pub onward: Uri,
    /// An id of the hub's own.
    pub stream: String,
}

impl Tunnel {
    /// Asks the member and passes on its answer: as long as `over` has not ended, and with `kept`, which is dropped
    /// once nothing of it is under way. With a protocol the connection is taken over for it.
    pub async fn pass<B>(
        self,
        asked: Asked<'_>,
        body: B,
        upgrade: Option<(&'static str, Upgrade)>,
        mut over: Over,
        kept: impl Send + 'static,
    ) -> Result<Response<Body>, Failure>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let request = request(&asked, upgrade.as_ref().map(|(name, _)| *name))?;
        let request = request.map(|()| sent(body, upgrade.is_some()));
        let counted = self.under_way.begin(asked.cluster, asked.user);
        let stands = self.stands(asked.cluster);
        // With the tunnel: while nobody holds it any more, because another one took its place, the library counts one stream
        // too few, and sends no pings for the last.
        let kept = (Told::begin(&asked), counted, kept, self.clone());
        // What was asked is cut off in the member too, where it is not done yet.
        let answer = tokio::select! {
            biased;
            () = &mut over => return Err(Failure::Ended(asked.cluster.to_owned())),
            answer = self.send(request) => answer,
        };
        let answer = answer.map_err(|error| Failure::Lost {
            cluster: asked.cluster.to_owned(),
            why: chain(&error).to_string(),
        })?;
        let upgrade = upgrade.map(|(name, upgrade)| (name, upgrade, Source::Tunnel));
        answered(asked.cluster, answer, stands, upgrade, over, kept)
    }
}

/// Passes on what another replica answered, which keeps watch over how long it may last.
pub fn pass_on(
    asked: &Asked<'_>,
    answer: Response<Incoming>,
    upgrade: Option<(&'static str, Upgrade)>,
    kept: impl Send + 'static,
) -> Result<Response<Body>, Failure> {
    let stands = answer.headers().get(headers::TUNNEL).cloned();
    let upgrade = upgrade.map(|(name, upgrade)| (name, upgrade, Source::Replica));
    let kept = (Told::begin(asked), kept);
    answered(
        asked.cluster,
        answer,
        stands,
        upgrade,
        pending().boxed(),
        kept,
    )
}

/// An answer as the client is to see it. With a connection, it is to be taken over for a protocol, unless an error is
/// answered.
fn answered(
    cluster: &str,
    answer: Response<Incoming>,
    stands: Option<HeaderValue>,
    upgrade: Option<(&'static str, Upgrade, Source)>,
    over: Over,
    kept: impl Send + 'static,
) -> Result<Response<Body>, Failure> {
    let code = answer.status();
    if let Some((protocol, _, source)) = &upgrade
        && code.is_success()
        && code != source.switches()
    {
        return Err(Failure::NotSwitched {
            cluster: cluster.to_owned(),
            code,
            protocol,
        });
    }
    let upgrade = upgrade.filter(|(_, _, source)| code == source.switches());
    let mut said = headers::answered(answer.headers());
    said.remove(headers::UPGRADE);
    if let Some(stands) = stands {
        said.insert(headers::TUNNEL, stands);
    }
    let mut response = match upgrade {
        Some((protocol, upgrade, source)) => {
            said.insert(UPGRADE, HeaderValue::from_static(protocol));
            said.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            join(upgrade, source, answer, over, kept);
            let nothing = Full::default().map_err(|never| match never {});
            let mut response = Response::new(nothing.boxed_unsync());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response
        }
        None => {
            let leads_away = code.is_redirection() && code != StatusCode::NOT_MODIFIED;
            if code.is_informational() || leads_away {
                return Err(Failure::NotPassedOn {
                    cluster: cluster.to_owned(),
                    code,
                });
            }
            let mut response = Response::new(lasting(answer.into_body(), over, kept));
            *response.status_mut() = code;
            response
        }
    };
    *response.headers_mut() = said;
    Ok(response)
}

impl Tunnel {
    /// How it stands, for whoever asks through it.
    fn stands(&self, cluster: &str) -> Option<HeaderValue> {
        let stands = headers::Stands {
            seconds: self.since.elapsed().as_secs(),
            streams: self.under_way.of_cluster(cluster),
        };
        HeaderValue::from_str(&stands.to_string()).ok()
    }
}

/// The head of a request as its member's agent is to see it.
fn request(asked: &Asked<'_>, protocol: Option<&'static str>) -> Result<Request<()>, Failure> {
    let unmade = |error: http::Error| Failure::Unmade(error);
    let mut request = Request::new(());
    let mut said = headers::asked(asked.headers, protocol.is_some());
    Identity::of(asked.user, asked.groups)?.write(&mut said)?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| unmade(error.into()));
    said.insert(headers::STREAM, value(&asked.stream)?);
    *request.method_mut() = asked.method.clone();
    if let Some(protocol) = protocol {
        said.insert(headers::METHOD, value(asked.method.as_str())?);
        said.remove(CONTENT_LENGTH);
        *request.method_mut() = Method::CONNECT;
        request
            .extensions_mut()
            .insert(Protocol::from_static(protocol));
    }
    *request.headers_mut() = said;
    let mut parts = asked.onward.clone().into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    parts.authority = Some(http::uri::Authority::from_static("member"));
    *request.uri_mut() = Uri::from_parts(parts).map_err(|error| unmade(error.into()))?;
    Ok(request)
}

fn sent<B>(body: B, is_taken: bool) -> Sent
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match is_taken {
        true => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        false => body.map_err(Into::into).boxed_unsync(),
    }
}

/// A line in the log at the begin and at the end of what goes through a tunnel.
struct Told {
    stream: String,
    cluster: String,
    began: Instant,
}

impl Told {
    fn begin(asked: &Asked<'_>) -> Self {
        let (stream, cluster, user) = (&asked.stream, asked.cluster, asked.user);
        let (method, path) = (asked.method, asked.onward.path());
        tracing::info!(stream, cluster, user, %method, path, "a member is asked");
        Self {
            stream: stream.clone(),
            cluster: cluster.to_owned(),
            began: Instant::now(),
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let took: Duration = self.began.elapsed();
        let (stream, cluster, seconds) = (&self.stream, &self.cluster, took.as_secs_f64());
        tracing::info!(stream, cluster, seconds, "the answer of a member ended");
    }
}

#[cfg(test)]
mod tests {
    use super::super::taken::TakenOver;
    use super::super::{Tunnels, UnderWay};
    use super::*;
    use common::lock::lock;
    use common::tunnel::Begins;
    use http_body_util::StreamBody;
    use http_body_util::combinators::UnsyncBoxBody;
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};
    use tokio::io::duplex;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    const TO: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";

    #[test]
    fn the_member_is_asked_what_was_asked() {
        let of = |path: &str| {
            let uri: Uri = path.parse().expect("an address");
            onward(&uri, TO).map(|uri| uri.to_string())
        };
        let whole = of(&format!("{TO}/api/v1/pods?watch=1&x=%2F"));
        assert_eq!(whole.expect("passed"), "/api/v1/pods?watch=1&x=%2F");
        assert_eq!(of(TO).expect("passed"), "/");
        assert_eq!(of(&format!("{TO}/")).expect("passed"), "/");
        for odd in [
            "/apis/cluster.karmada.io/v1alpha1/clusters/%6d1/proxy/api",
            "/apis/cluster.karmada.io/v1alpha1/clusters/m1/%70roxy/api",
        ] {
            assert!(matches!(of(odd), Err(Failure::Elsewhere(_))), "{odd}");
        }
        let above = of(&format!("{TO}/../../m2/proxy"));
        assert!(matches!(above, Err(Failure::NotForwarded(_))));
    }

    #[test]
    fn connections_are_taken_over_for_two_protocols() {
        let of = |connection: &str, upgrade: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                CONNECTION,
                HeaderValue::from_str(connection).expect("a value"),
            );
            headers.insert(UPGRADE, HeaderValue::from_str(upgrade).expect("a value"));
            protocol(&headers)
        };
        assert_eq!(of("Upgrade", "websocket"), Some("websocket"));
        assert_eq!(of("keep-alive, upgrade", "spdy/3.1"), Some("SPDY/3.1"));
        assert_eq!(of("keep-alive", "websocket"), None);
        assert_eq!(of("Upgrade", "h2c"), None);
    }

    /// What the agent answers everything with; never where there is none.
    type Said = Option<(u16, UnsyncBoxBody<Bytes, Infallible>)>;

    fn nothing(code: u16) -> Said {
        Some((code, Empty::new().boxed_unsync()))
    }

    /// What a client gets; with a protocol it wants its connection taken over.
    async fn asked(
        said: Said,
        protocol: Option<&'static str>,
        over: Over,
    ) -> Result<Response<Body>, Failure> {
        let (near, far) = duplex(64 * 1024);
        let said = Arc::new(Mutex::new(said));
        let service = service_fn(move |_| {
            let said = said.clone();
            async move {
                let Some((code, body)) = lock(&said).take() else {
                    return pending().await;
                };
                let mut answer = Response::new(body);
                *answer.status_mut() = StatusCode::from_u16(code).expect("a status");
                Ok::<_, Infallible>(answer)
            }
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.enable_connect_protocol();
        tokio::spawn(builder.serve_connection(TokioIo::new(far), service));
        let tunnels = Tunnels::counted(UnderWay::default());
        let (holds, stop) = (tunnels.clone(), CancellationToken::new());
        tokio::spawn(async move {
            holds
                .hold("m1", near, Begins::AtOnce, pending().boxed(), stop)
                .await
        });
        // The agent has said what it can.
        sleep(Duration::from_secs(1)).await;
        let headers = HeaderMap::new();
        let asked = Asked {
            cluster: "m1",
            user: "ann",
            groups: &[],
            method: &Method::GET,
            headers: &headers,
            onward: Uri::from_static("/api/v1/namespaces/default/pods/a/exec"),
            stream: "1".to_owned(),
        };
        let upgrade = || Upgrade {
            connection: hyper::upgrade::on(Request::new(())),
            taken_over: TakenOver::default(),
        };
        let upgrade = protocol.map(|protocol| (protocol, upgrade()));
        let body = Empty::<Bytes>::new();
        tunnels.of("m1")?.pass(asked, body, upgrade, over, ()).await
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_to_switch_switches_or_gets_an_error() {
        let switched =
            async |code| asked(nothing(code), Some("websocket"), pending().boxed()).await;
        for (code, passed) in [(200, 101), (403, 403), (404, 404), (500, 500)] {
            let answer = switched(code).await.expect("passed on");
            assert_eq!(answer.status(), passed);
        }
        for code in [201, 202, 204] {
            let Err(refused) = switched(code).await else {
                unreachable!("{code} is passed on");
            };
            let text = refused.to_string();
            assert!(
                text.ends_with("where it was asked to switch to \"websocket\""),
                "{text}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whose_right_ends_before_the_member_answers_gets_no_answer() {
        for protocol in [None, Some("websocket")] {
            let right = sleep(Duration::from_secs(5)).boxed();
            let refused = asked(None, protocol, right).await;
            assert!(matches!(refused, Err(Failure::Ended(of)) if of == "m1"));
        }
    }

    /// A member may not tell a client of the hub by trailers what it may not tell it by headers.
    #[tokio::test(start_paused = true)]
    async fn trailers_of_a_member_are_not_passed_on() {
        let mut trailers = HeaderMap::new();
        trailers.insert("set-cookie", HeaderValue::from_static("a=b"));
        let frames = [Frame::data(Bytes::from("whole")), Frame::trailers(trailers)];
        let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
        let said = Some((200, StreamBody::new(frames).boxed_unsync()));
        let answer = asked(said, None, pending().boxed()).await;
        let whole = answer.expect("passed on").into_body().collect();
        let whole = whole.await.expect("it ends as one that is whole");
        assert!(whole.trailers().is_none());
        assert_eq!(whole.to_bytes(), "whole");
    }
}
