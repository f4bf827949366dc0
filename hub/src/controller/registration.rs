//! Registers agents: judges certificate requests, writes what a registration consists of, approves.
//!
//! The order is judge, token, reservation, Cluster, namespace and permissions, approval; each step can be
//! repeated, and after each the world is read again. A request is taken one at a time up to the point
//! where its name and cluster id are its own, and one at a time of each cluster ([`claims`]). What an agent
//! may then do is in [`crate::permissions`]; who was there before is shut out by [`crate::epoch`].

pub(crate) use apply::UNKNOWN_REGISTRATION;
pub(crate) use claims::{Claim, Claims};
pub(crate) use observe::clusters;

mod alive;
mod apply;
#[cfg(test)]
mod beyond;
mod claims;
pub(crate) mod condition;
mod decide;
mod observe;
#[cfg(test)]
mod tests;
pub(crate) mod withhold;

use crate::approver::{Denial, Verdict};
use crate::budget::{Ledger, State};
use crate::world::{Index, World};
use crate::{epoch, permissions};
use alive::Silent;
use common::controller::{Controller, Failure, Reconcile, Requeue};
use common::denial::DenialReason;
use common::signal;
use common::time::SharedClock;
use decide::{Step, decide};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use observe::Progress;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A registration takes seven steps; more are conflicts.
const STEPS_MAX: usize = 24;
/// How long to wait for the admission policies to be in force.
const NOT_ADMITTING: Duration = Duration::from_secs(2);

/// Why a request could not be dealt with now; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("failed to {doing} {name:?}")]
    Request {
        /// What was being done.
        doing: &'static str,
        /// To which object.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Permissions could not be read or written.
    #[error(transparent)]
    Permissions(permissions::Error),
    /// Watches could not be closed.
    #[error(transparent)]
    Watches(epoch::Error),
    /// Conflicts without end.
    #[error("failed to settle CertificateSigningRequest {0:?}: it kept changing")]
    Unsettled(String),
}

impl Error {
    /// Wraps a failed request.
    pub(crate) fn request(doing: &'static str, name: &str) -> impl FnOnce(kube::Error) -> Self {
        let name = name.to_owned();
        move |source| Self::Request {
            doing,
            name,
            source: Box::new(source),
        }
    }

    /// The code of the API server's answer, if there was one.
    fn code(&self) -> Option<u16> {
        let status = match self {
            Self::Request { source, .. } => match &**source {
                kube::Error::Api(status) => Some(&**status),
                _ => None,
            },
            Self::Permissions(error) => error.status(),
            Self::Watches(_) | Self::Unsettled(_) => None,
        };
        status.map(|status| status.code)
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "RequestFailed",
            Self::Permissions(_) => "PermissionsFailed",
            Self::Watches(_) => "WatchesStillOpen",
            Self::Unsettled(_) => "Unsettled",
        }
    }

    fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }
}

/// The registration controller; its keys are names of certificate requests.
pub struct Registrar {
    client: Client,
    clock: SharedClock,
    /// Whether the admission policies are proven to be in force.
    admitting: signal::Receiver<bool>,
    /// Names of Clusters by their id.
    ids: Index<Box<str>>,
    claims: Claims,
    silent: Silent,
    /// The requests of ours that were seen, by who made them.
    ledger: Mutex<Ledger>,
}

impl Registrar {
    /// Makes the controller; while `admitting` is false, nobody new is registered. `ids` are names of Clusters by
    /// their id.
    pub fn new(
        client: Client,
        clock: SharedClock,
        admitting: signal::Receiver<bool>,
        ids: Index<Box<str>>,
    ) -> Self {
        Self {
            client,
            clock,
            admitting,
            ids,
            claims: Claims::new(),
            silent: Silent::default(),
            ledger: Mutex::default(),
        }
    }

    /// Woken by every change of a certificate request for our signer, also by its end.
    pub fn watching(self, world: &World) -> Controller<Self> {
        let controller = Controller::new(self);
        let queue = controller.queue();
        world.requests.on_change(move |change| {
            if change.is_written() {
                queue.add(Arc::clone(&change.name.name));
            }
        });
        controller
    }

    /// Its claims, for who else gives or takes the rights of clusters.
    pub(crate) fn claims(&self) -> Claims {
        self.claims.clone()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is among those that its requester may have; the first ones seen are.
    fn is_within_budget(&self, name: &str, csr: &CertificateSigningRequest) -> bool {
        let user = csr.spec.username.as_deref().unwrap_or_default();
        let groups = csr.spec.groups.as_deref().unwrap_or_default();
        let state = match observe::progress(csr) {
            Progress::Pending | Progress::Approved => State::Waiting,
            Progress::Refused => State::Refused,
            Progress::Issued(_) => State::Issued,
        };
        let mut ledger = self.ledger();
        let within = ledger.has(name) || ledger.allows(user, groups, 0);
        if within {
            ledger.put(name, user, state);
        }
        within
    }

    /// Deletes a request without judging it: whoever has so many is not waiting for this one.
    async fn drop_request(&self, name: &str, raw: &DynamicObject) -> Result<(), Error> {
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: raw.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match requests.delete(name, &params).await {
            Ok(_) => Ok(()),
            // Somebody else did, or it is another one by now, which comes anew.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(Error::request("delete CertificateSigningRequest", name)(
                error,
            )),
        }
    }

    async fn read(&self, name: &str) -> Result<Option<DynamicObject>, Error> {
        let requests = ApiResource::erase::<CertificateSigningRequest>(&());
        let requests: Api<DynamicObject> = Api::all_with(self.client.clone(), &requests);
        let read = requests.get_opt(name).await;
        read.map_err(Error::request("read CertificateSigningRequest", name))
    }
}

impl Reconcile for Registrar {
    const NAME: &'static str = "registration";
    type Key = Arc<str>;
    type Error = Error;

    /// Brings one request as far as it can go.
    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Error> {
        let mut granted = false;
        for _ in 0..STEPS_MAX {
            let Some(raw) = self.read(name).await? else {
                self.ledger().remove(name);
                return Ok(Requeue::Never);
            };
            let Ok(csr) = raw.clone().try_parse::<CertificateSigningRequest>() else {
                // The API server validates this kind: what we cannot read is not what we serve.
                tracing::warn!(
                    object.name = %name,
                    "skipping a certificate request that cannot be read"
                );
                return Ok(Requeue::Never);
            };
            let verdict = observe::verdict(&csr);
            if verdict != Verdict::Ignore && !self.is_within_budget(name, &csr) {
                let user = csr.spec.username.as_deref().unwrap_or_default();
                tracing::warn!(
                    object.name = %name,
                    user,
                    "deleting a certificate request beyond its requester's budget"
                );
                self.drop_request(name, &raw).await?;
                return Ok(Requeue::Never);
            }
            let claim = match verdict {
                Verdict::Ignore => return Ok(Requeue::Never),
                Verdict::Bootstrap(request) => {
                    let claims = matches!(observe::progress(&csr), Progress::Pending);
                    self.claims.of(&request.subject.cluster, claims).await
                }
                Verdict::Renewal(subject) => self.claims.of(&subject.cluster, false).await,
                Verdict::Deny(_) => Claim::default(),
            };
            let (ids, silent) = (&self.ids, &self.silent);
            let observed = observe::observe(&self.client, ids, silent, &csr, granted).await?;
            let step = decide(self.clock.now(), &observed);
            match &step {
                Step::Done => return Ok(Requeue::Never),
                Step::Recheck(after) => return Ok(Requeue::After(*after)),
                Step::Deny { .. } => {}
                _ if !*self.admitting.borrow() => return Ok(Requeue::After(NOT_ADMITTING)),
                _ => {}
            }
            let _claim = claim.during(&step);
            let applied = apply::apply(&self.client, self.clock.now(), &raw, &step).await;
            granted |= matches!(step, Step::Grant { .. }) && applied.is_ok();
            match applied {
                Ok(()) => log(name, &step),
                // Somebody was faster: decide again on what is there now.
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                Err(error) => match refusal(&step, &error) {
                    Some(step) => {
                        apply::apply(&self.client, self.clock.now(), &raw, &step).await?;
                    }
                    None => return Err(error),
                },
            }
        }
        Err(Error::Unsettled(name.to_string()))
    }
}

/// The refusal that an API server's own "invalid" stands for: a token with a placement it rejects, or with more uses
/// than its Secret can hold.
fn refusal(step: &Step, error: &Error) -> Option<Step> {
    if error.code() != Some(422) {
        return None;
    }
    let denial = match step {
        Step::CreateCluster { .. } | Step::TakeOver { .. } => Denial {
            reason: DenialReason::RequestNotAllowed,
            message: format!(
                "the Cluster cannot be written: {}",
                common::errors::chain(error)
            ),
        },
        Step::Reserve { token, .. } => Denial {
            reason: DenialReason::TokenSpent,
            message: format!(
                "no more uses can be noted in the Secret of the bootstrap token {:?}, which has {}; make a new one \
                 with `towline token create`",
                token.id,
                token.reservations.len()
            ),
        },
        _ => return None,
    };
    Some(Step::Deny {
        denial,
        holder: None,
    })
}

/// One line for each change an operator would want to see.
fn log(name: &str, step: &Step) {
    match step {
        Step::Deny { denial, .. } => tracing::info!(
            object.name = name,
            reason = denial.reason.as_str(),
            denial.message,
            "denied a certificate request"
        ),
        Step::Approve { .. } => {
            tracing::info!(object.name = name, "approved a certificate request");
        }
        Step::CreateCluster { subject, .. } => {
            tracing::info!(cluster = %subject.cluster, "created a Cluster for its agent");
        }
        Step::TakeOver { cluster, .. } => {
            tracing::info!(cluster = %cluster.name, "registering a Cluster anew");
        }
        Step::DeleteToken { token } => tracing::info!(token.id, "deleted a spent bootstrap token"),
        _ => {}
    }
}
