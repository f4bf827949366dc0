//! `towline init`: makes an API server a hub, says what it changed, and tries what registration needs.
//!
//! Order: refuse what must not be there, guard, prove the guards, give rights, probe.

mod report;

use super::{CliError, ConnectArgs, Format, Kind, Output};
use crate::aggregated::{self, APISERVICE};
use crate::approver::pem;
use crate::install::cluster_info::{self, ClusterInfo};
use crate::install::object::{self, Desired, MANAGED_BY_VALUE, ObjectKey};
use crate::install::plan::{self, Action, Step};
use crate::install::probe::{self, Reach};
use crate::install::{self, Installation, MINIMUM_MINOR, crds, foreign, minor_version, proof};
use common::client::{Credentials, HostPort, HubTarget};
use common::labels::MANAGED_BY;
use common::names::SYSTEM_NAMESPACE;
use common::proxy::ProxyChoice;
use common::time::SystemClock;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::{Client, Config, ResourceExt as _};
use std::time::Duration;

/// How long the API server may take to serve new kinds and to enforce new policies.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `towline init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Address by which agents reach the hub; repeat for several, tried in this order. Default: the
    /// server of the kubeconfig.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<HostPort>,
    /// Say what would be changed, and change nothing.
    #[arg(long, conflicts_with = "print")]
    dry_run: bool,
    /// Print the objects as YAML, for GitOps, and ask nothing of the hub. cluster-info is among them
    /// only with --advertise.
    #[arg(long)]
    print: bool,
    /// Take away rights of another installation that would undo Towline's.
    #[arg(long)]
    adopt: bool,
    /// How the changes are shown.
    #[arg(short, long, value_enum, default_value_t, conflicts_with = "print")]
    output: Format,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    if args.print && args.advertise.is_empty() {
        return output.print(object::yaml(&Installation::default().desired()));
    }
    let (client, config) = args.connect.connect("cli init").await?;
    let target = target(&config)?;
    if args.print {
        let cluster_info = Some(cluster_info_of(&args.advertise, &target));
        let installation = Installation {
            cluster_info,
            built_in: false,
        };
        return output.print(object::yaml(&installation.desired()));
    }
    check_version(&client).await?;
    let offences = foreign::find(&client).await.map_err(|error| {
        CliError::api("failed to look for rights of other installations", error)
    })?;
    if !offences.is_empty() && !args.adopt {
        return Err(report::refuse(&offences));
    }
    let (mut installation, kept) = installation(&client, &args.advertise, &target, output).await?;
    installation.built_in = is_built_in(&client).await?;

    let mut steps: Vec<Step> = offences.iter().map(foreign::Offence::step).collect();
    steps.extend(kept);
    steps.extend(abandoned(&client, args.dry_run).await?);
    if args.dry_run {
        for desired in installation.desired() {
            steps.push(
                plan::examine(&client, &desired)
                    .await
                    .map_err(step_failed)?,
            );
        }
        return report::steps(output, args.output, &steps, report::Mode::DryRun);
    }
    for offence in &offences {
        foreign::remove(&client, offence).await.map_err(|error| {
            CliError::api(format!("failed to change {}", offence.binding.key), error)
        })?;
    }
    let result = install(&client, &installation, &mut steps, output).await;
    // What was changed is said also when the rest failed.
    let mode = match result {
        Ok(()) => report::Mode::Done,
        Err(_) => report::Mode::BrokenOff,
    };
    report::steps(output, args.output, &steps, mode)?;
    result?;

    let progress = output.progress("Trying what registration needs");
    let findings = probe::run(&Reach { client, target }, &SystemClock).await;
    drop(progress);
    report::findings(output, &findings)
}

async fn install(
    client: &Client,
    installation: &Installation,
    steps: &mut Vec<Step>,
    output: &Output,
) -> Result<(), CliError> {
    let progress = output.progress("Installing kinds and policies");
    enforce(client, &installation.guards(), steps).await?;
    progress.step("Waiting until the kinds are served");
    let missing = crds::await_established(client, PATIENCE)
        .await
        .map_err(|error| CliError::api("failed to read the kinds", error))?;
    if !missing.is_empty() {
        let names = missing.join(", ");
        return Err(CliError::message(
            Kind::Unmet,
            format!("not served within {PATIENCE:?}: {names}"),
        )
        .hint(format!("See `kubectl describe crd {}`.", missing[0])));
    }
    progress.step("Waiting until the policies are in force");
    proof::await_proof(client, PATIENCE)
        .await
        .map_err(|error| {
            CliError::new(Kind::Unmet, error).hint(
                "No rights were given. Check that nothing removes the policies named towline-*.",
            )
        })?;
    progress.step("Giving rights");
    enforce(client, &installation.grants(), steps).await
}

async fn enforce(
    client: &Client,
    wanted: &[Desired],
    steps: &mut Vec<Step>,
) -> Result<(), CliError> {
    for desired in wanted {
        let enforced = plan::enforce(client, desired).await;
        steps.push(enforced.map_err(step_failed)?.step);
    }
    Ok(())
}

fn step_failed(error: plan::Error) -> CliError {
    let attempt = format!("failed to {} {}", error.verb, error.key);
    CliError::api(attempt, *error.source)
}

async fn check_version(client: &Client) -> Result<(), CliError> {
    let version = client
        .apiserver_version()
        .await
        .map_err(|error| CliError::api("failed to reach the hub's API server", error))?;
    match minor_version(&version.major, &version.minor) {
        Some(minor) if minor < MINIMUM_MINOR => Err(CliError::message(
            Kind::Unmet,
            format!(
                "the hub runs Kubernetes {}, and must run 1.{MINIMUM_MINOR} or newer",
                version.git_version
            ),
        )
        .hint("Upgrade its control plane, or choose another cluster as the hub. Members may be older.")),
        // A version that cannot be read is not held against it: the probes tell what works.
        _ => Ok(()),
    }
}

/// Removes the APIService of a hub that was cut off: for as long as nobody answers for it, no namespace is deleted.
async fn abandoned(client: &Client, dry_run: bool) -> Result<Option<Step>, CliError> {
    let removed = aggregated::withdraw_unavailable(client, dry_run).await;
    let removed =
        removed.map_err(|error| CliError::api(format!("failed to remove {APISERVICE}"), error))?;
    Ok(removed.then(|| Step {
        key: ObjectKey {
            kind: "APIService".to_owned(),
            namespace: None,
            name: APISERVICE.to_owned(),
        },
        action: Action::Remove(vec!["nobody answers for it".to_owned()]),
    }))
}

/// Whether this hub was made by `towline-hub serve`, which installs most of it by itself.
async fn is_built_in(client: &Client) -> Result<bool, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let marker = maps
        .get_opt(install::MARKER)
        .await
        .map_err(|error| CliError::api("failed to read what was installed before", error))?;
    Ok(marker.as_ref().is_some_and(install::is_built_in))
}

/// What to install, and the step that keeps a cluster-info that is not ours.
async fn installation(
    client: &Client,
    advertise: &[HostPort],
    target: &HubTarget,
    output: &Output,
) -> Result<(Installation, Option<Step>), CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), cluster_info::NAMESPACE);
    let live = maps
        .get_opt(cluster_info::NAME)
        .await
        .map_err(|error| CliError::api("failed to read cluster-info", error))?;
    let Some(live) = live else {
        if advertise.is_empty() {
            report::warn_of_loopback(output, target);
        }
        let cluster_info = Some(cluster_info_of(advertise, target));
        let installation = Installation {
            cluster_info,
            built_in: false,
        };
        return Ok((installation, None));
    };
    let invalid = |error| {
        CliError::new(Kind::Unmet, error).hint(
            "kube-public/cluster-info exists and is used as it is; repair it, or delete it and run \
             `towline init` again.",
        )
    };
    let text = live
        .data
        .as_ref()
        .and_then(|data| data.get(cluster_info::KUBECONFIG));
    let text = text.map(String::as_str).unwrap_or_default();
    let stated = ClusterInfo::parse(text).map_err(invalid)?;
    let ours = live
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|by| by == MANAGED_BY_VALUE);
    if ours {
        let cluster_info = Some(match advertise {
            [] => stated,
            addresses => cluster_info_of(addresses, target),
        });
        let installation = Installation {
            cluster_info,
            built_in: false,
        };
        return Ok((installation, None));
    }
    if !advertise.is_empty() {
        output.note(format!(
            "note: cluster-info exists and is left as it is; agents will use {}, and --advertise is \
             not used",
            stated.servers.join(", "),
        ));
    }
    let key = ObjectKey {
        kind: "ConfigMap".to_owned(),
        namespace: Some(cluster_info::NAMESPACE.to_owned()),
        name: cluster_info::NAME.to_owned(),
    };
    Ok((
        Installation::default(),
        Some(Step {
            key,
            action: Action::Keep,
        }),
    ))
}

fn cluster_info_of(advertise: &[HostPort], target: &HubTarget) -> ClusterInfo {
    let servers = if advertise.is_empty() {
        &target.servers
    } else {
        advertise
    };
    ClusterInfo {
        servers: servers.iter().map(HostPort::url).collect(),
        ca_pem: target.ca_pem.clone(),
    }
}

/// Address, CA and proxy of a kubeconfig, without its credentials.
fn target(config: &Config) -> Result<HubTarget, CliError> {
    let url = &config.cluster_url;
    let server = HostPort::new(
        url.host().unwrap_or_default(),
        url.port_u16().unwrap_or(443),
    );
    let proxy = match &config.proxy_url {
        Some(url) => ProxyChoice::explicit(&url.to_string())
            .map_err(|error| CliError::new(Kind::Config, error))?,
        None => ProxyChoice::direct(),
    };
    let ca_pem = match &config.root_cert_file {
        Some(path) => std::fs::read(path).map_err(|error| CliError::new(Kind::Config, error))?,
        None => {
            let certificates = config.root_cert.clone().unwrap_or_default();
            certificates
                .iter()
                .map(|der| pem::encode(pem::CERTIFICATE, der))
                .collect::<String>()
                .into_bytes()
        }
    };
    Ok(HubTarget {
        servers: vec![server],
        ca_pem,
        proxy,
        credentials: Credentials::Anonymous,
    })
}
