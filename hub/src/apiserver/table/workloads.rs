//! Rows of workloads and of what scales and guards them.

use super::{Row, age, row_of, text, text_at};
use serde_json::Value;

pub(super) fn cells(row: &Row<'_>, kind: &str, version: &str) -> Option<Vec<Value>> {
    let template = |path: &str| text::containers(row.list(&format!("{path}.spec.containers")));
    match kind {
        "Deployment" => {
            let (names, images) = template("spec.template");
            row_of![
                row.name(),
                format!(
                    "{}/{}",
                    row.number("status.readyReplicas"),
                    row.number("spec.replicas")
                ),
                row.number("status.updatedReplicas"),
                row.number("status.availableReplicas"),
                row.age(),
                names,
                images,
                text::selector(row.at("spec.selector")),
            ]
        }
        "ReplicaSet" | "ReplicationController" => {
            let (names, images) = template("spec.template");
            let selector = if kind == "ReplicaSet" {
                text::selector_or_none(row.at("spec.selector"))
            } else {
                text::labels(row.at("spec.selector"))
            };
            row_of![
                row.name(),
                row.number("spec.replicas"),
                row.number("status.replicas"),
                row.number("status.readyReplicas"),
                row.age(),
                names,
                images,
                selector,
            ]
        }
        "StatefulSet" => {
            let (names, images) = template("spec.template");
            let ready = row.number("status.readyReplicas");
            row_of![
                row.name(),
                format!("{ready}/{}", row.number("spec.replicas")),
                row.age(),
                names,
                images,
            ]
        }
        "DaemonSet" => {
            let (names, images) = template("spec.template");
            row_of![
                row.name(),
                row.number("status.desiredNumberScheduled"),
                row.number("status.currentNumberScheduled"),
                row.number("status.numberReady"),
                row.number("status.updatedNumberScheduled"),
                row.number("status.numberAvailable"),
                text::labels(row.at("spec.template.spec.nodeSelector")),
                row.age(),
                names,
                images,
                text::selector_or_none(row.at("spec.selector")),
            ]
        }
        "PodTemplate" => {
            let (names, images) = template("template");
            let labels = text::labels(row.at("template.metadata.labels"));
            row_of![row.name(), names, images, labels]
        }
        "Job" => job(row),
        "CronJob" => cron_job(row),
        "ControllerRevision" => revision(row),
        "HorizontalPodAutoscaler" => autoscaler(row, version),
        "PodDisruptionBudget" => {
            let of = |path: &str| text::scalar(row.at(path)).unwrap_or_else(|| "N/A".to_owned());
            row_of![
                row.name(),
                of("spec.minAvailable"),
                of("spec.maxUnavailable"),
                row.number("status.disruptionsAllowed"),
                row.age(),
            ]
        }
        _ => None,
    }
}

fn job(row: &Row<'_>) -> Option<Vec<Value>> {
    let succeeded = row.number("status.succeeded");
    let completions = match row.at("spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match row.number("spec.parallelism") {
            parallel @ 2.. => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let (start, end) = (
        row.text("status.startTime"),
        row.text("status.completionTime"),
    );
    let duration = match (start, end) {
        ("", _) => String::new(),
        (_, "") => row.since("status.startTime"),
        _ => age::between(start, end),
    };
    let has = |kind: &str| {
        let mut all = row.list("status.conditions").iter();
        let found = all.find(|one| text_at(one, "type") == kind);
        found.is_some_and(|one| text_at(one, "status") == "True")
    };
    let status = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if row.is_deleting() {
        "Terminating"
    } else {
        let rest = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        rest.into_iter().find(|kind| has(kind)).unwrap_or("Running")
    };
    let (names, images) = text::containers(row.list("spec.template.spec.containers"));
    let selector = text::selector_or_none(row.at("spec.selector"));
    row_of![
        row.name(),
        status,
        completions,
        duration,
        row.age(),
        names,
        images,
        selector
    ]
}

fn cron_job(row: &Row<'_>) -> Option<Vec<Value>> {
    let path = "spec.jobTemplate.spec.template.spec.containers";
    let (names, images) = text::containers(row.list(path));
    let suspended = match row.flag("spec.suspend") {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match row.text("status.lastScheduleTime") {
        "" => "<none>".to_owned(),
        _ => row.since("status.lastScheduleTime"),
    };
    row_of![
        row.name(),
        row.text("spec.schedule"),
        row.or("spec.timeZone", "<none>"),
        suspended,
        row.count("status.active"),
        last,
        row.age(),
        names,
        images,
        text::selector_or_none(row.at("spec.jobTemplate.spec.selector")),
    ]
}

fn revision(row: &Row<'_>) -> Option<Vec<Value>> {
    let mut owners = row.list("metadata.ownerReferences").iter();
    let owner = owners.find(|owner| owner.get("controller") == Some(&Value::Bool(true)));
    let controller = match owner {
        None => "<none>".to_owned(),
        Some(owner) => {
            let kind = text_at(owner, "kind").to_lowercase();
            let group = text_at(owner, "apiVersion").rsplit_once('/');
            let dotted = group.map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{kind}{dotted}/{}", text_at(owner, "name"))
        }
    };
    row_of![row.name(), controller, row.number("revision"), row.age()]
}

fn autoscaler(row: &Row<'_>, version: &str) -> Option<Vec<Value>> {
    let metrics = if version == "v1" {
        cpu_only(row)
    } else {
        metrics(row.list("spec.metrics"), row.list("status.currentMetrics"))
    };
    let target = format!(
        "{}/{}",
        row.text("spec.scaleTargetRef.kind"),
        row.text("spec.scaleTargetRef.name")
    );
    let min = text::scalar(row.at("spec.minReplicas")).unwrap_or_else(|| "<unset>".to_owned());
    row_of![
        row.name(),
        target,
        metrics,
        min,
        row.number("spec.maxReplicas"),
        row.number("status.currentReplicas"),
        row.age(),
    ]
}

fn cpu_only(row: &Row<'_>) -> String {
    let percent = |path: &str| text::scalar(row.at(path)).map(|number| format!("{number}%"));
    match percent("spec.targetCPUUtilizationPercentage") {
        None => "<none>".to_owned(),
        Some(target) => {
            let current = percent("status.currentCPUUtilizationPercentage");
            let current = current.unwrap_or_else(|| "<unknown>".to_owned());
            format!("cpu: {current}/{target}")
        }
    }
}

fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .take(2)
        .map(|(at, spec)| metric(spec, statuses.get(at)))
        .collect();
    let shown = shown.join(", ");
    if specs.len() > 2 {
        format!("{shown} + {} more...", specs.len() - 2)
    } else {
        shown
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (field, prefix) = match text_at(spec, "type") {
        "External" => ("external", None),
        "Pods" => ("pods", None),
        "Object" => ("object", None),
        "Resource" => ("resource", Some(text_at(spec, "resource.name"))),
        "ContainerResource" => (
            "containerResource",
            Some(text_at(spec, "containerResource.name")),
        ),
        _ => return "<unknown type>".to_owned(),
    };
    let target = |kind: &str| text::scalar(super::at(spec, &format!("{field}.target.{kind}")));
    let current = |kind: &str| {
        let found = status.and_then(|one| super::at(one, &format!("{field}.current.{kind}")));
        text::scalar(found)
    };
    let unknown = || "<unknown>".to_owned();
    let percent = |number: String| format!("{number}%");
    if let Some(prefix) = prefix {
        return match target("averageValue") {
            Some(value) => {
                format!(
                    "{prefix}: {}/{value}",
                    current("averageValue").unwrap_or_else(unknown)
                )
            }
            None => {
                let now = current("averageUtilization").map_or_else(unknown, percent);
                let goal = target("averageUtilization").map_or("<auto>".to_owned(), percent);
                format!("{prefix}: {now}/{goal}")
            }
        };
    }
    match target("averageValue") {
        Some(value) => {
            let mean = if field == "pods" { "" } else { " (avg)" };
            format!(
                "{}/{value}{mean}",
                current("averageValue").unwrap_or_else(unknown)
            )
        }
        None => format!(
            "{}/{}",
            current("value").unwrap_or_else(unknown),
            target("value").unwrap_or_else(|| "0".to_owned())
        ),
    }
}
