//! What `e2e/lab` can do.

mod access;
mod bench;
mod demo;
mod figures;
mod fleet;
mod keeper;
mod latency;
mod propagation;
mod push;
mod relay;
mod status;
mod up;
mod vitals;

use anyhow::Result;
use clap::Parser;

/// Real control planes on this machine, with Towline on them.
#[derive(Debug, Parser)]
#[command(name = "e2e/lab", max_term_width = 100)]
pub(crate) enum Command {
    /// Build the programs that a lab runs (done by `up` and `demo` as well)
    Build(up::LabArgs),
    /// Start a lab and leave it running
    Up(up::LabArgs),
    /// End the lab and everything it started
    Down,
    /// Say what runs and where its kubeconfigs are
    Status,
    /// Show the whole loop on two members, told in plain words
    Demo(up::LabArgs),
    /// Measure the delivery of Works on a lab of its own; takes minutes, and a quiet machine
    Bench(bench::BenchArgs),
    /// Measure what many agents cost a hub; takes minutes, and a quiet machine
    Fleet(fleet::FleetArgs),
    /// Measure the built-in hub beside kube-apiserver and etcd; takes minutes, and a quiet machine
    Figures(figures::FiguresArgs),
    /// Measure how fast policies become Works, and what a large fleet costs; takes minutes, and a quiet machine
    Propagation(propagation::PropagationArgs),
    /// Measure the way into members through the hub; takes minutes, and a quiet machine
    Access(access::AccessArgs),
    /// Measure what the process beside a hub takes for each cluster that was joined
    Push(push::PushArgs),
    /// Hold a lab in the foreground until told to end; `up` runs it in the background
    #[command(hide = true)]
    Keep(up::LabArgs),
    /// Lead connections from one address to another (`host:port` or `unix:/path`)
    #[command(hide = true)]
    Relay {
        /// Where to listen
        listen: String,
        /// Where to lead to
        to: String,
    },
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

impl Command {
    /// Does it.
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Build(args) => args.build().await,
            Self::Up(args) => up::up(&args).await,
            Self::Down => status::down().await,
            Self::Status => status::status(),
            Self::Demo(args) => demo::demo(&args).await,
            Self::Bench(args) => bench::bench(&args).await,
            Self::Fleet(args) => fleet::fleet(&args).await,
            Self::Figures(args) => figures::figures(&args).await,
            Self::Propagation(args) => propagation::propagation(&args).await,
            Self::Access(args) => access::access(&args).await,
            Self::Push(args) => push::push(&args).await,
            Self::Keep(args) => keeper::keep(&args).await,
            Self::Relay { listen, to } => relay::relay(&listen, &to).await,
        }
    }
}
