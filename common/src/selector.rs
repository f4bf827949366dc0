//! Whether labels meet a selector of metav1. Pure.
//!
//! A selector that Kubernetes would not take (an unknown operator, values where there can be none, a label that
//! is none) selects nothing, as in Karmada.

use crate::names::is_dns_label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// Longest name in a label key, and longest value.
const NAME_MAX: usize = 63;
/// Longest prefix of a label key.
const PREFIX_MAX: usize = 253;

/// Whether `labels` meet every part of `selector`; one without parts is met by all.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    is_sound(selector)
        && equal
            .into_iter()
            .all(|(key, value)| labels.get(key) == Some(value))
        && expressions
            .into_iter()
            .all(|requirement| is_met(requirement, labels))
}

/// Whether Kubernetes takes a selector.
pub fn is_sound(selector: &LabelSelector) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    equal
        .into_iter()
        .all(|(key, value)| is_label_key(key) && is_label_value(value))
        && expressions.into_iter().all(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            let fits = match requirement.operator.as_str() {
                "In" | "NotIn" => !values.is_empty(),
                "Exists" | "DoesNotExist" => values.is_empty(),
                _ => false,
            };
            fits && is_label_key(&requirement.key) && values.iter().all(|it| is_label_value(it))
        })
}

fn is_met(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
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

fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= NAME_MAX && bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selected(selector: Value) -> bool {
        let labels = BTreeMap::from([
            ("app".to_owned(), "web".to_owned()),
            ("example.com/tier".to_owned(), String::new()),
        ]);
        let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
        matches(&selector, &labels)
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
