use crate::apiserver::scheme::Scheme;
use serde_json::{Value, json};

fn made(group: &str, plural: &str, mut object: Value) -> Value {
    let resource = Scheme::new().resource(group, "v1", plural).expect(plural);
    resource.decode(&mut object).expect("reads");
    resource.apply_defaults(&mut object);
    object
}

#[test]
fn a_deployment_is_filled_to_the_last_container() {
    let object = made(
        "apps",
        "deployments",
        json!({"metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
            {"name": "c", "image": "nginx", "ports": [{"containerPort": 80}],
             "readinessProbe": {"httpGet": {"port": 80}}}]}}}}),
    );
    assert_eq!(
        object,
        json!({"metadata": {"name": "a"}, "status": {}, "spec": {
            "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"a": "b"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
                "containers": [{"name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "readinessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                        "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}]}}}})
    );
}

#[test]
fn other_kinds_are_filled_as_their_code_does() {
    let cases = [
        (
            "",
            "services",
            json!({"spec": {"ports": [{"port": 80}]}}),
            "/spec",
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                         "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]}),
        ),
        ("", "secrets", json!({}), "/type", json!("Opaque")),
        (
            "",
            "namespaces",
            json!({"metadata": {"name": "n"}}),
            "",
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}, "spec": {},
                "status": {"phase": "Active"}}),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"subjects": [{"kind": "User", "name": "u"}], "roleRef": {"kind": "Role", "name": "r"}}),
            "/subjects/0",
            json!({"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}),
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            json!({"spec": {"podSelector": {}, "egress": [{}]}}),
            "/spec/policyTypes",
            json!(["Ingress", "Egress"]),
        ),
        (
            "",
            "limitranges",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
            "/spec/limits/0",
            json!({"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}),
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"template": {}}}),
            "/spec/completions",
            json!(1),
        ),
        (
            "apps",
            "statefulsets",
            json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {}}]}}),
            "/spec/volumeClaimTemplates/0",
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "v"},
             "status": {"phase": "Pending"},
             "spec": {"volumeMode": "Filesystem", "resources": {}}}),
        ),
        (
            "apps",
            "statefulsets",
            json!({"spec": {}}),
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ),
    ];
    for (group, plural, object, path, want) in cases {
        let made = made(group, plural, object);
        assert_eq!(made.pointer(path), Some(&want), "{plural}");
    }
}
