//! What a restore takes over from the hub before, and what of it the restored one still needs.

use super::*;
use crate::apiserver::backup::attachments;
use crate::apiserver::keys::Keys;
use crate::apiserver::keys::revoked::Entry;
use crate::apiserver::store::{Change, Class, Expect, Write};
use common::time::SystemClock;
use std::fs;
use std::sync::Arc;
use tempfile::TempDir;

/// A hub that is stopped in `old`, by which user `lost` was revoked, and its backup, below a folder.
struct Rig {
    root: TempDir,
    clock: SharedClock,
}

impl Rig {
    async fn new() -> Self {
        let rig = Self {
            root: tempfile::tempdir().expect("a folder"),
            clock: Arc::new(SystemClock),
        };
        let old = rig.at("old");
        let store = Store::open(&old, Options::default()).expect("opens");
        Keys::open(&old, &rig.clock).expect("made");
        let lost = Entry {
            whom: Whom::User("lost".to_owned()),
            begun_by: None,
            until: None,
        };
        let now = rig.clock.now();
        Revoked::change(&old.join(FOLDER), |revoked| revoked.add(lost, now)).expect("written");
        join(&store, "m1").await;
        let files = attachments(&old, store.keyring()).expect("read");
        store
            .backup(&rig.at("backup"), files)
            .await
            .expect("a backup");
        store.close().await;
        rig
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Restores into `new`, by this key.
    async fn restore(&self, key: &str, previous: bool) -> anyhow::Result<String> {
        let args = RestoreArgs {
            data_dir: self.at("new"),
            encryption_key_file: Some(self.at(key)),
            previous: previous.then(|| self.at("old")),
            confirm_all: !previous,
            file: self.at("backup"),
        };
        restore(args, &self.clock).await
    }

    /// Who is revoked in `new`.
    fn revoked(&self) -> Vec<Whom> {
        let read = Revoked::read(&self.at("new/pki")).expect("read");
        read.entries().iter().map(|it| it.whom.clone()).collect()
    }
}

/// Makes a Cluster that was joined.
async fn join(store: &Store, name: &str) {
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "annotations": {REGISTRATION_ID: "1"}}, "spec": {"syncMode": "Push"}});
    let write = Write {
        resource: CLUSTERS.into(),
        key: Key::cluster(name),
        expect: Expect::Absent,
        change: Change::Put(cluster),
        class: Class::Durable,
    };
    store.commit(write).await.expect("made");
}

#[tokio::test]
async fn what_was_revoked_stays_where_the_list_of_the_previous_hub_is_gone() {
    let lost = [Whom::User("lost".to_owned())];
    for gone in ["old/pki", "old/pki/revoked.json"] {
        let rig = Rig::new().await;
        let path = rig.at(gone);
        match path.is_dir() {
            true => fs::remove_dir_all(path).expect("removed"),
            false => fs::remove_file(path).expect("removed"),
        }
        let said = rig.restore("old/encryption.key", true).await;
        let said = said.expect("restored");
        assert_eq!(rig.revoked(), lost, "{gone}");
        assert!(
            said.contains("There is no") && said.contains("pki/revoked.json"),
            "{said}"
        );
    }
    // One that is there counts, also when the last entry was taken off since.
    let rig = Rig::new().await;
    Revoked::change(&rig.at("old/pki"), |revoked| {
        assert!(revoked.remove(&lost[0]));
    })
    .expect("written");
    let said = rig.restore("old/encryption.key", true).await;
    let said = said.expect("restored");
    assert!(rig.revoked().is_empty());
    assert!(!said.contains("There is no"), "{said}");
}

#[tokio::test]
async fn a_previous_hub_that_runs_or_is_empty_is_not_compared_with() {
    let rig = Rig::new().await;
    let runs = Store::open(&rig.at("old"), Options::default()).expect("opens");
    let refused = rig.restore("old/encryption.key", true).await;
    let said = common::errors::chain(refused.expect_err("refused").as_ref()).to_string();
    assert!(
        said.contains("a hub runs on") && said.contains("stop it"),
        "{said}"
    );
    runs.close().await;
    fs::write(rig.at("old/hub.db"), "").expect("written");
    let refused = rig.restore("old/encryption.key", true).await;
    let said = common::errors::chain(refused.expect_err("refused").as_ref()).to_string();
    assert!(said.contains("is empty"), "{said}");
    assert!(!rig.at("new/hub.db").exists());
}

#[tokio::test]
async fn a_key_in_a_data_directory_is_not_lost_with_it() {
    let rig = Rig::new().await;
    let said = rig.restore("old/encryption.key", true).await;
    let said = said.expect("restored");
    assert!(said.contains("is a copy of"), "{said}");
    fs::remove_dir_all(rig.at("old")).expect("removed");
    // And in the place of the old one.
    fs::rename(rig.at("new"), rig.at("old")).expect("moved");
    let store = Store::open(&rig.at("old"), Options::default()).expect("opens");
    assert!(store.get(CLUSTERS, &Key::cluster("m1")).is_some());
    store.close().await;
}

#[tokio::test]
async fn a_key_that_lies_apart_stays_there_and_is_named() {
    let rig = Rig::new().await;
    fs::create_dir(rig.at("apart")).expect("made");
    fs::copy(rig.at("old/encryption.key"), rig.at("apart/key")).expect("copied");
    let said = rig.restore("apart/key", false).await.expect("restored");
    let place = format!("stays in {}", rig.at("apart/key").display());
    assert!(said.contains(&place), "{said}");
    assert!(rig.at("new/encryption.key").is_symlink());
    assert_eq!(Keyring::place(&rig.at("new")), rig.at("apart/key"));
}

#[tokio::test]
async fn a_registration_that_another_took_the_place_of_stays_revoked() {
    let rig = Rig::new().await;
    let store = Store::open(&rig.at("old"), Options::default()).expect("opens");
    let m1 = store.get(CLUSTERS, &Key::cluster("m1")).expect("there");
    let anew = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m1", "annotations": {REGISTRATION_ID: "2"}}});
    let write = Write {
        resource: CLUSTERS.into(),
        key: Key::cluster("m1"),
        expect: Expect::Revision(m1.revision()),
        change: Change::Put(anew),
        class: Class::Durable,
    };
    store.commit(write).await.expect("registered anew");
    store.close().await;
    let before = Whom::Group(format!("{CLUSTER_GROUP_PREFIX}m1:1"));
    let entry = Entry {
        whom: before.clone(),
        begun_by: None,
        until: None,
    };
    let now = rig.clock.now();
    Revoked::change(&rig.at("old/pki"), |revoked| revoked.add(entry, now)).expect("written");

    let said = rig.restore("old/encryption.key", true).await;
    let said = said.expect("restored");
    assert!(rig.revoked().contains(&before), "{:?}", rig.revoked());
    let told = said.contains("which is held: m1.") && !said.contains("NOT let in");
    assert!(told, "{said}");
    let store = Store::open(&rig.at("new"), Options::default()).expect("opens");
    let m1 = store.get(CLUSTERS, &Key::cluster("m1")).expect("there");
    assert_eq!(m1.metadata()["labels"][HELD], HELD_BY_RESTORE);
    store.close().await;
}

#[tokio::test]
async fn clusters_that_were_joined_have_commands_of_their_own() {
    let rig = Rig::new().await;
    let store = Store::open(&rig.at("old"), Options::default()).expect("opens");
    join(&store, "m2").await;
    store.close().await;
    let said = rig.restore("old/encryption.key", true).await;
    let said = said.expect("restored");
    assert!(
        said.contains("Joined since the backup, so this hub does not know them: m2. Join each again: `towline join NAME"),
        "{said}"
    );
    assert!(!said.contains("token create --cluster"), "{said}");
    let args = RestoreArgs {
        data_dir: rig.at("unknown"),
        encryption_key_file: Some(rig.at("old/encryption.key")),
        previous: None,
        confirm_all: false,
        file: rig.at("backup"),
    };
    let said = restore(args, &rig.clock).await.expect("restored");
    let told = said.contains("towline unjoin NAME --force") && !said.contains("towline unregister");
    assert!(told, "{said}");
}

#[test]
fn whoever_was_registered_anew_is_told_both_that_has_to_be_done() {
    let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let args = RestoreArgs {
        data_dir: PathBuf::from("nowhere"),
        encryption_key_file: None,
        previous: Some(PathBuf::from("old")),
        confirm_all: false,
        file: PathBuf::from("backup"),
    };
    let told = |held: &[&str], made_since: &[&str]| {
        let told = Told {
            tokens: Vec::new(),
            findings: Findings {
                held: names(held),
                made_since: names(made_since),
            },
            held: Vec::new(),
            joined: ["joined".to_owned()].into(),
            joined_since: ["rejoined".to_owned()].into(),
        };
        text(&args, &told, &Taken::default())
    };
    let lift = "kubectl annotate cluster NAME towline.dev/quarantined-since-";
    let said = told(&["removed", "replaced"], &["new", "replaced"]);
    for words in [
        "does not know them: new, replaced. Register each again: `towline token create --cluster NAME --replace`",
        "which is held: replaced. First register or join each again, then let it in",
        "were removed since the backup: removed.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(said.matches(lift).count(), 2, "{said}");
    assert!(!said.contains("towline unjoin"), "{said}");
    let said = told(&["removed", "joined"], &["new"]);
    for words in [
        "towline unregister NAME --force ",
        "towline unjoin NAME --force ",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // By each hub's own word.
    let said = told(&["rejoined"], &["joined", "rejoined"]);
    for words in [
        "Registered since the backup, so this hub does not know them: joined.",
        "Joined since the backup, so this hub does not know them: rejoined.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let said = told(&["rejoined"], &[]);
    assert!(said.contains("towline unregister NAME --force "), "{said}");
    assert!(!said.contains("towline unjoin"), "{said}");
    let said = told(&["replaced"], &["replaced"]);
    assert!(
        said.contains(lift) && !said.contains("NOT let in"),
        "{said}"
    );
    let said = told(&[], &["new"]);
    assert!(!said.contains("held") && !said.contains(lift), "{said}");
}
