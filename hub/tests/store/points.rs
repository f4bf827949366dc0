//! A restore that is killed before each of its writes, syncs and renamings: until it is through there is nothing
//! that a hub could be started on, and it is begun again by the same command.

use super::World;
use super::restored::removed_since;
use common::identity::CLUSTER_GROUP_PREFIX;
use common::labels::{HELD, HELD_BY_RESTORE};
use hub::apiserver::store::{Key, Options, Store};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const CLUSTERS: &str = "cluster.karmada.io/clusters";
const TOKEN: &str = "bootstrap.kubernetes.io/token";

/// Restores what a folder has a backup of, beside its other hub; before its writing of this number it is killed.
fn restore(world: &World, to: &Path, end: Option<usize>) -> Output {
    let (old, backup) = (world.root().join("old"), world.root().join("backup"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline-hub"));
    command.arg("restore").arg("--data-dir").arg(to);
    command.arg("--previous").arg(&old);
    let key = old.join("encryption.key");
    command.arg("--encryption-key-file").arg(key).arg(backup);
    if let Some(end) = end {
        command
            .env("LD_PRELOAD", &world.shim)
            .env("POWERCUT_DIR", to)
            .env("POWERCUT_END", end.to_string());
    }
    command.output().expect("runs")
}

/// Of writings that are like each other one of so many is tried; all, where kills are asked for.
fn share() -> usize {
    match std::env::var_os("STORE_KILLS") {
        Some(_) => 1,
        None => 9,
    }
}

/// The files below a directory, by their paths in it.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("lists") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(dir).expect("below").display().to_string();
                    names.insert(name);
                }
            }
        }
    }
    names
}

/// What was revoked since is in force, no token is left, and who was removed is held.
async fn is_whole(dir: &Path, group: &str) -> Result<(), String> {
    let revoked = fs::read_to_string(dir.join("pki/revoked.json")).unwrap_or_default();
    if !revoked.contains("lost") || revoked.contains(group) {
        return Err(format!("revoked are {revoked:?}"));
    }
    if dir.join("encryption.key").is_symlink() {
        return Err("its key goes with the hub before".to_owned());
    }
    let store = Store::open(dir, Options::default()).map_err(|error| error.to_string())?;
    let secrets = store.snapshot("/secrets").table;
    let tokens = secrets.iter().filter(|it| it.value()["type"] == TOKEN);
    let (tokens, m1) = (tokens.count(), store.get(CLUSTERS, &Key::cluster("m1")));
    store.close().await;
    let m1 = m1.ok_or("there is no m1")?;
    if tokens > 0 || m1.metadata()["labels"][HELD] != HELD_BY_RESTORE {
        return Err(format!("{tokens} tokens; m1 is {:?}", m1.metadata()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_killed_is_none_or_whole() {
    let world = World::new();
    let id = removed_since(world.root()).await;
    let group = format!("{CLUSTER_GROUP_PREFIX}m1:{id}");
    let undisturbed = world.root().join("undisturbed");
    let said = restore(&world, &undisturbed, None);
    assert!(said.status.success(), "{said:?}");
    let files = names(&undisturbed);
    is_whole(&undisturbed, &group).await.expect("restored");

    let (mut end, mut begun_again) = (1, 0);
    loop {
        let to = world.root().join(format!("killed-{end}"));
        let said = restore(&world, &to, Some(end));
        if said.status.success() {
            break;
        }
        // Before, and while the database is written, one is like the other.
        let step = match to.join("pki").exists() {
            true => 1,
            false => share(),
        };
        assert_eq!(said.status.code(), Some(137), "at {end}: {said:?}");
        if !to.join("hub.db").exists() {
            begun_again += 1;
            let said = restore(&world, &to, None);
            assert!(said.status.success(), "after {end}: {said:?}");
            assert_eq!(names(&to), files, "after {end}");
        }
        let whole = is_whole(&to, &group).await;
        assert!(whole.is_ok(), "killed at {end}: {whole:?}");
        fs::remove_dir_all(&to).expect("removed");
        end += step;
    }
    println!("of {} writings, {begun_again} begun again", end - 1);
    assert!(begun_again > 20, "{begun_again} of {end}");
}
