//! Policies over what is propagated: what is protected from deletion, whose identity stays, and what of a
//! policy its definition cannot see. In process, `apiserver::propagation` says the same in the same words.

use super::{policy, validation, variable};
use common::api::schema::{
    LABEL_KEY_MESSAGE, LABEL_VALUE_MESSAGE, LABEL_VALUE_PATTERN, QUALIFIED_NAME_PATTERN,
};
use common::labels::{
    CLUSTER_POLICY_PERMANENT_ID, DELETION_PROTECTED, DELETION_PROTECTED_ALWAYS, POLICY_PERMANENT_ID,
};
use serde_json::{Value, json};

/// Policy over the deletion of what is protected.
pub const PROTECTION_POLICY: &str = "towline-protection";
/// Policy over PropagationPolicies and ClusterPropagationPolicies.
pub const PROPAGATION_POLICY: &str = "towline-propagation-policies";
/// Policy over OverridePolicies and ClusterOverridePolicies.
pub const OVERRIDE_POLICY: &str = "towline-override-policies";

/// What is told of a selector that reaches out of its policy's namespace.
pub const FOREIGN_NAMESPACE: &str =
    "namespace of resource selector must be the same as the namespace of the policy";
/// What is told of a change of a document that says where, and not what.
pub const VALUE_REQUIRED: &str = "value is required for add or replace operation";
/// What is told of a removal that brings a value.
pub const VALUE_NOT_ALLOWED: &str = "value is not allowed for remove operation";

/// What is told of the deletion of a protected object.
pub fn protected() -> String {
    format!(
        "This resource is protected, please make sure to remove the label: {DELETION_PROTECTED}"
    )
}

/// What is told of a policy whose permanent id, a label, would change.
pub fn id_is_immutable(label: &str) -> String {
    format!("label {label} is immutable, it can only be set by the system during creation")
}

/// All of them.
pub(super) fn policies() -> [Value; 3] {
    [protection(), propagation(), overrides()]
}

fn protection() -> Value {
    let rules = json!([{
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": ["*"],
        "scope": "*",
    }]);
    let allowed = format!(
        "oldObject.metadata.?labels[?'{DELETION_PROTECTED}'].orValue('') != \
         '{DELETION_PROTECTED_ALWAYS}'"
    );
    let mut policy = policy(
        PROTECTION_POLICY,
        rules,
        "true".to_owned(),
        Vec::new(),
        vec![validation(allowed, &protected())],
    );
    // Looked at before any expression, so that other deletions cost nothing.
    policy["spec"]["matchConstraints"]["objectSelector"] =
        json!({"matchLabels": {DELETION_PROTECTED: DELETION_PROTECTED_ALWAYS}});
    policy
}

fn written(resources: [&str; 2]) -> Value {
    json!([{
        "apiGroups": ["policy.karmada.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": resources,
        "scope": "*",
    }])
}

/// A policy in a namespace selects there.
fn own_namespace(namespaced: &str) -> (Vec<Value>, Value) {
    let variables = vec![
        variable(
            "namespaces",
            "object.spec.?resourceSelectors.orValue([]).map(s, s.?namespace.orValue(''))"
                .to_owned(),
        ),
        variable(
            "foreign",
            format!(
                "request.resource.resource == '{namespaced}' ? \
                 variables.namespaces.filter(n, n != '' && n != request.namespace) : []"
            ),
        ),
    ];
    let mut rule = validation(
        "variables.foreign.size() == 0".to_owned(),
        FOREIGN_NAMESPACE,
    );
    rule["messageExpression"] = json!(format!(
        "'spec.resourceSelectors[' + string(variables.namespaces.indexOf(variables.foreign[0])) + \
         '].namespace: Invalid value: \"' + variables.foreign[0] + '\": {FOREIGN_NAMESPACE}'"
    ));
    (variables, rule)
}

fn propagation() -> Value {
    let (mut variables, namespaces) = own_namespace("propagationpolicies");
    variables.push(variable(
        "id",
        format!(
            "request.resource.resource == 'propagationpolicies' ? '{POLICY_PERMANENT_ID}' : \
             '{CLUSTER_POLICY_PERMANENT_ID}'"
        ),
    ));
    let mut immutable = validation(
        "request.operation != 'UPDATE' || \
         oldObject.metadata.?labels[?variables.id].orValue('') == '' || \
         object.metadata.?labels[?variables.id].orValue('') == oldObject.metadata.labels[variables.id]"
            .to_owned(),
        &id_is_immutable("permanent-id"),
    );
    immutable["messageExpression"] =
        json!(format!("'{}'", id_is_immutable("' + variables.id + '")));
    policy(
        PROPAGATION_POLICY,
        written(["propagationpolicies", "clusterpropagationpolicies"]),
        "true".to_owned(),
        variables,
        vec![immutable, namespaces],
    )
}

fn overrides() -> Value {
    let (mut variables, namespaces) = own_namespace("overridepolicies");
    variables.push(variable(
        "overriders",
        "object.spec.?overrideRules.orValue([]).map(r, r.overriders)".to_owned(),
    ));
    let each = |list: &str, holds: &str| {
        format!("variables.overriders.all(o, o.?{list}.orValue([]).all(v, {holds}))")
    };
    let patches = |holds: &str| {
        let both = "(v.?json.orValue([]) + v.?yaml.orValue([]))";
        each("fieldOverrider", &format!("{both}.all(p, {holds})"))
    };
    let entries =
        |list: &str, holds: &str| each(list, &format!("v.?value.orValue({{}}).all(k, {holds})"));
    let at = |what: &str, why: &str| format!("spec.overrideRules.overriders.{what}: {why}");
    let invalid =
        |list: &str, why: &str| at(&format!("{list}.value"), &format!("Invalid value: {why}"));
    let validations = vec![
        namespaces,
        validation(
            patches("p.operator == 'remove' || has(p.value)"),
            &at("fieldOverrider", VALUE_REQUIRED),
        ),
        validation(
            patches("p.operator != 'remove' || !has(p.value)"),
            &at("fieldOverrider", VALUE_NOT_ALLOWED),
        ),
        validation(
            entries(
                "labelsOverrider",
                &format!("k.matches('{QUALIFIED_NAME_PATTERN}')"),
            ),
            &invalid("labelsOverrider", LABEL_KEY_MESSAGE),
        ),
        validation(
            entries(
                "labelsOverrider",
                &format!("v.value[k].size() <= 63 && v.value[k].matches('{LABEL_VALUE_PATTERN}')"),
            ),
            &invalid("labelsOverrider", LABEL_VALUE_MESSAGE),
        ),
        validation(
            entries(
                "annotationsOverrider",
                &format!("k.lowerAscii().matches('{QUALIFIED_NAME_PATTERN}')"),
            ),
            &invalid("annotationsOverrider", LABEL_KEY_MESSAGE),
        ),
    ];
    policy(
        OVERRIDE_POLICY,
        written(["overridepolicies", "clusteroverridepolicies"]),
        "true".to_owned(),
        variables,
        validations,
    )
}
