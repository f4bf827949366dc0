//! What is refused in CustomResourceDefinitions.
//!
//! What all versions agree on is told as if it stood above them: that is where the server keeps it.

mod defaulted;
mod rules;
mod schema;
mod structural;

pub(in crate::apiserver) use schema::unknown_formats;

use super::check::{Errors, has, list, one_of, required, text, typed};
use super::meta::each;
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &object["spec"];
    let group = text(spec, "group");
    let name = text(&object["metadata"], "name");
    // Later neither the name nor what it is made of can change.
    if old.is_none() && name != format!("{}.{group}", text(&spec["names"], "plural")) {
        errors.push(FieldError::invalid(
            "metadata.name",
            json!(name),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let wrong = names::subdomain(group);
    if group.is_empty() {
        errors.push(required("spec.group".to_owned(), ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid(
            "spec.group",
            json!(group),
            wrong.join(","),
        ));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", json!(group), detail));
    }
    approved(object, old, errors);
    if text(spec, "scope").is_empty() {
        errors.push(required("spec.scope".to_owned(), ""));
    }
    one_of(spec, "scope", &["Cluster", "Namespaced"], "spec", errors);
    versions(spec, old.map(|old| &old["spec"]), errors);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"], key).is_empty() {
            errors.push(required(format!("spec.names.{key}"), ""));
        }
    }
    crd_names(&spec["names"], errors);
    conversion(&spec["conversion"], errors);
    if spec["preserveUnknownFields"] == Value::Bool(true) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            json!(true),
            detail,
        ));
    }
    stored(object, errors);
}

/// Whether every version says the same, and says something.
fn shared<'a>(versions: &'a [Value], key: &str) -> Option<&'a Value> {
    let first = versions
        .first()?
        .get(key)
        .filter(|value| !value.is_null())?;
    let nothing = first.as_array().is_some_and(Vec::is_empty);
    let same = versions
        .iter()
        .all(|version| version.get(key) == Some(first));
    (same && !nothing).then_some(first)
}

fn versions(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let versions = list(spec, "versions");
    let mut known = BTreeSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        if !has(&version["schema"], "openAPIV3Schema") {
            errors.push(required(format!("{at}.schema.openAPIV3Schema"), ""));
        }
        let name = text(version, "name");
        unique &= known.insert(name);
        let wrong = names::label_1035(name);
        if !wrong.is_empty() {
            let detail = wrong.join(",");
            errors.push(FieldError::invalid(
                format!("{at}.name"),
                json!(name),
                detail,
            ));
        }
        if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
            deprecation(
                version,
                warning,
                &format!("{at}.deprecationWarning"),
                errors,
            );
        }
        for key in [
            "schema",
            "subresources",
            "additionalPrinterColumns",
            "selectableFields",
        ] {
            if shared(versions, key).is_none() {
                let before = old.map_or(&[][..], |old| list(old, "versions"));
                let unchanged = before.iter().any(|before| {
                    before["name"] == version["name"] && before["schema"] == version["schema"]
                });
                part(version, key, unchanged, &at, errors);
            }
        }
    }
    if !unique {
        told_of_all(spec, "must contain unique version names", errors);
    }
    let storing = versions
        .iter()
        .filter(|version| version["storage"] == Value::Bool(true));
    if storing.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        told_of_all(spec, detail, errors);
    }
    let Some(first) = versions.first() else {
        return;
    };
    let wrong = names::label_1035(text(first, "name"));
    if !wrong.is_empty() {
        let detail = wrong.join(",");
        errors.push(FieldError::invalid(
            "spec.version",
            first["name"].clone(),
            detail,
        ));
    }
    for key in [
        "schema",
        "subresources",
        "additionalPrinterColumns",
        "selectableFields",
    ] {
        if shared(versions, key).is_some() {
            part(first, key, false, "spec", errors);
        }
    }
}

/// What is told of all versions shows them as the server's own type prints them, which is longer
/// than anybody reads where their schemas differ.
fn told_of_all(spec: &Value, detail: &str, errors: &mut Errors) {
    let shown: Vec<String> = list(spec, "versions")
        .iter()
        .map(|version| {
            let flag = |key: &str| json!(version[key] == Value::Bool(true));
            let shown = typed(&[
                ("Name", &version["name"]),
                ("Served", &flag("served")),
                ("Storage", &flag("storage")),
                ("Deprecated", &flag("deprecated")),
                ("DeprecationWarning", &version["deprecationWarning"]),
                ("Schema", &Value::Null),
                ("Subresources", &Value::Null),
                ("AdditionalPrinterColumns", &Value::Null),
                ("SelectableFields", &Value::Null),
            ]);
            match shown {
                BadValue::Typed(text) => text.to_string(),
                _ => String::new(),
            }
        })
        .collect();
    let shown = match has(spec, "versions") {
        false => BadValue::Is(Value::Null),
        true => BadValue::Typed(format!("[{}]", shown.join(",")).into()),
    };
    errors.push(FieldError::new(
        "spec.versions",
        FieldErrorKind::Invalid,
        shown,
        detail,
    ));
}

fn deprecation(version: &Value, warning: &str, path: &str, errors: &mut Errors) {
    let mut told = |detail: &str| errors.push(FieldError::invalid(path, json!(warning), detail));
    if version["deprecated"] != Value::Bool(true) {
        told("can only be set for deprecated versions");
        return;
    }
    if warning.len() > 256 {
        told("must be <= 256 characters long");
    }
    if warning.is_empty() {
        told("must not be an empty string");
    }
    if let Some(at) = warning.find(char::is_control) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        told(&detail);
    }
}

/// One part of a version, where it is told.
fn part(version: &Value, key: &str, unchanged: bool, path: &str, errors: &mut Errors) {
    match key {
        "schema" => {
            let given = &version["schema"]["openAPIV3Schema"];
            if !given.is_null() {
                let below = if path == "spec" {
                    "validation"
                } else {
                    "schema"
                };
                let status = has(&version["subresources"], "status");
                schema::check(
                    given,
                    status,
                    unchanged,
                    &format!("{path}.{below}.openAPIV3Schema"),
                    errors,
                );
            }
        }
        "subresources" => subresources(&version[key], &format!("{path}.{key}"), errors),
        "additionalPrinterColumns" => {
            for (index, column) in list(version, key).iter().enumerate() {
                printer_column(column, &format!("{path}.{key}[{index}]"), errors);
            }
        }
        _ => {
            let given = &version["schema"]["openAPIV3Schema"];
            let at = format!("{path}.{key}");
            selectable_fields(list(version, key), given, &at, errors);
        }
    }
}

const SIMPLE: &str = "must be a simple json path starting with .";

fn simple_path(path: &str, at: &str, errors: &mut Errors) {
    if !path.starts_with('.') || path == "." {
        errors.push(FieldError::invalid(at, json!(path), SIMPLE));
    }
}

fn subresources(given: &Value, path: &str, errors: &mut Errors) {
    let scale = &given["scale"];
    if scale.is_null() {
        return;
    }
    let places = [
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
    ];
    for (key, start) in places {
        let (found, at) = (text(scale, key), format!("{path}.scale.{key}"));
        if found.is_empty() {
            errors.push(required(at, ""));
        } else if !found.starts_with('.') {
            errors.push(FieldError::invalid(at, json!(found), SIMPLE));
        } else if !found.starts_with(start) {
            let detail = format!(
                "should be a json path under {}",
                start.trim_end_matches('.')
            );
            errors.push(FieldError::invalid(at, json!(found), detail));
        }
    }
    let label = text(scale, "labelSelectorPath");
    if !label.is_empty() {
        let at = format!("{path}.scale.labelSelectorPath");
        if !label.starts_with('.') {
            errors.push(FieldError::invalid(at, json!(label), SIMPLE));
        } else if !label.starts_with(".spec.") && !label.starts_with(".status.") {
            let detail = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(at, json!(label), detail));
        }
    }
}

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

fn printer_column(column: &Value, path: &str, errors: &mut Errors) {
    if text(column, "name").is_empty() {
        errors.push(required(format!("{path}.name"), ""));
    }
    let (kind, types) = (text(column, "type"), COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(required(
            format!("{path}.type"),
            &format!("must be one of {types}"),
        ));
    } else if !COLUMN_TYPES.contains(&kind) {
        let detail = format!("must be one of {types}");
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            json!(kind),
            detail,
        ));
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.push(FieldError::invalid(
            format!("{path}.format"),
            json!(format),
            detail,
        ));
    }
    let at = format!("{path}.JSONPath");
    match text(column, "jsonPath") {
        "" => errors.push(required(at, "")),
        found => simple_path(found, &at, errors),
    }
}

/// Groups of Kubernetes itself need a word about who approved a kind in them.
fn approved(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = text(&object["spec"], "group");
    let within = |domain: &str| {
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if !within("k8s.io") && !within("kubernetes.io") {
        return;
    }
    let said = |object: &Value| text(&object["metadata"]["annotations"], ANNOTATION).to_owned();
    let is_url = |said: &str| {
        said.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/')
        })
    };
    let state = |said: &str| match said {
        "" => 0,
        said if said.starts_with("unapproved") => 1,
        said if is_url(said) => 2,
        _ => 3,
    };
    let now = said(object);
    if old.is_some_and(|old| state(&said(old)) == state(&now)) {
        return;
    }
    let at = format!("metadata.annotations[{ANNOTATION}]");
    let must = format!(
        "protected groups must have approval annotation {}",
        json!(ANNOTATION)
    );
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state(&now) {
        0 => errors.push(required(at, &format!("{must}, {see}"))),
        3 => {
            let how = "with either a URL or a reason starting with \"unapproved\"";
            let detail = format!("{must} {how}, {see}");
            errors.push(FieldError::invalid(at, json!(now), detail));
        }
        _ => {}
    }
}

/// Fields that lists can select by.
fn selectable_fields(fields: &[Value], schema: &Value, path: &str, errors: &mut Errors) {
    const MOST: usize = 8;
    let mut known = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{path}[{index}].jsonPath");
        let place = text(field, "jsonPath");
        let mut told = |detail: &str| {
            errors.push(FieldError::invalid(at.clone(), json!(place), detail));
        };
        if place.is_empty() {
            errors.push(required(at, ""));
            continue;
        }
        let found = match declared_at(place, schema) {
            Ok(found) => found,
            Err(why) => {
                told(&format!("is an invalid path: {why}"));
                continue;
            }
        };
        if place == ".metadata" || place.starts_with(".metadata.") {
            told("must not point to fields in metadata");
        }
        if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
            told(
                "must point to a field of type string, boolean or integer. Enum string fields and \
                 strings with formats are allowed.",
            );
        }
        if !known.insert(place) {
            errors.push(FieldError::duplicate(at, json!(place)));
        }
    }
    if known.len() > MOST {
        errors.push(FieldError::too_many(path, known.len(), MOST));
    }
}

/// The schema at a path like `.a.b`; why there is none.
fn declared_at<'a>(path: &str, schema: &'a Value) -> Result<&'a Value, String> {
    let mut here = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let Some(after) = rest.strip_prefix('.') else {
            if rest.starts_with('[') {
                return Err("array notation is not allowed".to_owned());
            }
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", &rest[..end]));
        };
        if after.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let end = after.find(['.', '[', ']']).unwrap_or(after.len()).max(1);
        let (name, next) = after.split_at(end);
        let properties = here.get("properties").filter(|found| found.is_object());
        let below = match properties {
            Some(properties) => properties.get(name),
            None => here.get("additionalProperties"),
        };
        here = below
            .filter(|found| found.is_object())
            .ok_or_else(|| "does not refer to a valid field".to_owned())?;
        rest = next;
    }
    Ok(here)
}

fn crd_names(given: &Value, errors: &mut Errors) {
    let label = |value: &str| names::label_1035(value).join(",");
    let path = "spec.names";
    for key in ["plural", "singular"] {
        let found = text(given, key);
        let wrong = label(found);
        if !found.is_empty() && !wrong.is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.{key}"),
                json!(found),
                wrong,
            ));
        }
    }
    for key in ["kind", "listKind"] {
        let found = text(given, key);
        let wrong = label(&found.to_lowercase());
        if !found.is_empty() && !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {wrong}");
            errors.push(FieldError::invalid(
                format!("{path}.{key}"),
                json!(found),
                detail,
            ));
        }
    }
    let listed = |key: &str, errors: &mut Errors| {
        for (index, one) in list(given, key).iter().enumerate() {
            let one = one.as_str().unwrap_or("");
            let wrong = label(one);
            if !wrong.is_empty() {
                errors.extend(each(&format!("{path}.{key}[{index}]"), one, vec![wrong]));
            }
        }
    };
    listed("shortNames", errors);
    let kind = text(given, "kind");
    if !kind.is_empty() && kind == text(given, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            format!("{path}.listKind"),
            json!(kind),
            detail,
        ));
    }
    listed("categories", errors);
}

/// Versions are rewritten into each other by nothing but their names; a webhook is out of reach.
fn conversion(conversion: &Value, errors: &mut Errors) {
    let at = "spec.conversion.strategy";
    match text(conversion, "strategy") {
        "None" => {}
        "" => errors.push(required(at.to_owned(), "")),
        "Webhook" => {
            let detail = "conversion webhooks are not part of this server; only None is";
            errors.push(FieldError::forbidden(at, detail));
        }
        other => {
            let words = ["None", "Webhook"];
            errors.push(FieldError::not_supported(at, json!(other), &words));
        }
    }
}

fn stored(object: &Value, errors: &mut Errors) {
    let path = "status.storedVersions";
    let stored = list(&object["status"], "storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(path, Value::Null, detail));
        return;
    }
    for version in list(&object["spec"], "versions") {
        let storing = version["storage"] == Value::Bool(true);
        if storing && !stored.contains(&version["name"]) {
            let detail = format!("must have the storage version {}", text(version, "name"));
            errors.push(FieldError::invalid(path, json!(stored), detail));
        }
    }
}
