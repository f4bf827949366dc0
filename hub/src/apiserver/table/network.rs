//! Rows of services and of what leads to them.

use super::{Row, at, list, row_of, text, text_at};
use crate::apiserver::scheme::Resource;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn cells(row: &Row<'_>, resource: &Resource) -> Option<Vec<Value>> {
    match (&*resource.group, &*resource.kind) {
        ("", "Service") => service(row),
        ("", "Endpoints") => row_of![row.name(), endpoints(row), row.age()],
        ("discovery.k8s.io", "EndpointSlice") => slice(row),
        ("networking.k8s.io", "Ingress") => ingress(row),
        ("networking.k8s.io", "IngressClass") => ingress_class(row),
        ("networking.k8s.io", "NetworkPolicy") => {
            let selector = text::selector_or_none(row.at("spec.podSelector"));
            row_of![row.name(), selector, row.age()]
        }
        _ => None,
    }
}

fn texts(values: &[Value]) -> Vec<String> {
    let texts = values.iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Addresses of a load balancer.
fn balancer(row: &Row<'_>) -> Vec<String> {
    let all: BTreeSet<&str> = row
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|one| match text_at(one, "ip") {
            "" => text_at(one, "hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    all.into_iter().map(str::to_owned).collect()
}

fn service(row: &Row<'_>) -> Option<Vec<Value>> {
    let kind = row.text("spec.type");
    let given = texts(row.list("spec.externalIPs"));
    let external = match kind {
        "ClusterIP" | "NodePort" if given.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => given.join(","),
        "LoadBalancer" => {
            let all = [balancer(row), given].concat();
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => row.text("spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = row
        .list("spec.ports")
        .iter()
        .map(|port| {
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or(0);
            let protocol = text_at(port, "protocol");
            match number("nodePort") {
                node @ 1.. => format!("{}:{node}/{protocol}", number("port")),
                _ => format!("{}/{protocol}", number("port")),
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    let internal = row.list("spec.clusterIPs").first().and_then(Value::as_str);
    row_of![
        row.name(),
        kind,
        internal.unwrap_or("<none>"),
        external,
        ports,
        row.age(),
        text::labels(row.at("spec.selector")),
    ]
}

fn endpoints(row: &Row<'_>) -> String {
    let subsets = row.list("subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses: Vec<&str> = list(subset.get("addresses"))
            .iter()
            .map(|address| text_at(address, "ip"))
            .collect();
        let ports = list(subset.get("ports"));
        if ports.is_empty() {
            all.extend(addresses.iter().map(|ip| (*ip).to_owned()));
        }
        for port in ports {
            let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
            all.extend(addresses.iter().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{number}")
                } else {
                    format!("{ip}:{number}")
                }
            }));
        }
    }
    text::some(&all, "")
}

fn slice(row: &Row<'_>) -> Option<Vec<Value>> {
    let ports: Vec<String> = row
        .list("ports")
        .iter()
        .map(|port| {
            text::scalar(port.get("port"))
                .or_else(|| text::scalar(port.get("name")))
                .unwrap_or_else(|| "*".to_owned())
        })
        .collect();
    let addresses: Vec<String> = row
        .list("endpoints")
        .iter()
        .flat_map(|endpoint| texts(list(endpoint.get("addresses"))))
        .collect();
    row_of![
        row.name(),
        row.text("addressType"),
        text::some(&ports, "<unset>"),
        text::some(&addresses, "<unset>"),
        row.age(),
    ]
}

fn ingress(row: &Row<'_>) -> Option<Vec<Value>> {
    let rules = row.list("spec.rules");
    // The first three with a name are shown; what more there is counts every rule.
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more = more || hosts.len() == 3;
        let host = text_at(rule, "host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else if more {
        format!("{} + {} more...", hosts.join(","), rules.len() - 3)
    } else {
        hosts.join(",")
    };
    let ports = if row.list("spec.tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    row_of![
        row.name(),
        row.or("spec.ingressClassName", "<none>"),
        hosts,
        balancer(row).join(","),
        ports,
        row.age(),
    ]
}

fn ingress_class(row: &Row<'_>) -> Option<Vec<Value>> {
    const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
    let annotations = row.at("metadata.annotations");
    let is_default = annotations
        .and_then(|all| all.get(DEFAULT))
        .and_then(Value::as_str);
    let name = match is_default {
        Some("true") => format!("{} (default)", row.name()),
        _ => row.name().to_owned(),
    };
    let parameters = match row.at("spec.parameters") {
        None | Some(Value::Null) => "<none>".to_owned(),
        Some(given) => {
            let group = at(given, "apiGroup").and_then(Value::as_str);
            let dotted = group.map_or(String::new(), |group| format!(".{group}"));
            format!(
                "{}{dotted}/{}",
                text_at(given, "kind"),
                text_at(given, "name")
            )
        }
    };
    row_of![name, row.text("spec.controller"), parameters, row.age()]
}
