use super::*;
use crate::cli::error::scripted;
use crate::explain::{Cause, Stage};
use serde_json::json;

const SAYS: &str = "Namespace shop is held until 2030-01-01T00:00:00Z";

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn list(items: &[&Value]) -> Option<(u16, Value)> {
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    Some((200, list))
}

/// A hub with the Namespace shop, and the cluster m1 where it is held.
fn hub() -> Client {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
        "spec": {"syncMode": "Pull"}, "status": {"conditions": [condition("Ready", "ClusterReady", "")]}});
    let conditions = [
        condition("Applied", "AppliedSuccessful", ""),
        condition("Degraded", "HealingPaused", SAYS),
    ];
    let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "shop-1", "namespace": "karmada-es-m1"},
        "spec": {"workload": {"manifests": [space]}}, "status": {"conditions": conditions}});
    let namespaces = json!({"resource": "namespaces", "responseKind": {"group": "", "version": "v1", "kind":
        "Namespace"}, "scope": "Cluster", "singularResource": "namespace", "verbs": ["get", "list"]});
    let core = json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [namespaces]}]});
    let (client, _) = scripted::hub(move |ask| match ask.path.rsplit('/').next()? {
        "readyz" => Some((200, json!("ok"))),
        "api" => list(&[&core]),
        "clusters" => list(&[&cluster]),
        "works" => list(&[&work]),
        "m1" if ask.path.contains("/clusters/") => Some((200, cluster.clone())),
        "shop-1" => Some((200, work.clone())),
        "shop" => Some((200, space.clone())),
        "m1" | "shop-namespace" => scripted::refusal(404, "not found"),
        _ => list(&[]),
    });
    client
}

#[tokio::test]
async fn what_members_say_of_works_is_told_whatever_is_asked() {
    let client = hub();
    let known = Hub::discover(client.clone()).await.expect("types");
    let asked = [
        ("cluster", cluster(&client, "m1").await),
        ("work", work(&client, "karmada-es-m1", "shop-1").await),
        (
            "template",
            template(&known, "namespaces", "default", "shop").await,
        ),
    ];
    for (asked, report) in asked {
        let report = report.expect(asked);
        let broken = report.broken.as_ref().expect(asked);
        assert_eq!(
            (broken.stage, broken.cause),
            (Stage::Work, Cause::Suspended)
        );
        assert_eq!(broken.what, format!("m1, work/shop-1: {SAYS}"), "{asked}");
        let command = "kubectl annotate namespace shop towline.dev/hold-until-";
        assert_eq!(broken.mend.commands, [command], "{asked}");
        assert!(!report.well, "{asked}");
    }
}
