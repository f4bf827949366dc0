//! `towline check`: walks from this machine to a hub, then to its members, and names the first thing
//! that is wrong.
//!
//! One request over the very client that everything else uses shows how far the way is open; the rest
//! is read from the hub.

mod clusters;
mod rights;
mod way;

use super::{CliError, ConnectArgs, Kind, Output};
use common::client::HostPort;
use common::names::ClusterName;
use common::time::{Clock as _, SystemClock};

/// Arguments of `towline check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Look at this cluster only; default: at all of them.
    #[arg(value_name = "CLUSTER")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Walk to this address as an agent would, without a kubeconfig, and no further than TLS.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["cluster", "kubeconfig", "context"])]
    server: Option<HostPort>,
    /// Proxy for --server; default: HTTPS_PROXY and NO_PROXY.
    #[arg(long, value_name = "URL", requires = "server")]
    hub_proxy: Option<String>,
    /// Pin of the hub's CA for --server, as sha256:HEX.
    #[arg(long, value_name = "PIN", requires = "server")]
    discovery_token_ca_cert_hash: Vec<common::discovery::CaPin>,
}

/// What one step found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    /// What was looked at.
    step: String,
    /// What was seen: right, or wrong with a hint.
    seen: Result<String, Wrong>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    what: String,
    hint: String,
}

impl Finding {
    fn right(step: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            seen: Ok(seen.into()),
        }
    }

    fn wrong(step: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        let wrong = Wrong {
            what: what.into(),
            hint: hint.into(),
        };
        Self {
            step: step.into(),
            seen: Err(wrong),
        }
    }
}

/// Shows findings as they come and remembers the first that is wrong.
struct Walk<'a> {
    output: &'a Output,
    first: Option<Finding>,
}

impl Walk<'_> {
    /// Shows findings; whether all so far are right.
    fn take(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<bool, CliError> {
        for finding in findings {
            let step = &finding.step;
            match &finding.seen {
                Ok(seen) => self.output.print(format!("ok     {step:<22} {seen}"))?,
                Err(wrong) => self
                    .output
                    .print(format!("WRONG  {step:<22} {}", wrong.what))?,
            }
            if finding.seen.is_err() && self.first.is_none() {
                self.first = Some(finding);
            }
        }
        Ok(self.first.is_none())
    }

    fn end(self) -> Result<(), CliError> {
        let Some(Finding {
            step,
            seen: Err(wrong),
        }) = self.first
        else {
            return Ok(());
        };
        Err(CliError::message(Kind::Unmet, format!("{step}: {}", wrong.what)).hint(wrong.hint))
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let mut walk = Walk {
        output,
        first: None,
    };
    if let Some(server) = args.server {
        let findings = way::to_address(
            server,
            args.hub_proxy.as_deref(),
            &args.discovery_token_ca_cert_hash,
        );
        walk.take(findings.await?)?;
        return walk.end();
    }
    let (client, config) = args.connect.connect("cli check").await?;
    if !walk.take(way::to_hub(&client, &config).await)? {
        return walk.end();
    }
    if !walk.take(rights::look(&client).await)? {
        return walk.end();
    }
    let now = SystemClock.now();
    walk.take(clusters::look(&client, args.cluster.as_ref(), now).await?)?;
    walk.end()
}
