//! The flags of `towline-hub run`, and what they become once they are checked.

mod access;
mod failover;
mod liveness;
mod propagation;

pub use access::{Access, AccessArgs};
pub use failover::{Failover, FailoverArgs};
pub use liveness::LivenessArgs;
pub use propagation::{Propagating, PropagationArgs};

use crate::controller::detector::skip::InvalidSkip;
use crate::controller::monitor::decide::Grace;
use crate::controller::quarantine::Budget;
use clap::Args;
use common::duration;
use common::telemetry::TelemetryArgs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `towline-hub run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "The hub's API server")]
struct ClientArgs {
    /// Kubeconfig of the hub; without it the Pod's own ServiceAccount
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME", env = "TOWLINE_HUB_CONTEXT")]
    context: Option<String>,
}

/// Flags about clusters, which every hub has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters")]
pub struct ClusterArgs {
    /// Silence after which a cluster is Unknown
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = duration::parse,
        env = "TOWLINE_HUB_CLUSTER_MONITOR_GRACE_PERIOD")]
    cluster_monitor_grace_period: Duration,
    /// Silence after which a cluster that never reported is Unknown
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse,
        env = "TOWLINE_HUB_CLUSTER_STARTUP_GRACE_PERIOD")]
    cluster_startup_grace_period: Duration,
    /// How long the deletion of a cluster waits for its agent to finish its Works
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse,
        env = "TOWLINE_HUB_CLUSTER_DELETION_TIMEOUT")]
    cluster_deletion_timeout: Duration,
    /// Clusters reconciled at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        env = "TOWLINE_HUB_CONCURRENT_CLUSTER_SYNCS"
    )]
    concurrent_cluster_syncs: usize,
    /// Bytes an agent may write within --cluster-write-window before it is quarantined
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = Budget::default().bytes,
        env = "TOWLINE_HUB_CLUSTER_WRITE_BUDGET"
    )]
    cluster_write_budget: u64,
    /// Window of --cluster-write-budget
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse,
        env = "TOWLINE_HUB_CLUSTER_WRITE_WINDOW")]
    cluster_write_window: Duration,
    #[command(flatten)]
    propagation: PropagationArgs,
    #[command(flatten)]
    failover: FailoverArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionArgs {
    /// Work only while holding the Lease karmada-system/towline-hub
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
        env = "TOWLINE_HUB_LEADER_ELECT")]
    leader_elect: bool,
    /// How long others wait for a silent leader
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse,
        env = "TOWLINE_HUB_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: Duration,
    /// How long a leader that cannot renew goes on
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse,
        env = "TOWLINE_HUB_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: Duration,
    /// Time between two attempts
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse,
        env = "TOWLINE_HUB_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Process")]
struct ProcessArgs {
    /// Where /livez, /healthz and /readyz are served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:10357",
        env = "TOWLINE_HUB_HEALTH_PROBE_BIND_ADDRESS"
    )]
    health_probe_bind_address: String,
    /// Where /metrics is served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "TOWLINE_HUB_METRICS_BIND_ADDRESS"
    )]
    metrics_bind_address: String,
}

/// Why flags cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address to listen on.
    #[error("{flag} {value:?} must be HOST:PORT, :PORT or 0")]
    Address {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
    },
    /// What is not to be propagated cannot be meant.
    #[error(transparent)]
    Skip(#[from] InvalidSkip),
    /// Zero where time must pass.
    #[error("{0} must be longer than 0s")]
    Zero(&'static str),
    /// Not a rate.
    #[error("{0} must be 0 or more")]
    Rate(&'static str),
    /// Not a share.
    #[error("{0} must be between 0 and 1")]
    Share(&'static str),
    /// Signs of life without a pause.
    #[error(
        "--liveness-interval must be 0 or at least {}",
        duration::format(common::liveness::LEAST)
    )]
    Liveness,
    /// Zero of what at least one is needed.
    #[error("{0} must be at least 1")]
    None(&'static str),
    /// Where members are to be reached cannot be meant.
    #[error("{0}")]
    Access(&'static str),
    /// The order that keeps two leaders apart.
    #[error(
        "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that longer than --leader-elect-retry-period"
    )]
    Election,
}

/// How leadership is kept.
#[derive(Debug, Clone, Copy)]
pub struct ElectionConfig {
    /// How long others wait for a silent leader.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew goes on.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
}

/// The flags, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// Kubeconfig of the hub.
    pub kubeconfig: Option<PathBuf>,
    /// Context in it.
    pub context: Option<String>,
    /// When silence means Unknown.
    pub grace: Grace,
    /// How long a deletion waits for the agent.
    pub deletion_timeout: Duration,
    /// Clusters reconciled at once.
    pub concurrent_clusters: usize,
    /// How much an agent may write.
    pub write_budget: Budget,
    /// What is propagated, and how.
    pub propagation: Propagating,
    /// What becomes of clusters that are lost or tainted.
    pub failover: Failover,
    /// Leader election; none works at once.
    pub election: Option<ElectionConfig>,
    /// Where members are reached; nowhere on its own port where the API server takes tunnels itself.
    pub access: Option<Access>,
    /// Where health is served.
    pub health_address: Option<SocketAddr>,
    /// Where metrics are served.
    pub metrics_address: Option<SocketAddr>,
    /// Logs.
    pub telemetry: TelemetryArgs,
}

impl RunArgs {
    /// Checks the flags; every one is named here, so that none can be forgotten.
    pub fn into_config(self) -> Result<Config, Error> {
        let Self {
            client,
            clusters,
            election,
            access,
            process,
            telemetry,
        } = self;
        let ClientArgs {
            kubeconfig,
            context,
        } = client;
        let ProcessArgs {
            health_probe_bind_address,
            metrics_bind_address,
        } = process;
        Ok(Config {
            kubeconfig,
            context,
            election: election.into_config()?,
            access: access.into_config()?,
            health_address: address("--health-probe-bind-address", &health_probe_bind_address)?,
            metrics_address: address("--metrics-bind-address", &metrics_bind_address)?,
            ..clusters.into_config(telemetry)?
        })
    }
}

impl ClusterArgs {
    /// Checks the flags. The hub of this configuration is alone, and is reached in its own process.
    pub fn into_config(self, telemetry: TelemetryArgs) -> Result<Config, Error> {
        let Self {
            cluster_monitor_grace_period,
            cluster_startup_grace_period,
            cluster_deletion_timeout,
            concurrent_cluster_syncs,
            cluster_write_budget,
            cluster_write_window,
            propagation,
            failover,
        } = self;
        if concurrent_cluster_syncs == 0 {
            return Err(Error::None("--concurrent-cluster-syncs"));
        }
        if cluster_write_budget == 0 {
            return Err(Error::None("--cluster-write-budget"));
        }
        Ok(Config {
            kubeconfig: None,
            context: None,
            grace: Grace {
                running: positive(
                    "--cluster-monitor-grace-period",
                    cluster_monitor_grace_period,
                )?,
                startup: positive(
                    "--cluster-startup-grace-period",
                    cluster_startup_grace_period,
                )?,
                signs: None,
            },
            deletion_timeout: cluster_deletion_timeout,
            concurrent_clusters: concurrent_cluster_syncs,
            write_budget: Budget {
                bytes: cluster_write_budget,
                window: positive("--cluster-write-window", cluster_write_window)?,
            },
            propagation: propagation.into_config()?,
            failover: failover.into_config()?,
            election: None,
            access: None,
            health_address: None,
            metrics_address: None,
            telemetry,
        })
    }
}

impl ElectionArgs {
    fn into_config(self) -> Result<Option<ElectionConfig>, Error> {
        let Self {
            leader_elect,
            leader_elect_lease_duration: lease_duration,
            leader_elect_renew_deadline: renew_deadline,
            leader_elect_retry_period: retry_period,
        } = self;
        if !leader_elect {
            return Ok(None);
        }
        positive("--leader-elect-retry-period", retry_period)?;
        if lease_duration <= renew_deadline || renew_deadline <= retry_period {
            return Err(Error::Election);
        }
        Ok(Some(ElectionConfig {
            lease_duration,
            renew_deadline,
            retry_period,
        }))
    }
}

fn positive(flag: &'static str, duration: Duration) -> Result<Duration, Error> {
    if duration.is_zero() {
        Err(Error::Zero(flag))
    } else {
        Ok(duration)
    }
}

fn address(flag: &'static str, value: &str) -> Result<Option<SocketAddr>, Error> {
    common::admin::parse_address(value).map_err(|_| Error::Address {
        flag,
        value: value.to_owned(),
    })
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
        let cli = Cli::try_parse_from([&["towline-hub"], args].concat());
        cli.map_err(|e| e.to_string())?
            .run
            .into_config()
            .map_err(|e| e.to_string())
    }

    /// The configuration is logged at each start.
    #[test]
    fn what_is_logged_of_it_is_short() {
        let logged = format!("{:?}", config(&[]).expect("valid"));
        assert!(logged.contains("Customizations("), "{logged}");
        assert!(logged.len() < 4096, "{} bytes", logged.len());
    }

    #[test]
    fn defaults_are_the_references() {
        let c = config(&[]).expect("valid");
        assert_eq!(c.grace.running, Duration::from_secs(40));
        assert_eq!(c.grace.startup, Duration::from_secs(60));
        assert_eq!(c.health_address.expect("set").port(), 10357);
        assert!(c.election.is_some());
        assert!(
            config(&["--leader-elect=false"])
                .expect("valid")
                .election
                .is_none()
        );
        assert_eq!(c.write_budget, Budget::default());
    }

    #[test]
    fn bad_flags_say_what_is_wrong() {
        let bad = [
            ("--cluster-monitor-grace-period=0", "longer than 0s"),
            ("--leader-elect-renew-deadline=15s", "must be longer"),
            ("--metrics-bind-address=x", "HOST:PORT"),
            ("--concurrent-cluster-syncs=0", "at least 1"),
            ("--cluster-write-budget=0", "at least 1"),
            ("--resource-eviction-rate=-1", "0 or more"),
            ("--resource-eviction-rate=inf", "0 or more"),
            ("--lost-clusters-threshold=2", "between 0 and 1"),
            (
                "--no-execute-taint-eviction-purge-mode=Never",
                "Gracefully or Directly",
            ),
        ];
        for (flag, want) in bad {
            let error = config(&[flag]).expect_err(want);
            assert!(error.contains(want), "{flag}: {error}");
        }
    }
}
