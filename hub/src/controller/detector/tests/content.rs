//! What a binding says, and when it is written.

use super::{Stage, cluster_policy, dependent, nginx, policy, told, touch};
use crate::controller::detector::wake::Edit;
use crate::controller::detector::{Decision, Problem, Write, decide};
use crate::propagation::Template;
use serde_json::{Value, json};

#[test]
fn checks_1_and_2_a_policy_takes_a_template_whichever_comes_first() {
    let mut first = Stage::new([policy("p", json!({}), json!({}))]);
    let mut later = Stage::new([]);
    assert_eq!(later.settle(), Decision::default());
    later.add(policy("p", json!({}), json!({})));
    for stage in [&mut first, &mut later] {
        let decision = stage.settle();
        assert_eq!(
            told(&decision),
            ["ApplyPolicySucceed Apply policy(default/p) succeed"]
        );
        let binding = stage.0.binding.clone().expect("a binding");
        assert_eq!(
            (binding.kind(), binding.name.as_str()),
            ("ResourceBinding", "nginx-deployment")
        );
        let object = binding.object().expect("encodes");
        let want = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": "nginx-deployment", "namespace": "default",
                "labels": {"propagationpolicy.karmada.io/permanent-id": "id of p",
                    "resourcebinding.karmada.io/permanent-id": "fresh"},
                "annotations": {"propagationpolicy.karmada.io/namespace": "default",
                    "propagationpolicy.karmada.io/name": "p"},
                "finalizers": ["karmada.io/binding-controller"],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx",
                    "uid": "uid-1", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default",
                    "name": "nginx", "uid": "uid-1", "resourceVersion": "1"},
                "placement": {}, "replicas": 3, "schedulerName": "default-scheduler",
                "conflictResolution": "Abort"},
        });
        assert_eq!(object, want);
        assert_eq!(stage.holder().as_deref(), Some("p"));
    }
}

#[test]
fn check_14_a_new_policy_changes_the_same_binding() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    stage.0.binding.as_mut().expect("a binding").spec.clusters = dependent("x").clusters;
    stage.change("p", |policy| policy.spec.propagate_deps = Some(true));
    stage.settle();
    let binding = stage.0.binding.as_ref().expect("a binding");
    assert_eq!(binding.spec.propagate_deps, Some(true));
    assert_eq!(
        binding.spec.clusters,
        dependent("x").clusters,
        "the scheduler's"
    );
}

#[test]
fn check_15_a_template_that_goes_is_left_alone() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    stage.remove("p");
    stage.0.template.deleting = true;
    assert_eq!(stage.settle(), Decision::default());
}

/// Check 16 of the reference, which waits for the garbage collector.
#[test]
fn check_16_the_binding_of_a_former_template_makes_room() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    let former = stage.0.binding.clone().expect("a binding");
    let anew = Template {
        uid: "uid-2".into(),
        ..nginx()
    };
    stage.0.template = anew.clone();
    stage.0.edited = Some(Edit::Content);
    let decision = decide(&stage.0);
    assert_eq!(decision.binding, Some(Write::Replace(former.uid.clone())));
    assert_eq!(told(&decision), [""; 0]);

    stage.0.binding.as_mut().expect("there").deleting = true;
    let decision = decide(&stage.0);
    assert!(matches!(decision.problem, Some(Problem::Deleting(_))));
    assert_eq!(decision.binding, None);

    stage.0.binding = None;
    stage.settle();
    let owner = stage.0.binding.expect("a binding").owner;
    assert_eq!(owner.map(|it| it.uid).as_deref(), Some("uid-2"));

    // No policy holds the next one.
    let mut stage = Stage::new([]);
    stage.0.template = anew;
    stage.0.binding = Some(former.clone());
    let decision = decide(&stage.0);
    assert_eq!(decision.binding, Some(Write::Replace(former.uid)));
}

#[test]
fn checks_17_and_18_only_an_edit_bumps_the_version_of_the_template() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    let version = |stage: &Stage| {
        let binding = stage.0.binding.as_ref().expect("a binding");
        binding.spec.resource.resource_version.clone()
    };
    let before = version(&stage);
    touch(&mut stage.0.template);
    assert_eq!(stage.settle().binding, None, "a status");
    stage.edit();
    stage.settle();
    assert_ne!(version(&stage), before);
    assert_eq!(
        version(&stage).as_ref(),
        Some(&stage.0.template.resource_version)
    );
}

#[test]
fn checks_24_and_25_a_suspension_comes_and_goes() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    let suspension = |stage: &Stage| {
        let binding = stage.0.binding.clone().expect("a binding");
        serde_json::to_value(binding.spec.suspension).expect("encodes")
    };
    assert_eq!(suspension(&stage), Value::Null);
    let on_m1 = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
    let given = serde_json::from_value(on_m1.clone()).expect("a suspension");
    stage.change("p", |policy| policy.spec.suspension = given);
    stage.settle();
    assert_eq!(suspension(&stage), on_m1);
    let binding = stage.0.binding.as_mut().expect("a binding");
    binding
        .spec
        .suspension
        .as_mut()
        .expect("suspended")
        .scheduling = Some(true);
    assert_eq!(stage.settle().binding, None);
    stage.change("p", |policy| policy.spec.suspension = None);
    stage.settle();
    assert_eq!(suspension(&stage), json!({"scheduling": true}));
    stage.0.binding.as_mut().expect("a binding").spec.suspension = None;
    assert_eq!(stage.settle().binding, None);
}

/// Check 27: the second template is told whose the name is.
#[test]
fn check_27_a_name_that_is_taken_is_told() {
    let mut stage = Stage::new([policy("p", json!({}), json!({}))]);
    stage.settle();
    let binding = stage.0.binding.as_mut().expect("a binding");
    let owner = binding.owner.as_mut().expect("an owner");
    owner.api_version = "example.org/v1".into();
    owner.uid = "uid-9".into();
    let decision = stage.carry_out();
    let text = told(&decision).join("");
    assert!(
        text.ends_with("already belongs to Deployment.example.org nginx; rename one of the two"),
        "{text}"
    );
    assert_eq!(decision.binding, None);
}

#[test]
fn what_the_policy_asks_for_has_to_be_known() {
    let priority = json!({"schedulePriority": {"priorityClassSource": "KubePriorityClass",
        "priorityClassName": "high"}});
    let mut stage = Stage::new([policy("p", json!({}), priority)]);
    let decision = stage.carry_out();
    let text = "ApplyPolicyFailed Apply policy(default/p) failed: priorityclasses.scheduling.k8s.io \"high\" not found";
    assert_eq!(told(&decision), [text]);
    assert_eq!(stage.holder().as_deref(), Some("p"), "claimed all the same");
    stage.0.priority_classes.insert("high".into(), 7);
    stage.settle();
    let spec = stage.0.binding.clone().expect("a binding").spec;
    assert_eq!(
        spec.schedule_priority.as_ref().map(|it| it.priority),
        Some(7)
    );

    stage.0.replicas = Err("script stopped".into());
    let decision = stage.carry_out();
    assert_eq!(told(&decision)[0], "GetReplicasFailed script stopped");
    assert!(
        told(&decision)[1].starts_with("ApplyPolicyFailed"),
        "{decision:?}"
    );
    assert_eq!(stage.0.binding.expect("kept").spec, spec);
}

#[test]
fn labels_put_a_template_into_groups() {
    let affinity = json!({"placement": {"workloadAffinity": {"affinity": {"groupByLabelKey": "app"},
        "antiAffinity": {"groupByLabelKey": "gone"}}}});
    let mut stage = Stage::new([policy("p", json!({}), affinity)]);
    stage.settle();
    let groups = |stage: &Stage| {
        let spec = stage.0.binding.clone().expect("a binding").spec;
        serde_json::to_value(spec.workload_affinity_groups).expect("encodes")
    };
    assert_eq!(groups(&stage), json!({"affinityGroup": "app=web"}));
    stage.0.template.labels.remove("app");
    stage.edit();
    stage.settle();
    assert_eq!(groups(&stage), Value::Null);
}

/// Checks 54, 55 and 58: a template that others refer to, with and without a policy of its own.
#[test]
fn dependents_and_a_policy_share_one_binding() {
    let mut stage = Stage::new([]);
    stage.0.dependents = vec![dependent("web-deployment")];
    stage.settle();
    let attached = stage.0.binding.clone().expect("attached");
    assert_eq!(
        (
            attached.spec.placement.clone(),
            attached.spec.required_by.len()
        ),
        (None, 1)
    );
    assert_eq!(attached.spec.scheduler_name, None);

    stage.add(policy(
        "p",
        json!({}),
        json!({"conflictResolution": "Overwrite"}),
    ));
    stage.settle();
    let both = stage.0.binding.clone().expect("held").spec;
    assert!(both.placement.is_some() && both.required_by.len() == 1);
    assert_eq!(both.preserve_resources_on_deletion, None);
    stage.0.binding.as_mut().expect("held").spec.clusters = dependent("x").clusters;

    stage.remove("p");
    stage.settle();
    let mut again = stage.0.binding.clone().expect("attached").spec;
    again.resource.clone_from(&attached.spec.resource);
    assert_eq!(again, attached.spec, "only where its dependents are");

    stage.0.dependents[0].clusters.clear();
    stage.settle();
    assert_eq!(stage.0.binding, None);
}

#[test]
fn a_lazy_policy_keeps_dependents_up_to_date() {
    let mut stage = Stage::new([policy(
        "p",
        json!({}),
        json!({"activationPreference": "Lazy"}),
    )]);
    stage.settle();
    stage.change("p", |policy| {
        policy.spec.preserve_resources_on_deletion = Some(true);
    });
    stage.0.dependents = vec![dependent("web-deployment")];
    stage.settle();
    let spec = stage.0.binding.expect("a binding").spec;
    assert_eq!(spec.required_by.len(), 1);
    assert_eq!(spec.preserve_resources_on_deletion, None);
}

#[test]
fn a_cluster_scoped_template_has_a_binding_of_its_kind() {
    let mut stage = Stage::new([
        policy("p", json!({}), json!({})),
        cluster_policy("c", json!({}), json!({})),
    ]);
    stage.0.template.namespace = None;
    stage.settle();
    let binding = stage.0.binding.clone().expect("a binding");
    assert_eq!(
        (binding.kind(), binding.id()),
        ("ClusterResourceBinding", "fresh")
    );
    assert_eq!(
        binding.finalizers,
        ["karmada.io/cluster-resource-binding-controller"]
    );
    assert_eq!(stage.holder().as_deref(), Some("c"));
}
