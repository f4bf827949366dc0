use super::*;
use serde_json::json;

fn crd(established: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}}}}});
    json!({"metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema,
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size",
                                                          "statusReplicasPath": ".status.size"}},
                 "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema, "deprecated": true},
                {"name": "v1alpha1", "served": false, "storage": false, "schema": schema},
            ]},
        "status": {"conditions": [{"type": "Established", "status": established}],
                   "acceptedNames": {"plural": "things", "kind": "Thing", "shortNames": ["th"]}}})
}

#[test]
fn built_in_kinds_are_found_by_either_name() {
    let scheme = Scheme::new();
    let deployments = scheme
        .resource("apps", "v1", "deployments")
        .expect("served");
    assert_eq!(&*deployments.kind, "Deployment");
    assert!(deployments.namespaced && deployments.has_status() && deployments.strategic);
    assert!(scheme.snapshot().kind("", "v1", "Secret").is_some());
    assert!(
        scheme
            .resource(
                "admissionregistration.k8s.io",
                "v1",
                "validatingwebhookconfigurations"
            )
            .is_none()
    );
}

#[test]
fn events_have_one_store() {
    let scheme = Scheme::new();
    let keys = [("", "v1"), ("events.k8s.io", "v1")].map(|(group, version)| {
        scheme
            .resource(group, version, "events")
            .map(|r| r.storage_key.to_string())
    });
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn crds_are_served_while_they_are_established() {
    let scheme = Scheme::new();
    scheme.set_crds([&crd("False")]);
    assert!(scheme.resource("example.com", "v1", "things").is_none());
    scheme.set_crds([&crd("True")]);
    let v1 = scheme
        .resource("example.com", "v1", "things")
        .expect("served");
    assert_eq!(
        (&*v1.list_kind, &*v1.singular, &*v1.storage_version),
        ("ThingList", "thing", "v1")
    );
    assert!(v1.is_custom() && v1.has_status() && v1.subresource("scale").is_some());
    let beta = scheme
        .resource("example.com", "v1beta1", "things")
        .expect("served");
    let warning = beta.custom().and_then(|custom| custom.deprecation.clone());
    assert_eq!(
        warning.as_deref(),
        Some("example.com/v1beta1 Thing is deprecated; use example.com/v1 Thing")
    );
    assert!(
        scheme
            .resource("example.com", "v1alpha1", "things")
            .is_none()
    );
    scheme.set_crds([]);
    assert!(scheme.resource("example.com", "v1", "things").is_none());
}

#[test]
fn custom_objects_are_decoded_defaulted_and_validated() {
    let scheme = Scheme::new();
    scheme.set_crds([&crd("True")]);
    let v1 = scheme
        .resource("example.com", "v1", "things")
        .expect("served");
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "a", "labels": null}, "spec": {"color": "red"}});
    assert_eq!(v1.decode(&mut object), Ok(vec!["spec.color".to_owned()]));
    v1.apply_defaults(&mut object);
    assert_eq!(object["spec"], json!({"size": 1}));
    assert!(v1.validate(&object, None).errors.is_empty());
    let mut bad = json!({"metadata": {"labels": {"a": 1}}});
    assert_eq!(
        v1.decode(&mut bad).map_err(|error| error.message),
        Err(
            "Thing in version \"v1\" cannot be handled as a Thing: json: cannot unmarshal number \
             into Go struct field ObjectMeta.labels of type string"
                .to_owned()
        )
    );
}

#[test]
fn versions_of_a_kind_are_rewritten_into_each_other() {
    let scheme = Scheme::new();
    let get = |group: &str, version: &str, plural: &str| {
        scheme.resource(group, version, plural).expect("served")
    };
    let (v2, v1) = (
        get("autoscaling", "v2", "horizontalpodautoscalers"),
        get("autoscaling", "v1", "horizontalpodautoscalers"),
    );
    let new = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "a"}, "spec": {"metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}}]},
        "status": {"currentMetrics": null, "desiredReplicas": 0}});
    let mut object = new.clone();
    v2.convert(&mut object, &v1);
    assert_eq!(
        object["spec"],
        json!({"targetCPUUtilizationPercentage": 50})
    );
    v1.convert(&mut object, &v2);
    assert_eq!(object, new);
    let (core, events) = (
        get("", "v1", "events"),
        get("events.k8s.io", "v1", "events"),
    );
    let old = json!({"apiVersion": "v1", "involvedObject": {"name": "a"}, "message": "m", "count": 1,
                     "reportingComponent": "", "reportingInstance": ""});
    let mut object = old.clone();
    core.convert(&mut object, &events);
    assert_eq!(
        object,
        json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "a"}, "note": "m",
                              "deprecatedCount": 1})
    );
    events.convert(&mut object, &core);
    assert_eq!(object, old);
}
