//! Rows H1 and H9, and what else the cluster controller owes.

use anyhow::Result;
use common::api::cluster::{ClusterSpec, SyncMode, Taint, TaintEffect};
use common::api::work::Work;
use common::labels::{CLUSTER_FINALIZER, SYSTEM, UNREGISTER, WORK_FINALIZER};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::play::{Played, SOON, rig};
use crate::env::wait_for;

#[tokio::test]
async fn h1_a_new_cluster_gets_namespace_taint_finalizer_and_models() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let played = Played::create(&client, "h1").await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait_for("the execution namespace of h1", SOON, async || {
        let Some(namespace) = namespaces.get_opt("karmada-es-h1").await? else {
            return Ok(false);
        };
        let labels = namespace.metadata.labels.unwrap_or_default();
        Ok(labels.get(SYSTEM).is_some_and(|value| value == "true"))
    })
    .await?;
    played
        .wait_taints(&["cluster.karmada.io/not-ready:NoSchedule"])
        .await?;
    let cluster = played.get().await?;
    assert_eq!(
        cluster.metadata.finalizers,
        Some(vec![CLUSTER_FINALIZER.to_owned()])
    );
    assert!(cluster.spec.taints[0].time_added.is_some());
    let grades: Vec<i64> = cluster
        .spec
        .resource_models
        .iter()
        .map(|model| model.grade)
        .collect();
    assert_eq!(grades, (0..9).collect::<Vec<i64>>());
    let note = "Created execution space(karmada-es-h1) for cluster(h1).";
    played
        .wait_event("CreateExecutionSpaceSucceed", note)
        .await?;
    let note = "Taint cluster succeed: cluster now has taints([{Key:cluster.karmada.io/not-ready,Effect:NoSchedule}]).";
    played.wait_event("TaintClusterSucceed", note).await?;

    // The namespace comes back when somebody deletes it who says that it is meant.
    let said = json!({"metadata": {"annotations": {UNREGISTER: "force"}}});
    namespaces
        .patch(
            "karmada-es-h1",
            &PatchParams::default(),
            &Patch::Merge(said),
        )
        .await?;
    namespaces
        .delete("karmada-es-h1", &DeleteParams::default())
        .await?;
    let first = cluster.metadata.creation_timestamp;
    wait_for("a new execution namespace of h1", SOON, async || {
        let found = namespaces.get_opt("karmada-es-h1").await?;
        Ok(found.is_some_and(|n| n.metadata.deletion_timestamp.is_none()) && first.is_some())
    })
    .await
}

#[tokio::test]
async fn zone_moves_to_zones_and_no_execute_gets_its_time() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let taint = Taint {
        key: "example.com/maintenance".to_owned(),
        effect: TaintEffect::NoExecute,
        ..Taint::default()
    };
    let spec = ClusterSpec {
        sync_mode: SyncMode::Pull,
        zone: Some("z1".to_owned()),
        taints: vec![taint],
        ..ClusterSpec::default()
    };
    let played = Played::create_with(&client, "zoned", spec).await?;
    wait_for("zones of the cluster", SOON, async || {
        Ok(played.get().await?.spec.zones == ["z1"])
    })
    .await?;
    let spec = played.get().await?.spec;
    assert_eq!(spec.zone, None);
    assert!(
        spec.taints.iter().all(|taint| taint.time_added.is_some()),
        "{:?}",
        spec.taints
    );
    Ok(())
}

#[tokio::test]
async fn h9_a_deleted_cluster_that_is_not_ready_leaves_nothing() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let played = Played::create(&client, "h9").await?;
    played
        .wait_taints(&["cluster.karmada.io/not-ready:NoSchedule"])
        .await?;
    let works: Api<Work> = Api::namespaced(client.clone(), "karmada-es-h9");
    for name in ["w1", "w2"] {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let work: Work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "finalizers": [WORK_FINALIZER]},
            "spec": {"workload": {"manifests": [manifest]}},
        }))?;
        works.create(&PostParams::default(), &work).await?;
    }
    played
        .clusters
        .delete("h9", &DeleteParams::default())
        .await?;
    rig.fleet.wait_gone("h9", SOON * 2).await?;
    played
        .wait_event(
            "RemoveExecutionSpaceSucceed",
            "Removed execution space for cluster(h9).",
        )
        .await?;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(client.clone(), common::names::CLUSTER_NAMESPACE);
    assert!(leases.get_opt("h9").await?.is_none(), "the Lease is left");
    Ok(())
}
