//! What a restore lets in, and who is told what; who may make a backup, and what is left of one that broke off.

use super::directory::unpack;
use super::secrets::hub;
use chrono::{DateTime, TimeDelta, Utc};
use common::admin::AdminState;
use common::identity::{AGENT_USER_PREFIX, CLUSTER_GROUP_PREFIX};
use common::time::SimClock;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Full};
use hub::apiserver::authn::Peer;
use hub::apiserver::caller::{Caller, MASTERS};
use hub::apiserver::http::server::STRANGERS_OF_ADDRESS;
use hub::apiserver::serve::{Options, Running};
use hub::apiserver::store::{Change, Class, Expect, Key, Options as StoreOptions, Store, Write};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const WORK: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/first";
const CLUSTERS: &str = "cluster.karmada.io/clusters";
const REGISTRATION: &str = "towline.dev/registration-id";
const BACKUP: &str = "/towline.dev/backup";

/// A directory that an earlier hub left, with one agent, of m1, and one token, for m3.
fn directory(dir: &Path) {
    fs::create_dir(dir).expect("made");
    unpack(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/directory-1"),
        dir,
    );
}

async fn begin(data: &Path, now: DateTime<Utc>) -> Running {
    common::tls::install_provider();
    let options = Options {
        data_dir: data.to_owned(),
        listen: "127.0.0.1:0".parse().expect("an address"),
        names: ["localhost".to_owned()].into(),
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
    running.expect("begins")
}

fn peer(user: &str, groups: &[&str]) -> Peer {
    let far = DateTime::from_timestamp(4_000_000_000, 0).expect("a time");
    Peer::Known {
        caller: Caller {
            user: user.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Caller::default()
        },
        valid: (DateTime::UNIX_EPOCH, far),
    }
}

fn agent(cluster: &str, id: &str) -> Peer {
    let group = format!("{CLUSTER_GROUP_PREFIX}{cluster}:{id}");
    peer(
        &format!("{AGENT_USER_PREFIX}{cluster}"),
        &["system:karmada:agents", &group],
    )
}

async fn ask(
    running: &Running,
    peer: &Peer,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Vec<u8>) {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    let request = request
        .body(Full::new(bytes::Bytes::from(body)))
        .expect("a request");
    let answer = running.router.handle(request, peer).await;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body");
    (code, body.to_bytes().to_vec())
}

async fn get(running: &Running, peer: &Peer, path: &str) -> (u16, Value) {
    let (code, body) = ask(running, peer, "GET", path, &Value::Null).await;
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

/// The registration of m1.
fn registration(store: &Store) -> String {
    let cluster = store.get(CLUSTERS, &Key::cluster("m1")).expect("m1");
    let metadata = cluster.metadata();
    let id = metadata["annotations"][REGISTRATION].as_str();
    id.expect("it is registered").to_owned()
}

/// Below a folder a hub's directory `old` and its `backup`, since which m1 was removed and m9 registered; the
/// registration of m1.
pub(crate) async fn removed_since(folder: &Path) -> String {
    let old = folder.join("old");
    directory(&old);
    let text = |path: &Path| path.display().to_string();
    let (data, backup) = (text(&old), text(&folder.join("backup")));
    hub(&["backup", "--data-dir", &data, &backup]).expect("a backup");

    let store = Store::open(&old, StoreOptions::default()).expect("opens");
    let id = registration(&store);
    let m1 = store.get(CLUSTERS, &Key::cluster("m1")).expect("there");
    let write = |name: &str, expect, change| Write {
        resource: CLUSTERS.into(),
        key: Key::cluster(name),
        expect,
        change,
        class: Class::Durable,
    };
    let removed = write("m1", Expect::Revision(m1.revision()), Change::Delete);
    store.commit(removed).await.expect("removed");
    let m9 = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m9", "annotations": {REGISTRATION: "99"}}, "spec": {"syncMode": "Pull"}});
    let made = store
        .commit(write("m9", Expect::Absent, Change::Put(m9)))
        .await;
    made.expect("made");
    store.close().await;

    // What the hub noted as it removed it, and what an operator shut out.
    let entry = |whom: Value| {
        let mut entry = json!({"begunBy": "2026-11-23T00:00:00Z"});
        entry
            .as_object_mut()
            .expect("an object")
            .extend(whom.as_object().expect("an object").clone());
        entry
    };
    let group = format!("{CLUSTER_GROUP_PREFIX}m1:{id}");
    let revoked =
        json!({"revoked": [entry(json!({"group": group})), entry(json!({"user": "lost"}))]});
    fs::write(old.join("pki/revoked.json"), revoked.to_string()).expect("written");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_lets_in_who_was_not_removed_since() {
    let temp = TempDir::new().expect("a folder");
    let path = |name: &str| temp.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    let id = removed_since(temp.path()).await;
    let group = format!("{CLUSTER_GROUP_PREFIX}m1:{id}");
    let old = path("old");
    let key = old.join("encryption.key").display().to_string();
    let restore = |to: &str, how: &[&str]| {
        let (home, backup) = (text(to), text("backup"));
        let mut args = vec![
            "restore",
            "--data-dir",
            &home,
            "--encryption-key-file",
            &key,
        ];
        args.extend(how);
        args.push(&backup);
        hub(&args).expect("restored")
    };
    let now = "2026-11-22T12:00:00Z".parse().expect("a time");
    let none = Value::Null;
    for (to, how, says, work) in [
        (
            "compared",
            &["--previous", &text("old")][..],
            &["were removed since the backup: m1", "do not know", "m9"][..],
            403,
        ),
        ("alone", &[], &["may have been removed", "m1"], 403),
        ("trusted", &["--confirm-all"], &[], 200),
    ] {
        let said = restore(to, how);
        assert!(said.contains("tokens of the backup are dropped"), "{said}");
        for words in says {
            let words = if *words == "do not know" {
                "does not know them"
            } else {
                words
            };
            assert!(said.contains(words), "{to}: {words:?} is not in {said}");
        }
        assert!(!path(to).join(".previous").exists());
        let listed = fs::read_to_string(path(to).join("pki/revoked.json")).unwrap_or_default();
        assert_eq!(listed.contains("lost"), to == "compared", "{listed}");
        assert!(
            !listed.contains(&group),
            "to confirm it is enough: {listed}"
        );
        let running = begin(&path(to), now).await;
        let m1 = agent("m1", &id);
        let status = json!({"status": {}});
        let (code, answer) = get(&running, &m1, WORK).await;
        assert_eq!(code, work, "{to}: {answer}");
        let (code, _) = ask(&running, &m1, "PATCH", &format!("{WORK}/status"), &status).await;
        assert_eq!(code, work, "{to}");
        // An agent that came since is told why it may nothing.
        let unknown = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m9/works";
        let (code, answer) = get(&running, &agent("m9", "99"), unknown).await;
        assert_eq!(code, 403);
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(
            said.contains("newer than the backup") && said.contains("--cluster m9"),
            "{said}"
        );
        // No token is left, and whoever is held is found.
        let secrets = "/api/v1/namespaces/kube-system/secrets";
        let (_, secrets) = get(&running, &Peer::Itself, secrets).await;
        let left = secrets["items"].as_array().expect("a list").iter();
        let tokens = left.filter(|secret| secret["type"] == "bootstrap.kubernetes.io/token");
        assert_eq!(tokens.count(), 0, "{to}");
        let held =
            "/apis/cluster.karmada.io/v1alpha1/clusters?labelSelector=towline.dev/held=restore";
        let (_, held) = get(&running, &Peer::Itself, held).await;
        let held = held["items"].as_array().expect("a list");
        assert_eq!(held.len(), usize::from(work == 403), "{to}");
        for cluster in held {
            assert!(
                cluster["metadata"]["annotations"]["towline.dev/quarantined-since"].is_string()
            );
        }
        let (code, _) = ask(&running, &Peer::Itself, "GET", WORK, &none).await;
        assert_eq!(code, 200);
        running.end().await;
    }
}

fn grant(user: &str, rule: &Value) -> [(&'static str, Value); 2] {
    let rbac = "rbac.authorization.k8s.io";
    [
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": user}, "rules": [rule]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": user},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": user},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}]}),
        ),
    ]
}

/// The lines of the audit log about one user.
fn audited(data: &Path, user: &str) -> Vec<Value> {
    let text = fs::read_to_string(data.join("audit.log")).expect("there");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["user"]["username"] == user)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_needs_a_right_of_its_own_and_is_told() {
    let temp = TempDir::new().expect("a folder");
    let data = temp.path().join("data");
    let running = begin(&data, "2026-11-22T12:00:00Z".parse().expect("a time")).await;
    let verbs = json!(["get", "post", "create"]);
    let pages = json!({"nonResourceURLs": ["*"], "verbs": verbs});
    let right =
        json!({"apiGroups": ["towline.dev"], "resources": ["backups"], "verbs": ["create"]});
    for (path, object) in [grant("pages", &pages), grant("keeper", &right)].concat() {
        let (code, answer) = ask(&running, &Peer::Itself, "POST", path, &object).await;
        assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    }
    let authenticated = "system:authenticated";
    let mut codes = Vec::new();
    for attempt in 0..2000 {
        let keeper = peer("keeper", &[authenticated]);
        let asked = ask(&running, &keeper, "POST", BACKUP, &Value::Null);
        codes.push(asked.await.0);
        // Rights are in force a moment after they are made.
        if codes.last() == Some(&200) {
            break;
        }
        assert!(attempt < 1999, "{codes:?}");
        tokio::task::yield_now().await;
    }
    for (user, groups, method, code) in [
        ("pages", authenticated, "POST", 403),
        ("pages", authenticated, "GET", 403),
        ("nobody", authenticated, "POST", 403),
        ("root", MASTERS, "GET", 405),
        ("root", MASTERS, "POST", 200),
    ] {
        let asked = ask(
            &running,
            &peer(user, &[groups]),
            method,
            BACKUP,
            &Value::Null,
        )
        .await;
        assert_eq!(asked.0, code, "{user} {method}");
    }
    // What gives Secrets away is told as well, and so is who acts as somebody else.
    let root = peer("root", &[MASTERS]);
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    for path in [secrets, maps] {
        assert_eq!(get(&running, &root, path).await.0, 200);
    }
    let request = Request::get(maps)
        .header("impersonate-user", "bob")
        .header("impersonate-group", MASTERS);
    let request = request
        .body(Empty::<bytes::Bytes>::new())
        .expect("a request");
    assert_eq!(running.router.handle(request, &root).await.status(), 200);
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account = "/api/v1/namespaces/default/serviceaccounts";
    let robot = json!({"metadata": {"name": "robot"}});
    assert_eq!(ask(&running, &root, "POST", account, &robot).await.0, 201);
    let account = format!("{account}/robot/token");
    assert_eq!(ask(&running, &root, "POST", &account, &token).await.0, 201);
    running.end().await;
    let told = |user: &str| {
        let lines = audited(&data, user).into_iter();
        let told = lines.map(|line| {
            let (path, code) = (
                line["path"].as_str().unwrap_or_default().to_owned(),
                line["code"].as_u64(),
            );
            let acting = line["impersonatedUser"]["username"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            (path, code.unwrap_or_default(), acting)
        });
        told.collect::<Vec<_>>()
    };
    let line = |path: &str, code: u64, acting: &str| (path.to_owned(), code, acting.to_owned());
    assert_eq!(
        told("pages"),
        [line(BACKUP, 403, ""), line(BACKUP, 403, "")]
    );
    assert_eq!(
        told("root"),
        [
            line(BACKUP, 405, ""),
            line(BACKUP, 200, ""),
            line(secrets, 200, ""),
            line(maps, 200, "bob"),
            line("/api/v1/namespaces/default/serviceaccounts", 201, ""),
            line(&account, 201, ""),
        ]
    );
    assert!(told("keeper").contains(&line(BACKUP, 200, "")));
}

/// Whoever asks may go away at any moment: while it is made, and while it is sent.
#[test]
fn nothing_is_left_of_a_backup_that_broke_off() {
    let temp = TempDir::new().expect("a folder");
    let data = temp.path().join("data");
    let now = "2026-11-22T12:00:00Z".parse().expect("a time");
    fs::create_dir(&data).expect("made");
    fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .expect("closed");
    // Of a hub that was killed.
    fs::write(data.join(".backup-0123.partial"), "every Secret").expect("written");
    fs::write(data.join("lock"), "").expect("written");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let left = || {
        let names = fs::read_dir(&data).expect("lists");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names
            .filter(|name| name.contains("backup"))
            .collect::<Vec<_>>()
    };
    let running = runtime.block_on(begin(&data, now));
    assert_eq!(left(), Vec::<String>::new(), "after a start");
    runtime.block_on(async {
        let root = peer("root", &[MASTERS]);
        for polls in 1..6 {
            let request = Request::post(BACKUP)
                .body(Empty::<bytes::Bytes>::new())
                .expect("a request");
            let mut asked = Box::pin(running.router.handle(request, &root));
            for _ in 0..polls {
                if futures::poll!(asked.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let request = Request::post(BACKUP)
            .body(Empty::<bytes::Bytes>::new())
            .expect("a request");
        let answer = running.router.handle(request, &root).await;
        assert_eq!(answer.status(), 200);
        running.end().await;
    });
    // Waits for what still works on its threads.
    drop(runtime);
    assert_eq!(left(), Vec::<String>::new(), "after the end");
}
