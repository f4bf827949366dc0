//! That nothing an agent writes into metadata keeps its Cluster from going.

use super::*;
use crate::controller::cluster::apply::{delete_all, patch};
use common::api::work::Work;
use common::labels::WORK_FINALIZER;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::json;

/// An object with managedFields that are deeper than kube reads.
fn deep(kind: &str, finalizer: &str) -> String {
    let fields = format!("{}{{}}{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
    format!(
        r#"{{"apiVersion": "v1", "kind": "{kind}", "metadata": {{"name": "a", "uid": "u", "resourceVersion": "3",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other", "{finalizer}"],
        "managedFields": [{{"manager": "agent", "fieldsType": "FieldsV1", "fieldsV1": {fields}}}]}},
        "spec": {{"syncMode": "Pull"}}}}"#
    )
}

/// A client of an API server where the Cluster and its one Work are so.
fn hub() -> Client {
    let service = tower::service_fn(|request: http::Request<Body>| {
        let path = request.uri().path();
        let work = deep("Work", WORK_FINALIZER);
        let (code, body) = if path.ends_with("/works") {
            (200, format!(r#"{{"metadata": {{}}, "items": [{work}]}}"#))
        } else if path.contains("/works/") {
            (200, work)
        } else if path.ends_with("/clusters/m1") {
            (200, deep("Cluster", CLUSTER_FINALIZER))
        } else if path.ends_with("/namespaces/karmada-es-m1") {
            let space = json!({"metadata": {"name": "karmada-es-m1"}});
            (200, space.to_string())
        } else {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "gone"});
            (404, gone.to_string())
        };
        let mut response = http::Response::new(Body::from(body.into_bytes()));
        *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn managed_fields_as_deep_as_an_agent_likes_keep_no_cluster() {
    let name = ClusterName::parse("m1").expect("valid");
    let read = observe(&hub(), &name).await.expect("it is read");
    let read = read.expect("it is there");
    assert!(read.cluster.leaving_for.is_some());
    let left = WorkState {
        name: "a".into(),
        resource_version: "3".into(),
        deleting: true,
        other_finalizers: Some(vec!["other".into()]),
    };
    assert_eq!(read.leftovers.works, [left]);
    let kind = ApiResource::erase::<Work>(&());
    let works: Api<DynamicObject> = Api::namespaced_with(hub(), "karmada-es-m1", &kind);
    let released = json!({"metadata": {"finalizers": ["other"]}});
    patch(&works, "a", &released).await.expect("it is released");
    delete_all(&works).await.expect("all are deleted");
}
