//! Commands on a data directory, and starts on one that lacks something: none makes an empty hub of one that was
//! lost, and no two replace keys at once.

use super::super::*;
use crate::apiserver::keys::FOLDER;
use crate::apiserver::keys::server::CERTIFICATE;
use crate::apiserver::sealing::Keyring;
use crate::apiserver::store::{self, DATABASE, OpenError, Restore, Store};
use account_key::ServiceAccountKey;
use authority::Ca;
use backup::BackupArgs;
use clap::Parser;
use common::time::{SharedClock, SystemClock};
use encryption::Encryption;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Debug, Parser)]
enum Cli {
    Serve(Box<ServeArgs>),
    Backup(BackupArgs),
    #[command(subcommand)]
    Encryption(Encryption),
    #[command(subcommand)]
    Ca(Ca),
    #[command(subcommand)]
    ServiceAccountKey(ServiceAccountKey),
}

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

/// Runs a command on a data directory.
async fn run(words: &[&str], dir: &Path) -> anyhow::Result<()> {
    let dir = dir.display().to_string();
    let line = [&["towline-hub"], words, &["--data-dir", &dir]].concat();
    let clock = clock();
    match Cli::try_parse_from(line)? {
        Cli::Serve(args) => {
            serve(*args, Env::system(), CancellationToken::new(), drop).await?;
            Ok(())
        }
        Cli::Backup(args) => backup::backup(&args).await.map(drop),
        Cli::Encryption(Encryption::Rotate(args)) => encryption::rotate(&args).await.map(drop),
        Cli::Encryption(Encryption::Status(args)) => encryption::status(&args).map(drop),
        Cli::Encryption(Encryption::Export(args)) => encryption::export(&args).map(drop),
        Cli::Ca(Ca::Rotate(args)) => authority::rotate(&args, &clock).await.map(drop),
        Cli::Ca(Ca::Status(args)) => authority::status(&args).await.map(drop),
        Cli::ServiceAccountKey(ServiceAccountKey::Rotate(args)) => {
            account_key::rotate(&args, &clock).await.map(drop)
        }
    }
}

/// Why a command does nothing on a data directory.
async fn refusal(words: &[&str], dir: &Path) -> String {
    let refused = run(words, dir).await.expect_err("refused");
    common::errors::chain(refused.as_ref()).to_string()
}

fn options(dir: &Path, new_database: bool) -> Options {
    Options {
        data_dir: dir.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        names: BTreeSet::new(),
        certificate_lifetime: chrono::Duration::days(1),
        address: String::new(),
        key_file: None,
        audit_log: None,
        strangers_of_address: STRANGERS_OF_ADDRESS,
        busy: None,
        new_database,
    }
}

async fn begin(dir: &Path, new_database: bool) -> Result<Running, api::Error> {
    let options = options(dir, new_database);
    Running::begin(options, AdminState::default(), Env::system()).await
}

/// A data directory with the keys of a hub, and no database.
fn with_keys() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    Keyring::create(&Keyring::place(dir.path())).expect("made");
    Keys::open(dir.path(), &clock()).expect("made");
    dir
}

/// The same of a hub that was ready once.
fn that_began() -> TempDir {
    let dir = with_keys();
    fs::write(dir.path().join(FOLDER).join(CERTIFICATE), "").expect("written");
    dir
}

#[tokio::test]
async fn no_hub_begins_on_what_a_failed_restore_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = |name: &str| folder.path().join(name);
    let restore = |backup: &Path, dir: &Path| {
        let what = Restore {
            backup,
            dir,
            key_file: None,
            now: chrono::DateTime::UNIX_EPOCH,
        };
        store::restore(&what, |_| Ok(()), |()| Ok::<_, OpenError>(())).expect_err("fails")
    };
    let (other, data) = (inside("other"), inside("data"));
    fs::write(&other, "no backup").expect("written");
    restore(&other, &data);
    assert!(!data.exists(), "bad input changes nothing");

    let backup = inside("backup");
    let store = Store::open(&inside("source"), store::Options::default()).expect("opens");
    store.backup(&backup, Vec::new()).await.expect("a backup");
    store.close().await;
    // Its key is another one.
    restore(&backup, &data);
    let text = refusal(&SERVE, &data).await;
    assert!(text.contains("`towline-hub restore` again"), "{text}");
    assert!(!data.join(DATABASE).exists());
}

#[tokio::test]
async fn keys_without_a_database_are_not_taken_for_a_new_hub() {
    let dir = that_began();
    let text = refusal(&SERVE, dir.path()).await;
    assert!(
        text.contains("hub.db is gone or empty") && text.contains("--new-database"),
        "{text}"
    );
    assert!(!dir.path().join(DATABASE).exists());
    // Neither is one without a page, whose log SQLite would throw away.
    for name in [DATABASE, "hub.db-wal"] {
        let content = if name == DATABASE { "" } else { "x" };
        fs::write(dir.path().join(name), content).expect("written");
        let text = refusal(&SERVE, dir.path()).await;
        assert!(text.contains("hub.db is gone or empty"), "{text}");
    }
    let log = fs::read_to_string(dir.path().join("hub.db-wal"));
    assert_eq!(
        log.expect("there"),
        "x",
        "it is left to whoever can read it"
    );
}

/// A command that made one, as earlier versions did, would have the next start begin an empty hub.
#[tokio::test]
async fn no_command_makes_a_database_in_the_place_of_one_that_is_gone() {
    for (unfinished, says) in [
        (false, "hub.db is gone or empty"),
        (true, "`towline-hub restore` again"),
    ] {
        let dir = that_began();
        if unfinished {
            fs::write(dir.path().join("restore.unfinished"), "").expect("written");
        }
        let file = dir.path().join("backup").display().to_string();
        for words in [
            &["backup", &file][..],
            &["ca", "status"],
            &["encryption", "rotate"],
            &SERVE,
        ] {
            let text = refusal(words, dir.path()).await;
            assert!(text.contains(says), "{words:?}: {text}");
            assert!(!dir.path().join(DATABASE).exists(), "{words:?}");
        }
    }
    // Where no hub was yet there is nothing to lose, and nothing to do.
    let dir = with_keys();
    let text = refusal(&["ca", "status"], dir.path()).await;
    assert!(text.contains("no object of a hub yet"), "{text}");
    assert!(!dir.path().join(DATABASE).exists());
}

#[tokio::test]
async fn a_database_without_objects_is_one_that_was_lost() {
    let dir = that_began();
    // What a command of an earlier version made.
    let opened = Store::open(dir.path(), store::Options::default());
    opened.expect("opens").close().await;
    let file = dir.path().join("backup").display().to_string();
    for words in [&["backup", &file][..], &SERVE] {
        let text = refusal(words, dir.path()).await;
        assert!(
            text.contains("hub.db is gone or empty"),
            "{words:?}: {text}"
        );
    }
    let asked_for = begin(dir.path(), true).await.expect("begins");
    asked_for.end().await;
    let again = begin(dir.path(), false).await.expect("begins again");
    again.end().await;
}

/// Wherever a first start is killed, before the server's certificate is written, the next one is a first start.
#[tokio::test]
async fn a_first_start_that_was_killed_is_made_again() {
    let empty = || tempfile::tempdir().expect("a folder");
    let made = empty();
    fs::write(made.path().join(DATABASE), "").expect("written");
    let opened = empty();
    let store = Store::open(opened.path(), store::Options::default());
    store.expect("opens").close().await;
    let keyed = with_keys();
    let store = Store::open(keyed.path(), store::Options::default());
    store.expect("opens").close().await;
    for (at, dir) in [
        ("before it did anything", empty()),
        ("with a database without a page", made),
        ("with a database without objects", opened),
        ("with keys that were given, or made, beside it", keyed),
    ] {
        begin(dir.path(), false).await.expect(at).end().await;
    }
}

#[tokio::test]
async fn objects_without_keys_are_not_given_others() {
    let dir = tempfile::tempdir().expect("a folder");
    begin(dir.path(), false).await.expect("begins").end().await;
    fs::remove_dir_all(dir.path().join(FOLDER)).expect("removed");
    let text = begin(dir.path(), false).await.err().expect("refused");
    let text = text.to_string();
    assert!(text.contains("its keys in pki are gone"), "{text}");
    assert!(!dir.path().join(FOLDER).exists(), "others were made");
}

#[tokio::test]
async fn keys_are_replaced_by_one_command_at_a_time() {
    let dir = with_keys();
    let content = || {
        let files = ["pki/ca.crt", "pki/service-account.key", "encryption.key"];
        files.map(|file| fs::read(dir.path().join(file)).expect("there"))
    };
    let before = content();
    let held = store::lock_keys(dir.path()).expect("locked");
    for what in ["ca", "service-account-key", "encryption"] {
        let text = refusal(&[what, "rotate"], dir.path()).await;
        assert!(text.contains("run this again"), "{what}: {text}");
    }
    assert_eq!(content(), before);
    drop(held);
    for what in ["ca", "service-account-key"] {
        run(&[what, "rotate"], dir.path()).await.expect("replaced");
    }
}

/// A flag that was a mistake can be taken out again.
#[tokio::test]
async fn a_place_that_is_refused_is_not_gone_to_by_the_next_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let start = async |flag: &str, place: &str| {
        refusal(&[&SERVE[..], &[flag, place]].concat(), &data).await
    };
    // A first start whose key has nowhere to lie, and one that takes the key that it made for itself there.
    let (key, nowhere) = ("--encryption-key-file", at("nowhere/file"));
    for _ in 0..2 {
        let text = start(key, &nowhere).await;
        assert!(text.contains("nowhere/file"), "{text}");
        assert_eq!(Keyring::place(&data), data.join("encryption.key"));
        begin(&data, false).await.expect("begins").end().await;
    }
    // Nor is a key apart lost sight of, when it is away and another place is tried.
    fs::create_dir(at("apart")).expect("made");
    let apart = dir.path().join("apart/file");
    let moved = Options {
        key_file: Some(apart.clone()),
        ..options(&data, false)
    };
    let moved = Running::begin(moved, AdminState::default(), Env::system()).await;
    moved.expect("begins").end().await;
    fs::rename(at("apart"), at("away")).expect("moved");
    let text = start(key, &at("file")).await;
    assert!(text.contains("is missing"), "{text}");
    assert_eq!(Keyring::place(&data), apart);
    fs::rename(at("away"), at("apart")).expect("moved back");
    // The administrator's kubeconfig.
    let own = data.join(kubeconfig::ADMIN_FILE);
    for before in [None, Some("before")] {
        if let Some(text) = before {
            fs::write(&own, text).expect("written");
        }
        let text = start("--admin-kubeconfig", &nowhere).await;
        assert!(
            text.contains("--admin-kubeconfig") && text.contains("nowhere/file"),
            "{text}"
        );
        assert!(!own.is_symlink());
        assert_eq!(fs::read_to_string(&own).ok().as_deref(), before);
    }
}
