//! Rows of everything that is neither a workload nor network nor storage.

use super::{Row, age, row_of, text, text_at};
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn cells(row: &Row<'_>, group: &str, kind: &str) -> Option<Vec<Value>> {
    match (group, kind) {
        ("", "Namespace") => row_of![row.name(), row.text("status.phase"), row.age()],
        ("", "Secret") => row_of![row.name(), row.text("type"), row.count("data"), row.age()],
        ("", "ConfigMap") => {
            let count = row.count("data") + row.count("binaryData");
            row_of![row.name(), count, row.age()]
        }
        ("", "ServiceAccount") => row_of![row.name(), row.age()],
        ("", "Event") => event(row),
        ("", "Node") => node(row),
        ("", "ResourceQuota") => quota(row),
        ("coordination.k8s.io", "Lease") => {
            row_of![row.name(), row.text("spec.holderIdentity"), row.age()]
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(row),
        ("certificates.k8s.io", "CertificateSigningRequest") => request(row),
        ("scheduling.k8s.io", "PriorityClass") => row_of![
            row.name(),
            row.number("value"),
            row.flag("globalDefault").unwrap_or(false),
            row.age(),
            row.text("preemptionPolicy"),
        ],
        ("node.k8s.io", "RuntimeClass") => row_of![row.name(), row.text("handler"), row.age()],
        _ => None,
    }
}

fn first(texts: [&str; 2]) -> &str {
    let [one, other] = texts;
    if one.is_empty() { other } else { one }
}

fn event(row: &Row<'_>) -> Option<Vec<Value>> {
    let mut began = row.since("firstTimestamp");
    if row.text("firstTimestamp").is_empty() {
        began = row.since("eventTime");
    }
    let mut last = row.since("lastTimestamp");
    if row.text("lastTimestamp").is_empty() {
        last.clone_from(&began);
    }
    let mut count = row.number("count");
    if row.at("series").is_some_and(|series| !series.is_null()) {
        last = row.since("series.lastObservedTime");
        count = row.number("series.count");
    } else if count == 0 {
        count = 1;
    }
    let kind = row.text("involvedObject.kind").to_lowercase();
    let target = match row.text("involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = first([row.text("source.component"), row.text("reportingComponent")]);
    let source = match first([row.text("source.host"), row.text("reportingInstance")]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    row_of![
        last,
        row.text("type"),
        row.text("reason"),
        target,
        row.text("involvedObject.fieldPath"),
        source,
        row.text("message").trim(),
        began,
        count,
        row.name(),
    ]
}

fn node(row: &Row<'_>) -> Option<Vec<Value>> {
    let mut conditions = row.list("status.conditions").iter().rev();
    let ready = conditions.find(|one| text_at(one, "type") == "Ready");
    let mut status = match ready.map(|one| text_at(one, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if row.flag("spec.unschedulable") == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = row.at("metadata.labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    let roles: Vec<&str> = roles.into_iter().collect();
    let roles = if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    };
    let address = |kind: &str| {
        let mut all = row.list("status.addresses").iter();
        let found = all.find(|one| text_at(one, "type") == kind);
        found.map_or("<none>", |one| text_at(one, "address"))
    };
    let info = |key: &str| row.or(&format!("status.nodeInfo.{key}"), "<unknown>");
    let kernel = match row.text("status.nodeInfo.architecture") {
        "" => info("kernelVersion").to_owned(),
        architecture => format!("{} ({architecture})", info("kernelVersion")),
    };
    row_of![
        row.name(),
        status,
        roles,
        row.age(),
        row.text("status.nodeInfo.kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

fn quota(row: &Row<'_>) -> Option<Vec<Value>> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = row.at("status.hard").and_then(Value::as_object);
    for (name, hard) in hard.into_iter().flatten() {
        let used = row.at("status.used").and_then(|used| used.get(name));
        let used = text::scalar(used).unwrap_or_else(|| "0".to_owned());
        let hard = text::scalar(Some(hard)).unwrap_or_default();
        let shown = format!("{name}: {used}/{hard}");
        if name.starts_with("limits.") {
            limits.push(shown);
        } else {
            requests.push(shown);
        }
    }
    row_of![
        row.name(),
        requests.join(", "),
        limits.join(", "),
        row.age()
    ]
}

fn binding(row: &Row<'_>) -> Option<Vec<Value>> {
    let role = format!("{}/{}", row.text("roleRef.kind"), row.text("roleRef.name"));
    let of = |kind: &str| {
        let subjects = row.list("subjects").iter();
        let names: Vec<String> = subjects
            .filter(|subject| text_at(subject, "kind") == kind)
            .map(|subject| match text_at(subject, "namespace") {
                namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                    format!("{namespace}/{}", text_at(subject, "name"))
                }
                _ => text_at(subject, "name").to_owned(),
            })
            .collect();
        names.join(", ")
    };
    row_of![
        row.name(),
        role,
        row.age(),
        of("User"),
        of("Group"),
        of("ServiceAccount")
    ]
}

fn request(row: &Row<'_>) -> Option<Vec<Value>> {
    let has = |kind: &str| {
        let mut all = row.list("status.conditions").iter();
        all.any(|one| text_at(one, "type") == kind)
    };
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !row.text("status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    let lifetime = match row.at("spec.expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => age::shown(seconds * 1000),
        None => "<none>".to_owned(),
    };
    row_of![
        row.name(),
        row.age(),
        row.or("spec.signerName", "<none>"),
        row.text("spec.username"),
        lifetime,
        status,
    ]
}
