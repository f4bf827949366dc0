//! Secrets: values in base64, some types with required keys, immutable when they say so.

use super::certificates::KARMADA_GROUP;
use super::{Facts, Strategy, warnings};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::metadata::immutable;
use crate::apiserver::names;
use crate::apiserver::value::{at, map, object_at, put, same, text};
use crate::go::strict;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

pub(super) const SIZE_MAX: usize = 1024 * 1024;
pub(super) const FROZEN: &str = "field is immutable when `immutable` is set";

pub(super) struct Secrets;

impl Strategy for Secrets {
    fn validates_anew(&self) -> bool {
        true
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        if text(object, &["type"]).is_empty() {
            put(object, &["type"], Some(json!("Opaque")));
        }
        let Some(plain) = object
            .as_object_mut()
            .and_then(|object| object.remove("stringData"))
        else {
            return;
        };
        for (key, value) in plain.as_object().into_iter().flatten() {
            let encoded = BASE64_STANDARD.encode(value.as_str().unwrap_or_default());
            object_at(object, &["data"]).insert(key.clone(), json!(encoded));
        }
    }

    fn warnings(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut all = warnings::of(facts, object, old);
        all.extend(old.is_none().then(|| unserved(object)).flatten());
        all
    }

    fn validate(&self, _: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if let Some(old) = old {
            if !same(object, old, &["type"]) {
                errors.push(immutable(object, &["type"]));
            }
            errors.extend(frozen(object, old, &["data"]));
        }
        errors.extend(contents(object));
        errors
    }
}

/// What who makes a token of Karmada's should know: with it a certificate can be asked for, which nobody here
/// approves.
fn unserved(secret: &Value) -> Option<String> {
    if text(secret, &["type"]) != "bootstrap.kubernetes.io/token" {
        return None;
    }
    let groups = BASE64_STANDARD.decode(text(secret, &["data", "auth-extra-groups"]));
    let groups = String::from_utf8(groups.ok()?).ok()?;
    let mut groups = groups.split(',').map(str::trim);
    let karmada = groups.find(|one| one.starts_with(KARMADA_GROUP))?;
    Some(format!(
        "requests for certificates by a token of {karmada} are not approved by this hub: make tokens with \"towline token create\""
    ))
}

/// What changed in an object that said that it does not change.
pub(super) fn frozen(object: &Value, old: &Value, fields: &[&str]) -> FieldErrors {
    let is_frozen = |object: &Value| at(object, &["immutable"]) == Some(&Value::Bool(true));
    if !is_frozen(old) {
        return FieldErrors::new();
    }
    let mut errors = FieldErrors::new();
    if !is_frozen(object) {
        errors.push(FieldError::forbidden("immutable", FROZEN));
    }
    for field in fields {
        if !same(object, old, &[field]) {
            errors.push(FieldError::forbidden(*field, FROZEN));
        }
    }
    errors
}

fn contents(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut size = 0;
    for (key, value) in map(object, &["data"]).into_iter().flatten() {
        for why in names::config_key(key) {
            errors.push(FieldError::invalid(format!("data[{key}]"), json!(key), why));
        }
        size += decoded_len(value.as_str().unwrap_or_default());
    }
    if size > SIZE_MAX {
        errors.push(FieldError::too_long("data", SIZE_MAX));
    }
    let required = |key: &str| FieldError::required(format!("data[{key}]"), "");
    let has = |key: &str| at(object, &["data", key]).is_some();
    match text(object, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if text(object, &["metadata", "annotations", key]).is_empty() {
                errors.push(FieldError::required(
                    format!("metadata.annotations[{key}]"),
                    "",
                ));
            }
        }
        "kubernetes.io/dockercfg" => errors.extend(json_in(object, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(json_in(object, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.extend([required("username"), required("password")]);
        }
        "kubernetes.io/ssh-auth" if text(object, &["data", "ssh-privatekey"]).is_empty() => {
            errors.push(required("ssh-privatekey"));
        }
        "kubernetes.io/tls" => {
            errors.extend(
                ["tls.crt", "tls.key"]
                    .into_iter()
                    .filter(|key| !has(key))
                    .map(required),
            );
        }
        _ => {}
    }
    errors
}

fn json_in(object: &Value, key: &str) -> Option<FieldError> {
    let path = format!("data[{key}]");
    let Some(value) = at(object, &["data", key]).and_then(Value::as_str) else {
        return Some(FieldError::required(path, ""));
    };
    let raw = BASE64_STANDARD.decode(value).unwrap_or_default();
    let why = serde_json::from_slice::<serde_json::Map<String, Value>>(&raw).err()?;
    Some(FieldError::invalid(
        path,
        json!("<secret contents redacted>"),
        strict::go_words(&why, &raw),
    ))
}

/// How many bytes a value in base64 has.
pub(super) fn decoded_len(encoded: &str) -> usize {
    let padding = encoded
        .bytes()
        .rev()
        .take_while(|byte| *byte == b'=')
        .count();
    (encoded.len() / 4 * 3).saturating_sub(padding)
}
