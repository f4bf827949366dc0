//! The next step of one certificate request, from what was observed. Pure.
//!
//! One step at a time, and the world is read again before the next: a hub that dies between any two
//! steps goes on where it stopped. Everything that can refuse is asked before anything is written.

use super::observe::{Certificate, ClusterFacts, Observed, Progress, TokenFacts};
use crate::approver::{Denial, RegistrationRequest, Verdict};
use crate::token_secret::{Origin, Placement, Reservation, Token};
use chrono::{DateTime, SecondsFormat, Utc};
use common::denial::DenialReason;
use common::identity::{AgentSubject, RegistrationId};
use common::labels::REGISTERED_BY;
use common::names::ClusterName;
use std::time::Duration;

/// How often a spent token is looked at until its agents have shown a sign of life: at first, and in the
/// long run. Each request by the token looks, and a token may have thousands.
const SPENT_TOKEN_POLL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do until something changes.
    Done,
    /// Nothing to do now; look again.
    Recheck(Duration),
    /// Refuse the request.
    Deny {
        /// What the agent's operator reads.
        denial: Denial,
        /// The Cluster that rightfully has the cluster id, which is told of the attempt.
        holder: Option<ClusterName>,
    },
    /// Write this use into the token's Secret, if it is still as it was read.
    Reserve {
        /// The token as it was read.
        token: Box<Token>,
        /// The use.
        reservation: Reservation,
    },
    /// Make the Cluster.
    CreateCluster {
        /// Its name and registration.
        subject: AgentSubject,
        /// `spec.id`.
        cluster_id: String,
        /// The token that is used.
        by: Origin,
        /// Where it lies.
        placement: Placement,
        /// Its execution namespace is older than it: somebody may be watching.
        close_watches: bool,
    },
    /// Put this registration into the Cluster in place of the one it has.
    TakeOver {
        /// The Cluster as it was read.
        cluster: ClusterFacts,
        /// Its new registration.
        subject: AgentSubject,
        /// `spec.id`, for a Cluster that had none.
        cluster_id: String,
        /// The token that is used.
        by: Origin,
    },
    /// Put namespace, Lease and permissions in place.
    Grant {
        /// Name and registration.
        subject: AgentSubject,
        /// The Cluster as it was read.
        cluster: ClusterFacts,
    },
    /// End the watches of whoever had this name before, then forget them.
    CloseWatches {
        /// The Cluster as it was read.
        cluster: ClusterFacts,
    },
    /// Approve the very object that was judged.
    Approve {
        /// What the condition says.
        message: &'static str,
    },
    /// Note on the Cluster when its agent's certificate ends.
    NoteCertificate {
        /// The Cluster as it was read.
        cluster: ClusterFacts,
        /// The end.
        end: DateTime<Utc>,
    },
    /// The signer issued something else: take the registration's rights away.
    Revoke {
        /// The Cluster as it was read.
        cluster: ClusterFacts,
        /// The registration that ends.
        registration: RegistrationId,
        /// What is wrong with the certificate.
        why: String,
    },
    /// Delete a token of which nothing is left.
    DeleteToken {
        /// The token as it was read.
        token: Box<Token>,
    },
}

/// The messages of an approval, as Karmada's approver writes them.
pub(super) const APPROVED_BOOTSTRAP: &str =
    "Auto approving karmada agent certificate after SubjectAccessReview.";
/// The message for a renewal.
pub(super) const APPROVED_RENEWAL: &str =
    "Auto approving self karmada agent certificate after SubjectAccessReview.";

/// Decides the next step.
pub(super) fn decide(now: DateTime<Utc>, observed: &Observed) -> Step {
    let subject = match &observed.verdict {
        Verdict::Ignore => return Step::Done,
        Verdict::Deny(denial) => {
            return match observed.progress {
                Progress::Pending => refuse(denial.clone()),
                _ => Step::Done,
            };
        }
        Verdict::Bootstrap(request) => &request.subject,
        Verdict::Renewal(subject) => subject,
    };
    match (&observed.progress, &observed.verdict) {
        (Progress::Refused | Progress::Approved, _) => Step::Done,
        (Progress::Issued(certificate), verdict) => {
            after_signing(now, observed, subject, certificate, verdict)
        }
        (Progress::Pending, Verdict::Bootstrap(request)) => {
            register(now, observed, request).unwrap_or_else(|refused| *refused)
        }
        (Progress::Pending, _) => renew(observed, subject),
    }
}

fn register(
    now: DateTime<Utc>,
    observed: &Observed,
    request: &RegistrationRequest,
) -> Result<Step, Box<Step>> {
    let token = usable_token(now, observed, request)?;
    let cluster = usable_name(now, observed, request, token)?;
    if token.reservation(&request.subject.registration).is_none() {
        return Ok(Step::Reserve {
            token: Box::new(token.clone()),
            reservation: reservation(request),
        });
    }
    let Some(cluster) = cluster else {
        return Ok(Step::CreateCluster {
            subject: request.subject.clone(),
            cluster_id: request.cluster_id.clone(),
            by: token.origin(),
            placement: token.placement.clone(),
            close_watches: observed.namespace.is_some(),
        });
    };
    if cluster.registration.as_ref() != Some(&request.subject.registration) {
        return Ok(Step::TakeOver {
            cluster: cluster.clone(),
            subject: request.subject.clone(),
            cluster_id: request.cluster_id.clone(),
            by: token.origin().after(cluster.registered_by.as_ref()),
        });
    }
    if !observed.granted {
        return Ok(Step::Grant {
            subject: request.subject.clone(),
            cluster: cluster.clone(),
        });
    }
    if cluster.closing_watches.is_some() {
        return Ok(Step::CloseWatches {
            cluster: cluster.clone(),
        });
    }
    Ok(Step::Approve {
        message: APPROVED_BOOTSTRAP,
    })
}

/// The token, if it may be used for this request.
fn usable_token<'a>(
    now: DateTime<Utc>,
    observed: &'a Observed,
    request: &RegistrationRequest,
) -> Result<&'a Token, Box<Step>> {
    let id = &request.token_id;
    let spent = |message: String| Err(deny(DenialReason::TokenSpent, message));
    let token = match &observed.token {
        TokenFacts::Usable(token) => token,
        TokenFacts::Missing => {
            return spent(format!(
                "the bootstrap token {id:?} does not exist any more: it has expired, is spent or was \
                 deleted; make a new one with `towline token create`"
            ));
        }
        TokenFacts::Unusable(why) => {
            return spent(format!("the bootstrap token {id:?} cannot be used: {why}"));
        }
    };
    if token.created > observed.created {
        return spent(format!(
            "the bootstrap token {id:?} was made after this request, by the hub's clock; make a new one \
             with `towline token create`"
        ));
    }
    let name = &request.subject.cluster;
    if let Some(bound) = token.cluster.as_ref().filter(|bound| *bound != name) {
        return Err(deny(
            DenialReason::TokenForAnotherCluster,
            format!(
                "the bootstrap token {id:?} is for cluster {:?}, not {:?}",
                bound.as_str(),
                name.as_str()
            ),
        ));
    }
    match token.reservation(&request.subject.registration) {
        Some(used) if *used == reservation(request) => Ok(token),
        Some(used) => spent(format!(
            "this agent's key has used the bootstrap token {id:?} already, as cluster {:?} with the \
             cluster ID {:?}",
            used.cluster, used.cluster_id
        )),
        None if token.is_expired(now) => spent(format!(
            "the bootstrap token {id:?} has expired; make a new one with `towline token create`"
        )),
        None if token.is_spent() => spent(format!(
            "the bootstrap token {id:?} is spent: each of its {} use(s) belongs to another agent; \
             make a new one with `towline token create`",
            token.uses
        )),
        None => Ok(token),
    }
}

/// The Cluster of the requested name, if there is one and the request may have it.
fn usable_name<'a>(
    now: DateTime<Utc>,
    observed: &'a Observed,
    request: &RegistrationRequest,
    token: &Token,
) -> Result<Option<&'a ClusterFacts>, Box<Step>> {
    let name = request.subject.cluster.as_str();
    let id = &request.cluster_id;
    let registered = format!("the cluster ID {id} or the cluster name {name} has been registered");
    if let Some(holder) = &observed.same_id {
        return Err(Box::new(Step::Deny {
            denial: Denial {
                reason: DenialReason::ClusterIdTaken,
                message: registered,
            },
            holder: Some(holder.clone()),
        }));
    }
    let taken = |message| Err(deny(DenialReason::ClusterNameTaken, message));
    let Some(cluster) = &observed.cluster else {
        let strangers = observed.namespace.as_deref().unwrap_or_default();
        if !strangers.is_empty() {
            return taken(format!(
                "the namespace {} exists with RoleBindings that Towline did not write ({}); remove \
                 them or the namespace",
                request.subject.cluster.execution_namespace(),
                strangers.join(", ")
            ));
        }
        return Ok(None);
    };
    if cluster.deleting {
        return taken(format!(
            "the cluster {name} is being deleted; ask again when it is gone"
        ));
    }
    let same_key = cluster.registration.as_ref() == Some(&request.subject.registration);
    let may_replace = token.replace && token.cluster.is_some();
    if !same_key && !may_replace {
        return taken(format!("{registered}; {}", again(cluster)));
    }
    if let Some(by) = &cluster.registered_by
        && !same_key
        && is_superseded(token, request, by, cluster)
    {
        let mend = match by.created > now {
            true => format!(
                "that time is still to come, so the hub's clock was ahead: take the note of it off with \
                 `kubectl annotate cluster {name} {REGISTERED_BY}-`, and have the agent ask again"
            ),
            false => again(cluster),
        };
        return taken(format!(
            "another agent has been registered for the cluster {name} since, by the bootstrap token {:?} of {}; {mend}",
            by.id,
            by.created.to_rfc3339_opts(SecondsFormat::Secs, true),
        ));
    }
    if cluster.id.as_ref().is_some_and(|held| held != id) {
        return Err(deny(
            DenialReason::ClusterIdTaken,
            format!("{registered}: the cluster {name} has another cluster ID than this member"),
        ));
    }
    Ok(Some(cluster))
}

/// Whether a Cluster's registration came by a later use than this one of this token: of two agents that are registered
/// for one Cluster at the same time each would otherwise undo what the other one has begun, without end.
fn is_superseded(
    token: &Token,
    request: &RegistrationRequest,
    by: &Origin,
    cluster: &ClusterFacts,
) -> bool {
    let use_of = |registration: &RegistrationId| {
        let mut uses = token.reservations.iter();
        uses.position(|used| used.registration == registration.as_str())
    };
    if token.created != by.created {
        return token.created < by.created;
    }
    if token.id != by.id {
        return by.over.contains(&token.id);
    }
    let ours = use_of(&request.subject.registration);
    let held = cluster.registration.as_ref().and_then(use_of);
    ours.is_some() && ours < held
}

/// How a Cluster that is registered is registered anew.
fn again(cluster: &ClusterFacts) -> String {
    let name = &cluster.name;
    if cluster.joined {
        return format!("to register it anew, run `towline join {name} --cluster-kubeconfig FILE`");
    }
    format!(
        "to register it anew, make a token with `towline token create --cluster {name} --replace`"
    )
}

fn renew(observed: &Observed, subject: &AgentSubject) -> Step {
    let name = subject.cluster.as_str();
    let gone = |message| *deny(DenialReason::RegistrationGone, message);
    match &observed.cluster {
        None => gone(format!("the cluster {name} is not registered")),
        Some(cluster) if cluster.deleting => gone(format!("the cluster {name} is being deleted")),
        Some(cluster) if cluster.registration.as_ref() != Some(&subject.registration) => gone(
            format!("this registration of the cluster {name} is no longer in force"),
        ),
        Some(_) => Step::Approve {
            message: APPROVED_RENEWAL,
        },
    }
}

fn after_signing(
    now: DateTime<Utc>,
    observed: &Observed,
    subject: &AgentSubject,
    certificate: &Certificate,
    verdict: &Verdict,
) -> Step {
    let wrong = match certificate {
        Ok(issued) if issued == subject => None,
        Ok(issued) => Some(format!("it names {}", issued.common_name())),
        Err(why) => Some(why.to_string()),
    };
    if let Some(why) = wrong {
        let id = &subject.registration;
        let in_force = |cluster: &&ClusterFacts| match &cluster.registration {
            Some(registration) => registration == id,
            // Already said to be over, but the rights may still be there.
            None => cluster.closing_watches.as_deref() == Some(id.as_str()),
        };
        return match observed.cluster.as_ref().filter(in_force) {
            Some(cluster) => Step::Revoke {
                cluster: cluster.clone(),
                registration: id.clone(),
                why,
            },
            None => Step::Done,
        };
    }
    if let (Some(end), Some(cluster)) = (observed.certificate_end, &observed.cluster)
        && cluster.registration.as_ref() == Some(&subject.registration)
        && cluster.certificate_end.is_none_or(|noted| noted < end)
    {
        let cluster = cluster.clone();
        return Step::NoteCertificate { cluster, end };
    }
    match (&observed.token, verdict) {
        (TokenFacts::Usable(token), Verdict::Bootstrap(request))
            if token.is_spent() && token.reservation(&request.subject.registration).is_some() =>
        {
            // Until its certificate is in use, the agent reads the answer with the token itself.
            if observed.agents_alive {
                Step::DeleteToken {
                    token: token.clone(),
                }
            } else if token.is_expired(now) {
                Step::Done
            } else {
                Step::Recheck(spent_token_poll(now, observed.created))
            }
        }
        _ => Step::Done,
    }
}

/// A quarter of the time it has waited already: who takes long may take longer.
fn spent_token_poll(now: DateTime<Utc>, created: DateTime<Utc>) -> Duration {
    let waited = now.signed_duration_since(created).to_std();
    let (first, longest) = SPENT_TOKEN_POLL;
    (waited.unwrap_or_default() / 4).clamp(first, longest)
}

fn reservation(request: &RegistrationRequest) -> Reservation {
    Reservation {
        registration: request.subject.registration.as_str().to_owned(),
        cluster: request.subject.cluster.to_string(),
        cluster_id: request.cluster_id.clone(),
    }
}

fn deny(reason: DenialReason, message: String) -> Box<Step> {
    Box::new(refuse(Denial { reason, message }))
}

fn refuse(denial: Denial) -> Step {
    Step::Deny {
        denial,
        holder: None,
    }
}
