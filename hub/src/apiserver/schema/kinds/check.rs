//! Checks that many kinds share.

use super::meta::each;
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind, FieldErrors};
use crate::apiserver::names;
use crate::apiserver::schema::decode::quantity;
use core::net::IpAddr;
use serde_json::{Map, Value, json};

pub(super) type Errors = FieldErrors;

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn map<'a>(value: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    value.get(key).and_then(Value::as_object)
}

/// Whether there is something under a key, be it empty.
pub(super) fn has(value: &Value, key: &str) -> bool {
    value.get(key).is_some_and(|found| !found.is_null())
}

pub(super) fn number(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

/// None of these numbers is below zero.
pub(super) fn not_negative(value: &Value, keys: &[&str], path: &str, errors: &mut Errors) {
    for key in keys {
        if let Some(found) = number(value, key).filter(|found| *found < 0) {
            let at = format!("{path}.{key}");
            errors.push(FieldError::invalid(at, json!(found), NOT_NEGATIVE));
        }
    }
}

/// A field is one of some words; without it nothing is said.
pub(super) fn one_of(value: &Value, key: &str, words: &[&str], path: &str, errors: &mut Errors) {
    let found = text(value, key);
    if !found.is_empty() && !words.contains(&found) {
        let at = below(path, key);
        errors.push(FieldError::not_supported(at, json!(found), words));
    }
}

pub(super) fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

pub(super) fn required(path: String, detail: &str) -> FieldError {
    FieldError::required(path, detail)
}

/// A value as a type of the server prints it: its fields in their order, one without a value null.
pub(super) fn typed(fields: &[(&str, &Value)]) -> BadValue {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", json!(name)))
        .collect();
    BadValue::Typed(format!("{{{}}}", fields.join(",")).into())
}

/// A value of a shape that only a typed server has is not shown.
pub(super) fn hidden(path: String, detail: &str) -> FieldError {
    FieldError::new(
        path,
        FieldErrorKind::Invalid,
        BadValue::Is(json!("")),
        detail,
    )
}

pub(super) fn port_number(value: i64, path: &str, errors: &mut Errors) {
    if !(1..=65_535).contains(&value) {
        let detail = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path, json!(value), detail));
    }
}

/// The name of a port, as `/etc/services` would have it.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push("must be no more than 15 characters".to_owned());
    }
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !name.bytes().all(fits) || name.is_empty() {
        wrong.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// A name that begins with the domain of whoever gave it.
pub(super) fn domain_prefixed(name: &str, path: &str, errors: &mut Errors) {
    let parts = name.split_once('/');
    let parts = parts.filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty());
    match parts {
        Some((domain, _)) => errors.extend(each(path, domain, names::subdomain(domain))),
        None => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, json!(name), detail));
        }
    }
}

/// A port by number or by name.
pub(super) fn port(value: Option<&Value>, path: &str, errors: &mut Errors) {
    match value {
        Some(Value::String(name)) => errors.extend(each(path, name, port_name(name))),
        Some(Value::Number(port)) => {
            port_number(port.as_i64().unwrap_or(0), path, errors);
        }
        _ => port_number(0, path, errors),
    }
}

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' \
                       (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// The number before a percent sign.
pub(super) fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let fits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// A number that is not negative, or a percentage.
pub(super) fn int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(_) if percent(value).is_none() => {
            errors.push(FieldError::invalid(path, value.clone(), PERCENT));
        }
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
        }
        _ => {}
    }
}

pub(super) fn at_most_all(value: &Value, path: &str, errors: &mut Errors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must not be greater than 100%",
        ));
    }
}

/// What is wrong with a label selector.
pub(super) fn selector(selector: &Value, path: &str, errors: &mut Errors) {
    let labels = map(selector, "matchLabels");
    for (key, value) in labels.into_iter().flatten() {
        let at = format!("{path}.matchLabels");
        errors.extend(each(&at, key, names::qualified(key)));
        let value = value.as_str().unwrap_or("");
        errors.extend(each(&at, value, names::label_value(value)));
    }
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let at = format!("{path}.matchExpressions[{index}]");
        let count = list(expression, "values").len();
        match text(expression, "operator") {
            "In" | "NotIn" => {
                if count == 0 {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(required(format!("{at}.values"), detail));
                }
            }
            "Exists" | "DoesNotExist" => {
                if count > 0 {
                    let detail =
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(format!("{at}.values"), detail));
                }
            }
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(
                    format!("{at}.operator"),
                    json!(other),
                    detail,
                ));
            }
        }
        let key = text(expression, "key");
        errors.extend(each(&format!("{at}.key"), key, names::qualified(key)));
        for (at_value, value) in list(expression, "values").iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            let at = format!("{at}.values[{at_value}]");
            errors.extend(each(&at, value, names::label_value(value)));
        }
    }
}

/// Whether a label selector selects these labels; `None` if it cannot be read.
pub(super) fn selects(selector: &Value, labels: Option<&Value>) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let label = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
    };
    let wanted = map(selector, "matchLabels").into_iter().flatten();
    let mut fits = true;
    for (key, value) in wanted {
        if !names::qualified(key).is_empty() {
            return None;
        }
        fits &= label(key) == value.as_str();
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let values = list(expression, "values");
        let among = || label(key).is_some_and(|value| values.iter().any(|one| one == value));
        fits &= match text(expression, "operator") {
            "In" if !values.is_empty() => among(),
            "NotIn" if !values.is_empty() => !among(),
            "Exists" => label(key).is_some(),
            "DoesNotExist" => label(key).is_none(),
            _ => return None,
        };
    }
    Some(fits)
}

pub(super) fn is_empty_selector(selector: &Value) -> bool {
    map(selector, "matchLabels").is_none_or(Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
}

/// A quantity in billionths.
pub(super) fn amount(value: &Value) -> Option<quantity::Quantity> {
    value.as_str().and_then(|text| quantity::parse(text).ok())
}

pub(super) fn quantity_not_negative(value: &Value, path: &str, errors: &mut Errors) {
    if amount(value).is_some_and(|amount| amount.nano() < 0) {
        errors.push(FieldError::invalid(path, value.clone(), NOT_NEGATIVE));
    }
}

const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// An address; `None` after it was told that it is none.
pub(super) fn ip(text: &str, path: &str, errors: &mut Errors) -> Option<IpAddr> {
    let parsed = text.parse().ok();
    if parsed.is_none() {
        errors.push(FieldError::invalid(path, json!(text), NO_IP));
    }
    parsed
}

/// An address that something else may be reached at.
pub(super) fn reachable_ip(address: IpAddr, text: &str, path: &str, errors: &mut Errors) {
    let mut told = |detail: &str| errors.push(FieldError::invalid(path, json!(text), detail));
    if address.is_unspecified() {
        told(&format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        told("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        told("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
}

/// A network; `None` if it is none.
pub(super) fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some((address, bits))
}

/// The address of a network without the bits that name a host.
pub(super) fn network((address, bits): (IpAddr, u8)) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}
