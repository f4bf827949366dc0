//! Names, labels and annotations, wherever in an object they stand.

use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::names;
use crate::apiserver::schema::Schema;
use crate::apiserver::schema::build::object_meta;
use serde_json::{Value, json};

const ANNOTATIONS_MAX: usize = 256 * 1024;

pub(crate) use names::label as dns1123_label;
pub(crate) use names::label_1035 as dns1035_label;
pub(crate) use names::subdomain as dns1123_subdomain;

/// One error for each of several complaints about one value.
pub(crate) fn each(path: &str, value: &str, wrong: Vec<String>) -> FieldErrors {
    let told = wrong.into_iter();
    told.map(|why| FieldError::invalid(path, json!(value), why))
        .collect()
}

/// What is wrong with labels.
pub(crate) fn check_labels(labels: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(each(path, key, names::qualified(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(each(path, value, names::label_value(value)));
    }
}

/// What is wrong with annotations.
pub(crate) fn check_annotations(given: Option<&Value>, path: &str, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
        errors.extend(each(path, key, names::qualified(&key.to_lowercase())));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

/// What is wrong with the metadata of an object within an object, which needs no name.
pub(crate) fn check_embedded(metadata: &Value, path: &str, errors: &mut FieldErrors) {
    if let Some(number) = object_meta() {
        let mut read = metadata.clone();
        if let Err(why) = Schema::built_in(number).coerce(&mut read) {
            errors.push(FieldError::invalid(path, metadata.clone(), why));
            return;
        }
    }
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or("");
    let name = text("name");
    if matches!(name, "." | "..") || name.contains(['/', '%']) {
        let wrong = names::NameRule::PathSegment.check(name, false);
        errors.extend(each(&format!("{path}.name"), name, wrong));
    }
    let namespace = text("namespace");
    if !namespace.is_empty() {
        let wrong = names::label(namespace);
        errors.extend(each(&format!("{path}.namespace"), namespace, wrong));
    }
    check_labels(metadata.get("labels"), &format!("{path}.labels"), errors);
    check_annotations(
        metadata.get("annotations"),
        &format!("{path}.annotations"),
        errors,
    );
}
