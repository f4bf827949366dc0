//! What is refused in containers.

use super::check::{
    Errors, amount, has, hidden, list, map, not_negative, number, one_of, port_name, port_number,
    quantity_not_negative, required, text, typed,
};
use super::meta::each;
use super::pods::{handler, id};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks the containers of a pod, which may mount these volumes.
pub(super) fn check(spec: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(required(format!("{path}.containers"), ""));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let groups = [
        ("containers", containers),
        ("initContainers", list(spec, "initContainers")),
    ];
    for (group, containers) in groups {
        for (index, container) in containers.iter().enumerate() {
            let at = format!("{path}.{group}[{index}]");
            let name = text(container, "name");
            if name.is_empty() {
                errors.push(required(format!("{at}.name"), ""));
            } else {
                errors.extend(each(&format!("{at}.name"), name, names::label(name)));
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(format!("{at}.name"), json!(name)));
                }
            }
            one(container, &at, volumes, errors);
            if group == "containers" {
                running(container, &at, errors);
            }
        }
    }
}

fn one(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(required(format!("{path}.image"), ""));
    }
    const MESSAGES: [&str; 2] = ["File", "FallbackToLogsOnError"];
    one_of(
        container,
        "terminationMessagePolicy",
        &MESSAGES,
        path,
        errors,
    );
    ports(list(container, "ports"), &format!("{path}.ports"), errors);
    env(list(container, "env"), &format!("{path}.env"), errors);
    env_from(
        list(container, "envFrom"),
        &format!("{path}.envFrom"),
        errors,
    );
    mounts(container, path, volumes, errors);
    one_of(
        container,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        path,
        errors,
    );
    resources(
        &container["resources"],
        &format!("{path}.resources"),
        errors,
    );
    one_of(
        container,
        "restartPolicy",
        &super::pods::RESTART,
        path,
        errors,
    );
    let context = &container["securityContext"];
    let at = format!("{path}.securityContext");
    for key in ["runAsUser", "runAsGroup"] {
        id(context, key, &at, errors);
    }
    let flag = |key: &str| context.get(key).and_then(Value::as_bool);
    if flag("allowPrivilegeEscalation") == Some(false) && flag("privileged") == Some(true) {
        let shown = internal_security(context);
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::new(at, FieldErrorKind::Invalid, shown, detail));
    }
}

/// A security context as the server's own type prints it.
fn internal_security(context: &Value) -> BadValue {
    typed(&[
        ("Capabilities", &context["capabilities"]),
        ("Privileged", &context["privileged"]),
        ("SELinuxOptions", &context["seLinuxOptions"]),
        ("WindowsOptions", &context["windowsOptions"]),
        ("RunAsUser", &context["runAsUser"]),
        ("RunAsGroup", &context["runAsGroup"]),
        ("RunAsNonRoot", &context["runAsNonRoot"]),
        ("ReadOnlyRootFilesystem", &context["readOnlyRootFilesystem"]),
        (
            "AllowPrivilegeEscalation",
            &context["allowPrivilegeEscalation"],
        ),
        ("ProcMount", &context["procMount"]),
        ("SeccompProfile", &context["seccompProfile"]),
        ("AppArmorProfile", &context["appArmorProfile"]),
    ])
}

fn running(container: &Value, path: &str, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let lifecycle = &container["lifecycle"];
        if has(lifecycle, hook) {
            let ways = ["exec", "httpGet", "tcpSocket", "sleep"];
            handler(
                &lifecycle[hook],
                &ways,
                &format!("{path}.lifecycle.{hook}"),
                errors,
            );
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !has(container, kind) {
            continue;
        }
        let (probe, at) = (&container[kind], format!("{path}.{kind}"));
        handler(
            probe,
            &["exec", "httpGet", "tcpSocket", "grpc"],
            &at,
            errors,
        );
        let numbers = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        not_negative(probe, &numbers, &at, errors);
        let successes = number(probe, "successThreshold").unwrap_or(1);
        if kind != "readinessProbe" && successes != 1 {
            let at = format!("{at}.successThreshold");
            errors.push(FieldError::invalid(at, json!(successes), "must be 1"));
        }
    }
}

fn ports(ports: &[Value], path: &str, errors: &mut Errors) {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = port_name(name);
            if wrong.is_empty() && !known.insert(name) {
                errors.push(FieldError::duplicate(format!("{at}.name"), json!(name)));
            }
            errors.extend(each(&format!("{at}.name"), name, wrong));
        }
        match number(port, "containerPort").unwrap_or(0) {
            0 => errors.push(required(format!("{at}.containerPort"), "")),
            number => port_number(number, &format!("{at}.containerPort"), errors),
        }
        let host = number(port, "hostPort").unwrap_or(0);
        if host != 0 {
            port_number(host, &format!("{at}.hostPort"), errors);
        }
        one_of(port, "protocol", &PROTOCOLS, &at, errors);
    }
}

const ENV_NAME: &str = "a valid environment variable name must consist only of printable ASCII \
                        characters other than '='";

fn env_name(name: &str, path: String, errors: &mut Errors) {
    if name
        .bytes()
        .any(|b| !(b' '..=b'~').contains(&b) || b == b'=')
    {
        errors.push(FieldError::invalid(path, json!(name), ENV_NAME));
    }
}

fn env(variables: &[Value], path: &str, errors: &mut Errors) {
    for (index, variable) in variables.iter().enumerate() {
        let at = format!("{path}[{index}]");
        match text(variable, "name") {
            "" => errors.push(required(format!("{at}.name"), "")),
            name => env_name(name, format!("{at}.name"), errors),
        }
        if !has(variable, "valueFrom") {
            continue;
        }
        let (from, at) = (&variable["valueFrom"], format!("{at}.valueFrom"));
        let mut sources = 0;
        for source in [
            "fieldRef",
            "resourceFieldRef",
            "configMapKeyRef",
            "secretKeyRef",
            "fileKeyRef",
        ] {
            if has(from, source) {
                sources += 1;
                source_of(source, &from[source], &format!("{at}.{source}"), errors);
            }
        }
        if sources == 0 {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
                          `secretKeyRef` or `fileKeyRef`";
            errors.push(hidden(at, detail));
        } else if !text(variable, "value").is_empty() {
            errors.push(hidden(at, "may not be specified when `value` is not empty"));
        } else if sources > 1 {
            errors.push(hidden(
                at,
                "may not have more than one field specified at a time",
            ));
        }
    }
}

const FIELDS: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "metadata.labels",
];

fn source_of(source: &str, from: &Value, path: &str, errors: &mut Errors) {
    match source {
        "fieldRef" => {
            let field = text(from, "fieldPath");
            let subscript = ["metadata.annotations['", "metadata.labels['"]
                .into_iter()
                .any(|start| field.starts_with(start) && field.ends_with("']"));
            let at = format!("{path}.fieldPath");
            if field.is_empty() {
                errors.push(required(at, ""));
            } else if !subscript && !FIELDS.contains(&field) && field != "metadata.annotations" {
                let detail =
                    format!("error converting fieldPath: field label not supported: {field}");
                errors.push(FieldError::invalid(at, json!(field), detail));
            } else if matches!(field, "metadata.labels" | "metadata.annotations") {
                let words = [
                    "metadata.name",
                    "metadata.namespace",
                    "metadata.uid",
                    "spec.nodeName",
                    "spec.serviceAccountName",
                    "status.hostIP",
                    "status.hostIPs",
                    "status.podIP",
                    "status.podIPs",
                ];
                errors.push(FieldError::not_supported(at, json!(field), &words));
            }
        }
        "configMapKeyRef" | "secretKeyRef" => {
            let name = text(from, "name");
            errors.extend(each(&format!("{path}.name"), name, names::subdomain(name)));
            let key = text(from, "key");
            if key.is_empty() {
                errors.push(required(format!("{path}.key"), ""));
            } else {
                errors.extend(each(&format!("{path}.key"), key, names::config_key(key)));
            }
        }
        _ => {}
    }
}

fn env_from(sources: &[Value], path: &str, errors: &mut Errors) {
    for (index, source) in sources.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            env_name(prefix, format!("{at}.prefix"), errors);
        }
        let mut found = 0;
        for kind in ["configMapRef", "secretRef"] {
            if !has(source, kind) {
                continue;
            }
            found += 1;
            let at = format!("{at}.{kind}.name");
            match text(&source[kind], "name") {
                "" => errors.push(required(at, "")),
                name => errors.extend(each(&at, name, names::subdomain(name))),
            }
        }
        if found == 0 {
            let detail = "must specify one of: `configMapRef` or `secretRef`";
            errors.push(hidden(path.to_owned(), detail));
        } else if found > 1 {
            let detail = "may not have more than one field specified at a time";
            errors.push(hidden(path.to_owned(), detail));
        }
    }
}

fn mounts(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let mut points: BTreeSet<&str> = BTreeSet::new();
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let at = format!("{path}.volumeMounts[{index}]");
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(required(format!("{at}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{at}.name"), json!(name)));
        }
        let point = text(mount, "mountPath");
        if point.is_empty() {
            errors.push(required(format!("{at}.mountPath"), ""));
        }
        if !points.insert(point) {
            let detail = "must be unique";
            errors.push(FieldError::invalid(
                format!("{at}.mountPath"),
                json!(point),
                detail,
            ));
        }
        let sub = text(mount, "subPath");
        if sub.starts_with('/') {
            let detail = "must be a relative path";
            errors.push(FieldError::invalid(
                format!("{at}.subPath"),
                json!(sub),
                detail,
            ));
        } else if sub.split('/').any(|part| part == "..") {
            let detail = "must not contain '..'";
            errors.push(FieldError::invalid(
                format!("{at}.subPath"),
                json!(sub),
                detail,
            ));
        }
    }
}

/// A name that containers can ask for.
fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn resources(given: &Value, path: &str, errors: &mut Errors) {
    for kind in ["limits", "requests"] {
        for (name, value) in map(given, kind).into_iter().flatten() {
            let at = format!("{path}.{kind}[{name}]");
            errors.extend(each(&at, name, names::qualified(name)));
            if !name.contains('/') && !is_standard(name) {
                let told = |detail: &str| FieldError::invalid(at.clone(), json!(name), detail);
                let known = matches!(
                    name.as_str(),
                    "storage"
                        | "pods"
                        | "services"
                        | "replicationcontrollers"
                        | "resourcequotas"
                        | "secrets"
                        | "configmaps"
                        | "persistentvolumeclaims"
                );
                if !known {
                    errors.push(told("must be a standard resource type or fully qualified"));
                }
                errors.push(told("must be a standard resource for containers"));
            }
            quantity_not_negative(value, &at, errors);
            let whole = amount(value).is_none_or(|amount| amount.is_whole());
            if name.contains('/') && !whole {
                errors.push(FieldError::invalid(at, value.clone(), "must be an integer"));
            }
        }
    }
    let limits = map(given, "limits");
    for (name, request) in map(given, "requests").into_iter().flatten() {
        let Some(limit) = limits.and_then(|limits| limits.get(name)) else {
            continue;
        };
        let (Some(least), Some(most)) = (amount(request), amount(limit)) else {
            continue;
        };
        let shown = limit.as_str().unwrap_or("");
        let at = format!("{path}.requests");
        if name.contains('/') && least.nano() != most.nano() {
            let detail = format!("must be equal to {name} limit of {shown}");
            errors.push(FieldError::invalid(at, request.clone(), detail));
        } else if least.nano() > most.nano() {
            let detail = format!("must be less than or equal to {name} limit of {shown}");
            errors.push(FieldError::invalid(at, request.clone(), detail));
        }
    }
}
