//! What is refused in volumes that outlive pods, and in their classes.

use super::check::{Errors, amount, has, list, map, one_of, required, selector, text};
use super::meta::each;
use super::volumes;
use crate::apiserver::error::FieldError;
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

fn modes(spec: &Value, path: &str, detail: &str, errors: &mut Errors) {
    let modes = list(spec, "accessModes");
    let at = format!("{path}.accessModes");
    if modes.is_empty() {
        errors.push(required(at.clone(), detail));
    }
    for mode in modes {
        if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
            errors.push(FieldError::not_supported(at.clone(), mode.clone(), &MODES));
        }
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(at, detail));
    }
}

fn class_name(spec: &Value, path: &str, errors: &mut Errors) {
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.extend(each(
            &format!("{path}.storageClassName"),
            class,
            names::subdomain(class),
        ));
    }
}

pub(super) fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(&object["spec"], "spec", errors);
}

pub(super) fn claim_spec(spec: &Value, path: &str, errors: &mut Errors) {
    modes(spec, path, "at least 1 access mode is required", errors);
    if has(spec, "selector") {
        selector(&spec["selector"], &format!("{path}.selector"), errors);
    }
    let at = format!("{path}.resources[storage]");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(required(at, "")),
        Some(size) => {
            if amount(size).is_some_and(|size| size.nano() <= 0) {
                errors.push(FieldError::invalid(
                    at,
                    size.clone(),
                    "must be greater than zero",
                ));
            }
        }
    }
    class_name(spec, path, errors);
    one_of(spec, "volumeMode", &["Block", "Filesystem"], path, errors);
}

/// Fields of a volume that are no source.
pub(super) const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) fn volume(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    modes(spec, "spec", "", errors);
    let capacity = map(spec, "capacity");
    if capacity.is_none_or(serde_json::Map::is_empty) {
        errors.push(required("spec.capacity".to_owned(), ""));
    }
    let only_storage = capacity.is_some_and(|all| all.len() == 1 && all.contains_key("storage"));
    if only_storage {
        let size = &spec["capacity"]["storage"];
        if amount(size).is_some_and(|size| size.nano() <= 0) {
            let at = "spec.capacity[storage]";
            errors.push(FieldError::invalid(
                at,
                size.clone(),
                "must be greater than zero",
            ));
        }
    } else {
        let shown = capacity.map_or(json!({}), |all| Value::Object(all.clone()));
        errors.push(FieldError::not_supported(
            "spec.capacity",
            shown,
            &["storage"],
        ));
    }
    let words = ["Delete", "Recycle", "Retain"];
    one_of(
        spec,
        "persistentVolumeReclaimPolicy",
        &words,
        "spec",
        errors,
    );
    let sources = spec.as_object().into_iter().flatten();
    let sources =
        sources.filter(|(key, value)| !NO_SOURCE.contains(&key.as_str()) && !value.is_null());
    let mut count = 0;
    for (kind, source) in sources {
        let at = format!("spec.{kind}");
        count += 1;
        if count > 1 {
            errors.push(FieldError::forbidden(
                at,
                "may not specify more than 1 volume type",
            ));
        } else {
            volumes::one(kind, source, &at, errors);
        }
    }
    if count == 0 {
        errors.push(required("spec".to_owned(), "must specify a volume type"));
    }
    class_name(spec, "spec", errors);
    one_of(spec, "volumeMode", &["Block", "Filesystem"], "spec", errors);
    if has(spec, "volumeAttributesClassName") {
        let class = text(spec, "volumeAttributesClassName");
        let at = "spec.volumeAttributesClassName";
        if class.is_empty() {
            let detail = "an empty string is disallowed";
            errors.push(required(at.to_owned(), detail));
        } else {
            errors.extend(each(at, class, names::subdomain(class)));
        }
        if !has(spec, "csi") {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(required("spec.csi".to_owned(), detail));
        }
    }
}

pub(super) fn class(object: &Value, errors: &mut Errors) {
    let provisioner = text(object, "provisioner");
    if provisioner.is_empty() {
        errors.push(required("provisioner".to_owned(), ""));
    } else {
        let lower = provisioner.to_lowercase();
        errors.extend(each("provisioner", &lower, names::qualified(&lower)));
    }
    if map(object, "parameters").is_some_and(|all| all.contains_key("")) {
        let detail = "field can not be empty.";
        errors.push(FieldError::invalid("parameters", json!(""), detail));
    }
    one_of(object, "reclaimPolicy", &["Delete", "Retain"], "", errors);
    let words = ["Immediate", "WaitForFirstConsumer"];
    one_of(object, "volumeBindingMode", &words, "", errors);
    topologies(list(object, "allowedTopologies"), errors);
}

/// Where volumes of a class may be: labels with the values that they may have.
fn topologies(all: &[Value], errors: &mut Errors) {
    for (index, term) in all.iter().enumerate() {
        let mut keys = BTreeSet::new();
        let labels = list(term, "matchLabelExpressions").iter().enumerate();
        for (label, expression) in labels {
            let at = format!("allowedTopologies[{index}].matchLabelExpressions[{label}]");
            let values = list(expression, "values");
            if values.is_empty() {
                errors.push(required(format!("{at}.values"), ""));
            }
            let mut earlier = HashSet::with_capacity(values.len());
            for (index, value) in values.iter().enumerate() {
                if !earlier.insert(value) {
                    let at = format!("{at}.values[{index}]");
                    errors.push(FieldError::duplicate(at, value.clone()));
                }
            }
            let key = text(expression, "key");
            let at = format!("{at}.key");
            errors.extend(each(&at, key, names::qualified(key)));
            if !keys.insert(key) {
                errors.push(FieldError::duplicate(at, json!(key)));
            }
        }
    }
}

pub(super) fn attachment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let attacher = text(spec, "attacher");
    if attacher.is_empty() {
        errors.push(required("spec.attacher".to_owned(), ""));
    }
    let source = &spec["source"];
    if has(source, "inlineVolumeSpec") == has(source, "persistentVolumeName") {
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(required("spec.source".to_owned(), detail));
    }
    let node = text(spec, "nodeName");
    errors.extend(each("spec.nodeName", node, names::subdomain(node)));
}
