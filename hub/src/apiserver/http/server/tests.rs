//! A whole server over TLS: what is open when an identity ends, and who may keep connections and answers.

use super::*;
use crate::apiserver::caller::MASTERS;
use crate::apiserver::keys::authority::{Authorities, Step};
use crate::apiserver::keys::client;
use crate::apiserver::keys::revoked::{Entry, Revoked, Whom};
use crate::apiserver::serve::{Options, Running};
use bytes::Bytes;
use chrono::{DateTime, Duration as Span, Utc};
use common::admin::AdminState;
use common::time::{Clock, SystemClock};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(60);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The machine's clock, and how far it was put forward.
#[derive(Debug, Default)]
struct Forward(Mutex<Span>);

impl Clock for Forward {
    fn now(&self) -> DateTime<Utc> {
        SystemClock.now() + *self.0.lock().expect("unpoisoned")
    }
}

struct Rig {
    running: Running,
    dir: TempDir,
    clock: Arc<Forward>,
    roots: RootCertStore,
}

/// Who connects: a user, its groups, and how long its certificate lives.
type Who<'a> = Option<(&'a str, &'a [&'a str], Span)>;
const ADMIN: Who<'_> = Some(("admin", &[MASTERS], Span::hours(1)));

impl Rig {
    async fn begin(strangers_of_address: usize) -> Self {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options {
            data_dir: dir.path().to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: BTreeSet::from(["localhost".to_owned()]),
            certificate_lifetime: Span::days(1),
            address: String::new(),
            key_file: None,
            audit_log: None,
            strangers_of_address,
            busy: None,
            new_database: false,
        };
        let clock = Arc::new(Forward::default());
        let env = common::env::Env::seeded(clock.clone(), 1);
        let running = Running::begin(options, AdminState::default(), env).await;
        let running = running.expect("serves");
        let mut roots = RootCertStore::empty();
        for authority in running.keys.authorities().trusted() {
            roots.add(authority.clone()).expect("an authority");
        }
        Self {
            running,
            dir,
            clock,
            roots,
        }
    }

    /// A TLS connection that speaks `protocol`; an error when the server does not want it.
    async fn connect(&self, who: Who<'_>, protocol: &str) -> io::Result<ClientStream<TcpStream>> {
        let provider = Arc::new(ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone());
        let mut config = match who {
            None => builder.with_no_client_auth(),
            Some((user, groups, life)) => {
                let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
                let authorities = self.running.keys.authorities();
                let now = self.clock.now();
                let (certificate, key) =
                    client::issue(&authorities.signer(), user, &groups, now, now + life)
                        .expect("issued");
                let chain = common::tls::certificates(certificate.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("its key")
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        self.connect_with(config).await
    }

    async fn connect_with(
        &self,
        config: rustls::ClientConfig,
    ) -> io::Result<ClientStream<TcpStream>> {
        let stream = TcpStream::connect(self.running.address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    async fn client(&self, who: Who<'_>) -> Client {
        let stream = self.connect(who, "h2").await.expect("connected");
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("HTTP/2");
        tokio::spawn(connection);
        Client(sender)
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let request = Request::post(path).body(Full::new(Bytes::from(object.to_string())));
        let request = request.expect("a request");
        let answer = self.running.router.handle(request, &Peer::Itself).await;
        let code = answer.status();
        let body = answer
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }

    async fn delete(&self, path: &str) {
        let request = Request::delete(path).body(Full::new(Bytes::new()));
        let request = request.expect("a request");
        let answer = self.running.router.handle(request, &Peer::Itself).await;
        assert_eq!(answer.status(), 200, "{path}");
    }

    /// Gives a user rights on ConfigMaps in `default`.
    async fn allow(&self, name: &str, subject: &Value) {
        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
        let role = json!({"metadata": {"name": name}, "rules": rules});
        self.create(&format!("{rbac}/roles"), &role).await;
        let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": to, "subjects": [subject]});
        self.create(&format!("{rbac}/rolebindings"), &binding).await;
    }
}

/// One HTTP/2 connection that is kept.
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn ask(&mut self, path: &str, token: Option<&str>) -> Response<Incoming> {
        let mut request = Request::get(format!("https://localhost{path}"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let answer = timeout(SOON, self.0.send_request(request)).await;
        answer.expect("an answer in time").expect("an answer")
    }

    async fn code(&mut self, path: &str) -> u16 {
        self.ask(path, None).await.status().as_u16()
    }

    /// Asks until the answer has this code.
    async fn until(&mut self, path: &str, token: Option<&str>, code: u16) {
        let asked = async {
            while self.ask(path, token).await.status().as_u16() != code {
                yield_now().await;
            }
        };
        timeout(SOON, asked).await.expect("in time");
    }
}

/// Waits until the server ends a watch.
async fn ends(watch: Response<Incoming>) {
    assert_eq!(watch.status(), 200);
    let ended = timeout(SOON, watch.into_body().collect()).await;
    // However it ends.
    let _ = ended.expect("the watch ends");
}

fn watch() -> String {
    format!("{MAPS}?watch=1")
}

#[tokio::test]
async fn a_kept_connection_is_worth_nothing_after_its_authority_is_withdrawn() {
    let rig = Rig::begin(50).await;
    let mut old = rig.client(ADMIN).await;
    let mut kept = rig.client(ADMIN).await;
    let open = old.ask(&watch(), None).await;
    assert_eq!(kept.code(MAPS).await, 200);
    let folder = rig.running.keys.folder().to_owned();
    for step in [Step::Introduced, Step::Promoted, Step::Finished] {
        Authorities::advance(&folder, step, rig.clock.now()).expect("a step");
    }
    ends(open).await;
    assert_eq!(old.code(MAPS).await, 401, "the connection of the watch");
    kept.until(MAPS, None, 401).await;
    // The twin: a certificate of the new authority.
    let rig = Rig {
        roots: {
            let mut roots = RootCertStore::empty();
            let trusted = rig.running.keys.authorities();
            roots
                .add(trusted.trusted()[0].clone())
                .expect("an authority");
            roots
        },
        ..rig
    };
    assert_eq!(rig.client(ADMIN).await.code(MAPS).await, 200);
    rig.running.end().await;
}

#[tokio::test]
async fn a_certificate_that_ends_takes_its_watches_with_it() {
    let rig = Rig::begin(50).await;
    let short = Some(("admin", &[MASTERS][..], Span::seconds(3)));
    let mut client = rig.client(short).await;
    let open = client.ask(&watch(), None).await;
    ends(open).await;
    assert_eq!(client.code(MAPS).await, 401);
    // The twin has an hour, until the clock is put forward.
    let mut twin = rig.client(ADMIN).await;
    assert_eq!(twin.code(MAPS).await, 200);
    *rig.clock.0.lock().expect("unpoisoned") = Span::hours(2);
    assert_eq!(twin.code(MAPS).await, 401);
    rig.running.end().await;
}

#[tokio::test]
async fn what_is_revoked_is_refused_on_open_connections() {
    let rig = Rig::begin(50).await;
    let bob = Some(("bob", &[MASTERS][..], Span::hours(1)));
    let (mut lost, mut twin) = (rig.client(bob).await, rig.client(ADMIN).await);
    let open = lost.ask(&watch(), None).await;
    let other = twin.ask(&watch(), None).await;
    let entry = Entry {
        whom: Whom::User("bob".to_owned()),
        begun_by: None,
        until: None,
    };
    // By another process: the file alone.
    let now = rig.clock.now();
    let folder = rig.dir.path().join(crate::apiserver::keys::FOLDER);
    Revoked::change(&folder, |revoked| revoked.add(entry, now)).expect("written");
    ends(open).await;
    assert_eq!(lost.code(MAPS).await, 401);
    assert_eq!(
        rig.client(bob).await.code(MAPS).await,
        401,
        "a new connection"
    );
    // The twin's watch still tells what happens.
    rig.create(MAPS, &json!({"metadata": {"name": "a"}})).await;
    let mut other = other.into_body();
    let said = async {
        loop {
            let frame = other.frame().await.expect("goes on").expect("a frame");
            let data = frame.into_data().expect("data");
            if String::from_utf8_lossy(&data).contains("\"name\":\"a\"") {
                break;
            }
        }
    };
    timeout(SOON, said).await.expect("is told");
    rig.running.end().await;
}

#[tokio::test]
async fn a_user_without_the_right_loses_the_watch() {
    let rig = Rig::begin(50).await;
    let bob = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"});
    rig.allow("maps", &bob).await;
    let mut client = rig.client(Some(("bob", &[], Span::hours(1)))).await;
    client.until(MAPS, None, 200).await;
    let open = client.ask(&watch(), None).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    rig.delete(&format!("{rbac}/rolebindings/maps")).await;
    ends(open).await;
    assert_eq!(client.code(&watch()).await, 403);
    rig.running.end().await;
}

#[tokio::test]
async fn a_token_that_is_deleted_takes_its_watches_with_it() {
    let rig = Rig::begin(50).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    rig.create(accounts, &json!({"metadata": {"name": "robot"}}))
        .await;
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"});
    rig.allow("maps", &robot).await;
    let of_token = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": "system:bootstrap:abcdef"});
    rig.allow("maps-of-token", &of_token).await;
    let asked = json!({"spec": {"expirationSeconds": 3600}});
    let token = rig.create(&format!("{accounts}/robot/token"), &asked).await;
    let account = token["status"]["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true"}});
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    rig.create(secrets, &secret).await;
    let gone = format!("{secrets}/bootstrap-token-abcdef");
    for (token, gone) in [
        (account.as_str(), format!("{accounts}/robot")),
        ("abcdef.0123456789abcdef", gone),
    ] {
        let mut client = rig.client(None).await;
        client.until(MAPS, Some(token), 200).await;
        let open = client.ask(&watch(), Some(token)).await;
        rig.delete(&gone).await;
        ends(open).await;
        assert_eq!(client.ask(MAPS, Some(token)).await.status(), 401, "{gone}");
    }
    rig.running.end().await;
}

#[tokio::test]
async fn a_registration_that_is_replaced_keeps_nothing_whatever_bindings_come_back() {
    let rig = Rig::begin(50).await;
    let definition = json!({"metadata": {"name": "clusters.cluster.karmada.io"}, "spec": {
        "group": "cluster.karmada.io", "scope": "Cluster",
        "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
        "versions": [{"name": "v1alpha1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    rig.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await;
    let (old, new) = ("a".repeat(32), "b".repeat(32));
    let clusters = "/apis/cluster.karmada.io/v1alpha1/clusters";
    let mut admin = rig.client(ADMIN).await;
    admin.until(clusters, None, 200).await;
    let cluster = |id: &str| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "annotations": {"towline.dev/registration-id": id}}})
    };
    rig.create(clusters, &cluster(&old)).await;
    // A binding that nobody takes away.
    let group = format!("towline:cluster:m1:{old}");
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group});
    rig.allow("maps", &subject).await;
    let groups = ["system:karmada:agents", &group];
    let agent = Some(("system:karmada:agent:m1", &groups[..], Span::hours(1)));
    let mut client = rig.client(agent).await;
    client.until(MAPS, None, 200).await;
    let open = client.ask(&watch(), None).await;
    rig.delete(&format!("{clusters}/m1")).await;
    rig.create(clusters, &cluster(&new)).await;
    ends(open).await;
    assert_eq!(client.code(MAPS).await, 403);
    assert_eq!(
        rig.client(agent).await.code(MAPS).await,
        403,
        "a new connection"
    );
    // The same key registers again: its certificates count again.
    rig.delete(&format!("{clusters}/m1")).await;
    rig.create(clusters, &cluster(&old)).await;
    client.until(MAPS, None, 200).await;
    rig.running.end().await;
}

/// Streams that ask for something small and let nothing of the answer through.
async fn stalled(stream: &mut ClientStream<TcpStream>, path: &str, count: u32) {
    // SETTINGS with an initial window of zero.
    let mut bytes =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0".to_vec();
    let length = u8::try_from(path.len()).expect("a short path");
    // GET, https, and a path that is not in the table.
    let head = [&[0x82, 0x87, 0x04, length], path.as_bytes()].concat();
    for id in (1..2 * count).step_by(2) {
        bytes.extend_from_slice(&[0, 0, u8::try_from(head.len()).expect("short"), 1, 5]);
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&head);
    }
    stream.write_all(&bytes).await.expect("written");
    stream.flush().await.expect("written");
    // What the server says is read, so that it goes on; all of it is there with the last settings.
    let mut buffer = [0; 4096];
    let read = timeout(SOON, stream.read(&mut buffer))
        .await
        .expect("in time");
    assert!(read.expect("read") > 0);
}

#[tokio::test]
async fn a_stranger_that_takes_no_answer_is_nobody_elses_matter() {
    let rig = Rig::begin(50).await;
    let mut attackers = Vec::new();
    for _ in 0..2 {
        let mut stream = rig.connect(None, "h2").await.expect("connected");
        stalled(&mut stream, "/version", 200).await;
        attackers.push(stream);
    }
    let mut other = rig.client(None).await;
    for path in ["/version", "/livez", "/readyz", "/healthz"] {
        for _ in 0..20 {
            assert_eq!(other.code(path).await, 200, "{path}");
        }
    }
    // One address has so much, and no more; whether it lives is told all the same.
    for _ in 0..4 {
        let mut stream = rig.connect(None, "h2").await.expect("connected");
        stalled(&mut stream, "/version", 200).await;
        attackers.push(stream);
    }
    other.until("/version", None, 429).await;
    assert_eq!(other.code("/livez").await, 200);
    assert_eq!(rig.client(ADMIN).await.code(MAPS).await, 200);
    drop(attackers);
    other.until("/version", None, 200).await;
    rig.running.end().await;
}

#[tokio::test]
async fn one_address_has_so_many_connections_without_a_certificate() {
    let rig = Rig::begin(3).await;
    let mut strangers = Vec::new();
    for _ in 0..3 {
        let mut client = rig.client(None).await;
        assert_eq!(client.code("/version").await, 200);
        strangers.push(client);
    }
    let mut one_more = rig.connect(None, "http/1.1").await.expect("shaken");
    let mut buffer = [0; 16];
    let read = timeout(SOON, one_more.read(&mut buffer)).await;
    assert!(matches!(read.expect("in time"), Ok(0) | Err(_)));
    let mut admins = Vec::new();
    for _ in 0..5 {
        let mut admin = rig.client(ADMIN).await;
        assert_eq!(admin.code(MAPS).await, 200);
        admins.push(admin);
    }
    drop(strangers);
    let again = async {
        loop {
            let mut stream = rig.connect(None, "http/1.1").await.expect("shaken");
            let asked = stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await;
            let mut text = String::new();
            if asked.is_ok()
                && stream.read_to_string(&mut text).await.is_ok()
                && text.contains(" 200 ")
            {
                break;
            }
        }
    };
    timeout(SOON, again).await.expect("room again");
    rig.running.end().await;
}

/// Remembers what the server says of whom it takes.
#[derive(Debug, Default)]
struct Listening(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for Listening {
    fn resolve(&self, names: &[&[u8]], _: &[Scheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().expect("unpoisoned") = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn clients_are_told_whose_certificates_are_taken() {
    let rig = Rig::begin(50).await;
    let folder = rig.running.keys.folder().to_owned();
    let told = async || {
        let listening = Arc::new(Listening::default());
        let provider = Arc::new(ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(rig.roots.clone())
            .with_client_cert_resolver(listening.clone());
        rig.connect_with(config).await.expect("connected");
        listening.0.lock().expect("unpoisoned").clone()
    };
    let names = |authorities: &Authorities| -> Vec<Vec<u8>> {
        let names = authorities.names().iter();
        names.map(|name| name.as_ref().to_vec()).collect()
    };
    let first = names(&rig.running.keys.authorities());
    assert_eq!(first.len(), 1);
    assert_eq!(told().await, first);
    // A second authority is named as soon as it is trusted.
    Authorities::advance(&folder, Step::Introduced, rig.clock.now()).expect("a step");
    let both = names(&Authorities::read(&folder).expect("there"));
    assert_eq!(both.len(), 2);
    let until = async {
        while told().await != both {
            yield_now().await;
        }
    };
    timeout(SOON, until).await.expect("told");
    rig.running.end().await;
}
