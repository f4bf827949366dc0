use super::*;
use crate::apiserver::scheme::Scheme;

fn at_noon() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2024-01-01T12:00:00Z")
        .expect("a time")
        .to_utc()
}

fn shown(group: &str, version: &str, plural: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = json!("a");
    object["metadata"]["creationTimestamp"] = json!("2024-01-01T11:00:00Z");
    let resource = Scheme::new()
        .resource(group, version, plural)
        .expect(plural);
    json!(cells(&resource, &object, at_noon()))
}

#[test]
fn rows_say_what_kubectl_shows() {
    let template =
        json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
    let cases = [
        (
            "",
            "configmaps",
            json!({"data": {"x": "", "y": ""}, "binaryData": {"z": ""}}),
            json!(["a", 3, "60m"]),
        ),
        (
            "",
            "secrets",
            json!({"type": "Opaque", "data": {"x": ""}}),
            json!(["a", "Opaque", 1, "60m"]),
        ),
        (
            "",
            "namespaces",
            json!({"status": {"phase": "Active"}}),
            json!(["a", "Active", "60m"]),
        ),
        ("", "serviceaccounts", json!({}), json!(["a", "60m"])),
        (
            "apps",
            "deployments",
            json!({"spec": {"replicas": 2, "template": template, "selector": {"matchLabels": {"b": "2", "a": "1"},
                "matchExpressions": [{"key": "ab", "operator": "In", "values": ["y", "x"]}]}},
                "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
            json!(["a", "1/2", 2, 0, "60m", "c,d", "i,j", "a=1,ab in (x,y),b=2"]),
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "selector": {"x": "y"},
                "ports": [{"port": 80, "nodePort": 30000, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            json!([
                "a",
                "LoadBalancer",
                "10.0.0.1",
                "<pending>",
                "80:30000/TCP,53/UDP",
                "60m",
                "x=y"
            ]),
        ),
        (
            "batch",
            "jobs",
            json!({"spec": {"completions": 1, "template": template},
                "status": {"startTime": "2024-01-01T11:00:00Z", "completionTime": "2024-01-01T11:00:42Z", "succeeded": 1,
                           "conditions": [{"type": "Complete", "status": "True"}]}}),
            json!(["a", "Complete", "1/1", "42s", "60m", "c,d", "i,j", "<none>"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "rolebindings",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"},
                {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
            json!(["a", "Role/r", "60m", "u", "", "n/s"]),
        ),
        (
            "rbac.authorization.k8s.io",
            "roles",
            json!({}),
            json!(["a", "2024-01-01T11:00:00Z"]),
        ),
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
                "status": {"certificate": "x", "conditions": [{"type": "Approved"}]}}),
            json!(["a", "60m", "s", "u", "60m", "Approved,Issued"]),
        ),
        (
            "networking.k8s.io",
            "ingresses",
            json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}], "tls": [{}]}}),
            json!(["a", "<none>", "a,b,c + 1 more...", "", "80, 443", "60m"]),
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({"spec": {"volumeName": "v", "storageClassName": "s"}, "status": {"phase": "Bound",
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}),
            json!([
                "a", "Bound", "v", "1Gi", "RWO,RWX", "s", "<unset>", "60m", "<unset>"
            ]),
        ),
        (
            "",
            "pods",
            json!({"spec": {"containers": [{}, {}], "nodeName": "n"}, "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "state": {"running": {}}, "restartCount": 1,
                 "lastState": {"terminated": {"finishedAt": "2024-01-01T11:59:00Z"}}},
                {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            json!([
                "a",
                "1/2",
                "CrashLoopBackOff",
                "1 (60s ago)",
                "60m",
                "<none>",
                "n",
                "<none>",
                "<none>"
            ]),
        ),
    ];
    for (group, plural, object, want) in cases {
        assert_eq!(shown(group, "v1", plural, object), want, "{plural}");
    }
}

#[test]
fn every_built_in_kind_has_a_cell_for_each_column() {
    for resource in Scheme::new().all() {
        if resource.columns.is_empty() {
            continue;
        }
        let empty = cells(&resource, &json!({"metadata": {"name": "a"}}), at_noon());
        assert_eq!(
            empty.len(),
            resource.columns.len(),
            "{} {}",
            resource.group,
            resource.kind
        );
    }
}

#[test]
fn a_cluster_is_shown_in_words_also_before_it_was_heard_of() {
    use kube::CustomResourceExt as _;
    let scheme = Scheme::new();
    let crd = common::api::cluster::Cluster::crd();
    let mut crd = serde_json::to_value(crd).expect("JSON");
    crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
    scheme.set_crds([&crd]);
    let resource = scheme.resource("cluster.karmada.io", "v1alpha1", "clusters");
    let resource = resource.expect("served");
    let shown = |object: Value| json!(cells(&resource, &object, at_noon()));
    let made = "2024-01-01T11:00:00Z";
    let metadata = json!({"name": "m1", "creationTimestamp": made});
    let new =
        json!({"metadata": metadata, "spec": {"syncMode": "Pull", "zones": [], "region": ""}});
    assert_eq!(
        shown(new),
        json!([
            "m1", null, "Pull", "Unknown", "60m", "<none>", "<none>", "<none>", null, "<none>"
        ])
    );
    let known = json!({
        "metadata": metadata,
        "spec": {"syncMode": "Pull", "zones": ["z1", "z2"], "region": "r", "provider": "p"},
        "status": {"kubernetesVersion": "v1.36.3", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert_eq!(
        shown(known),
        json!([
            "m1", "v1.36.3", "Pull", "True", "60m", "z1,z2", "r", "p", null, "<none>"
        ])
    );
}

#[test]
fn custom_columns_show_what_their_paths_lead_to() {
    let scheme = Scheme::new();
    let column =
        |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    scheme.set_crds([&json!({"metadata": {"name": "things.x"}, "spec": {"group": "x", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}, "additionalPrinterColumns": [
            column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
            column("Size", "integer", ".spec.size"), column("Names", "string", ".spec.names"),
            column("When", "date", ".spec.when"), column("None", "string", ".spec.none")]}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}})]);
    let resource = scheme.resource("x", "v1", "things").expect("served");
    let object = json!({"metadata": {"name": "a"}, "spec": {"size": 3, "names": ["x", "y"], "when": "2024-01-01T11:59:00Z"},
                        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let table = table(
        &resource,
        "v1",
        &[object],
        json!({}),
        IncludeObject::None,
        true,
        at_noon(),
    );
    assert_eq!(
        table["rows"],
        json!([{"cells": ["a", "True", 3, "[\"x\",\"y\"]", "60s", null], "object": null}])
    );
    assert_eq!(table["columnDefinitions"][1]["name"], "Ready");
}
