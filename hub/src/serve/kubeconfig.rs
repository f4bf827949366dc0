//! Kubeconfigs: the administrator's beside the database, and others on request.

use crate::apiserver::caller::MASTERS;
use crate::apiserver::keys::{Error, Keys, client, secret_file};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, Utc};
use clap::Args;
use common::client::HostPort;
use common::duration;
use common::time::SharedClock;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The administrator's kubeconfig in the data directory.
pub(super) const ADMIN_FILE: &str = "admin.kubeconfig";
const ADMIN: &str = "towline-admin";
/// How long the administrator's certificate lives; a start makes a new one when a third is left.
const ADMIN_LIFE: Duration = Duration::days(365);

/// Flags of `towline-hub kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// Name of the user
    #[arg(long, value_name = "NAME")]
    user: String,
    /// Group of the user; repeat for several
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// How long it holds
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    ttl: std::time::Duration,
    /// Address of the hub; default: the one in the administrator's kubeconfig
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<HostPort>,
}

/// A kubeconfig for a user in some groups, as `towline-hub kubeconfig` prints it.
pub fn print(args: &KubeconfigArgs, clock: &SharedClock) -> anyhow::Result<String> {
    let keys = Keys::existing(&args.data_dir)?;
    let server = match &args.server {
        Some(server) => server.url(),
        None => {
            let path = args.data_dir.join(ADMIN_FILE);
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("failed to read {}; name --server", path.display()))?;
            server_of(&text)
                .with_context(|| format!("{} names no server; name --server", path.display()))?
        }
    };
    let now = clock.now();
    let ttl = Duration::from_std(args.ttl).context("--ttl is too long")?;
    let made = make(&keys, &server, &args.user, &args.group, now, now + ttl)?;
    Ok(made)
}

/// Writes the administrator's kubeconfig unless the one that is there still serves.
pub(super) fn ensure_admin(
    path: &Path,
    keys: &Keys,
    server: &str,
    now: DateTime<Utc>,
) -> Result<(), Error> {
    let found = std::fs::read_to_string(path).unwrap_or_default();
    if serves(&found, keys, server, now) {
        return Ok(());
    }
    let groups = [MASTERS.to_owned()];
    let made = make(keys, server, ADMIN, &groups, now, now + ADMIN_LIFE)?;
    secret_file(path, made.as_bytes())
}

fn server_of(text: &str) -> Option<String> {
    let config: Value = serde_yaml::from_str(text).ok()?;
    let server = config["clusters"][0]["cluster"]["server"].as_str()?;
    Some(server.to_owned())
}

fn serves(text: &str, keys: &Keys, server: &str, now: DateTime<Utc>) -> bool {
    let read = || -> Option<bool> {
        let config: Value = serde_yaml::from_str(text).ok()?;
        let cluster = &config["clusters"][0]["cluster"];
        let decoded = |value: &Value| STANDARD.decode(value.as_str()?).ok();
        let ca = decoded(&cluster["certificate-authority-data"])?;
        let certificate = decoded(&config["users"][0]["user"]["client-certificate-data"])?;
        let chain = common::tls::certificates(&certificate).ok()?;
        let late = now + ADMIN_LIFE / 3;
        let authorities = keys.authorities();
        Some(
            cluster["server"] == server
                && ca == authorities.bundle().into_bytes()
                && authorities.verify(chain.first()?, &[], now).is_ok()
                && common::tls::validity(chain.first()?).ok()?.1 > late,
        )
    };
    read().unwrap_or(false)
}

fn make(
    keys: &Keys,
    server: &str,
    user: &str,
    groups: &[String],
    now: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<String, Error> {
    let authorities = keys.authorities();
    let (certificate, key) = client::issue(&authorities.signer(), user, groups, now, until)?;
    let name = "towline-hub";
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authorities.bundle()),
        }}],
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
    use common::time::SystemClock;
    use std::sync::Arc;

    #[test]
    fn the_administrators_file_is_kept_while_it_serves() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(SystemClock);
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let path = dir.path().join(ADMIN_FILE);
        let now = clock.now();
        let written = |server: &str, now| {
            ensure_admin(&path, &keys, server, now).expect("written");
            std::fs::read_to_string(&path).expect("there")
        };
        let first = written("https://a:1", now);
        assert_eq!(server_of(&first).as_deref(), Some("https://a:1"));
        assert_eq!(written("https://a:1", now + Duration::days(200)), first);
        let late = written("https://a:1", now + Duration::days(300));
        assert!(late != first, "a third is left");
        assert!(written("https://b:1", now) != late, "another address");
    }
}
