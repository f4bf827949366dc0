//! `towline-hub restore`: a data directory out of a backup.
//!
//! A backup is of another time: tokens in it may have been spent or deleted since, and agents removed. So its
//! tokens are dropped, and registrations that may be over are held: their agents may nothing until an operator
//! lets them in. The others go on as if nothing had been.

pub mod decide;

use crate::apiserver::keys::FOLDER;
use crate::apiserver::keys::authority::Authorities;
use crate::apiserver::keys::revoked::{Revoked, Whom};
use crate::apiserver::sealing::{FILE, Keyring};
use crate::apiserver::store::{self, Edit, Key, OpenError, Options, Restore, Store};
use crate::commands;
use crate::permissions::{AGENT_BINDING, rights_name};
use crate::token_secret::{TOKEN_NAMESPACE, TOKEN_TYPE};
use anyhow::{Context as _, bail};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use common::api::cluster::SyncMode;
use common::identity::CLUSTER_GROUP_PREFIX;
use common::labels::{HELD, HELD_BY_RESTORE, QUARANTINED_SINCE, REGISTRATION_ID};
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use common::time::SharedClock;
use common::unregister::Mode;
use decide::{Findings, Registrations, Since, decide};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const CLUSTERS: &str = "cluster.karmada.io/clusters";
const SECRETS: &str = "/secrets";
const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
/// How many names stand in one line.
const NAMED: usize = 20;

/// Flags of `towline-hub restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A data directory without a hub
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// File with the key by which the backup is encrypted; default: encryption.key in the data directory
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_ENCRYPTION_KEY_FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Data directory of the hub before this one, or what is left of it: tells who was removed since the backup,
    /// and who came
    #[arg(long, value_name = "DIR")]
    previous: Option<PathBuf>,
    /// Let in every agent that was registered when the backup was made, also one that was removed since
    #[arg(long, conflicts_with = "previous")]
    confirm_all: bool,
    /// File that `towline-hub backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// What was changed on the way.
struct Told {
    tokens: Vec<String>,
    findings: Findings,
    /// The groups of the registrations that are in force once they are confirmed.
    held: Vec<String>,
    /// Clusters that were joined when the backup was made.
    joined: BTreeSet<String>,
    /// Clusters that were joined with the hub before.
    joined_since: BTreeSet<String>,
}

/// Those of `names` that are of this mode, where these are `joined`.
fn of(mode: SyncMode, names: &[String], joined: &BTreeSet<String>) -> Vec<String> {
    let wanted = mode == SyncMode::Push;
    let of = names.iter().filter(|name| joined.contains(*name) == wanted);
    of.cloned().collect()
}

/// What was taken over of the keys of the previous hub.
#[derive(Debug, Default)]
struct Taken {
    /// Authorities that are others than those of the backup.
    authorities: bool,
    /// What it had revoked is not known: where its list was.
    list_is_gone: Option<PathBuf>,
}

/// Makes a data directory of a backup.
pub async fn restore(args: RestoreArgs, clock: &SharedClock) -> anyhow::Result<String> {
    let now = clock.now();
    tokio::task::spawn_blocking(move || carry_out(&args, now)).await?
}

fn carry_out(args: &RestoreArgs, now: DateTime<Utc>) -> anyhow::Result<String> {
    let read = |previous| registered(previous, &args.data_dir);
    let previous = args.previous.as_deref().map(read).transpose()?;
    let since = match (&previous, args.confirm_all) {
        (Some((later, _)), _) => Since::Known(later),
        (None, true) => Since::Confirmed,
        (None, false) => Since::Unknown,
    };
    let what = Restore {
        backup: &args.file,
        dir: &args.data_dir,
        key_file: args.encryption_key_file.as_deref(),
        now,
    };
    let edit = |edit: &mut Edit<'_>| {
        let clusters = edit.objects(CLUSTERS)?;
        let clusters = clusters.iter().map(|(_, cluster)| cluster);
        let registered = registrations(clusters.clone());
        let joined_since = previous.as_ref().map(|(_, joined)| joined.clone());
        let findings = decide(&registered, since);
        for cluster in &findings.held {
            hold(edit, cluster, now)?;
        }
        let (removed, _) = findings.split_held();
        Ok(Told {
            tokens: drop_tokens(edit)?,
            held: groups(&registered, &removed),
            joined: joined(clusters).collect(),
            joined_since: joined_since.unwrap_or_default(),
            findings,
        })
    };
    let mut taken = Taken::default();
    // A hub that could be started without what was revoked would let in who was shut out.
    let last = |told: &Told| -> anyhow::Result<()> {
        if let Some(previous) = &args.previous {
            taken = Taken {
                authorities: take_authorities(previous, &args.data_dir)?,
                list_is_gone: take_revoked(previous, &args.data_dir, &told.held)?,
            };
        }
        Ok(())
    };
    let (_, told) = store::restore(&what, edit, last)?;
    Ok(text(args, &told, &taken))
}

/// The registrations of Clusters that are not going.
fn registrations<'a>(clusters: impl Iterator<Item = &'a Value>) -> Registrations {
    let of = |cluster: &'a Value| {
        let metadata = &cluster["metadata"];
        let id = metadata["annotations"][REGISTRATION_ID].as_str()?;
        let living = metadata["deletionTimestamp"].is_null();
        living.then(|| Some((metadata["name"].as_str()?.to_owned(), id.to_owned())))?
    };
    clusters.filter_map(of).collect()
}

/// The names of Clusters that were joined.
fn joined<'a>(clusters: impl Iterator<Item = &'a Value>) -> impl Iterator<Item = String> {
    let joined = clusters.filter(|cluster| cluster["spec"]["syncMode"] == "Push");
    joined.filter_map(|cluster| Some(cluster["metadata"]["name"].as_str()?.to_owned()))
}

/// What certificates of these clusters' registrations have for a group.
fn groups(registered: &Registrations, clusters: &[String]) -> Vec<String> {
    let group = |name: &String| {
        let id = registered.get(name)?;
        Some(format!("{CLUSTER_GROUP_PREFIX}{name}:{id}"))
    };
    clusters.iter().filter_map(group).collect()
}

/// Who was registered with the hub of a data directory, and who of them was joined; it stays as it is: a copy of it is
/// read.
fn registered(dir: &Path, into: &Path) -> anyhow::Result<(Registrations, BTreeSet<String>)> {
    let unread = || {
        format!(
            "failed to read the previous hub in {}; where nothing of it can be read, leave out --previous",
            dir.display()
        )
    };
    // Of a database and a log that are copied one after the other while a hub works on them, the pages that it
    // moves in between would be in neither.
    let _unserved = match store::keep_unserved(dir) {
        Err(OpenError::Locked { .. }) => bail!(
            "a hub runs on {}, and goes on changing what is compared: stop it, and run this again",
            dir.display()
        ),
        held => held.with_context(unread)?,
    };
    let copy = Scratch::new(&into.join(".previous")).with_context(unread)?;
    let log = format!("{}-wal", store::DATABASE);
    for (name, needed) in [(store::DATABASE, true), (log.as_str(), false)] {
        match std::fs::copy(dir.join(name), copy.0.join(name)) {
            Err(error) if needed || error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(unread);
            }
            _ => {}
        }
    }
    let key_file = Keyring::place(dir);
    let options = Options {
        key_file: key_file.exists().then_some(key_file),
        ..Options::default()
    };
    let store = Store::open(&copy.0, options).with_context(unread)?;
    let found = store.snapshot(CLUSTERS);
    let clusters: Vec<Value> = found.table.iter().map(|stored| stored.value()).collect();
    let is_empty = store.is_empty();
    // Its files are closed before they are removed.
    tokio::runtime::Handle::current().block_on(store.close());
    if is_empty {
        // Everybody would be held as removed.
        let empty = anyhow::Error::msg(format!("its database {} is empty", store::DATABASE));
        return Err(empty.context(unread()));
    }
    let joined = joined(clusters.iter()).collect();
    Ok((registrations(clusters.iter()), joined))
}

/// A folder for nobody else, gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: &Path) -> std::io::Result<Self> {
        // Of one that was killed.
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, path = %self.0.display(), "a copy was not removed");
        }
    }
}

/// Takes every bootstrap token out; their ids.
fn drop_tokens(edit: &mut Edit<'_>) -> Result<Vec<String>, OpenError> {
    let mut dropped = Vec::new();
    for (key, secret) in edit.objects(SECRETS)? {
        if key.namespace() == TOKEN_NAMESPACE && secret["type"] == TOKEN_TYPE {
            edit.delete(SECRETS, &key)?;
            let id = key.name().strip_prefix("bootstrap-token-");
            dropped.push(id.unwrap_or(key.name()).to_owned());
        }
    }
    Ok(dropped)
}

/// Takes the rights of a cluster's agent, as a quarantine does: from the first request on it may nothing.
fn hold(edit: &mut Edit<'_>, cluster: &str, now: DateTime<Utc>) -> Result<(), OpenError> {
    let mut bindings = Vec::new();
    if let Ok(name) = ClusterName::parse(cluster) {
        let rights = rights_name(&name);
        bindings = vec![
            (CLUSTER_BINDINGS, Key::cluster(&rights)),
            (BINDINGS, Key::new(CLUSTER_NAMESPACE, &rights)),
            (
                BINDINGS,
                Key::new(&name.execution_namespace(), AGENT_BINDING),
            ),
        ];
    }
    for (resource, key) in bindings {
        if let Some(mut binding) = edit.object(resource, &key)? {
            if let Some(fields) = binding.as_object_mut() {
                fields.remove("subjects");
            }
            edit.replace(resource, &key, binding)?;
        }
    }
    let key = Key::cluster(cluster);
    if let Some(mut object) = edit.object(CLUSTERS, &key)? {
        let since = now.to_rfc3339_opts(SecondsFormat::Secs, true);
        object["metadata"]["annotations"][QUARANTINED_SINCE] = json!(since);
        object["metadata"]["labels"][HELD] = json!(HELD_BY_RESTORE);
        edit.replace(CLUSTERS, &key, object)?;
    }
    Ok(())
}

/// Takes over the authorities that agents know by now; whether they are others than those of the backup.
fn take_authorities(previous: &Path, data_dir: &Path) -> anyhow::Result<bool> {
    let taken = Authorities::take_over(&previous.join(FOLDER), &data_dir.join(FOLDER));
    taken.with_context(|| {
        format!(
            "not restored: failed to take over the authorities in {}; where they cannot be read, leave out --previous, \
             and register agents again that followed a replacement of them",
            previous.join(FOLDER).display()
        )
    })
}

/// Takes over what was revoked since the backup. Registrations that are `held` are not in it: confirming them
/// has to be enough. One that another took the place of since stays in it: its agent has the other, and whoever has
/// the earlier certificate is to have nothing by a confirmation. Where the list of the previous hub is gone, that of
/// the backup stays; its place then.
fn take_revoked(
    previous: &Path,
    data_dir: &Path,
    held: &[String],
) -> anyhow::Result<Option<PathBuf>> {
    let (folder, from) = (data_dir.join(FOLDER), previous.join(FOLDER));
    let later = Revoked::find(&from).with_context(|| {
        format!(
            "not restored: failed to read what was revoked since the backup, in {}; where nothing of it can be read, \
             leave out --previous",
            previous.display()
        )
    })?;
    let Some(mut later) = later else {
        // A hub that never revoked anything has none either.
        let gone = Revoked::find(&folder)?.is_some() || !Authorities::is_in(&from)?;
        return Ok(gone.then(|| Revoked::place(&from)));
    };
    for group in held {
        later.remove(&Whom::Group(group.clone()));
    }
    Revoked::change(&folder, |revoked| *revoked = later)?;
    Ok(None)
}

/// Where the key lies, unless that goes without saying.
fn key_text(args: &RestoreArgs) -> Option<String> {
    let own = args.data_dir.join(FILE);
    let place = Keyring::place(&args.data_dir);
    if place != own {
        return Some(format!(
            "The encryption key stays in {}: the hub needs it there, {} is a link to it.",
            place.display(),
            own.display()
        ));
    }
    let named = args.encryption_key_file.as_ref()?;
    let same = matches!((named.canonicalize(), own.canonicalize()), (Ok(a), Ok(b)) if a == b);
    (!same).then(|| {
        format!(
            "The encryption key lay in a data directory: {} is a copy of {}. Keep another one apart from the data.",
            own.display(),
            named.display()
        )
    })
}

fn list(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

fn text(args: &RestoreArgs, told: &Told, taken: &Taken) -> String {
    let dir = args.data_dir.display();
    let mut said = format!("Restored into {dir}.\n");
    // Writing to a String cannot fail.
    if let Some(key) = key_text(args) {
        let _ = writeln!(said, "{key}");
    }
    if !told.tokens.is_empty() {
        let _ = writeln!(
            said,
            "Bootstrap tokens of the backup are dropped: {}. Make new ones with `towline token create`.",
            list(&told.tokens)
        );
    }
    if let Some(list) = &taken.list_is_gone {
        let _ = writeln!(
            said,
            "There is no {}: what is revoked is what was by the time of the backup. Revoke again what was revoked \
             since; `towline-hub revoke --data-dir {dir} --list` shows what is.",
            list.display()
        );
    }
    if taken.authorities {
        said.push_str(
            "The certificate authorities were replaced since the backup: those of the hub before are taken over.\n",
        );
    }
    for (mode, came, verb) in [
        (SyncMode::Pull, "Registered", "Register"),
        (SyncMode::Push, "Joined", "Join"),
    ] {
        let since = of(mode, &told.findings.made_since, &told.joined_since);
        if !since.is_empty() {
            let _ = writeln!(
                said,
                "{came} since the backup, so this hub does not know them: {}. {verb} each again: `{}`; nothing in the \
                 members is deleted.",
                list(&since),
                commands::register_again("NAME", mode)
            );
        }
    }
    let (held, anew) = told.findings.split_held();
    if !anew.is_empty() {
        let _ = writeln!(
            said,
            "Of these, an earlier registration is in the backup, which is held: {}. First register or join each again, \
             then let it in; until both are done its agent may nothing.\n  \
             kubectl annotate cluster NAME {QUARANTINED_SINCE}-",
            list(&anew)
        );
    }
    if !held.is_empty() {
        let why = match args.previous {
            Some(_) => "were removed since the backup",
            None => {
                "may have been removed since the backup, of which nothing here tells (--previous DIR would)"
            }
        };
        let _ = writeln!(
            said,
            "NOT let in until you confirm them, for they {why}: {}.\n  \
             kubectl get clusters -l {HELD}={HELD_BY_RESTORE}\n  \
             kubectl annotate clusters -l {HELD}={HELD_BY_RESTORE} {QUARANTINED_SINCE}-   # lets all of them in\n  \
             kubectl annotate cluster NAME {QUARANTINED_SINCE}-                    # lets one in",
            list(&held)
        );
        for (mode, what) in [
            (SyncMode::Pull, "removes one again"),
            (SyncMode::Push, "removes one again that was joined"),
        ] {
            if !of(mode, &held, &told.joined).is_empty() {
                let remove = commands::leave("NAME", mode, Mode::Force);
                let _ = writeln!(said, "  {remove:<66}  # {what}");
            }
        }
    }
    let _ = write!(
        said,
        "Next:\n  towline-hub serve --data-dir {dir} --advertise HOST:PORT\n\
         Agents look for the hub where they knew it; they learn other addresses from it."
    );
    said
}

#[cfg(test)]
mod tests;
