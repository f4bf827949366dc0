//! Why the agent stops: every end has a code of its own, shown as a word and as the exit status.
//!
//! | exit | reason | what to do |
//! |---|---|---|
//! | 1 | Internal | look at the log |
//! | 2 | Usage | correct the flags |
//! | 10 | BootstrapIncomplete | complete the Secret or the flags |
//! | 11 | WrongPin | compare the pin with the one `towline token create` prints |
//! | 12 | TokenRejected | make a new token |
//! | 13 | TokenForAnotherCluster | use the name the token is bound to, or make a token for this name |
//! | 14 | ClusterNameTaken | choose another name, or make a token with `--replace` |
//! | 15 | ClusterIdTaken | this member is registered already, or that Cluster is another member's |
//! | 16 | ClockSkew | set the clocks right |
//! | 17 | ForeignIssuer | go around the TLS-inspecting proxy, or correct the address |
//! | 18 | HubUnreachable | open the way to the hub |
//! | 19 | RequestDenied | read the hub's message |
//! | 20 | MemberUnreachable | check the member's API and the agent's rights there |
//! | 21 | SignatureInvalid | the token's secret is mistyped, or cluster-info was tampered with |
//! | 22 | CertificateUnusable | the hub's signer is not the one expected |
//! | 23 | OtherMember | delete the stored credentials of the other member |
//! | 24 | NotApproved | check that `towline-hub run` is up |
//! | 25 | NotSigned | check the hub's kube-controller-manager |
//! | 26 | CredentialsUnusable | check the state directory or the Secret |
//! | 27 | CertificateExpired | hand over a new token with `--replace` |
//! | 28 | RegistrationGone | the Cluster was removed from the hub, another agent was registered in place of this one, or the Cluster is quarantined; the message says how to see which |
//! | 29 | WrongHubName | add the address to the hub's certificate, or use one of its names |
//! | 30 | HubNotPrepared | run `towline init` on the hub |

use crate::departure::refusal;
use crate::registration::decide::Failure;
use crate::{config, credentials, hub};
use chrono::{DateTime, Utc};
use common::client::Problem;
use common::denial::DenialReason;
use common::discovery;
use common::names::ClusterName;
use common::tls::PeerProblem;
use std::time::Duration;

/// What kind of end it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table above says what each one is")]
pub enum Code {
    Internal = 1,
    Usage = 2,
    BootstrapIncomplete = 10,
    WrongPin = 11,
    TokenRejected = 12,
    TokenForAnotherCluster = 13,
    ClusterNameTaken = 14,
    ClusterIdTaken = 15,
    ClockSkew = 16,
    ForeignIssuer = 17,
    HubUnreachable = 18,
    RequestDenied = 19,
    MemberUnreachable = 20,
    SignatureInvalid = 21,
    CertificateUnusable = 22,
    OtherMember = 23,
    NotApproved = 24,
    NotSigned = 25,
    CredentialsUnusable = 26,
    CertificateExpired = 27,
    RegistrationGone = 28,
    WrongHubName = 29,
    HubNotPrepared = 30,
}

impl Code {
    /// The word that reports and logs carry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::Usage => "Usage",
            Self::BootstrapIncomplete => "BootstrapIncomplete",
            Self::WrongPin => "WrongPin",
            Self::TokenRejected => "TokenRejected",
            Self::TokenForAnotherCluster => "TokenForAnotherCluster",
            Self::ClusterNameTaken => "ClusterNameTaken",
            Self::ClusterIdTaken => "ClusterIdTaken",
            Self::ClockSkew => "ClockSkew",
            Self::ForeignIssuer => "ForeignIssuer",
            Self::HubUnreachable => "HubUnreachable",
            Self::RequestDenied => "RequestDenied",
            Self::MemberUnreachable => "MemberUnreachable",
            Self::SignatureInvalid => "SignatureInvalid",
            Self::CertificateUnusable => "CertificateUnusable",
            Self::OtherMember => "OtherMember",
            Self::NotApproved => "NotApproved",
            Self::NotSigned => "NotSigned",
            Self::CredentialsUnusable => "CredentialsUnusable",
            Self::CertificateExpired => "CertificateExpired",
            Self::RegistrationGone => "RegistrationGone",
            Self::WrongHubName => "WrongHubName",
            Self::HubNotPrepared => "HubNotPrepared",
        }
    }

    /// The exit status of the process.
    pub fn exit_status(self) -> u8 {
        self as u8
    }
}

/// Why the agent stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flags.
    #[error("invalid flags")]
    Config(#[source] config::Error),
    /// Nothing, or not enough, was handed over.
    #[error("the bootstrap is not usable: {0}")]
    Bootstrap(String),
    /// The hub answered, and the answer will not change by itself.
    #[error("failed to {action} at the hub: {}{problem}", hint(problem))]
    Hub {
        /// What was tried.
        action: &'static str,
        /// What went wrong.
        problem: Problem,
    },
    /// The hub was not verified.
    #[error("failed to verify the hub")]
    Discovery(#[source] discovery::Error),
    /// The hub cannot be reached.
    #[error("failed to {action} at the hub within {}", common::duration::format(*after))]
    HubUnreachable {
        /// What was tried.
        action: &'static str,
        /// For how long.
        after: Duration,
        /// The last failure.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nobody approved or refused.
    #[error(
        "the hub neither approved nor refused CSR {csr:?} within {}: is towline-hub running there?",
        common::duration::format(*after)
    )]
    NotApproved {
        /// The request.
        csr: String,
        /// For how long.
        after: Duration,
    },
    /// The hub refused the request.
    #[error("the hub denied the request: {message} ({reason})")]
    Denied {
        /// One of the hub's reasons, if it is one.
        known: Option<DenialReason>,
        /// The reason as written.
        reason: String,
        /// The message as written.
        message: String,
    },
    /// The signer could not sign.
    #[error("the hub's signer failed: {0}")]
    NotSigned(String),
    /// What was signed is not what was asked for.
    #[error("the hub's answer cannot be used")]
    CertificateUnusable(#[source] crate::registration::certificate::Unusable),
    /// Credentials of another member.
    #[error(
        "the stored credentials were made in another cluster (kube-system UID {stored}, here {found}); delete them to register this one"
    )]
    OtherMember {
        /// The member they were made for.
        stored: String,
        /// This member.
        found: String,
    },
    /// The certificate has ended.
    #[error(
        "the agent's certificate {}; put a new token, made with `towline token create --cluster NAME --replace`, into the bootstrap",
        ended(*.0)
    )]
    CertificateExpired(Option<DateTime<Utc>>),
    /// The hub does not know this registration any more.
    #[error(
        "the hub no longer accepts this registration ({0}); nothing was deleted here. Register again with a new token, or remove the agent"
    )]
    RegistrationGone(String),
    /// The hub withholds the rights of this registration, or does not know it any more.
    #[error(
        "the hub lets cluster {:?} do nothing ({refused}); nothing was deleted here. {}",
        cluster.as_str(),
        refusal::advice(cluster)
    )]
    Withheld {
        /// Which cluster.
        cluster: ClusterName,
        /// The hub's answer.
        refused: String,
    },
    /// The member's API.
    #[error("failed to {action} in the member: {problem}")]
    Member {
        /// What was tried.
        action: &'static str,
        /// What went wrong.
        problem: Problem,
    },
    /// A client for the member.
    #[error("failed to prepare the connection to the member")]
    MemberClient(#[source] common::client::Error),
    /// A client for the hub.
    #[error("failed to prepare the connection to the hub")]
    HubClient(#[source] common::client::Error),
    /// The hub's handle.
    #[error(transparent)]
    HubConnect(#[from] hub::ConnectError),
    /// The stored credentials.
    #[error("failed to keep the registration")]
    Credentials(#[source] credentials::Error),
    /// Key or request.
    #[error("failed to make the request")]
    Key(#[from] crate::registration::key::Error),
    /// The TLS layer does not take the pair.
    #[error("failed to use the agent's certificate")]
    Pair(#[source] common::tls::Error),
    /// An address cannot be listened on.
    #[error("failed to serve health or metrics")]
    Serve(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A part of the agent ended that never should.
    #[error("{part} stopped: {cause}")]
    Part {
        /// Which one.
        part: &'static str,
        /// What it said.
        cause: String,
    },
}

impl Error {
    /// What kind of end this is.
    pub fn code(&self) -> Code {
        match self {
            Self::Config(_) => Code::Usage,
            Self::Bootstrap(_) => Code::BootstrapIncomplete,
            Self::Hub { problem, .. } => code_of(problem),
            Self::Discovery(error) => code_of_discovery(error),
            Self::HubUnreachable { .. } => Code::HubUnreachable,
            Self::NotApproved { .. } => Code::NotApproved,
            Self::Denied { known, .. } => known.map_or(Code::RequestDenied, code_of_denial),
            Self::NotSigned(_) => Code::NotSigned,
            Self::CertificateUnusable(unusable) => match unusable {
                crate::registration::certificate::Unusable::ClockSkew { .. } => Code::ClockSkew,
                _ => Code::CertificateUnusable,
            },
            Self::OtherMember { .. } => Code::OtherMember,
            Self::CertificateExpired(_) => Code::CertificateExpired,
            Self::RegistrationGone(_) | Self::Withheld { .. } => Code::RegistrationGone,
            Self::Member { .. } | Self::MemberClient(_) => Code::MemberUnreachable,
            Self::Credentials(credentials::Error::Secret { .. }) => Code::MemberUnreachable,
            Self::Credentials(_) => Code::CredentialsUnusable,
            Self::HubClient(_)
            | Self::HubConnect(_)
            | Self::Key(_)
            | Self::Pair(_)
            | Self::Serve(_)
            | Self::Part { .. } => Code::Internal,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoBootstrap => Self::Bootstrap("there is none".into()),
            Failure::CertificateExpired { at } => Self::CertificateExpired(at),
            Failure::OtherMember { stored, found } => Self::OtherMember { stored, found },
            Failure::Denied {
                known,
                reason,
                message,
            } => Self::Denied {
                known,
                reason,
                message,
            },
            Failure::NotSigned { message } => Self::NotSigned(message),
            Failure::Unusable(unusable) => Self::CertificateUnusable(unusable),
        }
    }
}

/// Whether a problem stays what it is until somebody acts: the certificate the hub shows, or a plain no.
pub fn is_lasting(problem: &Problem) -> bool {
    match problem {
        Problem::Certificate { .. } => true,
        Problem::Api { code, .. } => matches!(code, 400 | 401 | 403 | 422),
        _ => false,
    }
}

/// Whether an API server refuses to know us, or to let us.
pub fn is_refusal(problem: &Problem) -> bool {
    matches!(problem, Problem::Api { code, .. } if matches!(code, 401 | 403))
}

fn code_of(problem: &Problem) -> Code {
    match problem {
        Problem::Certificate { problem, .. } => match problem {
            PeerProblem::ForeignIssuer { .. } => Code::ForeignIssuer,
            PeerProblem::NotYetValid { .. } | PeerProblem::Expired { .. } => Code::ClockSkew,
            PeerProblem::WrongName { .. } => Code::WrongHubName,
        },
        Problem::Api { code: 401, .. } => Code::TokenRejected,
        Problem::Api { .. } => Code::RequestDenied,
        _ => Code::HubUnreachable,
    }
}

fn code_of_discovery(error: &discovery::Error) -> Code {
    match error {
        discovery::Error::ForeignIssuer { .. } => Code::ForeignIssuer,
        discovery::Error::PinMismatch { .. } => Code::WrongPin,
        discovery::Error::JwsMissing { .. } => Code::TokenRejected,
        discovery::Error::JwsInvalid { .. } => Code::SignatureInvalid,
        discovery::Error::ClockSkew { .. } => Code::ClockSkew,
        discovery::Error::WrongName { .. } => Code::WrongHubName,
        discovery::Error::Unusable { .. } => Code::HubNotPrepared,
        discovery::Error::Unreachable { .. }
        | discovery::Error::NotAHub { .. }
        | discovery::Error::Changed { .. } => Code::HubUnreachable,
        discovery::Error::Tls(_) => Code::Internal,
    }
}

fn code_of_denial(reason: DenialReason) -> Code {
    match reason {
        DenialReason::TokenForAnotherCluster => Code::TokenForAnotherCluster,
        DenialReason::TokenSpent => Code::TokenRejected,
        DenialReason::ClusterNameTaken => Code::ClusterNameTaken,
        DenialReason::ClusterIdTaken => Code::ClusterIdTaken,
        DenialReason::RequestNotAllowed => Code::RequestDenied,
        DenialReason::RegistrationGone => Code::RegistrationGone,
    }
}

fn hint(problem: &Problem) -> &'static str {
    match problem {
        Problem::Api { code: 401, .. } => {
            "the bootstrap token has expired, is used up or was deleted; make a new one with `towline token create`: "
        }
        Problem::Api { code: 403, .. } => "has `towline init` prepared it? ",
        _ => "",
    }
}

fn ended(at: Option<DateTime<Utc>>) -> String {
    at.map_or_else(
        || "cannot be read".to_owned(),
        |at| format!("expired at {}", at.to_rfc3339()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_be_quarantined_is_told_who_lifts_that_and_how() {
        let said = Error::Withheld {
            cluster: ClusterName::parse("m1").expect("valid"),
            refused: "403: forbidden".to_owned(),
        };
        assert_eq!(said.code(), Code::RegistrationGone);
        let said = said.to_string();
        for words in [
            "cluster \"m1\"",
            "403: forbidden",
            "`towline why cluster/m1`",
            "no new token helps",
            "somebody who may write Clusters on the hub",
            "`kubectl annotate cluster m1 towline.dev/quarantined-since-`",
            "`towline token create --cluster m1 --replace`",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn hub_problems_have_codes() {
        let address = common::client::HostPort::new("hub", 6443);
        let certificate = |problem| Problem::Certificate {
            address: address.clone(),
            problem,
        };
        let api = |code| Problem::Api {
            code,
            reason: String::new(),
            message: String::new(),
            retry_after: None,
        };
        let at = DateTime::<Utc>::MIN_UTC;
        let cases = [
            (
                certificate(PeerProblem::ForeignIssuer { issuer: "X".into() }),
                Code::ForeignIssuer,
                true,
            ),
            (
                certificate(PeerProblem::Expired {
                    not_after: at,
                    now: at,
                }),
                Code::ClockSkew,
                true,
            ),
            (api(401), Code::TokenRejected, true),
            (api(403), Code::RequestDenied, true),
            (api(500), Code::RequestDenied, false),
            (Problem::Other("x".into()), Code::HubUnreachable, false),
        ];
        for (problem, code, lasting) in cases {
            assert_eq!(is_lasting(&problem), lasting, "{problem}");
            let action = "read the CSR";
            assert_eq!(Error::Hub { action, problem }.code(), code);
        }
    }
}
