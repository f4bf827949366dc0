//! From what the member's API server answers to what a condition says.
//!
//! Pure.

use super::conflict::FieldConflict;
use super::manifest::Target;
use common::gvk::Gvk;
use common::mapper::Resource;
use common::reserved::Rule;
use common::rest;

/// What binds roles to users in a namespace.
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";

/// The text for an answer of the member about `target`.
pub fn refused(error: &rest::Error, target: &Target, resource: &Resource) -> String {
    let text = format!("{target}: {}", common::errors::chain(error));
    match missing_verb(&error.to_string()) {
        Some(verb) if error.code() == Some(403) => {
            let (qualified, mut flag) = (resource.qualified(), "--allow");
            let mut wanted = qualified.as_str();
            if qualified == ROLE_BINDINGS {
                // Whoever may write these may not yet bind a role that gives more than they have.
                (flag, wanted) = ("--allow-role", "ROLE");
            }
            let place = if resource.namespaced {
                format!("in the namespace {:?}", target.namespace)
            } else {
                "at cluster scope".to_owned()
            };
            format!(
                "{target}: the agent may not {verb} {qualified} {place}; allow it in the member with \
                 `towline register {flag} {wanted}` or with a role for the agent's ServiceAccount",
            )
        }
        _ => text,
    }
}

/// The verb that RBAC refused; other refusals (quota, webhooks) also answer 403.
fn missing_verb(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(' ')?;
    rest.starts_with("resource ").then_some(verb)
}

/// The text for fields that others own.
pub fn conflicts(target: &Target, conflicts: &[FieldConflict]) -> String {
    const SHOWN: usize = 8;
    let mut fields: Vec<String> = conflicts
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    if conflicts.len() > SHOWN {
        fields.push(format!("and {} more", conflicts.len() - SHOWN));
    }
    format!(
        "{target}: {}; set the annotation work.karmada.io/conflict-resolution: overwrite on the manifest to take over",
        fields.join(", ")
    )
}

/// The text for a kind that the member does not serve.
pub fn unknown_kind(target: &Target) -> String {
    format!(
        "{target}: the member serves no {}; is its CustomResourceDefinition installed?",
        describe(&target.gvk)
    )
}

fn describe(gvk: &Gvk) -> String {
    format!("{} in {}", gvk.kind, gvk.api_version())
}

/// The text for an object that no Work reaches.
pub fn reserved(target: &Target, rule: &Rule) -> String {
    format!("{target}: {rule}")
}

/// The text for a namespaced object without a namespace.
pub fn no_namespace(target: &Target) -> String {
    format!("{target}: the kind is namespaced and the manifest names no metadata.namespace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn target() -> Target {
        Target {
            gvk: Gvk::new("example.com/v1", "Widget").expect("sound"),
            namespace: "n".into(),
            name: "a".into(),
        }
    }

    fn answer(code: u16, message: &str) -> rest::Error {
        rest::Error::Refused {
            code,
            reason: String::new(),
            message: message.into(),
            status: Box::new(Value::Null),
            retry_after: None,
        }
    }

    #[test]
    fn a_missing_right_names_verb_resource_namespace_and_remedy() {
        let resource = Resource {
            gvk: target().gvk,
            plural: "widgets".into(),
            namespaced: true,
        };
        let rbac = answer(
            403,
            "widgets.example.com \"a\" is forbidden: User \"x\" cannot patch resource \"widgets\" in API group",
        );
        let text = refused(&rbac, &target(), &resource);
        assert!(
            text.starts_with("Widget n/a: the agent may not patch widgets.example.com in the namespace \"n\"; allow it"),
            "{text}"
        );
        let bindings = Resource {
            gvk: Gvk::new("rbac.authorization.k8s.io/v1", "RoleBinding").expect("sound"),
            plural: "rolebindings".into(),
            namespaced: true,
        };
        let text = refused(&rbac, &target(), &bindings);
        assert!(
            text.contains("`towline register --allow-role ROLE`"),
            "{text}"
        );
        let quota = answer(403, "exceeded quota: q");
        assert_eq!(
            refused(&quota, &target(), &resource),
            "Widget n/a: exceeded quota: q"
        );
    }

    #[test]
    fn many_conflicts_are_counted() {
        let all: Vec<_> = (0..10)
            .map(|i| FieldConflict {
                field: format!(".data.k{i}"),
                manager: "m".into(),
            })
            .collect();
        let text = conflicts(&target(), &all);
        assert!(
            text.contains(".data.k7 is owned by \"m\", and 2 more;"),
            "{text}"
        );
    }
}
