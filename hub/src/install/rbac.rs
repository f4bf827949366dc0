//! What tokens and agents may do before anything is said about one cluster, and who may read cluster-info.
//!
//! Everything about one cluster is written by the hub when it registers; nothing here gives a right on
//! another's object. CSR names are unguessable, and nobody of ours may list them.

use super::object::Desired;
use super::proof;
use common::identity::{AGENTS_GROUP, BOOTSTRAP_GROUP};
use common::names::{self, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

/// Lets a bootstrap token ask for a certificate.
pub const BOOTSTRAP: &str = "towline:bootstrap";
/// Lets an agent renew its certificate.
pub const AGENTS: &str = "towline:agents";
/// What an agent may do in its own execution namespace; bound there by the hub.
pub const AGENT_WORKS: &str = "towline:agent-works";
/// Lets the process beside the hub serve clusters that were joined.
pub const PUSH: &str = "towline:push";
/// Lets anybody read cluster-info, which is public by design.
pub const CLUSTER_INFO: &str = "towline:cluster-info";
/// Lets two identities that nobody can have patch one empty ConfigMap, to prove the policies.
pub const POLICY_PROBE: &str = "towline:policy-probe";

/// Rights that must exist before the policies can be proved, and that are worth nothing.
pub fn probe_rights() -> Vec<Desired> {
    let rule = json!({
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [proof::CONFIG_MAP],
        "verbs": ["patch"],
    });
    let subjects = [user(proof::AGENT_USER), user(proof::TOKEN_USER)];
    [
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": proof::CONFIG_MAP, "namespace": SYSTEM_NAMESPACE},
        }),
        role(Some(SYSTEM_NAMESPACE), POLICY_PROBE, json!([rule])),
        binding(Some(SYSTEM_NAMESPACE), POLICY_PROBE, json!(subjects)),
    ]
    .map(Desired::new)
    .into()
}

/// Rights of tokens and agents, given only once the policies are in force.
pub fn grants() -> Vec<Desired> {
    let requests = json!([{
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"],
        "verbs": ["create", "get"],
    }]);
    let works = json!([
        {
            "apiGroups": ["work.karmada.io"],
            "resources": ["works"],
            "verbs": ["get", "list", "watch", "patch"],
        },
        {"apiGroups": ["work.karmada.io"], "resources": ["works/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]);
    [
        role(None, BOOTSTRAP, requests.clone()),
        binding(None, BOOTSTRAP, json!([group(BOOTSTRAP_GROUP)])),
        role(None, AGENTS, requests),
        binding(None, AGENTS, json!([group(AGENTS_GROUP)])),
        role(None, AGENT_WORKS, works),
    ]
    .map(Desired::new)
    .into()
}

/// What the process beside the hub may do that has an agent for each cluster that was joined: see Clusters, and read by
/// name the Secrets that `towline join` made. What each of its agents may do comes with that agent's own registration.
pub fn push() -> Vec<Desired> {
    let clusters = json!([{
        "apiGroups": ["cluster.karmada.io"],
        "resources": ["clusters"],
        "verbs": ["get", "list", "watch"],
    }]);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let account = json!({
        "kind": "ServiceAccount",
        "name": names::PUSH_NAME,
        "namespace": SYSTEM_NAMESPACE,
    });
    let subjects = json!([account, user(names::PUSH_USER)]);
    let namespace = Some(names::CLUSTER_NAMESPACE);
    [
        role(None, PUSH, clusters),
        binding(None, PUSH, subjects.clone()),
        role(namespace, PUSH, secrets),
        binding(namespace, PUSH, subjects),
    ]
    .map(Desired::new)
    .into()
}

/// Everybody's right to read cluster-info, and nothing else in its namespace: whoever looks for the hub has
/// no name yet, and agents follow by it where the hub goes and by whose word.
pub fn cluster_info() -> Vec<Desired> {
    let rule = json!({
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [super::cluster_info::NAME],
        "verbs": ["get"],
    });
    let namespace = Some(super::cluster_info::NAMESPACE);
    [
        role(namespace, CLUSTER_INFO, json!([rule])),
        binding(
            namespace,
            CLUSTER_INFO,
            json!([user("system:anonymous"), group(AGENTS_GROUP)]),
        ),
    ]
    .map(Desired::new)
    .into()
}

fn role(namespace: Option<&str>, name: &str, rules: Value) -> Value {
    object(
        namespace,
        name,
        ["ClusterRole", "Role"],
        json!({"rules": rules}),
    )
}

fn binding(namespace: Option<&str>, name: &str, subjects: Value) -> Value {
    let kind = if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let kinds = ["ClusterRoleBinding", "RoleBinding"];
    object(
        namespace,
        name,
        kinds,
        json!({"roleRef": role, "subjects": subjects}),
    )
}

fn object(namespace: Option<&str>, name: &str, kinds: [&str; 2], body: Value) -> Value {
    let mut object = body;
    object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
    object["metadata"] = json!({"name": name});
    object["kind"] = json!(kinds[usize::from(namespace.is_some())]);
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn group(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}
