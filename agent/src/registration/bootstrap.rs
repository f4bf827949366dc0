//! What the operator hands to the agent: flags first, then the keys of Secret towline-agent-bootstrap.

use crate::config::BootstrapFlags;
use crate::credentials::Fingerprint;
use common::client::HostPort;
use common::discovery::CaPin;
use common::names::{BOOTSTRAP_CLUSTER, BOOTSTRAP_SECRET, ClusterName};
use common::proxy::ProxyChoice;
use common::token::BootstrapToken;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Everything registration needs.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Where the hub is.
    pub servers: Vec<HostPort>,
    /// The name asked for.
    pub cluster: ClusterName,
    /// The right to ask.
    pub token: BootstrapToken,
    /// The public keys of CAs that are trusted.
    pub pins: Vec<CaPin>,
}

impl Bootstrap {
    /// What a new registration is told by: name, token and pins. Addresses may change without one.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut pins: Vec<String> = self.pins.iter().map(ToString::to_string).collect();
        pins.sort();
        let bearer = self.token.bearer();
        let text = [self.cluster.as_str(), bearer.expose(), &pins.join(",")].join("\n");
        let sum = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let hex = sum.as_ref().iter().map(|byte| format!("{byte:02x}"));
        Fingerprint(hex.collect())
    }
}

/// What was handed over, as far as it goes.
#[derive(Debug, Clone)]
pub struct Handed {
    /// Addresses, possibly none.
    pub servers: Vec<HostPort>,
    /// The way out.
    pub proxy: ProxyChoice,
    /// The whole, or what is missing or wrong.
    pub bootstrap: Result<Bootstrap, String>,
}

/// Why the bootstrap could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Secret.
    #[error("failed to get Secret {BOOTSTRAP_SECRET:?}")]
    Secret(#[source] Box<kube::Error>),
}

/// Reads what is handed over. `secrets` is none with a state directory, whose agent has no objects.
pub async fn read(flags: &BootstrapFlags, secrets: Option<&Api<Secret>>) -> Result<Handed, Error> {
    let found = match secrets {
        Some(api) => api.get_opt(BOOTSTRAP_SECRET).await,
        None => Ok(None),
    };
    let data = found
        .map_err(|e| Error::Secret(Box::new(e)))?
        .and_then(|secret| secret.data)
        .unwrap_or_default();
    let data: BTreeMap<String, String> = data
        .into_iter()
        .map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()))
        .collect();
    // A projected Secret is replaced whole; a file that is missing at this moment is there at the next.
    let file = flags.token_file.as_ref().map(std::fs::read_to_string);
    let token = file.map(|read| read.map_err(|e| format!("--token-file cannot be read: {e}")));
    Ok(assemble(flags, token, &data))
}

fn assemble(
    flags: &BootstrapFlags,
    token: Option<Result<String, String>>,
    data: &BTreeMap<String, String>,
) -> Handed {
    let key = |name: &str| data.get(name).map(|text| text.trim().to_owned());
    let list = |flag: &[String], name: &str| -> Vec<String> {
        if flag.is_empty() {
            let text = key(name).unwrap_or_default();
            text.split([',', '\n'])
                .map(|part| part.trim().to_owned())
                .filter(|part| !part.is_empty())
                .collect()
        } else {
            flag.to_vec()
        }
    };
    let servers = parse_all(&list(&flags.hub, "hub"), HostPort::parse, "hub");
    let pins = parse_all(
        &list(&flags.pins, "ca-cert-hashes"),
        CaPin::parse,
        "ca-cert-hashes",
    );
    let flag = flags.proxy.as_ref().map(|p| p.expose().clone());
    let proxy = ProxyChoice::from_flag(flag.or_else(|| key("hub-proxy")).as_deref());
    let token = token.or_else(|| key("token").map(Ok));
    let cluster = flags.cluster.clone().map(Ok).or_else(|| {
        key(BOOTSTRAP_CLUSTER).map(|name| ClusterName::parse(&name).map_err(|e| e.to_string()))
    });
    Handed {
        servers: servers.clone().unwrap_or_default(),
        proxy: proxy.clone().unwrap_or_default(),
        bootstrap: complete(servers, cluster, token, pins, proxy),
    }
}

fn complete<P: Display>(
    servers: Result<Vec<HostPort>, String>,
    cluster: Option<Result<ClusterName, String>>,
    token: Option<Result<String, String>>,
    pins: Result<Vec<CaPin>, String>,
    proxy: Result<ProxyChoice, P>,
) -> Result<Bootstrap, String> {
    let missing =
        |what: &str| format!("{what} is missing, as flag and in Secret {BOOTSTRAP_SECRET}");
    let bootstrap = Bootstrap {
        servers: servers?,
        cluster: cluster.ok_or_else(|| missing("cluster-name"))??,
        token: BootstrapToken::parse(&token.ok_or_else(|| missing("token"))??)
            .map_err(|e| format!("token: {e}"))?,
        pins: pins?,
    };
    proxy.map_err(|e| format!("hub-proxy: {e}"))?;
    if bootstrap.servers.is_empty() {
        return Err(missing("hub"));
    }
    if bootstrap.pins.is_empty() {
        return Err(missing("ca-cert-hashes"));
    }
    Ok(bootstrap)
}

fn parse_all<T, E: Display>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, E>,
    what: &str,
) -> Result<Vec<T>, String> {
    let one = |text: &String| parse(text).map_err(|e| format!("{what}: {e}"));
    texts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        owned.collect()
    }

    fn whole() -> BTreeMap<String, String> {
        let pin = format!("sha256:{}", "ab".repeat(32));
        data(&[
            ("hub", "a:1, [::1]:2\n"),
            ("cluster-name", "m1"),
            ("token", "abcdef.0123456789abcdef\n"),
            ("ca-cert-hashes", &pin),
        ])
    }

    #[test]
    fn secret_and_flags_make_one_bootstrap() {
        let flags = BootstrapFlags::default();
        let handed = assemble(&flags, None, &whole());
        let bootstrap = handed.bootstrap.expect("complete");
        assert_eq!(bootstrap.servers.len(), 2);
        assert_eq!(bootstrap.cluster.as_str(), "m1");

        let flags = BootstrapFlags {
            hub: vec!["b:3".into()],
            cluster: ClusterName::parse("m2").ok(),
            ..BootstrapFlags::default()
        };
        let token = Ok("fedcba.0123456789abcdef".to_owned());
        let other = assemble(&flags, Some(token), &whole());
        let other = other.bootstrap.expect("complete");
        assert_eq!(other.servers[0].to_string(), "b:3");
        assert_eq!(other.cluster.as_str(), "m2");
        assert_eq!(other.token.id(), "fedcba");
        assert_ne!(other.fingerprint(), bootstrap.fingerprint());
    }

    #[test]
    fn addresses_do_not_change_the_fingerprint() {
        let flags = BootstrapFlags::default();
        let of = |key: &str, value: &str| {
            let mut data = whole();
            data.insert(key.into(), value.into());
            assemble(&flags, None, &data)
                .bootstrap
                .map(|b| b.fingerprint())
        };
        let base = of("hub", "a:1").expect("complete");
        assert_eq!(of("hub", "b:2").expect("complete"), base);
        let pin = format!("sha256:{}", "cd".repeat(32));
        assert_ne!(of("ca-cert-hashes", &pin).expect("complete"), base);
        assert_ne!(of("cluster-name", "m2").expect("complete"), base);
        assert_ne!(
            of("token", "abcdef.0123456789abcdex").expect("complete"),
            base
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_without_the_secret() {
        let flags = BootstrapFlags::default();
        for key in ["hub", "cluster-name", "token", "ca-cert-hashes"] {
            let mut data = whole();
            data.remove(key);
            let why = assemble(&flags, None, &data).bootstrap.expect_err(key);
            assert!(why.contains(key) && why.contains("missing"), "{why}");
            data.insert(key.into(), "Not/Valid secret".into());
            let why = assemble(&flags, None, &data).bootstrap.expect_err(key);
            assert!(key != "token" || !why.contains("Not/Valid"), "{why}");
        }
        let unreadable = Some(Err("--token-file cannot be read: gone".to_owned()));
        let handed = assemble(&flags, unreadable, &whole());
        assert!(handed.bootstrap.expect_err("unreadable").contains("gone"));
        let mut data = whole();
        data.insert("hub-proxy".into(), "socks5://p:1".into());
        let handed = assemble(&flags, None, &data);
        assert!(handed.bootstrap.expect_err("proxy").contains("hub-proxy"));
    }
}
