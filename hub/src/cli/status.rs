//! `towline status`: the whole fleet on one screen, the worst first.
//!
//! What it says is what `towline check` finds of clusters and `towline get` of templates; here it is counted and put in
//! order.

mod screen;
mod summary;
#[cfg(test)]
mod tests;

use super::check::{clusters, health, rights};
use super::get::read::Hub;
use super::{CliError, ConnectArgs, Format, Kind, Output};
use crate::token_secret::{TOKEN_NAMESPACE, TOKEN_TYPE};
use chrono::{DateTime, Utc};
use common::time::{Clock as _, SystemClock};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use summary::{Seen, Status};

/// Arguments of `towline status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline status               what needs somebody, the worst first
  towline status --all         all that is wrong, however much it is
  towline status -o name       what is wrong, by name, for scripts")]
pub(super) struct Args {
    /// Everything that is wrong, not only the worst.
    #[arg(long)]
    all: bool,
    /// How it is shown. JSON and YAML have every cluster and every template, and of other Works those that are wrong.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let (client, _) = args.connect.connect("cli status").await?;
    let now = SystemClock.now();
    let progress = output.progress("looking at the fleet");
    let mut seen = Seen::default();
    let hub = Hub::discover(client.clone()).await?;
    seen.hub.push(health::look(&client).await);
    look_at_clusters(&client, now, &mut seen).await?;
    seen.templates = hub.propagated().await?;
    match hub.unbound().await {
        Ok(found) => seen.works = found,
        Err(error) if error.kind == Kind::Denied => seen.hidden.push("Works".to_owned()),
        Err(error) => return Err(error),
    }
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    let of_type = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    match secrets.list(&of_type).await {
        Ok(found) => seen.tokens = found.items,
        Err(error) => {
            let error = CliError::api("failed to list tokens", error);
            if error.kind != Kind::Denied {
                return Err(error);
            }
            seen.hidden.push("tokens".to_owned());
        }
    }
    drop(progress);
    let status = Status::of(&seen, now);
    match args.output {
        Format::Table => {
            let view = screen::View {
                all: args.all,
                width: output.width(),
                colours: output.colours(),
                now,
            };
            output.print(view.text(&status))
        }
        Format::Name => match status.wrong() {
            wrong if wrong.is_empty() => Ok(()),
            wrong => output.print(wrong.join("\n")),
        },
        format => output.print_value(format, &status),
    }
}

/// Clusters, and the hub's own process. A hub whose process is silent still has what its clusters said last.
async fn look_at_clusters(
    client: &Client,
    now: DateTime<Utc>,
    seen: &mut Seen,
) -> Result<(), CliError> {
    let rights = rights::look(client).await;
    seen.hub.extend(rights.findings.into_iter().filter(|it| {
        // Of rights only those that are missing are news.
        it.seen.is_err() || it.step == rights::HUB
    }));
    match clusters::look(client, None, now).await {
        Ok(found) => seen.clusters = found,
        Err(error) if error.kind == Kind::Denied => seen.hidden.push("Clusters".to_owned()),
        Err(error) => return Err(error),
    }
    if !rights.leases {
        seen.hidden.push("Leases".to_owned());
    }
    Ok(())
}
