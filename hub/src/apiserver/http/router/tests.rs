//! A whole server, asked in process.

mod audited;
mod counted;
mod floods;
mod rights;
mod signs;
mod stages;
mod tenant;

use super::*;
use crate::apiserver::caller::Caller;
use crate::apiserver::http::body;
use crate::apiserver::serve::{Options, Running};
use crate::install::proof;
use common::time::SystemClock;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::TempDir;

struct Rig {
    running: Running,
    dir: TempDir,
}

impl Rig {
    async fn begin() -> Self {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let options = Options {
            data_dir: dir.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            names: BTreeSet::from(["localhost".to_owned()]),
            certificate_lifetime: chrono::Duration::days(1),
            address: String::new(),
            key_file: None,
            audit_log: None,
            strangers_of_address: 50,
            busy: None,
            new_database: false,
        };
        let env = common::env::Env::system();
        let running = Running::begin(options, AdminState::default(), env).await;
        Self {
            running: running.expect("serves"),
            dir,
        }
    }

    async fn send(
        &self,
        peer: &Peer,
        request: (&str, &str),
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Body> {
        let (method, path) = request;
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(Full::new(body.into())).expect("a request");
        self.running.router.handle(request, peer).await
    }

    async fn ask(&self, peer: &Peer, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let response = self.send(peer, (method, path), &[], body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body");
        let value = serde_json::from_slice(&bytes.to_bytes()).unwrap_or_default();
        (code, value)
    }
}

/// Somebody with a certificate.
fn somebody(user: &str, groups: &[&str]) -> Peer {
    let now = common::time::Clock::now(&SystemClock);
    Peer::Known {
        caller: Caller {
            user: user.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Caller::default()
        },
        valid: (now, now + chrono::Duration::hours(1)),
    }
}

const NONE: Value = Value::Null;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Gives a group these rights, and waits until one of it may do what it asks.
async fn allow(rig: &Rig, group: &str, rules: Value, peer: &Peer, path: &str) {
    let role = json!({"metadata": {"name": group}, "rules": rules});
    let binding = json!({
        "metadata": {"name": group},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    let mut changes = rig.running.router.parts().authorizer.changes();
    for (plural, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        assert_eq!(rig.ask(&Peer::Itself, "POST", &path, object).await.0, 201);
    }
    while rig.ask(peer, "GET", path, &NONE).await.0 != 200 {
        changes.changed().await.expect("follows");
    }
}

#[tokio::test]
async fn who_may_not_is_refused_before_anything_is_read() {
    let rig = Rig::begin().await;
    let bob = somebody("bob", &["devs"]);
    let broken = json!({"metadata": 7});
    for (peer, code) in [
        (&Peer::Itself, 400),
        (&bob, 403),
        (&Peer::Unknown, 403),
        (&Peer::Refused("x".to_owned()), 401),
    ] {
        let (got, status) = rig.ask(peer, "POST", MAPS, &broken).await;
        assert_eq!((got, &status["kind"]), (code, &json!("Status")), "{peer:?}");
    }
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(
            rig.ask(&Peer::Unknown, "GET", path, &NONE).await.0,
            200,
            "{path}"
        );
    }
    assert_eq!(rig.ask(&Peer::Unknown, "GET", "/apis", &NONE).await.0, 403);
    assert_eq!(rig.ask(&bob, "GET", "/apis", &NONE).await.0, 200);
    rig.running.end().await;
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_told_as_kubernetes_tells_them() {
    let rig = Rig::begin().await;
    let cases = [
        ("POST", "/api/v1/namespaces/default", 405),
        ("HEAD", "/api/v1/namespaces", 405),
        ("OPTIONS", "/api/v1/namespaces", 405),
        ("GET", "/api/v1/foos", 404),
        ("GET", "/api/v1/namespaces/default/foo/bar/baz", 404),
        ("GET", "/apis/none.example/v1/foos", 404),
        ("GET", "/api/v1/namespaces/a/../b/secrets", 400),
        ("GET", "/openapi/v2", 200),
        ("DELETE", "/version", 405),
        ("GET", "/api/v1/namespaces/default/status", 200),
    ];
    for (method, path, code) in cases {
        let (got, _) = rig.ask(&Peer::Itself, method, path, &NONE).await;
        assert_eq!(got, code, "{method} {path}");
    }
    rig.running.end().await;
}

#[tokio::test]
async fn bodies_have_a_limit_and_a_type() {
    let rig = Rig::begin().await;
    let large = vec![b'a'; body::BODY_MAX + 1];
    let sent = rig.send(&Peer::Itself, ("POST", MAPS), &[], large).await;
    assert_eq!(sent.status(), 413);
    let headers = [(CONTENT_TYPE.as_str(), "text/plain")];
    let sent = rig
        .send(&Peer::Itself, ("POST", MAPS), &headers, "{}")
        .await;
    assert_eq!(sent.status(), 415);
    let headers = [(ACCEPT.as_str(), "text/html")];
    let sent = rig.send(&Peer::Itself, ("GET", MAPS), &headers, "").await;
    assert_eq!(sent.status(), 406);
    assert!(sent.headers().contains_key("audit-id"));
    assert_eq!(sent.headers()["cache-control"], "no-cache, private");
    rig.running.end().await;
}

#[tokio::test]
async fn watches_of_one_user_are_counted_until_they_end() {
    let rig = Rig::begin().await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    let role = json!({"metadata": {"name": "maps"}, "rules": rules});
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "watchers"}],
    });
    let mut changes = rig.running.router.parts().authorizer.changes();
    for (plural, object) in [("clusterroles", &role), ("clusterrolebindings", &binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{plural}");
        assert_eq!(rig.ask(&Peer::Itself, "POST", &path, object).await.0, 201);
    }
    let bob = somebody("bob", &["watchers"]);
    let eve = somebody("eve", &["watchers"]);
    while rig.ask(&bob, "GET", MAPS, &NONE).await.0 != 200 {
        changes.changed().await.expect("follows");
    }
    let watch = format!("{MAPS}?watch=1");
    let mut open = Vec::new();
    loop {
        let answer = rig.send(&bob, ("GET", &watch), &[], "").await;
        if answer.status() == 429 {
            assert!(answer.headers().contains_key("retry-after"));
            break;
        }
        assert_eq!(answer.status(), 200);
        open.push(answer);
        assert!(open.len() <= 1_000, "nobody counts");
    }
    assert_eq!(open.len(), 1_000);
    // Other requests of the same user, and watches of others.
    assert_eq!(rig.ask(&bob, "GET", MAPS, &NONE).await.0, 200);
    assert_eq!(rig.send(&eve, ("GET", &watch), &[], "").await.status(), 200);
    open.pop();
    assert_eq!(rig.send(&bob, ("GET", &watch), &[], "").await.status(), 200);
    // The old form of a watch is one only as a question.
    let old = "/api/v1/watch/namespaces/default/configmaps";
    assert_eq!(rig.send(&eve, ("GET", old), &[], "").await.status(), 200);
    assert_eq!(rig.ask(&Peer::Itself, "POST", old, &NONE).await.0, 405);
    drop(open);
    rig.running.end().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_count() {
    let rig = Rig::begin().await;
    let bob = somebody("bob", &["readers"]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    allow(&rig, "readers", rules, &bob, MAPS).await;
    let mut unread = Vec::new();
    // Small ones count by their number.
    loop {
        let answer = rig.send(&bob, ("GET", MAPS), &[], "").await;
        if answer.status() == 429 {
            break;
        }
        unread.push(answer);
        assert!(unread.len() <= 200, "nobody counts");
    }
    assert!(
        unread
            .iter()
            .all(|answer| answer.body().size_hint().exact().is_some())
    );
    drop(unread);
    let large = "x".repeat(1_000_000);
    for name in 0..64 {
        let map = json!({"metadata": {"name": format!("m{name}")}, "data": {"a": large}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    }
    let mut unread = Vec::new();
    loop {
        let answer = rig.send(&bob, ("GET", MAPS), &[], "").await;
        if answer.status() == 429 {
            break;
        }
        unread.push(answer);
        assert!(unread.len() <= 4, "nobody weighs");
    }
    assert_eq!(unread.len(), 4);
    let read = unread.pop().expect("one").into_body().collect().await;
    assert!(read.is_ok_and(|read| read.to_bytes().len() > 64_000_000));
    assert_eq!(rig.send(&bob, ("GET", MAPS), &[], "").await.status(), 200);
    // Whoever may do everything is not counted, and nobody else waits for bob.
    let eve = somebody("eve", &["readers"]);
    assert_eq!(rig.send(&eve, ("GET", MAPS), &[], "").await.status(), 200);
    drop(unread);
    rig.running.end().await;
}

#[tokio::test]
async fn who_is_nobody_and_who_may_not_act_is_in_the_log() {
    let rig = Rig::begin().await;
    let headers = [
        ("authorization", "Bearer abc"),
        ("impersonate-user", "admin"),
    ];
    let refused = rig
        .send(&Peer::Unknown, ("GET", MAPS), &headers[..1], "")
        .await;
    assert_eq!(refused.status(), 401);
    let bob = somebody("bob", &["devs"]);
    let refused = rig.send(&bob, ("GET", MAPS), &headers[1..], "").await;
    assert_eq!(refused.status(), 403);
    let log = std::fs::read_to_string(rig.dir.path().join("audit.log")).expect("a log");
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let said: Vec<(Value, Value)> = lines
        .map(|line| (line["code"].clone(), line["user"]["username"].clone()))
        .collect();
    for line in [
        (json!(401), json!("system:anonymous")),
        (json!(403), json!("bob")),
    ] {
        assert!(said.contains(&line), "{said:?}");
    }
    rig.running.end().await;
}

#[tokio::test]
async fn the_log_says_what_was_kept_and_not_what_the_query_says() {
    let rig = Rig::begin().await;
    for name in ["a", "b"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(rig.ask(&Peer::Itself, "POST", MAPS, &map).await.0, 201);
    }
    let all = json!({"dryRun": ["All"]});
    for (path, body, gone) in [
        ("a", &all, false),
        // The body is what counts.
        (
            "a?dryRun=All",
            &json!({"propagationPolicy": "Background"}),
            true,
        ),
        ("b?dryRun=All", &NONE, false),
        ("b?dryRun=", &NONE, true),
    ] {
        let path = format!("{MAPS}/{path}");
        assert_eq!(
            rig.ask(&Peer::Itself, "DELETE", &path, body).await.0,
            200,
            "{path}"
        );
        let log = std::fs::read_to_string(rig.dir.path().join("audit.log")).expect("a log");
        let line = log.lines().last().expect("a line");
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&line["verb"], line["dryRun"].is_null()),
            (&json!("delete"), gone),
            "{path}: {line}"
        );
        let found = rig
            .ask(
                &Peer::Itself,
                "GET",
                path.split('?').next().expect("a path"),
                &NONE,
            )
            .await
            .0;
        assert_eq!(found == 404, gone, "{path}");
    }
    rig.running.end().await;
}

#[tokio::test]
async fn a_fleet_at_rest_writes_nothing_into_the_log() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let rig = Rig::begin().await;
    let path = format!("{LEASES}/a");
    let lease = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}});
    let (code, mut lease) = rig.ask(&Peer::Itself, "POST", LEASES, &lease).await;
    assert_eq!(code, 201);
    // Renewed, left as it is, and taken by another holder.
    for (key, value, written) in [
        ("renewTime", "2026-01-01T00:00:10.000000Z", 1),
        ("renewTime", "2026-01-01T00:00:10.000000Z", 1),
        ("holderIdentity", "b", 2),
    ] {
        lease["spec"][key] = json!(value);
        let (code, now) = rig.ask(&Peer::Itself, "PUT", &path, &lease).await;
        assert_eq!(code, 200, "{now}");
        lease = now;
        let log = std::fs::read_to_string(rig.dir.path().join("audit.log")).expect("a log");
        assert_eq!(log.matches(LEASES).count(), written, "{log}");
    }
    rig.running.end().await;
}

#[tokio::test]
async fn certificate_requests_of_one_user_have_a_budget() {
    let rig = Rig::begin().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let rules = json!([{"apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"], "verbs": ["create", "list"]}]);
    let (bob, eve) = (somebody("bob", &["askers"]), somebody("eve", &["askers"]));
    allow(&rig, "askers", rules, &bob, requests).await;
    let key = common::chance::secret::key_pair().expect("a key");
    let params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    let request = params.serialize_request(&key).expect("a request");
    let request = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        request.pem().expect("PEM"),
    );
    let asked = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"request": request, "usages": ["client auth"],
            "signerName": "example.com/nobody"}})
    };
    let mut made = Vec::new();
    let refused = loop {
        let name = format!("r{}", made.len());
        let body = asked(&name).to_string();
        let answer = rig.send(&bob, ("POST", requests), &[], body).await;
        if answer.status() != 201 {
            break answer;
        }
        made.push(name);
        assert!(made.len() <= 1_000, "nobody counts");
    };
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(made.len(), 100);
    // Others have their own, and administrators are not counted.
    assert_eq!(rig.ask(&eve, "POST", requests, &asked("e")).await.0, 201);
    assert_eq!(
        rig.ask(&Peer::Itself, "POST", requests, &asked("i"))
            .await
            .0,
        201
    );
    let path = format!("{requests}/{}", made[0]);
    assert_eq!(rig.ask(&Peer::Itself, "DELETE", &path, &NONE).await.0, 200);
    assert_eq!(
        rig.ask(&bob, "POST", requests, &asked("again")).await.0,
        201
    );
    assert_eq!(rig.ask(&bob, "POST", requests, &asked("more")).await.0, 429);
    rig.running.end().await;
}

#[tokio::test]
async fn the_hubs_own_proof_of_its_rules_is_not_in_the_log() {
    let rig = Rig::begin().await;
    let ask = async |peer: &Peer, user: &str| {
        let headers = [
            ("content-type", "application/merge-patch+json"),
            ("impersonate-user", user),
        ];
        let path = format!("{MAPS}/x?dryRun=All");
        let sent = rig.send(peer, ("PATCH", &path), &headers, "{}").await;
        assert_eq!(sent.status(), 403);
        let log = std::fs::read_to_string(rig.dir.path().join("audit.log")).unwrap_or_default();
        log.matches(user).count()
    };
    let proof = proof::AGENT_USER;
    assert_eq!(ask(&Peer::Itself, proof).await, 0);
    assert_eq!(ask(&Peer::Itself, "evelyn").await, 1, "anybody else's is");
    let admin = somebody("admin", &[crate::apiserver::caller::MASTERS]);
    assert_eq!(ask(&admin, proof).await, 1, "nobody hides behind that name");
    rig.running.end().await;
}
