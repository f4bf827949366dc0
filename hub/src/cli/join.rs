//! `towline join`: makes a cluster that the hub can reach a member of it, in mode Push.
//!
//! Nothing is installed in the member but a ServiceAccount and its rights, those that `towline register` gives an agent.
//! Its token goes into a Secret of the hub, with the place that it may be sent to; the agent runs beside the hub
//! (`towline-agent push`), and registers as any other does.

mod account;
mod cluster;

use super::register::{Beside, RightsArgs};
use super::token::{PlacementArgs, for_cluster};
use super::{CliError, ConnectArgs, Kind, Output};
use cluster::{Hub, Wanted};
use common::client::ClientOptions;
use common::duration;
use common::joined::Joined;
use common::names::ClusterName;
use common::proxy::ProxyChoice;
use common::secret::Secret;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the agent may take to use its bootstrap token: until somebody starts the process that serves it.
const TOKEN_LIFE: chrono::Duration = chrono::Duration::hours(24);

/// Arguments of `towline join`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's name on the hub.
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Kubeconfig of the cluster, of somebody who may create roles there. It is used by this command alone; the address,
    /// authorities and proxy in it are those by which the hub will reach the cluster.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: PathBuf,
    /// Context of --cluster-kubeconfig; default: its current one.
    #[arg(long, value_name = "NAME")]
    cluster_context: Option<String>,
    /// File with headers for the proxy of that kubeconfig, one a line as NAME: VALUE. They stay on the hub, in the
    /// cluster's Secret alone.
    #[arg(long, value_name = "FILE")]
    proxy_header_file: Option<PathBuf>,
    /// How long to wait until the cluster is Ready; 0 not to wait.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    wait: Duration,
    #[command(flatten)]
    rights: RightsArgs,
    #[command(flatten)]
    placement: PlacementArgs,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let Args {
        cluster,
        connect,
        cluster_kubeconfig,
        cluster_context,
        proxy_header_file,
        wait,
        rights,
        placement,
    } = args;
    let placement = placement.into_placement()?;
    let of_member = ConnectArgs {
        kubeconfig: Some(cluster_kubeconfig),
        context: cluster_context,
        before: "cluster-",
    };
    let headers = match &proxy_header_file {
        Some(file) => headers(file)?,
        None => BTreeMap::new(),
    };
    let proxy = ProxyChoice::direct().with_headers(&headers);
    let proxy = proxy.map_err(|error| CliError::new(Kind::Config, error))?;
    let (member, way) = of_member
        .connect_through(&ClientOptions::new("cli join"), &proxy)
        .await?;
    if way.proxy_url.is_none() && proxy_header_file.is_some() {
        let message =
            "--proxy-header-file is for a proxy, and the cluster's kubeconfig has no proxy-url";
        return Err(CliError::message(Kind::Usage, message));
    }
    let server = way.cluster_url.to_string().trim_end_matches('/').to_owned();
    let (client, _) = connect.connect("cli join").await?;
    let hub = Hub::new(client.clone(), cluster.clone());

    let authorities = authorities(&way)?;
    // Everything that can refuse is asked before anything is written.
    let id = id(&member, "the cluster to be joined").await?;
    if self::id(&client, "the hub").await? == id {
        let message = format!("{server} is the hub itself; nothing was changed");
        return Err(CliError::message(Kind::Denied, message)
            .hint("Name the cluster's own kubeconfig by --cluster-kubeconfig FILE."));
    }
    let found = hub.find(&id).await?;
    cluster::may_be_placed(&cluster, found.cluster.as_ref(), &placement)?;
    let mut beside = Beside::look(member.clone(), rights, found.joined.as_ref()).await?;

    beside.apply(output).await?;
    let account = account::token(&member).await?;
    if let Some(ends) = account.ends {
        output.note(format!(
            "the token that this cluster gave ends: run this command again before {ends}"
        ));
    }
    let joined = Joined {
        server,
        ca_pem: authorities,
        server_name: way.tls_server_name.clone(),
        token: account.token,
        proxy_headers: Secret::new(headers),
        proxy: way
            .proxy_url
            .as_ref()
            .map(|url| Secret::new(url.to_string())),
        allowed: beside.allowed(),
        mode: beside.mode(),
    };
    let wanted = Wanted {
        id,
        way: joined.way(),
        placement,
    };
    let uid = hub.ensure_cluster(found.cluster.as_ref(), &wanted).await?;
    let secret = hub.ensure_secret(&uid, &joined).await?;
    let given = for_cluster(&client, &cluster, TOKEN_LIFE).await?;
    beside.hand_over(&cluster, given).await?;
    // Now all is there that its agent needs.
    hub.announce(&secret).await?;
    output.note(match found.joined {
        Some(_) => "the cluster is joined anew",
        None => "the cluster is joined",
    });
    if wait.is_zero() {
        return Ok(());
    }
    let progress = output.progress(format!("waiting for cluster {cluster}"));
    hub.until_ready(&found.before, wait, &progress).await?;
    drop(progress);
    output.print(format!("cluster {cluster} is Ready"))
}

/// UID of a cluster's `kube-system`, which says which cluster it is.
pub(super) async fn id(cluster: &Client, called: &str) -> Result<String, CliError> {
    let namespaces: Api<Namespace> = Api::all(cluster.clone());
    let found = namespaces.get("kube-system").await;
    let attempt = format!("failed to get namespace kube-system of {called}");
    let found = found.map_err(|e| CliError::api(attempt, e))?;
    let missing = || CliError::message(Kind::Unmet, format!("kube-system of {called} has no UID"));
    found.metadata.uid.ok_or_else(missing)
}

/// The headers in a file.
fn headers(file: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let error = anyhow::Error::new(error);
        let message = format!("failed to read the headers from {}", file.display());
        CliError::new(Kind::Config, error.context(message))
    })?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let one = |line: &str| {
        // The line is not repeated: it may hold a password.
        let message = format!(
            "{} must have one header a line, as NAME: VALUE",
            file.display()
        );
        let pair = line.split_once(':');
        let (name, value) = pair.ok_or_else(|| CliError::message(Kind::Config, message))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines.map(one).collect()
}

/// The authorities of a kubeconfig as PEM; none for those of the machine.
fn authorities(way: &Config) -> Result<Option<String>, CliError> {
    if let Some(file) = &way.root_cert_file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let error = anyhow::Error::new(error);
            let message = format!("failed to read {}", file.display());
            CliError::new(Kind::Config, error.context(message))
        })?;
        return Ok(Some(text));
    }
    let encode = |der: &Vec<u8>| crate::approver::pem::encode("CERTIFICATE", der);
    let roots = way.root_cert.iter().flatten();
    let text: String = roots.map(encode).collect();
    Ok(Some(text).filter(|text| !text.is_empty()))
}
