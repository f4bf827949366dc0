//! What is refused in Services.

use super::check::{
    Errors, cidr, has, ip, list, network as network_of, number, one_of, port, port_number,
    reachable_ip, required, text, typed,
};
use super::meta::{check_labels, each};
use super::network::{NO_CIDR, PROTOCOLS, app_protocol};
use crate::apiserver::error::{FieldError, FieldErrorKind};
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const OF_BALANCERS: &str = "may only be used when `type` is 'LoadBalancer'";

/// What is wrong with the addresses of a Service and with their families.
pub(super) fn addresses(object: &Value) -> Errors {
    let spec = &object["spec"];
    let mut errors = Errors::new();
    if text(spec, "type") == "ExternalName" {
        return errors;
    }
    let (address, all) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    let at = "spec.clusterIPs";
    let wrong = match (address, all.first()) {
        ("", Some(_)) => Some("must be empty when `clusterIP` is not specified"),
        ("", None) => None,
        (_, None) => {
            errors.push(required(at.to_owned(), ""));
            None
        }
        (address, Some(first)) => {
            (first != address).then_some("first value must match `clusterIP`")
        }
    };
    let told = |detail: &str| FieldError::invalid(at, json!(all), detail);
    errors.extend(wrong.map(told));
    let families = list(spec, "ipFamilies");
    let mut earlier = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        let at = format!("spec.ipFamilies[{index}]");
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            let words = ["IPv4", "IPv6"];
            errors.push(FieldError::not_supported(
                at.clone(),
                family.clone(),
                &words,
            ));
        }
        if !earlier.insert(family) {
            errors.push(FieldError::duplicate(at, family.clone()));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(spec, "ipFamilyPolicy", &policies, "spec", &mut errors);
    let mut parsed = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let one = one.as_str().unwrap_or_default();
        if index == 0 && one == "None" {
            if all.len() > 1 {
                errors.push(told("'None' must be the first and only value"));
            }
            continue;
        }
        parsed.extend(ip(one, &format!("{at}[{index}]"), &mut errors));
    }
    if all.len() > 2 {
        errors.push(told("may only hold up to 2 values"));
    }
    if let ([first, second], true) = (parsed.as_slice(), errors.is_empty())
        && first.is_ipv4() == second.is_ipv4()
    {
        errors.push(told("may specify no more than one IP for each IP family"));
    }
    if errors.is_empty() {
        let pairs = parsed.iter().zip(families).zip(all).enumerate();
        for (index, ((address, family), shown)) in pairs {
            let found = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            if family != found {
                let family = family.as_str().unwrap_or_default();
                let detail =
                    format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
                errors.push(FieldError::invalid(
                    format!("{at}[{index}]"),
                    shown.clone(),
                    detail,
                ));
            }
        }
    }
    errors
}

pub(super) fn service(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(required("spec.ports".to_owned(), ""));
    }
    match kind {
        "ExternalName" => external_name(spec, errors),
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            let at = "spec.clusterIPs[0]";
            errors.push(FieldError::invalid(at, json!("None"), detail));
        }
        _ => {}
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (index, one) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        service_port(one, &at, ports.len() > 1, &mut known, errors);
    }
    check_labels(spec.get("selector"), "spec.selector", errors);
    affinity(spec, errors);
    for (index, address) in list(spec, "externalIPs").iter().enumerate() {
        let at = format!("spec.externalIPs[{index}]");
        let address = address.as_str().unwrap_or("");
        if let Some(parsed) = ip(address, &at, errors) {
            reachable_ip(parsed, address, &at, errors);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(spec, "type", &kinds, "spec", errors);
    if matches!(kind, "ClusterIP" | "ExternalName") {
        for (index, one) in ports.iter().enumerate() {
            if number(one, "nodePort").unwrap_or(0) != 0 {
                let detail = format!("may not be used when `type` is '{kind}'");
                let at = format!("spec.ports[{index}].nodePort");
                errors.push(FieldError::forbidden(at, detail));
            }
        }
    }
    service_port_pairs(ports, errors);
    balancing(spec, kind, errors);
    traffic(spec, kind, errors);
}

/// A Service that is only another name.
fn external_name(spec: &Value, errors: &mut Errors) {
    for key in ["clusterIPs", "ipFamilies"] {
        if !list(spec, key).is_empty() {
            let detail = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(format!("spec.{key}"), detail));
        }
    }
    if has(spec, "ipFamilyPolicy") {
        let detail = "may not be set for ExternalName services";
        errors.push(FieldError::forbidden("spec.ipFamilyPolicy", detail));
    }
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    let at = "spec.externalName";
    if name.is_empty() {
        errors.push(required(at.to_owned(), ""));
    } else {
        errors.extend(each(at, name, names::subdomain(name)));
    }
}

/// How long a client is led to the same place.
fn affinity(spec: &Value, errors: &mut Errors) {
    one_of(
        spec,
        "sessionAffinity",
        &["ClientIP", "None"],
        "spec",
        errors,
    );
    let config = &spec["sessionAffinityConfig"];
    let at = "spec.sessionAffinityConfig";
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let detail = "when session affinity type is ClientIP";
            let client = &config["clientIP"];
            let seconds = number(client, "timeoutSeconds");
            let error = match seconds {
                _ if config.is_null() => required(at.to_owned(), detail),
                _ if client.is_null() => required(format!("{at}.clientIP"), detail),
                None => required(format!("{at}.clientIP.timeoutSeconds"), detail),
                Some(1..=86_400) => return,
                Some(seconds) => {
                    let detail = "must be greater than 0 and less than 86400";
                    let at = format!("{at}.clientIP.timeoutSeconds");
                    FieldError::invalid(at, json!(seconds), detail)
                }
            };
            errors.push(error);
        }
        "None" if !config.is_null() => {
            let detail = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden(at, detail));
        }
        _ => {}
    }
}

fn service_port<'a>(
    one: &'a Value,
    path: &str,
    named: bool,
    known: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    let name = text(one, "name");
    let at_name = format!("{path}.name");
    if name.is_empty() {
        if named {
            errors.push(required(at_name, ""));
        }
    } else {
        errors.extend(each(&at_name, name, names::label(name)));
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at_name, json!(name)));
        }
    }
    port_number(
        number(one, "port").unwrap_or(0),
        &format!("{path}.port"),
        errors,
    );
    one_of(one, "protocol", &PROTOCOLS, path, errors);
    port(one.get("targetPort"), &format!("{path}.targetPort"), errors);
    app_protocol(one, path, errors);
}

/// A port of a protocol leads to one place.
fn service_port_pairs(ports: &[Value], errors: &mut Errors) {
    let mut pairs = BTreeSet::new();
    for (index, one) in ports.iter().enumerate() {
        let (protocol, number) = (text(one, "protocol"), number(one, "port").unwrap_or(0));
        if !pairs.insert((protocol, number)) {
            let (empty, zero) = (json!(""), json!(0));
            let shown = typed(&[
                ("Name", &empty),
                ("Protocol", &json!(protocol)),
                ("AppProtocol", &Value::Null),
                ("Port", &json!(number)),
                ("TargetPort", &zero),
                ("NodePort", &zero),
            ]);
            let at = format!("spec.ports[{index}]");
            errors.push(FieldError::new(at, FieldErrorKind::Duplicate, shown, ""));
        }
    }
}

/// What only a balancer of loads has.
fn balancing(spec: &Value, kind: &str, errors: &mut Errors) {
    let ranges = list(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        let at = "spec.LoadBalancerSourceRanges";
        errors.push(FieldError::forbidden(at, OF_BALANCERS));
    }
    for (index, range) in ranges.iter().enumerate() {
        let at = format!("spec.LoadBalancerSourceRanges[{index}]");
        let text = range.as_str().unwrap_or("").trim();
        match cidr(text) {
            None => errors.push(FieldError::invalid(at, range.clone(), NO_CIDR)),
            Some(found) if network_of(found) != found.0 => {
                let detail = "must not have bits set beyond the prefix length";
                errors.push(FieldError::invalid(at, range.clone(), detail));
            }
            Some(_) => {}
        }
    }
    for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if has(spec, key) && kind != "LoadBalancer" {
            errors.push(FieldError::forbidden(format!("spec.{key}"), OF_BALANCERS));
        }
    }
}

fn traffic(spec: &Value, kind: &str, errors: &mut Errors) {
    let words = ["Cluster", "Local"];
    let external = text(spec, "externalTrafficPolicy");
    let outside = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty());
    if !external.is_empty() {
        if outside {
            one_of(spec, "externalTrafficPolicy", &words, "spec", errors);
        } else {
            let detail = "may only be set for externally-accessible services";
            let at = "spec.externalTrafficPolicy";
            errors.push(FieldError::invalid(at, json!(external), detail));
        }
    }
    let health = number(spec, "healthCheckNodePort").unwrap_or(0);
    if health != 0 {
        let at = "spec.healthCheckNodePort";
        if kind == "LoadBalancer" && external == "Local" {
            port_number(health, at, errors);
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and \
                          `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(at, json!(health), detail));
        }
    }
    one_of(spec, "internalTrafficPolicy", &words, "spec", errors);
    let words = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    one_of(spec, "trafficDistribution", &words, "spec", errors);
}
