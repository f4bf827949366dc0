//! The admission policies: what a token and an agent may write at all, and what nobody deletes by slip.
//!
//! Isolation is RBAC by name; these policies narrow what is left. The policies about our identities
//! match every write of theirs and refuse by default, so a right granted by mistake is still no right.
//! They cannot guard policies themselves, which the API server exempts: nobody of ours may ever be given
//! a right on those. The expressions are in `cel`, and are held to real API servers by the lab's tests.

mod cel;
pub mod propagation;

use super::object::Desired;
use common::identity::{AGENT_USER_PREFIX, AGENTS_GROUP, BOOTSTRAP_GROUP, CLUSTER_GROUP_PREFIX};
use common::labels::UNREGISTER;
use common::names::EXECUTION_PREFIX;
use common::unregister::Mode;
use serde_json::{Value, json};

/// Policy over bootstrap tokens of our group.
pub const TOKENS_POLICY: &str = "towline-tokens";
/// Policy over agents.
pub const AGENTS_POLICY: &str = "towline-agents";
/// Policy over the deletion of Clusters.
pub const CLUSTERS_POLICY: &str = "towline-clusters";
/// Policy over where Works are made.
pub const WORKS_POLICY: &str = "towline-works";

/// What an agent reads that writes in another's name.
pub const OWN_MANAGER_ONLY: &str = "an agent may write only as a field manager whose name begins with \
     towline-agent or karmada-agent";

/// Policy over the deletion of namespaces that hold what is the hub's.
pub const NAMESPACES_POLICY: &str = "towline-namespaces";

/// Policy over the deletion of the kinds that the hub is made of.
pub const DEFINITIONS_POLICY: &str = "towline-definitions";

/// All policies and their bindings.
pub fn desired() -> Vec<Desired> {
    let guards = [
        tokens(),
        agents(),
        clusters(),
        works(),
        namespaces(),
        definitions(),
    ];
    let guards = guards.into_iter().chain(propagation::policies());
    guards
        .flat_map(|policy| {
            let binding = binding(policy["metadata"]["name"].as_str().unwrap_or_default());
            [Desired::new(policy), Desired::new(binding)]
        })
        .collect()
}

fn tokens() -> Value {
    let mut validations = vec![validation(
        format!("variables.target == '{}'", cel::CREATE_CSR),
        "a bootstrap token may only create a certificate signing request",
    )];
    validations.extend(csr_form("true"));
    policy(
        TOKENS_POLICY,
        everything(),
        format!("{}.exists(g, g == '{BOOTSTRAP_GROUP}')", cel::GROUPS),
        vec![variable("target", cel::TARGET.to_owned())],
        validations,
    )
}

fn agents() -> Value {
    let target = |what: &str| format!("variables.target == '{what}'");
    let only = |what: &str, then: &str| format!("variables.target != '{what}' || ({then})");
    let allowed = [
        cel::UPDATE_CLUSTER_STATUS,
        cel::UPDATE_LEASE,
        cel::UPDATE_WORK,
        cel::UPDATE_WORK_STATUS,
        cel::CREATE_EVENT,
        cel::UPDATE_EVENT,
        cel::CREATE_CSR,
    ];
    let mut validations = vec![
        validation(
            allowed.map(target).join(" || "),
            "an agent may only write the status of its own Cluster, its own Lease, status and \
             finalizer of its own Works, Events about them, and requests for its certificate",
        ),
        validation(
            "variables.cluster != ''".to_owned(),
            "this identity has an agent's group but is no agent",
        ),
        validation(
            only(
                cel::UPDATE_CLUSTER_STATUS,
                &format!(
                    "request.name == variables.cluster && {} && {}",
                    cel::METADATA_UNCHANGED,
                    cel::unchanged_but("status"),
                ),
            ),
            "an agent may write nothing but the status of its own Cluster",
        ),
        validation(
            only(
                cel::UPDATE_LEASE,
                &format!(
                    "request.namespace == '{}' && request.name == variables.cluster && {} && {} && \
                     {} && {}",
                    common::names::CLUSTER_NAMESPACE,
                    cel::OWNERSHIP_SMALL,
                    cel::METADATA_UNCHANGED,
                    cel::unchanged_but("spec"),
                    cel::LEASE_UNCHANGED_BUT_RENEW_TIME,
                ),
            ),
            "an agent may write nothing but renewTime of its own Lease",
        ),
        validation(
            only(
                cel::UPDATE_WORK,
                &format!(
                    "request.namespace == variables.works && {} && {}",
                    cel::METADATA_UNCHANGED_BUT_OWN_FINALIZER,
                    cel::unchanged_but(""),
                ),
            ),
            "an agent may change nothing of its own Works but their status and its own finalizer",
        ),
        validation(
            only(
                cel::UPDATE_WORK_STATUS,
                &format!(
                    "request.namespace == variables.works && {} && {}",
                    cel::METADATA_UNCHANGED,
                    cel::unchanged_but("status"),
                ),
            ),
            "an agent may write nothing but the status of its own Works",
        ),
    ];
    let events = "an agent may write Events only in its execution namespace, about its Works, from \
                  towline-agent or a controller of Karmada's agent, with at most 1024 characters";
    let is_event = format!(
        "{} || {}",
        target(cel::CREATE_EVENT),
        target(cel::UPDATE_EVENT)
    );
    // Leases and requests count for nobody.
    validations.push(validation(
        format!(
            "variables.target in ['{}', '{}'] || ({})",
            cel::UPDATE_LEASE,
            cel::CREATE_CSR,
            cel::own_manager(),
        ),
        OWN_MANAGER_ONLY,
    ));
    for form in cel::EVENT_FORM {
        validations.push(validation(format!("!({is_event}) || ({form})"), events));
    }
    let same = format!("{} && {}", cel::METADATA_UNCHANGED, cel::EVENT_SAME);
    validations.push(validation(only(cel::UPDATE_EVENT, &same), events));
    validations.push(validation(
        only(cel::CREATE_CSR, cel::READS_OWN_WORKS),
        "this registration is no longer in force",
    ));
    validations.extend(csr_form(&target(cel::CREATE_CSR)));
    policy(
        AGENTS_POLICY,
        everything(),
        format!(
            "request.userInfo.username.startsWith('{AGENT_USER_PREFIX}') || {}.exists(g, \
             g == '{AGENTS_GROUP}' || g.startsWith('{CLUSTER_GROUP_PREFIX}'))",
            cel::GROUPS,
        ),
        vec![
            variable("target", cel::TARGET.to_owned()),
            variable("cluster", cel::cluster()),
            variable("works", cel::execution_namespace()),
        ],
        validations,
    )
}

fn clusters() -> Value {
    let rules = json!([{
        "apiGroups": ["cluster.karmada.io"],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["clusters"],
        "scope": "Cluster",
    }]);
    let modes = [Mode::RemoveWorkloads, Mode::KeepWorkloads, Mode::Force].map(Mode::as_str);
    let mut validation = validation(
        cel::may_delete_cluster(&modes),
        "a Ready Cluster is removed by `towline unregister`",
    );
    validation["messageExpression"] = json!(format!(
        "'Cluster ' + oldObject.metadata.name + ' is Ready: remove it by `towline unregister ' + \
         oldObject.metadata.name + '`, or annotate it first with {UNREGISTER}={}'",
        modes.join("|"),
    ));
    policy(
        CLUSTERS_POLICY,
        rules,
        "true".to_owned(),
        Vec::new(),
        vec![validation],
    )
}

/// What a Work in another namespace is told, here and in process.
pub fn misplaced_work(namespace: &str) -> String {
    format!(
        "a Work belongs into the execution namespace of a cluster, {EXECUTION_PREFIX}<cluster>: nobody \
         carries out one in namespace {namespace}"
    )
}

fn works() -> Value {
    let rules = json!([{
        "apiGroups": ["work.karmada.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["works"],
        "scope": "Namespaced",
    }]);
    let mut validation = validation(cel::work_in_place(), &misplaced_work("that is none"));
    let message = misplaced_work("' + request.namespace + '");
    validation["messageExpression"] = json!(format!("'{message}'"));
    policy(
        WORKS_POLICY,
        rules,
        "true".to_owned(),
        Vec::new(),
        vec![validation],
    )
}

/// Why a namespace is not deleted, and the way out; the same on both foundations. Of an execution
/// namespace the Cluster's name is given, of the others none.
pub fn namespace_guarded(namespace: &str, cluster: Option<&str>) -> String {
    let annotate = format!(
        "kubectl annotate namespace {namespace} {UNREGISTER}={}",
        Mode::Force.as_str()
    );
    match cluster {
        Some(cluster) => format!(
            "Namespace {namespace} holds the Works of Cluster {cluster}, and what they made in the member \
             would go with them: remove the cluster by `towline unregister {cluster}`, or run first: \
             {annotate}"
        ),
        None => format!(
            "Namespace {namespace} holds what the hub needs to reach its clusters: remove the clusters by \
             `towline unregister`, and run then: {annotate}"
        ),
    }
}

fn namespaces() -> Value {
    let rules = json!([{
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["namespaces"],
        "scope": "Cluster",
    }]);
    let mut validation = validation(
        cel::may_delete_namespace(),
        "a namespace of Towline is removed by `towline unregister`",
    );
    // The texts as they are built above, with the names put in by the API server.
    let of_cluster = namespace_guarded("$N", Some("$C")).replace("$C", "' + variables.cluster + '");
    let of_hub = namespace_guarded("$N", None);
    let text = format!("variables.cluster != '' ? '{of_cluster}' : '{of_hub}'");
    let text = text.replace("$N", "' + oldObject.metadata.name + '");
    validation["messageExpression"] = json!(text);
    policy(
        NAMESPACES_POLICY,
        rules,
        cel::NOT_GARBAGE_COLLECTION.to_owned(),
        vec![variable("cluster", cel::cluster_of_namespace())],
        vec![validation],
    )
}

/// Why a definition is not deleted, and the way out; the same on both foundations.
pub fn definition_guarded(name: &str) -> String {
    format!(
        "every object of {name} would go with it, and with them what they brought to members: `towline unregister` \
         removes a cluster; if all of it is to go, run first: kubectl annotate crd {name} {UNREGISTER}={}",
        Mode::Force.as_str()
    )
}

fn definitions() -> Value {
    let rules = json!([{
        "apiGroups": ["apiextensions.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["customresourcedefinitions"],
        "scope": "Cluster",
    }]);
    let mut validation = validation(
        cel::may_delete_definition(),
        "the kinds that a hub is made of are not deleted while it is one",
    );
    let text = definition_guarded("$N").replace("$N", "' + oldObject.metadata.name + '");
    validation["messageExpression"] = json!(format!("'{text}'"));
    policy(
        DEFINITIONS_POLICY,
        rules,
        "true".to_owned(),
        Vec::new(),
        vec![validation],
    )
}

/// What a certificate signing request must look like, when `guard` holds.
fn csr_form(guard: &str) -> Vec<Value> {
    let rule = |expression: &str, message| {
        let expression = match guard {
            "true" => expression.to_owned(),
            guard => format!("!({guard}) || ({expression})"),
        };
        validation(expression, message)
    };
    vec![
        rule(
            cel::OWNERSHIP_SMALL,
            "a certificate signing request must not bring field ownership along",
        ),
        rule(
            cel::CSR_METADATA,
            "a certificate signing request must be named towline-[a-z0-9]{32,} and have no labels, \
             finalizers or owners, and no annotation but towline.dev/cluster-id",
        ),
        rule(
            &cel::csr_spec(),
            "a certificate signing request must be for signer kubernetes.io/kube-apiserver-client, \
             have expirationSeconds from 600 up to 90 days, and a request of at most 4 KiB",
        ),
    ]
}

fn everything() -> Value {
    json!([{
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*/*"],
        "scope": "*",
    }])
}

fn policy(
    name: &str,
    rules: Value,
    condition: String,
    variables: Vec<Value>,
    validations: Vec<Value>,
) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": rules},
        "matchConditions": [{"name": "ours", "expression": condition}],
        "validations": validations,
    });
    if !variables.is_empty() {
        spec["variables"] = json!(variables);
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn binding(policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

fn validation(expression: String, message: &str) -> Value {
    json!({"expression": expression, "message": message, "reason": "Forbidden"})
}

fn variable(name: &str, expression: String) -> Value {
    json!({"name": name, "expression": expression})
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };

    #[test]
    fn policies_hold_only_fields_the_api_knows() {
        for desired in desired() {
            let value = desired.value();
            let back = match desired.key().kind.as_str() {
                "ValidatingAdmissionPolicy" => {
                    let typed: ValidatingAdmissionPolicy =
                        serde_json::from_value(value.clone()).expect("a policy");
                    serde_json::to_value(typed)
                }
                _ => {
                    let typed: ValidatingAdmissionPolicyBinding =
                        serde_json::from_value(value.clone()).expect("a binding");
                    serde_json::to_value(typed)
                }
            };
            assert_eq!(back.expect("JSON"), value);
        }
    }

    #[test]
    fn every_policy_denies_and_fails_closed() {
        for desired in desired() {
            let value = desired.value();
            let spec = &value["spec"];
            match desired.key().kind.as_str() {
                "ValidatingAdmissionPolicy" => assert_eq!(spec["failurePolicy"], "Fail"),
                _ => assert_eq!(spec["validationActions"], json!(["Deny"])),
            }
        }
    }
}
