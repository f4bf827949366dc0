//! Other built-in kinds.

use super::{CSR, MERGE, Shape, patch, post, shape};
use crate::bodies::{garbage, list, map, object};
use serde_json::json;

pub(super) fn all() -> Vec<Shape> {
    let usages = |n: usize, word: &'static str| {
        object(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            "b",
            json!({"spec": {"request": garbage(10),
            "signerName": "a.b/c", "usages": list(n, |_| json!(word))}}),
        )
    };
    vec![
        shape(
            "usages that there are not",
            400_000,
            422,
            post(CSR, move |n| usages(n, "a")),
        ),
        shape(
            "one usage many times",
            150_000,
            422,
            post(CSR, move |n| usages(n, "client auth")),
        ),
        shape(
            "a long request",
            500_000,
            422,
            post(CSR, |n| {
                object(
                    "certificates.k8s.io/v1",
                    "CertificateSigningRequest",
                    "b",
                    json!({"spec":
                {"request": garbage(n), "signerName": "a.b/c", "usages": ["client auth"]}}),
                )
            }),
        ),
        shape(
            "rules of a role",
            15_000,
            201,
            post("/apis/rbac.authorization.k8s.io/v1/clusterroles", |n| {
                let rule = |at: usize| json!({"apiGroups": [""], "resources": [format!("r{at}")], "verbs": ["get"]});
                object(
                    "rbac.authorization.k8s.io/v1",
                    "ClusterRole",
                    "b",
                    json!({"rules": list(n, rule)}),
                )
            }),
        ),
        shape(
            "rules that are none",
            100_000,
            422,
            post("/apis/rbac.authorization.k8s.io/v1/clusterroles", |n| {
                object(
                    "rbac.authorization.k8s.io/v1",
                    "ClusterRole",
                    "b",
                    json!({"rules": list(n, |_| json!({}))}),
                )
            }),
        ),
        shape(
            "subjects of a binding",
            15_000,
            201,
            post(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                |n| {
                    let subject = |at: usize| json!({"kind": "User", "name": format!("u{at}"), "apiGroup": "rbac.authorization.k8s.io"});
                    object(
                        "rbac.authorization.k8s.io/v1",
                        "ClusterRoleBinding",
                        "b",
                        json!({"subjects": list(n, subject),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}),
                    )
                },
            ),
        ),
        shape(
            "ports of a service",
            15_000,
            None,
            post("/api/v1/namespaces/default/services", |n| {
                let port = |at: usize| json!({"name": format!("p{at}"), "port": at % 60_000 + 1});
                object(
                    "v1",
                    "Service",
                    "b",
                    json!({"spec": {"ports": list(n, port)}}),
                )
            }),
        ),
        shape(
            "families of a service",
            100_000,
            422,
            post("/api/v1/namespaces/default/services", |n| {
                object(
                    "v1",
                    "Service",
                    "b",
                    json!({"spec": {"ports": [{"port": 80}], "ipFamilies": list(n, |_| json!("IPv4"))}}),
                )
            }),
        ),
        shape(
            "addresses of a service",
            50_000,
            None,
            post("/api/v1/namespaces/default/services", |n| {
                object(
                    "v1",
                    "Service",
                    "b",
                    json!({"spec": {"ports": [{"port": 80}], "clusterIP": "x",
                "clusterIPs": list(n, |at| json!(format!("x{at}")))}}),
                )
            }),
        ),
        shape(
            "scopes of a quota",
            10_000,
            422,
            post("/api/v1/namespaces/default/resourcequotas", |n| {
                object(
                    "v1",
                    "ResourceQuota",
                    "b",
                    json!({"spec": {"scopes": list(n, |_| json!("x")),
                "hard": map(n, |_| json!("1"))}}),
                )
            }),
        ),
        shape(
            "ranges of a limit",
            15_000,
            None,
            post("/api/v1/namespaces/default/limitranges", |n| {
                object(
                    "v1",
                    "LimitRange",
                    "b",
                    json!({"spec": {"limits": list(n, |_| json!({"type": "Container"}))}}),
                )
            }),
        ),
        shape(
            "addresses of a node",
            20_000,
            None,
            patch(
                "/api/v1/nodes/a/status",
                MERGE,
                |n| json!({"status": {"addresses": list(n, |at| json!({"type": "InternalIP", "address": format!("a{at}")}))}}),
            ),
        ),
        shape(
            "taints of a node",
            15_000,
            None,
            patch(
                "/api/v1/nodes/a",
                MERGE,
                |n| json!({"spec": {"taints": list(n, |at| json!({"key": format!("k{at}"), "effect": "NoSchedule"}))}}),
            ),
        ),
        shape(
            "modes of a volume",
            50_000,
            None,
            post("/api/v1/namespaces/default/persistentvolumeclaims", |n| {
                object(
                    "v1",
                    "PersistentVolumeClaim",
                    "b",
                    json!({"spec": {"accessModes": list(n, |_| json!("ReadWriteOnce")),
                "resources": {"requests": {"storage": "1Gi"}}}}),
                )
            }),
        ),
        shape(
            "topologies of a class",
            50_000,
            None,
            post("/apis/storage.k8s.io/v1/storageclasses", |n| {
                object(
                    "storage.k8s.io/v1",
                    "StorageClass",
                    "b",
                    json!({"provisioner": "a.b/c", "allowedTopologies":
                [{"matchLabelExpressions": [{"key": "a", "values": list(n, |at| json!(format!("v{at}")))}]}]}),
                )
            }),
        ),
        shape(
            "endpoints of a slice",
            10_000,
            None,
            post(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                |n| {
                    object(
                        "discovery.k8s.io/v1",
                        "EndpointSlice",
                        "b",
                        json!({"addressType": "IPv4",
                "endpoints": list(n, |_| json!({"addresses": ["10.0.0.1"]}))}),
                    )
                },
            ),
        ),
        shape(
            "subsets of endpoints",
            10_000,
            None,
            post("/api/v1/namespaces/default/endpoints", |n| {
                object(
                    "v1",
                    "Endpoints",
                    "b",
                    json!({"subsets": list(n, |_| json!({"addresses": [{"ip": "10.0.0.1"}],
                "ports": [{"port": 80}]}))}),
                )
            }),
        ),
        shape(
            "rules of an ingress",
            8_000,
            None,
            post(
                "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
                |n| {
                    let rule = |at: usize| {
                        json!({"host": format!("h{at}.a.b"), "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}})
                    };
                    object(
                        "networking.k8s.io/v1",
                        "Ingress",
                        "b",
                        json!({"spec": {"rules": list(n, rule)}}),
                    )
                },
            ),
        ),
        shape(
            "rules of a policy",
            15_000,
            None,
            post(
                "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
                |n| {
                    object(
                        "networking.k8s.io/v1",
                        "NetworkPolicy",
                        "b",
                        json!({"spec": {"podSelector": {},
                "ingress": list(n, |at| json!({"ports": [{"port": at % 60_000 + 1}]}))}}),
                    )
                },
            ),
        ),
        shape(
            "metrics of an autoscaler",
            10_000,
            None,
            post(
                "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
                |n| {
                    let metric = |_| json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
                    object(
                        "autoscaling/v2",
                        "HorizontalPodAutoscaler",
                        "b",
                        json!({"spec": {"maxReplicas": 2,
                "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}, "metrics": list(n, metric)}}),
                    )
                },
            ),
        ),
        shape(
            "a schedule",
            500_000,
            None,
            post("/apis/batch/v1/namespaces/default/cronjobs", |n| {
                object(
                    "batch/v1",
                    "CronJob",
                    "b",
                    json!({"spec": {"schedule": format!("{} * * * *", vec!["1"; n].join(",")),
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}}}}),
                )
            }),
        ),
        shape(
            "data of a secret",
            60_000,
            201,
            post("/api/v1/namespaces/default/secrets", |n| {
                object(
                    "v1",
                    "Secret",
                    "b",
                    json!({"stringData": map(n, |_| json!("v"))}),
                )
            }),
        ),
        shape(
            "a long name",
            1_000_000,
            422,
            post("/api/v1/namespaces/default/secrets", |n| {
                object("v1", "Secret", &"!".repeat(n), json!({}))
            }),
        ),
        shape(
            "a long quantity",
            400_000,
            None,
            post("/api/v1/namespaces/default/resourcequotas", |n| {
                object(
                    "v1",
                    "ResourceQuota",
                    "b",
                    json!({"spec": {"hard": {"cpu": "9".repeat(n)}}}),
                )
            }),
        ),
        shape(
            "a long duration",
            400_000,
            None,
            post(
                "/apis/coordination.k8s.io/v1/namespaces/default/leases",
                |n| {
                    object(
                        "coordination.k8s.io/v1",
                        "Lease",
                        "b",
                        json!({"spec": {"renewTime": "9".repeat(n)}}),
                    )
                },
            ),
        ),
    ]
}
