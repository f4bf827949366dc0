//! Registration: from a bootstrap token to the agent's own certificate.
//!
//! [`decide`] says what comes next; this shell does it, tries again what may yet succeed, and reports
//! meanwhile what it waits for.

pub mod bootstrap;
pub mod certificate;
pub mod decide;
pub mod key;
pub mod progress;

use crate::config::HubConfig;
use crate::credentials::{self, Registration, Store};
use crate::error::{Error, is_lasting, is_refusal};
use crate::following;
use crate::report::{Phase, Reporter};
use bootstrap::{Bootstrap, Handed};
use common::backoff::Backoff;
use common::client::{ClientOptions, Credentials, HostPort, HubTarget, classify, hub_client};
use common::discovery::{self, VerifiedHub};
use common::env::Env;
use common::errors::chain;
use common::proxy::ProxyChoice;
use decide::{Failure, Observed, Step};
use progress::{Progress, Purpose, StepError};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// First wait between two looks at the CSR, and the longest. A hub that approves does so at once; one whose
/// operators do takes minutes.
const POLL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// First wait after a failure, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// How long the hub may refuse the token before that counts: an API server that has just started does not
/// know its tokens yet.
const SETTLING: Duration = Duration::from_secs(10);
/// Deadline of a request of registration.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What registration works with.
pub struct Registrar {
    /// Where the document lies.
    pub store: Arc<Store>,
    /// UID of the member's `kube-system`.
    pub cluster_id: String,
    /// Lifetimes and deadlines.
    pub config: HubConfig,
    /// Time of day, chance, and the way to the hub.
    pub env: Env,
    /// Where progress is told.
    pub reporter: Arc<Reporter>,
}

/// A registration to work with.
#[derive(Debug)]
pub struct Outcome {
    /// The document it stands in, to follow its renewals.
    pub progress: Progress,
    /// The registration.
    pub registration: Registration,
    /// Why it is of little use: its certificate has ended, and only an operator can help.
    pub expired: Option<Error>,
}

/// Why a step did not succeed.
enum Obstacle {
    /// It may succeed later.
    Passing {
        action: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It will not.
    Lasting(Error),
}

impl Registrar {
    /// Leads to a registration, the stored one if it is the one that was asked for.
    pub async fn register(&self, handed: &Handed) -> Result<Outcome, Error> {
        let progress = Progress::load(self.store.clone()).await;
        let mut run = Run {
            registrar: self,
            handed,
            progress: progress.map_err(Error::Credentials)?,
            hub: None,
            client: None,
            started: Instant::now(),
            rng: self.env.chance.stream("registration"),
            poll: Backoff::new(POLL.0, POLL.1),
            retry: Backoff::new(RETRY.0, RETRY.1),
            obstacle: None,
            refused_since: None,
        };
        let outcome = run.go().await;
        if let Err(Error::Denied { .. } | Error::NotSigned(_)) = &outcome {
            // A denied CSR stays denied for an hour; whoever tries again asks with a new one. The use
            // of the token belongs to the key, which stays.
            if let Err(error) = run.progress.rename_csr(&mut run.rng).await {
                tracing::warn!(error = %chain(&error), "the next attempt will meet the old CSR");
            }
        }
        outcome
    }
}

/// One run of registration.
struct Run<'a> {
    registrar: &'a Registrar,
    handed: &'a Handed,
    progress: Progress,
    hub: Option<VerifiedHub>,
    /// What the last step asked by; none after a failure.
    client: Option<kube::Client>,
    started: Instant,
    rng: StdRng,
    poll: Backoff,
    retry: Backoff,
    /// What stood in the way last.
    obstacle: Option<(&'static str, Box<dyn std::error::Error + Send + Sync>)>,
    /// Since when the hub refuses the token.
    refused_since: Option<Instant>,
}

impl Run<'_> {
    async fn go(&mut self) -> Result<Outcome, Error> {
        loop {
            let step = self.decide();
            tracing::debug!(?step, "registration");
            let done = match step {
                Step::Ready => return self.outcome(None),
                Step::Fail(Failure::NoBootstrap) => return Err(self.bootstrap_error()),
                Step::Fail(failure @ Failure::CertificateExpired { .. }) => {
                    return self.outcome(Some(failure.into()));
                }
                Step::Fail(failure) => return Err(failure.into()),
                step => self.take(step).await,
            };
            match done {
                Ok(()) => {
                    self.retry.reset();
                    self.obstacle = None;
                    self.refused_since = None;
                }
                Err(obstacle) => self.wait_out(obstacle).await?,
            }
        }
    }

    /// Waits before the next attempt, where there may be one; says meanwhile what is in the way.
    async fn wait_out(&mut self, obstacle: Obstacle) -> Result<(), Error> {
        match obstacle {
            Obstacle::Lasting(error) if is_refused(&error) && self.settles() => {
                self.client = None;
                self.tell_refusal(&error).await;
                let pause = self.retry.next(&mut self.rng);
                // Whoever runs out of time hears of the refusal, not of what was waited for before.
                if !self.has_time_for(pause) {
                    return Err(error);
                }
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Obstacle::Lasting(error) => Err(error),
            Obstacle::Passing { action, source } => {
                self.client = None;
                self.tell(action, source.as_ref()).await;
                self.obstacle = Some((action, source));
                let pause = self.retry.next(&mut self.rng);
                self.pause(pause).await
            }
        }
    }

    /// Whether a refusal may yet pass.
    fn settles(&mut self) -> bool {
        let since = self.refused_since.get_or_insert_with(Instant::now);
        since.elapsed() < SETTLING
    }

    fn decide(&self) -> Step {
        let observed = Observed {
            stored: self.progress.stored.clone(),
            bootstrap: self.bootstrap().map(Bootstrap::fingerprint),
            cluster_id: self.registrar.cluster_id.clone(),
            hub_is_verified: self.hub.is_some(),
            csr: self.progress.csr.clone(),
        };
        decide::decide(self.registrar.env.clock.now(), &observed)
    }

    async fn take(&mut self, step: Step) -> Result<(), Obstacle> {
        match step {
            Step::Discover => self.discover().await,
            Step::MakeKey => self.make_key().await,
            Step::ReadCsr => {
                let client = self.token_client().map_err(Obstacle::Lasting)?;
                self.progress.read_csr(client).await.map_err(obstacle)
            }
            Step::CreateCsr => {
                let client = self.token_client().map_err(Obstacle::Lasting)?;
                let seconds = self.registrar.config.certificate_seconds;
                let created = self.progress.create_csr(client, seconds).await;
                created.map_err(obstacle)?;
                tracing::info!(csr = self.csr_name(), "asked for a certificate");
                Ok(())
            }
            Step::RenameCsr => {
                let renamed = self.progress.rename_csr(&mut self.rng).await;
                renamed.map_err(obstacle)
            }
            Step::WaitForCsr => self.wait_for_csr().await,
            Step::StoreCertificate(chain) => {
                let stored = self.progress.store_certificate(chain).await;
                stored.map_err(obstacle)?;
                tracing::info!("registered");
                Ok(())
            }
            // Handled by the caller.
            Step::Ready | Step::Fail(_) => Ok(()),
        }
    }

    async fn discover(&mut self) -> Result<(), Obstacle> {
        let Some(bootstrap) = self.bootstrap() else {
            return Ok(());
        };
        let found = discovery::discover(
            &bootstrap.servers,
            &self.handed.proxy,
            &bootstrap.token,
            &bootstrap.pins,
            &self.registrar.env,
        );
        match found.await {
            Ok(hub) => {
                self.hub = Some(hub);
                Ok(())
            }
            Err(
                error @ (discovery::Error::Unreachable { .. }
                | discovery::Error::NotAHub { .. }
                | discovery::Error::Changed { .. }),
            ) => Err(Obstacle::Passing {
                action: "verify the hub",
                source: Box::new(error),
            }),
            Err(error) => Err(Obstacle::Lasting(Error::Discovery(error))),
        }
    }

    async fn make_key(&mut self) -> Result<(), Obstacle> {
        let (Some(bootstrap), Some(hub)) = (self.bootstrap(), &self.hub) else {
            return Ok(());
        };
        let given = bootstrap.servers.iter().map(ToString::to_string);
        let servers = following::decide::servers(&hub.servers_from_cluster_info, given);
        let purpose = Purpose {
            cluster: bootstrap.cluster.clone(),
            cluster_id: self.registrar.cluster_id.clone(),
            renews: None,
            ca: String::from_utf8_lossy(&hub.ca_pem).into_owned(),
            servers,
            bootstrap: bootstrap.fingerprint(),
        };
        let made = self.progress.make_key(purpose, &mut self.rng).await;
        made.map_err(obstacle)
    }

    async fn wait_for_csr(&mut self) -> Result<(), Obstacle> {
        let message = format!(
            "waiting for the hub to judge and sign CSR {:?}",
            self.csr_name()
        );
        let reporter = &self.registrar.reporter;
        reporter
            .say(Phase::Registering, "WaitingForApproval", &message)
            .await;
        let pause = self.poll.next(&mut self.rng);
        self.pause(pause).await.map_err(Obstacle::Lasting)?;
        let client = self.token_client().map_err(Obstacle::Lasting)?;
        self.progress.read_csr(client).await.map_err(obstacle)
    }

    /// Waits, unless the time for registration is over.
    async fn pause(&mut self, pause: Duration) -> Result<(), Error> {
        if self.has_time_for(pause) {
            tokio::time::sleep(pause).await;
            return Ok(());
        }
        let after = self.registrar.config.registration_timeout;
        Err(match self.obstacle.take() {
            Some((action, source)) => Error::HubUnreachable {
                action,
                after,
                source,
            },
            None => Error::NotApproved {
                csr: self.csr_name().to_owned(),
                after,
            },
        })
    }

    fn has_time_for(&self, pause: Duration) -> bool {
        self.started.elapsed() + pause <= self.registrar.config.registration_timeout
    }

    /// A client that asks with the bootstrap token, at the hub the pending registration is for.
    fn token_client(&mut self) -> Result<kube::Client, Error> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let (Some(pending), Some(bootstrap)) = (&self.progress.stored.pending, self.bootstrap())
        else {
            return Err(self.bootstrap_error());
        };
        let target = HubTarget {
            credentials: Credentials::Bearer(bootstrap.token.bearer()),
            ..target(pending, self.handed, self.handed.proxy.clone())
        };
        let options = ClientOptions::new("agent registration").with_timeout(REQUEST_TIMEOUT);
        let client =
            hub_client(&target, &options, &self.registrar.env).map_err(Error::HubClient)?;
        Ok(self.client.insert(client).clone())
    }

    fn outcome(&mut self, expired: Option<Error>) -> Result<Outcome, Error> {
        let registration = self.progress.stored.current.clone();
        let registration = registration.ok_or_else(|| self.bootstrap_error())?;
        Ok(Outcome {
            progress: self.progress.clone().renewing(),
            registration,
            expired,
        })
    }

    fn bootstrap(&self) -> Option<&Bootstrap> {
        self.handed.bootstrap.as_ref().ok()
    }

    fn bootstrap_error(&self) -> Error {
        let why = self.handed.bootstrap.as_ref().err().cloned();
        Error::Bootstrap(why.unwrap_or_default())
    }

    fn csr_name(&self) -> &str {
        let pending = self.progress.stored.pending.as_ref();
        pending.map_or("", |pending| &pending.csr_name)
    }

    async fn tell_refusal(&self, error: &Error) {
        let message =
            format!("{error}; trying again for a moment, in case the hub has just started");
        tracing::warn!("{message}");
        let reason = error.code().as_str();
        let reporter = &self.registrar.reporter;
        reporter.say(Phase::Registering, reason, &message).await;
    }

    async fn tell(
        &self,
        action: &'static str,
        source: &(dyn std::error::Error + Send + Sync + 'static),
    ) {
        let message = format!("failed to {action}, trying again: {}", chain(source));
        if self.retry.failures() == 0 {
            tracing::warn!("{message}");
        } else {
            tracing::debug!("{message}");
        }
        let reporter = &self.registrar.reporter;
        reporter
            .say(Phase::Registering, "HubUnreachable", &message)
            .await;
    }
}

/// The hub of `registration`: the addresses handed over now, then those it was registered with.
pub fn target(registration: &Registration, handed: &Handed, proxy: ProxyChoice) -> HubTarget {
    let stored = registration.servers.iter();
    let mut servers = handed.servers.clone();
    for server in stored.filter_map(|text| HostPort::parse(text).ok()) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    HubTarget {
        servers,
        ca_pem: registration.ca.clone().into_bytes(),
        proxy,
        credentials: Credentials::Anonymous,
    }
}

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Hub { problem, .. } if is_refusal(problem))
}

fn obstacle(error: StepError) -> Obstacle {
    match error {
        StepError::Hub { action, source } => {
            let problem = classify(&source);
            if is_lasting(&problem) {
                Obstacle::Lasting(Error::Hub { action, problem })
            } else {
                Obstacle::Passing {
                    action,
                    source: Box::new(problem),
                }
            }
        }
        StepError::Store(error @ credentials::Error::Secret { .. }) => Obstacle::Passing {
            action: "keep the registration",
            source: Box::new(error),
        },
        StepError::Store(error) => Obstacle::Lasting(Error::Credentials(error)),
        StepError::Key(error) => Obstacle::Lasting(Error::Key(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use common::client::Problem;
    use common::time::{SharedClock, SimClock};

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        run: crate::config::RunArgs,
    }

    /// A token that ends while its request waits: said with the first answer, and no other end is told of.
    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_told_at_once_and_at_the_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let flags = ["agent", "--registration-timeout=8s"];
        let config = Cli::try_parse_from(flags).expect("flags").run;
        let base = chrono::DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        let clock: SharedClock = Arc::new(SimClock::starting_at(base));
        let registrar = Registrar {
            store: Arc::new(Store::in_directory(dir.path().join("state")).expect("a store")),
            cluster_id: "uid".to_owned(),
            config: config.into_config().expect("valid").hub,
            env: Env::seeded(clock.clone(), 1),
            reporter: Arc::new(Reporter::in_directory(dir.path(), clock)),
        };
        let handed = Handed {
            servers: Vec::new(),
            proxy: ProxyChoice::direct(),
            bootstrap: Err("none".to_owned()),
        };
        let progress = Progress::load(registrar.store.clone()).await;
        let mut run = Run {
            registrar: &registrar,
            handed: &handed,
            progress: progress.expect("loaded"),
            hub: None,
            client: None,
            started: Instant::now(),
            rng: registrar.env.chance.stream("registration"),
            poll: Backoff::new(POLL.0, POLL.1),
            retry: Backoff::new(RETRY.0, RETRY.1),
            obstacle: None,
            refused_since: None,
        };
        let refused = || {
            Obstacle::Lasting(Error::Hub {
                action: "read the CSR",
                problem: Problem::Api {
                    code: 401,
                    reason: "Unauthorized".to_owned(),
                    message: "Unauthorized".to_owned(),
                    retry_after: None,
                },
            })
        };
        run.wait_out(refused()).await.expect("tried again");
        let said = std::fs::read_to_string(dir.path().join("status.json")).expect("said");
        assert!(
            said.contains("TokenRejected") && said.contains("has expired"),
            "{said}"
        );
        let ended = loop {
            if let Err(error) = run.wait_out(refused()).await {
                break error;
            }
        };
        assert!(run.started.elapsed() < Duration::from_secs(9));
        assert_eq!(ended.code().as_str(), "TokenRejected", "{ended}");
    }
}
