//! What went wrong with a request, as something that code can match on and people can act on.

use super::connect::{Attempt, ConnectError};
use super::target::HostPort;
use crate::tls::PeerProblem;
use std::error::Error as StdError;
use std::time::Duration;

/// A request missed its deadline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} to {method} {path}", crate::duration::format(*after))]
pub struct TimedOut {
    /// The request's method.
    pub method: String,
    /// The request's path.
    pub path: String,
    /// The deadline.
    pub after: Duration,
}

/// The kinds of failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The host's name has no address.
    #[error("{host} cannot be resolved: {reason}")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// Nobody listens there.
    #[error("{address} refused the connection")]
    Refused {
        /// Which address.
        address: HostPort,
    },
    /// The network does not lead there, or breaks.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// Which address.
        address: HostPort,
        /// Why.
        reason: String,
    },
    /// Connecting took too long.
    #[error("{address} did not answer within {}", crate::duration::format(*after))]
    ConnectTimeout {
        /// Which address.
        address: HostPort,
        /// The deadline.
        after: Duration,
    },
    /// A request took too long.
    #[error(transparent)]
    Timeout(TimedOut),
    /// The server's certificate is not what it must be.
    #[error("{address}: {problem}")]
    Certificate {
        /// Which address.
        address: HostPort,
        /// What is wrong with it.
        problem: PeerProblem,
    },
    /// The server speaks none of the protocols that were offered.
    #[error("{address} speaks none of the protocols that it was offered")]
    Protocol {
        /// Which address.
        address: HostPort,
    },
    /// TLS failed otherwise.
    #[error("TLS with {address} failed: {reason}")]
    Tls {
        /// Which address.
        address: HostPort,
        /// Why.
        reason: String,
    },
    /// The proxy cannot be reached.
    #[error("proxy {proxy} cannot be reached: {reason}")]
    ProxyUnreachable {
        /// Which proxy.
        proxy: HostPort,
        /// Why.
        reason: String,
    },
    /// The proxy said no.
    #[error("proxy {proxy} refused a tunnel to {address}: {status} {reason}")]
    ProxyRefused {
        /// Which proxy.
        proxy: HostPort,
        /// Where the tunnel should have led.
        address: HostPort,
        /// Its status; 407 asks for a user and password.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// The API server answered with an error.
    #[error("the API server answered {code} {reason}: {message}")]
    Api {
        /// The status code.
        code: u16,
        /// The machine-readable reason.
        reason: String,
        /// The message.
        message: String,
        /// When the server asks to be left alone for so long.
        retry_after: Option<Duration>,
    },
    /// The answer cannot be understood.
    #[error("the answer cannot be read: {0}")]
    Decode(String),
    /// Whatever else broke, mostly a connection in the middle of something.
    #[error("{0}")]
    Other(String),
}

impl Problem {
    /// Whether the API server itself answered.
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Api { .. } | Self::Decode(_))
    }

    /// The status code of the API server's answer.
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Api { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// How telling the problem is when several addresses fail in different ways.
    const fn weight(&self) -> u8 {
        match self {
            Self::Certificate { .. } => 4,
            Self::Tls { .. } | Self::ProxyRefused { .. } => 3,
            Self::ProxyUnreachable { .. } => 2,
            Self::Refused { .. } | Self::Dns { .. } => 1,
            _ => 0,
        }
    }
}

/// What went wrong.
pub fn classify(error: &kube::Error) -> Problem {
    if let kube::Error::Api(status) = error {
        let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
        return Problem::Api {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            retry_after: (retry > 0).then(|| Duration::from_secs(u64::from(retry))),
        };
    }
    if let kube::Error::SerdeError(error) = error {
        return Problem::Decode(error.to_string());
    }
    classify_error(error)
}

/// What went wrong, when the error is of another type that has one of ours in its chain.
pub fn classify_error(error: &(dyn StdError + 'static)) -> Problem {
    if let Some(connect) = find::<ConnectError>(error)
        && let Some(worst) = connect.attempts.iter().max_by_key(|a| a.problem.weight())
    {
        return worst.problem.clone();
    }
    if let Some(timed_out) = find::<TimedOut>(error) {
        return Problem::Timeout(timed_out.clone());
    }
    if let Some(kube @ kube::Error::Api(_)) = find::<kube::Error>(error) {
        return classify(kube);
    }
    Problem::Other(crate::errors::chain(error).to_string())
}

/// What went wrong with each address, when none could be connected to.
pub fn attempts(error: &kube::Error) -> &[Attempt] {
    find::<ConnectError>(error).map_or(&[], |connect| &connect.attempts)
}

/// The first error of a type in a chain.
pub(crate) fn find<'a, T: StdError + 'static>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // An io::Error hides what it wraps from source(), which starts below it.
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && let Some(inner) = io.get_ref()
            && let Some(found) = inner.downcast_ref::<T>()
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}
