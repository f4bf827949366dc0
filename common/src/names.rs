//! Names that are derived, and the rules they obey.
//!
//! Every derived name of the project is made here, so that hub, agent and tests cannot disagree. Pure.

use std::fmt;

/// Namespace of Cluster Leases on the hub.
pub const CLUSTER_NAMESPACE: &str = "karmada-cluster";
/// Namespace of the hub's own objects.
pub const SYSTEM_NAMESPACE: &str = "karmada-system";
/// In the member: the ServiceAccount that acts as users of the hub and may do nothing else, and the roles around it.
pub const PROXY_NAME: &str = "towline-agent-proxy";
/// On the hub: the ServiceAccount that serves clusters of mode Push, and the roles around it.
pub const PUSH_NAME: &str = "towline-push";
/// The same as a user with a client certificate, where the hub runs no Pods.
pub const PUSH_USER: &str = "towline:push";
/// Namespace of the agent in a member.
pub const AGENT_NAMESPACE: &str = "towline-system";
/// Namespace of a member whose ServiceAccounts users of the hub are, where its owner lets them in so.
pub const USERS_NAMESPACE: &str = "towline-users";
/// Name of everything of the agent in a member that is not named otherwise: ServiceAccount,
/// Deployment, roles and their bindings, and the Lease of its replicas.
pub const AGENT_NAME: &str = "towline-agent";
/// Role and binding with the kinds that `--allow` lists.
pub const AGENT_WORKLOADS: &str = "towline-agent-workloads";
/// Secret in the member with what the operator hands to the agent.
pub const BOOTSTRAP_SECRET: &str = "towline-agent-bootstrap";
/// Key of that Secret with the cluster's name.
pub const BOOTSTRAP_CLUSTER: &str = "cluster-name";
/// Secret in the member with a token of the agent's ServiceAccount: where `towline join` gets none that lasts on
/// request.
pub const TOKEN_SECRET: &str = "towline-agent-token";
/// Secret in the member with what the agent keeps for itself.
pub const CREDENTIALS_SECRET: &str = "towline-agent-credentials";
/// Key of that Secret with everything as one document.
pub const CREDENTIALS_DOCUMENT: &str = "credentials.json";
/// Secrets in the member with what the hub wanted there last: this, and a number below
/// [`WORKS_SECRETS`].
pub const WORKS_SECRET_PREFIX: &str = "towline-agent-works-";
/// How many such Secrets there may be.
pub const WORKS_SECRETS: usize = 32;
/// ConfigMap in the member that says how the agent is doing.
pub const STATUS_CONFIG_MAP: &str = "towline-agent-status";
/// Key of that ConfigMap with the installation that the report is about.
pub const REPORT_INSTALLATION: &str = "installation";
/// Annotation of the agent's pods with the installation they belong to.
pub const INSTALLATION_ANNOTATION: &str = "towline.dev/installation";
/// Prefix of execution namespaces on the hub.
pub const EXECUTION_PREFIX: &str = "karmada-es-";
/// Longest name a Cluster may have: the execution namespace must stay a DNS label.
pub const CLUSTER_NAME_MAX: usize = 48;
/// A name no cluster may have: its certificate would carry the user that Karmada gives every right.
pub const RESERVED_CLUSTER_NAME: &str = "rbac-generator";

/// Why a string is not a cluster name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClusterName {
    /// Nothing at all.
    #[error("a cluster name must not be empty")]
    Empty,
    /// Over the limit.
    #[error("cluster name {0:?} must be no more than 48 characters")]
    TooLong(String),
    /// Not a DNS-1123 label.
    #[error(
        "cluster name {0:?} must consist of lower case letters, digits and '-', and start and end with a letter or digit"
    )]
    NotALabel(String),
    /// Reserved.
    #[error("cluster name {0:?} is reserved; choose another")]
    Reserved(String),
}

/// The name of a Cluster: a DNS-1123 label of at most 48 characters that is not reserved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// Parses and validates a name.
    pub fn parse(name: &str) -> Result<Self, InvalidClusterName> {
        if name.is_empty() {
            return Err(InvalidClusterName::Empty);
        }
        if name.len() > CLUSTER_NAME_MAX {
            return Err(InvalidClusterName::TooLong(name.to_owned()));
        }
        if !is_dns_label(name) {
            return Err(InvalidClusterName::NotALabel(name.to_owned()));
        }
        if name == RESERVED_CLUSTER_NAME {
            return Err(InvalidClusterName::Reserved(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace of the cluster's Works on the hub.
    pub fn execution_namespace(&self) -> String {
        format!("{EXECUTION_PREFIX}{}", self.0)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for ClusterName {
    type Err = InvalidClusterName;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

/// Whether `s` is a DNS-1123 label.
pub fn is_dns_label(s: &str) -> bool {
    let bytes = s.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(inner)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

/// The name of the Work for an object: `<name>-H(<ns>-<name>-<kind>)`, as Karmada's.
pub fn work_name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    let shown = name.replace(':', ".");
    let hashed = match namespace {
        Some(ns) if !ns.is_empty() => format!("{ns}-{name}-{kind}"),
        _ => format!("{name}-{kind}"),
    };
    format!("{shown}-{}", safe_hash(&hashed.to_lowercase())).to_lowercase()
}

/// The name of the binding of a template, as Karmada's.
pub fn binding_name(kind: &str, name: &str) -> String {
    format!("{}-{kind}", name.replace(':', ".")).to_lowercase()
}

/// What names a binding in labels of those that its template refers to, as Karmada's.
pub fn dependent_id(namespace: &str, binding: &str) -> String {
    safe_hash(&format!("{namespace}/{binding}"))
}

/// FNV-1a of 32 bits.
pub fn fnv1a(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, step)
}

/// FNV-1a in decimal, each digit remapped so that no word can appear.
fn safe_hash(text: &str) -> String {
    const DIGITS: &[u8; 10] = b"456789bcdf";
    fnv1a(text)
        .to_string()
        .bytes()
        .map(|d| char::from(DIGITS[usize::from(d - b'0')]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_names_match_the_reference() {
        let cases = [
            ("Deployment", Some("default"), "nginx", "nginx-687f7fb96f"),
            ("Service", Some("default"), "nginx", "nginx-64b7849b5"),
            ("Namespace", None, "foo", "foo-5dbdc7b59c"),
            (
                "ClusterRole",
                None,
                "karmada-impersonator",
                "karmada-impersonator-7cbb6bd5c9",
            ),
            (
                "ClusterRoleBinding",
                None,
                "karmada-impersonator",
                "karmada-impersonator-84f8c8f8c6",
            ),
        ];
        for (kind, ns, name, want) in cases {
            assert_eq!(work_name(kind, ns, name), want);
        }
    }

    #[test]
    fn ids_of_dependents_match_the_reference() {
        for (namespace, binding, want) in [
            ("default", "nginx-deployment", "5bdc5c4dcf"),
            ("s0356", "web-deployment", "5c9898d54c"),
            ("s0372", "web-deployment", "ccb7c78b9"),
        ] {
            assert_eq!(dependent_id(namespace, binding), want);
        }
    }

    #[test]
    fn cluster_names_are_judged() {
        for good in ["m1", "a", "member-1", &"x".repeat(48)] {
            assert!(ClusterName::parse(good).is_ok(), "{good}");
        }
        let long = "x".repeat(49);
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a.b",
            "a:b",
            "rbac-generator",
            "a_b",
            &long,
        ] {
            assert!(ClusterName::parse(bad).is_err(), "{bad}");
        }
    }
}
