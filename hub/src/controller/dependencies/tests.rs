use super::attach::{
    conflict, is_attached, may_follow, set, those_of, those_placed, without_those_gone,
};
use super::parent::{Observed, decide};
use super::sought::{keys_of_binding, keys_of_template, recorded, refers};
use crate::controller::binding::targets::targets;
use crate::propagation::{Binding, Dependent, Template};
use common::api::binding::{ResourceBindingSpec, TargetCluster, TargetComponent};
use common::api::policy::{ConflictResolution, Placement};
use common::interpreter::dependencies::Dependency;
use common::labels::{BINDING_DEPENDENCIES, BINDING_PERMANENT_ID, DEPENDENCIES_FINALIZER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn template(object: Value) -> Template {
    Template::of(&object).expect("a template")
}

fn config_map(namespace: &str, name: &str) -> Template {
    template(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}}}))
}

fn clusters(names: &[&str]) -> Vec<TargetCluster> {
    let named = |name: &&str| TargetCluster {
        name: (*name).to_owned(),
        ..TargetCluster::default()
    };
    names.iter().map(named).collect()
}

fn dependent(name: &str, at: &[&str]) -> Dependent {
    Dependent {
        namespace: "default".into(),
        name: name.into(),
        id: format!("id of {name}"),
        clusters: clusters(at),
        ..Dependent::default()
    }
}

fn parent_of(dependencies: &str) -> Binding {
    let mut binding = Binding {
        namespace: Some("default".into()),
        name: "nginx-deployment".into(),
        ..Binding::default()
    };
    binding
        .labels
        .insert(BINDING_PERMANENT_ID.into(), "id".into());
    binding
        .annotations
        .insert(BINDING_DEPENDENCIES.into(), dependencies.into());
    binding.spec.propagate_deps = Some(true);
    binding
}

#[test]
fn only_what_lies_beside_it_may_follow() {
    let object = |kind: &str, namespace: &str, of: &str| {
        template(json!({"apiVersion": "v1", "kind": kind, "type": of,
            "metadata": {"namespace": namespace, "name": "x"}}))
    };
    let token = "kubernetes.io/service-account-token";
    let cases = [
        (object("ConfigMap", "shop", ""), "shop", true),
        (object("ConfigMap", "other", ""), "shop", false),
        (object("Secret", "shop", "Opaque"), "shop", true),
        (object("Secret", "shop", ""), "shop", true),
        (object("Secret", "shop", token), "shop", false),
        (
            object("Secret", "shop", "bootstrap.kubernetes.io/token"),
            "shop",
            false,
        ),
        // The type of something else is no token.
        (object("Widget", "shop", token), "shop", true),
        (object("ConfigMap", "kube-system", ""), "kube-system", false),
        (
            object("Secret", "karmada-system", ""),
            "karmada-system",
            false,
        ),
        (
            object("Secret", "karmada-es-m1", ""),
            "karmada-es-m1",
            false,
        ),
        (
            object("Secret", "towline-system", ""),
            "towline-system",
            false,
        ),
        (object("Secret", "my-kube-x", ""), "my-kube-x", true),
    ];
    for (object, namespace, may) in cases {
        assert_eq!(may_follow(&object, namespace), may, "{object:?}");
    }
    let cluster_scoped = template(json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "x"}}));
    assert!(!may_follow(&cluster_scoped, "shop"));
    let named = |kind: &str, name: &str| {
        template(json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"namespace": "shop", "name": name}}))
    };
    assert!(!may_follow(&named("ConfigMap", "kube-root-ca.crt"), "shop"));
    assert!(may_follow(&named("Secret", "kube-root-ca.crt"), "shop"));
    assert!(may_follow(&named("ServiceAccount", "builder"), "shop"));
}

/// Check 54 of the reference.
#[test]
fn an_attached_binding_lists_who_needs_it() {
    let mut binding = Binding::default();
    assert!(!is_attached(&binding));
    set(
        &mut binding,
        &[dependent("nginx-deployment", &["m1", "m2"])],
    );
    let key = "resourcebinding.karmada.io/depended-by-5bdc5c4dcf";
    assert_eq!(binding.labels[key], "id of nginx-deployment");
    assert_eq!(binding.spec.required_by[0].name, "nginx-deployment");
    assert_eq!(
        binding.spec.required_by[0].clusters,
        clusters(&["m1", "m2"])
    );
    assert_eq!(binding.spec.preserve_resources_on_deletion, Some(false));
    assert!(is_attached(&binding) && binding.spec.placement.is_none());
    set(&mut binding, &[]);
    assert!(!is_attached(&binding));
}

/// Check 56: the stronger wish holds, and goes with whoever had it.
#[test]
fn wishes_of_several_dependents_are_united() {
    let with = |name, overwrite: bool, preserve: bool| Dependent {
        conflict_resolution: match overwrite {
            true => ConflictResolution::Overwrite,
            false => ConflictResolution::Abort,
        },
        preserve,
        ..dependent(name, &["m1"])
    };
    let both = "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort); \
                PreserveResourcesOnDeletion conflicted (true vs false).";
    let one =
        "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort).";
    let cases = [
        (vec![with("a", false, false)], false, false, None),
        (vec![with("a", true, true)], true, true, None),
        (
            vec![with("a", true, true), with("b", true, true)],
            true,
            true,
            None,
        ),
        (
            vec![with("a", true, false), with("b", false, false)],
            true,
            false,
            Some(one),
        ),
        (
            vec![with("a", false, true), with("b", true, false)],
            true,
            true,
            Some(both),
        ),
    ];
    for (dependents, overwrite, preserve, told) in cases {
        let mut binding = Binding::default();
        set(&mut binding, &dependents);
        let overwrites = binding.spec.conflict_resolution == ConflictResolution::Overwrite;
        assert_eq!(overwrites, overwrite, "{dependents:?}");
        assert_eq!(binding.spec.preserve_resources_on_deletion, Some(preserve));
        let notice = conflict(&binding, &dependents);
        assert_eq!(notice.map(|it| it.message).as_deref(), told);
        // A policy of its own decides for itself.
        let mut held = Binding::default();
        held.spec.placement = Some(Placement::default().into());
        set(&mut held, &dependents);
        assert_eq!(held.spec.conflict_resolution, ConflictResolution::Abort);
        assert_eq!(held.spec.preserve_resources_on_deletion, None);
        assert_eq!(conflict(&held, &dependents), None);
    }
}

#[test]
fn of_too_many_dependents_those_stay_that_reach_further() {
    let mut all: Vec<Dependent> = (0..1500)
        .map(|index| dependent(&format!("a{index:04}"), &["m1"]))
        .collect();
    all.push(dependent("z", &["m2"]));
    all.push(dependent("nowhere", &[]));
    let placed = those_placed(&all);
    assert_eq!(placed.len(), 1000);
    assert!(placed.iter().any(|it| it.name == "z"));
    assert!(placed.iter().all(|it| it.name != "nowhere"));
    assert!(placed.is_sorted_by_key(|it| it.name.clone()));
}

#[test]
fn what_many_dependents_share_fits_into_an_object() {
    let everywhere: Vec<TargetCluster> = (0..1000)
        .map(|number| TargetCluster {
            name: format!("member-{number:04}"),
            replicas: Some(3),
            ..TargetCluster::default()
        })
        .collect();
    let shared = |many: usize| -> Vec<Dependent> {
        (0..many)
            .map(|number| Dependent {
                clusters: everywhere.clone(),
                ..dependent(&format!("web-{number:02}"), &[])
            })
            .collect()
    };
    let listing = |dependents: &[Dependent]| {
        let mut binding = Binding::default();
        set(&mut binding, &those_placed(dependents));
        binding.spec
    };
    let mentions = |spec: &ResourceBindingSpec| -> usize {
        let parents = spec.required_by.iter();
        parents.map(|it| it.clusters.len()).sum()
    };
    // Karmada's own form as long as that fits.
    let few = listing(&shared(10));
    assert_eq!((mentions(&few), targets(&few).len()), (10_000, 1000));
    // What each component gets is listed with every mention, and takes as much room.
    let component = |name: &str| TargetComponent {
        name: name.to_owned(),
        replicas: 3,
    };
    let mut divided = shared(10);
    for cluster in divided.iter_mut().flat_map(|it| &mut it.clusters) {
        cluster.components = ["head", "worker", "taskmanager"].map(component).to_vec();
    }
    let divided = listing(&divided);
    let bytes = serde_json::to_vec(&divided).expect("encodes").len();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    assert_eq!((mentions(&divided), targets(&divided).len()), (1000, 1000));
    let mut kept = targets(&divided).into_iter();
    assert!(kept.all(|it| it.components.len() == 3));

    let mut all = shared(60);
    let many = listing(&all);
    let bytes = serde_json::to_vec(&many).expect("encodes").len();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    assert_eq!((many.required_by.len(), mentions(&many)), (60, 1000));
    let replicas = |spec: &ResourceBindingSpec| -> BTreeMap<String, Option<i32>> {
        let targets = targets(spec).into_iter();
        targets.map(|it| (it.name.clone(), it.replicas)).collect()
    };
    assert_eq!(replicas(&many), replicas(&few));

    // Of the last one in the list, and of the first one once it is elsewhere.
    all.push(dependent("zone", &["c", "member-0000"]));
    let wider = listing(&all);
    assert_eq!((mentions(&wider), targets(&wider).len()), (1001, 1001));
    assert!(replicas(&wider).contains_key("c"));
    all[0].clusters = clusters(&["member-0001"]);
    assert_eq!(targets(&listing(&all)).len(), 1001);
}

#[test]
fn what_refers_to_itself_is_not_taken_along_by_itself() {
    let web = template(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": "nginx"}}));
    let refers =
        r#"[{"apiVersion":"apps/v1","kind":"Deployment","namespace":"default","name":"nginx"}]"#;
    let own = parent_of(refers);
    assert_eq!(own.name, web.binding_name());
    let other = Binding {
        name: "other-deployment".into(),
        ..parent_of(refers)
    };
    let found = those_of(&web, [&own, &other]);
    let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["other-deployment"]);
}

#[test]
fn those_gone_are_listed_no_longer_and_those_that_came_not_yet() {
    let named = |names: &[&str]| -> Vec<Dependent> {
        names.iter().map(|it| dependent(it, &["m1"])).collect()
    };
    // Who is listed, who takes it along now, and who is listed then if anybody left.
    type Names<'a> = &'a [&'a str];
    let cases: [(Names<'_>, Names<'_>, Option<Names<'_>>); 5] = [
        (&[], &["a"], None),
        (&["a"], &["a", "b"], None),
        (&["a", "b"], &["b", "c"], Some(&["b"])),
        (&["a", "b"], &["c"], Some(&[])),
        (&["a"], &[], Some(&[])),
    ];
    for (listed, now, wanted) in cases {
        let attached = |names: &[&str]| {
            let mut binding = parent_of("");
            set(&mut binding, &those_placed(&named(names)));
            binding
        };
        let found = without_those_gone(&attached(listed), &named(now));
        let mut wanted = wanted.map(attached);
        // Of what takes along nothing the last one said what happens to its objects.
        if let Some(wanted) = &mut wanted {
            wanted.spec.preserve_resources_on_deletion = Some(false);
        }
        assert_eq!(found, wanted, "{listed:?} {now:?}");
    }
}

#[test]
fn a_parent_shows_what_follows_it_until_nothing_does() {
    let known = Dependency {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("default".into()),
        name: Some("c".into()),
        label_selector: None,
    };
    let mut seen = Observed {
        binding: parent_of(""),
        dependencies: Some(Ok(vec![known.clone()])),
        is_required: false,
    };
    seen.binding.annotations.clear();
    let decision = decide(&seen).expect("encodes");
    assert_eq!(decision.events[0].reason, "GetDependenciesSucceed");
    seen.binding = decision.binding.expect("a change");
    assert_eq!(
        seen.binding.annotations[BINDING_DEPENDENCIES],
        r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"c"}]"#
    );
    assert_eq!(recorded(&seen.binding), [known]);
    assert_eq!(
        decide(&seen).expect("encodes"),
        super::parent::Decision::default()
    );

    // Check 53: what nobody knows changes nothing.
    seen.dependencies = Some(Err("dependencies[0]: …".into()));
    let decision = decide(&seen).expect("encodes");
    assert_eq!(
        (decision.binding, decision.events[0].reason),
        (None, "GetDependenciesFailed")
    );

    seen.binding.spec.propagate_deps = None;
    seen.is_required = true;
    assert_eq!(decide(&seen).expect("encodes").binding, None);
    seen.is_required = false;
    let released = decide(&seen).expect("encodes").binding.expect("a change");
    assert!(
        !released
            .finalizers
            .iter()
            .any(|it| it == DEPENDENCIES_FINALIZER)
    );
}

#[test]
fn kinds_without_a_rule_and_cluster_scoped_parents_show_nothing() {
    let mut binding = parent_of("");
    binding.annotations.clear();
    let seen = Observed {
        binding: binding.clone(),
        dependencies: None,
        is_required: false,
    };
    assert_eq!(decide(&seen).expect("encodes").binding, None);
    binding.namespace = None;
    let seen = Observed {
        binding: binding.clone(),
        dependencies: Some(Ok(Vec::new())),
        is_required: false,
    };
    assert_eq!(decide(&seen).expect("encodes").binding, None);
    assert_eq!(Dependent::of(&binding), None);
}

#[test]
fn references_are_found_by_their_keys() {
    let by_name = r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"c"}]"#;
    let by_label = r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default",
        "labelSelector":{"matchLabels":{"app":"web"}}}]"#;
    let elsewhere = r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"other","name":"c"}]"#;
    let cases = [
        (by_name, config_map("default", "c"), true),
        (by_name, config_map("default", "d"), false),
        (by_name, config_map("other", "c"), false),
        (by_label, config_map("default", "d"), true),
        ("not JSON", config_map("default", "c"), false),
        ("null", config_map("default", "c"), false),
        (elsewhere, config_map("default", "c"), false),
    ];
    for (text, template, refers_to_it) in cases {
        let binding = parent_of(text);
        assert_eq!(refers(&binding, &template), refers_to_it, "{text}");
        let shared = keys_of_binding(&binding)
            .intersection(&keys_of_template(&template))
            .count();
        assert!(shared > 0 || !refers_to_it, "{text}");
    }
    assert!(keys_of_binding(&parent_of(elsewhere)).is_empty());
    let mut off = parent_of(by_name);
    off.spec.propagate_deps = Some(false);
    assert!(keys_of_binding(&off).is_empty());
    assert_eq!(Dependent::of(&off), None);
}

proptest! {
    /// Who asks first does not matter, and asking twice neither.
    #[test]
    fn the_order_of_dependents_does_not_matter(
        names in proptest::collection::vec(("[a-d]", proptest::collection::vec("m[1-3]", 0..3)), 0..6),
    ) {
        let unique: BTreeMap<String, Vec<String>> = names.into_iter().collect();
        let mut all: Vec<Dependent> = unique
            .iter()
            .map(|(name, at)| dependent(name, &at.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        let attached = |all: &[Dependent]| {
            let mut binding = Binding::default();
            set(&mut binding, &those_placed(all));
            binding
        };
        let forward = attached(&all);
        all.reverse();
        all.extend(all.clone());
        prop_assert_eq!(&attached(&all), &forward);
        let mut again = forward.clone();
        set(&mut again, &those_placed(&all));
        prop_assert_eq!(again, forward);
    }

    /// What refers to a template shares a key with it.
    #[test]
    fn no_reference_is_without_a_key(name in "[a-b]", label in "[a-b]", by_name in any::<bool>()) {
        let selector = LabelSelector {
            match_labels: Some(BTreeMap::from([("app".to_owned(), label.clone())])),
            ..LabelSelector::default()
        };
        let dependency = Dependency {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: Some("default".into()),
            name: by_name.then(|| name.clone()),
            label_selector: (!by_name).then_some(selector),
        };
        let binding = parent_of(&serde_json::to_string(&[dependency]).expect("encodes"));
        let mut object = config_map("default", "a");
        object.labels = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
        if refers(&binding, &object) {
            let keys = keys_of_template(&object);
            prop_assert!(keys_of_binding(&binding).iter().any(|key| keys.contains(key)));
        }
        prop_assert_eq!(refers(&binding, &object), if by_name { name == "a" } else { label == "a" });
    }
}
