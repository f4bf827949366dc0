//! What is read of a Cluster, and what is held of it.

use super::*;
use crate::world::{Object, Record};
use kube::client::Body;
use serde_json::json;

#[test]
fn a_cluster_is_read_whatever_its_status_holds() {
    let view: ClusterView = serde_json::from_value(json!({
        "metadata": {
            "name": "m1", "uid": "u", "resourceVersion": "7",
            "annotations": {"towline.dev/unregister": "keep-workloads", CLOSING_WATCHES: "x"},
        },
        "spec": {"syncMode": "Pull", "zone": "z"},
        "status": {"conditions": [7, {"type": "Ready", "status": "True"}], "nodeSummary": "odd"},
    }))
    .expect("decodes");
    let state = view.state();
    assert_eq!(state.ready.as_deref(), Some("True"));
    assert_eq!(state.mode, Some(Mode::KeepWorkloads));
    assert_eq!(state.zone.as_deref(), Some("z"));
    assert!(state.pull && !state.acknowledged && !state.quarantined);
    assert!(!state.acknowledges, "nobody registered it");
    assert_eq!(state.closing_watches.as_deref(), Some("x"));
}

/// What is held of a Cluster that lives, and of its namespace, is what would be read.
#[test]
fn what_is_held_decides_as_what_is_read() {
    let conditions = |ready: &str, terminating: &str| {
        json!([{"type": "Ready", "status": ready},
            {"type": EXECUTION_SPACE_TERMINATING, "status": terminating}])
    };
    let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    let settled = json!({
        "metadata": {"name": "m1", "uid": "u", "resourceVersion": "7", "generation": 1,
            "finalizers": ["karmada.io/cluster-controller"],
            "annotations": {REGISTRATION_ID: "x"}},
        "spec": {"syncMode": "Push", "zones": ["a", "b"], "taints": [taint]},
        "status": {"conditions": conditions("True", "False")},
    });
    let with = |path: &str, value: Value| {
        let mut changed = settled.clone();
        *changed.pointer_mut(path).expect("there") = value;
        changed
    };
    let clusters = [
        settled.clone(),
        with("/metadata/finalizers", json!(["x"])),
        with("/metadata/annotations", json!({})),
        with("/spec", json!({"syncMode": "Pull", "zone": "z"})),
        with(
            "/spec",
            json!({"syncMode": "Pull", "zone": "", "taints": null}),
        ),
        with("/status/conditions", conditions("Unknown", "True")),
        with("/status/conditions", json!([7])),
        with("/status", json!(null)),
    ];
    let space = |owner: &str| {
        json!({"metadata": {"labels": {SYSTEM: MANAGED_VALUE},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Cluster", "name": "m1", "uid": owner}]}})
    };
    let mut gone = space("u");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let name = ClusterName::parse("m1").expect("valid");
    for cluster in &clusters {
        for namespace in [Some(space("u")), Some(space("v")), Some(gone.clone()), None] {
            let view: ClusterView = serde_json::from_value(cluster.clone()).expect("decodes");
            let read = Observed {
                name: name.clone(),
                cluster: view.state(),
                namespace: namespace
                    .as_ref()
                    .map_or(NamespaceState::Absent, |namespace| {
                        let metadata = namespace["metadata"].clone();
                        namespace_state(&serde_json::from_value(metadata).expect("is"), "u")
                    }),
                leftovers: Leftovers::default(),
            };
            let held_cluster = held(cluster);
            let held_space = namespace.as_ref().map(held);
            let mut known = crate::controller::cluster::held::observed(
                &name,
                &held_cluster,
                held_space.as_ref(),
            )
            .expect("it lives");
            // Only an end asks for them.
            known.cluster.acknowledges = read.cluster.acknowledges;
            known.cluster.pull = read.cluster.pull;
            known
                .cluster
                .registration
                .clone_from(&read.cluster.registration);
            assert_eq!(known, read, "{cluster} {namespace:?}");
        }
    }
}

/// Of the agent's two bindings either may be there alone; the one in the namespace counts as long as it waits for
/// the hub.
#[tokio::test]
async fn rights_are_there_while_either_binding_is() {
    let name = ClusterName::parse("m1").expect("valid");
    // Whether there is a ClusterRoleBinding, the finalizers of the RoleBinding, whether rights are there.
    let ours: &[&str] = &[REGISTRATION_FINALIZER];
    let cases: [(bool, Option<&[&str]>, bool); 7] = [
        (true, Some(ours), true),
        (true, None, true),
        (false, Some(ours), true),
        (false, Some(&["theirs", REGISTRATION_FINALIZER]), true),
        (false, Some(&["theirs"]), false),
        (false, Some(&[]), false),
        (false, None, false),
    ];
    for (bound, finalizers, want) in cases {
        let client = bindings(bound, finalizers);
        let found = leftovers(&client, &name, NamespaceState::Terminating).await;
        let found = found.expect("it is read");
        assert_eq!(found.rights(), want, "{bound} {finalizers:?}");
        assert_eq!(found.works, [], "{bound} {finalizers:?}");
    }
}

/// A client of an API server with these bindings and no Works.
fn bindings(bound: bool, finalizers: Option<&[&str]>) -> Client {
    let named = |finalizers: &[&str]| json!({"metadata": {"name": "b", "finalizers": finalizers}});
    let none: &[&str] = &[];
    let cluster_wide = bound.then(|| named(none));
    let namespaced = finalizers.map(named);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path();
        let found = if path.ends_with("/works") {
            Some(
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {}, "items": []}),
            )
        } else if path.ends_with("/clusterrolebindings/towline:cluster:m1") {
            cluster_wide.clone()
        } else if path.ends_with("/namespaces/karmada-es-m1/rolebindings/towline:agent") {
            namespaced.clone()
        } else {
            None
        };
        let (code, body) = match found {
            Some(object) => (200, object),
            None => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "NotFound", "code": 404, "message": "gone"}),
            ),
        };
        let mut response = http::Response::new(Body::from(body.to_string().into_bytes()));
        *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    Client::new(service, "default")
}

fn held<R: Record>(object: &Value) -> Object<R> {
    let text = object.to_string();
    Object {
        version: "7".into(),
        bytes: 0,
        record: R::read(&text).expect("an object").map(Into::into),
    }
}

#[test]
fn a_cluster_that_ends_is_read() {
    let cluster = held(&json!({
        "metadata": {"name": "m1", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }));
    let name = ClusterName::parse("m1").expect("valid");
    assert_eq!(
        crate::controller::cluster::held::observed(&name, &cluster, None),
        None
    );
}

#[test]
fn a_work_without_our_finalizer_is_not_ours_to_release() {
    let state = |finalizers: &[&str]| {
        let finalizers = finalizers.iter().map(|&f| f.to_owned()).collect();
        work_state(MetadataView {
            finalizers: Some(finalizers),
            ..MetadataView::default()
        })
    };
    assert_eq!(state(&["x"]).other_finalizers, None);
    assert_eq!(
        state(&["x", WORK_FINALIZER]).other_finalizers,
        Some(vec!["x".to_owned()])
    );
}
