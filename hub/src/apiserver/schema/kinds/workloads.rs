//! What is refused in workloads and in what scales and guards them.

use super::check::{
    Errors, at_most_all, below, domain_prefixed, has, int_or_percent, is_empty_selector, list,
    not_negative, number, one_of, percent, required, selector, selects, text, typed,
};
use super::meta::each;
use super::{cron, pods, storage};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use crate::apiserver::names;
use serde_json::{Value, json};

/// The selector of a workload, and its template that it has to select.
fn selected_template(spec: &Value, kind: &str, owner: &str, errors: &mut Errors) {
    let given = &spec["selector"];
    let mut valid = true;
    if given.is_null() {
        if kind != "daemonset" {
            errors.push(required("spec.selector".to_owned(), ""));
        }
    } else {
        let before = errors.len();
        selector(given, "spec.selector", errors);
        valid = errors.len() == before;
        if is_empty_selector(given) {
            let detail = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", json!({}), detail));
        }
    }
    template(spec, valid, owner, errors);
}

const MISMATCH: &str = "`selector` does not match template `labels`";

fn template(spec: &Value, selector_is_valid: bool, owner: &str, errors: &mut Errors) {
    let template = &spec["template"];
    let labels = template["metadata"].get("labels");
    let given = &spec["selector"];
    match selects(given, labels) {
        _ if owner != "DaemonSet" && !given.is_null() && is_empty_selector(given) => {}
        None => {}
        Some(true) => {}
        Some(false) => {
            let shown = labels.cloned().unwrap_or(Value::Null);
            let at = "spec.template.metadata.labels";
            errors.push(FieldError::invalid(at, shown, MISMATCH));
        }
    }
    let path = "spec.template";
    pods::template(template, path, errors);
    always_restarted(template, owner, errors);
    if !selector_is_valid && owner != "DaemonSet" {
        let detail = "invalid label selector";
        errors.push(FieldError::invalid("spec.selector", given.clone(), detail));
    }
}

/// What is kept running is restarted.
fn always_restarted(template: &Value, owner: &str, errors: &mut Errors) {
    let spec = &template["spec"];
    let policy = text(spec, "restartPolicy");
    let path = "spec.template.spec";
    if policy != "Always" {
        let at = format!("{path}.restartPolicy");
        errors.push(FieldError::not_supported(at, json!(policy), &["Always"]));
    }
    if has(spec, "activeDeadlineSeconds") && !owner.is_empty() {
        let detail = format!("activeDeadlineSeconds in {owner} is not Supported");
        errors.push(FieldError::forbidden(
            format!("{path}.activeDeadlineSeconds"),
            detail,
        ));
    }
}

/// A strategy as the server's own type prints it.
fn shown_strategy(strategy: &Value) -> BadValue {
    typed(&[
        ("Type", &strategy["type"]),
        ("RollingUpdate", &strategy["rollingUpdate"]),
    ])
}

/// A strategy that there is not.
fn unknown_strategy(strategy: &Value, path: &str, words: &[&str]) -> FieldError {
    let error = FieldError::not_supported(path, Value::Null, words);
    FieldError {
        value: shown_strategy(strategy),
        ..error
    }
}

pub(super) fn deployment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    not_negative(spec, &["replicas"], "spec", errors);
    selected_template(spec, "deployment", "ReplicaSet", errors);
    rolling_update(&spec["strategy"], errors);
    let numbers = [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ];
    not_negative(spec, &numbers, "spec", errors);
    let ready = number(spec, "minReadySeconds").unwrap_or(0);
    if let Some(deadline) = number(spec, "progressDeadlineSeconds").filter(|d| *d <= ready) {
        let at = "spec.progressDeadlineSeconds";
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid(at, json!(deadline), detail));
    }
}

fn is_zero(value: &Value) -> bool {
    *value == 0 || percent(value) == Some(0)
}

fn rolling_update(strategy: &Value, errors: &mut Errors) {
    let path = "spec.strategy";
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(
                    format!("{path}.rollingUpdate"),
                    detail,
                ));
            }
        }
        "RollingUpdate" => {
            let at = |key: &str| format!("{path}.rollingUpdate.{key}");
            let (surge, unavailable) = (&rolling["maxSurge"], &rolling["maxUnavailable"]);
            int_or_percent(unavailable, &at("maxUnavailable"), errors);
            int_or_percent(surge, &at("maxSurge"), errors);
            if is_zero(unavailable) && is_zero(surge) {
                let detail = "may not be 0 when `maxSurge` is 0";
                let at = at("maxUnavailable");
                errors.push(FieldError::invalid(at, unavailable.clone(), detail));
            }
            at_most_all(unavailable, &at("maxUnavailable"), errors);
        }
        _ => {
            let words = ["Recreate", "RollingUpdate"];
            errors.push(unknown_strategy(strategy, path, &words));
        }
    }
}

pub(super) fn daemon_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    selected_template(spec, "daemonset", "DaemonSet", errors);
    let strategy = &spec["updateStrategy"];
    let path = "spec.updateStrategy";
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let (surge, unavailable) = (&rolling["maxSurge"], &rolling["maxUnavailable"]);
            for (key, value) in [("maxUnavailable", unavailable), ("maxSurge", surge)] {
                let at = format!("{path}.rollingUpdate.{key}");
                int_or_percent(value, &at, errors);
                at_most_all(value, &at, errors);
            }
            let nothing =
                |value: &Value| is_zero(value) || (value.is_string() && percent(value).is_none());
            if nothing(unavailable) && nothing(surge) {
                let at = format!("{path}.rollingUpdate.maxUnavailable");
                errors.push(required(at, "cannot be 0 when maxSurge is 0"));
            } else if !nothing(unavailable) && !nothing(surge) {
                let at = format!("{path}.rollingUpdate.maxSurge");
                let detail = "may not be set when maxUnavailable is non-zero";
                errors.push(FieldError::invalid(at, surge.clone(), detail));
            }
        }
        _ => {
            let words = ["RollingUpdate", "OnDelete"];
            errors.push(unknown_strategy(strategy, path, &words));
        }
    }
    not_negative(
        spec,
        &["minReadySeconds", "revisionHistoryLimit"],
        "spec",
        errors,
    );
}

pub(super) fn replica_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    not_negative(spec, &["replicas", "minReadySeconds"], "spec", errors);
    selected_template(spec, "deployment", "ReplicaSet", errors);
}

pub(super) fn replication_controller(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    not_negative(spec, &["minReadySeconds"], "spec", errors);
    let labels = super::check::map(spec, "selector");
    if labels.is_none_or(serde_json::Map::is_empty) {
        errors.push(required("spec.selector".to_owned(), ""));
    }
    not_negative(spec, &["replicas"], "spec", errors);
    if !has(spec, "template") {
        errors.push(required("spec.template".to_owned(), ""));
        return;
    }
    let template = &spec["template"];
    let found = template["metadata"].get("labels");
    let as_selector = json!({"matchLabels": spec["selector"]});
    if labels.is_some() && selects(&as_selector, found) == Some(false) {
        let shown = found.cloned().unwrap_or(Value::Null);
        let at = "spec.template.metadata.labels";
        errors.push(FieldError::invalid(at, shown, MISMATCH));
    }
    pods::template(template, "spec.template", errors);
    always_restarted(template, "ReplicationController", errors);
}

pub(super) fn stateful_set(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let management = text(spec, "podManagementPolicy");
    if !matches!(management, "OrderedReady" | "Parallel") {
        let at = "spec.podManagementPolicy";
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(at, json!(management), detail));
    }
    let strategy = &spec["updateStrategy"];
    let (path, rolling) = ("spec.updateStrategy", &strategy["rollingUpdate"]);
    match text(strategy, "type") {
        "OnDelete" => {
            if !rolling.is_null() {
                let partition = json!(number(rolling, "partition").unwrap_or(0));
                let shown = typed(&[
                    ("Partition", &partition),
                    ("MaxUnavailable", &rolling["maxUnavailable"]),
                ]);
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                let at = format!("{path}.rollingUpdate");
                errors.push(FieldError::new(at, FieldErrorKind::Invalid, shown, detail));
            }
        }
        "RollingUpdate" => {
            not_negative(
                rolling,
                &["partition"],
                &format!("{path}.rollingUpdate"),
                errors,
            );
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            let shown = shown_strategy(strategy);
            errors.push(FieldError::new(
                path,
                FieldErrorKind::Invalid,
                shown,
                detail,
            ));
        }
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for key in ["whenDeleted", "whenScaled"] {
        let at = "spec.persistentVolumeClaimRetentionPolicy";
        one_of(retention, key, &["Retain", "Delete"], at, errors);
    }
    not_negative(spec, &["replicas", "minReadySeconds"], "spec", errors);
    not_negative(&spec["ordinals"], &["start"], "spec.ordinals", errors);
    not_negative(spec, &["revisionHistoryLimit"], "spec", errors);
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        errors.extend(each("spec.serviceName", service, names::label(service)));
    }
    for (index, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
        let at = format!("spec.volumeClaimTemplates[{index}].spec");
        storage::claim_spec(&claim["spec"], &at, errors);
    }
    selected_template(spec, "statefulset", "StatefulSet", errors);
}

pub(super) fn job(object: &Value, changed: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    generated_selector(object, errors);
    job_spec(spec, "spec", errors);
    job_selector(spec, errors);
    // A change is looked at once more.
    if changed {
        job_spec(spec, "spec", errors);
        job_selector(spec, errors);
    }
}

/// A Job that nobody chose a selector for has that of its own uid.
fn generated_selector(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if spec["manualSelector"] == Value::Bool(true) || !has(spec, "selector") {
        return;
    }
    let (name, uid) = (&object["metadata"]["name"], &object["metadata"]["uid"]);
    let expected = json!({
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    });
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = expected.as_object().into_iter().flatten();
    for (key, value) in wanted.filter(|(key, value)| labels.get(key.as_str()) != Some(*value)) {
        let at = "spec.template.metadata.labels";
        let error = match labels.get(key) {
            None => {
                let detail = format!("must be '{}'", value.as_str().unwrap_or_default());
                required(format!("{at}[{key}]"), &detail)
            }
            Some(found) => {
                let detail = format!("must be '{}'", value.as_str().unwrap_or_default());
                FieldError::invalid(format!("{at}[{key}]"), found.clone(), detail)
            }
        };
        errors.push(error);
    }
    if selects(&spec["selector"], Some(&expected)) == Some(false) {
        let detail = "`selector` not auto-generated";
        let shown = spec["selector"].clone();
        errors.push(FieldError::invalid("spec.selector", shown, detail));
    }
}

fn job_selector(spec: &Value, errors: &mut Errors) {
    if has(spec, "selector") {
        selector(&spec["selector"], "spec.selector", errors);
    } else {
        errors.push(required("spec.selector".to_owned(), ""));
    }
    let labels = spec["template"]["metadata"].get("labels");
    if selects(&spec["selector"], labels) == Some(false) {
        let shown = labels.cloned().unwrap_or(Value::Null);
        let at = "spec.template.metadata.labels";
        errors.push(FieldError::invalid(at, shown, MISMATCH));
    }
}

fn job_spec(spec: &Value, path: &str, errors: &mut Errors) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(spec, &numbers, path, errors);
    if has(spec, "managedBy") {
        let at = format!("{path}.managedBy");
        domain_prefixed(text(spec, "managedBy"), &at, errors);
    }
    let mode = text(spec, "completionMode");
    one_of(
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
        path,
        errors,
    );
    if mode == "Indexed" {
        if !has(spec, "completions") {
            let detail = "when completion mode is Indexed";
            errors.push(required(format!("{path}.completions"), detail));
        }
    } else if matches!(mode, "" | "NonIndexed") {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(found) = number(spec, key) {
                let detail = "requires indexed completion mode";
                errors.push(FieldError::invalid(
                    format!("{path}.{key}"),
                    json!(found),
                    detail,
                ));
            }
        }
    }
    let policies: &[&str] = match has(spec, "podFailurePolicy") {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    one_of(spec, "podReplacementPolicy", policies, path, errors);
    let template = &spec["template"];
    pods::template(template, &format!("{path}.template"), errors);
    let policy = text(&template["spec"], "restartPolicy");
    let at = format!("{path}.template.spec.restartPolicy");
    if policy.is_empty() || policy == "Always" {
        errors.push(required(at, "valid values: \"OnFailure\", \"Never\""));
    } else if !matches!(policy, "OnFailure" | "Never") {
        let words = ["OnFailure", "Never"];
        errors.push(FieldError::not_supported(at, json!(policy), &words));
    }
}

pub(super) fn cron_job(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(required("spec.schedule".to_owned(), ""));
    } else if let Some(why) = cron::wrong(schedule) {
        errors.push(FieldError::invalid("spec.schedule", json!(schedule), why));
    }
    not_negative(spec, &["startingDeadlineSeconds"], "spec", errors);
    if let Some(zone) = spec.get("timeZone").and_then(Value::as_str) {
        if zone.is_empty() {
            let detail = "timeZone must be nil or non-empty string";
            errors.push(FieldError::invalid("spec.timeZone", json!(""), detail));
        } else if zone.eq_ignore_ascii_case("local") {
            let detail = "timeZone must be an explicit time zone as defined in \
                          https://www.iana.org/time-zones";
            errors.push(FieldError::invalid("spec.timeZone", json!(zone), detail));
        } else if !cron::may_be_zone(zone) {
            let detail = format!("unknown time zone {zone}");
            errors.push(FieldError::invalid("spec.timeZone", json!(zone), detail));
        }
    }
    one_of(
        spec,
        "concurrencyPolicy",
        &["Allow", "Forbid", "Replace"],
        "spec",
        errors,
    );
    job_spec(
        &spec["jobTemplate"]["spec"],
        "spec.jobTemplate.spec",
        errors,
    );
    let limits = ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    not_negative(spec, &limits, "spec", errors);
    let name = text(&object["metadata"], "name");
    if name.len() > 52 {
        let detail = "must be no more than 52 characters";
        errors.push(FieldError::invalid("metadata.name", json!(name), detail));
    }
}

pub(super) fn revision(object: &Value, errors: &mut Errors) {
    not_negative(object, &["revision"], "", errors);
    if let Some(error) = errors.last_mut().filter(|error| error.path == ".revision") {
        error.path = "revision".to_owned();
    }
    if !has(object, "data") {
        errors.push(required("data".to_owned(), "data is mandatory"));
    }
}

pub(super) fn disruption_budget(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let shown = typed(&[
            ("MinAvailable", least),
            ("Selector", &spec["selector"]),
            ("MaxUnavailable", most),
            (
                "UnhealthyPodEvictionPolicy",
                &spec["unhealthyPodEvictionPolicy"],
            ),
        ]);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::new(
            "spec",
            FieldErrorKind::Invalid,
            shown,
            detail,
        ));
    }
    for (key, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        int_or_percent(value, &below("spec", key), errors);
        at_most_all(value, &below("spec", key), errors);
    }
    if has(spec, "selector") {
        selector(&spec["selector"], "spec.selector", errors);
    }
    let words = ["AlwaysAllow", "IfHealthyBudget"];
    one_of(spec, "unhealthyPodEvictionPolicy", &words, "spec", errors);
}
