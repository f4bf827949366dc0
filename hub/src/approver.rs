//! Judges a CertificateSigningRequest by what it says: ignored, denied, a registration, or a renewal.
//!
//! Pure. The signer of the control plane reads requests with another parser, so the approver accepts only
//! what no two parsers can read differently: one canonical PEM block of one DER, no attributes, one
//! common name and two organisations, compared whole. Whether the token, the name and the cluster id may
//! be used is not decided here but against the hub's objects, in [`crate::controller::registration`].

mod certificate;
mod der;
pub(crate) mod pem;
mod request;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use common::denial::DenialReason;
use common::identity::{
    AGENT_USER_PREFIX, AGENTS_GROUP, AgentSubject, BOOTSTRAP_GROUP, BOOTSTRAP_USER_PREFIX,
    CERTIFICATE_LIFETIME_CAP, CLUSTER_GROUP_PREFIX, CSR_PREFIX, KARMADA_TOKENS_PREFIX,
    RegistrationId, SIGNER,
};
use common::names::ClusterName;
use std::collections::BTreeSet;

pub use certificate::{NotOurCertificate, issued_subject};
pub use request::NotCanonical;

/// Largest request that is read, in bytes of PEM.
pub const REQUEST_MAX: usize = 4096;
/// Longest cluster id.
pub const CLUSTER_ID_MAX: usize = 64;
/// Shortest lifetime the API server itself accepts.
const LIFETIME_MIN: i64 = 600;
const CSR_SUFFIX_MIN: usize = 32;
const REQUIRED_USAGES: [&str; 2] = ["client auth", "digital signature"];
const TOLERATED_USAGE: &str = "key encipherment";
const AUTHENTICATED: &str = "system:authenticated";

/// What the approver sees of a CSR object.
#[derive(Debug, Clone, Copy)]
pub struct CsrView<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// The annotation with the cluster id.
    pub cluster_id: Option<&'a str>,
    /// `spec.signerName`.
    pub signer: &'a str,
    /// `spec.expirationSeconds`.
    pub expiration_seconds: Option<i32>,
    /// `spec.usages`.
    pub usages: &'a [String],
    /// `spec.request`: PEM.
    pub request: &'a [u8],
    /// `spec.username`, which the API server wrote.
    pub username: &'a str,
    /// `spec.groups`, which the API server wrote.
    pub groups: &'a [String],
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Not ours: another signer, or a caller that Towline did not admit.
    Ignore,
    /// Ours, and refused.
    Deny(Denial),
    /// A token of ours asks for a registration.
    Bootstrap(RegistrationRequest),
    /// An agent asks for its next certificate.
    Renewal(AgentSubject),
}

/// A refusal that a human reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// For the agent.
    pub reason: DenialReason,
    /// For its operator.
    pub message: String,
}

/// What a token's holder asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationRequest {
    /// The subject; its registration id is that of the request's own key.
    pub subject: AgentSubject,
    /// The id of the token that was used.
    pub token_id: String,
    /// The member's own identity, as the agent says it.
    pub cluster_id: String,
}

/// Judges one CSR.
pub fn judge(csr: &CsrView<'_>) -> Verdict {
    if csr.signer != SIGNER {
        return Verdict::Ignore;
    }
    let judged = match Caller::of(csr) {
        Caller::Stranger => return Verdict::Ignore,
        Caller::Token(id) => judge_registration(csr, id).map(Verdict::Bootstrap),
        Caller::Agent => judge_renewal(csr).map(Verdict::Renewal),
        Caller::Unclear => Err(Refusal::Caller),
        Caller::KarmadasToken => Err(Refusal::KarmadasToken),
    };
    judged.unwrap_or_else(|refusal| {
        Verdict::Deny(Denial {
            reason: DenialReason::RequestNotAllowed,
            message: refusal.to_string(),
        })
    })
}

/// Why a request of ours is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("the caller is neither one bootstrap token nor one agent")]
    Caller,
    #[error(
        "this token is one that Karmada's commands make, and this hub registers Towline's agents alone; \
         make another by `towline token create`, or give Karmada's agent a kubeconfig of its own"
    )]
    KarmadasToken,
    #[error("the request's name must be {CSR_PREFIX} and at least 32 characters of a-z and 0-9")]
    Name,
    #[error("the request must ask for a lifetime of 600 to {CERTIFICATE_LIFETIME_CAP} seconds")]
    Lifetime,
    #[error(
        "the request must ask for the usages digital signature and client auth, and no other \
         but key encipherment"
    )]
    Usages,
    #[error("the request is {0} bytes long; the limit is {REQUEST_MAX}")]
    TooLong(usize),
    #[error(transparent)]
    NotCanonical(#[from] NotCanonical),
    #[error("the request asks for a certificate of {0}, which is not the user of an agent")]
    NotAnAgent(String),
    #[error(transparent)]
    ClusterName(#[from] common::names::InvalidClusterName),
    #[error(
        "the request's organizations must be {AGENTS_GROUP} and that of the registration of {0:?}, \
         and no other"
    )]
    Organizations(String),
    #[error("the registration id in the request is not that of its public key")]
    RegistrationId,
    #[error(
        "the annotation towline.dev/cluster-id must hold the cluster's id: 1 to {CLUSTER_ID_MAX} \
         letters, digits, '-', '_', '.' or ':'"
    )]
    ClusterId,
    #[error("an agent may only ask for its own certificate: this caller is {0}")]
    AnotherAgent(String),
}

enum Caller<'a> {
    Stranger,
    Token(&'a str),
    Agent,
    /// In a group of ours, but not as we make its members.
    Unclear,
    /// Waits for a controller of Karmada's, which is not here.
    KarmadasToken,
}

impl<'a> Caller<'a> {
    fn of(csr: &CsrView<'a>) -> Self {
        let token = csr.groups.iter().any(|group| group == BOOTSTRAP_GROUP);
        let agent = csr
            .groups
            .iter()
            .any(|group| group == AGENTS_GROUP || group.starts_with(CLUSTER_GROUP_PREFIX));
        let karmadas = csr.username.starts_with(BOOTSTRAP_USER_PREFIX)
            && csr
                .groups
                .iter()
                .any(|group| group.starts_with(KARMADA_TOKENS_PREFIX));
        match (token, agent) {
            (false, false) if karmadas => Self::KarmadasToken,
            (false, false) => Self::Stranger,
            (true, true) => Self::Unclear,
            (false, true) => Self::Agent,
            (true, false) => match csr.username.strip_prefix(BOOTSTRAP_USER_PREFIX) {
                Some(id) if is_token_id(id) => Self::Token(id),
                _ => Self::Unclear,
            },
        }
    }
}

fn judge_registration(csr: &CsrView<'_>, token: &str) -> Result<RegistrationRequest, Refusal> {
    let (subject, key) = judge_request(csr)?;
    if RegistrationId::of_public_key(&key) != subject.registration {
        return Err(Refusal::RegistrationId);
    }
    let cluster_id = csr
        .cluster_id
        .filter(|id| is_cluster_id(id))
        .ok_or(Refusal::ClusterId)?;
    Ok(RegistrationRequest {
        subject,
        token_id: token.to_owned(),
        cluster_id: cluster_id.to_owned(),
    })
}

fn judge_renewal(csr: &CsrView<'_>) -> Result<AgentSubject, Refusal> {
    let (subject, _) = judge_request(csr)?;
    let own: BTreeSet<&str> = csr
        .groups
        .iter()
        .map(String::as_str)
        .filter(|group| *group != AUTHENTICATED)
        .collect();
    let asked = subject.organizations();
    let asked: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    if csr.username != subject.common_name() || own != asked {
        return Err(Refusal::AnotherAgent(csr.username.to_owned()));
    }
    Ok(subject)
}

/// What registrations and renewals have in common; returns the subject and the public key.
fn judge_request(csr: &CsrView<'_>) -> Result<(AgentSubject, Vec<u8>), Refusal> {
    if !is_csr_name(csr.name) {
        return Err(Refusal::Name);
    }
    let lifetime = csr.expiration_seconds.map(i64::from);
    if !lifetime.is_some_and(|s| (LIFETIME_MIN..=CERTIFICATE_LIFETIME_CAP).contains(&s)) {
        return Err(Refusal::Lifetime);
    }
    let usages: BTreeSet<&str> = csr.usages.iter().map(String::as_str).collect();
    let known = |usage: &&str| REQUIRED_USAGES.contains(usage) || *usage == TOLERATED_USAGE;
    if !REQUIRED_USAGES.iter().all(|usage| usages.contains(usage)) || !usages.iter().all(known) {
        return Err(Refusal::Usages);
    }
    if csr.request.len() > REQUEST_MAX {
        return Err(Refusal::TooLong(csr.request.len()));
    }
    let request = request::Request::decode(csr.request)?;
    let name = request.common_name.strip_prefix(AGENT_USER_PREFIX);
    let cluster = name.ok_or_else(|| Refusal::NotAnAgent(request.common_name.clone()))?;
    let cluster = ClusterName::parse(cluster)?;
    let subject = AgentSubject::parse(&request.common_name, &request.organizations)
        .ok_or_else(|| Refusal::Organizations(cluster.to_string()))?;
    Ok((subject, request.public_key))
}

fn is_csr_name(name: &str) -> bool {
    name.strip_prefix(CSR_PREFIX).is_some_and(|suffix| {
        suffix.len() >= CSR_SUFFIX_MIN
            && suffix
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    })
}

fn is_token_id(id: &str) -> bool {
    id.len() == 6
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_cluster_id(id: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    (1..=CLUSTER_ID_MAX).contains(&id.len()) && id.bytes().all(allowed)
}
