//! Who an agent is: the certificate subject, the registration id, and the names that follow from both.
//!
//! Pure. Both sides build the subject here; the hub recomputes the id from the public key and never
//! believes the one that was sent.

use crate::labels::{AGENT_FIELD_MANAGERS, UNNAMED_FIELD_MANAGER};
use crate::names::ClusterName;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

/// The organisation every agent certificate carries.
pub const AGENTS_GROUP: &str = "system:karmada:agents";
/// Prefix of an agent's user name.
pub const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
/// Prefix of the group that only one registration's certificates carry.
pub const CLUSTER_GROUP_PREFIX: &str = "towline:cluster:";
/// Prefix of the groups of tokens that Karmada's own commands make.
pub const KARMADA_TOKENS_PREFIX: &str = "system:bootstrappers:karmada:";
/// The group of our bootstrap tokens.
pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:towline";
/// Prefix of a bootstrap token's user name.
pub const BOOTSTRAP_USER_PREFIX: &str = "system:bootstrap:";
/// The signer of agent certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Prefix of the names of our CSRs; at least 32 characters of `[a-z0-9]` follow.
pub const CSR_PREFIX: &str = "towline-";
/// Longest lifetime of an agent certificate, in seconds: 90 days.
pub const CERTIFICATE_LIFETIME_CAP: i64 = 90 * 24 * 3600;

/// Whether agents write under this field manager: a name of theirs, or none.
pub fn is_agents_manager(manager: &str) -> bool {
    let mut prefixes = AGENT_FIELD_MANAGERS.iter();
    let unnamed = manager.is_empty() || manager == UNNAMED_FIELD_MANAGER;
    unnamed || prefixes.any(|prefix| manager.starts_with(prefix))
}

/// The registration of one agent key: the first 32 hex digits of SHA-256 over the
/// SubjectPublicKeyInfo (DER) of the registration's CSR.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistrationId(String);

impl RegistrationId {
    /// Computes the id of a public key.
    pub fn of_public_key(spki_der: &[u8]) -> Self {
        let sum = digest(&SHA256, spki_der);
        let mut hex = String::with_capacity(32);
        for byte in &sum.as_ref()[..16] {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex)
    }

    /// Reads an id that was stored; `None` unless it is exactly 32 lower-case hex digits.
    pub fn parse(id: &str) -> Option<Self> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (id.len() == 32 && id.bytes().all(hex)).then(|| Self(id.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The subject of an agent certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSubject {
    /// The cluster the agent speaks for.
    pub cluster: ClusterName,
    /// The registration its rights are bound to.
    pub registration: RegistrationId,
}

impl AgentSubject {
    /// The common name, which is the user name.
    pub fn common_name(&self) -> String {
        format!("{AGENT_USER_PREFIX}{}", self.cluster)
    }

    /// The group that carries this registration's rights.
    pub fn cluster_group(&self) -> String {
        format!(
            "{CLUSTER_GROUP_PREFIX}{}:{}",
            self.cluster,
            self.registration.as_str()
        )
    }

    /// Both organisations.
    pub fn organizations(&self) -> [String; 2] {
        [AGENTS_GROUP.to_owned(), self.cluster_group()]
    }

    /// Reads a subject back from a common name and organisations, compared whole and as a set.
    pub fn parse(common_name: &str, organizations: &[String]) -> Option<Self> {
        let cluster = ClusterName::parse(common_name.strip_prefix(AGENT_USER_PREFIX)?).ok()?;
        let [a, b] = organizations else { return None };
        let ((AGENTS_GROUP, group) | (group, AGENTS_GROUP)) = (a.as_str(), b.as_str()) else {
            return None;
        };
        let id = group
            .strip_prefix(CLUSTER_GROUP_PREFIX)?
            .strip_prefix(cluster.as_str())?;
        let registration = RegistrationId::parse(id.strip_prefix(':')?)?;
        Some(Self {
            cluster,
            registration,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(cluster: &str) -> AgentSubject {
        AgentSubject {
            cluster: ClusterName::parse(cluster).expect("valid"),
            registration: RegistrationId::of_public_key(b"key"),
        }
    }

    #[test]
    fn subject_survives_a_round_trip_in_any_order() {
        let s = subject("m1");
        let [a, b] = s.organizations();
        assert_eq!(
            AgentSubject::parse(&s.common_name(), &[a.clone(), b.clone()]),
            Some(s.clone())
        );
        assert_eq!(AgentSubject::parse(&s.common_name(), &[b, a]), Some(s));
    }

    #[test]
    fn subject_of_another_cluster_is_refused() {
        let m10 = subject("m10");
        let orgs = m10.organizations().to_vec();
        assert_eq!(AgentSubject::parse("system:karmada:agent:m1", &orgs), None);
        assert_eq!(
            AgentSubject::parse("system:karmada:agent:rbac-generator", &orgs),
            None
        );
        let three = [orgs.clone(), vec!["system:masters".into()]].concat();
        assert_eq!(AgentSubject::parse(&m10.common_name(), &three), None);
    }
}
