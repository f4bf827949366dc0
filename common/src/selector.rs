//! Whether labels meet a selector of metav1. Pure.
//!
//! A selector that Kubernetes would not take (an unknown operator, values where there can be none, a label that
//! is none) selects nothing, as in Karmada.

use crate::names::is_dns_label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Longest name in a label key, and longest value.
const NAME_MAX: usize = 63;
/// Longest prefix of a label key.
const PREFIX_MAX: usize = 253;

/// Whether labels meet every part of `selector`; one without parts is met by all. `label` gives the value of a key.
pub fn matches<'l>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| {
        is_label_key(key) && is_label_value(value) && label(key) == Some(value.as_str())
    }) && expressions.all(|requirement| is_met(requirement, &label))
}

fn is_met<'l>(
    requirement: &LabelSelectorRequirement,
    label: &impl Fn(&str) -> Option<&'l str>,
) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = label(&requirement.key);
    let listed = |value: &str| values.iter().any(|it| it == value);
    let given = !values.is_empty() && values.iter().all(|it| is_label_value(it));
    is_label_key(&requirement.key)
        && match requirement.operator.as_str() {
            "In" => given && value.is_some_and(listed),
            "NotIn" => given && !value.is_some_and(listed),
            "Exists" => values.is_empty() && value.is_some(),
            "DoesNotExist" => values.is_empty() && value.is_none(),
            _ => false,
        }
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let sound = |prefix: &str| prefix.len() <= PREFIX_MAX && prefix.split('.').all(is_dns_label);
    prefix.is_none_or(sound) && !name.is_empty() && is_label_value(name)
}

/// Whether a text may be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= NAME_MAX && bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn selected(selector: Value) -> bool {
        let labels = BTreeMap::from([
            ("app".to_owned(), "web".to_owned()),
            ("example.com/tier".to_owned(), String::new()),
        ]);
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        matches(&selector, |key| labels.get(key).map(String::as_str))
    }

    fn one(key: &str, operator: &str, values: &[&str]) -> bool {
        let requirement = json!({"key": key, "operator": operator, "values": values});
        selected(json!({ "matchExpressions": [requirement] }))
    }

    #[test]
    fn every_operator_has_its_meaning() {
        let cases = [
            ("app", "In", &["web", "db"][..], true),
            ("app", "In", &["db"], false),
            ("gone", "In", &["db"], false),
            ("app", "NotIn", &["db"], true),
            ("app", "NotIn", &["web"], false),
            ("gone", "NotIn", &["web"], true),
            ("app", "Exists", &[], true),
            ("gone", "Exists", &[], false),
            ("gone", "DoesNotExist", &[], true),
            ("app", "DoesNotExist", &[], false),
            ("example.com/tier", "In", &[""], true),
        ];
        for (key, operator, values, want) in cases {
            assert_eq!(
                one(key, operator, values),
                want,
                "{key} {operator} {values:?}"
            );
        }
    }

    #[test]
    fn a_selector_that_is_none_selects_nothing() {
        for (key, operator, values) in [
            ("app", "Is", &["web"][..]),
            ("app", "in", &["web"]),
            ("app", "In", &[]),
            ("app", "NotIn", &[]),
            ("app", "Exists", &["web"]),
            ("gone", "DoesNotExist", &["web"]),
            ("gone", "NotIn", &["not a value"]),
            ("", "DoesNotExist", &[]),
            ("a/b/c", "DoesNotExist", &[]),
            ("-a", "DoesNotExist", &[]),
            ("A_b/c", "DoesNotExist", &[]),
        ] {
            assert!(!one(key, operator, values), "{key} {operator} {values:?}");
        }
        let long = "x".repeat(64);
        assert!(!one(&long, "DoesNotExist", &[]));
        assert!(!one("gone", "NotIn", &[&long]));
    }

    #[test]
    fn every_part_has_to_hold() {
        assert!(selected(json!({})));
        assert!(selected(json!({"matchLabels": {"app": "web"}})));
        assert!(!selected(json!({"matchLabels": {"app": "db"}})));
        assert!(!selected(json!({"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})));
    }
}
