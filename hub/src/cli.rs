//! The operator's command line `towline`: parses, runs one verb, prints what went wrong.
//!
//! One file per verb, each with an `Args` and a `run`. A verb returns [`CliError`], whose kind decides
//! the exit code; results go to stdout, progress and errors to stderr.

mod access;
mod apply;
#[cfg(test)]
pub(crate) mod approved;
mod check;
mod clusters;
mod complete;
mod cordon;
mod demo;
mod error;
mod events;
mod files;
mod get;
mod init;
mod interpret;
mod join;
mod kubeconfig;
mod kubectl;
mod leases;
mod orphans;
mod output;
mod plan;
mod promote;
#[cfg(test)]
mod refusals;
pub(crate) mod register;
mod status;
mod taint;
mod token;
mod unjoin;
mod unregister;
mod why;
mod work;

pub(crate) use error::advice;
pub use error::{CliError, Kind};
pub use output::{Colours, Done, Format, Named, Output, Progress, Table};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use common::proxy::ProxyChoice;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs a fleet of Kubernetes clusters from one small control plane.
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    propagate_version = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Prepare an API server to be a hub, or bring its preparation up to date.
    Init(init::Args),
    /// Make, list and delete the tokens with which agents register.
    Token(token::Args),
    /// Install the agent in a member cluster and register it with a hub.
    Register(register::Args),
    /// Remove a member cluster from the hub, and the agent from the member.
    Unregister(unregister::Args),
    /// Make a cluster that the hub can reach a member, without an agent of its own.
    Join(Box<join::Args>),
    /// Remove a cluster that was joined from the hub, and everything of Towline from the cluster.
    Unjoin(unjoin::Args),
    /// Place nothing new in clusters; what is there stays.
    Cordon(cordon::Args),
    /// Let policies place in clusters again.
    Uncordon(cordon::Args),
    /// Put taints on clusters, and take them off.
    Taint(taint::Args),
    /// Show what a change would do, before it is made: which clusters gain, lose and change what.
    Plan(plan::Args),
    /// Put objects on the hub and say which clusters they go to.
    Apply(apply::Args),
    /// Make a template of an object that a member has, which goes on running there.
    Promote(promote::Args),
    /// Show the whole fleet on one screen, the worst first.
    Status(status::Args),
    /// Show templates, bindings and Works with what members say, and why not.
    Get(get::Args),
    /// Find out why something is not where it should be, and what mends it.
    Why(why::Args),
    /// Show what the hub's controllers say of templates and clusters.
    Events(events::Args),
    /// Have objects applied in single members, without a policy.
    Work(work::Args),
    /// Try the scripts of a ResourceInterpreterCustomization on objects, with no cluster.
    Interpret(interpret::Args),
    /// Give users and groups of the hub rights in members, take them back, and show them.
    Access(access::Args),
    /// Make a kubeconfig whose clusters are members, reached through the hub as oneself.
    Kubeconfig(kubeconfig::Args),
    /// Show the log of a pod of a member, as `kubectl logs`.
    Logs(kubectl::Args),
    /// Run a command in a container of a member, as `kubectl exec`.
    Exec(kubectl::Args),
    /// Attach to a process in a container of a member, as `kubectl attach`.
    Attach(kubectl::Args),
    /// Copy files to and from containers of a member, as `kubectl cp`.
    Cp(kubectl::Args),
    /// Forward local ports to a pod of a member, as `kubectl port-forward`.
    PortForward(kubectl::Args),
    /// Show what nodes and pods of a member use, as `kubectl top`.
    Top(kubectl::Args),
    /// Show an object of a member in detail, as `kubectl describe`.
    Describe(kubectl::Args),
    /// Run any command of kubectl at a member, through the hub.
    #[command(after_help = "Example:
  towline kubectl -C m1 -n shop rollout status deployment/web")]
    Kubectl(kubectl::Args),
    /// See what Works left behind in a member without having been deleted, and settle it.
    Orphans(orphans::Args),
    /// Walk from this machine to a hub or a member, and name the first thing that is wrong.
    Check(check::Args),
    /// Show a whole fleet on this machine: a hub, three members, their agents, every step checked.
    Demo(demo::Args),
    /// What makes Deployments ready on an API server without nodes.
    #[command(hide = true)]
    DemoWorkloads(ConnectArgs),
    /// An agent of the demo.
    #[command(hide = true)]
    DemoAgent(Box<demo::AgentArgs>),
    /// Print what a shell completes.
    Completion(complete::CompletionArgs),
    /// Print the manual page, or write those of all verbs.
    Man(complete::ManArgs),
    /// Print the version.
    Version,
}

/// How a verb reaches the cluster it works on.
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectArgs {
    /// Kubeconfig file; default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use; default: its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// What stands before the names of these flags, where they are those of another cluster.
    #[arg(skip)]
    pub before: &'static str,
}

impl ConnectArgs {
    /// A client of the cluster, with the configuration it was made of; `purpose` names it in the
    /// server's logs.
    pub async fn connect(
        &self,
        purpose: &'static str,
    ) -> Result<(kube::Client, kube::Config), CliError> {
        self.connect_by(&common::client::ClientOptions::new(purpose))
            .await
    }

    /// The same, by these options.
    async fn connect_by(
        &self,
        options: &common::client::ClientOptions,
    ) -> Result<(kube::Client, kube::Config), CliError> {
        self.connect_through(options, &ProxyChoice::direct()).await
    }

    /// The same; the proxy that the kubeconfig names is told the headers of `proxy`.
    async fn connect_through(
        &self,
        options: &common::client::ClientOptions,
        proxy: &ProxyChoice,
    ) -> Result<(kube::Client, kube::Config), CliError> {
        common::client::kubeconfig_client_through(
            self.kubeconfig.as_deref(),
            self.context.as_deref(),
            options,
            proxy,
            &common::env::Env::system(),
        )
        .await
        .map_err(|error| {
            let before = self.before;
            let hint = match &error {
                common::client::Error::Context { .. } => {
                    format!("Name one of them by --{before}context NAME.")
                }
                _ => format!("Name a kubeconfig by --{before}kubeconfig FILE."),
            };
            CliError::new(Kind::Config, error).hint(hint)
        })
    }
}

/// The command line.
fn command() -> clap::Command {
    Cli::command()
}

/// The command line as kubectl calls it, when it does: `kubectl towline` runs a program of the name kubectl-towline.
fn named(called: Option<&std::ffi::OsStr>) -> clap::Command {
    let file = called.and_then(|it| std::path::Path::new(it).file_stem());
    match file.and_then(|it| it.to_str()) {
        Some("kubectl-towline") => command().bin_name("kubectl towline"),
        _ => command(),
    }
}

/// Parses the arguments of this process, runs the verb and returns the process's exit code.
pub fn main() -> ExitCode {
    let called = std::env::args_os().next();
    let parsed = named(called.as_deref()).try_get_matches();
    let cli = match parsed.and_then(|it| Cli::from_arg_matches(&it)) {
        Ok(cli) => cli,
        // Of a plan the code 2 says that something changes.
        Err(error)
            if error.use_stderr() && std::env::args_os().nth(1).is_some_and(|it| it == "plan") =>
        {
            let _ = error.print();
            return plan::FAILED.into();
        }
        Err(error) => error.exit(),
    };
    common::tls::install_provider();
    let output = Output::stdio();
    // Only the demo has work for more than one thread.
    let mut runtime = match cli.verb {
        Verb::Demo(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output.fail(&CliError::new(Kind::Internal, error)),
    };
    match runtime.block_on(run(cli.verb, &output)) {
        Ok(code) => code,
        Err(error) => output.fail(&error),
    }
}

async fn run(verb: Verb, output: &Output) -> Result<ExitCode, CliError> {
    let done = match verb {
        Verb::Init(args) => init::run(args, output).await,
        Verb::Token(args) => token::run(args, output).await,
        Verb::Register(args) => register::run(args, output).await,
        Verb::Unregister(args) => unregister::run(args, output).await,
        Verb::Join(args) => join::run(*args, output).await,
        Verb::Unjoin(args) => unjoin::run(args, output).await,
        Verb::Cordon(args) => cordon::cordon(args, output).await,
        Verb::Uncordon(args) => cordon::uncordon(args, output).await,
        Verb::Taint(args) => taint::run(args, output).await,
        Verb::Plan(args) => return Ok(plan::run(args, output).await),
        Verb::Apply(args) => apply::run(args, output).await,
        Verb::Promote(args) => promote::run(args, output).await,
        Verb::Status(args) => status::run(args, output).await,
        Verb::Get(args) => get::run(args, output).await,
        Verb::Why(args) => why::run(args, output).await,
        Verb::Events(args) => events::run(args, output).await,
        Verb::Work(args) => work::run(args, output).await,
        Verb::Interpret(args) => interpret::run(args, output).await,
        Verb::Access(args) => access::run(args, output).await,
        Verb::Kubeconfig(args) => kubeconfig::run(args, output).await,
        Verb::Logs(args) => kubectl::run(args, Some("logs")).await.map(never),
        Verb::Exec(args) => kubectl::run(args, Some("exec")).await.map(never),
        Verb::Attach(args) => kubectl::run(args, Some("attach")).await.map(never),
        Verb::Cp(args) => kubectl::run(args, Some("cp")).await.map(never),
        Verb::PortForward(args) => kubectl::run(args, Some("port-forward")).await.map(never),
        Verb::Top(args) => kubectl::run(args, Some("top")).await.map(never),
        Verb::Describe(args) => kubectl::run(args, Some("describe")).await.map(never),
        Verb::Kubectl(args) => kubectl::run(args, None).await.map(never),
        Verb::Orphans(args) => orphans::run(args, output).await,
        Verb::Check(args) => check::run(args, output).await,
        Verb::Demo(args) => demo::run(args, output).await,
        Verb::DemoWorkloads(args) => demo::workloads(&args).await,
        Verb::DemoAgent(args) => demo::agent(*args).await,
        Verb::Completion(args) => complete::completion(&args, command(), output),
        Verb::Man(args) => complete::man(&args, command(), output),
        Verb::Version => output.print(concat!("towline ", env!("CARGO_PKG_VERSION"))),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What became another program does not come back.
fn never(never: std::convert::Infallible) {
    match never {}
}

#[cfg(test)]
mod tests {
    use super::{Cli, named};
    use clap::CommandFactory as _;
    use std::ffi::OsStr;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn called_by_kubectl_it_names_itself_so() {
        for (called, name) in [
            ("/usr/local/bin/kubectl-towline", "kubectl towline"),
            ("towline", "towline"),
        ] {
            let usage = named(Some(OsStr::new(called)))
                .try_get_matches_from([called, "get"])
                .expect_err("refused")
                .to_string();
            assert!(usage.contains(&format!("Usage: {name} get")), "{usage}");
        }
    }
}
