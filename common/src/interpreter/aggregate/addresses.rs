//! Kinds whose status is addresses: those of all members are united.

use super::{Seen, Status, text, words};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How an address is reached when a member does not say.
const IP_MODE: &str = "VIP";

/// An address, sorted as Karmada does: by host name, address and mode, what is missing last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    host: (bool, String),
    ip: String,
    mode: (bool, String),
}

/// A port, sorted by number, protocol and error.
type Port = (i64, String, String);

/// Only of a Service that is balanced; every other one has no addresses to tell.
pub(super) fn service(seen: &Seen<'_>) -> Option<Status> {
    let kind = seen.template.pointer("/spec/type").and_then(Value::as_str);
    (kind == Some("LoadBalancer")).then(|| united(seen, true))
}

pub(super) fn ingress(seen: &Seen<'_>) -> Status {
    united(seen, false)
}

fn united(seen: &Seen<'_>, has_mode: bool) -> Status {
    let mut addresses: BTreeMap<Address, BTreeMap<Port, Value>> = BTreeMap::new();
    for (_, reflected) in seen.reflected() {
        let balancer = reflected.get("loadBalancer").unwrap_or(&Value::Null);
        for entry in words::objects(balancer, "ingress") {
            let (host, ip) = (words::host(entry, "hostname"), words::ip(entry, "ip"));
            if host.is_none() && ip.is_none() {
                continue;
            }
            let mode = match (ip, text(entry, "ipMode")) {
                (Some(_), "Proxy") if has_mode => "Proxy",
                (Some(_), _) if has_mode => IP_MODE,
                _ => "",
            };
            let (host, ip) = (host.unwrap_or_default(), ip.unwrap_or_default());
            let address = Address {
                host: (host.is_empty(), host.to_owned()),
                ip: ip.to_owned(),
                mode: (mode.is_empty(), mode.to_owned()),
            };
            let ports = addresses.entry(address).or_default();
            let told = words::objects(entry, "ports").filter_map(words::port);
            ports.extend(told.map(|port| (key_of(&port), port)));
        }
    }
    let entries: Vec<Value> = addresses
        .into_iter()
        .map(|(address, ports)| entry_of(address, ports))
        .collect();
    let mut balancer = json!({});
    if !entries.is_empty() {
        balancer["ingress"] = Value::Array(entries);
    }
    let mut status = Status::new();
    status.insert("loadBalancer".to_owned(), balancer);
    status
}

fn key_of(port: &Value) -> Port {
    let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
    let part = |key| text(port, key).to_owned();
    (number, part("protocol"), part("error"))
}

fn entry_of(address: Address, ports: BTreeMap<Port, Value>) -> Value {
    let mut entry = Map::new();
    for (key, value) in [
        ("hostname", address.host.1),
        ("ip", address.ip),
        ("ipMode", address.mode.1),
    ] {
        if !value.is_empty() {
            entry.insert(key.to_owned(), value.into());
        }
    }
    if !ports.is_empty() {
        let ports = ports.into_values().collect();
        entry.insert("ports".to_owned(), Value::Array(ports));
    }
    Value::Object(entry)
}
