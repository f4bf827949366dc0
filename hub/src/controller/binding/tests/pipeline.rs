//! What one member gets, step by step, and what holds for every Work.

use super::super::overrides::Overrides;
use super::super::overrides::cluster::ClusterFacts;
use super::super::render::{Binding, RenderError, Renderer};
use super::super::write::{content, patch};
use common::api::binding::{ClusterResourceBinding, ResourceBinding, TargetCluster};
use common::api::override_policy::OverridePolicy;
use common::api::work::Work;
use common::interpreter::layers::Interpreter;
use common::labels::CONFLICT_RESOLUTION;
use proptest::prelude::*;
use serde_json::{Value, json};

fn binding(mut spec: Value) -> ResourceBinding {
    spec["resource"] =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "n"});
    let binding = json!({"metadata": {"name": "web-deployment", "namespace": "n",
        "labels": {"resourcebinding.karmada.io/permanent-id": "b-id"}}, "spec": spec});
    serde_json::from_value(binding).expect("a binding")
}

fn template() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {"replicas": 9}, "metadata": {
            "name": "web", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
            "finalizers": ["f"], "ownerReferences": [{"name": "o"}], "labels": {"app": "web"}},
        "spec": {"replicas": 9, "template": {"spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}}})
}

fn facts(name: &str) -> ClusterFacts<'_> {
    ClusterFacts {
        name,
        labels: None,
        provider: None,
        region: None,
        zones: &[],
    }
}

/// Of each member that the binding names.
fn works(
    template: &Value,
    binding: &ResourceBinding,
    policies: &[OverridePolicy],
) -> Vec<Result<Work, RenderError>> {
    let overrides = Overrides::of(
        template,
        [],
        policies
            .iter()
            .map(|policy| (&policy.metadata, &policy.spec, None)),
    );
    let interpreter = Interpreter::default();
    let renderer = Renderer::new(
        template,
        Binding::new(&binding.metadata, &binding.spec),
        &overrides,
        &interpreter,
    )
    .expect("a template");
    let render = |target: &TargetCluster| renderer.render(target, &facts(&target.name), None);
    binding.spec.clusters.iter().map(render).collect()
}

fn manifest(work: &Work) -> &Value {
    &work.spec.workload.manifests[0]
}

#[test]
fn each_member_gets_its_share() {
    let clusters =
        json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 1}, {"name": "m3"}]);
    let shares = |spec: Value| -> Vec<Value> {
        let works = works(&template(), &binding(spec), &[]);
        let share =
            |work: Result<Work, _>| manifest(&work.expect("a Work"))["spec"]["replicas"].clone();
        works.into_iter().map(share).collect()
    };
    let given = [json!(2), json!(1), json!(0)];
    assert_eq!(shares(json!({"clusters": clusters, "replicas": 3})), given);
    let needs = json!({"resourceRequest": {"cpu": "1"}});
    assert_eq!(
        shares(json!({"clusters": clusters, "replicaRequirements": needs})),
        given
    );
    let components = json!([{"name": "c", "replicas": 1}]);
    assert_eq!(
        shares(json!({"clusters": clusters, "components": components})),
        given
    );
    // Not a workload: everybody gets the template's number.
    assert_eq!(
        shares(json!({"clusters": clusters})),
        [json!(9), json!(9), json!(9)]
    );
}

#[test]
fn completions_of_a_divided_job_add_up() {
    let mut job = template();
    job["apiVersion"] = json!("batch/v1");
    job["kind"] = json!("Job");
    job["spec"] = json!({"parallelism": 5, "completions": 10});
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let duplicated = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    let clusters = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 2}]);
    let completions = |job: &Value, placement: &Value| -> Vec<Value> {
        let spec = json!({"clusters": clusters, "replicas": 5, "placement": placement});
        let works = works(job, &binding(spec), &[]);
        let share =
            |work: Result<Work, _>| manifest(&work.expect("a Work"))["spec"]["completions"].clone();
        works.into_iter().map(share).collect()
    };
    assert_eq!(completions(&job, &divided), [json!(6), json!(4)]);
    assert_eq!(completions(&job, &duplicated), [json!(10), json!(10)]);
    job["spec"] = json!({"parallelism": 5});
    assert_eq!(completions(&job, &divided), [Value::Null, Value::Null]);

    job["spec"] = json!({"parallelism": 5, "completions": 10});
    let binding = binding(json!({"clusters": clusters, "replicas": 5, "placement": divided}));
    let overrides = Overrides::of(&job, [], []);
    let interpreter = Interpreter::default();
    let renderer = Renderer::new(
        &job,
        Binding::new(&binding.metadata, &binding.spec),
        &overrides,
        &interpreter,
    )
    .expect("a template");
    let other = TargetCluster {
        name: "m9".into(),
        ..TargetCluster::default()
    };
    let error = renderer
        .render(&other, &facts("m9"), None)
        .expect_err("not divided among");
    assert_eq!(error.to_string(), "no completions found for cluster m9");
}

#[test]
fn a_manifest_tells_whose_it_is() {
    let spec = json!({"clusters": [{"name": "m1", "replicas": 2}], "replicas": 2});
    let work = works(&template(), &binding(spec), &[])
        .remove(0)
        .expect("a Work");
    let id = work.metadata.labels.as_ref().expect("labels")["work.karmada.io/permanent-id"].clone();
    let want = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n",
            "labels": {"app": "web", "karmada.io/managed": "true", "resourcebinding.karmada.io/permanent-id": "b-id",
                "work.karmada.io/permanent-id": id},
            "annotations": {
                "resourcebinding.karmada.io/name": "web-deployment", "resourcebinding.karmada.io/namespace": "n",
                "resourcetemplate.karmada.io/generation": "3",
                "resourcetemplate.karmada.io/managed-annotations": "resourcebinding.karmada.io/name,\
                    resourcebinding.karmada.io/namespace,resourcetemplate.karmada.io/generation,\
                    resourcetemplate.karmada.io/managed-annotations,resourcetemplate.karmada.io/managed-labels,\
                    resourcetemplate.karmada.io/uid,work.karmada.io/conflict-resolution,work.karmada.io/name,\
                    work.karmada.io/namespace",
                "resourcetemplate.karmada.io/managed-labels": "app,karmada.io/managed,\
                    resourcebinding.karmada.io/permanent-id,work.karmada.io/permanent-id",
                "resourcetemplate.karmada.io/uid": "u", "work.karmada.io/conflict-resolution": "abort",
                "work.karmada.io/name": "web-585f6dfb5", "work.karmada.io/namespace": "karmada-es-m1"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}}});
    let mut found = manifest(&work).clone();
    let name = work.metadata.name.clone().expect("a name");
    assert_eq!(
        name,
        common::names::work_name("Deployment", Some("n"), "web")
    );
    found["metadata"]["annotations"]["work.karmada.io/name"] = json!("web-585f6dfb5");
    assert_eq!(found, want);
}

#[test]
fn a_cluster_scoped_template_names_its_own_kind_of_binding() {
    let template =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foo", "uid": "u"}});
    let binding: ClusterResourceBinding = serde_json::from_value(json!({
        "metadata": {"name": "foo-namespace", "uid": "its-uid"},
        "spec": {"resource": {"apiVersion": "v1", "kind": "Namespace", "name": "foo"}, "clusters": [{"name": "m1"}]}}))
    .expect("a binding");
    let overrides = Overrides::of(&template, [], []);
    let interpreter = Interpreter::default();
    let renderer = Renderer::new(
        &template,
        Binding::new(&binding.metadata, &binding.spec.0),
        &overrides,
        &interpreter,
    )
    .expect("a template");
    let target = &binding.spec.0.clusters[0];
    let work = renderer
        .render(target, &facts("m1"), Some("w-id"))
        .expect("a Work");
    assert_eq!(
        json!(work.metadata),
        json!({"name": "foo-5dbdc7b59c", "namespace": "karmada-es-m1",
        "labels": {"clusterresourcebinding.karmada.io/permanent-id": "its-uid", "work.karmada.io/permanent-id": "w-id"},
        "annotations": {"clusterresourcebinding.karmada.io/name": "foo-namespace", CONFLICT_RESOLUTION: "abort"},
        "finalizers": ["karmada.io/execution-controller"]})
    );
    assert_eq!(
        manifest(&work)["metadata"]["annotations"]["resourcetemplate.karmada.io/generation"],
        Value::Null
    );
}

#[test]
fn a_members_own_override_decides_its_conflicts() {
    let clusters = json!([{"name": "m1"}, {"name": "m2"}]);
    let spec = json!({"overrideRules": [{"targetCluster": {"clusterNames": ["m1"]}, "overriders": {
        "annotationsOverrider": [{"operator": "add", "value": {CONFLICT_RESOLUTION: "overwrite"}}]}}]});
    let policy: OverridePolicy =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}))
            .expect("a policy");
    let told =
        |binding: &ResourceBinding, template: &Value, policies: &[OverridePolicy]| -> Vec<String> {
            let works = works(template, binding, policies);
            let conflict = |work: Result<Work, _>| {
                let work = work.expect("a Work");
                let annotations = work.metadata.annotations.as_ref().expect("annotations");
                let inner = &manifest(&work)["metadata"]["annotations"][CONFLICT_RESOLUTION];
                assert_eq!(*inner, json!(annotations[CONFLICT_RESOLUTION]));
                annotations[CONFLICT_RESOLUTION].clone()
            };
            works.into_iter().map(conflict).collect()
        };
    let abort = binding(json!({"clusters": clusters}));
    assert_eq!(
        told(&abort, &template(), std::slice::from_ref(&policy)),
        ["overwrite", "abort"]
    );
    let overwrite = binding(json!({"clusters": clusters, "conflictResolution": "Overwrite"}));
    assert_eq!(
        told(&overwrite, &template(), &[]),
        ["overwrite", "overwrite"]
    );
    let mut says = template();
    for (value, want) in [("abort", "abort"), ("whatever", "overwrite")] {
        says["metadata"]["annotations"] = json!({CONFLICT_RESOLUTION: value});
        assert_eq!(told(&overwrite, &says, &[]), [want, want]);
    }
}

#[test]
fn one_members_error_is_its_own() {
    let spec = json!({"overrideRules": [{"targetCluster": {"clusterNames": ["m1"]}, "overriders": {
        "plaintext": [{"path": "/spec/absent", "operator": "remove"}]}}]});
    let policy: OverridePolicy =
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}))
            .expect("a policy");
    let binding = binding(json!({"clusters": [{"name": "m1"}, {"name": "m2"}]}));
    let works = works(&template(), &binding, &[policy]);
    assert!(matches!(&works[0], Err(RenderError::Override(error)) if error.policy.name == "p"));
    assert!(works[1].is_ok());
}

#[test]
fn what_survived_a_failure_goes_to_the_only_successor() {
    let task = |mode: &str, before: Value| {
        json!({"fromCluster": "m1", "purgeMode": mode, "reason": "r", "producer": "p",
            "preservedLabelState": {"state": "s", "karmada.io/managed": "no", "work.karmada.io/x": "no"},
            "clustersBeforeFailover": before})
    };
    let state = |tasks: Value, clusters: Value| {
        let binding = binding(json!({"clusters": clusters, "gracefulEvictionTasks": tasks}));
        let work = works(&template(), &binding, &[]).remove(0).expect("a Work");
        let labels = &manifest(&work)["metadata"]["labels"];
        assert_eq!(labels["karmada.io/managed"], "true");
        assert_eq!(labels["work.karmada.io/x"], Value::Null);
        labels["state"].clone()
    };
    let one = json!([{"name": "m2"}]);
    assert_eq!(
        state(json!([task("Directly", json!(["m1"]))]), one.clone()),
        "s"
    );
    assert_eq!(
        state(json!([task("Directly", json!(["m2"]))]), one.clone()),
        Value::Null
    );
    assert_eq!(
        state(json!([task("Gracefully", json!(["m1"]))]), one.clone()),
        Value::Null
    );
    assert_eq!(
        state(
            json!([task("Directly", json!([])), task("Never", json!([]))]),
            one
        ),
        Value::Null
    );
    let two = json!([{"name": "m2"}, {"name": "m3"}]);
    assert_eq!(
        state(json!([task("Directly", json!(["m1"]))]), two),
        Value::Null
    );
}

#[test]
fn what_is_no_template_is_refused() {
    let binding = binding(json!({}));
    for (template, want) in [
        (json!({}), "the template has no apiVersion or kind"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            "the template has no metadata.name",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "m"}}),
            "the binding is of namespace n, its template of namespace m",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "s"}}),
            "the binding is of namespace n, its template of no namespace",
        ),
    ] {
        let overrides = Overrides::of(&template, [], []);
        let interpreter = Interpreter::default();
        let error = Renderer::new(
            &template,
            Binding::new(&binding.metadata, &binding.spec),
            &overrides,
            &interpreter,
        )
        .expect_err("refused");
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn ids_of_works_are_uuids_that_stay() {
    let binding = binding(json!({"clusters": [{"name": "m1"}, {"name": "m2"}]}));
    let ids = || -> Vec<String> {
        let id = |work: Result<Work, _>| {
            let labels = work.expect("a Work").metadata.labels.expect("labels");
            labels["work.karmada.io/permanent-id"].clone()
        };
        works(&template(), &binding, &[])
            .into_iter()
            .map(id)
            .collect()
    };
    let first = ids();
    assert_eq!(first, ids());
    assert_ne!(first[0], first[1]);
    for id in first {
        let parts: Vec<&str> = id.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
        assert!(
            parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']),
            "{id}"
        );
    }
}

proptest! {
    /// The same input makes the same Work, byte by byte, and there is nothing to write over it; its lists name
    /// exactly what it has.
    #[test]
    fn rendering_is_stable(
        labels in proptest::collection::btree_map("[a-z]{1,3}(\\.io/[a-z])?", "[a-z]{0,3}", 0..4),
        annotations in proptest::collection::btree_map("[a-z]{1,3}", "[a-z]{0,3}", 0..4),
        replicas in 0..5_i32,
        paused in any::<bool>(),
    ) {
        let mut template = template();
        template["metadata"]["labels"] = json!(labels);
        template["metadata"]["annotations"] = json!(annotations);
        let binding = binding(json!({"clusters": [{"name": "m1", "replicas": replicas}], "replicas": replicas,
            "suspension": {"dispatchingOnClusters": {"clusterNames": if paused { vec!["m1"] } else { vec!["m2"] }}}}));
        let work = || works(&template, &binding, &[]).remove(0).expect("a Work");
        let (first, second) = (work(), work());
        prop_assert_eq!(json!(first).to_string(), json!(second).to_string());
        prop_assert_eq!(patch(content(&first).expect("JSON"), &second).expect("JSON"), None);
        prop_assert_eq!(first.spec.suspend_dispatching, Some(paused));
        let metadata = &manifest(&first)["metadata"];
        for (map, list) in [("labels", "managed-labels"), ("annotations", "managed-annotations")] {
            let keys: Vec<&str> = metadata[map].as_object().expect("a map").keys().map(String::as_str).collect();
            let told = metadata["annotations"][format!("resourcetemplate.karmada.io/{list}")].as_str();
            let keys = keys.join(",");
            prop_assert_eq!(told, Some(keys.as_str()));
        }
    }
}
