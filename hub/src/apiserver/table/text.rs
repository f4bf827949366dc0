//! Parts of cells that several kinds share.

use super::text_at;
use serde_json::Value;

/// Names and images of containers.
pub(super) fn containers(containers: &[Value]) -> (String, String) {
    let all = |key: &str| {
        let texts: Vec<&str> = containers.iter().map(|one| text_at(one, key)).collect();
        texts.join(",")
    };
    (all("name"), all("image"))
}

/// `a=b,c=d`, or that there are none.
pub(super) fn labels(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    or_none(pairs.join(","))
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}

/// A label selector in one line; empty if it selects everything, or nothing.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return String::new();
    };
    let mut parts: Vec<(String, String)> = Vec::new();
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or("");
        parts.push((key.clone(), format!("{key}={value}")));
    }
    for expression in super::list(selector.get("matchExpressions")) {
        let key = text_at(expression, "key");
        let values = super::list(expression.get("values")).iter();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let part = match text_at(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), part));
    }
    parts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

/// The same, or that there is none.
pub(super) fn selector_or_none(given: Option<&Value>) -> String {
    or_none(selector(given))
}

/// Up to three, and how many more there are.
pub(super) fn some(all: &[String], none: &str) -> String {
    let shown = all.get(..3.min(all.len())).unwrap_or_default().join(",");
    if all.len() > 3 {
        format!("{shown} + {} more...", all.len() - 3)
    } else if shown.is_empty() {
        none.to_owned()
    } else {
        shown
    }
}

/// A value that is a number or a string.
pub(super) fn scalar(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
