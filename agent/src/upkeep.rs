//! Keeps the registration in good order while the agent works: renews its certificate, follows the
//! hub's addresses and authorities, and notices when the operator hands over a new bootstrap.

use crate::context::{Certified, ErrorReport};
use crate::credentials::Registration;
use crate::error::{Error, is_lasting};
use crate::following::decide::{Decision, News, decide};
use crate::following::{self, Pace};
use crate::hub::HubHandle;
use crate::hub::connect::Registered;
use crate::registration::bootstrap::{self, Handed};
use crate::registration::decide::Step;
use crate::registration::progress::{Progress, Purpose, StepError};
use crate::registration::{Registrar, certificate, target};
use crate::report::Phase;
use crate::rotation::{self, Renewal, Schedule};
use common::client::{ClientOptions, Credentials, HubTarget, Problem, classify, hub_client};
use common::discovery::CaPin;
use common::env::Env;
use common::errors::chain;
use common::signal;
use common::tls::{self, CertificateSwap};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The part's names in the agent's errors.
const CERTIFICATE: &str = "certificate";
const BOOTSTRAP: &str = "bootstrap";
/// Wait between two looks at the CSR of a renewal.
const POLL: Duration = Duration::from_secs(1);
/// How long one renewal may take before it is tried again at the next check.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(120);
/// Deadline of the request that proves what the hub published; several addresses may have to be tried.
const PROOF_TIMEOUT: Duration = Duration::from_secs(20);
/// How many authorities the status names; hubs have one, and two while one replaces another.
const AUTHORITIES_SHOWN: usize = 16;
/// How long a bootstrap that was refused is left alone while it does not change.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// Puts a registration in force: what TLS shows, where requests go, what status says.
#[derive(Clone)]
pub struct InForce {
    /// What TLS shows.
    pub swap: CertificateSwap,
    /// What the status says of it.
    pub certified: signal::Sender<Certified>,
    /// What clients are made with.
    pub env: Env,
}

impl InForce {
    /// Shows the certificate of `registration` from now on, and returns the way to its hub.
    pub fn show(&self, registration: &Registration, handed: &Handed) -> Result<Registered, Error> {
        let chain = registration.certificate.as_deref().unwrap_or_default();
        self.swap
            .set(chain.as_bytes(), registration.key.expose().as_bytes())
            .map_err(Error::Pair)?;
        self.certified.send_replace(certified(registration));
        Ok(Registered {
            target: self.target(registration, handed),
            env: self.env.clone(),
        })
    }

    /// The hub of `registration`, by the certificate that is in force.
    fn target(&self, registration: &Registration, handed: &Handed) -> HubTarget {
        HubTarget {
            credentials: Credentials::Certificate(self.swap.clone()),
            ..target(registration, handed, handed.proxy.clone())
        }
    }
}

fn certified(registration: &Registration) -> Certified {
    let chain = registration.certificate.as_deref().unwrap_or_default();
    let leaf = tls::certificates(chain.as_bytes()).unwrap_or_default();
    let pins = CaPin::of_pem(registration.ca.as_bytes()).unwrap_or_default();
    Certified {
        ends: certificate::validity(chain).map(|v| v.not_after),
        issuer: leaf.first().and_then(|der| tls::issuer(der).ok()),
        authorities: pins
            .iter()
            .take(AUTHORITIES_SHOWN)
            .map(CaPin::to_string)
            .collect(),
    }
}

/// The keeper of one term.
pub struct Keeper {
    /// How to register.
    pub registrar: Arc<Registrar>,
    /// Where the bootstrap Secret lies; none with a state directory.
    pub secrets: Option<Api<Secret>>,
    /// The bootstrap as seen last.
    pub handed: Handed,
    /// Where the renewal of the registration stands.
    pub progress: Progress,
    /// The registration that was put in force last.
    pub applied: Option<Registration>,
    /// What is in force.
    pub in_force: InForce,
    /// The hub.
    pub hub: HubHandle,
    /// Where errors go.
    pub errors: ErrorReport,
    /// When renewal starts.
    pub schedule: Schedule,
    /// When the hub is asked about itself.
    pub pace: Pace,
    /// Names requests.
    pub rng: StdRng,
}

impl Keeper {
    /// Keeps things in order until a new registration replaces the one in force.
    pub async fn run(mut self) {
        let mut refused: Option<(String, Instant)> = None;
        loop {
            self.read_bootstrap().await;
            if refused.is_some() && !self.is_asked_anew() {
                refused = None;
                self.errors.clear(BOOTSTRAP);
                let message = "at work by the registration that was kept";
                let reporter = &self.registrar.reporter;
                reporter.say(Phase::Running, "Registered", message).await;
            }
            if self.is_asked_anew()
                && let Ok(new) = &self.handed.bootstrap
            {
                let print = new.fingerprint().0;
                let rests = refused
                    .as_ref()
                    .is_some_and(|(of, until)| *of == print && Instant::now() < *until);
                if !rests {
                    if self.register_anew().await {
                        return;
                    }
                    refused = Some((print, Instant::now() + REFUSED_PAUSE));
                }
            }
            if self.pace.is_due() {
                self.follow_hub().await;
                self.pace.asked();
            }
            match tokio::time::timeout(RENEWAL_TIMEOUT, self.renew()).await {
                Ok(Ok(())) => self.errors.clear(CERTIFICATE),
                Ok(Err(error)) => self.complain(CERTIFICATE, &chain(&error).to_string()),
                Err(_) => self.complain(CERTIFICATE, "the hub did not sign a renewal in time"),
            }
            // Also after a failure: what was stored, by us or by a sibling, is what counts.
            if self.progress.stored.current != self.applied
                && let Err(error) = self.apply().await
            {
                self.complain(CERTIFICATE, &chain(&error).to_string());
            }
            self.tell_the_end().await;
            let pause = self.pause().min(self.pace.left());
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                () = self.pace.back() => {}
            }
        }
    }

    async fn read_bootstrap(&mut self) {
        let flags = &self.registrar.config.bootstrap;
        let handed = match bootstrap::read(flags, self.secrets.as_ref()).await {
            Ok(handed) => handed,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "the bootstrap was not read");
                return;
            }
        };
        let moved = handed.servers != self.handed.servers;
        self.handed = handed;
        if moved && let Err(error) = self.apply().await {
            self.complain(BOOTSTRAP, &chain(&error).to_string());
        }
    }

    /// Takes over what the hub says about its addresses and authorities.
    async fn follow_hub(&mut self) {
        match self.ask_hub().await {
            Ok(()) => self.errors.clear(following::PART),
            // Whether the hub is there is the heartbeat's to say.
            Err(following::Error::Read(problem)) if !problem.is_answer() => {
                tracing::debug!(%problem, "cluster-info was not read");
            }
            Err(error) => self.complain(following::PART, &chain(&error).to_string()),
        }
    }

    async fn ask_hub(&mut self) -> Result<(), following::Error> {
        let Some(current) = self.progress.stored.current.clone() else {
            return Ok(());
        };
        let published = following::read(self.hub.client()).await?;
        let news = match decide(&current, &published) {
            Decision::Keep => return Ok(()),
            Decision::Store(news) => news,
            Decision::Prove(news) => {
                following::prove(self.client_by(&current, &news)?, &published).await?;
                news
            }
        };
        match self.progress.follow_hub(&news).await {
            Ok(()) => tracing::info!(
                servers = news.servers.join(","),
                authorities = published.authorities.len(),
                signer_changed = news.signer_changed,
                "the hub says something new about itself"
            ),
            // Read again at the next look.
            Err(error) => self.complain(following::PART, &chain(&error).to_string()),
        }
        Ok(())
    }

    /// A client of our hub that trusts only these authorities.
    fn client_by(&self, of: &Registration, news: &News) -> Result<Client, following::Error> {
        let of = Registration {
            ca: news.ca.clone(),
            servers: news.servers.clone(),
            ..of.clone()
        };
        let target = self.in_force.target(&of, &self.handed);
        let options = ClientOptions::new("agent proof").with_timeout(PROOF_TIMEOUT);
        hub_client(&target, &options, &self.registrar.env)
            .map_err(|error| following::Error::Unusable(chain(&error).to_string()))
    }

    fn is_asked_anew(&self) -> bool {
        let current = self.progress.stored.current.as_ref();
        let bootstrap = self.handed.bootstrap.as_ref().ok();
        match (current, bootstrap) {
            (Some(current), Some(new)) => current.bootstrap != new.fingerprint(),
            _ => false,
        }
    }

    /// Registers by the new bootstrap; until that has succeeded this agent works on by the earlier registration.
    async fn register_anew(&mut self) -> bool {
        tracing::info!("the bootstrap has changed: registering anew");
        match self.registrar.register(&self.handed).await {
            Ok(_) => true,
            Err(error) => {
                let message = not_anew(&error);
                self.complain(BOOTSTRAP, &message);
                let reporter = &self.registrar.reporter;
                let reason = error.code().as_str();
                reporter.say(Phase::Failed, reason, &message).await;
                if let Ok(progress) = Progress::load(self.registrar.store.clone()).await {
                    self.progress = progress.renewing();
                }
                false
            }
        }
    }

    /// Says that the certificate has ended, which only an operator can mend.
    async fn tell_the_end(&self) {
        let ends = self.in_force.certified.borrow().ends;
        if ends.is_some_and(|ends| self.registrar.env.clock.now() >= ends) {
            let error = Error::CertificateExpired(ends);
            let reason = error.code().as_str();
            let reporter = &self.registrar.reporter;
            let message = error.to_string();
            reporter.say(Phase::Failed, reason, &message).await;
        }
    }

    /// Renews the certificate if it is due.
    async fn renew(&mut self) -> Result<(), Error> {
        loop {
            let now = self.registrar.env.clock.now();
            let Progress { stored, csr, .. } = &self.progress;
            let step = match rotation::decide(now, self.schedule, stored, csr) {
                Renewal::Sleep(_) => return Ok(()),
                Renewal::Take(step) => step,
            };
            tracing::debug!(?step, "renewal");
            let client = self.hub.client();
            let taken = match step {
                Step::MakeKey => self.make_key().await,
                Step::ReadCsr => self.progress.read_csr(client).await,
                Step::CreateCsr => {
                    let seconds = self.registrar.config.certificate_seconds;
                    self.progress.create_csr(client, seconds).await
                }
                Step::RenameCsr => self.progress.rename_csr(&mut self.rng).await,
                Step::WaitForCsr => {
                    tokio::time::sleep(POLL).await;
                    self.progress.read_csr(client).await
                }
                Step::StoreCertificate(chain) => self.progress.store_certificate(chain).await,
                Step::Fail(failure) => {
                    // The next attempt asks by another name.
                    let renamed = self.progress.rename_csr(&mut self.rng).await;
                    renamed.map_err(renewal_error)?;
                    return Err(failure.into());
                }
                Step::Ready | Step::Discover => return Ok(()),
            };
            taken.map_err(renewal_error)?;
        }
    }

    async fn make_key(&mut self) -> Result<(), StepError> {
        let Some(current) = self.progress.stored.current.clone() else {
            return Ok(());
        };
        let purpose = Purpose {
            cluster: current.cluster,
            cluster_id: current.cluster_id,
            renews: Some(current.id),
            ca: current.ca,
            servers: current.servers,
            bootstrap: current.bootstrap,
        };
        self.progress.make_key(purpose, &mut self.rng).await
    }

    /// Puts the stored registration in force and lets everybody connect anew.
    async fn apply(&mut self) -> Result<(), Error> {
        let Some(current) = &self.progress.stored.current else {
            return Ok(());
        };
        let connector = self.in_force.show(current, &self.handed)?;
        self.hub.replace(Arc::new(connector)).await?;
        let ends = self.in_force.certified.borrow().ends;
        let ends = ends.map(|at| at.to_rfc3339());
        tracing::info!(certificate_ends = ends, "connecting anew");
        self.applied.clone_from(&self.progress.stored.current);
        Ok(())
    }

    /// Until the next look: sooner when the certificate is due sooner.
    fn pause(&self) -> Duration {
        let usual = self.registrar.config.checking_interval;
        let now = self.registrar.env.clock.now();
        let Progress { stored, csr, .. } = &self.progress;
        match rotation::decide(now, self.schedule, stored, csr) {
            Renewal::Sleep(until) => (until - now).to_std().map_or(usual, |left| left.min(usual)),
            Renewal::Take(_) => usual,
        }
    }

    fn complain(&self, part: &'static str, message: &str) {
        tracing::warn!(part, error = message, "the registration needs attention");
        self.errors.report(part, &message);
    }
}

/// What is said of a registration by a new bootstrap that failed. The hub may have ended the earlier one all the same:
/// for another agent, or for this one before it failed.
fn not_anew(error: &Error) -> String {
    format!(
        "{}; this agent works on by its earlier registration, if that is still in force",
        chain(error)
    )
}

fn renewal_error(error: StepError) -> Error {
    match error {
        StepError::Hub { action, source } => match classify(&source) {
            problem @ Problem::Api { .. } if is_lasting(&problem) => Error::Denied {
                known: None,
                reason: format!("failed to {action}"),
                message: problem.to_string(),
            },
            problem => Error::Hub { action, problem },
        },
        StepError::Store(error) => Error::Credentials(error),
        StepError::Key(error) => Error::Key(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::denial::DenialReason;

    #[test]
    fn nobody_is_promised_that_the_earlier_registration_stays_in_force() {
        let denied = |known: DenialReason| Error::Denied {
            known: Some(known),
            reason: known.as_str().to_owned(),
            message: "another agent was registered".to_owned(),
        };
        for error in [
            denied(DenialReason::ClusterNameTaken),
            denied(DenialReason::RegistrationGone),
            Error::NotSigned("no".to_owned()),
        ] {
            let said = not_anew(&error);
            assert!(said.starts_with(&error.to_string()), "{said}");
            assert!(said.ends_with("if that is still in force"), "{said}");
        }
    }
}
