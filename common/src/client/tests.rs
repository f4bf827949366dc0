mod kubeconfig;

use super::*;
use crate::testing::{
    Handler, Peer, Relaying, TestServer, handler, relay, serve, serve_on, server_config,
    server_config_for, text,
};
use crate::tls::PeerProblem;
use crate::tls::testing::{authority, leaf, leaf_with};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rcgen::{CertifiedIssuer, KeyPair};
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::time::Instant;

type Ca = CertifiedIssuer<'static, KeyPair>;

const MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}"#;

fn answering() -> Handler {
    handler(|_| text(200, MAP))
}

async fn hub(ca: &Ca, h2: bool, answer: Handler) -> TestServer {
    serve(server_config(&leaf(ca, &["127.0.0.1"]), h2), answer).await
}

fn target(ca: &Ca, servers: &[&HostPort]) -> HubTarget {
    HubTarget {
        servers: servers.iter().map(|&s| s.clone()).collect(),
        ca_pem: ca.pem().into_bytes(),
        proxy: ProxyChoice::direct(),
        credentials: Credentials::Anonymous,
    }
}

fn client(target: &HubTarget, timeout: Duration) -> kube::Client {
    let options = ClientOptions::new("test").with_timeout(timeout);
    hub_client(target, &options, &Env::system()).expect("a client")
}

async fn get(client: &kube::Client) -> Result<ConfigMap, Problem> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    api.get("x").await.map_err(|error| classify(&error))
}

async fn free() -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    HostPort::new("127.0.0.1", listener.local_addr().expect("bound").port())
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let ca = authority("hub");
    let many = ClientOptions::new("test").with_timeout(LONG);
    let one = many.clone().one_at_a_time();
    for (h2, options, version) in [
        (true, &many, http::Version::HTTP_2),
        (false, &many, http::Version::HTTP_11),
        (true, &one, http::Version::HTTP_11),
    ] {
        let server = hub(
            &ca,
            h2,
            handler(move |request| {
                assert_eq!(request.version(), version);
                let agent = request.headers()["user-agent"]
                    .to_str()
                    .expect("text")
                    .to_owned();
                assert_eq!(agent, format!("towline-test/{}", env!("CARGO_PKG_VERSION")));
                text(200, MAP)
            }),
        )
        .await;
        let client = hub_client(&target(&ca, &[&server.address]), options, &Env::system())
            .expect("a client");
        get(&client).await.expect("answered");
    }
}

#[tokio::test]
async fn addresses_are_tried_in_turn_and_the_good_one_is_remembered() {
    let ca = authority("hub");
    let server = hub(&ca, true, answering()).await;
    // Accepts and hangs up: tried once, then left alone.
    let broken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = HostPort::new("127.0.0.1", broken.local_addr().expect("bound").port());
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    let accepting = tokio::spawn(async move {
        while broken.accept().await.is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let swap = CertificateSwap::empty();
    let mut target = target(&ca, &[&free().await, &address, &server.address]);
    target.credentials = Credentials::Certificate(swap.clone());
    let client = client(&target, LONG);
    for _ in 0..3 {
        get(&client).await.expect("the third address");
        // A new certificate makes a new connection.
        let (cert, key) = leaf(&ca, &["m1"]);
        swap.set(cert.as_bytes(), key.as_bytes()).expect("a pair");
    }
    assert_eq!(tried.load(Ordering::SeqCst), 1);
    accepting.abort();
}

#[tokio::test]
async fn an_error_is_answered_once_and_told_as_it_is() {
    let ca = authority("hub");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = hub(&ca, true, handler(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let status = r#"{"kind":"Status","status":"Failure","message":"later","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":7}}"#;
        text(429, status)
    }))
    .await;
    let problem = get(&client(&target(&ca, &[&server.address]), LONG))
        .await
        .expect_err("429");
    let Problem::Api {
        code: 429,
        retry_after,
        ..
    } = problem
    else {
        unreachable!("{problem}")
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "nothing is tried again behind our back"
    );
}

/// Answers nothing on the first connection, everything on later ones.
fn deaf_first() -> Handler {
    let first: Mutex<bool> = Mutex::new(true);
    Arc::new(move |_| {
        let deaf = std::mem::take(&mut *first.lock().expect("no panic"));
        Box::pin(async move {
            if deaf {
                std::future::pending::<()>().await;
            }
            text(200, MAP)
        })
    })
}

#[tokio::test]
async fn a_missed_deadline_is_told_and_takes_the_connection_with_it() {
    let ca = authority("hub");
    for h2 in [true, false] {
        let server = hub(&ca, h2, deaf_first()).await;
        let relay = relay(&server.address, Relaying::Plain).await;
        let client = client(&target(&ca, &[&relay.address]), Duration::from_millis(700));
        let problem = get(&client).await.expect_err("deaf");
        let Problem::Timeout(TimedOut { path, method, .. }) = &problem else {
            unreachable!("{problem}")
        };
        assert_eq!(
            (method.as_str(), path.as_str()),
            ("GET", "/api/v1/namespaces/default/configmaps/x")
        );
        get(&client).await.expect("a new connection answers");
        assert_eq!(relay.accepted.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_request_may_have_a_deadline_of_its_own() {
    let ca = authority("hub");
    let server = hub(&ca, true, deaf_first()).await;
    let client = client(&target(&ca, &[&server.address]), LONG);
    let own = Duration::from_millis(300);
    let request = Request::get("/api/v1/namespaces/default/configmaps/x");
    let mut request = request.body(Vec::new()).expect("a request");
    request.extensions_mut().insert(AnswerWithin(own));
    let answered: Result<ConfigMap, _> = client.request(request).await;
    let problem = classify(&answered.expect_err("deaf"));
    let Problem::Timeout(TimedOut { after, .. }) = &problem else {
        unreachable!("{problem}")
    };
    assert_eq!(*after, own);
    get(&client).await.expect("the next one has its client's");
}

#[tokio::test]
async fn a_connection_that_is_dropped_silently_is_left_at_the_deadline() {
    let ca = authority("hub");
    let server = hub(&ca, true, answering()).await;
    let relay = relay(&server.address, Relaying::Plain).await;
    let client = client(&target(&ca, &[&relay.address]), Duration::from_millis(700));
    get(&client).await.expect("answered");
    relay.drop_established();
    assert!(matches!(get(&client).await, Err(Problem::Timeout(_))));
    get(&client).await.expect("a new connection answers");
}

#[tokio::test]
async fn an_idle_watch_on_a_dropped_connection_ends_by_the_pings() {
    let ca = authority("hub");
    let silent: Handler = Arc::new(|_| {
        Box::pin(async {
            let endless = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            http::Response::new(StreamBody::new(endless).boxed())
        })
    });
    let server = hub(&ca, true, silent).await;
    let relay = relay(&server.address, Relaying::Plain).await;
    let client = client(&target(&ca, &[&relay.address]), Duration::from_secs(2));
    let request = Request::get("/api/v1/configmaps?watch=true")
        .body(Body::empty())
        .expect("valid");
    let mut body = client.send(request).await.expect("opened").into_body();
    relay.drop_established();
    tokio::time::pause();
    let begun = Instant::now();
    let frame = http_body_util::BodyExt::frame(&mut body)
        .await
        .expect("an end");
    assert!(frame.is_err(), "it must not look like a regular end");
    // Past the request's deadline, which a watch does not have, and no later than the pings say.
    assert!(begun.elapsed() > Duration::from_secs(2));
    assert!(begun.elapsed() <= PING_INTERVAL + PING_TIMEOUT + Duration::from_secs(1));
}

/// An answer longer than the client reads is cut off; a client without a bound reads it.
#[tokio::test]
async fn answers_are_cut_off_where_the_client_says() {
    let ca = authority("hub");
    let long = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}},"data":{{"k":"{}"}}}}"#,
        "v".repeat(100_000)
    );
    let server = hub(&ca, true, handler(move |_| text(200, long.clone()))).await;
    let target = target(&ca, &[&server.address]);
    let options = ClientOptions::new("test").with_timeout(LONG);
    let whole = hub_client(&target, &options, &Env::system()).expect("a client");
    get(&whole).await.expect("answered");
    let options = options.with_answer_max(50_000);
    let bounded = hub_client(&target, &options, &Env::system()).expect("a client");
    let problem = get(&bounded).await.expect_err("it is too long");
    assert!(
        problem
            .to_string()
            .contains("longer than this client reads"),
        "{problem}"
    );
}

#[tokio::test]
async fn an_exchanged_certificate_is_used_at_the_next_request() {
    let ca = authority("hub");
    let identity = leaf(&ca, &["127.0.0.1"]);
    for h2 in [true, false] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        let config = server_config_for(&identity, h2, Some(&ca.pem()));
        let server = serve(
            config,
            handler(move |request| {
                let Peer(peer) = request.extensions().get::<Peer>().expect("set").clone();
                notes
                    .lock()
                    .expect("no panic")
                    .push(peer.expect("a client certificate"));
                text(200, MAP)
            }),
        )
        .await;
        let swap = CertificateSwap::empty();
        let mut target = target(&ca, &[&server.address]);
        target.credentials = Credentials::Certificate(swap.clone());
        let client = client(&target, LONG);
        for name in ["a", "b"] {
            let (cert, key) = leaf_with(&ca, &[name], |params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            });
            swap.set(cert.as_bytes(), key.as_bytes()).expect("a pair");
            get(&client).await.expect("answered");
            let expected = tls::certificates(cert.as_bytes()).expect("one").remove(0);
            assert_eq!(seen.lock().expect("no panic").last(), Some(&expected));
        }
    }
}

#[tokio::test]
async fn proxies_are_asked_with_the_password_and_refusals_told() {
    let ca = authority("hub");
    let server = hub(&ca, true, answering()).await;
    let proxy = relay(
        &server.address,
        Relaying::Connect(Some("Basic bWU6cEBzcw==")),
    )
    .await;
    let mut target = target(&ca, &[&server.address]);
    target.proxy =
        ProxyChoice::explicit(&format!("http://me:p%40ss@{}", proxy.address)).expect("valid");
    get(&client(&target, LONG))
        .await
        .expect("through the proxy");
    assert_eq!(proxy.accepted.load(Ordering::SeqCst), 1);

    target.proxy = ProxyChoice::explicit(&format!("http://{}", proxy.address)).expect("valid");
    let problem = get(&client(&target, LONG)).await.expect_err("no password");
    assert!(
        matches!(&problem, Problem::ProxyRefused { status: 407, .. }),
        "{problem}"
    );

    target.proxy = ProxyChoice::explicit(&format!("http://{}", free().await)).expect("valid");
    let problem = get(&client(&target, LONG)).await.expect_err("no proxy");
    assert!(
        matches!(&problem, Problem::ProxyUnreachable { .. }),
        "{problem}"
    );
}

#[tokio::test]
async fn failures_to_connect_are_told_apart() {
    let (ca, other) = (authority("hub"), authority("Corp Inspection"));
    let refused = get(&client(&target(&ca, &[&free().await]), LONG))
        .await
        .expect_err("nobody");
    assert!(matches!(&refused, Problem::Refused { .. }), "{refused}");
    let nowhere = HostPort::new("no-such-host.invalid", 1);
    let dns = get(&client(&target(&ca, &[&nowhere]), LONG))
        .await
        .expect_err("no name");
    assert!(matches!(&dns, Problem::Dns { .. }), "{dns}");
    let foreign = hub(&other, true, answering()).await;
    let problem = get(&client(&target(&ca, &[&foreign.address]), LONG))
        .await
        .expect_err("foreign");
    assert!(
        matches!(&problem, Problem::Certificate { problem: PeerProblem::ForeignIssuer { issuer }, .. }
            if issuer == "CN=Corp Inspection"),
        "{problem}"
    );
    // The most telling reason is the one that is told.
    let both = target(&ca, &[&foreign.address, &free().await]);
    let api: Api<ConfigMap> = Api::namespaced(client(&both, LONG), "default");
    let error = api.get("x").await.expect_err("neither");
    assert!(matches!(classify(&error), Problem::Certificate { .. }));
    assert_eq!(attempts(&error).len(), 2);
}

#[tokio::test]
async fn literal_ipv6_addresses_are_dialled() {
    let ca = authority("hub");
    let config = server_config(&leaf(&ca, &["::1"]), true);
    let server = serve_on("[::1]:0", config, answering()).await;
    assert!(server.address.to_string().starts_with("[::1]:"));
    get(&client(&target(&ca, &[&server.address]), LONG))
        .await
        .expect("answered");
    let proxy = relay(&server.address, Relaying::Connect(None)).await;
    let mut through = target(&ca, &[&server.address]);
    through.proxy = ProxyChoice::explicit(&format!("http://{}", proxy.address)).expect("valid");
    get(&client(&through, LONG))
        .await
        .expect("through the proxy");
}
