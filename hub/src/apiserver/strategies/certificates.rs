//! CertificateSigningRequests: the server says who asks, an approval only approves, a signature only signs.

use super::{Facts, Strategy, warnings};
use crate::apiserver::caller::MASTERS;
use crate::apiserver::error::{ApiError, FieldError, FieldErrors};
use crate::apiserver::metadata;
use crate::apiserver::names::{self, NameRule};
use crate::apiserver::signer::form;
use crate::apiserver::value::{at, copy, is_set, list, number, put, text, texts};
use crate::go::quote;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Groups of the tokens that Karmada makes begin with it.
pub(super) const KARMADA_GROUP: &str = "system:bootstrappers:karmada:";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const LIFETIME_MIN: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) struct Requests;

/// What who asks with a token of Karmada's should know: its own controllers approve such requests, and they
/// are seldom here.
fn unapproved(request: &Value) -> Option<String> {
    let groups = texts(request, &["spec", "groups"]);
    let karmada = groups.iter().find(|one| one.starts_with(KARMADA_GROUP))?;
    let name = metadata::name(request);
    Some(format!(
        "requests of {karmada} are not approved by this hub: run \"kubectl certificate approve {name}\" if the agent is to join, or register it with \"towline register\" and a token of \"towline token create\""
    ))
}

impl Strategy for Requests {
    fn validates_anew(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        for condition in conditions_mut(object) {
            if text(condition, &["status"]).is_empty() {
                put(condition, &["status"], Some(json!("True")));
            }
        }
    }

    fn admit(
        &self,
        facts: &Facts<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (Some(object), None) = (object, old) else {
            return Ok(());
        };
        if text(object, &["spec", "signerName"]) != CLIENT_SIGNER {
            return Ok(());
        }
        if form::organizations(&decoded(object))
            .iter()
            .any(|one| one == MASTERS)
        {
            return Err(ApiError::forbidden(
                &facts.context.resource.group_resource(),
                metadata::name(object),
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
            ));
        }
        Ok(())
    }

    fn warnings(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut all = warnings::of(facts, object, old);
        all.extend(old.is_none().then(|| unapproved(object)).flatten());
        all
    }

    fn prepare_create(&self, facts: &Facts<'_>, object: &mut Value) {
        let caller = &facts.context.caller;
        let set = |text: &str| (!text.is_empty()).then(|| json!(text));
        put(object, &["spec", "username"], set(&caller.user));
        put(object, &["spec", "uid"], set(&caller.uid));
        let groups = (!caller.groups.is_empty()).then(|| json!(caller.groups));
        put(object, &["spec", "groups"], groups);
        let extra = (!caller.extra.is_empty()).then(|| json!(caller.extra));
        put(object, &["spec", "extra"], extra);
        put(object, &["status"], Some(json!({})));
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        match facts.context.subresource.as_str() {
            "" => copy(object, old, &["spec"]),
            "approval" => {
                copy(object, old, &["spec"]);
                let conditions = at(object, &["status", "conditions"]).cloned();
                copy(object, old, &["status"]);
                put(object, &["status", "conditions"], conditions);
                stamp(facts, object, old);
            }
            _ => {
                keep_approval(object, old);
                stamp(facts, object, old);
            }
        }
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let mut errors = validate_spec(object);
        errors.extend(validate_conditions(object));
        errors.extend(validate_certificate(object, old));
        if let Some(old) = old {
            errors.extend(validate_change(facts, object, old));
        }
        errors
    }
}

fn decoded(object: &Value) -> Vec<u8> {
    BASE64_STANDARD
        .decode(text(object, &["spec", "request"]))
        .unwrap_or_default()
}

fn conditions_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

fn conditions<'a>(object: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(object, &["status", "conditions"])
        .iter()
        .filter(move |condition| text(condition, &["type"]) == kind)
}

/// Times that a condition does not say are now, or what they were.
fn stamp(facts: &Facts<'_>, object: &mut Value, old: &Value) {
    let now = json!(metadata::timestamp(facts.now));
    let mut known = BTreeMap::new();
    for before in list(old, &["status", "conditions"]) {
        let said = (text(before, &["type"]), text(before, &["status"]));
        known
            .entry(said)
            .or_insert_with(|| at(before, &["lastTransitionTime"]));
    }
    for condition in conditions_mut(object) {
        if !is_set(condition, &["lastUpdateTime"]) {
            put(condition, &["lastUpdateTime"], Some(now.clone()));
        }
        if is_set(condition, &["lastTransitionTime"]) {
            continue;
        }
        let said = (text(condition, &["type"]), text(condition, &["status"]));
        let same = known.get(&said).and_then(|time| time.cloned());
        put(
            condition,
            &["lastTransitionTime"],
            Some(same.unwrap_or_else(|| now.clone())),
        );
    }
}

/// A write to `/status` leaves the conditions of approval as they are; it cannot be used to approve.
fn keep_approval(object: &mut Value, old: &Value) {
    for kind in ["Approved", "Denied"] {
        let before: Vec<Value> = conditions(old, kind).cloned().collect();
        if before.len() != conditions(object, kind).count() {
            continue;
        }
        let mut before = before.into_iter();
        for condition in conditions_mut(object) {
            if text(condition, &["type"]) == kind
                && let Some(kept) = before.next()
            {
                *condition = kept;
            }
        }
    }
}

fn validate_spec(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Err(why) = form::check(&decoded(object)) {
        let value = at(object, &["spec", "request"]).cloned();
        errors.push(FieldError::invalid(
            "spec.request",
            value.unwrap_or_else(|| json!("")),
            why,
        ));
    }
    let usages = texts(object, &["spec", "usages"]);
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let mut seen = BTreeSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let path = format!("spec.usages[{index}]");
        if !USAGES.contains(usage) {
            errors.push(FieldError::not_supported(path, json!(usage), &USAGES));
        } else if !seen.insert(*usage) {
            errors.push(FieldError::duplicate(path, json!(usage)));
        }
    }
    errors.extend(validate_signer(text(object, &["spec", "signerName"])));
    let lifetime = number(object, &["spec", "expirationSeconds"]);
    if let Some(lifetime) = lifetime.filter(|lifetime| *lifetime < LIFETIME_MIN) {
        errors.push(FieldError::invalid(
            "spec.expirationSeconds",
            json!(lifetime),
            "may not specify a duration less than 600 seconds (10 minutes)",
        ));
    }
    errors
}

fn validate_signer(signer: &str) -> FieldErrors {
    const PATH: &str = "spec.signerName";
    let wrong = |value: &str, why: String| FieldError::invalid(PATH, json!(value), why);
    if signer == LEGACY_SIGNER {
        let why = "the legacy signerName is not allowed via this API version";
        return wrong(signer, why.to_owned()).into();
    }
    if signer.is_empty() {
        return FieldError::required(PATH, "").into();
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, path] = parts.as_slice() else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return wrong(signer, why.to_owned()).into();
    };
    let mut errors = FieldErrors::new();
    if domain.len() > 253 {
        errors.push(FieldError::too_long(PATH, 253));
    }
    let labels: Vec<&str> = domain.split('.').collect();
    let bad = labels.iter().map(|label| (label, names::label(label)));
    if let Some((label, why)) = bad.into_iter().find(|(_, why)| !why.is_empty()) {
        errors.extend(
            why.into_iter()
                .map(|why| wrong(domain, format!("validating label {}: {why}", quote(label)))),
        );
    }
    if labels.len() < 2 {
        errors.push(wrong(
            domain,
            "should be a domain with at least two segments separated by dots".to_owned(),
        ));
    }
    let bad = path
        .split('.')
        .map(|label| (label, names::subdomain(label)));
    if let Some((label, why)) = bad.into_iter().find(|(_, why)| !why.is_empty()) {
        errors.extend(
            why.into_iter()
                .map(|why| wrong(path, format!("validating label {}: {why}", quote(label)))),
        );
    }
    errors
}

fn validate_conditions(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut seen = BTreeSet::new();
    for (index, condition) in list(object, &["status", "conditions"]).iter().enumerate() {
        let path = format!("status.conditions[{index}]");
        let kind = text(condition, &["type"]);
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), ""));
        }
        let status = text(condition, &["status"]);
        match kind {
            "Approved" | "Denied" | "Failed" if status != "True" => {
                errors.push(FieldError::not_supported(
                    format!("{path}.status"),
                    json!(status),
                    &["True"],
                ));
            }
            _ if status.is_empty() => {
                errors.push(FieldError::required(format!("{path}.status"), ""));
            }
            _ if !["True", "False", "Unknown"].contains(&status) => {
                errors.push(FieldError::not_supported(
                    format!("{path}.status"),
                    json!(status),
                    &["False", "True", "Unknown"],
                ));
            }
            _ => {}
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            errors.push(FieldError::invalid(
                "status.conditions",
                json!(kind),
                "Approved and Denied conditions are mutually exclusive",
            ));
        }
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), json!(kind)));
        }
    }
    errors
}

/// A certificate must be one, unless it was none already.
fn validate_certificate(object: &Value, old: Option<&Value>) -> Option<FieldError> {
    const PATH: [&str; 2] = ["status", "certificate"];
    let read = |object: &Value| {
        BASE64_STANDARD
            .decode(text(object, &PATH))
            .unwrap_or_default()
    };
    let new = read(object);
    let before = old.map(read).unwrap_or_default();
    if new == before || form::check_certificate(&before).is_err() {
        return None;
    }
    let why = form::check_certificate(&new).err()?;
    Some(FieldError::invalid(
        PATH.join("."),
        json!("<certificate data>"),
        why,
    ))
}

fn validate_change(facts: &Facts<'_>, object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for kind in ["Approved", "Denied", "Failed"] {
        let (now, before) = (
            conditions(object, kind).count(),
            conditions(old, kind).count(),
        );
        let may_add = kind == "Failed" || facts.context.subresource == "approval";
        let what = if now < before {
            "remove"
        } else if now > before && !may_add {
            "add"
        } else {
            continue;
        };
        errors.push(FieldError::forbidden(
            "status.conditions",
            format!("updates may not {what} a condition of type {}", quote(kind)),
        ));
    }
    let certificate = ["status", "certificate"];
    if is_set(old, &certificate) && at(object, &certificate) != at(old, &certificate) {
        errors.push(FieldError::forbidden(
            "status.certificate",
            "updates may not modify a set certificate",
        ));
    }
    errors
}
