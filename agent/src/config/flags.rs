//! The flags, and what is made of them.

use super::{
    BootstrapFlags, Config, Error, HubConfig, LeaderConfig, LeaseConfig, MemberConfig, PushConfig,
    StatusConfig, WorksConfig,
};
use clap::{ArgAction, Args};
use common::duration;
use common::liveness::LEAST;
use common::names::{self, ClusterName};
use common::reserved::Reserved;
use common::telemetry::TelemetryArgs;
use common::tunnel::Mode;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Shortest certificate life that a signer grants, in seconds.
const CERTIFICATE_LIFETIME_MIN: u32 = 600;

/// Flags of `towline-agent run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// What of this member users of the hub may reach through the agent's own connection, each as themselves:
    /// nothing, reading alone, or whatever the member lets them do
    #[arg(
        long,
        value_name = "MODE",
        default_value = "off",
        env = "TOWLINE_AGENT_PROXY",
        help_heading = "Member"
    )]
    proxy: Mode,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// Flags of `towline-agent push`.
#[derive(Debug, Clone, Args)]
pub struct PushArgs {
    /// Kubeconfig of the hub; default: $KUBECONFIG or ~/.kube/config, else the Pod's ServiceAccount
    #[arg(
        long,
        value_name = "FILE",
        env = "TOWLINE_AGENT_HUB_KUBECONFIG",
        help_heading = "Hub"
    )]
    hub_kubeconfig: Option<PathBuf>,
    /// Context in --hub-kubeconfig; default: its current one
    #[arg(
        long,
        value_name = "NAME",
        env = "TOWLINE_AGENT_HUB_CONTEXT",
        help_heading = "Hub"
    )]
    hub_context: Option<String>,
    /// Address of the hub as HOST:PORT for the agents of all clusters, several times for several; default: those
    /// that the hub advertises
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_HUB",
        help_heading = "Hub"
    )]
    hub: Vec<String>,
    /// End when standard input does: whoever started this holds it open
    #[arg(long, hide = true)]
    end_with_stdin: bool,
    #[command(flatten)]
    registration: RegistrationArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl PushArgs {
    /// Validates the flags.
    pub fn into_config(self) -> Result<PushConfig, Error> {
        let Self {
            hub_kubeconfig,
            hub_context,
            hub,
            end_with_stdin,
            registration,
            leader,
            cluster,
            process,
            telemetry,
        } = self;
        let (lease, status, works) = cluster.into_config()?;
        let bootstrap = BootstrapFlags {
            hub,
            ..BootstrapFlags::default()
        };
        let agent = Config {
            hub: HubConfig {
                bootstrap,
                ..registration.into_config()?
            },
            member: MemberConfig {
                kubeconfig: None,
                context: None,
                namespace: names::AGENT_NAMESPACE.to_owned(),
                state_dir: None,
                installation: None,
                reserved: Reserved::default(),
                leader: leader.into_config()?,
            },
            lease,
            status,
            works,
            proxy: Mode::Off,
            // The process has them, not each agent.
            health_address: None,
            metrics_address: None,
            telemetry: telemetry.clone(),
        };
        let (health_address, metrics_address) = process.into_addresses()?;
        Ok(PushConfig {
            kubeconfig: hub_kubeconfig,
            context: hub_context,
            end_with_stdin,
            agent,
            health_address,
            metrics_address,
            telemetry,
        })
    }
}

/// How the hub is found and who is asked for there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hub")]
struct HubArgs {
    /// Address of the hub as HOST:PORT, several times for several; default: key `hub` of the Secret
    /// towline-agent-bootstrap
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_HUB"
    )]
    hub: Vec<String>,
    /// Name of this cluster on the hub; default: key `cluster-name` of that Secret
    #[arg(long, value_name = "NAME", env = "TOWLINE_AGENT_CLUSTER_NAME")]
    cluster_name: Option<String>,
    /// File with the bootstrap token; default: key `token` of that Secret
    #[arg(long, value_name = "FILE", env = "TOWLINE_AGENT_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Pin of the hub's CA as sha256:HEX, several times for several; default: key `ca-cert-hashes`
    /// of that Secret
    #[arg(
        long,
        value_name = "PIN",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_DISCOVERY_TOKEN_CA_CERT_HASH"
    )]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Proxy towards the hub as http://[USER:PASSWORD@]HOST:PORT; default: key `hub-proxy` of that
    /// Secret, then HTTPS_PROXY and NO_PROXY. The member is never reached through it
    #[arg(
        long,
        value_name = "URL",
        env = "TOWLINE_AGENT_HUB_PROXY",
        hide_env_values = true
    )]
    hub_proxy: Option<String>,
    /// Kubeconfig with hand-made credentials for the hub, in place of registration
    #[arg(
        long,
        value_name = "FILE",
        env = "TOWLINE_AGENT_HUB_KUBECONFIG",
        conflicts_with_all = ["hub", "token_file", "discovery_token_ca_cert_hash", "state_dir"]
    )]
    hub_kubeconfig: Option<PathBuf>,
    /// Context in --hub-kubeconfig; default: its current one
    #[arg(
        long,
        value_name = "NAME",
        env = "TOWLINE_AGENT_HUB_CONTEXT",
        requires = "hub_kubeconfig"
    )]
    hub_context: Option<String>,
    /// Make the Cluster, in Pull mode, when the hub of --hub-kubeconfig has none of that name
    #[arg(
        long,
        requires = "hub_kubeconfig",
        env = "TOWLINE_AGENT_REGISTER_CLUSTER"
    )]
    register_cluster: bool,
    #[command(flatten)]
    registration: RegistrationArgs,
}

/// How a registration is got and kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hub")]
struct RegistrationArgs {
    /// How long one process tries to register before it gives up
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse, env = "TOWLINE_AGENT_REGISTRATION_TIMEOUT")]
    registration_timeout: Duration,
    /// Lifetime asked for the agent's certificate, in seconds: from 600 to 7776000, which is 90 days
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 7_776_000,
        env = "TOWLINE_AGENT_CERT_EXPIRATION_SECONDS"
    )]
    cert_expiration_seconds: u32,
    /// How often the certificate's age and the bootstrap Secret are looked at; what the hub says about its
    /// addresses and certificate authorities is read every fifth time
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse, env = "TOWLINE_AGENT_CERT_ROTATION_CHECKING_INTERVAL")]
    cert_rotation_checking_interval: Duration,
    /// Share of the certificate's life that is left when it is renewed, between 0 and 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.67,
        env = "TOWLINE_AGENT_CERT_ROTATION_REMAINING_TIME_THRESHOLD"
    )]
    cert_rotation_remaining_time_threshold: f64,
}

/// Where the agent runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Member")]
struct MemberArgs {
    /// Kubeconfig of the member; default: the Pod's ServiceAccount, else $KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, value_name = "FILE", env = "TOWLINE_AGENT_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context in --kubeconfig; default: its current one
    #[arg(long, value_name = "NAME", env = "TOWLINE_AGENT_CONTEXT")]
    context: Option<String>,
    /// Namespace of the agent's own objects in the member
    #[arg(
        long,
        value_name = "NAME",
        default_value = names::AGENT_NAMESPACE,
        env = "TOWLINE_AGENT_NAMESPACE"
    )]
    namespace: String,
    /// Reserved namespace (kube-*, towline-*) that Works may reach all the same, several times for several:
    /// whoever owns the hub then owns what runs there
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_ALLOW_NAMESPACE"
    )]
    allow_namespace: Vec<String>,
    /// Directory for key, certificate and status, in place of objects in the member
    #[arg(long, value_name = "DIR", env = "TOWLINE_AGENT_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// What `towline register` calls this installation; comes with its pods, and is repeated in the
    /// status report
    #[arg(
        long,
        value_name = "ID",
        hide = true,
        env = "TOWLINE_AGENT_INSTALLATION"
    )]
    installation: Option<String>,
    #[command(flatten)]
    leader: LeaderArgs,
}

/// How replicas agree who works.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Member")]
struct LeaderArgs {
    /// Let one of several replicas work at a time; a --state-dir admits one agent anyway
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "TOWLINE_AGENT_LEADER_ELECT"
    )]
    leader_elect: bool,
    /// How long a leader that falls silent keeps others waiting
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew before it stands back
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: Duration,
    /// How often leadership is tried for or renewed
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: Duration,
}

/// What the agent says about its cluster, and what it does there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
struct ClusterArgs {
    /// How often the member is probed and its status compared
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_STATUS_UPDATE_FREQUENCY")]
    cluster_status_update_frequency: Duration,
    /// Duration of the cluster's Lease
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_LEASE_DURATION")]
    cluster_lease_duration: Duration,
    /// Share of the Lease's duration between two renewals, between 0 and 1
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.25,
        env = "TOWLINE_AGENT_CLUSTER_LEASE_RENEW_INTERVAL_FRACTION"
    )]
    cluster_lease_renew_interval_fraction: f64,
    /// Time between two signs of life that the hub does not store, for a hub that counts them (its flag of the same
    /// name, of towline-hub serve); 0 for none
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse, env = "TOWLINE_AGENT_LIVENESS_INTERVAL")]
    liveness_interval: Duration,
    /// How long the member must be well before Ready turns True again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_SUCCESS_THRESHOLD")]
    cluster_success_threshold: Duration,
    /// How long the member must be unwell before Ready turns False
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, env = "TOWLINE_AGENT_CLUSTER_FAILURE_THRESHOLD")]
    cluster_failure_threshold: Duration,
    /// Sum up nodes and pods
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "TOWLINE_AGENT_ENABLE_CLUSTER_RESOURCE_MODELING"
    )]
    enable_cluster_resource_modeling: bool,
    /// How many Works are carried out at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        env = "TOWLINE_AGENT_CONCURRENT_WORK_SYNCS"
    )]
    concurrent_work_syncs: usize,
    /// How many requests about Works the member is sent at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        env = "TOWLINE_AGENT_MEMBER_CONCURRENCY"
    )]
    member_concurrency: usize,
}

/// What the process serves.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process")]
struct ProcessArgs {
    /// Where /livez and /readyz are served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":10357",
        env = "TOWLINE_AGENT_HEALTH_PROBE_BIND_ADDRESS"
    )]
    health_probe_bind_address: String,
    /// Where /metrics is served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":8080",
        env = "TOWLINE_AGENT_METRICS_BIND_ADDRESS"
    )]
    metrics_bind_address: String,
}

impl RunArgs {
    /// Validates the flags.
    pub fn into_config(self) -> Result<Config, Error> {
        let Self {
            hub,
            member,
            cluster,
            proxy,
            process,
            telemetry,
        } = self;
        let (health_address, metrics_address) = process.into_addresses()?;
        let (lease, status, works) = cluster.into_config()?;
        Ok(Config {
            hub: hub.into_config()?,
            member: member.into_config()?,
            lease,
            status,
            works,
            proxy,
            health_address,
            metrics_address,
            telemetry,
        })
    }
}

impl ProcessArgs {
    /// Where health and metrics are served.
    fn into_addresses(self) -> Result<(Option<SocketAddr>, Option<SocketAddr>), Error> {
        let Self {
            health_probe_bind_address: health,
            metrics_bind_address: metrics,
        } = self;
        Ok((
            address("--health-probe-bind-address", &health)?,
            address("--metrics-bind-address", &metrics)?,
        ))
    }
}

impl HubArgs {
    fn into_config(self) -> Result<HubConfig, Error> {
        let Self {
            hub,
            cluster_name,
            token_file,
            discovery_token_ca_cert_hash,
            hub_proxy,
            hub_kubeconfig,
            hub_context,
            register_cluster,
            registration,
        } = self;
        let cluster = cluster_name.as_deref().map(ClusterName::parse).transpose();
        Ok(HubConfig {
            kubeconfig: hub_kubeconfig,
            context: hub_context,
            register_cluster,
            bootstrap: BootstrapFlags {
                hub,
                cluster: cluster.map_err(Error::ClusterName)?,
                token_file,
                pins: discovery_token_ca_cert_hash,
                proxy: hub_proxy.map(common::secret::Secret::new),
            },
            ..registration.into_config()?
        })
    }
}

impl RegistrationArgs {
    /// Of a hub of which nothing else is said.
    fn into_config(self) -> Result<HubConfig, Error> {
        let Self {
            registration_timeout,
            cert_expiration_seconds,
            cert_rotation_checking_interval,
            cert_rotation_remaining_time_threshold,
        } = self;
        let most = u32::try_from(common::identity::CERTIFICATE_LIFETIME_CAP).unwrap_or(u32::MAX);
        if !(CERTIFICATE_LIFETIME_MIN..=most).contains(&cert_expiration_seconds) {
            return Err(Error::Range {
                flag: "--cert-expiration-seconds",
                least: CERTIFICATE_LIFETIME_MIN,
                most,
                value: cert_expiration_seconds,
            });
        }
        Ok(HubConfig {
            kubeconfig: None,
            context: None,
            register_cluster: false,
            bootstrap: BootstrapFlags::default(),
            registration_timeout: positive("--registration-timeout", registration_timeout)?,
            certificate_seconds: i32::try_from(cert_expiration_seconds).unwrap_or(i32::MAX),
            checking_interval: positive(
                "--cert-rotation-checking-interval",
                cert_rotation_checking_interval,
            )?,
            renewal_remaining: share(
                "--cert-rotation-remaining-time-threshold",
                cert_rotation_remaining_time_threshold,
            )?,
        })
    }
}

impl MemberArgs {
    fn into_config(self) -> Result<MemberConfig, Error> {
        let Self {
            kubeconfig,
            context,
            namespace,
            allow_namespace,
            state_dir,
            installation,
            leader,
        } = self;
        let leader = leader.into_config()?.filter(|_| state_dir.is_none());
        let allowed = allow_namespace.iter().filter(|name| !name.is_empty());
        Ok(MemberConfig {
            kubeconfig,
            context,
            reserved: Reserved::new(&namespace, allowed)?,
            namespace,
            state_dir,
            // An installation without a name shows as an empty variable.
            installation: installation.filter(|id| !id.is_empty()),
            leader,
        })
    }
}

impl LeaderArgs {
    fn into_config(self) -> Result<Option<LeaderConfig>, Error> {
        let Self {
            leader_elect,
            leader_elect_lease_duration: lease_duration,
            leader_elect_renew_deadline: renew_deadline,
            leader_elect_retry_period: retry_period,
        } = self;
        positive("--leader-elect-retry-period", retry_period)?;
        if lease_duration <= renew_deadline || renew_deadline <= retry_period {
            return Err(Error::LeaderElection);
        }
        Ok(leader_elect.then_some(LeaderConfig {
            lease_duration,
            renew_deadline,
            retry_period,
        }))
    }
}

impl ClusterArgs {
    fn into_config(self) -> Result<(LeaseConfig, StatusConfig, WorksConfig), Error> {
        let Self {
            cluster_status_update_frequency,
            cluster_lease_duration,
            cluster_lease_renew_interval_fraction,
            liveness_interval,
            cluster_success_threshold,
            cluster_failure_threshold,
            enable_cluster_resource_modeling,
            concurrent_work_syncs,
            member_concurrency,
        } = self;
        let lease = LeaseConfig {
            duration: positive("--cluster-lease-duration", cluster_lease_duration)?,
            renew_fraction: share(
                "--cluster-lease-renew-interval-fraction",
                cluster_lease_renew_interval_fraction,
            )?,
            liveness: match liveness_interval {
                Duration::ZERO => None,
                interval if interval < LEAST => return Err(Error::Liveness),
                interval => Some(interval),
            },
        };
        let status = StatusConfig {
            update_frequency: positive(
                "--cluster-status-update-frequency",
                cluster_status_update_frequency,
            )?,
            success_threshold: cluster_success_threshold,
            failure_threshold: cluster_failure_threshold,
            resource_modeling: enable_cluster_resource_modeling,
        };
        let works = WorksConfig {
            concurrent_syncs: concurrent_work_syncs.max(1),
            member_concurrency: member_concurrency.max(1),
        };
        Ok((lease, status, works))
    }
}

fn positive(flag: &'static str, value: Duration) -> Result<Duration, Error> {
    if value.is_zero() {
        return Err(Error::Zero(flag));
    }
    Ok(value)
}

fn share(flag: &'static str, value: f64) -> Result<f64, Error> {
    // Written so that NaN is refused too.
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(Error::Share { flag, value })
    }
}

fn address(flag: &'static str, value: &str) -> Result<Option<SocketAddr>, Error> {
    common::admin::parse_address(value).map_err(|_| Error::Address {
        flag,
        value: value.to_owned(),
    })
}
