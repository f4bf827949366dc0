//! Rows of pods.

use super::{Row, age, at, list, row_of, text_at};
use crate::apiserver::scheme::Resource;
use chrono::DateTime;
use serde_json::{Value, json};

fn is_pod(resource: &Resource) -> bool {
    resource.group.is_empty() && &*resource.kind == "Pod"
}

/// What a row of a pod that has ended says about it.
pub(super) fn conditions(resource: &Resource, object: &Value) -> Option<Value> {
    if !is_pod(resource) {
        return None;
    }
    let (reason, message) = match text_at(object, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Restarts, and when the last one was.
#[derive(Default)]
struct Restarts<'a> {
    count: i64,
    last: &'a str,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count += at(container, "restartCount")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let ended = text_at(container, "lastState.terminated.finishedAt");
        let time = |text: &str| DateTime::parse_from_rfc3339(text).ok();
        if time(ended) > time(self.last) {
            self.last = ended;
        }
    }
}

fn exit(container: &Value) -> i64 {
    at(container, "state.terminated.exitCode")
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// Why a container ended, in a word.
fn ended(container: &Value) -> String {
    let signal = at(container, "state.terminated.signal").and_then(Value::as_i64);
    match (text_at(container, "state.terminated.reason"), signal) {
        ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        ("", _) => format!("ExitCode:{}", exit(container)),
        (reason, _) => reason.to_owned(),
    }
}

pub(super) fn cells(row: &Row<'_>, resource: &Resource) -> Option<Vec<Value>> {
    if !is_pod(resource) {
        return None;
    }
    let phase = row.text("status.phase");
    let mut reason = row.or("status.reason", phase).to_owned();
    let conditions = row.list("status.conditions");
    let holds = |kind: &str| {
        let mut all = conditions.iter();
        all.any(|one| text_at(one, "type") == kind && text_at(one, "status") == "True")
    };
    if conditions.iter().any(|one| {
        text_at(one, "type") == "PodScheduled" && text_at(one, "reason") == "SchedulingGated"
    }) {
        reason = "SchedulingGated".to_owned();
    }
    let init = row.list("spec.initContainers");
    let stays = |name: &str| {
        let mut all = init.iter();
        all.any(|one| text_at(one, "name") == name && text_at(one, "restartPolicy") == "Always")
    };
    let sidecars = init
        .iter()
        .filter(|one| text_at(one, "restartPolicy") == "Always");
    let total = row.count("spec.containers") + sidecars.count();
    let mut ready = 0;
    let (mut restarts, mut of_sidecars) = (Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (index, container) in row.list("status.initContainerStatuses").iter().enumerate() {
        let is_sidecar = stays(text_at(container, "name"));
        restarts.add(container);
        if is_sidecar {
            of_sidecars.add(container);
        }
        let terminated = at(container, "state.terminated").is_some();
        if terminated && exit(container) == 0 {
            continue;
        }
        if is_sidecar && at(container, "started") == Some(&Value::Bool(true)) {
            ready += usize::from(at(container, "ready") == Some(&Value::Bool(true)));
            continue;
        }
        let waiting = text_at(container, "state.waiting.reason");
        reason = if terminated {
            format!("Init:{}", ended(container))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", init.len())
        };
        initializing = true;
        break;
    }
    if !initializing || holds("Initialized") {
        restarts = of_sidecars;
        let (mut running, mut error) = (false, String::new());
        for container in list(row.at("status.containerStatuses")).iter().rev() {
            restarts.add(container);
            let waiting = text_at(container, "state.waiting.reason");
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if at(container, "state.terminated").is_some() {
                reason = ended(container);
                if exit(container) != 0 {
                    error.clone_from(&reason);
                }
            } else if at(container, "ready") == Some(&Value::Bool(true))
                && at(container, "state.running").is_some()
            {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && holds("Ready") {
                reason = "Running".to_owned();
            } else if !error.is_empty() {
                reason = error;
            } else if running {
                reason = "NotReady".to_owned();
            }
        }
    }
    if row.is_deleting() {
        if row.text("status.reason") == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(phase, "Failed" | "Succeeded") {
            reason = "Terminating".to_owned();
        }
    }
    let count = restarts.count;
    let restarted = if count != 0 && !restarts.last.is_empty() {
        format!("{count} ({} ago)", age::since(restarts.last, row.now))
    } else {
        count.to_string()
    };
    let first_ip = row
        .list("status.podIPs")
        .first()
        .map_or("", |ip| text_at(ip, "ip"));
    let gates = row.list("spec.readinessGates");
    let open = gates
        .iter()
        .filter(|gate| holds(text_at(gate, "conditionType")))
        .count();
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    row_of![
        row.name(),
        format!("{ready}/{total}"),
        reason,
        restarted,
        row.age(),
        if first_ip.is_empty() {
            "<none>"
        } else {
            first_ip
        },
        row.or("spec.nodeName", "<none>"),
        row.or("status.nominatedNodeName", "<none>"),
        gates,
    ]
}
