//! Kubeconfigs: the administrator's beside the database, and others on request.

mod place;

pub(super) use place::{keep, place, settle};

use super::beside::Beside;
use crate::apiserver::authn::Peer;
use crate::apiserver::caller::MASTERS;
use crate::apiserver::keys::revoked::Revoked;
use crate::apiserver::keys::{Error, Keys, client, secret_file};
use crate::install::cluster_info::{ClusterInfo, SERVERS_EXTENSION};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, Utc};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use common::client::HostPort;
use common::duration;
use common::names::PUSH_USER;
use common::time::SharedClock;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The administrator's kubeconfig in the data directory.
pub(super) const ADMIN_FILE: &str = "admin.kubeconfig";
/// Who the administrator's kubeconfig names.
pub(crate) const ADMIN: &str = "towline-admin";
/// How long the administrator's certificate lives, unless the hub that runs is told otherwise.
const ADMIN_LIFE: Duration = Duration::days(365);

/// Flags of `towline-hub kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// Name of the user
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    user: String,
    /// Group of the user; repeat for several
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    group: Vec<String>,
    /// How long it holds; at least 1s. `towline-hub revoke` takes it back before that
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive)]
    ttl: std::time::Duration,
    /// Address of the hub; default: the first one that it advertises
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<HostPort>,
}

/// A kubeconfig for a user in some groups, as `towline-hub kubeconfig` prints it.
pub fn print(args: &KubeconfigArgs, clock: &SharedClock) -> anyhow::Result<String> {
    Beside::open(&args.data_dir)?;
    let keys = Keys::existing(&args.data_dir)?;
    let server = match &args.server {
        Some(server) => server.url(),
        None => {
            let path = args.data_dir.join(ADMIN_FILE);
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("failed to read {}; name --server", path.display()))?;
            let first = advertised_in(&text).into_iter().next();
            first.with_context(|| format!("{} names no server; name --server", path.display()))?
        }
    };
    let now = clock.now();
    let ttl = Duration::from_std(args.ttl).context("--ttl is too long")?;
    let made = make(&keys, &server, &args.user, &args.group, now, now + ttl)?;
    Ok(made)
}

/// By which addresses a kubeconfig leads to the hub.
#[derive(Debug, Clone, Copy)]
pub(super) struct Servers<'a> {
    /// The one that its user goes to.
    pub(super) own: &'a str,
    /// Those that the hub advertises, which kubeconfigs for elsewhere name; none if `own` is for everybody.
    pub(super) advertised: &'a [String],
}

impl<'a> From<&'a str> for Servers<'a> {
    fn from(own: &'a str) -> Self {
        let advertised = &[];
        Self { own, advertised }
    }
}

impl Servers<'_> {
    /// Those for elsewhere.
    fn elsewhere(&self) -> Vec<String> {
        match self.advertised {
            [] => vec![self.own.to_owned()],
            advertised => advertised.to_vec(),
        }
    }
}

/// Writes the administrator's kubeconfig, its certificate with this life, unless the one that is there
/// still serves: a third of the life is left, and addresses and authorities are those of now. Whether it did.
pub(super) fn ensure_admin<'a>(
    path: &Path,
    keys: &Keys,
    servers: impl Into<Servers<'a>>,
    life: Duration,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let admin = (ADMIN, &[MASTERS.to_owned()][..]);
    ensure(path, keys, servers.into(), admin, life, now)
}

/// The same of the process beside the hub that serves clusters without an agent of their own.
pub(super) fn ensure_push(
    path: &Path,
    keys: &Keys,
    server: &str,
    life: Duration,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    ensure(path, keys, server.into(), (PUSH_USER, &[]), life, now)
}

fn ensure(
    path: &Path,
    keys: &Keys,
    servers: Servers<'_>,
    (user, groups): (&str, &[String]),
    life: Duration,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let found = std::fs::read_to_string(path).unwrap_or_default();
    if serves(&found, keys, servers, life, now) {
        return Ok(false);
    }
    let made = compose(keys, servers, user, groups, now, now + life)?;
    secret_file(path, made.as_bytes())?;
    Ok(true)
}

/// A duration that is more than nothing.
fn positive(text: &str) -> Result<std::time::Duration, String> {
    let found = duration::parse(text).map_err(|error| error.to_string())?;
    if found.is_zero() {
        return Err(
            "it would have ended at once; a kubeconfig cannot hold for ever, so name a duration such as 24h"
                .to_owned(),
        );
    }
    Ok(found)
}

/// Makes the administrator's kubeconfig anew if its certificate is revoked; whether it was.
pub(super) fn renew_admin(path: &Path, keys: &Keys, now: DateTime<Utc>) -> Result<bool, Error> {
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let Some(server) = server_of(&found) else {
        return Ok(false);
    };
    if !certificate_of(&found).is_some_and(|chain| is_revoked(&chain, keys, now)) {
        return Ok(false);
    }
    let servers = Servers {
        own: &server,
        advertised: &advertised_in(&found),
    };
    ensure_admin(path, keys, servers, ADMIN_LIFE, now)?;
    Ok(true)
}

fn certificate_of(text: &str) -> Option<Vec<CertificateDer<'static>>> {
    let config: Value = serde_yaml::from_str(text).ok()?;
    let encoded = config["users"][0]["user"]["client-certificate-data"].as_str()?;
    common::tls::certificates(&STANDARD.decode(encoded).ok()?).ok()
}

/// Whether a certificate of ours does not count any more before its time.
fn is_revoked(chain: &[CertificateDer<'_>], keys: &Keys, now: DateTime<Utc>) -> bool {
    let authorities = keys.authorities();
    let is = |revoked: &Revoked| {
        matches!(
            Peer::of(chain, &authorities, revoked, now),
            Peer::Known { .. }
        )
    };
    is(&Revoked::default()) && !is(&keys.revoked())
}

fn server_of(text: &str) -> Option<String> {
    let config: Value = serde_yaml::from_str(text).ok()?;
    let server = config["clusters"][0]["cluster"]["server"].as_str()?;
    Some(server.to_owned())
}

/// The addresses by which others reach the hub, as an administrator's kubeconfig says; its own where it says none.
fn advertised_in(text: &str) -> Vec<String> {
    ClusterInfo::parse(text).map_or_else(|_| Vec::new(), |said| said.servers)
}

fn serves(
    text: &str,
    keys: &Keys,
    servers: Servers<'_>,
    life: Duration,
    now: DateTime<Utc>,
) -> bool {
    let read = || -> Option<bool> {
        let config: Value = serde_yaml::from_str(text).ok()?;
        let cluster = &config["clusters"][0]["cluster"];
        let decoded = |value: &Value| STANDARD.decode(value.as_str()?).ok();
        let ca = decoded(&cluster["certificate-authority-data"])?;
        let certificate = decoded(&config["users"][0]["user"]["client-certificate-data"])?;
        let chain = common::tls::certificates(&certificate).ok()?;
        let late = now + life / 3;
        let authorities = keys.authorities();
        // One that ends with its authority cannot be made any longer.
        let ends = common::tls::validity(chain.first()?).ok()?.1;
        Some(
            !is_revoked(&chain, keys, now)
                && cluster["server"] == servers.own
                && advertised_in(text) == servers.elsewhere()
                && ca == authorities.bundle().into_bytes()
                && authorities.verify(chain.first()?, &[], now).is_ok()
                && (ends > late || ends >= authorities.not_after()),
        )
    };
    read().unwrap_or(false)
}

/// A kubeconfig for a user in some groups.
pub(super) fn make(
    keys: &Keys,
    server: &str,
    user: &str,
    groups: &[String],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<String, Error> {
    compose(keys, server.into(), user, groups, now, until)
}

/// The same. Addresses for elsewhere stand in it as they do in cluster-info.
fn compose(
    keys: &Keys,
    servers: Servers<'_>,
    user: &str,
    groups: &[String],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<String, Error> {
    let authorities = keys.authorities();
    let (certificate, key) = client::issue(&authorities.signer(), user, groups, now, until)?;
    let name = "towline-hub";
    let mut cluster = json!({
        "server": servers.own,
        "certificate-authority-data": STANDARD.encode(authorities.bundle()),
    });
    let elsewhere = servers.elsewhere();
    if elsewhere != [servers.own] {
        let extension = json!({"servers": elsewhere});
        cluster["extensions"] = json!([{"name": SERVERS_EXTENSION, "extension": extension}]);
    }
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    });
    Ok(serde_yaml::to_string(&config).expect("invariant: JSON is YAML"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::keys::revoked::{Entry, Whom};
    use common::time::SystemClock;
    use std::sync::Arc;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        kubeconfig: KubeconfigArgs,
    }

    #[test]
    fn a_user_has_a_name() {
        use clap::Parser as _;
        let parsed = |user| Cli::try_parse_from(["kubeconfig", "--data-dir=d", user]);
        parsed("--user=ann").expect("a name");
        parsed("--user=").expect_err("nobody's certificate holds");
    }

    #[test]
    fn the_administrators_file_is_kept_while_it_serves() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let path = dir.path().join(ADMIN_FILE);
        let now = clock.now();
        let written = |server: &str, now| {
            ensure_admin(&path, &keys, server, Duration::days(365), now).expect("written");
            std::fs::read_to_string(&path).expect("there")
        };
        let first = written("https://a:1", now);
        assert_eq!(server_of(&first).as_deref(), Some("https://a:1"));
        assert_eq!(written("https://a:1", now + Duration::days(200)), first);
        let late = written("https://a:1", now + Duration::days(300));
        assert!(late != first, "a third is left");
        assert!(written("https://b:1", now) != late, "another address");
        let last = written("https://b:1", now + Duration::days(3640));
        let again = written("https://b:1", now + Duration::days(3641));
        assert_eq!(again, last, "it ends with its authority, as any would");
        let config: Value = serde_yaml::from_str(&late).expect("YAML");
        let key = config["users"][0]["user"]["client-key-data"].as_str();
        let key = STANDARD.decode(key.expect("a key")).expect("base64");
        assert!(key.starts_with(b"-----BEGIN EC PRIVATE KEY-----"));
    }

    #[test]
    fn kubeconfigs_for_elsewhere_name_what_the_hub_advertises() {
        use clap::Parser as _;
        let dir = tempfile::tempdir().expect("a folder");
        let data_dir = dir.path().display().to_string();
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let path = dir.path().join(ADMIN_FILE);
        let (own, now) = ("https://127.0.0.1:6443", clock.now());
        let hosts = ["https://hub.example:443", "https://192.0.2.1:6443"];
        let hosts = hosts.map(str::to_owned);
        let ensure = |advertised: &[String]| {
            let servers = Servers { own, advertised };
            ensure_admin(&path, &keys, servers, Duration::days(365), now).expect("written")
        };
        let named = |more: &[&str]| {
            let args = ["kubeconfig", "--data-dir", &data_dir, "--user", "ann"];
            let cli = Cli::try_parse_from([&args, more].concat()).expect("flags");
            let made = print(&cli.kubeconfig, &clock).expect("made");
            assert!(!made.contains(SERVERS_EXTENSION), "{made}");
            server_of(&made).expect("a server")
        };
        let admin = || std::fs::read_to_string(&path).expect("there");
        for (advertised, elsewhere) in [
            (&hosts[..1], hosts[0].as_str()),
            (&hosts[..], hosts[0].as_str()),
            (&hosts[1..], hosts[1].as_str()),
            (&hosts[..0], own),
        ] {
            assert!(ensure(advertised), "others are advertised: {advertised:?}");
            assert!(!ensure(advertised), "the same are: {advertised:?}");
            assert_eq!(server_of(&admin()).as_deref(), Some(own));
            assert_eq!(named(&[]), elsewhere);
            assert_eq!(named(&["--server", "b:1"]), "https://b:1");
        }
        // One that is made anew because it was revoked knows them too.
        assert!(ensure(&hosts));
        let revoke = |revoked: &mut Revoked| {
            let entry = Entry {
                whom: Whom::User(ADMIN.to_owned()),
                begun_by: Some(now),
                until: None,
            };
            revoked.add(entry, now);
        };
        keys.revoke(revoke).expect("written");
        let before = admin();
        assert!(renew_admin(&path, &keys, now + Duration::minutes(10)).expect("made anew"));
        assert!(admin() != before && server_of(&admin()).as_deref() == Some(own));
        assert_eq!(named(&[]), hosts[0]);
    }

    #[test]
    fn a_kubeconfig_that_has_ended_is_not_made() {
        assert!(positive("0").expect_err("refused").contains("such as 24h"));
        assert!(positive("0s").is_err() && positive("soon").is_err());
        assert_eq!(positive("1h").expect("taken").as_secs(), 3600);
    }
}
