//! What is secret lies nowhere in plain: every byte of a data directory, of its backups and of what a restore
//! makes of them is looked through. Who has no key gets nothing, and is told which one is missing.

use super::directory::unpack;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use common::admin::AdminState;
use common::time::SimClock;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hub::apiserver::authn::Peer;
use hub::apiserver::http::server::STRANGERS_OF_ADDRESS;
use hub::apiserver::sealing::Keyring;
use hub::apiserver::serve::{Error, Options, Running};
use hub::apiserver::store::{Change, Class, Expect, Key, Options as StoreOptions, Store, Write};
use hub::install::{Installation, crds, plan};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

const WORTH: &str = "worth-a-kingdom-0123456789";
const LATER: &str = "worth-another-kingdom-98765";
const GONE: &str = "worth-nothing-any-more-5555";
const CARRIED: &str = "worth-a-member-cluster-7777";
const OPEN: &str = "everybody-may-know-this-1234";
const TOKEN_SECRET: &str = "0f1e2d3c4b5a6978";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A server over a folder with a key apart.
struct Served {
    running: Running,
}

fn options(data: &Path, key_file: Option<&Path>) -> Options {
    Options {
        data_dir: data.to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        names: ["localhost".to_owned()].into(),
        certificate_lifetime: chrono::TimeDelta::days(90),
        address: String::new(),
        key_file: key_file.map(Path::to_owned),
        audit_log: None,
        strangers_of_address: STRANGERS_OF_ADDRESS,
        busy: None,
        new_database: false,
    }
}

async fn begin(data: &Path, key_file: Option<&Path>) -> Result<Served, Error> {
    common::tls::install_provider();
    let now = "2026-11-01T00:00:00Z".parse().expect("a time");
    let clock = Arc::new(SimClock::starting_at(now));
    let env = common::env::Env::seeded(clock, 1);
    let running = Running::begin(options(data, key_file), AdminState::default(), env).await?;
    Ok(Served { running })
}

impl Served {
    async fn raw(&self, method: &str, path: &str, body: &Value) -> (u16, Bytes) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, kind)
            .body(Full::new(Bytes::from(text)))
            .expect("a request");
        let answer = self.running.router.handle(request, &Peer::Itself).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body");
        (code, body.to_bytes())
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let (code, answer) = self.raw(method, path, &body).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        assert!(code < 300, "{method} {path}: {answer}");
        answer
    }

    /// Something of everything that is secret; the token of a ServiceAccount.
    async fn fill(&self) -> String {
        let client = self.running.router.client();
        let installation = Installation {
            cluster_info: None,
            built_in: true,
        };
        for desired in installation.desired() {
            plan::enforce(&client, &desired).await.expect("made");
        }
        let unserved = crds::await_established(&client, std::time::Duration::from_secs(60)).await;
        assert!(unserved.expect("asked").is_empty());
        let secret = |name: &str, worth: &str| json!({"metadata": {"name": name}, "stringData": {"w": worth}});
        self.ask("POST", SECRETS, secret("a", WORTH)).await;
        let change = json!({"stringData": {"w": LATER}});
        self.ask("PATCH", &format!("{SECRETS}/a"), change).await;
        self.ask("POST", SECRETS, secret("b", GONE)).await;
        self.ask("DELETE", &format!("{SECRETS}/b"), Value::Null)
            .await;
        let token = json!({"metadata": {"name": "bootstrap-token-abcdef"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": "abcdef", "token-secret": TOKEN_SECRET,
                "usage-bootstrap-authentication": "true"}});
        self.ask("POST", "/api/v1/namespaces/kube-system/secrets", token)
            .await;
        let carried = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "c", "namespace": "default"}, "stringData": {"w": CARRIED}});
        let namespace = json!({"metadata": {"name": "karmada-es-m1"}});
        self.ask("POST", "/api/v1/namespaces", namespace).await;
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w"}, "spec": {"workload": {"manifests": [carried]}}});
        let works = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";
        self.ask("POST", works, work).await;
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        self.ask("PATCH", &format!("{works}/w"), label).await;
        let map = json!({"metadata": {"name": "open"}, "data": {"w": OPEN}});
        self.ask("POST", "/api/v1/namespaces/default/configmaps", map)
            .await;
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        self.ask("POST", accounts, json!({"metadata": {"name": "robot"}}))
            .await;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 600}});
        let path = format!("{accounts}/robot/token");
        let token = self.ask("POST", &path, review).await;
        token["status"]["token"]
            .as_str()
            .expect("a token")
            .to_owned()
    }

    async fn worth(&self) -> Value {
        let secret = self.ask("GET", &format!("{SECRETS}/a"), Value::Null).await;
        let worth = STANDARD.decode(secret["data"]["w"].as_str().expect("data"));
        String::from_utf8(worth.expect("base64"))
            .expect("text")
            .into()
    }

    async fn backup(&self, to: &Path) {
        let (code, bytes) = self.raw("POST", "/towline.dev/backup", &Value::Null).await;
        assert_eq!(code, 200);
        fs::write(to, bytes).expect("written");
    }
}

/// Every file below a folder, links too, with its bytes.
fn bytes_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("lists") {
            let path = entry.expect("an entry").path();
            let kind = fs::symlink_metadata(&path).expect("there").file_type();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let bytes = fs::read(&path).expect("read");
                found.push((path, bytes));
            }
        }
    }
    found
}

/// The files that hold something.
fn holders(files: &[(PathBuf, Vec<u8>)], what: &[u8]) -> Vec<String> {
    let finder = memchr::memmem::Finder::new(what);
    let holding = files
        .iter()
        .filter(|(_, bytes)| finder.find(bytes).is_some());
    holding
        .map(|(path, _)| path.display().to_string())
        .collect()
}

/// Fails when any of these is in a folder, as it is or in base64.
fn assert_none(folder: &Path, when: &str, secrets: &[&str]) {
    let files = bytes_of(folder);
    assert!(files.len() > 3, "{when}: {} files", files.len());
    for secret in secrets {
        for form in [(*secret).to_owned(), STANDARD.encode(secret)] {
            let found = holders(&files, form.as_bytes());
            assert!(found.is_empty(), "{when}: {form} is in {found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_plain_in_the_data_directory() {
    let dir = TempDir::new().expect("a folder");
    let (data, key) = (dir.path().join("data"), dir.path().join("apart/hub.key"));
    fs::create_dir(dir.path().join("apart")).expect("made");
    let served = begin(&data, Some(&key)).await.expect("begins");
    let token = served.fill().await;
    let signature = token.rsplit('.').next().expect("a signature").to_owned();
    let key_text = fs::read_to_string(&key).expect("made at the first start");
    let raw_key = key_text.rsplit(':').next().expect("a key").trim();
    let secrets = [
        WORTH,
        LATER,
        GONE,
        CARRIED,
        TOKEN_SECRET,
        "PRIVATE KEY",
        &signature,
        raw_key,
    ];
    assert_none(&data, "while it runs", &secrets);
    let found = holders(&bytes_of(&data), OPEN.as_bytes());
    assert!(
        !found.is_empty(),
        "what is no secret is found by the same search"
    );
    let backups = dir.path().join("backups");
    fs::create_dir(&backups).expect("made");
    for number in 0..4 {
        served
            .backup(&backups.join(format!("backup-{number}")))
            .await;
    }
    assert_none(&backups, "in backups", &secrets);
    served.running.end().await;
    assert_none(&data, "after its end", &secrets);

    // The link finds the key, and everything is there.
    let served = begin(&data, None).await.expect("begins again");
    assert_eq!(served.worth().await, LATER);
    served.running.end().await;
    let mode = fs::metadata(&key).expect("there").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_key_nothing_opens_and_the_key_is_named() {
    let dir = TempDir::new().expect("a folder");
    let (data, key) = (dir.path().join("data"), dir.path().join("key"));
    let served = begin(&data, Some(&key)).await.expect("begins");
    served.fill().await;
    let backup = dir.path().join("backup");
    served.backup(&backup).await;
    served.running.end().await;
    let ring = Keyring::read(&key).expect("read").expect("there");
    let id = ring.first().to_string();
    let refused = async |what: &str| {
        let error = begin(&data, None).await.err().expect(what);
        let said = common::errors::chain(&error).to_string();
        assert!(
            said.contains(&id) && said.contains("encryption-key-file"),
            "{said}"
        );
        said
    };
    let apart = dir.path().join("apart");
    fs::rename(&key, &apart).expect("moved");
    assert!(refused("missing").await.contains("is missing"));
    assert!(!key.exists(), "nothing is made in its place");
    Keyring::create(&key).expect("made");
    assert!(refused("wrong").await.contains("does not hold key"));

    // The same of a backup.
    let home = dir.path().join("home");
    let restore = |key: Option<&Path>| {
        let mut args = vec!["restore", "--confirm-all", "--data-dir"];
        args.push(home.to_str().expect("text"));
        args.extend(key.map(|_| "--encryption-key-file"));
        args.extend(key.and_then(Path::to_str));
        args.push(backup.to_str().expect("text"));
        hub(&args)
    };
    for wrong in [None, Some(key.as_path())] {
        let said = restore(wrong).expect_err("refused");
        assert!(said.contains(&id), "{said}");
        assert!(!home.join("hub.db").exists(), "nothing is left of it");
        let _ = fs::remove_dir_all(&home);
    }
    restore(Some(&apart)).expect("restored");
    assert_none(
        &home,
        "after a restore",
        &[WORTH, LATER, CARRIED, TOKEN_SECRET, "PRIVATE KEY"],
    );
    let served = begin(&home, None).await.expect("begins");
    assert_eq!(served.worth().await, LATER);
    served.running.end().await;
}

/// Runs `towline-hub`.
pub(crate) fn hub(args: &[&str]) -> Result<String, String> {
    let run = Command::new(env!("CARGO_BIN_EXE_towline-hub"))
        .args(args)
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match run.status.success() {
        true => Ok(text(&run.stdout)),
        false => Err(text(&run.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_replaced_and_the_old_one_opens_old_backups_alone() {
    let dir = TempDir::new().expect("a folder");
    let data = dir.path().join("data");
    let path = data.to_str().expect("text").to_owned();
    let served = begin(&data, None).await.expect("begins");
    served.fill().await;
    let backup = dir.path().join("backup");
    served.backup(&backup).await;
    let refused = hub(&["encryption", "rotate", "--data-dir", &path]).expect_err("it runs");
    assert!(refused.contains("the hub runs"), "{refused}");
    served.running.end().await;
    let place = Keyring::place(&data);
    let ids = || Keyring::read(&place).expect("read").expect("there").ids();
    let old = ids();
    let said = hub(&["encryption", "rotate", "--data-dir", &path]).expect("replaced");
    let new = ids();
    assert!(
        new.len() == 1 && new != old && said.contains(&new[0].to_string()),
        "{said}"
    );

    // Nothing in the directory is of the old key any more, in any page of any file.
    let kept = dir.path().join("old.key");
    fs::rename(data.join(format!("encryption.key.{}", old[0])), &kept).expect("it is kept apart");
    let raw: Vec<u8> = (0..8)
        .map(|place| u8::from_str_radix(&old[0].to_string()[2 * place..2 * place + 2], 16))
        .collect::<Result<_, _>>()
        .expect("hex");
    let found = holders(&bytes_of(&data), &raw);
    assert!(found.is_empty(), "the old key is named in {found:?}");
    let served = begin(&data, None).await.expect("begins");
    assert_eq!(served.worth().await, LATER);
    served.running.end().await;

    let home = dir.path().join("home");
    let args = |key: &Path| {
        let args = ["restore", "--confirm-all", "--encryption-key-file"];
        let mut args: Vec<String> = args.map(str::to_owned).to_vec();
        args.extend([key, &backup].map(|path| path.display().to_string()));
        args.extend(["--data-dir".to_owned(), home.display().to_string()]);
        args
    };
    let run = |key: &Path| hub(&args(key).iter().map(String::as_str).collect::<Vec<_>>());
    assert!(run(&place).is_err(), "the new key never sealed it");
    let _ = fs::remove_dir_all(&home);
    run(&kept).expect("restored");
}

#[tokio::test]
async fn a_database_of_before_is_encrypted_when_it_opens() {
    let dir = TempDir::new().expect("a folder");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/directory-1");
    unpack(&kept, dir.path());
    let before = bytes_of(dir.path());
    let (found, pems) = secrets_of(dir.path());
    assert!(
        found.len() > 5 && pems.len() == 3,
        "{} and {}",
        found.len(),
        pems.len()
    );
    for secret in found.iter().chain(&pems) {
        assert!(
            !holders(&before, secret.as_bytes()).is_empty(),
            "it was in plain"
        );
    }
    let served = begin(dir.path(), None).await.expect("begins");
    let all: Vec<&str> = found.iter().chain(&pems).map(String::as_str).collect();
    assert_none(dir.path(), "as soon as it is open", &all);
    served.running.end().await;
    assert_none(dir.path(), "after its end", &all);
    assert!(!dir.path().join("hub.db.format-1").exists());
    let store = Store::open(dir.path(), StoreOptions::default()).expect("opens");
    let secret = store
        .get("/secrets", &Key::new("fixture", "a"))
        .expect("there");
    assert_eq!(secret.value()["data"]["worth"], STANDARD.encode("nothing"));
    store.close().await;
}

/// What is secret in a directory of format 1: values that are long enough to be looked for, and keys.
fn secrets_of(dir: &Path) -> (Vec<String>, Vec<String>) {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection =
        rusqlite::Connection::open_with_flags(dir.join("hub.db"), flags).expect("opens");
    let sql = "SELECT o.json FROM object o JOIN resource r ON r.id = o.resource
               WHERE r.name = '/secrets'";
    let mut statement = connection.prepare(sql).expect("a statement");
    let rows = statement.query_map([], |row| row.get::<_, String>(0));
    let mut found = Vec::new();
    for row in rows.expect("rows") {
        let secret: Value = serde_json::from_str(&row.expect("a row")).expect("JSON");
        let values = secret["data"].as_object().into_iter().flatten();
        // Words of tokens stand in plain elsewhere, such as groups in rules.
        let own = values
            .filter(|(key, _)| matches!(key.as_str(), "token-secret" | "expiration" | "worth"));
        found.extend(own.filter_map(|(key, value)| {
            let value = value.as_str()?;
            Some(format!("\"{key}\":\"{value}\""))
        }));
        let uid = secret["metadata"]["uid"].as_str().expect("a uid");
        found.push(uid.to_owned());
    }
    let pems = ["ca.key", "server.key", "service-account.key"].map(|name| {
        let pem = fs::read_to_string(dir.join("pki").join(name)).expect("there");
        pem.lines().nth(1).expect("a line").to_owned()
    });
    (found, pems.to_vec())
}

/// Whoever can write the file cannot give one Secret another one's value, nor one of their own.
#[tokio::test]
async fn a_value_in_anothers_place_does_not_open() {
    let row =
        "FROM object o JOIN resource r ON r.id = o.resource WHERE r.name = '/secrets' AND o.name";
    let (a, b) = (
        format!("SELECT o.id {row} = 'a'"),
        format!("SELECT o.json {row} = 'b'"),
    );
    let own = r#"'{"metadata":{"name":"a","namespace":"ns","resourceVersion":"2"}}'"#;
    for (what, value) in [("another's", format!("({b})")), ("plain", own.to_owned())] {
        let dir = TempDir::new().expect("a folder");
        let store = Store::open(dir.path(), StoreOptions::default()).expect("opens");
        for name in ["a", "b"] {
            let secret =
                json!({"metadata": {"name": name, "namespace": "ns"}, "data": {"n": name}});
            let write = Write {
                resource: "/secrets".into(),
                key: Key::new("ns", name),
                expect: Expect::Absent,
                change: Change::Put(secret),
                class: Class::Durable,
            };
            store.commit(write).await.expect("made");
        }
        store.close().await;
        let connection = rusqlite::Connection::open(dir.path().join("hub.db")).expect("opens");
        let sql = format!("UPDATE object SET json = {value} WHERE id = ({a})");
        assert_eq!(connection.execute(&sql, []).expect("written"), 1);
        drop(connection);
        let refused = Store::open(dir.path(), StoreOptions::default()).err();
        let said = common::errors::chain(&refused.expect(what)).to_string();
        assert!(said.contains("damaged"), "{what}: {said}");
    }
}
