//! A whole server without a thread, a socket or a database file, under simulated time: what a simulation runs.

use super::*;
use crate::apiserver::authn::Peer;
use crate::apiserver::caller::{Caller, MASTERS};
use crate::apiserver::http::Link;
use crate::apiserver::http::respond::Body;
use crate::apiserver::keys::client;
use crate::apiserver::store::MemoryDisk;
use bytes::Bytes;
use common::time::{Clock as _, SimClock};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use rustls::RootCertStore;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use serde_json::{Value, json};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ADDRESS: &str = "192.0.2.7";

/// Begins on a day in 2026, whenever it runs.
fn clock() -> SimClock {
    SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"))
}

/// The time of day that clients hold certificates against: the server's at its beginning.
#[derive(Debug)]
struct NewYear;

impl TimeProvider for NewYear {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(clock().now().timestamp()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// A host with a server on it.
struct Host {
    server: Assembled,
    writer: JoinHandle<()>,
    /// Of the keys alone.
    _dir: TempDir,
}

impl Host {
    async fn begin(seed: u64) -> Self {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let env = Env::seeded(Arc::new(clock()), seed);
        let opened = Store::simulated(&MemoryDisk::default(), store::Options::default());
        let (store, writer) = opened.expect("opens");
        let writer = tokio::spawn(writer);
        let foundation = Foundation {
            store,
            keys: Keys::open(dir.path(), &env.clock).expect("keys"),
            audit: Audit::default(),
            data_dir: dir.path().to_owned(),
            address: "hub:6443".to_owned(),
            busy: None,
            admin: AdminState::default(),
            env,
        };
        let server = Assembled::new(foundation).await.expect("a server");
        Self {
            server,
            writer,
            _dir: dir,
        }
    }

    async fn end(self) {
        self.server.end().await;
        self.writer.await.expect("ends");
    }
}

/// What happened, as text: every byte of every answer.
#[derive(Default)]
struct Trace(String);

impl Trace {
    fn note(&mut self, bytes: &[u8]) {
        self.0.push_str(&String::from_utf8_lossy(bytes));
        self.0.push('\n');
    }

    fn head(&mut self, answer: &Response<Body>) {
        let head = format!("{} {:?}", answer.status(), answer.headers());
        self.note(head.as_bytes());
    }

    async fn ask(&mut self, link: &Link, method: &str, path: &str, body: Value) -> Value {
        let answer = ask(link, method, path, body).await;
        self.head(&answer);
        let body = answer.into_body().collect().await.expect("a body");
        let body = body.to_bytes();
        self.note(&body);
        serde_json::from_slice(&body).expect("JSON")
    }
}

async fn ask(link: &Link, method: &str, path: &str, body: Value) -> Response<Body> {
    let body = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Full::new(body)).expect("a request");
    let Ok(answer) = link.clone().oneshot(request).await;
    answer
}

/// A day of a server: somebody writes, somebody else watches, and a third may not.
async fn day(seed: u64) -> String {
    let host = Host::begin(seed).await;
    let mut trace = Trace::default();
    let from: IpAddr = ADDRESS.parse().expect("an address");
    let (keys, now) = (&host.server.keys, clock_of(&host));
    let until = now + chrono::Duration::hours(1);
    let groups = [MASTERS.to_owned()];
    let (certificate, _) =
        client::issue(&keys.authorities().signer(), "admin", &groups, now, until).expect("issued");
    let chain = common::tls::certificates(certificate.as_bytes()).expect("PEM");
    let admin = host.server.router.link(from, &chain);
    let stranger = host.server.router.link(from, &[]);
    let bob = host.server.router.link_of(Peer::Known {
        caller: Caller {
            user: "bob".to_owned(),
            ..Caller::default()
        },
        valid: (now, until),
    });
    let none = Value::Null;
    let watched = ask(&admin, "GET", &format!("{ACCOUNTS}?watch=1"), Value::Null).await;
    trace.head(&watched);
    for (name, base) in [("a", None), ("", Some("drawn-"))] {
        let map = json!({"metadata": {"name": name, "generateName": base}, "data": {"a": "b"}});
        trace.ask(&admin, "POST", ACCOUNTS, map).await;
    }
    for link in [&stranger, &bob] {
        let refused = trace.ask(link, "GET", ACCOUNTS, none.clone()).await;
        assert_eq!(refused["code"], 403, "{refused}");
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let path = format!("{ACCOUNTS}/a");
    let mut map = trace.ask(&admin, "GET", &path, none.clone()).await;
    map["data"]["a"] = json!("c");
    trace.ask(&admin, "PUT", &path, map).await;
    trace.ask(&admin, "DELETE", &path, none.clone()).await;
    trace
        .ask(&admin, "GET", "/api/v1/namespaces", none.clone())
        .await;
    trace
        .ask(
            &admin,
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            none,
        )
        .await;
    let mut watched = watched.into_body();
    loop {
        let frame = watched.frame().await.expect("goes on").expect("a frame");
        let data = frame.into_data().expect("data");
        trace.note(&data);
        if data.starts_with(b"{\"type\":\"DELETED\"") {
            break;
        }
    }
    // Certificates end in simulated time as well.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        ask(&admin, "GET", ACCOUNTS, Value::Null).await.status(),
        401
    );
    drop(watched);
    host.end().await;
    trace.0
}

fn clock_of(host: &Host) -> chrono::DateTime<chrono::Utc> {
    host.server.router.parts().clock.now()
}

/// Runs something on one thread under simulated time.
fn alone<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(task)
}

#[test]
fn a_seed_says_every_byte_of_every_answer() {
    let [one, again, other] = [7, 7, 8].map(|seed| alone(day(seed)));
    assert!(one == again, "{one}\n\n{again}");
    assert_ne!(one, other);
    assert!(one.contains("\"name\":\"drawn-"), "{one}");
}

#[tokio::test(start_paused = true)]
async fn clients_of_any_number_work_over_links_and_over_connections_without_sockets() {
    let host = Host::begin(1).await;
    let made = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some("a".to_owned()),
            ..Default::default()
        },
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(host.server.router.client(), "default");
    maps.create(&PostParams::default(), &made)
        .await
        .expect("made");
    // Over TLS, from a pipe.
    let mut roots = RootCertStore::empty();
    for authority in host.server.keys.authorities().trusted() {
        roots.add(authority.clone()).expect("an authority");
    }
    let front = Front {
        names: BTreeSet::from(["localhost".to_owned()]),
        certificate_lifetime: chrono::Duration::days(1),
        strangers_of_address: 5,
    };
    let (connect, connections) = mpsc::channel(1);
    let address = SocketAddr::from(([192, 0, 2, 1], 6443));
    let running = host
        .server
        .listen(connections, address, front)
        .expect("listens");
    let (here, there) = tokio::io::duplex(1 << 16);
    let from: IpAddr = ADDRESS.parse().expect("an address");
    connect.send((there, from)).await.expect("it accepts");
    let provider = rustls::crypto::CryptoProvider::get_default()
        .expect("one")
        .clone();
    let mut config = rustls::ClientConfig::builder_with_details(provider, Arc::new(NewYear))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, here)
        .await;
    let stream = hyper_util::rt::TokioIo::new(connected.expect("TLS"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .expect("HTTP");
    let connection = tokio::spawn(connection);
    let request = Request::get("/version").header("host", "localhost");
    let request = request.body(Full::new(Bytes::new())).expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    drop((answer, sender));
    let _ = connection.await;
    running.end().await;
    host.writer.await.expect("ends");
}
