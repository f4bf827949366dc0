//! Why a hub could not be verified, each in words that say what to do.

use super::CaPin;
use crate::client::{Attempt, HostPort};
use crate::tls::{self, PeerProblem};
use chrono::{DateTime, Utc};
use std::fmt::Write as _;

/// Why the hub could not be verified. Which of them it is decides what a person has to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address answered.
    #[error("the hub cannot be reached: {}", list(attempts))]
    Unreachable {
        /// What happened with each address.
        attempts: Vec<Attempt>,
    },
    /// Something between here and the hub shows a certificate of its own.
    #[error("{address}: certificate issued by {issuer}, not the hub's CA: a TLS-inspecting proxy?")]
    ForeignIssuer {
        /// Which address.
        address: HostPort,
        /// Who issued it.
        issuer: String,
    },
    /// No CA of the hub has the pinned key.
    #[error(
        "{address}: none of the hub's CA certificates has the pinned public key (found {}): wrong pin, or not your hub",
        pins(found)
    )]
    PinMismatch {
        /// Which address.
        address: HostPort,
        /// The pins of the certificates that are there.
        found: Vec<CaPin>,
    },
    /// The hub does not know the token.
    #[error(
        "{address}: the hub signed nothing for token {token_id}: the token is expired, spent or deleted, or this is another hub"
    )]
    JwsMissing {
        /// Which address.
        address: HostPort,
        /// The token's public half.
        token_id: String,
    },
    /// The signature was not made with this token's secret.
    #[error(
        "{address}: the hub's signature does not fit the secret of token {token_id}: a mistyped token, or not your hub"
    )]
    JwsInvalid {
        /// Which address.
        address: HostPort,
        /// The token's public half.
        token_id: String,
    },
    /// By the clock here the hub's certificate is not valid.
    #[error("{address}: {problem}{}", hub_time(*hub_time_shown))]
    ClockSkew {
        /// Which address.
        address: HostPort,
        /// Which end of its validity.
        problem: PeerProblem,
        /// What the hub's clock shows; a hint, it is not verified.
        hub_time_shown: Option<DateTime<Utc>>,
    },
    /// The certificate is the hub's but not for this address.
    #[error("{address}: {problem}")]
    WrongName {
        /// Which address.
        address: HostPort,
        /// Which names it is for.
        problem: PeerProblem,
    },
    /// The answer is not what a hub answers.
    #[error("{address}: {reason} (its certificate was issued by {issuer})")]
    NotAHub {
        /// Which address.
        address: HostPort,
        /// What came instead.
        reason: String,
        /// Who issued its certificate.
        issuer: String,
    },
    /// What was signed holds nothing of use.
    #[error("{address}: the hub's cluster-info cannot be used: {reason}")]
    Unusable {
        /// Which address.
        address: HostPort,
        /// What is missing.
        reason: String,
    },
    /// It said something else over verified TLS.
    #[error("{address}: cluster-info changed while it was verified; try again")]
    Changed {
        /// Which address.
        address: HostPort,
    },
    /// TLS cannot be prepared.
    #[error("failed to prepare TLS")]
    Tls(#[source] tls::Error),
}

impl Error {
    /// How far it got: the error of the address that got furthest is shown.
    pub(super) const fn progress(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 0,
            Self::Tls(_) => 1,
            Self::NotAHub { .. } => 2,
            Self::JwsMissing { .. } => 3,
            Self::JwsInvalid { .. } => 4,
            Self::Unusable { .. } => 5,
            Self::PinMismatch { .. } => 6,
            Self::WrongName { .. } => 7,
            Self::ClockSkew { .. } => 8,
            Self::ForeignIssuer { .. } => 9,
            Self::Changed { .. } => 10,
        }
    }
}

fn list(attempts: &[Attempt]) -> String {
    if attempts.is_empty() {
        return "no address was given".to_owned();
    }
    let problems: Vec<String> = attempts.iter().map(|a| a.problem.to_string()).collect();
    problems.join("; ")
}

fn pins(found: &[CaPin]) -> String {
    if found.is_empty() {
        return "none".to_owned();
    }
    let found: Vec<String> = found.iter().map(CaPin::to_string).collect();
    found.join(", ")
}

fn hub_time(shown: Option<DateTime<Utc>>) -> String {
    let mut out = String::new();
    if let Some(shown) = shown {
        // Writing to a String cannot fail.
        let _ = write!(out, " (the other side's clock shows {shown})");
    }
    out
}
