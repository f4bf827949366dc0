//! What the operator hands to the agent: where the hub is, who the member is there, and the token.

use super::objects::Object;
use crate::cli::token::ForCluster;
use crate::cli::{CliError, Kind};
use common::client::HostPort;
use common::discovery::CaPin;
use common::names::{AGENT_NAMESPACE, BOOTSTRAP_CLUSTER, BOOTSTRAP_SECRET, ClusterName};
use common::proxy::ProxyChoice;
use common::secret::Secret;
use common::token::BootstrapToken;
use serde_json::{Map, Value, json};
use std::io::Read as _;
use std::path::PathBuf;

/// Flags of the bootstrap.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
pub(super) struct BootstrapArgs {
    /// Addresses of the hub, tried in turn; needed with a token.
    #[arg(value_name = "HUB")]
    hub: Vec<HostPort>,
    /// Name of this cluster on the hub; needed with a token.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<ClusterName>,
    /// File with the token, or - for stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The token itself; other users of this machine can see it, so prefer --token-file.
    #[arg(long, value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Pin of the hub's CA as sha256:HEX; repeat for several. Needed with a token.
    #[arg(long, value_name = "PIN")]
    discovery_token_ca_cert_hash: Vec<CaPin>,
    /// Proxy the agent uses towards the hub: http://[USER:PASSWORD@]HOST:PORT.
    #[arg(long, value_name = "URL")]
    hub_proxy: Option<String>,
}

/// What is handed over.
#[derive(Debug, Default)]
pub(super) struct Bootstrap {
    hub: Vec<HostPort>,
    registration: Option<Registration>,
    proxy: Option<Secret<String>>,
}

#[derive(Debug)]
struct Registration {
    cluster: ClusterName,
    token: BootstrapToken,
    pins: Vec<CaPin>,
}

impl BootstrapArgs {
    /// Checks the flags and reads the token.
    pub(super) fn read(self) -> Result<Bootstrap, CliError> {
        let usage = |message: &str| CliError::message(Kind::Usage, message);
        if let Some(proxy) = &self.hub_proxy {
            ProxyChoice::explicit(proxy).map_err(|error| CliError::new(Kind::Usage, error))?;
        }
        let text = match (self.token, self.token_file) {
            (Some(token), _) => Some(token),
            (None, Some(file)) => Some(read_token(&file)?),
            (None, None) => None,
        };
        let proxy = self.hub_proxy.map(Secret::new);
        let Some(text) = text else {
            if self.cluster_name.is_some() || !self.discovery_token_ca_cert_hash.is_empty() {
                return Err(usage("a name or pin is of no use without a token")
                    .hint("Add --token-file FILE, or - to read it from stdin."));
            }
            return Ok(Bootstrap {
                hub: self.hub,
                registration: None,
                proxy,
            });
        };
        let token = BootstrapToken::parse(&text).map_err(|e| CliError::new(Kind::Config, e))?;
        let cluster = self
            .cluster_name
            .ok_or_else(|| usage("--cluster-name is missing"))?;
        if self.hub.is_empty() {
            return Err(usage(
                "the hub's address is missing: towline register HOST:PORT ...",
            ));
        }
        if self.discovery_token_ca_cert_hash.is_empty() {
            let message = "--discovery-token-ca-cert-hash is missing: without it anybody could \
                           pass for the hub";
            return Err(
                usage(message).hint("`towline token create --print-register-command` prints it.")
            );
        }
        let pins = self.discovery_token_ca_cert_hash;
        let registration = Some(Registration {
            cluster,
            token,
            pins,
        });
        Ok(Bootstrap {
            hub: self.hub,
            registration,
            proxy,
        })
    }
}

fn read_token(file: &PathBuf) -> Result<String, CliError> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin()
            .lock()
            .take(4096)
            .read_to_string(&mut text)
            .map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|error| {
        let error = anyhow::Error::new(error);
        let message = format!("failed to read the token from {}", file.display());
        CliError::new(Kind::Config, error.context(message))
    })
}

impl Bootstrap {
    /// The registration of a cluster by a token that was just made.
    pub(super) fn of(cluster: ClusterName, given: ForCluster) -> Self {
        let ForCluster { token, hub, pins } = given;
        Self {
            hub,
            registration: Some(Registration {
                cluster,
                token,
                pins,
            }),
            proxy: None,
        }
    }

    /// Whether there is no token.
    pub(super) fn is_empty(&self) -> bool {
        self.registration.is_none()
    }

    /// The Secret of a new registration; none without a token.
    pub(super) fn secret(&self) -> Option<Object> {
        self.registration.as_ref()?;
        Some(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": BOOTSTRAP_SECRET,
                "namespace": AGENT_NAMESPACE,
                "labels": {"app.kubernetes.io/name": "towline-agent", "app.kubernetes.io/part-of": "towline"},
            },
            "type": "Opaque",
            "stringData": self.data(),
        }))
    }

    /// The values to put into the Secret that is there, when there is no token but something else to
    /// say: an agent whose hub moved.
    pub(super) fn move_only(&self) -> Option<Value> {
        let data = self.data();
        let moves = self.registration.is_none() && !data.is_empty();
        moves.then(|| json!({ "stringData": data }))
    }

    fn data(&self) -> Map<String, Value> {
        let mut data = Map::new();
        let mut put = |key: &str, value: String| data.insert(key.to_owned(), value.into());
        if !self.hub.is_empty() {
            put("hub", join(&self.hub));
        }
        if let Some(registration) = &self.registration {
            put(BOOTSTRAP_CLUSTER, registration.cluster.to_string());
            put("token", registration.token.bearer().expose().clone());
            put("ca-cert-hashes", join(&registration.pins));
        }
        if let Some(proxy) = &self.proxy {
            put("hub-proxy", proxy.expose().clone());
        }
        data
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        bootstrap: BootstrapArgs,
    }

    fn read(args: &[&str]) -> Result<Bootstrap, String> {
        let cli = Cli::try_parse_from([&["x"], args].concat()).map_err(|e| e.to_string())?;
        cli.bootstrap.read().map_err(|e| e.to_string())
    }

    const PIN: &str = "--discovery-token-ca-cert-hash=sha256:\
                       8db4adebab86b216acf138215333ef13180d146463e96586b5d1f88a50136f12";
    const TOKEN: &str = "--token=abcdef.0123456789abcdef";

    #[test]
    fn a_whole_bootstrap_becomes_the_secret() {
        let args = [
            "a:1",
            "[::1]:2",
            "--cluster-name=m1",
            TOKEN,
            PIN,
            "--hub-proxy=http://p:3",
        ];
        let secret = read(&args).expect("whole").secret().expect("a Secret");
        let data = &secret["stringData"];
        assert_eq!(data["hub"], "a:1,[::1]:2");
        assert_eq!(data["cluster-name"], "m1");
        assert_eq!(data["token"], "abcdef.0123456789abcdef");
        assert_eq!(data["hub-proxy"], "http://p:3");
        assert!(
            data["ca-cert-hashes"]
                .as_str()
                .is_some_and(|pin| pin.starts_with("sha256:8db4"))
        );
    }

    #[test]
    fn half_a_bootstrap_is_refused() {
        let cases: [(&[&str], &str); 5] = [
            (
                &["a:1", "--cluster-name=m1", TOKEN],
                "ca-cert-hash is missing",
            ),
            (&["a:1", TOKEN, PIN], "--cluster-name is missing"),
            (&["--cluster-name=m1", TOKEN, PIN], "address is missing"),
            (
                &["a:1", "--cluster-name=m1", "--token=secretive", PIN],
                "must have the form",
            ),
            (&["a:1", "--cluster-name=m1"], "of no use without a token"),
        ];
        for (args, want) in cases {
            let error = read(args).expect_err(want);
            assert!(
                error.contains(want) && !error.contains("secretive"),
                "{args:?}: {error}"
            );
        }
    }

    #[test]
    fn a_moved_hub_needs_no_token() {
        let moved = read(&["b:2"]).expect("valid");
        assert!(moved.is_empty() && moved.secret().is_none());
        assert_eq!(
            moved.move_only(),
            Some(json!({"stringData": {"hub": "b:2"}}))
        );
        assert_eq!(read(&[]).expect("valid").move_only(), None);
    }
}
