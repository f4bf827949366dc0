use super::{Binding, Dependent, Policy, Template};
use common::api::binding::ResourceBindingSpec;
use common::api::policy::Placement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

fn metadata(of: Value) -> ObjectMeta {
    serde_json::from_value(of).expect("metadata")
}

fn read(object: &Value) -> Binding {
    let spec: ResourceBindingSpec = serde_json::from_value(object["spec"].clone()).expect("a spec");
    Binding::of(&metadata(object["metadata"].clone()), &spec)
}

#[test]
fn a_binding_that_was_created_is_read_as_it_was_written() {
    for namespace in [Some("default"), None] {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx", "uid": "u"});
        let mut controller = owner.clone();
        controller["uid"] = json!("v");
        controller["controller"] = json!(true);
        let binding = read(&json!({
            "metadata": {"name": "nginx-deployment", "namespace": namespace, "labels": {"a": "b"},
                "annotations": {"c": "d"}, "finalizers": ["x"], "ownerReferences": [owner, controller]},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx"},
                "clusters": [{"name": "m1", "replicas": 2}], "placement": {}},
        }));
        assert_eq!(binding.owner.as_ref().map(|it| it.uid.as_str()), Some("v"));
        let object = binding.object().expect("encodes");
        assert_eq!(read(&object), binding);
        let kind = namespace.map_or("ClusterResourceBinding", |_| "ResourceBinding");
        assert_eq!(object["kind"], kind);
    }
}

#[test]
fn a_patch_of_a_binding_says_what_differs_and_from_which_version() {
    let seen = read(&json!({
        "metadata": {"name": "a", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"},
            "placement": {"clusterAffinity": {"clusterNames": ["m1"]}}, "replicas": 2},
    }));
    assert_eq!(seen.patch(&seen).expect("encodes"), None);
    let mut wanted = seen.clone();
    wanted.labels.remove("a");
    let placement: Placement = serde_json::from_value(json!({})).expect("a placement");
    wanted.spec.placement = Some(placement.into());
    wanted.spec.replicas = None;
    let patch = wanted.patch(&seen).expect("encodes").expect("a patch");
    let want = json!({
        "metadata": {"labels": {"a": null}, "resourceVersion": "7"},
        "spec": {"placement": {"clusterAffinity": null}, "replicas": null},
    });
    assert_eq!(patch, want);
}

#[test]
fn a_template_is_read_from_its_object() {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3", "labels": {"x": "y", "z": 1},
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let template = Template::of(&object).expect("a template");
    assert_eq!(template.secret_type.as_deref(), Some("Opaque"));
    assert_eq!((template.labels.len(), template.deleting), (1, true));
    assert_eq!(
        (template.group(), template.binding_name().as_str()),
        ("", "a-secret")
    );
    for bad in [
        json!({}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}}),
        json!({"apiVersion": "v1", "metadata": {"name": "a"}}),
        json!([]),
    ] {
        assert_eq!(Template::of(&bad), None, "{bad}");
    }
}

#[test]
fn a_policy_has_the_id_of_its_own_kind() {
    let labels = json!({"propagationpolicy.karmada.io/permanent-id": "p",
        "clusterpropagationpolicy.karmada.io/permanent-id": "c"});
    let spec = serde_json::from_value(json!({"resourceSelectors": []})).expect("a spec");
    let read = |namespace: Option<&str>| {
        let of = json!({"name": "a", "namespace": namespace, "labels": labels});
        Policy::of(&metadata(of), &spec)
    };
    let (own, wide) = (read(Some("n")), read(None));
    assert_eq!(
        (own.id.as_str(), own.name.to_string().as_str()),
        ("p", "n/a")
    );
    assert_eq!(
        (wide.id.as_str(), wide.name.to_string().as_str()),
        ("c", "a")
    );
    let bare = Policy::of(&metadata(json!({"name": "a"})), &spec);
    assert_eq!(bare.id, "");
}

#[test]
fn who_takes_others_along() {
    let mut binding = Binding {
        namespace: Some("n".into()),
        name: "a".into(),
        ..Binding::default()
    };
    assert_eq!(Dependent::of(&binding), None);
    binding.spec.propagate_deps = Some(true);
    assert_eq!(Dependent::of(&binding), None, "without an id");
    let label = binding.id_label().to_owned();
    binding.labels.insert(label, "id".into());
    assert!(Dependent::of(&binding).is_some());
    binding.spec = serde_json::from_value(json!({
        "resource": {"apiVersion": "v1", "kind": "Pod", "name": "a"}, "propagateDeps": true,
        "clusters": [{"name": "m1"}, {"name": "m2"}],
        "gracefulEvictionTasks": [
            {"fromCluster": "m2", "reason": "R", "producer": "P"},
            {"fromCluster": "m3", "reason": "R", "producer": "P", "replicas": 2},
            {"fromCluster": "m4", "reason": "R", "producer": "P", "purgeMode": "Directly"},
        ],
    }))
    .expect("a spec");
    let clusters = Dependent::of(&binding).expect("one").clusters;
    let names: Vec<&str> = clusters.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(
        names,
        ["m1", "m2", "m3"],
        "what it has not left keeps what it refers to"
    );
    binding.deleting = true;
    assert_eq!(Dependent::of(&binding), None);
}
