//! Defaults of pods and what is in them.

use super::{fill, inner, is_missing, text};
use serde_json::{Map, Value, json};

/// A pod by itself; in a template these wait until there is a pod.
pub(super) fn pod(pod: &mut Map<String, Value>) {
    let Some(spec) = inner(pod, "spec") else {
        return;
    };
    let on_host = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(container) = container.as_object_mut() else {
                continue;
            };
            request_limits(container);
            if on_host {
                host_ports(container);
            }
        }
    }
    fill(spec, "enableServiceLinks", true);
}

/// What is limited and not requested is requested up to its limit.
fn request_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let limits = resources.get("limits").and_then(Value::as_object).cloned();
    for (name, limit) in limits.into_iter().flatten() {
        if let Some(requests) = inner(resources, "requests") {
            fill(requests, &name, limit);
        }
    }
}

fn host_ports(container: &mut Map<String, Value>) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(number) = port.get("containerPort").cloned() {
            fill(port, "hostPort", number);
        }
    }
}

pub(super) fn spec(spec: &mut Map<String, Value>) {
    // One account under two names: the old one follows the new one.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount").to_owned(),
        account => account.to_owned(),
    };
    if !account.is_empty() {
        spec.insert("serviceAccountName".to_owned(), json!(account));
        spec.insert("serviceAccount".to_owned(), json!(account));
    }
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
}

pub(super) fn container(container: &mut Map<String, Value>) {
    let policy = pull_policy(text(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
}

/// An image without a tag is the latest, which may change.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let start = name.rfind('/').map_or(0, |at| at + 1);
    let (last, tag) = match name.get(start..).and_then(|last| last.split_once(':')) {
        Some((last, tag)) => (last, Some(tag)),
        None => (name.get(start..).unwrap_or(""), None),
    };
    // A name that is none has no tag either.
    let well_formed =
        !last.is_empty() && !last.bytes().any(|b| b.is_ascii_uppercase() || b == b' ');
    let latest = match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    };
    if well_formed && latest {
        "Always"
    } else {
        "IfNotPresent"
    }
}

pub(super) fn volume(volume: &mut Map<String, Value>) {
    let has_source = volume
        .iter()
        .any(|(key, value)| key != "name" && !value.is_null());
    if !has_source {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut)
        && is_missing(image, "pullPolicy")
    {
        let policy = pull_policy(text(image, "reference"));
        fill(image, "pullPolicy", policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_change_is_pulled_again() {
        let cases = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("NGINX", "IfNotPresent"),
        ];
        for (image, policy) in cases {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
