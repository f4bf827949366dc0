use super::*;
use crate::apiserver::authn::Peer;
use crate::apiserver::caller::MASTERS;
use crate::apiserver::keys::client;
use crate::serve::kubeconfig::{ADMIN, ensure_admin, make};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::time::SystemClock;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

fn by_file(data: &Path, lost: &Path, undo: bool) -> RevokeArgs {
    RevokeArgs {
        data_dir: data.to_owned(),
        which: Which {
            user: None,
            serial: None,
            kubeconfig: Some(lost.to_owned()),
            list: false,
        },
        undo,
    }
}

/// How many are on the list of a hub.
fn listed(data: &Path) -> usize {
    let list = Revoked::read(&data.join(FOLDER)).expect("read");
    list.entries().len()
}

#[test]
fn a_lost_kubeconfig_is_shut_out_and_the_administrator_gets_another() {
    let dir = tempfile::tempdir().expect("a folder");
    let clock: SharedClock = Arc::new(SystemClock);
    let keys = Keys::open(dir.path(), &clock).expect("made");
    let now = clock.now();
    let admin = dir.path().join(ADMIN_FILE);
    ensure_admin(&admin, &keys, "https://a:1", Duration::days(365), now).expect("made");
    let lost = dir.path().join("lost.kubeconfig");
    std::fs::copy(&admin, &lost).expect("copied");
    let run = |which: Which, undo: bool| {
        let data_dir = dir.path().to_owned();
        revoke(
            &RevokeArgs {
                data_dir,
                which,
                undo,
            },
            &clock,
        )
    };
    let which = || Which {
        user: None,
        serial: None,
        kubeconfig: None,
        list: false,
    };
    let holds = |path: &Path| {
        let config: Value =
            serde_yaml::from_str(&std::fs::read_to_string(path).expect("there")).expect("YAML");
        let pem = config["users"][0]["user"]["client-certificate-data"].as_str();
        let pem = STANDARD
            .decode(pem.expect("a certificate"))
            .expect("base64");
        let chain = common::tls::certificates(&pem).expect("PEM");
        let keys = Keys::existing(dir.path()).expect("there");
        let peer = Peer::of(&chain, &keys.authorities(), &keys.revoked(), clock.now());
        matches!(peer, Peer::Known { .. })
    };
    assert!(holds(&lost) && holds(&admin));
    let by_file = || Which {
        kubeconfig: Some(lost.clone()),
        ..which()
    };
    let said = run(by_file(), false).expect("revoked");
    assert!(said.contains("made anew"), "{said}");
    assert!(!holds(&lost) && holds(&admin));
    run(by_file(), true).expect("undone");
    assert!(holds(&lost));
    assert!(run(by_file(), true).is_err(), "it is not there any more");
    let by_name = Which {
        user: Some("towline-admin".to_owned()),
        ..which()
    };
    run(by_name, false).expect("revoked");
    assert!(
        !holds(&lost) && holds(&admin),
        "the new one has the same name"
    );
    let listed = run(
        Which {
            list: true,
            ..which()
        },
        false,
    )
    .expect("listed");
    assert!(
        listed.starts_with("user towline-admin, issued until"),
        "{listed}"
    );
    // Others keep their names and their certificates.
    let groups = [MASTERS.to_owned()];
    let until = now + Duration::hours(1);
    let authorities = keys.authorities();
    let (pem, _) = client::issue(&authorities.signer(), "b", &groups, now, until).expect("made");
    let chain = common::tls::certificates(pem.as_bytes()).expect("PEM");
    let revoked = Keys::existing(dir.path()).expect("there").revoked();
    let peer = Peer::of(&chain, &authorities, &revoked, now);
    assert!(matches!(peer, Peer::Known { .. }));
}

#[test]
fn of_a_merged_kubeconfig_every_certificate_of_this_hub_is_revoked_and_no_other() {
    let (dir, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, elsewhere) = (dir.expect("a folder"), elsewhere.expect("a folder"));
    let clock: SharedClock = Arc::new(SystemClock);
    let (keys, others) = (
        Keys::open(dir.path(), &clock).expect("made"),
        Keys::open(elsewhere.path(), &clock).expect("made"),
    );
    let now = clock.now();
    let user = |keys: &Keys, name: &str| -> Value {
        let until = now + Duration::hours(1);
        let made = make(keys, "https://a:1", name, &[], now, until).expect("made");
        let config: Value = serde_yaml::from_str(&made).expect("YAML");
        config["users"][0].clone()
    };
    // As kubectl merges them: by name.
    let foreign = user(&others, "kubernetes-admin");
    let (bob, admin) = (user(&keys, "bob"), user(&keys, ADMIN));
    let token = serde_json::json!({"name": "ci", "user": {"token": "t"}});
    let lost = dir.path().join("lost.kubeconfig");
    let run = |users: &[&Value], undo: bool| {
        let config = serde_json::json!({"kind": "Config", "users": users});
        std::fs::write(&lost, config.to_string()).expect("written");
        revoke(&by_file(dir.path(), &lost, undo), &clock)
    };
    let holds = |user: &Value| {
        let pem = user["user"]["client-certificate-data"].as_str();
        let pem = STANDARD.decode(pem.expect("there")).expect("base64");
        let chain = common::tls::certificates(&pem).expect("PEM");
        let keys = Keys::existing(dir.path()).expect("there");
        let peer = Peer::of(&chain, &keys.authorities(), &keys.revoked(), clock.now());
        matches!(peer, Peer::Known { .. })
    };
    let listed = || listed(dir.path());
    let merged = [&foreign, &token, &bob, &admin, &bob];
    let said = run(&merged, false).expect("revoked");
    assert!(said.contains("\"bob\"") && said.contains(ADMIN), "{said}");
    assert!(!holds(&bob) && !holds(&admin), "{said}");
    assert_eq!(listed(), 2, "those of others, and one twice, are not on it");

    let refused = run(&[&foreign, &token], false).expect_err("nothing to revoke");
    let refused = refused.to_string();
    assert!(
        refused.contains("no certificate that this hub"),
        "{refused}"
    );
    assert_eq!(listed(), 2);

    run(&merged, true).expect("undone");
    assert!(holds(&bob) && holds(&admin));
    assert_eq!(listed(), 0);
    run(&merged, true).expect_err("it is not there any more");
}

#[test]
fn files_that_a_kubeconfig_names_are_looked_at_where_kubectl_would() {
    let (dir, apart) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, apart) = (dir.expect("a folder"), apart.expect("a folder"));
    let clock: SharedClock = Arc::new(SystemClock);
    let keys = Keys::open(dir.path(), &clock).expect("made");
    let now = clock.now();
    let lost = apart.path().join("lost.kubeconfig");
    let made = |name: &str| -> String {
        let until = now + Duration::hours(1);
        let authorities = keys.authorities();
        let issued = client::issue(&authorities.signer(), name, &[], now, until);
        issued.expect("made").0
    };
    let run = |users: Vec<Value>, undo: bool| {
        let named = users.into_iter().enumerate();
        let users: Vec<Value> = named
            .map(|(at, user)| serde_json::json!({"name": format!("u{at}"), "user": user}))
            .collect();
        // Whose context is the current one does not matter.
        let config = serde_json::json!({"kind": "Config", "users": users,
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u0"}}], "current-context": "c"});
        std::fs::write(&lost, config.to_string()).expect("written");
        revoke(&by_file(dir.path(), &lost, undo), &clock)
    };
    let listed = || listed(dir.path());
    let file = |path: &Path| serde_json::json!({"client-certificate": path, "client-key": "gone"});
    let (beside, elsewhere) = (Path::new("pki/ann.crt"), dir.path().join("bob.crt"));
    std::fs::create_dir(apart.path().join("pki")).expect("made");
    std::fs::write(apart.path().join(beside), made("ann")).expect("written");
    std::fs::write(&elsewhere, made("bob")).expect("written");

    let both = || vec![file(beside), file(&elsewhere)];
    let said = run(both(), false).expect("revoked");
    assert!(
        said.contains("\"ann\"") && said.contains("\"bob\""),
        "{said}"
    );
    assert_eq!((listed(), said.lines().count()), (2, 2), "{said}");
    // A path is looked up here, and somebody else's certificate may lie there.
    let from = [apart.path().join(beside), elsewhere.clone()];
    let from = from.map(|file| format!(", read from {}, is revoked", file.display()));
    assert!(
        from.iter()
            .zip(said.lines())
            .all(|(from, line)| line.contains(from)),
        "{said}"
    );
    run(both(), true).expect("undone");
    assert_eq!(listed(), 0);

    // What stands in the kubeconfig comes first, unless it is empty.
    let mut data = file(&elsewhere);
    data["client-certificate-data"] = STANDARD.encode(made("eve")).into();
    let mut empty = file(beside);
    empty["client-certificate-data"] = "".into();
    let said = run(vec![data, empty], false).expect("revoked");
    assert!(
        said.contains("\"eve\"") && said.contains("\"ann\""),
        "{said}"
    );
    assert!(!said.contains("bob"), "{said}");
    let read: Vec<bool> = said.lines().map(|it| it.contains("read from")).collect();
    assert_eq!(read, [false, true], "{said}");
    assert_eq!(listed(), 2);

    let missing = file(Path::new("pki/dan.crt"));
    let names_both = |said: &str| {
        let there = apart.path().join("pki/dan.crt");
        said.contains(&there.display().to_string()) && said.contains(&lost.display().to_string())
    };
    let refused = run(vec![missing.clone()], false).expect_err("nothing to revoke");
    let refused = refused.to_string();
    assert!(
        names_both(&refused) && refused.contains("nothing was changed"),
        "{refused}"
    );
    assert_eq!(listed(), 2);
    // It may be somebody else's: the others are shut out all the same.
    let said = run(vec![missing, file(&elsewhere)], false).expect("revoked");
    assert!(said.contains("\"bob\"") && names_both(&said), "{said}");
    assert_eq!(listed(), 3);
}

#[test]
fn the_administrators_file_is_made_anew_where_it_lies() {
    let dir = tempfile::tempdir().expect("a folder");
    let clock: SharedClock = Arc::new(SystemClock);
    let data_dir = dir.path().join("data");
    std::fs::create_dir(&data_dir).expect("made");
    let keys = Keys::open(&data_dir, &clock).expect("made");
    let (own, apart) = (data_dir.join(ADMIN_FILE), dir.path().join("apart"));
    settle(&own, Some(&apart)).expect("settled");
    let life = Duration::days(365);
    ensure_admin(&apart, &keys, "https://a:1", life, clock.now()).expect("made");
    let args = RevokeArgs {
        data_dir: data_dir.clone(),
        which: Which {
            user: Some(ADMIN.to_owned()),
            serial: None,
            kubeconfig: None,
            list: false,
        },
        undo: false,
    };
    let said = revoke(&args, &clock).expect("revoked");
    let place = format!("{} was made anew", apart.display());
    assert!(said.contains(&place), "{said}");
    assert!(
        own.is_symlink(),
        "the data directory holds no key of the administrator's"
    );
    let keys = Keys::existing(&data_dir).expect("there");
    // One that still counts is left as it is.
    assert!(!renew_admin(&apart, &keys, clock.now()).expect("looked at"));
    let holds = std::fs::read_to_string(&apart).expect("there");
    assert!(holds.contains("client-certificate-data"), "{holds}");
}

#[test]
fn serial_numbers_are_read_as_tools_print_them() {
    assert_eq!(normal("40:FF:0A").as_deref(), Some("40ff0a"));
    assert_eq!(normal("0x00ab").as_deref(), Some("ab"));
    assert_eq!(normal("x"), None);
    assert_eq!(normal("0"), None);
}
