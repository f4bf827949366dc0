use crate::apiserver::scheme::Scheme;
use serde_json::{Value, json};

fn told(path: &str, mut object: Value, old: Option<Value>) -> Vec<String> {
    let (group, plural) = path.rsplit_once('/').unwrap_or(("", path));
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    let resource = Scheme::new().resource(group, version, plural).expect(path);
    let ready = |object: &mut Value| {
        resource.decode(object).expect("reads");
        resource.apply_defaults(object);
    };
    ready(&mut object);
    let old = old.map(|mut old| {
        ready(&mut old);
        old
    });
    let errors = resource.validate(&object, old.as_ref()).errors;
    errors.iter().map(ToString::to_string).collect()
}

/// A pod's template with one container, changed at one place.
fn with_container(key: &str, value: Value) -> Value {
    let mut container = json!({"name": "c", "image": "x"});
    container[key] = value;
    json!({"selector": {"matchLabels": {"a": "b"}},
           "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}})
}

#[test]
fn workloads_that_are_fine_are_taken() {
    let spec = with_container("ports", json!([{"containerPort": 80, "name": "http"}]));
    for kind in [
        "apps/deployments",
        "apps/daemonsets",
        "apps/replicasets",
        "apps/statefulsets",
    ] {
        assert_eq!(
            told(kind, json!({"spec": spec}), None),
            Vec::<String>::new(),
            "{kind}"
        );
    }
}

#[test]
fn mistakes_in_containers_are_told_at_their_place() {
    let at = "spec.template.spec.containers[0]";
    let cases = [
        ("image", json!(""), "image: Required value"),
        (
            "imagePullPolicy",
            json!("Foo"),
            "imagePullPolicy: Unsupported value: \"Foo\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            "ports",
            json!([{"containerPort": 70000}]),
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            "ports",
            json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
            "ports[1].name: Duplicate value: \"a\"",
        ),
        ("env", json!([{}]), "env[0].name: Required value"),
        (
            "env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "foo"}}}]),
            "env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"foo\": error converting fieldPath: field label not supported: foo",
        ),
        (
            "volumeMounts",
            json!([{"name": "v", "mountPath": "/x"}]),
            "volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            "resources",
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            "livenessProbe",
            json!({}),
            "livenessProbe: Required value: must specify a handler type",
        ),
        (
            "livenessProbe",
            json!({"tcpSocket": {"port": 80}, "successThreshold": 2}),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
    ];
    for (key, value, want) in cases {
        let found = told(
            "apps/deployments",
            json!({"spec": with_container(key, value)}),
            None,
        );
        assert_eq!(found, [format!("{at}.{want}")], "{key}");
    }
}

#[test]
fn other_kinds_tell_what_the_real_server_tells() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}});
    let cases = [
        (
            "apps/deployments",
            json!({"spec": {}}),
            vec![
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
                "spec.template.spec.containers: Required value",
            ],
        ),
        (
            "services",
            json!({"spec": {}}),
            vec!["spec.ports: Required value"],
        ),
        (
            "services",
            json!({"spec": {"type": "Foo", "ports": [{"port": 80}]}}),
            vec![
                "spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}}),
            vec![
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":1,\"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
        (
            "persistentvolumeclaims",
            claim,
            vec!["spec.resources[storage]: Invalid value: \"0\": must be greater than zero"],
        ),
        (
            "batch/cronjobs",
            json!({"spec": {"schedule": "x", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}}}),
            vec!["spec.schedule: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]"],
        ),
        (
            "networking.k8s.io/ingresses",
            json!({"spec": {"rules": [{"host": "1.2.3.4"}]}}),
            vec![
                "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
            ],
        ),
        (
            "autoscaling/horizontalpodautoscalers",
            json!({"spec": {"scaleTargetRef": {"kind": "D", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 0}}),
            vec![
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            ],
        ),
        (
            "policy/poddisruptionbudgets",
            json!({"spec": {"minAvailable": "101%"}}),
            vec!["spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"],
        ),
        (
            "scheduling.k8s.io/priorityclasses",
            json!({"value": 2_000_000_000}),
            vec![
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
            ],
        ),
    ];
    for (path, object, want) in cases {
        assert_eq!(told(path, object, None), want, "{path}");
    }
}

#[test]
fn what_may_not_change_is_told() {
    let spec = with_container("image", json!("x"));
    let mut other = spec.clone();
    other["selector"] = json!({"matchLabels": {"a": "b", "c": "d"}});
    other["template"]["metadata"]["labels"] = json!({"a": "b", "c": "d"});
    let found = told(
        "apps/deployments",
        json!({"spec": other}),
        Some(json!({"spec": spec})),
    );
    let want = "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"c\":\"d\"}}: field is immutable";
    assert_eq!(found, [want]);
    let mut set = spec.clone();
    set["podManagementPolicy"] = json!("Parallel");
    let found = told(
        "apps/statefulsets",
        json!({"spec": set}),
        Some(json!({"spec": spec})),
    );
    assert!(
        found.len() == 1 && found[0].starts_with("spec: Forbidden: updates to statefulset spec"),
        "{found:?}"
    );
}

fn crd(a: Value) -> Value {
    json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"a": a}}}}}}]}})
}

#[test]
fn crds_have_structural_schemas() {
    let kind = "apiextensions.k8s.io/customresourcedefinitions";
    let at = "spec.validation.openAPIV3Schema.properties[spec].properties[a]";
    let cases = [
        (json!({"type": "string"}), None),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            None,
        ),
        (
            json!({}),
            Some("type: Required value: must not be empty for specified object fields"),
        ),
        (
            json!({"type": "array"}),
            Some("items: Required value: must be specified"),
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            Some("anyOf[0].type: Forbidden: must be empty to be structural"),
        ),
        (
            json!({"type": "string", "default": 1}),
            Some(
                "default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ),
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "string"}}, "default": {"y": 1}}),
            Some("default: Invalid value: {\"y\":1}: must not have unknown fields"),
        ),
        (
            json!({"$ref": "#/x"}),
            Some("$ref: Forbidden: $ref is not supported"),
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
            Some(
                "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
        ),
        (
            json!({"type": "string", "pattern": "("}),
            Some(
                "pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
            ),
        ),
    ];
    for (a, want) in cases {
        let want: Vec<String> = want.iter().map(|want| format!("{at}.{want}")).collect();
        assert_eq!(told(kind, crd(a.clone()), None), want, "{a}");
    }
    let mut none = crd(json!({"type": "string"}));
    none["spec"]["versions"][0]["storage"] = json!(false);
    let found = told(kind, none, None);
    assert!(
        found
            .iter()
            .any(|one| one.ends_with("must have exactly one version marked as storage version")),
        "{found:?}"
    );
    let mut webhook = crd(json!({"type": "string"}));
    webhook["spec"]["conversion"] = json!({"strategy": "Webhook"});
    assert!(told(kind, webhook, None)[0].starts_with("spec.conversion.strategy: Forbidden"));
}
