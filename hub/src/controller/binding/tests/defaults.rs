//! What an API server adds to the templates that recorded scenarios create: the recorded Works have it.

use serde_json::{Value, json};

/// Fills in a template of a kind that the scenarios use.
pub(super) fn fill(template: &mut Value) {
    match template["kind"].as_str() {
        Some("Deployment") => {
            add(
                &mut template["spec"],
                json!({"replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
            );
            pod(&mut template["spec"]["template"]["spec"]);
        }
        Some("StatefulSet") => {
            add(
                &mut template["spec"],
                json!({"replicas": 1, "podManagementPolicy": "OrderedReady",
                "revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}),
            );
            pod(&mut template["spec"]["template"]["spec"]);
        }
        Some("DaemonSet") => {
            add(
                &mut template["spec"],
                json!({"revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}),
            );
            pod(&mut template["spec"]["template"]["spec"]);
        }
        Some("Job") => job(template),
        Some("CronJob") => {
            add(
                &mut template["spec"],
                json!({"concurrencyPolicy": "Allow", "failedJobsHistoryLimit": 1,
                "successfulJobsHistoryLimit": 3, "suspend": false}),
            );
            let job = &mut template["spec"]["jobTemplate"];
            add(job, json!({"metadata": {}}));
            add(&mut job["spec"]["template"], json!({"metadata": {}}));
            pod(&mut job["spec"]["template"]["spec"]);
        }
        Some("Pod") => {
            let reached = |key| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
            add(
                &mut template["spec"],
                json!({"enableServiceLinks": true, "tolerations": [
                reached("node.kubernetes.io/not-ready"), reached("node.kubernetes.io/unreachable")]}),
            );
            pod(&mut template["spec"]);
        }
        Some("Service") => {
            add(
                &mut template["spec"],
                json!({"internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]}),
            );
        }
        _ => {}
    }
}

fn job(template: &mut Value) {
    let spec = &mut template["spec"];
    let both = spec["parallelism"].is_null() && spec["completions"].is_null();
    if both {
        add(spec, json!({"completions": 1}));
    }
    add(
        spec,
        json!({"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "manualSelector": false,
        "podReplacementPolicy": "TerminatingOrFailed", "suspend": false,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}}),
    );
    add(
        &mut spec["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "job-name": "j"}),
    );
    pod(&mut spec["template"]["spec"]);
}

fn pod(spec: &mut Value) {
    add(
        spec,
        json!({"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30}),
    );
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            let last = image.rsplit('/').next().unwrap_or_default();
            let latest = last.ends_with(":latest") || !last.contains([':', '@']);
            let policy = if latest { "Always" } else { "IfNotPresent" };
            add(
                container,
                json!({"imagePullPolicy": policy, "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}),
            );
        }
        if spec[list].is_null() {
            spec.as_object_mut().expect("an object").remove(list);
        }
    }
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        if volume.get("configMap").is_some() {
            add(&mut volume["configMap"], json!({"defaultMode": 420}));
        }
    }
    if spec["volumes"].is_null() {
        spec.as_object_mut().expect("an object").remove("volumes");
    }
}

/// Sets members that are not there.
fn add(object: &mut Value, more: Value) {
    if object.is_null() {
        *object = json!({});
    }
    let Value::Object(more) = more else { return };
    let members = object.as_object_mut().expect("an object");
    for (key, value) in more {
        members.entry(key).or_insert(value);
    }
}
