//! Where in a member no Work reaches: namespaces that are reserved until the member's owner allows them,
//! the agent's own namespace, and the agent's own cluster-wide objects.
//!
//! Pure. Whoever may start a Pod in `kube-system` or beside the agent owns the member, and so does
//! whoever may take the Pod Security labels off those namespaces: a Namespace is judged as what lies in it.
//! `manifests/agent/policy.yaml` says the same to the member's API server about the agent's ServiceAccount.

use crate::names::{AGENT_NAME, USERS_NAMESPACE, is_dns_label};
use std::collections::BTreeSet;
use std::fmt;

/// What the names of reserved namespaces begin with.
pub const RESERVED_PREFIXES: [&str; 2] = ["kube-", "towline-"];

/// The flag by which the owner allows one, of `towline register` and of `towline-agent run`.
pub const ALLOW_NAMESPACE: &str = "--allow-namespace";

/// What is reserved in one member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    home: String,
    allowed: BTreeSet<String>,
}

/// An object as it is named.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

/// Why no Work reaches an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It lies in a reserved namespace, or is one.
    Namespace(String),
    /// It lies in the agent's own namespace, or is it.
    Home(String),
    /// It gives the agent its rights, or limits them.
    Own,
}

/// A value of the flag that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNamespace {
    /// Not a name of a namespace.
    #[error("{ALLOW_NAMESPACE} {0:?}: that is no name of a namespace")]
    NotALabel(String),
    /// Works reach it anyway.
    #[error("{ALLOW_NAMESPACE} {0:?}: that namespace is not reserved, Works reach it anyway")]
    NotReserved(String),
    /// It is the agent's, or that of the users whom it lets in.
    #[error("{ALLOW_NAMESPACE} {0:?}: that namespace is the agent's own and cannot be allowed")]
    Home(String),
}

impl Reserved {
    /// What is reserved beside an agent whose own namespace is `home`, when its owner allows `allowed`.
    pub fn new<S: AsRef<str>>(
        home: &str,
        allowed: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidNamespace> {
        let mut reserved = Self {
            home: home.to_owned(),
            allowed: BTreeSet::new(),
        };
        for namespace in allowed {
            let namespace = namespace.as_ref().to_owned();
            // Whoever may start a Pod there has the agent's key, or is whichever user of the hub they like.
            if namespace == home || namespace == USERS_NAMESPACE {
                return Err(InvalidNamespace::Home(namespace));
            }
            if !is_dns_label(&namespace) {
                return Err(InvalidNamespace::NotALabel(namespace));
            }
            if !has_reserved_prefix(&namespace) {
                return Err(InvalidNamespace::NotReserved(namespace));
            }
            reserved.allowed.insert(namespace);
        }
        Ok(reserved)
    }

    /// The reserved namespaces that the owner allows, sorted.
    pub fn allowed(&self) -> Vec<String> {
        self.allowed.iter().cloned().collect()
    }

    /// The rule that keeps Works from an object; none when they reach it.
    pub fn rule(&self, object: Named<'_>) -> Option<Rule> {
        let namespace = match (object.group, object.kind) {
            ("", "Namespace") => object.name,
            _ => object.namespace,
        };
        if namespace.is_empty() {
            return is_own(object).then_some(Rule::Own);
        }
        if namespace == self.home {
            return Some(Rule::Home(namespace.to_owned()));
        }
        let refused = has_reserved_prefix(namespace) && !self.allowed.contains(namespace);
        refused.then(|| Rule::Namespace(namespace.to_owned()))
    }
}

fn has_reserved_prefix(namespace: &str) -> bool {
    RESERVED_PREFIXES
        .iter()
        .any(|prefix| namespace.starts_with(prefix))
}

/// Roles, bindings and policies of an installation carry the agent's name.
fn is_own(object: Named<'_>) -> bool {
    let power = matches!(
        (object.group, object.kind),
        (
            "rbac.authorization.k8s.io",
            "ClusterRole" | "ClusterRoleBinding"
        ) | ("admissionregistration.k8s.io", _)
    );
    let ours = object.name.strip_prefix(AGENT_NAME);
    power && ours.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(
                f,
                "namespace {name:?} is reserved and no Work reaches it, unless the member's owner allows \
                 it by `towline register {ALLOW_NAMESPACE} {name}`"
            ),
            Self::Home(name) => write!(
                f,
                "namespace {name:?} is the agent's own and no Work reaches it, whatever is allowed"
            ),
            Self::Own => f.write_str(
                "it belongs to the agent's own installation and no Work reaches it, whatever is allowed",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "towline-system";
    const RBAC: &str = "rbac.authorization.k8s.io";
    const ADMISSION: &str = "admissionregistration.k8s.io";

    fn shown(reserved: &Reserved, object: [&str; 4]) -> &'static str {
        let [group, kind, namespace, name] = object;
        match reserved.rule(Named {
            group,
            kind,
            namespace,
            name,
        }) {
            None => "reached",
            Some(Rule::Namespace(_)) => "reserved",
            Some(Rule::Home(_)) => "home",
            Some(Rule::Own) => "own",
        }
    }

    #[test]
    fn what_a_work_may_name() {
        // Group, kind, namespace, name; without a flag; with kube-system allowed.
        let table = [
            (
                ["apps", "DaemonSet", "kube-system", "x"],
                "reserved",
                "reached",
            ),
            (
                ["", "ConfigMap", "kube-system", "aws-auth"],
                "reserved",
                "reached",
            ),
            (
                ["", "ConfigMap", "kube-public", "cluster-info"],
                "reserved",
                "reserved",
            ),
            (
                ["coordination.k8s.io", "Lease", "kube-node-lease", "n"],
                "reserved",
                "reserved",
            ),
            // Pod Security labels are the Namespace's own.
            (["", "Namespace", "", "kube-system"], "reserved", "reached"),
            (["", "Namespace", "", "kube-new"], "reserved", "reserved"),
            (
                ["", "Namespace", "", "towline-other"],
                "reserved",
                "reserved",
            ),
            (["", "Namespace", "", HOME], "home", "home"),
            // A Pod there could mount the agent's key: what it is named or mounts does not matter.
            (["apps", "DaemonSet", HOME, "anything"], "home", "home"),
            (
                ["apps", "Deployment", HOME, "towline-agent"],
                "home",
                "home",
            ),
            (
                ["", "Secret", HOME, "towline-agent-credentials"],
                "home",
                "home",
            ),
            (
                ["", "Secret", HOME, "towline-agent-works-0"],
                "home",
                "home",
            ),
            (
                ["", "ServiceAccount", HOME, "towline-agent"],
                "home",
                "home",
            ),
            ([RBAC, "ClusterRole", "", "towline-agent"], "own", "own"),
            (
                [RBAC, "ClusterRole", "", "towline-agent-workloads"],
                "own",
                "own",
            ),
            (
                [RBAC, "ClusterRoleBinding", "", "towline-agent-workloads"],
                "own",
                "own",
            ),
            (
                [ADMISSION, "ValidatingAdmissionPolicy", "", "towline-agent"],
                "own",
                "own",
            ),
            (
                [
                    ADMISSION,
                    "ValidatingAdmissionPolicyBinding",
                    "",
                    "towline-agent",
                ],
                "own",
                "own",
            ),
            // Names that only look alike, and their rightful twins.
            (
                [RBAC, "ClusterRole", "", "towline-agents"],
                "reached",
                "reached",
            ),
            (
                ["apps", "Deployment", "shop", "towline-agent"],
                "reached",
                "reached",
            ),
            (["apps", "DaemonSet", "shop", "x"], "reached", "reached"),
            (["", "Namespace", "", "shop"], "reached", "reached"),
            (["", "Namespace", "", "kubernetes"], "reached", "reached"),
            (
                ["", "ConfigMap", "my-kube-system", "x"],
                "reached",
                "reached",
            ),
            (["", "ConfigMap", "kube", "x"], "reached", "reached"),
            // A kind of another group that is called Namespace is no namespace.
            (
                ["example.com", "Namespace", "", "kube-system"],
                "reached",
                "reached",
            ),
            (
                ["example.com", "Namespace", "kube-system", "x"],
                "reserved",
                "reached",
            ),
        ];
        let closed = Reserved::new::<&str>(HOME, []).expect("valid");
        let open = Reserved::new(HOME, ["kube-system"]).expect("valid");
        for (object, without, with) in table {
            assert_eq!(shown(&closed, object), without, "{object:?}");
            assert_eq!(shown(&open, object), with, "{object:?} with the flag");
        }
    }

    #[test]
    fn an_agents_own_namespace_is_its_own_whatever_its_name() {
        let reserved = Reserved::new("fleet", ["towline-system"]).expect("valid");
        for (namespace, want) in [("fleet", "home"), (HOME, "reached"), ("shop", "reached")] {
            assert_eq!(shown(&reserved, ["", "ConfigMap", namespace, "x"]), want);
        }
    }

    #[test]
    fn flags_that_cannot_be_meant_are_refused() {
        let refused = |name: &str| Reserved::new(HOME, [name]).expect_err(name);
        assert_eq!(refused(HOME), InvalidNamespace::Home(HOME.into()));
        assert_eq!(
            refused("shop"),
            InvalidNamespace::NotReserved("shop".into())
        );
        for name in ["kube-*", "", "*", "kube-system,kube-public", "KUBE-SYSTEM"] {
            assert_eq!(refused(name), InvalidNamespace::NotALabel(name.into()));
        }
        let twice = ["kube-system", "kube-public", "kube-system"];
        let reserved = Reserved::new(HOME, twice).expect("valid");
        assert_eq!(reserved.allowed(), ["kube-public", "kube-system"]);
    }

    #[test]
    fn a_rule_says_what_opens_it() {
        let text = Rule::Namespace("kube-system".into()).to_string();
        assert!(
            text.contains("`towline register --allow-namespace kube-system`"),
            "{text}"
        );
        for rule in [Rule::Home(HOME.into()), Rule::Own] {
            assert!(!rule.to_string().contains("--"), "{rule}");
        }
    }
}
