//! How an agent is set up, which its flags say.
//!
//! A flag that Karmada's agent has too is named as there and means the same.

mod flags;

pub use flags::{PushArgs, RunArgs};

use common::joined::Joined;
use common::names::{ClusterName, InvalidClusterName};
use common::reserved::{InvalidNamespace, Reserved};
use common::telemetry::TelemetryArgs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The flags, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the hub is reached.
    pub hub: HubConfig,
    /// Where the agent runs.
    pub member: MemberConfig,
    /// Lease towards the hub.
    pub lease: LeaseConfig,
    /// Cluster status.
    pub status: StatusConfig,
    /// Works.
    pub works: WorksConfig,
    /// What of the member is open to users of the hub.
    pub proxy: common::tunnel::Mode,
    /// Where health is served.
    pub health_address: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// Logging.
    pub telemetry: TelemetryArgs,
}

/// The flags of a process with an agent for every cluster that the hub reaches itself, validated.
#[derive(Debug, Clone)]
pub struct PushConfig {
    /// The hub's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Context in it.
    pub context: Option<String>,
    /// Whether the process ends when its standard input does.
    pub end_with_stdin: bool,
    /// How each agent is set up, but for what is said of its cluster.
    pub agent: Config,
    /// Where health is served.
    pub health_address: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// Logging.
    pub telemetry: TelemetryArgs,
}

impl PushConfig {
    /// How the agent of one cluster is set up.
    pub fn of(&self, cluster: &ClusterName, joined: &Joined) -> Result<Config, InvalidNamespace> {
        let mut config = self.agent.clone();
        config.hub.bootstrap.cluster = Some(cluster.clone());
        config.member.reserved = Reserved::new(&config.member.namespace, &joined.allowed)?;
        config.proxy = joined.mode;
        Ok(config)
    }
}

/// How the hub is reached, and how registration goes.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Hand-made credentials, in place of all that follows.
    pub kubeconfig: Option<PathBuf>,
    /// Context in it.
    pub context: Option<String>,
    /// Whether a Cluster that this hub does not have is made with them.
    pub register_cluster: bool,
    /// What flags say of the bootstrap; the Secret says the rest.
    pub bootstrap: BootstrapFlags,
    /// How long one process tries to register.
    pub registration_timeout: Duration,
    /// Certificate lifetime asked for, in seconds.
    pub certificate_seconds: i32,
    /// How often certificate and bootstrap are looked at.
    pub checking_interval: Duration,
    /// Share of the certificate's life that is left when it is renewed.
    pub renewal_remaining: f64,
}

/// The bootstrap as flags give it; what is missing comes from the Secret.
#[derive(Debug, Clone, Default)]
pub struct BootstrapFlags {
    /// Addresses.
    pub hub: Vec<String>,
    /// Cluster name.
    pub cluster: Option<ClusterName>,
    /// Where the token is.
    pub token_file: Option<PathBuf>,
    /// CA pins.
    pub pins: Vec<String>,
    /// Proxy, which may hold a password.
    pub proxy: Option<common::secret::Secret<String>>,
}

/// Where the agent runs.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// The member's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Context in it.
    pub context: Option<String>,
    /// Namespace of the agent's own objects.
    pub namespace: String,
    /// State directory in place of objects.
    pub state_dir: Option<PathBuf>,
    /// The installation this process belongs to.
    pub installation: Option<String>,
    /// Where Works do not reach.
    pub reserved: Reserved,
    /// Leader election; none when this process works alone.
    pub leader: Option<LeaderConfig>,
}

/// Durations of leader election.
#[derive(Debug, Clone, Copy)]
pub struct LeaderConfig {
    /// How long a silent leader keeps others waiting.
    pub lease_duration: Duration,
    /// How long a leader tries to renew.
    pub renew_deadline: Duration,
    /// How often it is tried.
    pub retry_period: Duration,
}

/// Lease towards the hub.
#[derive(Debug, Clone, Copy)]
pub struct LeaseConfig {
    /// Its duration.
    pub duration: Duration,
    /// Share of it between two renewals.
    pub renew_fraction: f64,
    /// Time between two signs of life that are not stored; none without them.
    pub liveness: Option<Duration>,
}

/// Cluster status.
#[derive(Debug, Clone, Copy)]
pub struct StatusConfig {
    /// Length of a tick.
    pub update_frequency: Duration,
    /// How long well before True.
    pub success_threshold: Duration,
    /// How long unwell before False.
    pub failure_threshold: Duration,
    /// Whether nodes and pods are summed up.
    pub resource_modeling: bool,
}

/// Works.
#[derive(Debug, Clone, Copy)]
pub struct WorksConfig {
    /// How many at the same time.
    pub concurrent_syncs: usize,
    /// How many requests to the member at the same time.
    pub member_concurrency: usize,
}

/// A flag that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster's name.
    #[error("invalid --cluster-name")]
    ClusterName(#[source] InvalidClusterName),
    /// A namespace that cannot be allowed.
    #[error(transparent)]
    AllowNamespace(#[from] InvalidNamespace),
    /// A share outside (0,1).
    #[error("{flag} must lie between 0 and 1, not {value}")]
    Share {
        /// Which flag.
        flag: &'static str,
        /// What it said.
        value: f64,
    },
    /// Signs of life without a pause.
    #[error(
        "--liveness-interval must be 0 or at least {}",
        common::duration::format(common::liveness::LEAST)
    )]
    Liveness,
    /// A number outside its range.
    #[error("{flag} must lie between {least} and {most}, not {value}")]
    Range {
        /// Which flag.
        flag: &'static str,
        /// Least value.
        least: u32,
        /// Greatest value.
        most: u32,
        /// What it said.
        value: u32,
    },
    /// A duration of nothing.
    #[error("{0} must be longer than 0s")]
    Zero(&'static str),
    /// Leader election durations that contradict each other.
    #[error(
        "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period"
    )]
    LeaderElection,
    /// An address to listen on.
    #[error("{flag} {value:?} must be HOST:PORT, :PORT or 0")]
    Address {
        /// Which flag.
        flag: &'static str,
        /// What it said.
        value: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    fn config(args: &[&str]) -> Result<Config, String> {
        let cli = Cli::try_parse_from([&["towline-agent"], args].concat());
        let cli = cli.map_err(|e| e.to_string())?;
        cli.run
            .into_config()
            .map_err(|e| common::errors::chain(&e).to_string())
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let c = config(&[]).expect("valid");
        assert_eq!(c.lease.duration, Duration::from_secs(40));
        assert!((c.lease.renew_fraction - 0.25).abs() < f64::EPSILON);
        assert_eq!(c.status.update_frequency, Duration::from_secs(10));
        assert_eq!(c.status.failure_threshold, Duration::from_secs(30));
        assert_eq!(c.health_address, "0.0.0.0:10357".parse().ok());
        assert_eq!(c.metrics_address, "0.0.0.0:8080".parse().ok());
        assert_eq!(c.hub.certificate_seconds, 90 * 24 * 3600);
        assert!(c.member.leader.is_some());
        assert!(c.status.resource_modeling);
        assert_eq!(c.lease.liveness, None);
    }

    #[derive(Debug, Parser)]
    struct Push {
        #[command(flatten)]
        push: PushArgs,
    }

    #[test]
    fn agents_of_one_process_differ_in_what_was_said_of_their_clusters() {
        let push = Push::try_parse_from(["towline-agent", "--cluster-lease-duration=8s"]);
        let push = push.expect("valid").push.into_config().expect("valid");
        let alone = config(&["--cluster-lease-duration=8s"]).expect("valid");
        assert_eq!(push.health_address, alone.health_address);
        let mut joined = Joined {
            server: "https://member".into(),
            ca_pem: None,
            server_name: None,
            token: common::secret::Secret::new("t".into()),
            proxy: None,
            proxy_headers: common::secret::Secret::default(),
            allowed: vec!["kube-a".into()],
            mode: common::tunnel::Mode::ReadOnly,
        };
        let name = ClusterName::parse("m1").expect("valid");
        let own = push.of(&name, &joined).expect("valid");
        assert_eq!(own.hub.bootstrap.cluster.as_ref(), Some(&name));
        assert_eq!(own.member.reserved.allowed(), ["kube-a"]);
        assert_eq!(own.proxy, joined.mode);
        assert_eq!(own.lease.duration, alone.lease.duration);
        assert!(own.health_address.is_none() && own.member.leader.is_some());
        joined.allowed = vec!["shop".into()];
        assert!(push.of(&name, &joined).is_err(), "it is not reserved");
    }

    #[test]
    fn flags_are_judged() {
        let c = config(&[
            "--hub=a:1,b:2",
            "--hub=[::1]:3",
            "--metrics-bind-address=0",
            "--leader-elect=false",
            "--enable-cluster-resource-modeling=false",
        ])
        .expect("valid");
        assert_eq!(c.hub.bootstrap.hub, ["a:1", "b:2", "[::1]:3"]);
        assert!(c.metrics_address.is_none() && c.member.leader.is_none());
        assert!(!c.status.resource_modeling);
        assert!(c.member.reserved.allowed().is_empty());
        let open = config(&[
            "--allow-namespace=kube-system",
            "--allow-namespace=kube-a,kube-b",
        ]);
        let open = open.expect("valid").member.reserved.allowed();
        assert_eq!(open, ["kube-a", "kube-b", "kube-system"]);
        let none = config(&["--allow-namespace="]).expect("an empty variable says nothing");
        assert!(none.member.reserved.allowed().is_empty());
        let one = config(&["--state-dir=/tmp/x"]).expect("valid");
        assert!(one.member.leader.is_none());
        let bad = [
            (&["--cluster-name=A"][..], "invalid --cluster-name"),
            (&["--cluster-lease-renew-interval-fraction=1"], "between 0"),
            (&["--cluster-lease-duration=0"], "longer than 0s"),
            (&["--liveness-interval=499ms"], "at least 500ms"),
            (&["--cert-expiration-seconds=599"], "between 600 and"),
            (&["--leader-elect-renew-deadline=15s"], "must be longer"),
            (&["--health-probe-bind-address=x"], "HOST:PORT"),
            (&["--hub-kubeconfig=f", "--hub=a:1"], "cannot be used"),
            (&["--cluster-lease-duration=-1s"], "must not be negative"),
            (&["positional"], "unexpected argument"),
            (&["--allow-namespace=shop"], "is not reserved"),
            (&["--allow-namespace=towline-system"], "the agent's own"),
            (
                &["--namespace=kube-agents", "--allow-namespace=kube-agents"],
                "the agent's own",
            ),
        ];
        for (args, want) in bad {
            let error = config(args).expect_err(want);
            assert!(error.contains(want), "{args:?}: {error}");
        }
    }
}
