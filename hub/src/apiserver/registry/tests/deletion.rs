//! Deletions, finalizers, namespaces.

use crate::apiserver::registry::testing::{Rig, json_body, value};
use crate::apiserver::request::PatchKind;
use serde_json::json;

const PATH: &str = "v1/ns:configmaps/a";

#[tokio::test]
async fn without_finalizers_an_object_goes_at_once() {
    let rig = Rig::new().await;
    let made = rig
        .create("v1/ns:configmaps", json!({"metadata": {"name": "a"}}))
        .await;
    let error = rig
        .delete(PATH, json!({"preconditions": {"uid": "x"}}))
        .await
        .expect_err("another object");
    assert_eq!(error.code, 409);
    assert!(
        error.message.starts_with(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x)"
        ),
        "{error}"
    );
    let status = rig.delete(PATH, json!({})).await.expect("deleted");
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}})
    );
    assert_eq!(
        rig.delete(PATH, json!({}))
            .await
            .map_err(|error| error.code),
        Err(404)
    );
}

#[tokio::test]
async fn finalizers_keep_an_object_until_the_last_is_gone() {
    let rig = Rig::new().await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.y/1", "x.y/2"]}});
    rig.create("v1/ns:configmaps", body).await;
    let marked = rig.delete(PATH, json!({})).await.expect("marked");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = rig.delete(PATH, json!({})).await.expect("still marked");
    assert_eq!(again, marked);
    let more = json!({"metadata": {"finalizers": ["x.y/1", "x.y/3"]}});
    let error = rig
        .patch(PATH, PatchKind::Merge, more)
        .await
        .expect_err("no new ones");
    assert!(
        error.message.contains("no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.y/3\"}"),
        "{error}"
    );
    let context = rig.context("v1/ns:configmaps");
    let error = rig
        .registry
        .create(&context, json_body(&json!({"metadata": {"name": "a"}})))
        .await
        .expect_err("is still there");
    assert_eq!(
        error.message,
        "object is being deleted: configmaps \"a\" already exists"
    );
    let nothing = rig.patch(PATH, PatchKind::Merge, json!({})).await;
    let nothing = nothing.expect("a patch of nothing").object;
    assert_eq!(value(&nothing), marked, "which writes nothing");
    let none = json!({"metadata": {"finalizers": null}});
    rig.patch(PATH, PatchKind::Merge, none)
        .await
        .expect("the last goes");
    assert_eq!(rig.get(PATH).await.map_err(|error| error.code), Err(404));
}

#[tokio::test]
async fn propagation_is_a_finalizer() {
    let rig = Rig::new().await;
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        rig.create("v1/ns:configmaps", json!({"metadata": {"name": "a"}}))
            .await;
        let marked = rig
            .delete(PATH, json!({"propagationPolicy": policy}))
            .await
            .expect("marked");
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        let gone = rig
            .delete(PATH, json!({"propagationPolicy": "Background"}))
            .await
            .expect("gone");
        assert_eq!(gone["status"], "Success");
    }
}

#[tokio::test]
async fn namespaces_end_in_two_steps() {
    let rig = Rig::new().await;
    let ns = rig.get("v1/namespaces/ns").await.expect("there");
    assert_eq!(ns["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(ns["status"], json!({"phase": "Active"}));
    assert_eq!(
        ns["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "ns"
    );
    let ending = rig
        .delete("v1/namespaces/ns", json!({}))
        .await
        .expect("ending");
    assert_eq!(ending["status"]["phase"], "Terminating");
    let error = rig
        .registry
        .create(
            &rig.context("v1/ns:configmaps"),
            json_body(&json!({"metadata": {"name": "a"}})),
        )
        .await
        .expect_err("takes nothing new");
    assert_eq!(error.code, 403);
    assert_eq!(
        error.to_status()["details"]["causes"][0],
        json!({"reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": "namespace ns is being terminated"})
    );
    let mut finalized = ending.clone();
    finalized["spec"]["finalizers"] = json!([]);
    rig.update("v1/namespaces/ns/finalize", finalized)
        .await
        .expect("finalized");
    assert_eq!(
        rig.get("v1/namespaces/ns")
            .await
            .map_err(|error| error.code),
        Err(404)
    );
    let error = rig
        .delete("v1/namespaces/default", json!({}))
        .await
        .expect_err("never");
    assert_eq!(
        error.message,
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}
