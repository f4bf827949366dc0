//! What is refused in services and in what leads to them.

use super::check::{
    Errors, cidr, has, hidden, ip, list, network as network_of, number, one_of, port, port_number,
    reachable_ip, required, selector, text,
};
use super::meta::each;
use crate::apiserver::error::FieldError;
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(super) const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS \
    subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an \
    alphanumeric character (e.g. '*.example.com', regex used for validation is \
    '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// A name of a host, perhaps with a star in front.
fn host(host: &str, path: &str, errors: &mut Errors) {
    if host.contains('*') {
        let rest = host.strip_prefix("*.");
        if rest.is_none_or(|rest| !names::subdomain(rest).is_empty()) {
            errors.push(FieldError::invalid(path, json!(host), WILDCARD));
        }
    } else {
        errors.extend(each(path, host, names::subdomain(host)));
    }
}

pub(super) fn ingress(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let rules = list(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", Value::Null, detail));
    }
    if has(spec, "defaultBackend") {
        backend(&spec["defaultBackend"], "spec.defaultBackend", errors);
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("spec.rules[{index}]");
        let name = text(rule, "host");
        if !name.is_empty() {
            let at = format!("{at}.host");
            if name.parse::<IpAddr>().is_ok() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(at.clone(), json!(name), detail));
            }
            host(name, &at, errors);
        }
        if has(rule, "http") {
            let paths = list(&rule["http"], "paths");
            if paths.is_empty() {
                errors.push(required(format!("{at}.http.paths"), ""));
            }
            for (index, path) in paths.iter().enumerate() {
                ingress_path(path, &format!("{at}.http.paths[{index}]"), errors);
            }
        }
    }
    for (index, tls) in list(spec, "tls").iter().enumerate() {
        let at = format!("spec.tls[{index}]");
        for (index, name) in list(tls, "hosts").iter().enumerate() {
            host(
                name.as_str().unwrap_or(""),
                &format!("{at}.hosts[{index}]"),
                errors,
            );
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            errors.extend(each(
                &format!("{at}.secretName"),
                secret,
                names::subdomain(secret),
            ));
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        errors.extend(each(
            "spec.ingressClassName",
            class,
            names::subdomain(class),
        ));
    }
}

const SEQUENCES: [&str; 6] = ["//", "/./", "/../", "%2f", "%2F", "/.."];

fn ingress_path(path: &Value, at: &str, errors: &mut Errors) {
    let given = text(path, "path");
    let at_path = format!("{at}.path");
    match text(path, "pathType") {
        "" => errors.push(required(
            format!("{at}.pathType"),
            "pathType must be specified",
        )),
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(at_path.clone(), json!(given), detail));
            }
            if !given.is_empty() {
                let inside = SEQUENCES.iter().take(5).filter(|one| given.contains(**one));
                for bad in inside {
                    let detail = format!("must not contain '{bad}'");
                    errors.push(FieldError::invalid(at_path.clone(), json!(given), detail));
                }
                for bad in ["/..", "/."].iter().filter(|one| given.ends_with(**one)) {
                    let detail = format!("cannot end with '{bad}'");
                    errors.push(FieldError::invalid(at_path.clone(), json!(given), detail));
                }
            }
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(at_path, json!(given), detail));
            }
        }
        other => {
            let words = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(
                format!("{at}.pathType"),
                json!(other),
                &words,
            ));
        }
    }
    backend(&path["backend"], &format!("{at}.backend"), errors);
}

fn backend(backend: &Value, path: &str, errors: &mut Errors) {
    let (service, resource) = (has(backend, "service"), has(backend, "resource"));
    match (service, resource) {
        (true, true) => {
            let detail = "cannot set both resource and service backends";
            errors.push(hidden(path.to_owned(), detail));
        }
        (false, true) => {}
        (false, false) => {
            let detail = "resource or service backend is required";
            errors.push(hidden(path.to_owned(), detail));
        }
        (true, false) => {
            let service = &backend["service"];
            let name = text(service, "name");
            let at = format!("{path}.service.name");
            if name.is_empty() {
                errors.push(required(at, ""));
            } else {
                errors.extend(each(&at, name, names::label(name)));
            }
            let target = &service["port"];
            let (named, numbered) = (text(target, "name"), number(target, "number").unwrap_or(0));
            match (named.is_empty(), numbered) {
                (false, 1..) => {
                    let detail = "cannot set both port name & port number";
                    errors.push(hidden(path.to_owned(), detail));
                }
                (true, 0) => {
                    let detail = "port name or number is required";
                    errors.push(required(path.to_owned(), detail));
                }
                (false, _) => {
                    let at = format!("{path}.service.port.name");
                    errors.extend(each(&at, named, super::check::port_name(named)));
                }
                (true, numbered) => {
                    port_number(numbered, &format!("{path}.service.port.number"), errors);
                }
            }
        }
    }
}

pub(super) fn ingress_class(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let controller = text(spec, "controller");
    if controller.is_empty() {
        errors.push(required("spec.controller".to_owned(), ""));
    } else if !controller.contains('/') {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(
            "spec.controller",
            json!(controller),
            detail,
        ));
    }
    if has(spec, "parameters") {
        for key in ["kind", "name"] {
            if text(&spec["parameters"], key).is_empty() {
                errors.push(required(format!("spec.parameters.{key}"), ""));
            }
        }
        let words = ["Cluster", "Namespace"];
        one_of(
            &spec["parameters"],
            "scope",
            &words,
            "spec.parameters",
            errors,
        );
        parameters_namespace(&spec["parameters"], errors);
    }
}

/// Parameters lie in a namespace if their scope says so, and only then.
fn parameters_namespace(parameters: &Value, errors: &mut Errors) {
    let at = "spec.parameters.namespace";
    match (text(parameters, "scope"), has(parameters, "namespace")) {
        ("Namespace", false) => {
            let detail = "`parameters.scope` is set to 'Namespace'";
            errors.push(required(at.to_owned(), detail));
        }
        ("Namespace", true) => {
            let namespace = text(parameters, "namespace");
            errors.extend(each(at, namespace, names::label(namespace)));
        }
        ("Cluster", true) => {
            let detail = "`parameters.scope` is set to 'Cluster'";
            errors.push(FieldError::forbidden(at, detail));
        }
        _ => {}
    }
}

pub(super) fn policy(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    selector(&spec["podSelector"], "spec.podSelector", errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(spec, direction).iter().enumerate() {
            let at = format!("spec.{direction}[{index}]");
            for (index, one) in list(rule, "ports").iter().enumerate() {
                policy_port(one, &format!("{at}.ports[{index}]"), errors);
            }
            for (index, peer) in list(rule, peers).iter().enumerate() {
                policy_peer(peer, &format!("{at}.{peers}[{index}]"), errors);
            }
        }
    }
    let kinds = list(spec, "policyTypes");
    if kinds.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(FieldError::invalid(
            "spec.policyTypes",
            json!(kinds),
            detail,
        ));
        return;
    }
    for (index, kind) in kinds.iter().enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            let at = format!("spec.policyTypes[{index}]");
            errors.push(FieldError::not_supported(
                at,
                kind.clone(),
                &["Ingress", "Egress"],
            ));
        }
    }
}

fn policy_port(one: &Value, path: &str, errors: &mut Errors) {
    one_of(one, "protocol", &["TCP", "UDP", "SCTP"], path, errors);
    if has(one, "port") {
        port(one.get("port"), &format!("{path}.port"), errors);
    }
    let Some(end) = number(one, "endPort") else {
        return;
    };
    let at = format!("{path}.endPort");
    let mut told = |detail: &str| {
        errors.push(FieldError::invalid(at.clone(), json!(end), detail));
    };
    match one.get("port") {
        None | Some(Value::Null) => told("may not be specified when `port` is not specified"),
        Some(Value::String(_)) => told("may not be specified when `port` is non-numeric"),
        Some(start) => {
            if start.as_i64().is_some_and(|start| end < start) {
                // Upstream shows the port that it is compared with.
                let detail = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(at, start.clone(), detail));
            } else {
                port_number(end, &at, errors);
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &str, errors: &mut Errors) {
    let mut found = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if has(peer, key) {
            found += 1;
            selector(&peer[key], &format!("{path}.{key}"), errors);
        }
    }
    if has(peer, "ipBlock") {
        let block = &peer["ipBlock"];
        let at = format!("{path}.ipBlock");
        let given = text(block, "cidr");
        match cidr(given) {
            None if given.is_empty() => errors.push(required(format!("{at}.cidr"), "")),
            None => {
                errors.push(FieldError::invalid(
                    format!("{at}.cidr"),
                    json!(given),
                    NO_CIDR,
                ));
            }
            Some(whole) => {
                for (index, one) in list(block, "except").iter().enumerate() {
                    let at = format!("{at}.except[{index}]");
                    match cidr(one.as_str().unwrap_or("")) {
                        None => errors.push(FieldError::invalid(at, one.clone(), NO_CIDR)),
                        Some(part) => {
                            let inside = part.1 > whole.1
                                && network_of((part.0, whole.1)) == network_of(whole);
                            if !inside {
                                let detail = "must be a strict subset of `cidr`";
                                errors.push(FieldError::invalid(at, one.clone(), detail));
                            }
                        }
                    }
                }
            }
        }
        if found > 0 {
            let detail = "may not specify both ipBlock and another peer";
            errors.push(FieldError::forbidden(path, detail));
        }
        found += 1;
    }
    if found == 0 {
        errors.push(required(path.to_owned(), "must specify a peer"));
    }
}

pub(super) fn endpoints(object: &Value, errors: &mut Errors) {
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let at = format!("subsets[{index}]");
        let groups = ["addresses", "notReadyAddresses"];
        if groups.iter().all(|group| list(subset, group).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(required(at.clone(), detail));
        }
        for group in groups {
            for (index, address) in list(subset, group).iter().enumerate() {
                let at = format!("{at}.{group}[{index}].ip");
                let given = text(address, "ip");
                match ip(given, &at, errors) {
                    Some(parsed) => reachable_ip(parsed, given, &at, errors),
                    None => {
                        let detail = "must be a valid IP address";
                        errors.push(FieldError::invalid(at, json!(given), detail));
                    }
                }
            }
        }
        let ports = list(subset, "ports");
        for (index, one) in ports.iter().enumerate() {
            let at = format!("{at}.ports[{index}]");
            let name = text(one, "name");
            if name.is_empty() && ports.len() > 1 {
                errors.push(required(format!("{at}.name"), ""));
            } else if !name.is_empty() {
                errors.extend(each(&format!("{at}.name"), name, names::label(name)));
            }
            port_number(
                number(one, "port").unwrap_or(0),
                &format!("{at}.port"),
                errors,
            );
            one_of(one, "protocol", &PROTOCOLS, &at, errors);
        }
    }
}

pub(super) fn slice(object: &Value, errors: &mut Errors) {
    let kind = text(object, "addressType");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    if kind.is_empty() {
        errors.push(required("addressType".to_owned(), ""));
        return;
    }
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(
            "addressType",
            json!(kind),
            &kinds,
        ));
        return;
    }
    let mut known = BTreeSet::new();
    for (index, one) in list(object, "ports").iter().enumerate() {
        let at = format!("ports[{index}]");
        let name = text(one, "name");
        let at_name = format!("{at}.name");
        if !name.is_empty() {
            errors.extend(each(&at_name, name, names::label(name)));
        }
        if !known.insert(name) {
            errors.push(FieldError::duplicate(at_name, json!(name)));
        }
        one_of(one, "protocol", &PROTOCOLS, &at, errors);
        app_protocol(one, &at, errors);
    }
    for (index, endpoint) in list(object, "endpoints").iter().enumerate() {
        let at = format!("endpoints[{index}].addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(required(at.clone(), "must contain at least 1 address"));
        }
        for (index, address) in addresses.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let address = address.as_str().unwrap_or("");
            if kind == "FQDN" {
                errors.extend(each(&at, address, names::subdomain(address)));
            } else if let Some(parsed) = ip(address, &at, errors) {
                reachable_ip(parsed, address, &at, errors);
            }
        }
        let host = text(endpoint, "hostname");
        if has(endpoint, "hostname") {
            let at = format!("endpoints[{index}].hostname");
            errors.extend(each(&at, host, names::label(host)));
        }
    }
}

pub(super) fn app_protocol(port: &Value, path: &str, errors: &mut Errors) {
    if has(port, "appProtocol") {
        let found = text(port, "appProtocol");
        let at = format!("{path}.appProtocol");
        errors.extend(each(&at, found, names::qualified(found)));
    }
}

/// Where a balancer of loads can be reached.
pub(super) fn balancer(object: &Value, errors: &mut Errors) {
    let all = list(&object["status"]["loadBalancer"], "ingress");
    for (index, one) in all.iter().enumerate() {
        let at = format!("status.loadBalancer.ingress[{index}]");
        let (address, host) = (text(one, "ip"), text(one, "hostname"));
        if !address.is_empty() {
            ip(address, &format!("{at}.ip"), errors);
        }
        if !host.is_empty() {
            let at = format!("{at}.hostname");
            errors.extend(each(&at, host, names::subdomain(host)));
            if host.parse::<IpAddr>().is_ok() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(at, json!(host), detail));
            }
        }
    }
}

/// A Service that no balancer leads to has no place of one.
pub(super) fn service_status(object: &Value, errors: &mut Errors) {
    let all = list(&object["status"]["loadBalancer"], "ingress");
    if !all.is_empty() && text(&object["spec"], "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", detail));
    } else {
        balancer(object, errors);
    }
}
