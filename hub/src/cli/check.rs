//! `towline check`: walks from this machine to a hub, then to its members, and names the first thing
//! that is wrong.
//!
//! One request over the very client that everything else uses shows how far the way is open; the rest
//! is read from the hub.

pub(super) mod clusters;
pub(super) mod health;
pub(super) mod rights;
mod tunnel;
mod way;

use super::{CliError, Colours, ConnectArgs, Format, Kind, Output};
use common::client::HostPort;
use common::harmless;
use common::names::ClusterName;
use common::time::{Clock as _, SystemClock};
use serde::Serialize;

/// Arguments of `towline check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Look at this cluster only; default: at all of them.
    #[arg(value_name = "CLUSTER")]
    cluster: Option<ClusterName>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Walk to this address as an agent would, without a kubeconfig, and no further than TLS and the
    /// pins.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["cluster", "kubeconfig", "context"])]
    server: Option<HostPort>,
    /// Proxy for --server; default: HTTPS_PROXY and NO_PROXY.
    #[arg(long, value_name = "URL", requires = "server")]
    hub_proxy: Option<String>,
    /// Pin of the hub's CA for --server, as sha256:HEX.
    #[arg(long, value_name = "PIN", requires = "server")]
    discovery_token_ca_cert_hash: Vec<common::discovery::CaPin>,
    /// How what was found is shown; the exit code is the same.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What one step found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) step: String,
    /// What was seen: right, or wrong with a hint.
    pub(super) seen: Result<String, Wrong>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) what: String,
    pub(super) hint: String,
}

impl Finding {
    fn right(step: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            seen: Ok(seen.into()),
        }
    }

    /// As people read it.
    fn line(&self, colours: Colours) -> String {
        let (state, what) = match &self.seen {
            Ok(seen) => (colours.good("ok") + "     ", seen),
            Err(wrong) => (colours.bad("WRONG") + "  ", &wrong.what),
        };
        let what = harmless::line(what, usize::MAX);
        format!("{state}{:<22} {what}", self.step)
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

/// A finding as programs read it.
#[derive(Debug, Serialize)]
struct Shown {
    /// The cluster it is about; none when it is about the hub or the way there.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    step: String,
    ok: bool,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Shown {
    fn new(cluster: Option<&str>, finding: &Finding) -> Self {
        let (message, hint) = match &finding.seen {
            Ok(seen) => (seen, None),
            Err(wrong) => (&wrong.what, Some(wrong.hint.clone())),
        };
        Self {
            cluster: cluster.map(str::to_owned),
            step: finding.step.clone(),
            ok: finding.seen.is_ok(),
            message: message.clone(),
            hint,
        }
    }
}

/// Shows findings, for people as they come, and remembers the first that is wrong.
struct Walk<'a> {
    output: &'a Output,
    format: Format,
    shown: Vec<Shown>,
    first: Option<Finding>,
}

impl Walk<'_> {
    /// Takes findings about the hub and the way there; whether all so far are right.
    fn take(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<bool, CliError> {
        for finding in findings {
            self.shown.push(Shown::new(None, &finding));
            self.line(finding)?;
        }
        Ok(self.first.is_none())
    }

    /// Takes what was found of clusters: a line for each step of a single one, else one for each cluster.
    fn take_clusters(&mut self, found: Vec<clusters::Found>, one: bool) -> Result<(), CliError> {
        for cluster in found {
            let each = cluster.findings.iter();
            self.shown
                .extend(each.map(|finding| Shown::new(Some(&cluster.name), finding)));
            if one {
                for finding in cluster.findings {
                    self.line(finding)?;
                }
            } else {
                self.line(cluster.summary())?;
            }
        }
        Ok(())
    }

    fn line(&mut self, finding: Finding) -> Result<(), CliError> {
        if self.format == Format::Table {
            self.output.print(finding.line(self.output.colours()))?;
        }
        if finding.seen.is_err() && self.first.is_none() {
            self.first = Some(finding);
        }
        Ok(())
    }

    /// The clusters with which something is wrong.
    fn wrong(&self) -> Vec<String> {
        let wrong = self.shown.iter().filter(|it| !it.ok);
        let names = wrong.filter_map(|it| it.cluster.as_deref());
        let mut names: Vec<String> = names
            .map(|name| format!("cluster.cluster.karmada.io/{name}"))
            .collect();
        names.dedup();
        names
    }

    fn end(self) -> Result<(), CliError> {
        match self.format {
            Format::Table => {}
            Format::Name => self.output.print(self.wrong().join("\n"))?,
            format => self.output.print_value(format, &self.shown)?,
        }
        let Some(Finding {
            step,
            seen: Err(wrong),
        }) = self.first
        else {
            return Ok(());
        };
        let what = harmless::line(&wrong.what, usize::MAX);
        Err(CliError::message(Kind::Unmet, format!("{step}: {what}")).hint(wrong.hint))
    }
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let mut walk = Walk {
        output,
        format: args.output,
        shown: Vec::new(),
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
    // A hub that is not ready may still tell of its clusters.
    walk.take([health::look(&client).await])?;
    let rights = rights::look(&client).await;
    walk.take(rights.findings)?;
    if rights.may_look {
        let now = SystemClock.now();
        let progress = output.progress("looking at clusters");
        let mut found = clusters::look(&client, args.cluster.as_ref(), now).await?;
        if let (Some(_), [one]) = (&args.cluster, found.as_mut_slice()) {
            let walked = tunnel::look(&client, &one.name, one.opened.as_deref()).await;
            one.findings.push(walked);
        }
        drop(progress);
        walk.take_clusters(found, args.cluster.is_some())?;
    }
    walk.end()
}
