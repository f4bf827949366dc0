//! `towline-hub ca`: the hub's certificate authority, and its replacement in steps.
//!
//! Each step waits for the agents: one that has not read the next authority cannot verify the hub once it
//! signs, and one that has not renewed is refused once the old one is gone.

pub mod decide;

use super::beside::Beside;
use crate::apiserver::keys::authority::{Authorities, Step};
use crate::cli::{Format, Table};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::SecondsFormat;
use clap::{Args, Subcommand};
use common::discovery::{CLUSTER_INFO, CaPin, PUBLIC_NAMESPACE, Published};
use common::time::SharedClock;
use decide::{Authority, Cluster, Follower, Stage, followers, laggards};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// What is said before the rest when nobody has taken over what was written.
pub(super) const NOT_YET: &str =
    "Written, and not in force yet: no hub runs on this directory. With its next start this holds:";

/// What `towline-hub ca` does.
#[derive(Debug, Subcommand)]
pub enum Ca {
    /// Take the next of the three steps that replace the certificate authority
    Rotate(RotateArgs),
    /// Show the authorities, how far a rotation is, and which agents have followed
    Status(StatusArgs),
}

/// Flags of `towline-hub ca rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// Take the step although agents have not followed, who are then shut out until they are registered anew
    #[arg(long)]
    force: bool,
}

/// Flags of `towline-hub ca status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The hub's data directory
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// How it is shown
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What `towline-hub ca status` shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    stage: Stage,
    /// Whether a hub runs on the directory.
    hub_runs: bool,
    authorities: Vec<Authority>,
    agents: Vec<Follower>,
}

/// Takes a step, and says what it did and what comes next, once the hub that runs has taken it over.
pub async fn rotate(args: &RotateArgs, clock: &SharedClock) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    // Until the hub that runs has taken it over: another run then judges what this one has done.
    let _alone = beside.lock_keys()?;
    let authorities = Authorities::read(&beside.keys())?;
    let runs = beside.is_served()?;
    let step = authorities.next_step();
    let stage = before(step);
    if stage != Stage::Settled && !args.force {
        let agents = followers(stage, &described(&authorities)?, &clusters(&beside).await?);
        if let Some(behind) = laggards(&agents) {
            bail!(
                "{behind}\nNothing was changed. Agents follow within about ten minutes; `towline-hub ca status` \
                 shows how far they are. For those that will never be back pass --force; each then needs a new token"
            );
        }
    }
    Authorities::advance(&beside.keys(), step, clock.now())?;
    let trusted = Authorities::read(&beside.keys())?.trusted().to_vec();
    if runs {
        let kubeconfig = beside.kubeconfig();
        let taken = |client| has_taken(client, kubeconfig.clone(), trusted.clone());
        beside.until("this step", taken).await?;
    }
    let said = text(step);
    Ok(match runs {
        true => said.to_owned(),
        false => format!("{NOT_YET}\n{said}"),
    })
}

fn text(step: Step) -> &'static str {
    match step {
        Step::Introduced => {
            "Step 1 of 3: a new certificate authority is trusted and published in cluster-info beside the old \
             one, which still signs. Run this again once every agent trusts both (`towline-hub ca status`)."
        }
        Step::Promoted => {
            "Step 2 of 3: the new certificate authority signs; the old one is still trusted. Make other \
             kubeconfigs anew. Run this again once every agent has renewed its certificate (`towline-hub ca status`)."
        }
        Step::Finished => {
            "Step 3 of 3: the old certificate authority is no longer trusted. The rotation is complete."
        }
    }
}

/// Shows how things are.
pub async fn status(args: &StatusArgs) -> anyhow::Result<String> {
    let beside = Beside::open(&args.data_dir)?;
    let authorities = Authorities::read(&beside.keys())?;
    let stage = before(authorities.next_step());
    let described = described(&authorities)?;
    let status = Status {
        stage,
        hub_runs: beside.is_served()?,
        agents: followers(stage, &described, &clusters(&beside).await?),
        authorities: described,
    };
    Ok(match args.output {
        Format::Table => table(&status),
        Format::Name => {
            let names = status.authorities.iter().map(|it| it.name.as_str());
            names.collect::<Vec<_>>().join("\n")
        }
        Format::Json => serde_json::to_string_pretty(&status)?,
        Format::Yaml => serde_yaml::to_string(&status)?,
    })
}

fn table(status: &Status) -> String {
    let mut authorities = Table::new(["AUTHORITY", "SIGNS", "ENDS", "PIN"]);
    for one in &status.authorities {
        let signs = if one.signs { "yes" } else { "no" };
        authorities.row([
            one.name.clone(),
            signs.to_owned(),
            one.not_after.clone(),
            one.pin.clone(),
        ]);
    }
    let mut agents = Table::new(["CLUSTER", "READY", "FOLLOWED", "MISSING"]);
    for one in &status.agents {
        let followed = if one.followed { "yes" } else { "no" };
        agents.row([
            one.cluster.clone(),
            one.ready.clone(),
            followed.to_owned(),
            one.missing.clone().unwrap_or_else(|| "<none>".to_owned()),
        ]);
    }
    let hub = if status.hub_runs {
        "the hub runs"
    } else {
        "no hub runs on this directory"
    };
    let stage = status.stage.text();
    let mut text = format!("{stage}; {hub}\n\n{authorities}");
    if !status.agents.is_empty() {
        text.push_str(&format!("\n{agents}"));
    }
    text.trim_end().to_owned()
}

async fn clusters(beside: &Beside) -> anyhow::Result<Vec<Cluster>> {
    let listed = beside.list("cluster.karmada.io", "v1alpha1", "clusters");
    listed
        .await
        .context("failed to learn which agents have followed")
}

/// How far a replacement is whose next step is this.
fn before(step: Step) -> Stage {
    match step {
        Step::Introduced => Stage::Settled,
        Step::Promoted => Stage::Introduced,
        Step::Finished => Stage::Promoted,
    }
}

fn described(authorities: &Authorities) -> anyhow::Result<Vec<Authority>> {
    let one = |(place, der): (usize, &CertificateDer<'static>)| -> anyhow::Result<Authority> {
        let (_, ends) = common::tls::validity(der)?;
        Ok(Authority {
            // It has signed itself.
            name: common::tls::issuer(der)?,
            pin: CaPin::of_certificate(der)?.to_string(),
            signs: place == 0,
            not_after: ends.to_rfc3339_opts(SecondsFormat::Secs, true),
        })
    };
    authorities.trusted().iter().enumerate().map(one).collect()
}

/// Whether the hub publishes these authorities, and has given them to its administrator.
async fn has_taken(
    client: Client,
    kubeconfig: PathBuf,
    trusted: Vec<CertificateDer<'static>>,
) -> anyhow::Result<bool> {
    let maps: Api<ConfigMap> = Api::namespaced(client, PUBLIC_NAMESPACE);
    let map = maps.get(CLUSTER_INFO).await?;
    let published = Published::read(&map).map_err(anyhow::Error::msg)?;
    let kubeconfig: Value = serde_yaml::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    let authority = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let given = BASE64_STANDARD.decode(authority.as_str().unwrap_or_default())?;
    Ok(published.authorities == trusted && common::tls::certificates(&given)? == trusted)
}
