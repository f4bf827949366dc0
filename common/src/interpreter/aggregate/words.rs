//! What a member reflects, read as what a template's status can hold.
//!
//! Pure. An API server refuses a status whole for one value of another form, and with it what every other member
//! says; such a value counts as absent.

use super::{list, text};
use chrono::{DateTime, SecondsFormat, Timelike as _, Utc};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// A time, as API servers write it.
pub(super) fn time(of: &Value, key: &str) -> Option<String> {
    let time = DateTime::parse_from_rfc3339(text(of, key)).ok()?;
    let time = time.with_timezone(&Utc);
    // A second 60, which chrono reads and Go refuses.
    let is_leap = time.nanosecond() >= 1_000_000_000;
    let text = time.to_rfc3339_opts(SecondsFormat::Secs, true);
    // A year of five digits is none.
    (!is_leap && text.len() == "1970-01-01T00:00:00Z".len()).then_some(text)
}

/// An IP address.
pub(super) fn ip<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    let ip = text(of, key);
    ip.parse::<IpAddr>().ok().map(|_| ip)
}

/// A name of DNS that is no address.
pub(super) fn host<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    let host = text(of, key);
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inner)
    };
    // Kubernetes takes 010.0.0.1 for an address.
    let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    let is_address = host.split('.').count() == 4 && host.split('.').all(is_number);
    let sound = host.len() <= 253 && host.split('.').all(is_label) && !is_address;
    sound.then_some(host)
}

/// A number of 32 bits.
fn number(of: &Value, key: &str) -> Option<i32> {
    i32::try_from(of.get(key)?.as_i64()?).ok()
}

/// A port of a balancer; none when its number is none.
pub(super) fn port(of: &Value) -> Option<Value> {
    let number = number(of, "port").filter(|port| (0..=65_535).contains(port))?;
    let mut port = texts(of, &["protocol", "error"]);
    port.insert("port".to_owned(), number.into());
    Some(Value::Object(port))
}

/// What refers to an object.
pub(super) fn reference(of: &Value) -> Value {
    let keys = [
        "kind",
        "namespace",
        "name",
        "uid",
        "apiVersion",
        "resourceVersion",
        "fieldPath",
    ];
    Value::Object(texts(of, &keys))
}

/// The state of a container.
pub(super) fn state(of: &Value) -> Value {
    let mut state = json!({});
    if let Some(waiting) = of.get("waiting").filter(|it| it.is_object()) {
        state["waiting"] = Value::Object(texts(waiting, &["reason", "message"]));
    }
    if let Some(running) = of.get("running").filter(|it| it.is_object()) {
        state["running"] = Value::Object(times(running, &["startedAt"]));
    }
    if let Some(over) = of.get("terminated").filter(|it| it.is_object()) {
        let mut told = texts(over, &["reason", "message", "containerID"]);
        told.extend(times(over, &["startedAt", "finishedAt"]));
        for key in ["exitCode", "signal"] {
            if let Some(number) = number(over, key) {
                told.insert(key.to_owned(), number.into());
            }
        }
        state["terminated"] = Value::Object(told);
    }
    state
}

/// Objects of a list.
pub(super) fn objects<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    list(of, key).iter().filter(|it| it.is_object())
}

fn texts(of: &Value, keys: &[&str]) -> Map<String, Value> {
    let known = keys.iter().filter_map(|key| {
        let text = of.get(*key)?.as_str()?;
        Some(((*key).to_owned(), Value::from(text)))
    });
    known.collect()
}

fn times(of: &Value, keys: &[&str]) -> Map<String, Value> {
    let known = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), time(of, key)?.into())));
    known.collect()
}
