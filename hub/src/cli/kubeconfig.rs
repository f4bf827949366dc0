//! `towline kubeconfig`: kubeconfigs whose clusters are members, reached through the hub as oneself. kubectl, helm, k9s
//! and whatever else reads one need nothing more.

mod contexts;

use super::{CliError, ConnectArgs, Kind, Output, clusters};
use crate::aggregated;
use crate::apiserver::files::write_file;
use anyhow::anyhow;
use common::client::{kubeconfigs, read_kubeconfig};
use common::names::ClusterName;
use contexts::Source;
pub(in crate::cli) use contexts::Way;
use kube::Client;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// Arguments of `towline kubeconfig`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline kubeconfig -C m1 -o m1.kubeconfig     then: kubectl --kubeconfig m1.kubeconfig get pods
  towline kubeconfig --all -o fleet.kubeconfig  then: kubectl --kubeconfig fleet.kubeconfig --context m2 logs -f POD")]
pub(super) struct Args {
    /// Clusters, a context for each.
    #[arg(
        short = 'C',
        long,
        value_name = "CLUSTER",
        value_delimiter = ',',
        required_unless_present = "all"
    )]
    clusters: Vec<ClusterName>,
    /// Every cluster of the hub.
    #[arg(long, alias = "all-contexts", conflicts_with = "clusters")]
    all: bool,
    /// What the names of contexts begin with.
    #[arg(long, value_name = "TEXT", default_value = "")]
    context_prefix: String,
    /// File that is written, readable for you alone; default: standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    if let Some(path) = &args.output {
        spare(path, &kubeconfigs(args.connect.kubeconfig.as_deref()))?;
    }
    let source = read(&args.connect)?;
    let (client, _) = args.connect.connect("cli kubeconfig").await?;
    let named = match args.all {
        true => &[][..],
        false => &args.clusters,
    };
    let wanted = clusters::meant(&client, named).await?;
    let first = wanted.first().map_or("", String::as_str);
    let way = way(&client, first).await?;
    let made = contexts::of(&source, way, &wanted, &args.context_prefix);
    let made = made.map_err(|error| CliError::new(Kind::Config, error))?;
    let text = common::yaml::to_string(&made);
    let text = text.map_err(|error| CliError::new(Kind::Internal, error))?;
    let Some(path) = &args.output else {
        if std::io::stdout().is_terminal() {
            output.note("what follows has your credential for the hub: -o FILE keeps it to you");
        }
        return output.print(text.trim_end());
    };
    let written = write_file(path, text.as_bytes());
    written.map_err(|error| CliError::new(Kind::Config, error))?;
    output.print(format!(
        "{} has {}; try: kubectl --kubeconfig {} --context {}{first} get pods -A",
        path.display(),
        match wanted.len() {
            1 => "1 context".to_owned(),
            many => format!("{many} contexts"),
        },
        path.display(),
        args.context_prefix,
    ))
}

/// By which API the hub leads into members. Where it does not say so, it is asked for a path to one of them that is passed
/// on to no member, so that none is waited for.
pub(in crate::cli) async fn way(client: &Client, member: &str) -> Result<Way, CliError> {
    let groups = client.list_api_groups().await;
    let groups =
        groups.map_err(|error| CliError::api("failed to ask the hub what it serves", error))?;
    if groups.groups.iter().any(|it| it.name == aggregated::GROUP) {
        return Ok(Way::Aggregated);
    }
    let path = format!(
        "/apis/{}/clusters/{member}/proxy/%61pi",
        Way::OfClusters.group_version()
    );
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| CliError::new(Kind::Internal, error))?;
    match client.request::<serde_json::Value>(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let message =
                "this hub leads nobody into members: its API server serves no proxy.towline.dev";
            Err(CliError::message(Kind::Unmet, message)
                .hint("Run `towline-hub run` with --access-bind-address; see docs/access.md."))
        }
        // Whatever it says of the member, it has a way there.
        _ => Ok(Way::OfClusters),
    }
}

/// Where a member's API begins on the hub.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) url: String,
    /// Whom the hub's certificate names, where the kubeconfig says so.
    pub(super) tls_server_name: Option<String>,
}

/// The address of a member, by the kubeconfig that reaches its hub.
pub(super) async fn server(
    connect: &ConnectArgs,
    member: &ClusterName,
) -> Result<Server, CliError> {
    let source = read(connect)?;
    let (client, _) = connect.connect("cli kubectl").await?;
    clusters::known(&client, std::slice::from_ref(member)).await?;
    let way = way(&client, member.as_str()).await?;
    reached(&client, way, member).await?;
    let server = contexts::server(&source, way, member.as_str());
    server.map_err(|error| CliError::new(Kind::Config, error))
}

/// An error where the hub has no way to a member, which kubectl would tell several times, and not of which it is.
async fn reached(client: &Client, way: Way, member: &ClusterName) -> Result<(), CliError> {
    let path = format!(
        "/apis/{}/clusters/{member}/proxy/version",
        way.group_version()
    );
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| CliError::new(Kind::Internal, error))?;
    match client.request::<serde_json::Value>(request).await {
        Err(error) if is_unreached(&error) => {
            let attempt = format!("failed to reach cluster {member}");
            Err(CliError::api(attempt, error)
                .hint(format!("`towline check {member}` walks to it.")))
        }
        // Whatever else it says it says to kubectl too.
        _ => Ok(()),
    }
}

/// Whether the hub, and not the member, says that a request does not come through.
fn is_unreached(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 503)
}

/// Refuses to write over a kubeconfig by which the hub is reached.
fn spare(path: &Path, read: &[PathBuf]) -> Result<(), CliError> {
    let same = |one: &PathBuf| {
        let (one, path) = (one.canonicalize(), path.canonicalize());
        matches!((one, path), (Ok(one), Ok(path)) if one == path)
    };
    if !read.iter().any(same) {
        return Ok(());
    }
    let message = format!(
        "{} is the kubeconfig by which the hub is reached, and would be written over",
        path.display()
    );
    Err(CliError::message(Kind::Usage, message).hint("Name another file by -o FILE."))
}

/// The kubeconfig by which the hub is reached, with the files that it names found from anywhere.
fn read(connect: &ConnectArgs) -> Result<Source, CliError> {
    let hint = |error: anyhow::Error| {
        CliError::new(Kind::Config, error).hint("Name one of the hub by --kubeconfig FILE.")
    };
    let found = read_kubeconfig(connect.kubeconfig.as_deref());
    let found = found.map_err(|error| hint(error.into()))?;
    let file = found.ok_or_else(|| hint(anyhow!("there is no kubeconfig")))?;
    let context = connect.context.as_deref();
    Source::of(&file, context).map_err(|error| CliError::new(Kind::Config, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_hubs_own_kubeconfig_is_not_written_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let hub = dir.path().join("hub");
        let link = dir.path().join("link");
        fs::write(&hub, "").expect("written");
        std::os::unix::fs::symlink(&hub, &link).expect("linked");
        let read = [dir.path().join("gone"), hub.clone()];
        for path in [&hub, &link, &dir.path().join(".").join("hub")] {
            let error = spare(path, &read).expect_err("the same file");
            assert_eq!(error.kind, Kind::Usage, "{}", path.display());
        }
        for path in ["gone", "other"] {
            assert!(spare(&dir.path().join(path), &read).is_ok(), "{path}");
        }
    }

    #[test]
    fn only_what_the_hub_cannot_reach_is_told_before_kubectl_runs() {
        for (code, unreached) in [(503, true), (403, false), (404, false), (502, false)] {
            let status = kube::core::Status::failure("no", "Any").with_code(code);
            let error = kube::Error::Api(Box::new(status));
            assert_eq!(is_unreached(&error), unreached, "{code}");
        }
    }
}
