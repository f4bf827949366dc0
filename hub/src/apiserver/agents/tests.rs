use super::*;
use serde_json::json;

fn agent(cluster: &str) -> Caller {
    Caller {
        user: format!("{AGENT_USER_PREFIX}{cluster}"),
        groups: vec![
            AGENTS_GROUP.to_owned(),
            format!("{CLUSTER_GROUP_PREFIX}{cluster}:00"),
        ],
        ..Caller::default()
    }
}

fn token() -> Caller {
    Caller {
        user: "system:bootstrap:abcdef".to_owned(),
        groups: vec![BOOTSTRAP_GROUP.to_owned()],
        ..Caller::default()
    }
}

/// `UPDATE group/resource/subresource namespace name`, `-` for nothing.
fn target(text: &str) -> Target<'_> {
    let words: Vec<&str> = text.split(' ').collect();
    let what: Vec<&str> = words[1].split('/').collect();
    let plain = |word: &'static str, text| if text == word { "" } else { text };
    Target {
        operation: words[0],
        group: what[0],
        resource: what[1],
        subresource: what.get(2).copied().unwrap_or_default(),
        namespace: plain("-", words[2]),
        name: plain("-", words[3]),
    }
}

#[test]
fn an_agent_writes_its_own_and_nothing_else() {
    let m1 = agent("m1");
    let allowed = [
        "UPDATE cluster.karmada.io/clusters/status - m1",
        "UPDATE coordination.k8s.io/leases karmada-cluster m1",
        "UPDATE work.karmada.io/works karmada-es-m1 w",
        "UPDATE work.karmada.io/works/status karmada-es-m1 w",
        "CREATE /events karmada-es-m1 -",
        "UPDATE /events karmada-es-m1 e",
        "CREATE certificates.k8s.io/certificatesigningrequests - -",
    ];
    for text in allowed {
        assert_eq!(check_target(&m1, &target(text)), Ok(()), "{text}");
    }
    let refused = [
        "UPDATE cluster.karmada.io/clusters/status - m10",
        "UPDATE cluster.karmada.io/clusters - m1",
        "DELETE cluster.karmada.io/clusters - m1",
        "UPDATE coordination.k8s.io/leases karmada-cluster m2",
        "UPDATE coordination.k8s.io/leases karmada-system m1",
        "CREATE coordination.k8s.io/leases karmada-cluster m1",
        "UPDATE work.karmada.io/works karmada-es-m10 w",
        "UPDATE work.karmada.io/works/status karmada-es-m2 w",
        "DELETE work.karmada.io/works karmada-es-m1 w",
        "CREATE /events default -",
        "UPDATE /events default e",
        "DELETE /events karmada-es-m1 e",
        "CREATE /secrets karmada-es-m1 -",
        "CREATE authorization.k8s.io/selfsubjectaccessreviews - -",
        "UPDATE certificates.k8s.io/certificatesigningrequests/approval - x",
    ];
    for text in refused {
        let error = check_target(&m1, &target(text)).expect_err(text);
        assert_eq!(error.code, 403, "{text}");
        assert!(
            error
                .message
                .contains("ValidatingAdmissionPolicy 'towline-agents'"),
            "{text}"
        );
    }
    let group_only = Caller {
        user: "bob".to_owned(),
        ..m1
    };
    assert!(check_target(&group_only, &target(allowed[0])).is_err());
    assert!(check_target(&token(), &target(allowed[6])).is_ok());
    let by_token = check_target(&token(), &target(allowed[0])).expect_err("no agent");
    assert!(by_token.message.contains("'towline-tokens'"));
}

fn check(text: &str, object: &Value, old: &Value) -> Result<(), ApiError> {
    check_object(&agent("m1"), &target(text), Some(object), Some(old), || {
        true
    })
}

#[test]
fn what_is_not_its_own_stays_as_it_was() {
    let old = json!({
        "apiVersion": "v1", "kind": "K",
        "metadata": {"name": "m1", "labels": {"a": "b"}, "finalizers": ["x"], "resourceVersion": "1"},
        "spec": {"a": 1, "renewTime": "t"},
    });
    let with = |path: &[&str], value: Value| {
        let mut object = old.clone();
        let mut at = &mut object;
        for key in path {
            at = &mut at[*key];
        }
        *at = value;
        object["metadata"]["resourceVersion"] = json!("2");
        object
    };
    let status = "UPDATE cluster.karmada.io/clusters/status - m1";
    let lease = "UPDATE coordination.k8s.io/leases karmada-cluster m1";
    let work = "UPDATE work.karmada.io/works karmada-es-m1 m1";
    let own = json!(["x", common::labels::WORK_FINALIZER]);
    let by = |manager: &str| json!([{"manager": manager, "time": "2026-01-01T00:00:00Z"}]);
    // target, field, value, whether it may be
    let cases = [
        (status, vec!["status"], json!({"x": 1}), true),
        (status, vec!["spec", "a"], json!(2), false),
        (status, vec!["metadata", "labels"], json!({}), false),
        (
            status,
            vec!["metadata", "ownerReferences"],
            json!([]),
            false,
        ),
        (status, vec!["metadata", "managedFields"], json!([{}]), true),
        (
            status,
            vec!["metadata", "managedFields"],
            by("towline-agent-x"),
            true,
        ),
        (
            status,
            vec!["metadata", "managedFields"],
            by("unknown"),
            true,
        ),
        (
            status,
            vec!["metadata", "managedFields"],
            by("karmada-agent"),
            true,
        ),
        (
            status,
            vec!["metadata", "managedFields"],
            by("towline-hub"),
            false,
        ),
        (
            work,
            vec!["metadata", "managedFields"],
            by("kubectl"),
            false,
        ),
        (
            lease,
            vec!["metadata", "managedFields"],
            by("kubectl"),
            true,
        ),
        (lease, vec!["spec", "renewTime"], json!("u"), true),
        (lease, vec!["spec", "holderIdentity"], json!("u"), false),
        (
            lease,
            vec!["metadata", "annotations"],
            json!({"a": "b"}),
            false,
        ),
        (
            lease,
            vec!["metadata", "managedFields"],
            json!([{"fieldsV1": {"a".repeat(9000): {}}}]),
            false,
        ),
        (work, vec!["metadata", "finalizers"], own, true),
        (work, vec!["metadata", "finalizers"], json!([]), false),
        (work, vec!["spec"], json!({}), false),
        (work, vec!["status"], json!({"x": 1}), false),
    ];
    for (text, path, value, may) in cases {
        let object = with(&path, value.clone());
        assert_eq!(
            check(text, &object, &old).is_ok(),
            may,
            "{text} {path:?} {value}"
        );
    }
}

#[test]
fn events_are_about_own_works() {
    let text = "CREATE /events karmada-es-m1 -";
    let good = json!({
        "metadata": {"name": "e", "namespace": "karmada-es-m1"},
        "involvedObject": {"kind": "Work", "apiVersion": "work.karmada.io/v1alpha1",
                           "namespace": "karmada-es-m1", "name": "w"},
        "source": {"component": "towline-agent"},
        "message": "m", "reason": "R",
    });
    assert_eq!(check(text, &good, &Value::Null), Ok(()));
    // Karmada's agent speaks through its controllers.
    for source in ["execution-controller", "work-status-controller"] {
        let mut event = good.clone();
        event["source"]["component"] = source.into();
        event["reportingComponent"] = source.into();
        assert_eq!(check(text, &event, &Value::Null), Ok(()), "{source}");
        event["reportingComponent"] = "towline-agent".into();
        assert!(
            check(text, &event, &Value::Null).is_err(),
            "one of the two lies"
        );
        // It counts what repeats, and takes nobody else's Event over.
        let update = "UPDATE /events karmada-es-m1 e";
        let mut again = good.clone();
        again["count"] = 2.into();
        assert_eq!(check(update, &again, &good), Ok(()));
        let mut theirs = good.clone();
        theirs["source"]["component"] = "towline-hub".into();
        assert!(check(update, &again, &theirs).is_err());
    }
    for (pointer, value) in [
        ("/involvedObject/kind", json!("Pod")),
        ("/involvedObject/namespace", json!("default")),
        ("/source/component", json!("kubelet")),
        ("/message", json!("m".repeat(1025))),
        ("/metadata", json!({"labels": {}})),
    ] {
        let mut event = good.clone();
        *event.pointer_mut(pointer).expect("there") = value;
        assert!(check(text, &event, &Value::Null).is_err(), "{pointer}");
    }
}

#[test]
fn works_lie_in_execution_namespaces() {
    for at in [
        "CREATE work.karmada.io/works karmada-es-m1 w",
        "UPDATE work.karmada.io/works default w",
        "DELETE work.karmada.io/works default w",
        "CREATE apps/deployments default w",
    ] {
        assert_eq!(check_work_place(&target(at)), Ok(()), "{at}");
    }
    let refused = check_work_place(&target("CREATE work.karmada.io/works default w"));
    let refused = refused.expect_err("nobody carries it out");
    assert_eq!(refused.code, 403);
    assert!(
        refused.message.contains("karmada-es-<cluster>")
            && refused.message.contains("namespace default"),
        "{refused}"
    );
}

#[test]
fn requests_have_one_form() {
    let good = json!({
        "metadata": {"name": format!("towline-{}", "a".repeat(32)),
                     "annotations": {"towline.dev/cluster-id": "x"}},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 600,
                 "request": "x"},
    });
    let text = "CREATE certificates.k8s.io/certificatesigningrequests - -";
    let asked = |request: &Value, caller: &Caller, in_force: bool| {
        check_object(caller, &target(text), Some(request), None, || in_force)
    };
    for caller in [agent("m1"), token()] {
        assert_eq!(asked(&good, &caller, true), Ok(()));
        for (pointer, value) in [
            ("/metadata/name", json!("towline-a")),
            ("/metadata/annotations", json!({"a": "b"})),
            ("/spec/expirationSeconds", json!(599)),
            ("/spec/signerName", json!("x/y")),
            ("/spec/request", json!("x".repeat(6000))),
        ] {
            let mut request = good.clone();
            *request.pointer_mut(pointer).expect("there") = value;
            assert!(asked(&request, &caller, true).is_err(), "{pointer}");
        }
    }
    assert!(asked(&good, &agent("m1"), false).is_err());
    assert!(asked(&good, &token(), false).is_ok());
}

#[test]
fn a_ready_cluster_is_not_deleted_by_slip() {
    let at = target("DELETE cluster.karmada.io/clusters - m1");
    let mut cluster = json!({
        "metadata": {"name": "m1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let refused = check_cluster_deletion(&at, &cluster).expect_err("Ready");
    assert!(refused.message.contains("Cluster m1 is Ready"), "{refused}");
    cluster["metadata"]["annotations"] = json!({UNREGISTER: Mode::Force.as_str()});
    assert_eq!(check_cluster_deletion(&at, &cluster), Ok(()));
    let unready = json!({"metadata": {"name": "m1"}});
    assert_eq!(check_cluster_deletion(&at, &unready), Ok(()));
}

#[test]
fn a_namespace_of_the_hub_is_not_deleted_by_slip() {
    let namespace = |name: &str, owner: &str, said: &str| {
        json!({"metadata": {"name": name, "annotations": {UNREGISTER: said}, "ownerReferences": [
            {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": owner, "name": "m2"}]}})
    };
    let at = target("DELETE /namespaces - x");
    let cases = [
        (
            namespace("karmada-es-m2", "Cluster", ""),
            Some("towline unregister m2`"),
        ),
        (namespace("karmada-es-m2", "Cluster", "force"), None),
        (
            namespace("karmada-es-m2", "Cluster", "keep-workloads"),
            Some("m2"),
        ),
        (namespace("karmada-es-m2", "Other", ""), None),
        (
            namespace("karmada-cluster", "Other", ""),
            Some("karmada-cluster"),
        ),
        (
            namespace("karmada-system", "Other", ""),
            Some("annotate namespace karmada-system"),
        ),
        (namespace("karmada-system", "Other", "force"), None),
        (namespace("team", "Cluster", ""), None),
    ];
    for (object, refused) in cases {
        let answer = check_namespace_deletion(&at, &object);
        match refused {
            None => assert_eq!(answer, Ok(()), "{object}"),
            Some(text) => {
                let message = answer.expect_err("refused").message;
                assert!(
                    message.contains(text) && message.contains("'towline-namespaces'"),
                    "{message}"
                );
            }
        }
    }
}

#[test]
fn kinds_of_the_hub_do_not_go_by_slip() {
    let at = Target {
        operation: "DELETE",
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        subresource: "",
        namespace: "",
        name: "works.work.karmada.io",
    };
    let definition = |managed_by: &str, told: &str| {
        json!({"metadata": {"name": "works.work.karmada.io", "labels": {MANAGED_BY: managed_by},
            "annotations": {UNREGISTER: told}}})
    };
    let refused = check_definition_deletion(&at, &definition("towline-init", ""));
    let message = refused.expect_err("refused").message;
    let way = "kubectl annotate crd works.work.karmada.io towline.dev/unregister=force";
    assert!(
        message.contains("'towline-definitions'") && message.ends_with(way),
        "{message}"
    );
    let update = Target {
        operation: "UPDATE",
        ..at
    };
    for (target, definition) in [
        (at, definition("towline-init", "force")),
        (at, definition("helm", "")),
        (at, json!({"metadata": {"name": "works.work.karmada.io"}})),
        (update, definition("towline-init", "")),
    ] {
        assert_eq!(check_definition_deletion(&target, &definition), Ok(()));
    }
}
