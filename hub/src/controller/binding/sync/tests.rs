//! What becomes of the Works of bindings that go, and of Works whose members a binding leaves.

use super::Sync;
use crate::controller::bindings::{Bindings, Error};
use crate::controller::detector::Unsettled;
use crate::controller::detector::skip::Skips;
use crate::controller::namespace::{NamespaceSync, Spaces};
use crate::controller::notices::Notices;
use crate::world::testing::{Asked, answering, unreachable};
use crate::world::{ObjectName, World};
use common::controller::Reconcile as _;
use common::gvk::Gvk;
use common::labels::{
    BINDING_FINALIZER, BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_FINALIZER,
    CLUSTER_BINDING_NAME, DEPENDENCIES_FINALIZER, POLICY_NAME, POLICY_NAMESPACE,
    POLICY_PERMANENT_ID,
};
use common::lock::lock;
use common::time::SystemClock;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// The Work is told that its objects stay.
const STAY: &str = r#"PATCH {"spec":{"preserveResourcesOnDeletion":true}}"#;
const DELETE: &str = "DELETE {}";
/// The binding that all of this is about.
const NAME: &str = "web-deployment";

struct Rig {
    sync: Arc<Sync>,
    world: World,
    asked: Asked,
}

impl Rig {
    /// Requests about Works, other than their deletion, are answered so.
    fn new(status: StatusCode) -> Self {
        let (client, asked) = answering(move |method, path| {
            let is_change = *method != Method::DELETE && path.contains("/works/");
            if is_change { status } else { StatusCode::OK }
        });
        let world = unreachable();
        let bindings = Bindings::new(client.clone(), world.clone(), Notices::default());
        let spaces = Spaces::watching(Skips::default(), NamespaceSync::Needed, &world);
        let sync = Sync::new(
            client,
            bindings,
            (Unsettled::default(), spaces),
            Arc::new(SystemClock),
            &world,
        );
        Self { sync, world, asked }
    }

    /// The world has this binding, and its Work in m1 that says so what becomes of its objects.
    async fn has(&self, namespace: Option<&str>, binding: Value, preserve: bool) {
        let views = &self.world.propagation;
        let view = match namespace {
            Some(_) => &views.bindings,
            None => &views.cluster_bindings,
        };
        view.listed(&[binding]).await;
        let annotations = match namespace {
            Some(namespace) => json!({BINDING_NAMESPACE: namespace, BINDING_NAME: NAME}),
            None => json!({CLUSTER_BINDING_NAME: NAME}),
        };
        let metadata = json!({"namespace": "karmada-es-m1", "name": "web", "resourceVersion": "1",
            "annotations": annotations});
        let spec = json!({"workload": {}, "preserveResourcesOnDeletion": preserve});
        let work = json!({"metadata": metadata, "spec": spec});
        self.world.works.listed(&[work]).await;
    }

    /// What was asked about Works, and about anything else.
    fn asked(&self) -> (Vec<String>, Vec<String>) {
        let asked = std::mem::take(&mut *lock(&self.asked)).into_iter();
        let (works, others): (Vec<_>, Vec<_>) =
            asked.partition(|(_, path, _)| path.contains("/works/"));
        let works = works
            .iter()
            .map(|(method, _, body)| format!("{method} {body}"));
        let others = others
            .iter()
            .map(|(method, path, _)| format!("{method} {path}"));
        (works.collect(), others.collect())
    }
}

fn binding(namespace: Option<&str>, with: &Value) -> Value {
    let mut binding = json!({
        "metadata": {"name": NAME, "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "t"}},
    });
    if let Some(namespace) = namespace {
        binding["metadata"]["namespace"] = json!(namespace);
        binding["spec"]["resource"]["namespace"] = json!(namespace);
    }
    json_patch::merge(&mut binding, with);
    binding
}

fn ending(namespace: Option<&str>, spec: &Value) -> Value {
    let finalizers = [BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER];
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
    binding(namespace, &json!({"metadata": metadata, "spec": spec}))
}

#[tokio::test]
async fn a_work_is_told_that_its_objects_stay_before_it_is_deleted() {
    // What the binding says, what the Work says, and what is asked about that.
    let cases = [
        (json!(true), false, &[STAY, DELETE][..]),
        (json!(true), true, &[DELETE][..]),
        (json!(false), false, &[DELETE][..]),
        (json!(null), false, &[DELETE][..]),
        (json!(null), true, &[DELETE][..]),
    ];
    for namespace in [Some("n"), None] {
        for (preserve, of_work, wanted) in &cases {
            let rig = Rig::new(StatusCode::OK);
            let spec = json!({ "preserveResourcesOnDeletion": preserve });
            rig.has(namespace, ending(namespace, &spec), *of_work).await;
            let key = ObjectName::new(namespace, NAME);
            rig.sync.reconcile(&key).await.expect("ended");
            let (works, others) = rig.asked();
            assert_eq!(works, *wanted, "{preserve} {of_work}");
            assert_eq!(others.len(), 1, "the binding is let go: {others:?}");
        }
    }
}

#[tokio::test]
async fn a_work_that_cannot_be_told_stays_and_keeps_its_binding() {
    // What the API server answers, and whether the binding goes.
    let cases = [
        (StatusCode::INTERNAL_SERVER_ERROR, false),
        (StatusCode::CONFLICT, false),
        // It is gone, and with it whatever was to be told.
        (StatusCode::NOT_FOUND, true),
    ];
    for (status, goes) in cases {
        let rig = Rig::new(status);
        let spec = json!({"preserveResourcesOnDeletion": true});
        rig.has(Some("n"), ending(Some("n"), &spec), false).await;
        let key = ObjectName::new(Some("n"), NAME);
        let done = rig.sync.reconcile(&key).await;
        let (works, others) = rig.asked();
        assert_eq!(works, [STAY], "{status}");
        assert_eq!((done.is_ok(), others.len() == 1), (goes, goes), "{status}");
    }
}

/// One edit of a policy may say that objects stay and that a member is left.
#[tokio::test]
async fn the_work_of_a_member_that_is_left_is_told_too() {
    for (preserve, wanted) in [(true, &[STAY, DELETE][..]), (false, &[DELETE][..])] {
        let rig = Rig::new(StatusCode::OK);
        let spec = json!({"preserveResourcesOnDeletion": preserve, "clusters": []});
        let binding = binding(Some("n"), &json!({ "spec": spec }));
        rig.has(Some("n"), binding, false).await;
        let kind = Gvk::new("apps/v1", "Deployment").expect("a kind");
        let view = rig.world.propagation.templates.told_of(&kind);
        let template = json!({"metadata": {"namespace": "n", "name": "web", "uid": "t",
            "resourceVersion": "1"}, "spec": {}});
        view.listed(&[template]).await;
        let key = ObjectName::new(Some("n"), NAME);
        rig.sync.reconcile(&key).await.expect("written");
        assert_eq!(rig.asked().0, wanted, "{preserve}");
    }
}

#[tokio::test]
async fn a_binding_that_was_not_told_in_time_goes_by_its_policy_or_by_those_it_follows() {
    let follows = json!([{"namespace": "n", "name": "parent", "clusters": []}]);
    let shows = |policy: &str| {
        json!({"labels": {POLICY_PERMANENT_ID: "i"},
            "annotations": {POLICY_NAMESPACE: "n", POLICY_NAME: policy}})
    };
    // What is in its metadata and its spec, and whether its objects stay.
    let cases = [
        (json!({}), json!({}), false),
        (shows("keeps"), json!({}), true),
        (shows("removes"), json!({}), false),
        (shows("gone"), json!({}), false),
        (json!({}), json!({ "requiredBy": follows }), true),
        // Where a policy of its own says what happens, it alone does.
        (
            shows("removes"),
            json!({"requiredBy": follows, "placement": {}}),
            false,
        ),
    ];
    let policy = |name: &str, preserve: bool| {
        let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}, "spec": {
            "resourceSelectors": [selector], "placement": {}, "preserveResourcesOnDeletion": preserve}})
    };
    let mut parent = ending(Some("n"), &json!({"preserveResourcesOnDeletion": true}));
    parent["metadata"]["name"] = json!("parent");
    for (metadata, spec, wanted) in cases {
        let rig = Rig::new(StatusCode::OK);
        let views = &rig.world.propagation;
        let policies = [policy("keeps", true), policy("removes", false)];
        views.policies.listed(&policies).await;
        let with = json!({"metadata": metadata, "spec": spec});
        let mut binding = ending(Some("n"), &json!({}));
        json_patch::merge(&mut binding, &with);
        views.bindings.listed(&[parent.clone(), binding]).await;
        let held = views.binding(&ObjectName::new(Some("n"), NAME));
        let held = held.expect("held");
        assert_eq!(rig.sync.preserves(&held.binding), wanted, "{with}");
    }
}

#[tokio::test]
async fn a_binding_that_goes_waits_for_no_other_that_goes_and_not_for_itself() {
    let both = [BINDING_FINALIZER, DEPENDENCIES_FINALIZER];
    let lists = |name: &str| json!([{"namespace": "n", "name": name, "clusters": []}]);
    let going = |finalizers: &[&str]| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers});
    // What is in the metadata of the other one, what the binding that goes lists, and what still keeps it then.
    let cases = [
        (json!({}), "other", &[DEPENDENCIES_FINALIZER][..]),
        // Its Works may still have to be told what this one says of their objects.
        (going(&both), "other", &[DEPENDENCIES_FINALIZER][..]),
        (going(&[DEPENDENCIES_FINALIZER]), "other", &[][..]),
        (going(&["foreign"]), NAME, &[][..]),
    ];
    for (metadata, listed, wanted) in cases {
        let rig = Rig::new(StatusCode::OK);
        let mut web = ending(Some("n"), &json!({ "requiredBy": lists(listed) }));
        web["metadata"]["finalizers"] = json!(both);
        let with = json!({"metadata": metadata, "spec": {"requiredBy": lists(NAME)}});
        let mut other = binding(Some("n"), &with);
        other["metadata"]["name"] = json!("other");
        let views = &rig.world.propagation;
        views.bindings.listed(&[other, web]).await;
        let key = ObjectName::new(Some("n"), NAME);
        rig.sync.reconcile(&key).await.expect("ended");
        let asked = std::mem::take(&mut *lock(&rig.asked));
        let kept: Vec<&Value> = asked
            .iter()
            .map(|(_, _, body)| &body["metadata"]["finalizers"])
            .collect();
        assert_eq!(kept, [&json!(wanted)], "{with}");
    }
}

/// Whoever made it is told why nothing comes of it; it is not asked whether there is such a template.
#[tokio::test]
async fn a_binding_that_names_a_template_elsewhere_says_so_and_gets_no_work() {
    for is_there in [true, false] {
        let rig = Rig::new(StatusCode::OK);
        let views = &rig.world.propagation;
        let spec = json!({"clusters": [{"name": "m1"}]});
        let mut x = binding(Some("theirs"), &json!({ "spec": spec }));
        x["metadata"]["namespace"] = json!("mine");
        x["metadata"]["name"] = json!("x");
        views.bindings.listed(&[x]).await;
        let kind = Gvk::new("apps/v1", "Deployment").expect("a kind");
        let view = views.templates.told_of(&kind);
        let web = json!({"metadata": {"namespace": "theirs", "name": "web", "uid": "t",
            "resourceVersion": "1"}, "spec": {}});
        let there = if is_there { vec![web] } else { Vec::new() };
        view.listed(&there).await;
        let key = ObjectName::new(Some("mine"), "x");
        let done = rig.sync.reconcile(&key).await;
        assert!(matches!(done, Err(Error::Impossible(_))), "{done:?}");
        let asked = std::mem::take(&mut *lock(&rig.asked));
        assert_eq!(asked.len(), 1, "{asked:?}");
        let (method, path, body) = &asked[0];
        let status = "/namespaces/mine/resourcebindings/x/status";
        assert!(*method == Method::PATCH && path.ends_with(status), "{path}");
        let told = &body["status"]["conditions"][0];
        assert_eq!(
            (&told["type"], &told["status"]),
            (&json!("Degraded"), &json!("True"))
        );
        let words = "the binding is of namespace mine, its template of namespace theirs";
        assert_eq!(told["message"], json!(words));
    }
}
