//! What requests cost: the largest bodies of every shape through every kind of request, counted and not
//! timed by a clock on the wall. Eight times the body may cost some eight times as much, in bytes that are
//! allocated, in allocations, and in work of the processors; what grows with the square costs 64 times.
//!
//! `TOWLINE_COST_FILTER` picks shapes by a part of their names, and shows what each costs.

#[path = "cost/bodies.rs"]
mod bodies;
#[path = "cost/meter.rs"]
mod meter;
#[path = "cost/shapes.rs"]
mod shapes;

use bytes::Bytes;
use common::admin::AdminState;
use common::time::{Clock as _, SystemClock};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hub::apiserver::authn::Peer;
use hub::apiserver::caller::{Caller, MASTERS};
use hub::apiserver::serve::{Options, Running};
use meter::Spent;
use serde_json::json;
use shapes::{Ask, Shape};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use tempfile::TempDir;

/// How much larger the larger body is.
const TIMES: usize = 8;
/// How much more the larger body may cost.
const MORE: u64 = 24;
/// What any request may cost in work of the processors, in microseconds, beside that.
const WORK_OF_ANY: u64 = 60_000;
/// What any request may allocate beside that.
const BYTES_OF_ANY: u64 = 4 << 20;
/// An answer is no longer than so many bodies, which is what defaults and managed fields make of them.
const ANSWER: usize = 16;

struct Rig {
    running: Running,
    peer: Peer,
    _dir: TempDir,
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
        let running =
            Running::begin(options, AdminState::default(), common::env::Env::system()).await;
        let now = SystemClock.now();
        let peer = Peer::Known {
            caller: Caller {
                user: "root".to_owned(),
                groups: vec![MASTERS.to_owned()],
                ..Caller::default()
            },
            valid: (now, now + chrono::Duration::hours(2)),
        };
        let rig = Self {
            running: running.expect("serves"),
            peer,
            _dir: dir,
        };
        rig.define().await;
        rig
    }

    /// The kinds of Karmada, and one with rules.
    async fn define(&self) {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
        for name in ["work.karmada.io_works", "cluster.karmada.io_clusters"] {
            let file = folder.join(format!("{name}.yaml"));
            let text = std::fs::read(&file).expect("a definition");
            self.make(crds, "application/yaml", text).await;
        }
        let ruled = json!({
            "metadata": {"name": "ruled.a.example"},
            "spec": {"group": "a.example", "scope": "Namespaced",
                "names": {"plural": "ruled", "singular": "ruled", "kind": "Ruled"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                        "short": {"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 20}},
                        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "map": {"type": "array", "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                                "required": ["k"], "properties": {"k": {"type": "string"}}}},
                        "words": {"type": "array", "maxItems": 200_000, "items": {"type": "string",
                            "maxLength": 40, "pattern": "^([a-z]+)*$"}},
                        "n": {"type": "array", "maxItems": 1000, "items": {"type": "integer"},
                            "x-kubernetes-validations": [{"rule": "self.all(x, x >= 0)"}]},
                        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}]},
        });
        self.make(crds, "application/json", ruled.to_string().into_bytes())
            .await;
        let mut changes = self.running.router.parts().scheme.changes();
        for path in [
            "/apis/work.karmada.io/v1alpha1/works",
            "/apis/cluster.karmada.io/v1alpha1/clusters",
            "/apis/a.example/v1/ruled",
        ] {
            while self.send(&Ask::get(path)).await.status() != 200 {
                changes.changed().await.expect("follows");
            }
        }
        for (path, object) in shapes::objects() {
            self.make(path, "application/json", object.to_string().into_bytes())
                .await;
        }
    }

    async fn make(&self, path: &str, media: &str, body: Vec<u8>) {
        let answer = self.send(&Ask::new("POST", path, media, body)).await;
        let code = answer.status();
        let said = answer.into_body().collect().await.expect("a body");
        let said = String::from_utf8_lossy(&said.to_bytes()).into_owned();
        assert!(matches!(code.as_u16(), 201 | 409), "{path}: {code} {said}");
    }

    async fn send(&self, ask: &Ask) -> Response<hub::apiserver::http::respond::Body> {
        let mut request = Request::builder().method(ask.method).uri(&ask.path);
        for (name, value) in &ask.headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(ask.body.clone()));
        let request = request.body(body).expect("a request");
        self.running.router.handle(request, &self.peer).await
    }

    /// What a request costs, the cheapest of some: caches are filled, and what else goes on is none of it.
    async fn cost(&self, ask: &Ask, times: usize) -> Told {
        let mut best: Option<Told> = None;
        for _ in 0..times {
            let before = Spent::now();
            let answer = self.send(ask).await;
            let code = answer.status().as_u16();
            let read = answer.into_body().collect().await.expect("a body");
            let told = Told {
                code,
                length: read.to_bytes().len(),
                spent: Spent::now().since(&before),
            };
            let best = best.get_or_insert_with(|| told.clone());
            best.code = told.code;
            best.length = best.length.max(told.length);
            best.spent = best.spent.least(&told.spent);
        }
        best.expect("an answer")
    }
}

#[derive(Debug, Clone)]
struct Told {
    code: u16,
    length: usize,
    spent: Spent,
}

/// What is wrong with the cost of a shape.
fn judge(shape: &Shape, small: &Told, large: &Told, body: usize) -> Option<String> {
    let mut wrong = String::new();
    let dear = |what: &str, small: u64, large: u64, any: u64| {
        (large > small * MORE + any).then(|| format!(" {what} {small} -> {large};"))
    };
    let (a, b) = (&small.spent, &large.spent);
    wrong.extend(dear("bytes", a.bytes, b.bytes, BYTES_OF_ANY));
    wrong.extend(dear("allocations", a.calls, b.calls, 20_000));
    wrong.extend(dear(
        "microseconds of processors",
        a.work,
        b.work,
        WORK_OF_ANY,
    ));
    if large.length > ANSWER * body.max(1 << 16) {
        let _ = write!(wrong, " an answer of {} bytes to {body};", large.length);
    }
    let expected = shape.code.is_none_or(|code| code == large.code);
    if !expected {
        let _ = write!(wrong, " answered with {};", large.code);
    }
    (!wrong.is_empty()).then(|| format!("{}:{wrong}", shape.name))
}

#[tokio::test]
async fn what_is_eight_times_as_long_costs_some_eight_times_as_much() {
    let rig = Rig::begin().await;
    let filter = std::env::var("TOWLINE_COST_FILTER").ok();
    let mut wrong = Vec::new();
    for shape in shapes::all() {
        let picked = |filter: &String| shape.name.contains(filter.as_str());
        if !filter.as_ref().is_none_or(picked) {
            continue;
        }
        let ask = (shape.ask)(shape.count / TIMES);
        let small = rig.cost(&ask, 3).await;
        let ask = (shape.ask)(shape.count);
        assert!(ask.body.len() <= 3 << 20, "{} is too long", shape.name);
        let size = ask.body.len() + ask.path.len();
        let mut large = rig.cost(&ask, 1).await;
        if judge(&shape, &small, &large, size).is_some() {
            large = rig.cost(&ask, 2).await;
        }
        if filter.is_some() {
            let length = ask.body.len();
            writeln!(
                std::io::stderr(),
                "{} {length}: {small:?} {large:?}",
                shape.name
            )
            .expect("somebody reads");
        }
        wrong.extend(judge(&shape, &small, &large, size));
    }
    wrong.extend(kept(&rig).await);
    rig.running.end().await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Documents that every client asks for are made once.
async fn kept(rig: &Rig) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in [
        "/openapi/v3/api/v1",
        "/openapi/v3/apis/apps/v1",
        "/openapi/v3/apis/work.karmada.io/v1alpha1",
    ] {
        let mut ask = Ask::get(path);
        ask.headers.push(("accept-encoding", "gzip"));
        rig.send(&ask).await;
        let again = rig.cost(&ask, 1).await;
        if again.code != 200 || again.spent.bytes > 200_000 {
            wrong.push(format!("{path}: {again:?}"));
        }
    }
    wrong
}
