//! What registration does next, from what is stored, handed over and seen on the hub.
//!
//! Pure. Every step is stored or repeatable before the next one starts, so that a kill at any point
//! leads back to the same registration.

use super::certificate::{self, Unusable};
use crate::credentials::{Fingerprint, Registration, Stored};
use chrono::{DateTime, Utc};
use common::denial::DenialReason;

/// Everything the decision looks at.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The stored document, as read last.
    pub stored: Stored,
    /// What the operator has handed over; none when there is no complete bootstrap.
    pub bootstrap: Option<Fingerprint>,
    /// UID of the member's `kube-system`.
    pub cluster_id: String,
    /// Whether the hub was verified against this bootstrap's pins in this process.
    pub hub_is_verified: bool,
    /// The CSR of the pending registration.
    pub csr: Csr,
}

/// The CSR of the pending registration, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Csr {
    /// Not looked at yet.
    Unread,
    /// The hub has none of this name.
    Absent,
    /// The hub has one of this name for another key.
    Foreign,
    /// Neither approved nor refused.
    Waiting,
    /// Approved, not signed yet.
    Approved,
    /// Signed.
    Issued(String),
    /// Refused.
    Denied {
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// Approved, but the signer could not sign it.
    Failed {
        /// The condition's message.
        message: String,
    },
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Work with the stored registration.
    Ready,
    /// Verify the hub by pin and signature.
    Discover,
    /// Make a key and store it as a pending registration.
    MakeKey,
    /// Read the pending registration's CSR.
    ReadCsr,
    /// Create the pending registration's CSR.
    CreateCsr,
    /// Store another CSR name for the pending registration: this one belongs to somebody else.
    RenameCsr,
    /// Wait, and read the CSR again.
    WaitForCsr,
    /// Make the pending registration the current one, with this certificate.
    StoreCertificate(String),
    /// Stop.
    Fail(Failure),
}

/// Why registration cannot go on by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Nothing is stored and nothing was handed over.
    NoBootstrap,
    /// The stored certificate has ended and the bootstrap is the one it was made with.
    CertificateExpired {
        /// When it ended; none when it cannot be read.
        at: Option<DateTime<Utc>>,
    },
    /// The stored registration was made for another member.
    OtherMember {
        /// The member it was made for.
        stored: String,
        /// This member.
        found: String,
    },
    /// The hub refused.
    Denied {
        /// One of the hub's own reasons, if it is one.
        known: Option<DenialReason>,
        /// The reason as written.
        reason: String,
        /// The message as written.
        message: String,
    },
    /// The signer could not sign.
    NotSigned {
        /// The signer's message.
        message: String,
    },
    /// What was signed is not what was asked for.
    Unusable(Unusable),
}

/// Decides the next step.
pub fn decide(now: DateTime<Utc>, observed: &Observed) -> Step {
    let stored = &observed.stored;
    let kept = stored.current.as_ref().or(stored.pending.as_ref());
    if let Some(kept) = kept
        && kept.cluster_id != observed.cluster_id
    {
        return Step::Fail(Failure::OtherMember {
            stored: kept.cluster_id.clone(),
            found: observed.cluster_id.clone(),
        });
    }
    match (&observed.bootstrap, &stored.current) {
        (None, None) => Step::Fail(Failure::NoBootstrap),
        (None, Some(current)) => use_current(now, current),
        (Some(bootstrap), Some(current)) if current.bootstrap == *bootstrap => {
            use_current(now, current)
        }
        (Some(bootstrap), _) => register(now, observed, bootstrap),
    }
}

fn use_current(now: DateTime<Utc>, current: &Registration) -> Step {
    let chain = current.certificate.as_deref().unwrap_or_default();
    match certificate::validity(chain) {
        Some(validity) if !validity.is_over(now) => Step::Ready,
        validity => Step::Fail(Failure::CertificateExpired {
            at: validity.map(|v| v.not_after),
        }),
    }
}

fn register(now: DateTime<Utc>, observed: &Observed, bootstrap: &Fingerprint) -> Step {
    let pending = observed.stored.pending.as_ref();
    let Some(pending) = pending.filter(|pending| pending.bootstrap == *bootstrap) else {
        return if observed.hub_is_verified {
            Step::MakeKey
        } else {
            Step::Discover
        };
    };
    follow(now, pending, &observed.csr)
}

/// What the pending registration's CSR asks for next; shared with renewal.
pub fn follow(now: DateTime<Utc>, pending: &Registration, csr: &Csr) -> Step {
    match csr {
        Csr::Unread => Step::ReadCsr,
        Csr::Absent => Step::CreateCsr,
        Csr::Foreign => Step::RenameCsr,
        Csr::Waiting | Csr::Approved => Step::WaitForCsr,
        Csr::Issued(chain) => judge(now, pending, chain),
        Csr::Denied { reason, message } => Step::Fail(Failure::Denied {
            known: DenialReason::parse(reason),
            reason: reason.clone(),
            message: message.clone(),
        }),
        Csr::Failed { message } => Step::Fail(Failure::NotSigned {
            message: message.clone(),
        }),
    }
}

fn judge(now: DateTime<Utc>, pending: &Registration, chain: &str) -> Step {
    // A key that cannot be read has no certificate that fits it.
    let spki = super::key::public_key(&pending.key).unwrap_or_default();
    match certificate::judge(now, chain, &pending.subject(), &spki) {
        Ok(_) => Step::StoreCertificate(chain.to_owned()),
        Err(unusable) => Step::Fail(Failure::Unusable(unusable)),
    }
}

#[cfg(test)]
mod tests;
