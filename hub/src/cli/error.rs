//! What a verb fails with: a kind, which is the exit code, a cause, and hints for the human.

#[cfg(test)]
pub(super) mod scripted;

use super::Output;
use crate::snapshot;
use common::client::{Problem, classify};
use common::harmless;
use common::rest;
use std::error::Error as StdError;
use std::fmt;
use std::process::ExitCode;
use tokio::time::Instant;

/// What sort of failure it was; scripts tell them apart by the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A defect of ours, or a failure with no better kind. Exit code 1.
    Internal,
    /// The command line cannot mean anything. Exit code 2, as clap's own.
    Usage,
    /// A kubeconfig, token file or other input is missing or malformed. Exit code 3.
    Config,
    /// What was named does not exist. Exit code 4.
    NotFound,
    /// A server, or the hub's own rules, refused. Exit code 5.
    Denied,
    /// A server was not reached or did not answer in time. Exit code 6.
    Unavailable,
    /// The command looked and found something wrong that a human must change. Exit code 7.
    Unmet,
    /// The human said no. Exit code 8.
    Declined,
}

impl Kind {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Config => 3,
            Self::NotFound => 4,
            Self::Denied => 5,
            Self::Unavailable => 6,
            Self::Unmet => 7,
            Self::Declined => 8,
        }
    }
}

impl From<Kind> for ExitCode {
    fn from(kind: Kind) -> Self {
        kind.code().into()
    }
}

/// A verb's failure.
#[derive(Debug)]
pub struct CliError {
    /// The sort of failure.
    pub kind: Kind,
    /// What failed, with its causes.
    pub source: anyhow::Error,
    /// What the human can do: imperative sentences.
    pub hints: Vec<String>,
}

impl CliError {
    /// An error with a cause.
    pub fn new(kind: Kind, source: impl Into<anyhow::Error>) -> Self {
        Self {
            kind,
            source: source.into(),
            hints: Vec::new(),
        }
    }

    /// An error that is only a message.
    pub fn message(kind: Kind, message: impl fmt::Display) -> Self {
        Self::new(kind, anyhow::Error::msg(message.to_string()))
    }

    /// An error of an API server, with what was attempted: the kind follows from the answer.
    pub fn api(attempt: impl fmt::Display + Send + Sync + 'static, error: kube::Error) -> Self {
        let kind = kind_of(&error);
        let hints = advice(&classify(&error)).into_iter().collect();
        let source = anyhow::Error::new(error).context(attempt.to_string());
        Self {
            kind,
            source,
            hints,
        }
    }

    /// A failure that was told already: only its exit code is left to say.
    pub fn told(kind: Kind) -> Self {
        Self::message(kind, "")
    }

    /// Whether nothing of it is to be printed.
    pub fn is_told(&self) -> bool {
        self.source.to_string().is_empty() && self.hints.is_empty()
    }

    /// Whether it is a request that nobody answered: for others they would not be there either.
    pub(super) fn is_outage(&self) -> bool {
        self.kind == Kind::Unavailable && self.source.downcast_ref::<kube::Error>().is_some()
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }
}

/// An error of reading a hub.
pub(super) fn rest_error(error: snapshot::Error) -> CliError {
    let (kind, hint) = judge(&error.source);
    let told = CliError::new(kind, error);
    hint.into_iter().fold(told, CliError::hint)
}

/// An error of a request, with what was attempted.
pub(super) fn request_error(attempt: String, error: rest::Error) -> CliError {
    let (kind, hint) = judge(&error);
    let told = CliError::new(kind, anyhow::Error::new(error).context(attempt));
    hint.into_iter().fold(told, CliError::hint)
}

/// Of which kind a failed request is, and what helps.
fn judge(error: &rest::Error) -> (Kind, Option<String>) {
    let kind = match error.code() {
        Some(code) => kind_of_code(code),
        None if error.is_outage() => Kind::Unavailable,
        None => Kind::Internal,
    };
    let hint = match error {
        rest::Error::Transport(error) => advice(&classify(error)),
        rest::Error::Refused { code: 403, .. } => {
            Some("Use the kubeconfig of somebody who may do that.".to_owned())
        }
        _ => None,
    };
    (kind, hint)
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error: &(dyn StdError + Send + Sync + 'static) = self.source.as_ref();
        // Some of it a member or a hub may have said.
        let error = common::errors::chain(error).to_string();
        write!(f, "error: {}", harmless::lines(&error))?;
        for hint in &self.hints {
            write!(f, "\nhint: {}", harmless::lines(hint))?;
        }
        Ok(())
    }
}

/// What to do about a request that failed, as far as the problem itself tells.
pub(crate) fn advice(problem: &Problem) -> Option<String> {
    let text = match problem {
        Problem::Refused { address }
        | Problem::Unreachable { address, .. }
        | Problem::ConnectTimeout { address, .. } => {
            format!("Is an API server running at {address}, as the kubeconfig says?")
        }
        Problem::Dns { host, .. } => format!("Correct {host} in the kubeconfig, or its DNS record."),
        Problem::Certificate { .. } => {
            "The kubeconfig is of another server, or older than its certificate authority; fetch it anew."
                .to_owned()
        }
        Problem::Api { code: 401, .. } => {
            "The credentials in the kubeconfig have ended or are not known there; fetch it anew.".to_owned()
        }
        Problem::Api { code: 403, .. } => {
            "Use the kubeconfig of somebody who may do that.".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// Of which kind an answer of a server is.
fn kind_of_code(code: u16) -> Kind {
    match code {
        400 | 401 | 403 | 409 | 422 => Kind::Denied,
        404 => Kind::NotFound,
        408 | 429 | 502..=504 | 507 => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

/// What was read, or none where that failed with what passes by itself and there is time to look again.
pub(super) fn or_later<T>(
    read: Result<T, CliError>,
    deadline: Instant,
) -> Result<Option<T>, CliError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind == Kind::Unavailable && Instant::now() < deadline => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends with the worst of several failures, if there are any; the others are told before.
pub(super) fn ended(failed: Vec<CliError>, output: &Output) -> Result<(), CliError> {
    let Some((worst, others)) = worst(failed) else {
        return Ok(());
    };
    for error in others {
        output.note(error.to_string());
    }
    Err(worst)
}

/// Of several failures the one to end with, and those to tell before it: what passes by itself hides nothing that somebody
/// has to mend.
fn worst(mut failed: Vec<CliError>) -> Option<(CliError, Vec<CliError>)> {
    let weight = |kind: Kind| match kind {
        Kind::Internal => 0,
        Kind::Usage | Kind::Config => 1,
        Kind::Denied => 2,
        Kind::NotFound => 3,
        Kind::Unmet => 4,
        Kind::Unavailable => 5,
        Kind::Declined => 6,
    };
    let (place, _) = failed
        .iter()
        .enumerate()
        .min_by_key(|(_, it)| weight(it.kind))?;
    let worst = failed.remove(place);
    Some((worst, failed))
}

/// Whether a write with this answer was certainly not carried out. Without an answer, or with one that says that the
/// server, or a proxy before it, gave up, it may have been.
pub(super) fn is_refusal(code: Option<u16>) -> bool {
    code.is_some_and(|code| (400..500).contains(&code) && !matches!(code, 408 | 429))
}

/// The status of an answer; none when nobody answered.
pub(super) fn code_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn kind_of(error: &kube::Error) -> Kind {
    match error {
        kube::Error::Api(status) => kind_of_code(status.code),
        kube::Error::HyperError(_) | kube::Error::Service(_) => Kind::Unavailable,
        kube::Error::InferConfig(_) | kube::Error::InferKubeconfig(_) => Kind::Config,
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_said_does_nothing_to_a_terminal() {
        let error = CliError::message(Kind::Denied, "m1 says \u{1b}[2J".to_owned());
        let text = error.hint("Ask \u{9b}31m.").to_string();
        assert_eq!(text, "error: m1 says \\u{1b}[2J\nhint: Ask \\u{9b}31m.");
    }

    #[test]
    fn an_error_prints_its_chain_and_hints() {
        let error = CliError::new(
            Kind::Config,
            anyhow::anyhow!("no such file").context("failed to read the token file"),
        )
        .hint("Pass --token-file.");
        assert_eq!(
            error.to_string(),
            "error: failed to read the token file: no such file\nhint: Pass --token-file."
        );
    }

    #[test]
    fn screens_are_as_they_were_approved() {
        let refused = |code, message: &str| {
            let status = kube::core::Status {
                code,
                message: message.to_owned(),
                ..Default::default()
            };
            let attempt = "failed to list Works";
            CliError::api(attempt, kube::Error::Api(Box::new(status)))
        };
        let nobody = |problem: Problem| {
            let hint = advice(&problem);
            let told = CliError::message(Kind::Unavailable, problem);
            hint.into_iter().fold(told, CliError::hint)
        };
        let hub = || common::client::HostPort::new("hub.example.com", 6443);
        for (name, error) in [
            ("unknown", refused(401, "Unauthorized")),
            (
                "forbidden",
                refused(
                    403,
                    "works.work.karmada.io is forbidden: User \"ann\" cannot list resource \"works\" in API group \
                     \"work.karmada.io\" in the namespace \"karmada-es-m1\"",
                ),
            ),
            (
                "missing",
                refused(404, "clusters.cluster.karmada.io \"m9\" not found"),
            ),
            (
                "busy",
                refused(503, "the server is currently unable to handle the request"),
            ),
            ("refused", nobody(Problem::Refused { address: hub() })),
            (
                "silent",
                nobody(Problem::ConnectTimeout {
                    address: hub(),
                    after: std::time::Duration::from_secs(10),
                }),
            ),
            (
                "nameless",
                nobody(Problem::Dns {
                    host: "hub.example.com".to_owned(),
                    reason: "no such host".to_owned(),
                }),
            ),
        ] {
            crate::cli::approved::screens("cli/screens", name, |_, _| error.to_string());
        }
    }

    #[test]
    fn an_api_answer_decides_the_kind() {
        let status = |code| {
            let status = kube::core::Status {
                code,
                ..Default::default()
            };
            CliError::api(
                "failed to get the Cluster",
                kube::Error::Api(Box::new(status)),
            )
            .kind
        };
        let gone = common::client::HostPort::new("hub", 6443);
        let hint = advice(&Problem::Refused { address: gone });
        assert!(hint.is_some_and(|hint| hint.contains("hub:6443")));
        for (code, kind) in [
            // What a policy, a schema or another's write refuses is no defect of ours.
            (400, Kind::Denied),
            (401, Kind::Denied),
            (403, Kind::Denied),
            (409, Kind::Denied),
            (422, Kind::Denied),
            (404, Kind::NotFound),
            (408, Kind::Unavailable),
            (429, Kind::Unavailable),
            (503, Kind::Unavailable),
            (504, Kind::Unavailable),
            (500, Kind::Internal),
        ] {
            assert_eq!(status(code), kind, "{code}");
        }
    }

    #[test]
    fn what_somebody_has_to_mend_is_the_worst_of_several_failures() {
        let failures = |kinds: &[Kind]| {
            let errors = kinds.iter().map(|kind| CliError::message(*kind, "m"));
            let (worst, others) = worst(errors.collect())?;
            Some((worst.kind, others.len()))
        };
        assert_eq!(failures(&[]), None);
        let some = [Kind::Unavailable, Kind::Denied, Kind::NotFound];
        assert_eq!(failures(&some), Some((Kind::Denied, 2)));
        let open = [Kind::Unavailable, Kind::Unmet];
        assert_eq!(failures(&open), Some((Kind::Unmet, 1)));
    }

    #[test]
    fn only_a_refusal_says_that_nothing_was_written() {
        let none = [None, Some(408), Some(429), Some(500), Some(502), Some(504)];
        assert!(!none.into_iter().any(is_refusal));
        let refused = [400, 401, 403, 404, 409, 413, 422];
        assert!(refused.into_iter().all(|code| is_refusal(Some(code))));
    }
}
