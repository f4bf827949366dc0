//! A whole data directory that an earlier build left, opened by this one: everything in it is read back, and
//! it goes on from there.
//!
//! `directory-1` holds its files, each in gzip, as the lab leaves them
//! (`TOWLINE_KEEP_DIRECTORY=hub/tests/store/directory-1 e2e/test --filter serve::kept`). Its keys have never
//! been those of anything else. A next format gets a folder of its own; this one is never made anew.
//!
//! The server is told what time it is: minutes after the directory was left, or years.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use common::admin::AdminState;
use common::time::SimClock;
use flate2::read::GzDecoder;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hub::apiserver::authn::Peer;
use hub::apiserver::caller::Caller;
use hub::apiserver::http::server::STRANGERS_OF_ADDRESS;
use hub::apiserver::serve::{Options, Running};
use hub::apiserver::store::Scope;
use hub::install::{Installation, plan};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const WORK: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/first";
const GADGET: &str = "/apis/fixture.towline.dev/v1/namespaces/fixture/gadgets/a";

/// An object as it lies in the database.
struct Row {
    path: String,
    revision: u64,
    json: Value,
}

/// The directory, served.
struct Opened {
    running: Running,
    rows: Vec<Row>,
    /// When it was left.
    left: DateTime<Utc>,
    now: DateTime<Utc>,
    dir: TempDir,
}

pub(crate) fn unpack(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("lists") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name");
        if path.is_dir() {
            fs::create_dir(to.join(name)).expect("makes");
            unpack(&path, &to.join(name));
        } else {
            let mut content = Vec::new();
            let packed = fs::File::open(&path).expect("opens");
            GzDecoder::new(packed)
                .read_to_end(&mut content)
                .expect("gzip");
            fs::write(to.join(name), content).expect("writes");
        }
    }
}

/// Every object, read without the store: in the format of this directory.
fn rows(file: &Path) -> Vec<Row> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.expect("opens");
    let sql = "SELECT r.name, o.namespace, o.name, o.revision, o.json
               FROM object o JOIN resource r ON r.id = o.resource";
    let mut statement = connection.prepare(sql).expect("a statement");
    let rows = statement.query_map([], |row| {
        let text = |column: usize| row.get::<_, String>(column);
        let (resource, namespace, name) = (text(0)?, text(1)?, text(2)?);
        let json: Value = serde_json::from_str(&text(4)?).expect("JSON");
        let version = json["apiVersion"].as_str().expect("a version");
        let root = if version == "v1" { "api" } else { "apis" };
        let plural = resource.rsplit('/').next().expect("a plural");
        let place = match namespace.as_str() {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let revision: i64 = row.get(3)?;
        Ok(Row {
            path: format!("/{root}/{version}/{place}{plural}/{name}"),
            revision: u64::try_from(revision).expect("positive"),
            json,
        })
    });
    rows.expect("rows").collect::<Result<_, _>>().expect("rows")
}

impl Opened {
    async fn new(after: TimeDelta) -> Self {
        common::tls::install_provider();
        let dir = TempDir::new().expect("a folder");
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/directory-1");
        unpack(&kept, dir.path());
        let rows = rows(&dir.path().join("hub.db"));
        let made = rows.iter().filter_map(|row| {
            let made = row.json["metadata"]["creationTimestamp"].as_str()?;
            made.parse::<DateTime<Utc>>().ok()
        });
        let left = made.max().expect("objects");
        let now = left + after;
        let options = Options {
            data_dir: dir.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            names: BTreeSet::from(["localhost".to_owned()]),
            certificate_lifetime: TimeDelta::days(90),
            address: String::new(),
            key_file: None,
            audit_log: None,
            strangers_of_address: STRANGERS_OF_ADDRESS,
            busy: None,
            new_database: false,
        };
        let clock = Arc::new(SimClock::starting_at(now));
        let env = common::env::Env::seeded(clock, 1);
        let running = Running::begin(options, AdminState::default(), env).await;
        let running = running.expect("the directory opens");
        Self {
            running,
            rows,
            left,
            now,
            dir,
        }
    }

    async fn ask(&self, peer: &Peer, token: &str, request: (&str, &str, &Value)) -> (u16, Value) {
        let (method, path, body) = request;
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut builder = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, kind);
        if !token.is_empty() {
            builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = builder
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let answer = self.running.router.handle(request, peer).await;
        let code = answer.status().as_u16();
        let bytes = answer
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        let (code, object) = self
            .ask(&Peer::Itself, "", ("GET", path, &Value::Null))
            .await;
        assert_eq!(code, 200, "{path}: {object}");
        object
    }

    /// Changes an object; the next revision is later than all that were handed out.
    async fn change(&self, path: &str) {
        let newest = self.rows.iter().map(|row| row.revision).max();
        let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
        let (code, object) = self.ask(&Peer::Itself, "", ("PATCH", path, &patch)).await;
        assert_eq!(code, 200, "{path}: {object}");
        assert!(Some(revision(&object)) > newest, "{object}");
    }

    /// Who has the certificate that the agent was given.
    fn agent(&self) -> Peer {
        let certificate = self
            .rows
            .iter()
            .find_map(|row| row.json["status"]["certificate"].as_str());
        let pem = STANDARD
            .decode(certificate.expect("a signed request"))
            .expect("base64");
        let chain = common::tls::certificates(&pem).expect("PEM");
        let keys = &self.running.keys;
        Peer::of(&chain, &keys.authorities(), &keys.revoked(), self.now)
    }
}

fn revision(object: &Value) -> u64 {
    let revision = object["metadata"]["resourceVersion"].as_str();
    revision
        .and_then(|text| text.parse().ok())
        .expect("a revision")
}

fn without_revision(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    object
}

/// What a later build may bring up to date as it starts.
fn is_the_systems(row: &Row) -> bool {
    row.path.contains("/customresourcedefinitions/")
        || row.json["metadata"]["labels"]["kubernetes.io/bootstrapping"].is_string()
}

#[tokio::test]
async fn a_directory_of_format_1_is_read_back() {
    let opened = Opened::new(TimeDelta::minutes(1)).await;
    assert!(opened.rows.len() > 100, "{}", opened.rows.len());
    for row in &opened.rows {
        let object = opened.get(&row.path).await;
        assert_eq!(
            object["metadata"]["uid"], row.json["metadata"]["uid"],
            "{}",
            row.path
        );
        assert!(revision(&object) >= row.revision, "{}", row.path);
        if !is_the_systems(row) {
            assert_eq!(
                without_revision(&object),
                without_revision(&row.json),
                "{}",
                row.path
            );
            assert_eq!(revision(&object), row.revision, "{}", row.path);
        }
    }
    assert_eq!(
        opened.get(GADGET).await["spec"],
        json!({"color": "red", "size": 7})
    );
    let newest = opened.rows.iter().map(|row| row.revision).max();
    assert!(Some(opened.running.store.revision()) >= newest);
    // History is there too: watches from before the end go on.
    let first = opened.get(WORK).await["metadata"]["resourceVersion"].to_string();
    let since = first.trim_matches('"').parse().expect("a revision");
    let store = &opened.running.store;
    let watch = store.watch("work.karmada.io/works", Scope::All, since);
    let event = watch.expect("covered").try_next().expect("open");
    assert!(event.is_some_and(|event| event.revision() > since));
    who_had_rights_has_them(&opened).await;
    opened.change(WORK).await;
    opened.running.end().await;
}

async fn who_had_rights_has_them(opened: &Opened) {
    let (none, agent) = (Value::Null, opened.agent());
    let status = format!("{WORK}/status");
    let patch = json!({"status": {}});
    let lease = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/m1";
    let another = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m2/works/waits";
    let map = "/api/v1/namespaces/fixture/configmaps/a";
    let reader = Peer::Known {
        caller: Caller {
            user: "reader".to_owned(),
            ..Caller::default()
        },
        valid: (opened.now, opened.now + TimeDelta::hours(1)),
    };
    for (peer, method, path, body, wanted) in [
        (&agent, "GET", WORK, &none, 200),
        (&agent, "PATCH", status.as_str(), &patch, 200),
        (&agent, "PATCH", lease, &json!({}), 200),
        (&agent, "GET", lease, &none, 403),
        (&agent, "GET", another, &none, 403),
        (&agent, "GET", map, &none, 403),
        (&reader, "GET", map, &none, 200),
        (&reader, "DELETE", map, &none, 403),
    ] {
        let (code, answer) = opened.ask(peer, "", (method, path, body)).await;
        assert_eq!(code, wanted, "{method} {path}: {answer}");
    }
    let token = opened
        .rows
        .iter()
        .find(|row| row.json["type"] == "bootstrap.kubernetes.io/token");
    let data = &token.expect("a token").json["data"];
    let part = |name: &str| {
        let decoded = STANDARD
            .decode(data[name].as_str().expect("a part"))
            .expect("base64");
        String::from_utf8(decoded).expect("text")
    };
    let (id, secret) = (part("token-id"), part("token-secret"));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    // It is known, and may do what a token may: ask for a certificate, and nothing else.
    for (token, wanted) in [
        (format!("{id}.{secret}"), 403),
        (format!("{id}.0123456789abcdef"), 401),
    ] {
        let ask = ("POST", path, &review);
        let (code, answer) = opened.ask(&Peer::Unknown, &token, ask).await;
        assert_eq!(code, wanted, "{answer}");
    }
}

/// An upgrade after years: certificates have ended and are made anew, what is stored is as it was.
#[tokio::test]
async fn a_directory_of_format_1_goes_on_after_years() {
    let opened = Opened::new(TimeDelta::days(4 * 365)).await;
    let client = opened.running.router.client();
    let installation = Installation {
        cluster_info: None,
        built_in: true,
    };
    for desired in installation.desired() {
        plan::enforce(&client, &desired)
            .await
            .expect("what a hub needs");
    }
    for row in opened
        .rows
        .iter()
        .filter(|row| row.path.contains(".dev/") || row.path.contains(".io/v1alpha1/"))
    {
        let object = opened.get(&row.path).await;
        assert_eq!(object["spec"], row.json["spec"], "{}", row.path);
    }
    let served = fs::read(opened.dir.path().join("pki/server.crt")).expect("there");
    let served = common::tls::certificates(&served).expect("PEM");
    let (from, until) = common::tls::validity(&served[0]).expect("a certificate");
    assert!(from > opened.left && from < opened.now && opened.now < until);
    let (code, _) = opened
        .ask(&opened.agent(), "", ("GET", WORK, &Value::Null))
        .await;
    assert_eq!(code, 401, "the agent's certificate has ended");
    opened.change(WORK).await;
    opened.change(GADGET).await;
    opened.running.end().await;
}
