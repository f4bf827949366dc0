//! The process: registers, waits until it leads, works a term, and ends in order.

mod left;
mod metrics;
mod term;

use crate::config::{Config, MemberConfig};
use crate::context::Certified;
use crate::credentials::{self, Registration, Store};
use crate::error::{Error, is_lasting, is_refusal};
use crate::hub::HubHandle;
use crate::hub::by_update::ByUpdate;
use crate::hub::connect::HandMade;
use crate::registration::bootstrap::{self, Handed};
use crate::registration::{Outcome, Registrar};
use crate::report::{Phase, Reporter};
use crate::upkeep::InForce;
use common::admin::{self, AdminState, Check};
use common::backoff::Backoff;
use common::client::{ClientOptions, classify, kubeconfig_client};
use common::env::Env;
use common::errors::chain;
use common::leader::{self, Election, Standing};
use common::names;
use common::proxy::ProxyChoice;
use common::signal;
use common::tls::CertificateSwap;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use prometheus_client::registry::Registry;
use rand::Rng as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use term::{End, Term};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Deadline of a request to the member.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);
/// First wait before the member is asked again at the start, and the longest.
const MEMBER_RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long a member may refuse us before that counts: an API server that has just started does not know
/// its tokens and roles yet.
const SETTLING: Duration = Duration::from_secs(30);
/// How long the end of the election may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
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
/// until it has left its member, or until it cannot go on.
pub async fn beside(
    config: Config,
    env: Env,
    (member, member_config, member_proxy): (kube::Client, kube::Config, ProxyChoice),
    shutdown: CancellationToken,
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

    /// With the credentials of a kubeconfig: nothing to register, renew or remove.
    async fn live_by_hand(&self) -> Result<End, Error> {
        let hub = &self.config.hub;
        let cluster = hub.bootstrap.cluster.clone();
        let missing = "--hub-kubeconfig needs --cluster-name";
        let cluster = cluster.ok_or_else(|| Error::Bootstrap(missing.into()))?;
        let Some(cluster_id) = self.cluster_id(None).await? else {
            return Ok(End::Shutdown);
        };
        let proxy = hub
            .bootstrap
            .proxy
            .as_ref()
            .map(|proxy| proxy.expose().clone());
        let connector = HandMade {
            kubeconfig: hub.kubeconfig.clone().unwrap_or_default(),
            context: hub.context.clone(),
            proxy: ProxyChoice::from_flag(proxy.as_deref())
                .map_err(|e| Error::Bootstrap(format!("hub-proxy: {e}")))?,
            by_update: ByUpdate::default(),
            env: self.env.clone(),
        };
        self.checks.registered.ok();
        let mut candidacy = self.stand();
        let mut last = End::Shutdown;
        while candidacy.wait_to_lead(&self.shutdown).await {
            let handle = HubHandle::new(Arc::new(connector.clone())).await?;
            let (_, certified) = signal::channel(Certified::default());
            let standing = candidacy.standing.clone();
            let term = Term::new(
                self,
                &cluster,
                &cluster_id,
                handle,
                certified,
                None,
                standing,
            );
            match term.work(None, &mut candidacy).await? {
                End::Stepped | End::Reregistered => {}
                end @ (End::Shutdown | End::Left) => {
                    last = end;
                    break;
                }
            }
        }
        candidacy.end().await;
        Ok(last)
    }

    async fn live_registered(&self) -> Result<End, Error> {
        let MemberConfig {
            namespace,
            state_dir,
            ..
        } = &self.config.member;
        let store = match state_dir {
            Some(directory) => {
                Store::in_directory(directory.clone()).map_err(Error::Credentials)?
            }
            None => Store::in_member(self.member.clone(), namespace),
        };
        let store = Arc::new(store);
        let secrets = state_dir
            .is_none()
            .then(|| Api::<Secret>::namespaced(self.member.clone(), namespace));
        let Some(cluster_id) = self.cluster_id(Some(&store)).await? else {
            return Ok(End::Shutdown);
        };
        let registrar = Arc::new(Registrar {
            store,
            cluster_id,
            config: self.config.hub.clone(),
            env: self.env.clone(),
            reporter: self.reporter.clone(),
        });
        let mut candidacy = self.stand();
        let ended = self
            .terms(&registrar, secrets.as_ref(), &mut candidacy)
            .await;
        candidacy.end().await;
        ended
    }

    async fn terms(
        &self,
        registrar: &Arc<Registrar>,
        secrets: Option<&Api<Secret>>,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        loop {
            let registered = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Ok(End::Shutdown),
                registered = self.register(registrar, secrets) => registered,
            };
            let (handed, outcome) = registered?;
            self.checks.registered.ok();
            if !candidacy.leads() {
                self.checks.hub.ok();
                let told = outcome.progress.stored.told_to_leave.is_some();
                let leads = tokio::select! {
                    biased;
                    leads = candidacy.wait_to_lead(&self.shutdown) => leads,
                    () = left::has_left(&registrar.store), if told => return Ok(End::Left),
                };
                if !leads {
                    return Ok(End::Shutdown);
                }
                // The former leader may have renewed or registered anew meanwhile.
                continue;
            }
            match self
                .term(registrar, secrets, handed, outcome, candidacy)
                .await?
            {
                End::Stepped | End::Reregistered => {}
                end => return Ok(end),
            }
        }
    }

    async fn register(
        &self,
        registrar: &Registrar,
        secrets: Option<&Api<Secret>>,
    ) -> Result<(Handed, Outcome), Error> {
        let flags = &self.config.hub.bootstrap;
        let started = Instant::now();
        let mut rng = self.env.chance.stream("bootstrap");
        let mut backoff = Backoff::new(MEMBER_RETRY.0, MEMBER_RETRY.1);
        let handed = loop {
            match bootstrap::read(flags, secrets).await {
                Ok(handed) => break handed,
                Err(bootstrap::Error::Secret(source)) => {
                    let problem = classify(&source);
                    if !is_refusal(&problem) || started.elapsed() >= SETTLING {
                        let action = "get the bootstrap Secret";
                        return Err(Error::Member { action, problem });
                    }
                }
            }
            tokio::time::sleep(backoff.next(&mut rng)).await;
        };
        let outcome = registrar.register(&handed).await?;
        Ok((handed, outcome))
    }

    async fn term(
        &self,
        registrar: &Arc<Registrar>,
        secrets: Option<&Api<Secret>>,
        handed: Handed,
        outcome: Outcome,
        candidacy: &mut Candidacy,
    ) -> Result<End, Error> {
        let Outcome {
            progress,
            registration,
            expired,
        } = outcome;
        let in_force = InForce {
            swap: CertificateSwap::empty(),
            certified: signal::Sender::default(),
            env: self.env.clone(),
        };
        let connector = in_force.show(&registration, &handed)?;
        let handle = HubHandle::new(Arc::new(connector)).await?;
        self.announce(&registration, &in_force, expired.as_ref())
            .await;
        let Registration { cluster, .. } = &registration;
        let certified = in_force.certified.subscribe();
        let told = progress.stored.told_to_leave;
        let id = &registrar.cluster_id;
        let standing = candidacy.standing.clone();
        let term = Term::new(self, cluster, id, handle, certified, told, standing);
        let keeping = term::Keeping {
            registrar: registrar.clone(),
            secrets: secrets.cloned(),
            handed,
            progress,
            in_force,
        };
        term.work(Some(keeping), candidacy).await
    }

    async fn announce(&self, of: &Registration, in_force: &InForce, expired: Option<&Error>) {
        if let Some(error) = expired {
            // Drift is still corrected; only the hub cannot be spoken to.
            let message = chain(error).to_string();
            tracing::error!("{message}");
            let reason = error.code().as_str();
            return self.reporter.say(Phase::Failed, reason, &message).await;
        }
        let ends = in_force.certified.borrow().ends.map(|at| at.to_rfc3339());
        let cluster = of.cluster.as_str();
        let registration = of.id.as_str();
        tracing::info!(cluster, registration, certificate_ends = ends, "at work");
        let message = format!("at work as cluster {cluster:?}");
        self.reporter
            .say(Phase::Running, "Registered", &message)
            .await;
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

    /// Takes part in the election of replicas, if there is one.
    fn stand(&self) -> Candidacy {
        let stop = CancellationToken::new();
        let Some(config) = self.config.member.leader else {
            let (sender, leading) = signal::channel(true);
            return Candidacy {
                leading,
                standing: None,
                give_up: Arc::default(),
                place: String::new(),
                stop,
                task: None,
                _always: Some(sender),
            };
        };
        let place = self.config.member.namespace.clone();
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "agent".to_owned());
        let number: u32 = self.env.chance.stream("identity").random();
        let identity = format!("{host}_{number:08x}");
        let mut election =
            Election::new(&self.config.member.namespace, names::AGENT_NAME, &identity);
        election.lease_duration = config.lease_duration;
        election.renew_deadline = config.renew_deadline;
        election.retry_period = config.retry_period;
        // Losing the member's API must not silence the heartbeat, where nobody else reaches it either.
        election.lead_while_unreachable = true;
        let running = leader::run(
            election,
            self.member.clone(),
            self.env.clone(),
            stop.clone(),
        );
        Candidacy {
            leading: running.leading,
            standing: Some(running.standing),
            give_up: running.give_up,
            place,
            stop,
            task: Some(running.task),
            _always: None,
        }
    }
}

/// Our part in the election of replicas.
struct Candidacy {
    leading: signal::Receiver<bool>,
    /// What keeps us from leading; none without an election.
    standing: Option<signal::Receiver<Standing>>,
    /// Has the election lead no more before its Lease was read again.
    give_up: Arc<Notify>,
    /// Namespace of the Lease.
    place: String,
    stop: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
    // Keeps the channel open when there is no election.
    _always: Option<signal::Sender<bool>>,
}

impl Candidacy {
    fn leads(&self) -> bool {
        *self.leading.borrow()
    }

    /// Waits until this replica leads; false at shutdown.
    async fn wait_to_lead(&mut self, shutdown: &CancellationToken) -> bool {
        let mut told = Standing::Unknown;
        loop {
            if self.leads() {
                return true;
            }
            let standing = self
                .standing
                .as_mut()
                .map(|s| s.borrow_and_update().clone());
            let standing = standing.unwrap_or_default();
            if told != standing {
                self.tell(&standing);
                told = standing;
            }
            let news = async {
                if let Some(standing) = &mut self.standing
                    && standing.changed().await.is_ok()
                {
                    return;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                led = self.leading.changed() => if led.is_err() { return false },
                () = news => {}
            }
        }
    }

    /// Says why we do not lead.
    fn tell(&self, standing: &Standing) {
        let (namespace, name) = (&self.place, names::AGENT_NAME);
        standing.tell(
            &format!("the agent's Lease {namespace}/{name} in the member"),
            &format!(
                "make the namespace (kubectl create namespace {namespace}), or name another one with --namespace"
            ),
        );
    }

    /// Waits until this replica does not lead any more.
    async fn wait_to_step_down(&mut self) {
        // An election that ended without being told to leads nobody.
        let _ = self.leading.wait_for(|leads| !*leads).await;
    }

    /// Leads no more, and waits until the member's API server answers: then it shows who leads.
    async fn stand_back(&mut self) {
        self.give_up.notify_one();
        self.wait_to_step_down().await;
        if let Some(standing) = &mut self.standing {
            let answered = |standing: &Standing| !matches!(standing, Standing::Failing(_));
            // An election that ended has nobody wait.
            let _ = standing.wait_for(answered).await;
        }
    }

    async fn end(self) {
        self.stop.cancel();
        if let Some(task) = self.task {
            // The Lease then simply runs out.
            let _ = timeout(RELEASE_TIMEOUT, task).await;
        }
    }
}
