//! What people have of the hub's kinds who were given Kubernetes' own roles, and what they have not.

use anyhow::{Result, ensure};
use common::api::cluster::{Cluster, EXECUTION_SPACE_TERMINATING};
use common::api::work::Work;
use common::labels::{TAINT_NOT_READY, UNREGISTER};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::hub::{Hub, SOON, assert_code};
use crate::env::wait_for;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Binds `user` to a role of Kubernetes', in a namespace or everywhere.
async fn bind(hub: &Hub, user: &str, role: &str, namespace: Option<&str>) -> Result<()> {
    let kind = match namespace {
        Some(_) => "RoleBinding",
        None => "ClusterRoleBinding",
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(RBAC, "v1", kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(hub.admin.clone(), namespace, &resource),
        None => Api::all_with(hub.admin.clone(), &resource),
    };
    let binding = serde_json::from_value(json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind,
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }))?;
    api.create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// `verb group/resource namespace`, `-` for all namespaces.
async fn may(hub: &Hub, user: &str, what: &str) -> Result<bool> {
    let words: Vec<&str> = what.split(' ').collect();
    let (group, resource) = words[1].split_once('/').expect("group/resource");
    let namespace = if words[2] == "-" { "" } else { words[2] };
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": user, "groups": ["system:authenticated"],
        "resourceAttributes": {"verb": words[0], "group": group, "resource": resource,
            "version": "v1alpha1", "namespace": namespace},
    }}))?;
    let api: Api<SubjectAccessReview> = Api::all(hub.admin.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[tokio::test(flavor = "multi_thread")]
async fn view_edit_and_admin_hold_for_the_hubs_kinds() -> Result<()> {
    let hub = Hub::start("attack-roles").await?;
    hub.register("m1", "id-1").await?;
    let namespaces: Api<Namespace> = Api::all(hub.admin.clone());
    let team = serde_json::from_value(json!({"metadata": {"name": "team"}}))?;
    namespaces.create(&PostParams::default(), &team).await?;
    for (user, role, namespace) in [
        ("viewer", "view", Some("team")),
        ("editor", "edit", Some("team")),
        ("chief", "admin", Some("team")),
        ("driver", "edit", Some("karmada-es-m1")),
        ("auditor", "view", None),
    ] {
        bind(&hub, user, role, namespace).await?;
    }
    // The roles are gathered by a controller.
    wait_for("the roles to be gathered", SOON, || async {
        may(
            &hub,
            "chief",
            "update work.karmada.io/resourcebindings team",
        )
        .await
    })
    .await?;
    let policies = "policy.karmada.io/propagationpolicies";
    let (works, clusters) = ("work.karmada.io/works", "cluster.karmada.io/clusters");
    let cases: Vec<(&str, String, bool)> = [
        ("viewer", format!("list {policies} team"), true),
        (
            "viewer",
            "watch policy.karmada.io/overridepolicies team".into(),
            true,
        ),
        (
            "viewer",
            "get work.karmada.io/resourcebindings team".into(),
            true,
        ),
        ("viewer", format!("create {policies} team"), false),
        ("viewer", format!("list {policies} default"), false),
        ("viewer", format!("list {works} team"), false),
        ("viewer", format!("list {clusters} -"), false),
        ("editor", format!("create {policies} team"), true),
        (
            "editor",
            "delete policy.karmada.io/overridepolicies team".into(),
            true,
        ),
        (
            "editor",
            "update work.karmada.io/resourcebindings team".into(),
            false,
        ),
        ("editor", format!("create {works} karmada-es-m1"), false),
        ("editor", format!("get {works} karmada-es-m1"), false),
        ("chief", format!("patch {policies} team"), true),
        ("chief", format!("patch {works} karmada-es-m1"), false),
        ("driver", format!("create {works} karmada-es-m1"), true),
        (
            "driver",
            format!("patch {works}/status karmada-es-m1"),
            false,
        ),
        ("driver", format!("create {works} team"), false),
        ("auditor", format!("list {clusters} -"), true),
        (
            "auditor",
            "list policy.karmada.io/clusterpropagationpolicies -".into(),
            true,
        ),
        ("auditor", format!("list {policies} team"), true),
        ("auditor", format!("list {works} karmada-es-m1"), false),
        ("auditor", format!("patch {clusters} -"), false),
        ("auditor", format!("delete {clusters} -"), false),
    ]
    .into();
    let mut wrong = Vec::new();
    for (user, what, expected) in cases {
        if may(&hub, user, &what).await? != expected {
            wrong.push(format!("{user}: {what}: not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    hub.stop().await
}

/// The namespaces that hold what is the hub's go only when that is meant; what goes is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_of_the_hub_does_not_go_by_slip() -> Result<()> {
    let hub = Hub::start("attack-namespaces").await?;
    let m1 = hub.register("m1", "id-1").await?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
        "reason": "ClusterReady", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    m1.patch_status("m1", ready).await?;
    let namespaces: Api<Namespace> = Api::all(hub.admin.clone());
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    let delete = async |name: &str| namespaces.delete(name, &DeleteParams::default()).await;
    for (name, way) in [
        ("karmada-es-m1", "towline unregister m1`"),
        (
            "karmada-cluster",
            "annotate namespace karmada-cluster towline.dev/unregister=force",
        ),
        (
            "karmada-system",
            "annotate namespace karmada-system towline.dev/unregister=force",
        ),
    ] {
        let message = assert_code(name, delete(name).await, 403);
        assert!(
            message.contains("towline-namespaces") && message.contains(way),
            "{message}"
        );
        let there = namespaces.get(name).await?;
        assert!(there.metadata.deletion_timestamp.is_none(), "{name} goes");
    }

    let kinds: Api<CustomResourceDefinition> = Api::all(hub.admin.clone());
    for kind in ["clusters.cluster.karmada.io", "works.work.karmada.io"] {
        let deleted = kinds.delete(kind, &DeleteParams::default()).await;
        let message = assert_code(kind, deleted, 403);
        let way = format!("kubectl annotate crd {kind} towline.dev/unregister=force");
        ensure!(
            message.contains("towline-definitions") && message.contains(&way),
            "{message}"
        );
        let there = kinds.get(kind).await?;
        ensure!(there.metadata.deletion_timestamp.is_none(), "{kind} goes");
    }

    // Whoever means it is let through; the Cluster says what that means as long as it lasts.
    let works: Api<Work> = Api::namespaced(hub.admin.clone(), "karmada-es-m1");
    let held = serde_json::from_value(json!({
        "metadata": {"name": "w", "finalizers": ["example.com/stay"]},
        "spec": {"workload": {"manifests": []}},
    }))?;
    works.create(&PostParams::default(), &held).await?;
    let force = json!({"metadata": {"annotations": {UNREGISTER: "force"}}});
    let params = PatchParams::default();
    namespaces
        .patch("karmada-es-m1", &params, &Patch::Merge(force))
        .await?;
    let before = namespaces.get("karmada-es-m1").await?.metadata.uid;
    delete("karmada-es-m1").await?;
    let is = async |status: &str| {
        m1.renew_lease().await?;
        let m1 = clusters.get("m1").await?;
        let conditions = m1.status.unwrap_or_default().conditions;
        let shown = conditions
            .iter()
            .find(|c| c.type_ == EXECUTION_SPACE_TERMINATING);
        let tainted = m1
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == TAINT_NOT_READY);
        let shown = shown.is_some_and(|shown| shown.status == status);
        Ok(shown && tainted == (status == "True"))
    };
    wait_for("the Cluster to say that its namespace goes", SOON, || {
        is("True")
    })
    .await?;
    let free = json!({"metadata": {"finalizers": null}});
    works.patch("w", &params, &Patch::Merge(free)).await?;
    wait_for(
        "a new namespace, guarded as the first",
        SOON * 2,
        || async {
            let now = namespaces.get_opt("karmada-es-m1").await?;
            let there = now.is_some_and(|now| now.metadata.uid != before);
            Ok(there && is("False").await? && delete("karmada-es-m1").await.is_err())
        },
    )
    .await?;

    // The hub itself takes it away with the Cluster.
    let told = json!({"metadata": {"annotations": {UNREGISTER: "force"}}});
    clusters.patch("m1", &params, &Patch::Merge(told)).await?;
    clusters.delete("m1", &DeleteParams::default()).await?;
    wait_for("the Cluster and its namespace to go", SOON * 2, || async {
        let (cluster, namespace) = (
            clusters.get_opt("m1").await?,
            namespaces.get_opt("karmada-es-m1").await?,
        );
        Ok(cluster.is_none() && namespace.is_none())
    })
    .await?;
    hub.stop().await
}
