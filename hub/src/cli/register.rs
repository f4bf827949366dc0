//! `towline register`: installs the agent in a member, hands it its token, and waits until it is Ready.
//!
//! What is installed are the files of `manifests/agent`, with what the flags change. Run again it
//! changes or upgrades the installation; what no flag names stays as it is installed.

mod allow;
mod apply;
mod beside;
mod bootstrap;
mod hub;
mod list;
mod objects;
mod proxy;
mod reading;
mod settings;
mod wait;

use super::{CliError, ConnectArgs, Kind, Output};
use apply::Member;
use bootstrap::BootstrapArgs;
use common::duration;
use kube::Client;
use objects::render;
use settings::{Installed, Settings, SettingsArgs};
use std::time::Duration;

pub(super) use beside::Beside;
pub(super) use hub::mark_of as mark_of_hub;
pub(super) use settings::RightsArgs;

/// Arguments of `towline register`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    bootstrap: BootstrapArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Print the objects as YAML, the token among them, and ask nothing of the member.
    #[arg(long)]
    print: bool,
    /// How long to wait until the agent is Ready; 0 not to wait.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    wait: Duration,
}

/// Makes everything of an installation but the agent itself, with the rights it has by default, and lets `users` of the
/// hub in; the caller runs the agent.
pub(crate) async fn lay_foundation(member: Client, users: &[&str]) -> Result<(), CliError> {
    let args = SettingsArgs::letting_in(users);
    let settings = Settings::resolve(args, &Installed::default())?;
    // An API server without admission policies is no error: the agent's own rule stands there.
    Member::new(member)
        .apply_foundation(&settings)
        .await
        .map(drop)
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let Args {
        bootstrap,
        connect,
        settings,
        print,
        wait,
    } = args;
    let bootstrap = bootstrap.read()?;
    if print {
        let settings = Settings::resolve(settings, &Installed::default())?;
        let mut objects = render(&settings)?;
        objects.extend(bootstrap.secret());
        return output.print(objects::yaml(&objects)?);
    }
    let (client, config) = connect.connect("cli register").await?;
    hub::refuse(&client, &config.cluster_url.to_string()).await?;
    let member = Member::new(client);
    let installed = member.installed().await?;
    if !installed.exists && bootstrap.is_empty() {
        let message = "there is no agent in this cluster, and no token to register one with";
        return Err(CliError::message(Kind::Usage, message)
            .hint("Make one on the hub by `towline token create --print-register-command`."));
    }
    let mut settings = Settings::resolve(settings, &installed)?;
    if settings.image_kept {
        output.note(format!(
            "image {} is kept; change it by --image",
            settings.image
        ));
    }
    if settings.proxy.lets_nobody_in() {
        output.note("no user of the hub is let in yet: name who is, by --proxy-user");
    }
    member.constrain(&mut settings.proxy, output).await?;
    let before = member.status().await?;
    settings.tell_guards(member.apply_foundation(&settings).await?, output);
    let handed = member.hand_over(&bootstrap).await?;
    // Pods that start anew take the new bootstrap at once.
    settings.bootstrap_version = handed.or(settings.bootstrap_version);
    let applied = member.apply_deployment(&settings).await?;
    output.note(match (installed.exists, applied.changed) {
        (false, _) => "the agent is installed",
        (true, true) => "the agent's installation is changed",
        (true, false) => "the agent's installation is brought up to date",
    });
    if wait.is_zero() {
        return Ok(());
    }
    wait::must_run(settings.replicas)?;
    let awaited = wait::Awaited::new(applied.installation, before);
    let progress = output.progress("waiting for the agent");
    let name = wait::until_ready(&member, &awaited, wait, &progress).await?;
    drop(progress);
    output.print(format!("cluster {name} is Ready"))
}
