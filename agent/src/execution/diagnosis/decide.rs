//! From what a member says of a workload and its pods to the condition of the Work. Pure.
//!
//! The text stays the same as long as what is wrong does: it has no counts, no times, and one word for a container
//! that ends again and again, whichever state it is in just now.

use crate::execution::conditions::Verdict;
use common::api::work::WORKLOAD_HEALTHY;
use common::harmless;
use serde_json::Value;

/// Longest message.
pub const MESSAGE: usize = 1024;
/// Longest line of it.
const LINE: usize = 320;
/// Lines of it.
const LINES: usize = 5;
/// Pods that are looked at.
const PODS: usize = 2;

/// What was read around one unhealthy object.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The object.
    pub workload: Value,
    /// Pods of it that do not run.
    pub pods: Vec<Value>,
    /// Events about it and about them.
    pub events: Vec<Value>,
}

/// Something that is wrong: how telling it is, its reason, and a line about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    rank: u8,
    reason: &'static str,
    line: String,
}

/// The condition; none when nothing was found.
pub fn verdict(seen: &[Seen]) -> Option<Verdict> {
    let mut found: Vec<Finding> = seen.iter().flat_map(findings).collect();
    found.sort();
    let reason = found.first()?.reason;
    let mut message = String::new();
    for Finding { line, .. } in found {
        let told = message.lines().count();
        if told >= LINES
            || message.len() + line.len() >= MESSAGE
            || message.lines().any(|it| it == line)
        {
            continue;
        }
        if told > 0 {
            message.push('\n');
        }
        message.push_str(&line);
    }
    Some(Verdict {
        kind: WORKLOAD_HEALTHY,
        status: false,
        reason,
        message,
    })
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn findings(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    for pod in &seen.pods {
        found.extend(of_pod(pod));
    }
    found.extend(of_workload(&seen.workload));
    found.extend(of_events(&seen.events));
    found
}

fn finding(rank: u8, reason: &'static str, line: &str) -> Finding {
    Finding {
        rank,
        reason,
        line: harmless::line(line, LINE),
    }
}

fn of_pod(pod: &Value) -> Vec<Finding> {
    let name = text(pod, "/metadata/name");
    let mut found = Vec::new();
    let statuses = ["/status/initContainerStatuses", "/status/containerStatuses"];
    for container in statuses.into_iter().flat_map(|it| list(pod, it)) {
        found.extend(of_container(name, container));
    }
    for condition in list(pod, "/status/conditions") {
        let is = |key: &str, value: &str| condition[key].as_str() == Some(value);
        if is("type", "PodScheduled") && is("status", "False") {
            let line = format!("pod {name}: Unschedulable: {}", text(condition, "/message"));
            found.push(finding(1, "Unschedulable", &line));
        }
    }
    if text(pod, "/status/phase") == "Failed" {
        let (reason, message) = (text(pod, "/status/reason"), text(pod, "/status/message"));
        let line = format!("pod {name}: Failed: {reason} {message}");
        found.push(finding(3, "PodFailed", &line));
    }
    found
}

fn of_container(pod: &str, container: &Value) -> Option<Finding> {
    let name = text(container, "/name");
    let waiting = text(container, "/state/waiting/reason");
    let ended = ["/state/terminated", "/lastState/terminated"];
    let ended = ended.into_iter().find_map(|it| container.pointer(it));
    // It is well, whatever was before.
    if container["ready"] == true {
        return None;
    }
    let (rank, reason) = match waiting {
        "ImagePullBackOff" | "ErrImagePull" | "ErrImageNeverPull" | "RegistryUnavailable" => {
            (0, "ImagePullBackOff")
        }
        "InvalidImageName" => (0, "InvalidImageName"),
        "CreateContainerConfigError" => (0, "CreateContainerConfigError"),
        "CreateContainerError" | "RunContainerError" => (0, "CreateContainerError"),
        _ => match ended
            .filter(|it| it["exitCode"].as_i64() != Some(0) || waiting == "CrashLoopBackOff")
        {
            Some(ended) if text(ended, "/reason") == "OOMKilled" => (0, "OOMKilled"),
            Some(_) => (0, "CrashLoopBackOff"),
            None if waiting == "CrashLoopBackOff" => (0, "CrashLoopBackOff"),
            None => return None,
        },
    };
    let mut line = format!("pod {pod}, container {name}: {reason}");
    match (reason, ended) {
        ("CrashLoopBackOff" | "OOMKilled", Some(ended)) => {
            if let Some(code) = ended["exitCode"].as_i64() {
                line.push_str(&format!(", exit code {code}"));
            }
            let message = text(ended, "/message").trim();
            if !message.is_empty() {
                line.push_str(&format!(": {message}"));
            }
        }
        ("CrashLoopBackOff", None) => {}
        _ => line.push_str(&format!(": {}", text(container, "/state/waiting/message"))),
    }
    Some(finding(rank, reason, &line))
}

/// What a workload says of the pods that it cannot make.
fn of_workload(workload: &Value) -> Option<Finding> {
    let mut conditions = list(workload, "/status/conditions");
    let failing = conditions.find(|it| {
        let is = |key: &str, value: &str| it[key].as_str() == Some(value);
        is("type", "ReplicaFailure") && is("status", "True")
            || is("type", "Failed") && is("status", "True")
    })?;
    let reason = match text(failing, "/type") {
        "Failed" => "JobFailed",
        _ => "FailedCreate",
    };
    let line = format!("{reason}: {}", text(failing, "/message"));
    Some(finding(1, reason, &line))
}

/// Warnings, the latest of each reason.
fn of_events(events: &[Value]) -> Vec<Finding> {
    let mut warnings: Vec<&Value> = events.iter().filter(|it| it["type"] == "Warning").collect();
    warnings.sort_by(|a, b| when(b).cmp(when(a)));
    let mut reasons: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for event in warnings {
        let reason = text(event, "/reason");
        if reasons.contains(&reason) {
            continue;
        }
        reasons.push(reason);
        let (rank, known) = match reason {
            "FailedCreate" => (1, "FailedCreate"),
            "FailedMount" | "FailedAttachVolume" => (1, "FailedMount"),
            "FailedScheduling" => (2, "Unschedulable"),
            _ => (4, "Warning"),
        };
        let line = format!("Event {reason}: {}", text(event, "/message"));
        found.push(finding(rank, known, &line));
    }
    found
}

/// When it happened last; times of one form sort as texts.
fn when(event: &Value) -> &str {
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let mut times = times.into_iter().map(|it| text(event, it));
    times.find(|it| !it.is_empty()).unwrap_or_default()
}

/// The selector of a workload's pods as a query has it; none when it selects none, or all.
pub fn selector(workload: &Value) -> Option<String> {
    let selector = workload.pointer("/spec/selector")?;
    let labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let mut parts: Vec<String> = labels
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for term in list(selector, "/matchExpressions") {
        let key = text(term, "/key");
        let values: Vec<&str> = list(term, "/values").filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match text(term, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        });
    }
    (!parts.is_empty()).then(|| parts.join(","))
}

/// The pods of a table that do not run as they should: of several that say the same one, and few.
pub fn failing(table: &Value) -> Vec<String> {
    let column = |name: &str| {
        let mut columns = list(table, "/columnDefinitions");
        columns.position(|it| {
            it["name"]
                .as_str()
                .is_some_and(|it| it.eq_ignore_ascii_case(name))
        })
    };
    let (Some(name), Some(ready), Some(status)) =
        (column("name"), column("ready"), column("status"))
    else {
        return Vec::new();
    };
    let cell = |row: &Value, at: usize| row["cells"][at].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<(bool, String, String)> = Vec::new();
    for row in list(table, "/rows") {
        let (ready, status) = (cell(row, ready), cell(row, status));
        let whole = ready.split_once('/').is_some_and(|(is, of)| is == of);
        let well = whole && status == "Running"
            || matches!(status.as_str(), "Completed" | "Succeeded" | "Terminating");
        if !well && !found.iter().any(|(_, said, _)| *said == status) {
            let plain = matches!(
                status.as_str(),
                "Running" | "Pending" | "ContainerCreating" | "PodInitializing"
            );
            found.push((plain, status, cell(row, name)));
        }
    }
    // Those whose state names what is wrong come first.
    found.sort_by_key(|(plain, ..)| *plain);
    found
        .into_iter()
        .map(|(.., name)| name)
        .take(PODS)
        .collect()
}
