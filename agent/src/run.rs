//! The process: registers, waits until it leads, works a term, and ends in order.

mod candidacy;
mod left;
mod metrics;
mod term;
mod terms;
#[cfg(test)]
mod tests;

use crate::config::{Config, MemberConfig};
use crate::credentials::{self, Store};
use crate::error::{Error, is_lasting, is_refusal};
use crate::report::{Phase, Reporter};
use common::admin::{self, AdminState, Check};
use common::backoff::Backoff;
use common::client::{ClientOptions, classify, kubeconfig_client};
use common::env::Env;
use common::errors::chain;
use common::proxy::ProxyChoice;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use term::End;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Deadline of a request to the member.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);
/// First wait before the member is asked again at the start, and the longest.
const MEMBER_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long a member may refuse us before that counts: an API server that has just started does not know
/// its tokens and roles yet.
const SETTLING: Duration = Duration::from_secs(30);
/// How long a Pod that removed itself waits to be stopped, so that it is not started again.
const FAREWELL: Duration = Duration::from_secs(120);

/// Runs the agent until `shutdown`, or until it cannot or need not go on.
pub async fn run(config: Config, env: Env, shutdown: CancellationToken) -> Result<(), Error> {
    let config = Arc::new(config);
    let metrics: Arc<Mutex<Registry>> = Arc::default();
    let state = AdminState {
        registry: metrics.clone(),
        ..AdminState::default()
    };
    let checks = Checks {
        registered: state.readiness.add("registered"),
        hub: state.readiness.add("hub"),
    };
    let admin_stop = CancellationToken::new();
    let serving = admin::serve(
        config.health_address,
        config.metrics_address,
        state,
        admin_stop.clone(),
    );
    let serving = serving.await.map_err(|e| Error::Serve(Box::new(e)))?;
    tracing::info!(health = ?serving.health, metrics = ?serving.metrics, "serving");

    let options = member_options();
    let MemberConfig {
        kubeconfig,
        context,
        namespace,
        state_dir,
        installation,
        ..
    } = &config.member;
    let (kubeconfig, context) = (kubeconfig.as_deref(), context.as_deref());
    let connected = kubeconfig_client(kubeconfig, context, &options, &env).await;
    let (member, member_config) = connected.map_err(Error::MemberClient)?;
    let reporter = Arc::new(match state_dir {
        Some(directory) => Reporter::in_directory(directory, env.clock.clone()),
        None => {
            let installation = installation.clone();
            let clock = env.clock.clone();
            Reporter::in_member(member.clone(), namespace, installation, clock)
        }
    });
    let registers = config.hub.kubeconfig.is_none();
    let process = Process {
        config,
        env,
        metrics,
        checks,
        member,
        member_config,
        member_proxy: ProxyChoice::direct(),
        reporter,
        shutdown,
        unregistered: CancellationToken::new(),
    };
    let ended = process.live().await;
    if registers
        && matches!(ended, Ok(End::Left))
        && process.config.member.kubeconfig.is_none()
        && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
    {
        // Ending by itself would only have the container started again.
        let _ = timeout(FAREWELL, process.shutdown.cancelled()).await;
    }
    admin_stop.cancel();
    ended.map(drop)
}

/// An agent beside others in one process, for a member whose API is reached by what is given. Works until `shutdown`,
/// until it has left its member, or until it cannot go on. `unregistered` says that the hub unregisters its cluster, or
/// has it no more.
pub async fn beside(
    config: Config,
    env: Env,
    (member, member_config, member_proxy): (kube::Client, kube::Config, ProxyChoice),
    shutdown: CancellationToken,
    unregistered: CancellationToken,
) -> Result<Beside, Error> {
    let namespace = &config.member.namespace;
    let reporter = Reporter::in_member(member.clone(), namespace, None, env.clock.clone());
    let readiness = admin::Checks::default();
    let process = Process {
        config: Arc::new(config),
        env,
        metrics: Arc::default(),
        checks: Checks {
            registered: readiness.add("registered"),
            hub: readiness.add("hub"),
        },
        member,
        member_config,
        member_proxy,
        reporter: Arc::new(reporter),
        shutdown,
        unregistered,
    };
    Ok(match process.live().await? {
        End::Left => Beside::Left,
        End::Shutdown | End::Stepped | End::Reregistered => Beside::Stopped,
    })
}

/// How an agent beside others ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It was told to.
    Stopped,
    /// The hub unregistered its cluster, and it took itself out of the member.
    Left,
}

/// How the clients of a member are made.
pub fn member_options() -> ClientOptions {
    ClientOptions::new("agent").with_timeout(MEMBER_TIMEOUT)
}

/// Readiness by name.
struct Checks {
    registered: Check,
    hub: Check,
}

/// What lives as long as the process.
struct Process {
    config: Arc<Config>,
    env: Env,
    metrics: Arc<Mutex<Registry>>,
    checks: Checks,
    member: kube::Client,
    member_config: kube::Config,
    member_proxy: ProxyChoice,
    reporter: Arc<Reporter>,
    shutdown: CancellationToken,
    /// Cancelled once the hub unregisters the cluster, or has it no more, where somebody besides this agent sees that.
    unregistered: CancellationToken,
}

impl Process {
    async fn live(&self) -> Result<End, Error> {
        let ended = match &self.config.hub.kubeconfig {
            Some(_) => self.live_by_hand().await,
            None => self.live_registered().await,
        };
        // In a state directory that another agent uses, what is told is that one's.
        if let Err(error) = &ended
            && !matches!(error, Error::Credentials(credentials::Error::InUse(_)))
        {
            let reason = error.code().as_str();
            let message = chain(error).to_string();
            self.reporter.say(Phase::Failed, reason, &message).await;
        }
        ended
    }

    /// UID of the member's `kube-system`. A member that does not answer delays nothing when there is
    /// a registration already; none at shutdown.
    async fn cluster_id(&self, store: Option<&Store>) -> Result<Option<String>, Error> {
        let started = Instant::now();
        let mut backoff = Backoff::new(MEMBER_RETRY.0, MEMBER_RETRY.1);
        let mut rng = self.env.chance.stream("member");
        let api: Api<Namespace> = Api::all(self.member.clone());
        loop {
            let found = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Ok(None),
                found = api.get("kube-system") => found,
            };
            let problem = match found {
                Ok(namespace) => return Ok(Some(namespace.metadata.uid.unwrap_or_default())),
                Err(error) => classify(&error),
            };
            if let Some(Store::Directory(_)) = store
                && let Some(store) = store
                && let Ok((stored, _)) = store.load().await
                && let Some(current) = stored.current
            {
                tracing::warn!(%problem, "the member does not answer; going on as registered");
                return Ok(Some(current.cluster_id));
            }
            let action = "get namespace kube-system";
            let waited = started.elapsed();
            let settles = is_refusal(&problem) && waited < SETTLING;
            let over = waited >= self.config.hub.registration_timeout;
            if over || is_lasting(&problem) && !settles {
                return Err(Error::Member { action, problem });
            }
            if backoff.failures() == 0 {
                tracing::warn!(%problem, "the member does not answer, trying again");
            }
            let pause = backoff.next(&mut rng);
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Ok(None),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
