//! The reference's own texts in OpenAPI, which the profile leaves out (row `prose`).

use serde_json::Value;

/// Takes descriptions of types and parameters out of a document; those that a case wrote stay.
pub(crate) fn hide(value: &mut Value, source: &str) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| hide(one, source)),
        Value::Object(fields) => {
            let shape = ["type", "in", "allOf", "oneOf", "$ref"];
            let typed = shape.iter().any(|key| fields.contains_key(*key));
            let text = fields.get("description").and_then(Value::as_str);
            if typed && text.is_some_and(|text| !source.contains(text)) {
                fields.remove("description");
            }
            // Beside a reference only the text stood.
            if let Some(Value::Array(all)) = fields.get("allOf")
                && let [Value::Object(one)] = &all[..]
                && fields.len() == 1
                && one.contains_key("$ref")
            {
                *fields = one.clone();
            }
            fields.values_mut().for_each(|inner| hide(inner, source));
        }
        _ => {}
    }
}
