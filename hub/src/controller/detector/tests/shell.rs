//! What the detector does with what it sees: with a binding whose template is gone, and for an override that comes.

use crate::controller::bindings::{Bindings, Error};
use crate::controller::detector::Detector;
use crate::controller::detector::holdings::Holdings;
use crate::controller::detector::skip::Skips;
use crate::controller::detector::unsettled::Unsettled;
use crate::controller::notices::Notices;
use crate::controller::scheduler::Placing;
use crate::world::testing::{answering, nobody, unreachable};
use crate::world::{ObjectName, TemplateName, World};
use common::chance::Chance;
use common::controller::{Reconcile as _, Requeue};
use common::gvk::Gvk;
use common::labels::{
    BINDING_DEPENDENCIES, BINDING_FINALIZER, BINDING_NAME, BINDING_NAMESPACE, BINDING_PERMANENT_ID,
    CLUSTER_POLICY_NAME, CLUSTER_POLICY_PERMANENT_ID, POLICY_NAME, POLICY_NAMESPACE,
    POLICY_PERMANENT_ID,
};
use common::lock::lock;
use common::names::binding_name;
use common::queue::Queue;
use http::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn detector(client: Client, world: &World) -> Arc<Detector> {
    let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
    Detector::new(
        client,
        (bindings, Placing::watching(world)),
        Skips::default(),
        (Holdings::default(), Unsettled::default()),
        &Chance::seeded(1),
        world,
    )
}

/// An object of a namespace, or of none.
fn object(namespace: Option<&str>, name: &str, spec: &Value) -> Value {
    let mut object = json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// A policy for all of a kind.
fn policy(namespace: Option<&str>, kind: &Gvk, with: &Value) -> Value {
    let selector = json!({"apiVersion": kind.api_version(), "kind": kind.kind});
    let mut spec = json!({"resourceSelectors": [selector], "placement": {}});
    json_patch::merge(&mut spec, with);
    object(namespace, "p", &spec)
}

fn deployments() -> Gvk {
    Gvk::new("apps/v1", "Deployment").expect("a kind")
}

#[tokio::test(start_paused = true)]
async fn the_binding_of_a_template_that_is_gone_says_first_that_objects_stay() {
    let roles = Gvk::new("rbac.authorization.k8s.io/v1", "ClusterRole").expect("a kind");
    for (namespace, kind) in [(Some("n"), deployments()), (None, roles)] {
        let (client, asked) = answering(|method, _| match *method {
            Method::GET => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        });
        let world = unreachable();
        let detector = detector(client, &world);
        let views = &world.propagation;
        let (policies, bindings) = match namespace {
            Some(_) => (&views.policies, &views.bindings),
            None => (&views.cluster_policies, &views.cluster_bindings),
        };
        let keeps = json!({"preserveResourcesOnDeletion": true});
        policies.listed(&[policy(namespace, &kind, &keeps)]).await;
        let resource = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "namespace": namespace, "name": "web"});
        let spec = json!({ "resource": resource });
        let mut binding = object(namespace, &binding_name(&kind.kind, "web"), &spec);
        let metadata = &mut binding["metadata"];
        metadata["uid"] = json!("u");
        metadata["ownerReferences"] = json!([{"apiVersion": kind.api_version(), "kind": kind.kind,
            "name": "web", "uid": "t", "controller": true}]);
        let (id, annotations) = match namespace {
            Some(namespace) => (
                POLICY_PERMANENT_ID,
                json!({POLICY_NAMESPACE: namespace, POLICY_NAME: "p"}),
            ),
            None => (
                CLUSTER_POLICY_PERMANENT_ID,
                json!({CLUSTER_POLICY_NAME: "p"}),
            ),
        };
        metadata["labels"] = json!({ id: "i" });
        metadata["annotations"] = annotations;
        bindings.listed(std::slice::from_ref(&binding)).await;
        views.templates.told_of(&kind).listed(&[]).await;
        let name = TemplateName {
            kind: kind.group_kind(),
            name: ObjectName::new(namespace, "web"),
        };
        let written = || -> Vec<(String, Value)> {
            let asked = std::mem::take(&mut *lock(&asked)).into_iter();
            let writes = asked.filter(|(method, ..)| method != Method::GET);
            writes
                .map(|(method, _, body)| (method.to_string(), body))
                .collect()
        };
        detector.reconcile(&name).await.expect("written");
        let said = json!({"metadata": {"resourceVersion": "1"}, "spec": keeps});
        assert_eq!(written(), [("PATCH".to_owned(), said)]);

        binding["metadata"]["resourceVersion"] = json!("2");
        binding["spec"]["preserveResourcesOnDeletion"] = json!(true);
        bindings.sent(&[binding]).await;
        detector.reconcile(&name).await.expect("deleted");
        let deleted = json!({"preconditions": {"uid": "u"}});
        assert_eq!(written(), [("DELETE".to_owned(), deleted)]);
    }
}

/// The Work of a binding in namespace `n`.
fn work(cluster: &str, version: &str, preserve: bool) -> Value {
    let annotations = json!({BINDING_NAMESPACE: "n", BINDING_NAME: "c-configmap"});
    json!({"metadata": {"namespace": format!("karmada-es-{cluster}"), "name": "c", "resourceVersion": version,
            "annotations": annotations},
        "spec": {"workload": {}, "preserveResourcesOnDeletion": preserve}})
}

/// The bindings of a workload, and of the ConfigMap `c` that follows it, which says last that objects stay.
fn taken_along() -> [Value; 2] {
    let web =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"});
    let on_m1 = json!([{"name": "m1"}]);
    let spec = json!({"resource": web, "propagateDeps": true, "clusters": on_m1});
    let mut workload = object(Some("n"), "web-deployment", &spec);
    let refers = json!([{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"}]);
    workload["metadata"]["labels"] = json!({BINDING_PERMANENT_ID: "i"});
    workload["metadata"]["annotations"] = json!({BINDING_DEPENDENCIES: refers.to_string()});
    let required_by = json!([{"namespace": "n", "name": "web-deployment", "clusters": on_m1}]);
    let spec = json!({"resource": refers[0], "requiredBy": required_by, "preserveResourcesOnDeletion": true});
    let follower = object(Some("n"), "c-configmap", &spec);
    [workload, follower]
}

/// Nobody knows what that one refers to: it may be what it was.
#[tokio::test(start_paused = true)]
async fn what_a_binding_takes_along_stays_while_that_binding_cannot_be_read() {
    let (client, asked) = answering(|_, _| StatusCode::OK);
    let world = unreachable();
    let detector = detector(client, &world);
    let views = &world.propagation;
    let [workload, follower] = taken_along();
    let mut broken = workload.clone();
    broken["spec"]["clusters"] = json!(7);
    let kind = Gvk::new("v1", "ConfigMap").expect("a kind");
    let template = object(Some("n"), "c", &json!({}));
    views.templates.told_of(&kind).listed(&[template]).await;
    let name = TemplateName {
        kind: kind.group_kind(),
        name: ObjectName::new(Some("n"), "c"),
    };
    // The binding of the workload, whether that is decided on, and whether what follows it goes.
    for (parent, is_decided, goes) in [
        (Some(workload), true, false),
        (Some(broken), false, false),
        (None, true, true),
    ] {
        let bindings: Vec<Value> = parent.into_iter().chain([follower.clone()]).collect();
        views.bindings.listed(&bindings).await;
        let done = detector.reconcile(&name).await;
        match is_decided {
            true => assert!(done.is_ok(), "{done:?}"),
            false => assert!(matches!(done, Err(Error::Undecided(_))), "{done:?}"),
        }
        let asked = std::mem::take(&mut *lock(&asked));
        let deletes = asked.iter().any(|(method, ..)| method == Method::DELETE);
        assert_eq!(deletes, goes, "{asked:?}");
    }
}

/// What follows a workload when its own policy let it go, which said last that objects stay.
#[tokio::test(start_paused = true)]
async fn a_binding_says_that_objects_stay_until_the_works_that_it_leaves_do() {
    let (client, asked) = answering(|_, _| StatusCode::OK);
    let world = unreachable();
    let detector = detector(client, &world);
    let queue = Queue::new();
    detector.listen(&queue);
    let woken = || -> Vec<String> {
        let taken = std::iter::from_fn(|| queue.try_next()).inspect(|it| queue.done(it));
        taken.map(|it| it.name.to_string()).collect()
    };
    let views = &world.propagation;
    views.bindings.listed(&taken_along()).await;
    let kind = Gvk::new("v1", "ConfigMap").expect("a kind");
    let template = object(Some("n"), "c", &json!({}));
    views.templates.told_of(&kind).listed(&[template]).await;
    let name = TemplateName {
        kind: kind.group_kind(),
        name: ObjectName::new(Some("n"), "c"),
    };
    // What its binding is told of that, if anything.
    let said = || {
        let asked = std::mem::take(&mut *lock(&asked)).into_iter();
        let mut said = asked.filter_map(|(_, _, body)| {
            let stay = body.pointer("/spec/preserveResourcesOnDeletion");
            stay.cloned()
        });
        said.next()
    };
    let unlisted = detector.reconcile(&name).await.expect("written");
    assert!(matches!(unlisted, Requeue::After(_)), "{unlisted:?}");
    assert_eq!(said(), None, "nobody knows the Works");
    let works = [work("m1", "1", false), work("m3", "1", false)];
    world.works.listed(&works).await;
    let untold = detector.reconcile(&name).await.expect("written");
    assert_eq!(untold, Requeue::Never);
    assert_eq!(said(), None, "that in m3 is not told");
    woken();
    world.works.sent(&[work("m3", "2", true)]).await;
    assert_eq!(woken(), ["n/c"]);
    detector.reconcile(&name).await.expect("written");
    assert_eq!(said(), Some(json!(false)));
    world.works.sent(&[work("m3", "3", true)]).await;
    assert!(woken().is_empty(), "it waits no longer");
}

#[tokio::test]
async fn an_override_is_awaited_by_policies_of_its_namespace_and_no_other_is_looked_at() {
    let world = unreachable();
    let detector = detector(nobody(), &world);
    let views = &world.propagation;
    let kind = deployments();
    let waits = json!({"dependentOverrides": ["o"]});
    let elsewhere = (0..1000).map(|number| format!("other-{number}"));
    let policies = elsewhere
        .chain(["n".to_owned()])
        .map(|namespace| policy(Some(&namespace), &kind, &waits));
    views.policies.listed(&policies.collect::<Vec<_>>()).await;
    let of_hub = policy(None, &kind, &waits);
    views.cluster_policies.listed(&[of_hub]).await;
    let beside = |namespace: Option<&str>| -> Vec<String> {
        let beside = detector.policies_beside(namespace).into_iter();
        beside.map(|it| it.name.to_string()).collect()
    };
    assert_eq!(beside(Some("n")), ["n/p"]);
    assert_eq!(beside(None), ["p"]);

    let template = |namespace: &str| object(Some(namespace), "web", &json!({}));
    let templates = [template("n"), template("other-1")];
    views.templates.told_of(&kind).listed(&templates).await;
    let queue = Queue::new();
    detector.listen(&queue);
    let woken = || -> Vec<String> {
        let taken = std::iter::from_fn(|| queue.try_next()).inspect(|it| queue.done(it));
        taken.map(|it| it.name.to_string()).collect()
    };
    let rules = json!({"overrideRules": []});
    let comes = object(Some("n"), "o", &rules);
    views.overrides.sent(&[comes]).await;
    assert_eq!(woken(), ["n/web"]);
    let comes = object(None, "o", &rules);
    views.cluster_overrides.sent(&[comes]).await;
    assert_eq!(woken(), ["n/web", "other-1/web"]);
}

/// However many share it: each change of it would look at all of them.
#[tokio::test]
async fn what_others_take_along_wakes_the_templates_of_those_that_it_lists_no_longer() {
    let world = unreachable();
    let detector = detector(nobody(), &world);
    let queue = Queue::new();
    detector.listen(&queue);
    let woken = || -> BTreeSet<String> {
        let taken = std::iter::from_fn(|| queue.try_next()).inspect(|it| queue.done(it));
        taken.map(|it| it.name.to_string()).collect()
    };
    let parent = |name: &str| {
        let web =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": name});
        let spec = json!({ "resource": web });
        object(Some("n"), &format!("{name}-deployment"), &spec)
    };
    let follower = |version: u32, parents: &[&str], with: &Value| {
        let listed = parents.iter().map(
            |it| json!({"namespace": "n", "name": format!("{it}-deployment"), "clusters": []}),
        );
        let of = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"});
        let spec = json!({"resource": of, "requiredBy": listed.collect::<Vec<_>>()});
        let mut binding = object(Some("n"), "c-configmap", &spec);
        json_patch::merge(&mut binding, with);
        binding["metadata"]["resourceVersion"] = json!(version.to_string());
        binding
    };
    let views = &world.propagation;
    let none = json!({});
    let all = [parent("a"), parent("b"), follower(1, &["a", "b"], &none)];
    views.bindings.listed(&all).await;
    woken();
    let moved = json!({"spec": {"clusters": [{"name": "m1"}]}});
    let ends = |finalizer: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]}});
    let steps = [
        (follower(2, &["a", "b"], &moved), &["n/c"][..]),
        (follower(3, &["b"], &moved), &["n/a", "n/c"][..]),
        (follower(4, &["b"], &ends(BINDING_FINALIZER)), &["n/c"][..]),
        (follower(5, &["b"], &ends("f")), &["n/b", "n/c"][..]),
    ];
    for (step, wanted) in steps {
        views.bindings.sent(std::slice::from_ref(&step)).await;
        let woken = woken();
        assert!(woken.iter().eq(wanted), "{step}: {woken:?}");
    }
}
