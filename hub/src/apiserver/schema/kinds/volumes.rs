//! What is refused in volumes.

use super::check::{Errors, amount, has, list, number, required, text};
use super::meta::each;
use crate::apiserver::error::FieldError;
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const HOST_PATHS: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// The order in which the real server looks at the kinds of volumes; others come after.
const KINDS: [&str; 9] = [
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "persistentVolumeClaim",
    "configMap",
    "downwardAPI",
    "projected",
    "csi",
];

/// Checks volumes and returns the names that containers can mount.
pub(super) fn check<'a>(
    volumes: &'a [Value],
    path: &str,
    errors: &mut Errors,
) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let before = errors.len();
        source(volume, &at, errors);
        let name = text(volume, "name");
        let at_name = format!("{at}.name");
        if name.is_empty() {
            errors.push(required(at_name, ""));
        } else {
            errors.extend(each(&at_name, name, names::label(name)));
            if known.contains(name) {
                errors.push(FieldError::duplicate(at_name, json!(name)));
            }
        }
        if errors.len() == before {
            known.insert(name);
        }
    }
    known
}

fn source(volume: &Value, path: &str, errors: &mut Errors) {
    let given = volume.as_object().into_iter().flatten();
    let others = given
        .filter(|(key, value)| *key != "name" && !value.is_null())
        .map(|(key, _)| key.as_str())
        .filter(|key| !KINDS.contains(key));
    let all = KINDS
        .into_iter()
        .filter(|kind| has(volume, kind))
        .chain(others);
    for (index, kind) in all.enumerate() {
        let at = format!("{path}.{kind}");
        if index > 0 {
            errors.push(FieldError::forbidden(
                at,
                "may not specify more than 1 volume type",
            ));
            continue;
        }
        one(kind, &volume[kind], &at, errors);
    }
}

pub(super) fn one(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let mut need = |key: &str| {
        if text(source, key).is_empty() {
            errors.push(required(format!("{path}.{key}"), ""));
        }
    };
    match kind {
        "emptyDir" => {
            let limit = source.get("sizeLimit").and_then(amount);
            if limit.is_some_and(|limit| limit.nano() < 0) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.push(FieldError::forbidden(format!("{path}.sizeLimit"), detail));
            }
        }
        "hostPath" => {
            need("path");
            let kind = text(source, "type");
            if !HOST_PATHS.contains(&kind) {
                let at = format!("{path}.type");
                errors.push(FieldError::not_supported(at, json!(kind), &HOST_PATHS));
            }
        }
        "secret" => {
            need("secretName");
            files(source, path, errors);
        }
        "configMap" => {
            need("name");
            files(source, path, errors);
        }
        "persistentVolumeClaim" => need("claimName"),
        "nfs" => {
            need("server");
            need("path");
            let point = text(source, "path");
            if !point.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(
                    format!("{path}.path"),
                    json!(point),
                    detail,
                ));
            }
        }
        "csi" => need("driver"),
        _ => {}
    }
}

fn mode(source: &Value, key: &str, path: &str, errors: &mut Errors) {
    if let Some(mode) = number(source, key)
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(
            format!("{path}.{key}"),
            json!(mode),
            detail,
        ));
    }
}

fn files(source: &Value, path: &str, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    for (index, item) in list(source, "items").iter().enumerate() {
        let at = format!("{path}.items[{index}]");
        if text(item, "key").is_empty() {
            errors.push(required(format!("{at}.key"), ""));
        }
        let file = text(item, "path");
        let at_path = format!("{at}.path");
        let told = |detail: &str| FieldError::invalid(at_path.clone(), json!(file), detail);
        if file.is_empty() {
            errors.push(required(at_path, ""));
        } else if file.starts_with('/') {
            errors.push(told("must be a relative path"));
        } else if file.split('/').any(|part| part == "..") {
            errors.push(told("must not contain '..'"));
        } else if file.starts_with("..") {
            errors.push(told("must not start with '..'"));
        }
        mode(item, "mode", &at, errors);
    }
}
