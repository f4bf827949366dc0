use super::*;
use proptest::prelude::*;
use serde_json::json;

mod kept;

fn items(statuses: &[Value]) -> Vec<AggregatedStatusItem> {
    let item = |(index, status): (usize, &Value)| AggregatedStatusItem {
        cluster_name: format!("m{}", index + 1),
        status: (!status.is_null()).then(|| status.clone()),
        ..AggregatedStatusItem::default()
    };
    statuses.iter().enumerate().map(item).collect()
}

fn of(version: &str, kind: &str, template: Value, statuses: &[Value]) -> Option<Value> {
    let gvk = Gvk::new(version, kind).expect("sound");
    aggregate(&gvk, &template, &items(statuses))
}

#[test]
fn numbers_add_up_and_the_generation_waits_for_every_member() {
    let template = json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2, "conditions": [1]}});
    let member = |ready: i64, observed: i64, carried: i64| {
        json!({"replicas": 2, "readyReplicas": ready, "updatedReplicas": 2, "generation": 7,
            "observedGeneration": observed, "resourceTemplateGeneration": carried})
    };
    let cases = [
        (vec![member(2, 7, 3), member(1, 8, 4)], 3, 4, 3),
        // The member, or what it was given, is behind.
        (vec![member(2, 7, 3), member(1, 6, 3)], 3, 4, 2),
        (vec![member(2, 7, 3), member(1, 7, 2)], 3, 4, 2),
        (vec![member(2, 7, 3), Value::Null], 2, 2, 2),
        (vec![], 0, 0, 3),
    ];
    for (members, ready, replicas, observed) in cases {
        let deployment = of("apps/v1", "Deployment", template.clone(), &members).expect("a rule");
        assert_eq!(number(&deployment, "readyReplicas"), ready, "{members:?}");
        assert_eq!(number(&deployment, "replicas"), replicas, "{members:?}");
        assert_eq!(
            number(&deployment, "observedGeneration"),
            observed,
            "{members:?}"
        );
        assert_eq!(deployment["conditions"], json!([1]));
        for kind in ["ReplicaSet", "StatefulSet", "DaemonSet"] {
            let status = of("apps/v1", kind, template.clone(), &members).expect("a rule");
            assert_eq!(
                number(&status, "observedGeneration"),
                observed,
                "{kind} {members:?}"
            );
        }
    }
}

#[test]
fn zeros_are_shown_where_kubernetes_shows_them() {
    let cases = [
        ("apps/v1", "Deployment", json!({})),
        ("apps/v1", "ReplicaSet", json!({"replicas": 0})),
        (
            "apps/v1",
            "StatefulSet",
            json!({"replicas": 0, "availableReplicas": 0}),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0,
                "numberReady": 0}),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"desiredReplicas": 0}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"loadBalancer": {}}),
        ),
        ("batch/v1", "CronJob", json!({})),
        ("v1", "PersistentVolumeClaim", json!({"phase": "Bound"})),
        ("v1", "PersistentVolume", json!({"phase": "Pending"})),
    ];
    for (version, kind, want) in cases {
        assert_eq!(
            of(version, kind, json!({}), &[Value::Null]),
            Some(want),
            "{kind}"
        );
    }
}

#[test]
fn budgets_and_autoscalers_keep_nothing_else() {
    let before =
        json!({"status": {"conditions": [1], "currentReplicas": 9, "observedGeneration": 1}});
    let (t, u) = ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    let budgets = [
        json!({"currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 3, "disruptedPods": {"p": t}}),
        json!({"currentHealthy": 1, "disruptionsAllowed": 1, "disruptedPods": {"p": u, "q": "soon", "r": 7}}),
    ];
    let want = json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3,
        "disruptedPods": {"m1/p": t, "m2/p": u}});
    let got = of("policy/v1", "PodDisruptionBudget", before.clone(), &budgets);
    assert_eq!(got, Some(want));
    let scalers = [
        json!({"currentReplicas": 1, "desiredReplicas": 2}),
        json!({"currentReplicas": 4}),
    ];
    for version in ["autoscaling/v1", "autoscaling/v2"] {
        let got = of(version, "HorizontalPodAutoscaler", before.clone(), &scalers);
        let want = json!({"currentReplicas": 5, "desiredReplicas": 2});
        assert_eq!(got, Some(want), "{version}");
    }
    // v1 alone shows a zero of both.
    let got = of(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        json!({}),
        &[json!({})],
    );
    assert_eq!(
        got,
        Some(json!({"currentReplicas": 0, "desiredReplicas": 0}))
    );
}

#[test]
fn addresses_are_united_and_sorted() {
    let balanced = |entries: Value| json!({"loadBalancer": {"ingress": entries}});
    let service = json!({"spec": {"type": "LoadBalancer"}});
    let port = |port: i64, protocol: &str| json!({"port": port, "protocol": protocol});
    let members = [
        balanced(
            json!([{"ip": "10.0.0.2", "ports": [port(80, "UDP"), port(80, "TCP")]}, {"ip": "10.0.0.1"}]),
        ),
        balanced(json!([{"hostname": "b"}, {"hostname": "a", "ip": "10.0.0.9"}])),
        balanced(
            json!([{"ip": "10.0.0.2", "ports": [port(53, "UDP"), port(80, "TCP")]},
            {"ip": "10.0.0.1", "ipMode": "Proxy"}]),
        ),
    ];
    let got = of("v1", "Service", service, &members).expect("a rule");
    let want = balanced(json!([
        {"hostname": "a", "ip": "10.0.0.9", "ipMode": "VIP"},
        {"hostname": "b"},
        {"ip": "10.0.0.1", "ipMode": "Proxy"},
        {"ip": "10.0.0.1", "ipMode": "VIP"},
        {"ip": "10.0.0.2", "ipMode": "VIP", "ports": [port(53, "UDP"), port(80, "TCP"), port(80, "UDP")]},
    ]));
    assert_eq!(got, want);
    let ingress = of("networking.k8s.io/v1", "Ingress", json!({}), &members[1..2]);
    let want = balanced(json!([{"hostname": "a", "ip": "10.0.0.9"}, {"hostname": "b"}]));
    assert_eq!(ingress, Some(want));
    let inner = json!({"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {}}});
    assert_eq!(of("v1", "Service", inner, &members), None);
}

#[test]
fn the_worst_phase_is_shown() {
    let phases = |kind: &str, phases: &[Option<&str>]| {
        let status = |phase: &Option<&str>| phase.map_or(Value::Null, |it| json!({ "phase": it }));
        let members: Vec<Value> = phases.iter().map(status).collect();
        let before =
            json!({"status": {"phase": "Running", "qosClass": "Burstable", "hostIP": "x"}});
        let got = of("v1", kind, before, &members).expect("a rule");
        assert_eq!(got.get("hostIP"), None);
        got["phase"].as_str().expect("a phase").to_owned()
    };
    let cases = [
        (
            "Pod",
            vec![Some("Running"), Some("Failed"), Some("Pending")],
            "Failed",
        ),
        ("Pod", vec![Some("Running"), None], "Pending"),
        ("Pod", vec![Some("Succeeded"), Some("Running")], "Running"),
        (
            "Pod",
            vec![Some("Succeeded"), Some("Succeeded")],
            "Succeeded",
        ),
        ("Pod", vec![Some("Nonsense")], "Running"),
        (
            "PersistentVolume",
            vec![Some("Released"), Some("Bound")],
            "Bound",
        ),
        (
            "PersistentVolume",
            vec![Some("Available"), Some("Bound")],
            "Available",
        ),
        ("PersistentVolume", vec![Some("Bound"), None], "Pending"),
        ("PersistentVolume", vec![Some("Failed"), None], "Failed"),
        ("PersistentVolumeClaim", vec![None, None], "Bound"),
        (
            "PersistentVolumeClaim",
            vec![Some("Pending"), Some("Bound")],
            "Pending",
        ),
        (
            "PersistentVolumeClaim",
            vec![Some("Lost"), Some("Pending")],
            "Lost",
        ),
    ];
    for (kind, members, want) in cases {
        assert_eq!(phases(kind, &members), want, "{kind} {members:?}");
    }
}

#[test]
fn containers_of_a_pod_show_state_and_nothing_else() {
    let member = |name: &str| {
        json!({"phase": "Running", "initContainerStatuses": [{"name": name}],
        "containerStatuses": [{"name": name, "ready": true, "restartCount": 4, "image": "i",
            "state": {"running": {}}}]})
    };
    let got = of("v1", "Pod", json!({}), &[member("a"), member("b")]).expect("a rule");
    let shown = |ready: bool, state: Value| {
        json!({"name": "", "ready": ready, "state": state,
        "lastState": {}, "restartCount": 0, "image": "", "imageID": ""})
    };
    let running = shown(true, json!({"running": {}}));
    assert_eq!(got["containerStatuses"], json!([running, running]));
    let unknown = shown(false, json!({}));
    assert_eq!(got["initContainerStatuses"], json!([unknown, unknown]));
}

fn job_member(kind: &str, active: i64, minute: u32) -> Value {
    let at = |minute: u32| format!("2020-01-01T00:{minute:02}:00Z");
    let mut member = json!({"startTime": at(minute), "active": active, "succeeded": 1});
    if !kind.is_empty() {
        member["conditions"] =
            json!([{"type": kind, "status": "True", "lastTransitionTime": at(minute + 10)}]);
    }
    if kind == "Complete" {
        member["completionTime"] = json!(at(minute + 10));
    }
    member
}

fn conditions(status: &Value) -> Vec<String> {
    let shown = |it: &Value| {
        let part = |key: &str| it[key].as_str().expect("text").to_owned();
        format!("{} {}: {}", part("type"), part("reason"), part("message"))
    };
    list(status, "conditions").iter().map(shown).collect()
}

#[test]
fn a_job_ends_when_an_api_server_lets_it() {
    let job = |members: &[Value]| of("batch/v1", "Job", json!({}), members).expect("a rule");
    let running = job(&[job_member("", 1, 2), job_member("Complete", 0, 1)]);
    assert_eq!(
        running,
        json!({"active": 1, "succeeded": 2, "startTime": "2020-01-01T00:01:00Z"})
    );

    let complete = job(&[job_member("Complete", 0, 2), job_member("Complete", 0, 1)]);
    let met =
        "SuccessCriteriaMet CompletionsReached: All member clusters have met success criteria";
    assert_eq!(
        conditions(&complete),
        [met, "Complete Completed: Job completed"]
    );
    assert_eq!(complete["completionTime"], "2020-01-01T00:12:00Z");
    assert_eq!(complete["startTime"], "2020-01-01T00:01:00Z");
    assert_eq!(
        complete["conditions"][1]["lastTransitionTime"],
        "2020-01-01T00:12:00Z"
    );

    // Check 49 of the reference, in the order that an API server takes.
    let text = "JobFailed: Job executed failed in member clusters m2";
    let failing = job(&[job_member("", 1, 1), job_member("Failed", 0, 1)]);
    assert_eq!(conditions(&failing), [format!("FailureTarget {text}")]);
    let failed = job(&[job_member("Complete", 0, 1), job_member("Failed", 0, 1)]);
    assert_eq!(
        conditions(&failed),
        [format!("FailureTarget {text}"), format!("Failed {text}")]
    );
    assert_eq!(failed.get("completionTime"), None);

    // It began by a clock that is ahead.
    let ahead = json!({"status": {"startTime": "9999-01-01T00:00:00Z"}});
    let moved = of("batch/v1", "Job", ahead, &[job_member("Complete", 0, 1)]).expect("a rule");
    assert_eq!(moved["completionTime"], moved["startTime"]);

    let unknown = job(&[job_member("Complete", 0, 1), Value::Null]);
    assert_eq!(conditions(&unknown), [""; 0]);
    assert_eq!(unknown.get("startTime"), None);
    assert_eq!(conditions(&job(&[])), [""; 0]);
}

#[test]
fn the_end_of_a_job_is_final() {
    for end in ["Complete", "Failed"] {
        let ended = json!({"status": {"conditions": [{"type": end, "status": "True"}]}});
        assert_eq!(of("batch/v1", "Job", ended, &[job_member("", 1, 1)]), None);
    }
    let suspended = json!({"status": {"conditions": [{"type": "Suspended", "status": "True"}],
        "startTime": "2019-01-01T00:00:00Z"}});
    let status = of("batch/v1", "Job", suspended, &[job_member("", 1, 1)]).expect("a rule");
    assert_eq!(status["startTime"], "2019-01-01T00:00:00Z");
}

#[test]
fn the_last_run_of_a_cron_job_is_shown() {
    let before = json!({"status": {"lastScheduleTime": "2020-01-03T00:00:00Z", "active": [1]}});
    let members = [
        json!({"lastScheduleTime": "2020-01-04T00:00:00Z", "active": [{"name": "a"}]}),
        json!({"lastSuccessfulTime": "2020-01-02T00:00:00Z", "active": [{"name": "b"}]}),
    ];
    let want = json!({"lastScheduleTime": "2020-01-04T00:00:00Z", "lastSuccessfulTime": "2020-01-02T00:00:00Z",
        "active": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(of("batch/v1", "CronJob", before, &members), Some(want));
}

/// One member's word of a wrong form must not keep an API server from taking what all the others say.
#[test]
fn what_no_status_can_hold_counts_as_absent() {
    let sound = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}});
    let member = json!({"loadBalancer": {"ingress": [
        7, {}, {"ip": "10.0.0.300"}, {"hostname": "10.0.0.7"}, {"hostname": "No Name"}, {"ip": 4},
        {"hostname": "010.0.0.1"}, {"ip": "010.0.0.1"},
        {"hostname": "a.b", "ipMode": "VIP", "ports": [{"port": 99999}, {"port": "80"}, {"port": 80, "protocol": 7}]},
        {"ip": "10.0.0.2", "ipMode": "Sideways"},
    ]}});
    let service = json!({"spec": {"type": "LoadBalancer"}});
    let got = of("v1", "Service", service, &[member, sound]).expect("a rule");
    let want = json!([{"hostname": "a.b", "ports": [{"port": 80}]}, {"ip": "10.0.0.1", "ipMode": "VIP"},
        {"ip": "10.0.0.2", "ipMode": "VIP"}]);
    assert_eq!(got["loadBalancer"]["ingress"], want);

    let sound = json!({"startTime": "2020-01-01T00:00:00Z", "completionTime": "2020-01-01T00:01:00Z",
        "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2020-01-01T00:01:00Z"}]});
    let member = json!({"startTime": "0", "completionTime": "zzz", "active": -7, "succeeded": "many",
        "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "+99999-01-01T00:00:00Z"}]});
    let got = of("batch/v1", "Job", json!({}), &[member, sound.clone()]).expect("a rule");
    assert_eq!(got["startTime"], sound["startTime"]);
    assert_eq!(got["completionTime"], sound["completionTime"]);
    assert_eq!(
        got["conditions"][0]["lastProbeTime"],
        sound["completionTime"]
    );

    let member = json!({"active": [1, {"name": 7, "uid": "u", "evil": {}}], "lastScheduleTime": "yesterday"});
    let got = of("batch/v1", "CronJob", json!({}), &[member]);
    assert_eq!(got, Some(json!({"active": [{"uid": "u"}]})));

    let state = json!({"running": {"startedAt": "now"}, "waiting": 7, "evil": 1,
        "terminated": {"exitCode": 1e12, "signal": 9, "reason": ["x"], "message": "m"}});
    let member = json!({"containerStatuses": [7, {"state": state}]});
    let got = of("v1", "Pod", json!({}), &[member]).expect("a rule");
    let want = json!({"running": {}, "terminated": {"signal": 9, "message": "m"}});
    assert_eq!(got["containerStatuses"][0]["state"], want);

    let claim = of(
        "v1",
        "PersistentVolumeClaim",
        json!({}),
        &[json!({"phase": "Mine"})],
    );
    assert_eq!(claim, Some(json!({"phase": "Bound"})));
}

/// Times of members with other clocks are compared as times.
#[test]
fn times_are_written_as_an_api_server_writes_them() {
    let job = |time: &str| json!({ "lastScheduleTime": time });
    let members = [
        job("2020-01-01T01:00:00+02:00"),
        job("2019-12-31T23:30:00.5Z"),
        // A second that Go does not know.
        job("2019-12-31T23:59:60Z"),
    ];
    let got = of("batch/v1", "CronJob", json!({}), &members);
    assert_eq!(
        got,
        Some(json!({"lastScheduleTime": "2019-12-31T23:30:00Z"}))
    );
}

#[test]
fn other_kinds_have_no_rule() {
    for (version, kind) in [
        ("v1", "ConfigMap"),
        ("batch/v1beta1", "CronJob"),
        ("example.org/v1", "Widget"),
    ] {
        assert_eq!(
            of(version, kind, json!({}), &[json!({"a": 1})]),
            None,
            "{kind}"
        );
    }
}

#[test]
fn a_null_says_nothing() {
    assert!(is_same(&json!({"a": 1, "b": null}), &json!({"a": 1})));
    assert!(is_same(&json!(null), &json!({})));
    assert!(!is_same(&json!({"a": 1}), &json!({"a": 2})));
}

const KINDS: [(&str, &str); 14] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("policy/v1", "PodDisruptionBudget"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "Ingress"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Pod"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
];

/// What a member may say: fields that rules read, with values of any shape.
fn any_status() -> impl Strategy<Value = Value> {
    let keys = prop_oneof![
        Just("replicas"),
        Just("active"),
        Just("startTime"),
        Just("conditions"),
        Just("phase"),
        Just("loadBalancer"),
        Just("containerStatuses"),
        Just("disruptedPods"),
        Just("observedGeneration"),
    ];
    let values = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[A-Z][a-z]{0,3}".prop_map(Value::from),
        Just(json!([{"type": "Failed", "status": "True"}])),
        Just(json!([{"type": "Complete", "status": "True"}, 7])),
        Just(
            json!({"ingress": [{"ip": "10.0.0.1"}, {"hostname": "a", "ports": [{"port": 1}, 2]}, "x"]})
        ),
        Just(json!({"a": "b"})),
    ];
    let map = proptest::collection::btree_map(keys, values, 0..5);
    map.prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

proptest! {
    /// Whatever members say, no rule fails, and what it wrote it would not write again.
    #[test]
    fn a_status_comes_to_rest(
        kind in 0..KINDS.len(),
        before in any_status(),
        members in proptest::collection::vec(any_status(), 0..4),
    ) {
        let (version, kind) = KINDS[kind];
        let mut template = json!({"metadata": {"generation": 2}, "spec": {"type": "LoadBalancer"},
            "status": before});
        if let Some(status) = of(version, kind, template.clone(), &members) {
            template["status"] = status.clone();
            let again = of(version, kind, template, &members);
            prop_assert!(again.is_none_or(|again| is_same(&again, &status)), "{}", status);
        }
    }

    /// Which member says what does not matter where numbers add up.
    #[test]
    fn members_commute(mut numbers in proptest::collection::vec(0i64..1000, 0..6)) {
        let status = |numbers: &[i64]| {
            let members: Vec<Value> = numbers.iter().map(|it| json!({"replicas": it})).collect();
            of("apps/v1", "Deployment", json!({}), &members).expect("a rule")
        };
        let forward = status(&numbers);
        numbers.reverse();
        prop_assert_eq!(number(&forward, "replicas"), numbers.iter().sum::<i64>());
        prop_assert_eq!(forward, status(&numbers));
    }
}
