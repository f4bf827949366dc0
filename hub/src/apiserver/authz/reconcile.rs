//! Roles and bindings that every API server has, held against what became of them since. Pure.
//!
//! What is missing is put back at every start, so that nobody is locked out for good and a new version
//! brings its rights along. What somebody added stays, and an object can ask to be left alone.

use super::cover::lacking;
use super::index::{role_ref_of, rules_of};
use serde_json::{Map, Value, json};

/// `false` in this annotation: the object is its owner's, whatever is missing.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What is to happen to an object that is there.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// It stays as it is.
    Keep,
    /// It becomes this.
    Change(Value),
    /// It goes, and is made anew: what a binding refers to cannot change.
    Replace,
}

/// Compares `existing` with what it should be.
pub fn reconciled(existing: &Value, expected: &Value) -> Reconciled {
    if existing["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Reconciled::Keep;
    }
    let mut object = existing.clone();
    for field in ["annotations", "labels"] {
        add_members(&mut object["metadata"], &expected["metadata"], field);
    }
    if expected["roleRef"].is_object() {
        if role_ref_of(existing) != role_ref_of(expected) {
            return Reconciled::Replace;
        }
        add_items(&mut object, expected, "subjects");
    } else {
        add_rules(&mut object, existing, expected);
    }
    if &object == existing {
        Reconciled::Keep
    } else {
        Reconciled::Change(object)
    }
}

/// Adds what a map lacks; what it has stays.
fn add_members(to: &mut Value, from: &Value, field: &str) {
    let Some(wanted) = from[field].as_object().filter(|map| !map.is_empty()) else {
        return;
    };
    if !to[field].is_object() {
        to[field] = Value::Object(Map::new());
    }
    for (key, value) in wanted {
        if to[field][key].is_null() {
            to[field][key] = value.clone();
        }
    }
}

/// Adds what a list lacks, at its end.
fn add_items(to: &mut Value, from: &Value, field: &str) {
    let items = |object: &Value| object[field].as_array().cloned().unwrap_or_default();
    let mut list = items(to);
    for item in items(from) {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    if !list.is_empty() {
        to[field] = Value::Array(list);
    }
}

fn add_rules(object: &mut Value, existing: &Value, expected: &Value) {
    if !expected["aggregationRule"].is_object() {
        // A role that gathers its rules is not to, here.
        if let Some(members) = object.as_object_mut() {
            members.remove("aggregationRule");
        }
        let missing = lacking(&rules_of(existing), &rules_of(expected));
        let mut rules = existing["rules"].as_array().cloned().unwrap_or_default();
        rules.extend(missing.iter().map(|rule| json!(rule)));
        if !rules.is_empty() {
            object["rules"] = Value::Array(rules);
        }
        return;
    }
    if !object["aggregationRule"].is_object() {
        object["aggregationRule"] = json!({});
    }
    let wanted = &expected["aggregationRule"];
    add_items(
        &mut object["aggregationRule"],
        wanted,
        "clusterRoleSelectors",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role() -> Value {
        json!({
            "metadata": {"name": "r", "labels": {"l": "m"}, "annotations": {AUTOUPDATE: "true"}},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
        })
    }

    #[test]
    fn what_is_missing_comes_back_and_what_was_added_stays() {
        assert_eq!(reconciled(&role(), &role()), Reconciled::Keep);
        let mut changed = role();
        changed["metadata"]["labels"] = json!({"own": "x"});
        changed["rules"] = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": ["x"], "resources": ["y"], "verbs": ["*"]},
        ]);
        let Reconciled::Change(mended) = reconciled(&changed, &role()) else {
            panic!("it lacks a verb");
        };
        assert_eq!(mended["metadata"]["labels"], json!({"own": "x", "l": "m"}));
        assert_eq!(
            mended["rules"][2],
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})
        );
        assert_eq!(reconciled(&mended, &role()), Reconciled::Keep);
        changed["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        assert_eq!(reconciled(&changed, &role()), Reconciled::Keep);
    }

    #[test]
    fn a_role_that_gathers_keeps_its_rules_to_itself() {
        let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        let expected = json!({"metadata": {"name": "r"}, "aggregationRule": selector});
        let mut existing = expected.clone();
        existing["rules"] = json!([{"apiGroups": [""], "resources": ["x"], "verbs": ["get"]}]);
        assert_eq!(reconciled(&existing, &expected), Reconciled::Keep);
        existing["aggregationRule"]["clusterRoleSelectors"] = json!([]);
        let Reconciled::Change(mended) = reconciled(&existing, &expected) else {
            panic!("it lacks its selector");
        };
        assert_eq!(mended["aggregationRule"], selector);
    }

    #[test]
    fn a_binding_gets_its_subjects_back_or_is_made_anew() {
        let subject = |name: &str| json!({"kind": "Group", "name": name});
        let expected = json!({
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [subject("one")],
        });
        let mut existing = expected.clone();
        existing["subjects"] = json!([subject("two")]);
        let Reconciled::Change(mended) = reconciled(&existing, &expected) else {
            panic!("it lacks a subject");
        };
        assert_eq!(mended["subjects"], json!([subject("two"), subject("one")]));
        existing["roleRef"]["name"] = json!("other");
        assert_eq!(reconciled(&existing, &expected), Reconciled::Replace);
    }
}
