//! Services: what follows from the address that a Service names. None is handed out here.

use super::{Facts, Strategy};
use crate::apiserver::names::NameRule;
use crate::apiserver::value::{copy, is_set, list, put, same, text, texts};
use serde_json::{Value, json};

const IPS: [&str; 2] = ["spec", "clusterIPs"];
const FAMILIES: [&str; 2] = ["spec", "ipFamilies"];
const POLICY: [&str; 2] = ["spec", "ipFamilyPolicy"];

pub(super) struct Services;

impl Strategy for Services {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        settle(object, None);
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        if !facts.context.subresource.is_empty() {
            return;
        }
        if has_address(object) && has_address(old) {
            if address(object).is_empty() {
                copy(object, old, &["spec", "clusterIP"]);
            }
            if !is_set(object, &IPS) && address(object) == address(old) {
                copy(object, old, &IPS);
            }
        }
        // Who names one address only means the first of them.
        if address(object) != address(old) && same(object, old, &IPS) {
            let named = address(object).to_owned();
            put(object, &IPS, (!named.is_empty()).then(|| json!([named])));
        }
        retype(object, old);
        settle(object, Some(old));
    }
}

/// What a Service has by its type goes with it, unless somebody says it anew.
fn retype(service: &mut Value, old: &Value) {
    let mut gone: Vec<&[&str]> = Vec::new();
    let kind = |service: &Value| text(service, &["spec", "type"]).to_owned();
    if has_address(old) && !has_address(service) {
        if same(service, old, &IPS) {
            gone.extend([&["spec", "clusterIP"][..], &IPS]);
        }
        gone.extend([&FAMILIES[..], &POLICY, &["spec", "internalTrafficPolicy"]]);
    }
    if kind(old) == "LoadBalancer" && kind(service) != "LoadBalancer" {
        gone.extend([
            &["spec", "allocateLoadBalancerNodePorts"][..],
            &["spec", "loadBalancerClass"],
            &["spec", "healthCheckNodePort"],
        ]);
    }
    let outside = |service: &Value| {
        matches!(kind(service).as_str(), "NodePort" | "LoadBalancer")
            || is_set(service, &["spec", "externalIPs"])
    };
    if outside(old) && !outside(service) {
        gone.push(&["spec", "externalTrafficPolicy"]);
    }
    for path in gone {
        let addresses = path == IPS || path == ["spec", "clusterIP"];
        if addresses || same(service, old, path) {
            put(service, path, None);
        }
    }
}

fn address(service: &Value) -> &str {
    text(service, &["spec", "clusterIP"])
}

fn has_address(service: &Value) -> bool {
    text(service, &["spec", "type"]) != "ExternalName"
}

/// Every address has its family, and a Service has a policy for them.
fn settle(service: &mut Value, old: Option<&Value>) {
    let named = address(service).to_owned();
    if !has_address(service) || named.is_empty() {
        return;
    }
    if !is_set(service, &IPS) {
        put(service, &IPS, Some(json!([named])));
    }
    // Nobody chooses the endpoints of such a Service, so nobody knows of which family they are.
    let free = named == "None" && !is_set(service, &["spec", "selector"]);
    if text(service, &POLICY).is_empty() {
        let before = old.map_or("", |old| text(old, &POLICY));
        let policy = match before {
            "" if free => "RequireDualStack",
            "" => "SingleStack",
            before => before,
        };
        put(service, &POLICY, Some(json!(policy)));
    }
    let mut families: Vec<String> = texts(service, &FAMILIES)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let known = families.len();
    for ip in list(service, &IPS).iter().skip(known) {
        match ip.as_str() {
            Some("None") | None => break,
            Some(ip) => families.push(family(ip).to_owned()),
        }
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if free && families.len() == 1 && text(service, &POLICY) != "SingleStack" {
        let other = if families[0] == "IPv4" {
            "IPv6"
        } else {
            "IPv4"
        };
        families.push(other.to_owned());
    }
    put(service, &FAMILIES, Some(json!(families)));
}

fn family(ip: &str) -> &'static str {
    if ip.contains(':') { "IPv6" } else { "IPv4" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_an_address() {
        // spec, and what it says of addresses in the end
        let cases = [
            (
                json!({"clusterIP": "None", "selector": {"a": "b"}}),
                json!([["None"], ["IPv4"], "SingleStack"]),
            ),
            (
                json!({"clusterIP": "None"}),
                json!([["None"], ["IPv4", "IPv6"], "RequireDualStack"]),
            ),
            (
                json!({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}),
                json!([["None"], ["IPv4"], "SingleStack"]),
            ),
            (
                json!({"clusterIP": "fd00::1"}),
                json!([["fd00::1"], ["IPv6"], "SingleStack"]),
            ),
            (json!({}), json!([null, null, null])),
            (
                json!({"type": "ExternalName", "externalName": "a.b"}),
                json!([null, null, null]),
            ),
        ];
        for (spec, want) in cases {
            let mut service = json!({"spec": spec});
            settle(&mut service, None);
            let spec = &service["spec"];
            let found = json!([
                spec["clusterIPs"],
                spec["ipFamilies"],
                spec["ipFamilyPolicy"]
            ]);
            assert_eq!(found, want, "{spec}");
        }
    }

    #[test]
    fn a_policy_stays_when_nobody_says_another() {
        let old = json!({"spec": {"clusterIP": "None", "ipFamilyPolicy": "RequireDualStack"}});
        let mut new = json!({"spec": {"clusterIP": "None", "selector": {"a": "b"}}});
        settle(&mut new, Some(&old));
        assert_eq!(new["spec"]["ipFamilyPolicy"], "RequireDualStack");
    }
}
