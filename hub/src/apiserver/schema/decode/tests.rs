use crate::apiserver::schema::Schema;
use crate::apiserver::schema::builtin::schemas;
use serde_json::{Value, json};

fn schema(kind: &str) -> Schema {
    let kinds = &schemas().kinds;
    let found = kinds.iter().find(|known| known.kind == kind).expect(kind);
    Schema::built_in(found.definition)
}

fn read(kind: &str, mut object: Value) -> Result<Value, String> {
    let schema = schema(kind);
    schema.prune(&mut object);
    schema.coerce(&mut object).map(|()| object)
}

#[test]
fn types_that_do_not_fit_are_refused_in_gos_words() {
    let cases = [
        (
            "Deployment",
            json!({"spec": {"replicas": "x"}}),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            json!({"spec": "x"}),
            "json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            "Deployment",
            json!({"spec": {"replicas": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": [{"name": 1}]}}}}),
            "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name of type string",
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            "ConfigMap",
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "ConfigMap",
            json!([]),
            "json: cannot unmarshal array into Go value of type v1.ConfigMap",
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "Lease",
            json!({"spec": {"renewTime": "now"}}),
            "parsing time \"now\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"now\" as \"2006\"",
        ),
        (
            "Secret",
            json!({"data": {"a": "???"}}),
            "illegal base64 data at input byte 0",
        ),
        (
            "Service",
            json!({"spec": {"ports": [{"port": "x", "targetPort": true}]}}),
            "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
    ];
    for (kind, object, text) in cases {
        assert_eq!(read(kind, object.clone()), Err(text.to_owned()), "{object}");
    }
}

#[test]
fn objects_take_the_form_in_which_go_writes_them() {
    let cases = [
        (
            "ConfigMap",
            json!({"metadata": {"name": "a", "creationTimestamp": null}, "data": {}}),
            json!({"metadata": {"name": "a"}}),
        ),
        (
            "Deployment",
            json!({"metadata": {"name": "a"}, "spec": {"paused": false}}),
            json!({"metadata": {"name": "a"}, "status": {},
                "spec": {"selector": null, "strategy": {},
                         "template": {"metadata": {}, "spec": {"containers": null}}}}),
        ),
        (
            "Role",
            json!({"metadata": {"name": "a"}, "rules": []}),
            json!({"metadata": {"name": "a"}, "rules": []}),
        ),
        (
            "Lease",
            json!({"spec": {"renewTime": "2024-01-01T01:00:00.500000+01:00"}}),
            json!({"metadata": {}, "spec": {"renewTime": "2024-01-01T00:00:00.500000Z"}}),
        ),
        (
            "ResourceQuota",
            json!({"spec": {"hard": {"cpu": "1000m", "memory": 1024, "pods": null}}}),
            json!({"metadata": {}, "spec": {"hard": {"cpu": "1", "memory": "1024", "pods": "0"}}, "status": {}}),
        ),
    ];
    for (kind, object, want) in cases {
        assert_eq!(read(kind, object), Ok(want), "{kind}");
    }
}

#[test]
fn an_empty_list_is_none_once_it_was_stored() {
    let rule = json!({"verbs": [], "resources": []});
    let role = json!({"metadata": {"name": "a", "labels": {}}, "rules": [rule]});
    let mut role = read("Role", role).expect("a role");
    assert_eq!(role["rules"], json!([{"verbs": []}]));
    schema("Role").settle(&mut role);
    assert_eq!(role["rules"], json!([{"verbs": null}]));
    role["rules"] = json!([]);
    schema("Role").settle(&mut role);
    assert_eq!(role, json!({"metadata": {"name": "a"}, "rules": null}));
}
