//! `towline-hub revoke`: shuts out certificates whose authority is still trusted, a lost kubeconfig's for one.

use super::beside::Beside;
use super::kubeconfig::{ADMIN_FILE, renew_admin, settle};
use crate::apiserver::authn::{Peer, serial};
use crate::apiserver::keys::revoked::{Entry, Revoked, Whom};
use crate::apiserver::keys::{FOLDER, Keys};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, Utc};
use clap::Args;
use common::time::SharedClock;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer as _, X509Certificate};

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
    /// Every certificate of this hub in this kubeconfig; those of others in it are left
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
    let all = args.which.whom(&keys, now)?;
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
        return Ok(lines(found.into_iter(), "counts again."));
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
    Ok(said)
}

/// What is shut out, and how it is called.
type Meant = (Whom, String);

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
    fn whom(&self, keys: &Keys, now: DateTime<Utc>) -> anyhow::Result<Vec<Meant>> {
        if let Some(user) = &self.user {
            let what = format!("every certificate of user {user:?} issued until now");
            return Ok(vec![(Whom::User(user.clone()), what)]);
        }
        if let Some(path) = &self.kubeconfig {
            return in_kubeconfig(path, keys, now);
        }
        let Some(given) = &self.serial else {
            bail!("name --user, --serial or --kubeconfig");
        };
        let serial =
            normal(given).with_context(|| format!("--serial {given:?} is no number in hex"))?;
        let what = format!("the certificate of serial number {serial}");
        Ok(vec![(Whom::Serial(serial), what)])
    }
}

/// A serial number as it is compared: openssl prints it in upper case, others with colons.
fn normal(text: &str) -> Option<String> {
    let digits = text.trim().trim_start_matches("0x").replace(':', "");
    let digits = digits.trim_start_matches('0').to_lowercase();
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && !digits.is_empty()).then_some(digits)
}

/// The certificates of this hub in a kubeconfig. Users of other API servers stand in the same file, in any order.
fn in_kubeconfig(path: &Path, keys: &Keys, now: DateTime<Utc>) -> anyhow::Result<Vec<Meant>> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("failed to read {}", path.display()))?;
    let config: Value = serde_yaml::from_str(&text)
        .with_context(|| format!("{} is no kubeconfig", path.display()))?;
    let users = config["users"].as_array().into_iter().flatten();
    let mut all: Vec<Meant> = Vec::new();
    for user in users {
        let encoded = user["user"]["client-certificate-data"].as_str();
        let Some(meant) = encoded.and_then(|encoded| ours(encoded, keys, now)) else {
            continue;
        };
        // Two users may have the same one.
        if !all.contains(&meant) {
            all.push(meant);
        }
    }
    if all.is_empty() {
        bail!(
            "{} holds no certificate that this hub would take, so nothing was changed; where it names files in place \
             of data, or the file is another one, use --serial or --user",
            path.display()
        );
    }
    Ok(all)
}

/// The certificate, if it is of this hub and its time is not over; whether it is revoked does not matter.
fn ours(encoded: &str, keys: &Keys, now: DateTime<Utc>) -> Option<Meant> {
    let chain: Vec<CertificateDer<'static>> =
        common::tls::certificates(&STANDARD.decode(encoded).ok()?).ok()?;
    let Peer::Known { caller, .. } =
        Peer::of(&chain, &keys.authorities(), &Revoked::default(), now)
    else {
        return None;
    };
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    let serial = serial(&certificate);
    let user = caller.user;
    let what = format!("the certificate of user {user:?}, serial number {serial},");
    Some((Whom::Serial(serial), what))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::caller::MASTERS;
    use crate::apiserver::keys::client;
    use crate::serve::kubeconfig::{ADMIN, ensure_admin, make};
    use common::time::SystemClock;
    use std::sync::Arc;

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
        let (pem, _) =
            client::issue(&authorities.signer(), "b", &groups, now, until).expect("made");
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
            let args = RevokeArgs {
                data_dir: dir.path().to_owned(),
                which: Which {
                    user: None,
                    serial: None,
                    kubeconfig: Some(lost.clone()),
                    list: false,
                },
                undo,
            };
            revoke(&args, &clock)
        };
        let holds = |user: &Value| {
            let pem = user["user"]["client-certificate-data"].as_str();
            let pem = STANDARD.decode(pem.expect("there")).expect("base64");
            let chain = common::tls::certificates(&pem).expect("PEM");
            let keys = Keys::existing(dir.path()).expect("there");
            let peer = Peer::of(&chain, &keys.authorities(), &keys.revoked(), clock.now());
            matches!(peer, Peer::Known { .. })
        };
        let listed = || {
            let list = Revoked::read(&dir.path().join(FOLDER)).expect("read");
            list.entries().len()
        };
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
}
