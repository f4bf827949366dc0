//! `towline-hub revoke`: shuts out certificates whose authority is still trusted, a lost kubeconfig's for one.

mod kubeconfig;
#[cfg(test)]
mod tests;

use super::beside::Beside;
use super::kubeconfig::{ADMIN_FILE, renew_admin, settle};
use crate::apiserver::keys::revoked::{Entry, Revoked, Whom};
use crate::apiserver::keys::{FOLDER, Keys};
use anyhow::{Context as _, bail};
use chrono::{DateTime, Duration, Utc};
use clap::Args;
use common::time::SharedClock;
use std::fmt::Write as _;
use std::path::PathBuf;

/// By how much certificates are dated back: what was issued until now began before this.
const BACKDATE: Duration = Duration::minutes(5);

/// Flags of `towline-hub revoke`.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    #[command(flatten)]
    which: Which,
    /// Take it off the list again
    #[arg(long, conflicts_with = "list")]
    undo: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Every certificate of this user that was issued until now
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The certificate of this serial number, in hex
    #[arg(long, value_name = "HEX")]
    serial: Option<String>,
    /// Every certificate of this hub in this kubeconfig, or in a file that it names; those of others are left
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print what is on the list
    #[arg(long)]
    list: bool,
}

/// Changes the list, and says what follows. A hub that runs reads it every second.
pub fn revoke(args: &RevokeArgs, clock: &SharedClock) -> anyhow::Result<String> {
    Beside::open(&args.data_dir)?;
    let keys = Keys::existing(&args.data_dir)?;
    let folder = args.data_dir.join(FOLDER);
    if args.which.list {
        return Ok(shown(&Revoked::read(&folder)?));
    }
    let now = clock.now();
    let (all, unread) = args.which.whom(&keys, now)?;
    if args.undo {
        let mut found = Vec::new();
        Revoked::change(&folder, |revoked| {
            found.extend(all.iter().filter(|(whom, _)| revoked.remove(whom)));
        })?;
        if found.is_empty() {
            let all: Vec<&str> = all.iter().map(|(_, what)| what.as_str()).collect();
            bail!(
                "not on the list: {}; `--list` prints what is",
                all.join(", ")
            );
        }
        return Ok(with_unread(
            lines(found.into_iter(), "counts again."),
            &unread,
        ));
    }
    Revoked::change(&folder, |revoked| {
        for (whom, _) in &all {
            revoked.add(entry(whom.clone(), now), now);
        }
    })?;
    keys.reload_revoked()?;
    let mut said = lines(
        all.iter(),
        "is revoked: a hub that runs refuses it within a second, on open connections too.",
    );
    // Where the hub keeps it: the one in the data directory may be a link to there.
    let admin = settle(&args.data_dir.join(ADMIN_FILE), None)?;
    // Dated a second on: what was issued until now began earlier.
    if renew_admin(&admin, &keys, now + Duration::seconds(1))? {
        let _ = write!(said, " {} was made anew: fetch it again.", admin.display());
    }
    Ok(with_unread(said, &unread))
}

/// What is shut out, and how it is called.
type Meant = (Whom, String);

/// The same, and which files were not looked at.
fn with_unread(mut said: String, unread: &[String]) -> String {
    for file in unread {
        // Writing to a String cannot fail.
        let _ = write!(
            said,
            "\n{file}; if that is a certificate of this hub, use --serial or --user."
        );
    }
    said
}

/// What is true of each of them, one a line.
fn lines<'a>(all: impl Iterator<Item = &'a Meant>, is: &str) -> String {
    let lines: Vec<String> = all.map(|(_, what)| format!("{what} {is}")).collect();
    lines.join("\n")
}

fn entry(whom: Whom, now: DateTime<Utc>) -> Entry {
    let begun_by = match whom {
        // One certificate, whenever it began.
        Whom::Serial(_) => None,
        Whom::User(_) | Whom::Group(_) => Some(now - BACKDATE),
    };
    Entry {
        whom,
        begun_by,
        until: None,
    }
}

impl Which {
    /// What is meant, and which files that a kubeconfig names cannot be read.
    fn whom(&self, keys: &Keys, now: DateTime<Utc>) -> anyhow::Result<(Vec<Meant>, Vec<String>)> {
        if let Some(user) = &self.user {
            let what = format!("every certificate of user {user:?} issued until now");
            return Ok((vec![(Whom::User(user.clone()), what)], Vec::new()));
        }
        if let Some(path) = &self.kubeconfig {
            return kubeconfig::certificates(path, keys, now);
        }
        let Some(given) = &self.serial else {
            bail!("name --user, --serial or --kubeconfig");
        };
        let serial =
            normal(given).with_context(|| format!("--serial {given:?} is no number in hex"))?;
        let what = format!("the certificate of serial number {serial}");
        Ok((vec![(Whom::Serial(serial), what)], Vec::new()))
    }
}

/// A serial number as it is compared: openssl prints it in upper case, others with colons.
fn normal(text: &str) -> Option<String> {
    let digits = text.trim().trim_start_matches("0x").replace(':', "");
    let digits = digits.trim_start_matches('0').to_lowercase();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && !digits.is_empty()).then_some(digits)
}

fn shown(revoked: &Revoked) -> String {
    let mut text = String::new();
    for entry in revoked.entries() {
        let what = match &entry.whom {
            Whom::Serial(serial) => format!("serial {serial}"),
            Whom::User(user) => match entry.begun_by {
                Some(by) => format!("user {user}, issued until {}", by + BACKDATE),
                None => format!("user {user}"),
            },
            Whom::Group(group) => format!("group {group}"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{what}");
    }
    if text.is_empty() {
        text.push_str("nothing is revoked");
    }
    text.trim_end().to_owned()
}
