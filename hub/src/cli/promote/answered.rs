//! Whether a member answered with what it was asked for. Pure.

use common::mapper::Resource;
use serde_json::Value;

/// Whether an object is the one of this name: of the type that was asked for, and of no other namespace.
pub(super) fn is_of(object: &Value, resource: &Resource, namespace: &str, name: &str) -> bool {
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let namespace = if resource.namespaced { namespace } else { "" };
    object["apiVersion"] == resource.gvk.api_version()
        && object["kind"] == *resource.gvk.kind
        && metadata["name"] == *name
        && text(&metadata["namespace"]) == namespace
        && (metadata["namespace"].is_string() || metadata["namespace"].is_null())
}

/// What it is, for somebody who reads it on a terminal.
pub(super) fn shown(object: &Value) -> String {
    let text = |of: &Value| {
        of.as_str()
            .map(|it| it.chars().take(100).collect::<String>())
    };
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    match (version, kind, namespace, name) {
        (Some(version), Some(kind), Some(namespace), Some(name)) => {
            format!("{version:?} {kind:?} {name:?} of namespace {namespace:?}")
        }
        (Some(version), Some(kind), None, Some(name)) => format!("{version:?} {kind:?} {name:?}"),
        _ => "what is no object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gvk::Gvk;
    use serde_json::json;

    fn resource(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Resource {
        Resource {
            gvk: Gvk::new(api_version, kind).expect("a kind"),
            plural: plural.to_owned(),
            namespaced,
        }
    }

    #[test]
    fn a_member_answers_for_what_it_was_asked_alone() {
        let maps = resource("v1", "ConfigMap", "configmaps", true);
        let of = |api_version: &str, kind: &str, namespace: Value, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace});
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        };
        let right = of("v1", "ConfigMap", json!("shop"), "x");
        assert!(is_of(&right, &maps, "shop", "x"));
        let rbac = "rbac.authorization.k8s.io/v1";
        for other in [
            of(rbac, "ClusterRoleBinding", json!("shop"), "x"),
            of(rbac, "ConfigMap", json!("shop"), "x"),
            of("v1", "Secret", json!("shop"), "x"),
            of("v1", "ConfigMap", json!("victim"), "x"),
            of("v1", "ConfigMap", json!(null), "x"),
            of("v1", "ConfigMap", json!(["shop"]), "x"),
            of("v1", "ConfigMap", json!("shop"), "y"),
            json!({}),
            json!("x"),
        ] {
            assert!(!is_of(&other, &maps, "shop", "x"), "{other}");
        }
        let roles = resource(rbac, "ClusterRole", "clusterroles", false);
        let role = of(rbac, "ClusterRole", json!(null), "x");
        assert!(is_of(&role, &roles, "shop", "x"));
        let placed = of(rbac, "ClusterRole", json!("shop"), "x");
        assert!(!is_of(&placed, &roles, "shop", "x"));
    }

    #[test]
    fn what_was_answered_is_shown_without_what_a_terminal_would_obey() {
        let odd = json!({"apiVersion": "v1", "kind": "\u{1b}[2J", "metadata": {"name": "x"}});
        assert_eq!(shown(&odd), r#""v1" "\u{1b}[2J" "x""#);
        assert_eq!(shown(&json!(7)), "what is no object");
    }
}
