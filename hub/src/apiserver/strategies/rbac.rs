//! Roles and bindings. Whether their writer may give the rights they hold is decided by `authz`.

use super::{Facts, Strategy};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind, FieldErrors};
use crate::apiserver::names::{self, NameRule};
use crate::apiserver::value::{at, is_set, list, put, text};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) struct Roles;
pub(super) struct Bindings;

impl Strategy for Roles {
    fn validates_anew(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, _: Option<&Value>) -> FieldErrors {
        let namespaced = facts.context.resource.namespaced;
        let mut errors: FieldErrors = list(object, &["rules"])
            .iter()
            .enumerate()
            .flat_map(|(index, rule)| check_rule(rule, namespaced, &format!("rules[{index}]")))
            .collect();
        if at(object, &["aggregationRule"]).is_some_and(|rule| !rule.is_null())
            && list(object, &["aggregationRule", "clusterRoleSelectors"]).is_empty()
        {
            errors.push(FieldError::required(
                "aggregationRule.clusterRoleSelectors",
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        errors
    }
}

fn check_rule(rule: &Value, namespaced: bool, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if !is_set(rule, &["verbs"]) {
        errors.push(FieldError::required(
            format!("{path}.verbs"),
            "verbs must contain at least one value",
        ));
    }
    if is_set(rule, &["nonResourceURLs"]) {
        let mut wrong = |why: &str| {
            errors.push(FieldError::invalid(
                format!("{path}.nonResourceURLs"),
                rule["nonResourceURLs"].clone(),
                why,
            ));
        };
        if namespaced {
            wrong("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"]
            .iter()
            .any(|field| is_set(rule, &[field]))
        {
            wrong("rules cannot apply to both regular resources and non-resource URLs");
        }
        return errors;
    }
    for (field, why) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
        ),
    ] {
        if !is_set(rule, &[field]) {
            errors.push(FieldError::required(format!("{path}.{field}"), why));
        }
    }
    errors
}

impl Strategy for Bindings {
    fn validates_anew(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        if text(object, &["roleRef", "apiGroup"]).is_empty() {
            put(object, &["roleRef", "apiGroup"], Some(json!(GROUP)));
        }
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            let of_group = matches!(text(subject, &["kind"]), "User" | "Group");
            if of_group && text(subject, &["apiGroup"]).is_empty() {
                put(subject, &["apiGroup"], Some(json!(GROUP)));
            }
        }
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let namespaced = facts.context.resource.namespaced;
        let mut errors = FieldErrors::new();
        if old.is_some_and(|old| old.get("roleRef") != object.get("roleRef")) {
            // Told in the words of the server's own type.
            let shown = ["apiGroup", "kind", "name"]
                .map(|field| json!(text(object, &["roleRef", field])).to_string());
            let [group, kind, name] = shown;
            let shown = format!(r#"{{"APIGroup":{group},"Kind":{kind},"Name":{name}}}"#);
            errors.push(FieldError::new(
                "roleRef",
                FieldErrorKind::Invalid,
                BadValue::Typed(shown.into()),
                "cannot change roleRef",
            ));
        }
        let group = text(object, &["roleRef", "apiGroup"]);
        if group != GROUP {
            errors.push(FieldError::not_supported(
                "roleRef.apiGroup",
                json!(group),
                &[GROUP],
            ));
        }
        let kinds: &[&str] = if namespaced {
            &["Role", "ClusterRole"]
        } else {
            &["ClusterRole"]
        };
        let kind = text(object, &["roleRef", "kind"]);
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported(
                "roleRef.kind",
                json!(kind),
                kinds,
            ));
        }
        let name = text(object, &["roleRef", "name"]);
        if name.is_empty() {
            errors.push(FieldError::required("roleRef.name", ""));
        } else {
            for why in NameRule::PathSegment.check(name, false) {
                errors.push(FieldError::invalid("roleRef.name", json!(name), why));
            }
        }
        for (index, subject) in list(object, &["subjects"]).iter().enumerate() {
            errors.extend(check_subject(
                subject,
                namespaced,
                &format!("subjects[{index}]"),
            ));
        }
        errors
    }
}

fn check_subject(subject: &Value, namespaced: bool, path: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = text(subject, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let group = text(subject, &["apiGroup"]);
    let wrong_group = |supported: &str| {
        FieldError::not_supported(format!("{path}.apiGroup"), json!(group), &[supported])
    };
    match text(subject, &["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                for why in names::subdomain(name) {
                    errors.push(FieldError::invalid(
                        format!("{path}.name"),
                        json!(name),
                        why,
                    ));
                }
            }
            if !group.is_empty() {
                errors.push(wrong_group(""));
            }
            if !namespaced && text(subject, &["namespace"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(wrong_group(GROUP));
            }
        }
        kind => errors.push(FieldError::not_supported(
            format!("{path}.kind"),
            json!(kind),
            &["ServiceAccount", "User", "Group"],
        )),
    }
    errors
}
