//! What people get who have `view`, `edit` or `admin`: Kubernetes gathers these roles into those.
//!
//! A Work may hold Secrets in plain, so `view`, which reads no Secrets, reads no Works. Whoever writes Works
//! in an execution namespace does in that member what its agent may do there: `edit` of that namespace, or
//! of all by a ClusterRoleBinding, is for those alone. Clusters and what is said for all namespaces are read
//! here, by a ClusterRoleBinding, and written by who is bound to `towline-operator`, which goes into no other role.

use super::object::Desired;
use serde_json::{Value, json};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// The roles.
pub fn desired() -> Vec<Desired> {
    let policies = &["propagationpolicies", "overridepolicies"][..];
    let view = json!([
        rule("policy.karmada.io", policies, &READ),
        rule(
            "policy.karmada.io",
            &[
                "clusterpropagationpolicies",
                "clusteroverridepolicies",
                "clustertaintpolicies"
            ],
            &READ
        ),
        rule("apps.karmada.io", &["workloadrebalancers"], &READ),
        rule(
            "work.karmada.io",
            &["resourcebindings", "clusterresourcebindings"],
            &READ
        ),
        rule("cluster.karmada.io", &["clusters"], &READ),
        customizations(),
    ]);
    let edit = json!([
        rule("policy.karmada.io", policies, &WRITE),
        rule("work.karmada.io", &["works"], &[&READ[..], &WRITE].concat()),
    ]);
    let admin = json!([rule(
        "work.karmada.io",
        &["resourcebindings"],
        &["delete", "deletecollection", "patch", "update"]
    )]);
    let gathered = [("view", view), ("edit", edit), ("admin", admin)];
    let mut roles: Vec<Desired> = gathered.map(|(into, rules)| role(into, rules)).into();
    roles.push(operator());
    roles
}

/// Whoever runs the fleet: labels, cordons and taints clusters, and says what goes where in all namespaces.
fn operator() -> Desired {
    let all = [&READ[..], &WRITE].concat();
    let rules = json!([
        rule(
            "cluster.karmada.io",
            &["clusters"],
            &[&READ[..], &["patch", "update"]].concat()
        ),
        rule(
            "policy.karmada.io",
            &[
                "clusterpropagationpolicies",
                "clusteroverridepolicies",
                "clustertaintpolicies"
            ],
            &all
        ),
        rule("apps.karmada.io", &["workloadrebalancers"], &all),
        rule(
            "work.karmada.io",
            &["resourcebindings", "clusterresourcebindings"],
            &READ
        ),
        leases(),
        customizations(),
    ]);
    Desired::new(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "towline-operator"},
        "rules": rules,
    }))
}

/// When agents and the hub's own process were heard last. Nobody is sent every heartbeat: whoever looks asks.
fn leases() -> Value {
    rule("coordination.k8s.io", &["leases"], &["get", "list"])
}

/// What says how kinds are understood: plans follow it.
fn customizations() -> Value {
    let resources = &["resourceinterpretercustomizations"];
    rule("config.karmada.io", resources, &READ)
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(into: &str, rules: Value) -> Desired {
    let gathered = format!("rbac.authorization.k8s.io/aggregate-to-{into}");
    Desired::new(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("towline-{into}"), "labels": {gathered: "true"}},
        "rules": rules,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_of_a_kind_that_is_served() {
        let served: Vec<String> = super::super::crds::desired()
            .iter()
            .map(|definition| definition.key().name)
            .collect();
        for role in desired() {
            for rule in role.value()["rules"].as_array().expect("rules") {
                let group = rule["apiGroups"][0].as_str().expect("a group");
                for resource in rule["resources"].as_array().expect("resources") {
                    let name = format!("{}.{group}", resource.as_str().expect("a name"));
                    let is_known = served.contains(&name) || name == "leases.coordination.k8s.io";
                    assert!(is_known, "{name} is no kind of ours");
                }
            }
        }
    }

    #[test]
    fn nobody_writes_a_status_and_operators_alone_write_for_all_namespaces() {
        let mut operators = 0;
        for role in desired() {
            let text = role.value()["rules"].to_string();
            assert!(!text.contains("/status") && !text.contains('*'), "{text}");
            let gathered = role.value()["metadata"]["labels"]
                .to_string()
                .contains("aggregate-to");
            operators += usize::from(!gathered);
            for rule in role.value()["rules"].as_array().expect("rules") {
                let resources = rule["resources"].to_string();
                let cluster_wide = resources.contains("cluster");
                let writes = rule["verbs"].to_string().contains("patch");
                assert!(!(gathered && cluster_wide && writes), "{rule}");
                assert!(
                    gathered || !resources.contains("works"),
                    "a Work may hold Secrets: {rule}"
                );
            }
        }
        assert_eq!(operators, 1);
    }
}
