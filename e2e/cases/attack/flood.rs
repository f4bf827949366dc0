//! An agent that fills the hub, and people who change what an agent may do.

use anyhow::Result;
use common::api::cluster::{Cluster, DUPLICATE_ID, QUARANTINED, WROTE_TOO_MUCH};
use common::api::work::Work;
use common::labels::QUARANTINED_SINCE;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::anew::{Spy, write_work};
use super::hub::{Draft, Hub, SOON, TokenLimits, assert_code};
use super::request::{RequestBuilder, TestKey};
use crate::env::wait_for;

/// 4 MiB: the default takes a lot of writing.
const BUDGET: &str = "--cluster-write-budget=4194304";
/// Far more than the budget.
const WRITES_MAX: u32 = 400;

/// Writes of others: of 100 KiB each, twice the budget.
const OTHERS_WRITES: u32 = 80;

/// A status of more than 100 KiB that differs each time.
fn large_status(number: u32) -> Value {
    let groups: Vec<Value> = (0..400)
        .map(|group| json!({"groupVersion": format!("{group}-{number}-{}", "x".repeat(280))}))
        .collect();
    json!({"status": {"apiEnablements": groups}})
}

async fn is_quarantined(clusters: &Api<Cluster>, name: &str) -> Result<Option<bool>> {
    let told = told(clusters, name).await?;
    Ok(told.map(|condition| condition.status == "True"))
}

/// Whether it is, for this reason.
async fn is_quarantined_for(clusters: &Api<Cluster>, name: &str, reason: &str) -> Result<bool> {
    let told = told(clusters, name).await?;
    Ok(told.is_some_and(|condition| condition.status == "True" && condition.reason == reason))
}

async fn told(clusters: &Api<Cluster>, name: &str) -> Result<Option<Condition>> {
    let cluster = clusters.get(name).await?;
    Ok(cluster.condition(QUARANTINED).cloned())
}

/// The flood ends in Quarantined, and no other heartbeat fails meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_ends_in_quarantine() -> Result<()> {
    let hub = Hub::start_with("attack-flood", &[BUDGET]).await?;
    let m1 = hub.register("m1", "id-1").await?;
    let m2 = Arc::new(hub.register("m2", "id-2").await?);
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());

    let (done, beats) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let heartbeats = tokio::spawn({
        let (m2, done, beats) = (Arc::clone(&m2), Arc::clone(&done), Arc::clone(&beats));
        async move {
            let mut pace = tokio::time::interval(Duration::from_millis(100));
            while !done.load(Ordering::SeqCst) {
                pace.tick().await;
                m2.renew_lease().await?;
                beats.fetch_add(1, Ordering::SeqCst);
            }
            anyhow::Ok(())
        }
    });
    // What it had opened before is worth as little as its certificate, once the condition says so.
    write_work(&hub, "first").await?;
    let spy = Spy::on(&m1.client).await?;
    wait_for("the first Work to be seen", SOON, || async {
        Ok(spy.has_heard("first"))
    })
    .await?;
    let mut refused = None;
    for number in 0..WRITES_MAX {
        match m1.patch_status("m1", large_status(number)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                refused = Some(number);
                break;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let refused = refused.expect("the flood was never refused");
    assert!(
        refused >= 30,
        "refused after {refused} writes of 115 KiB: before the budget was spent"
    );
    wait_for("the condition", SOON, || {
        is_quarantined_for(&clusters, "m1", WROTE_TOO_MUCH)
    })
    .await?;
    write_work(&hub, "second").await?;
    wait_for("its watch to end", SOON, || async {
        Ok(spy.task.is_finished())
    })
    .await?;
    assert!(!spy.has_heard("second"), "a watch outlived the rights");
    let heard = beats.load(Ordering::SeqCst);
    wait_for("more heartbeats", SOON, || async {
        Ok(beats.load(Ordering::SeqCst) > heard)
    })
    .await?;
    done.store(true, Ordering::SeqCst);
    heartbeats.await??;
    assert_eq!(is_quarantined(&clusters, "m2").await?, None);

    // The way back that the condition names.
    let lift = json!({"metadata": {"annotations": {QUARANTINED_SINCE: null}}});
    clusters
        .patch("m1", &PatchParams::default(), &Patch::Merge(lift))
        .await?;
    wait_for("the rights to be back", SOON, || async {
        Ok(m1.renew_lease().await.is_ok() && is_quarantined(&clusters, "m1").await? == Some(false))
    })
    .await?;

    // Somebody takes the same rights by hand: nothing is said of what it wrote.
    let hold = json!({"metadata": {"annotations": {QUARANTINED_SINCE: "2026-01-01T00:00:00Z"}}});
    clusters
        .patch("m1", &PatchParams::default(), &Patch::Merge(hold))
        .await?;
    wait_for("the other reason", SOON, || async {
        Ok(m1.renew_lease().await.is_err()
            && is_quarantined_for(&clusters, "m1", "Annotated").await?)
    })
    .await?;
    hub.stop().await
}

/// What a stranger's refused requests and an operator's labels make the hub write is not the agent's.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_quarantines_nobody() -> Result<()> {
    let hub = Hub::start_with("attack-framed", &[BUDGET]).await?;
    let m1 = hub.register("m1", "id-1").await?;
    let m2 = hub.register("m2", "id-2").await?;
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    // Each write of either object is more than 100 KiB.
    m1.patch_status("m1", large_status(0)).await?;
    let work = |cluster: &str| -> Api<Work> {
        Api::namespaced(hub.admin.clone(), &format!("karmada-es-{cluster}"))
    };
    for cluster in ["m1", "m2"] {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "default"}, "data": {"d": "x".repeat(150_000)}});
        let large = serde_json::from_value(json!({
            "metadata": {"name": "w"}, "spec": {"workload": {"manifests": [manifest]}},
        }))?;
        work(cluster).create(&PostParams::default(), &large).await?;
    }

    // The holder of an unbound token who knows m1's cluster id asks for it under name after name.
    let token = hub.token(TokenLimits::default()).await?;
    for number in 0..OTHERS_WRITES {
        let key = TestKey::generate();
        let name = format!("stranger-{number}");
        let mut draft = Draft::new(RequestBuilder::rightful(&key, &name).pem(&key));
        draft.cluster_id = Some("id-1".to_owned());
        let outcome = hub.try_register(&token, &draft).await?;
        outcome.assert_denied("a duplicate cluster id", "ClusterIdTaken");
    }
    wait_for("the duplicate to be shown", SOON, || async {
        let status = clusters.get("m1").await?.status.unwrap_or_default();
        let shown = status.conditions.iter().find(|c| c.type_ == DUPLICATE_ID);
        Ok(shown.is_some_and(|shown| !shown.message.contains("stranger")))
    })
    .await?;
    // An operator labels a large Work.
    for number in 0..OTHERS_WRITES {
        let label = json!({"metadata": {"labels": {"round": number.to_string()}}});
        let params = PatchParams {
            field_manager: Some("kubectl-label".to_owned()),
            ..PatchParams::default()
        };
        work("m1").patch("w", &params, &Patch::Merge(label)).await?;
    }

    // Its rightful twin is heard after all that: m2's agent writes as much itself.
    let own: Api<Work> = Api::namespaced(m2.client.clone(), "karmada-es-m2");
    let mut refused = false;
    for number in 0..WRITES_MAX {
        let status = json!({"status": {"conditions": [{"type": "Applied", "status": "True",
            "reason": "R", "message": number.to_string(), "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let patched = own
            .patch_status("w", &PatchParams::default(), &Patch::Merge(status))
            .await;
        match patched {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                refused = true;
                break;
            }
            Err(other) => return Err(other.into()),
        }
    }
    assert!(refused, "the agent that wrote too much was never refused");
    wait_for("the condition of m2", SOON, || async {
        Ok(is_quarantined(&clusters, "m2").await? == Some(true))
    })
    .await?;
    assert_eq!(is_quarantined(&clusters, "m1").await?, None);
    m1.patch_status("m1", json!({"status": {"kubernetesVersion": "v1"}}))
        .await?;
    hub.stop().await
}

/// An agent cannot write in another's name, which would count for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_in_its_own_name() -> Result<()> {
    let hub = Hub::start("attack-manager").await?;
    let m1 = hub.register("m1", "id-1").await?;
    let own: Api<Cluster> = Api::all(m1.client.clone());
    let clusters: Api<Cluster> = Api::all(hub.admin.clone());
    let write = async |manager: &str, version: &str| {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let status = Patch::Merge(json!({"status": {"kubernetesVersion": version}}));
        own.patch_status("m1", &params, &status).await
    };
    for manager in ["towline-hub", "kubectl", "karmada", "flood"] {
        let message = assert_code(manager, write(manager, manager).await, 403);
        assert!(message.contains("field manager"), "{message}");
    }
    for manager in ["towline-agent", "towline-agent-2", "karmada-agent"] {
        write(manager, manager).await?;
    }
    let version = clusters.get("m1").await?.status.unwrap_or_default();
    assert_eq!(version.kubernetes_version.as_deref(), Some("karmada-agent"));
    hub.stop().await
}

/// What somebody adds to an agent's permissions, or takes from them, does not last.
#[tokio::test(flavor = "multi_thread")]
async fn permissions_stay_as_the_hub_wrote_them() -> Result<()> {
    let hub = Hub::start("attack-drift").await?;
    let m1 = hub.register("m1", "id-1").await?;
    let m2 = hub.register("m2", "id-2").await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(hub.admin.clone());
    let mut stranger = bindings
        .get("towline:cluster:m1")
        .await?
        .subjects
        .unwrap_or_default();
    stranger.extend(
        bindings
            .get("towline:cluster:m2")
            .await?
            .subjects
            .unwrap_or_default(),
    );
    assert_eq!(stranger.len(), 2);
    let more = json!({"subjects": stranger});
    bindings
        .patch(
            "towline:cluster:m1",
            &PatchParams::default(),
            &Patch::Merge(more),
        )
        .await?;
    wait_for("the stranger to go", SOON, || async {
        let live = bindings.get("towline:cluster:m1").await?;
        Ok(live.subjects.is_some_and(|subjects| subjects.len() == 1))
    })
    .await?;
    wait_for("m2 to be refused again", SOON, || async {
        Ok(m2.patch_status("m1", json!({})).await.is_err())
    })
    .await?;

    let works: Api<RoleBinding> = Api::namespaced(hub.admin.clone(), "karmada-es-m1");
    let free = json!({"metadata": {"finalizers": null}});
    works
        .patch(
            "towline:agent",
            &PatchParams::default(),
            &Patch::Merge(free),
        )
        .await?;
    works
        .delete("towline:agent", &DeleteParams::default())
        .await?;
    wait_for(
        "the binding to be back, with its finalizer",
        SOON,
        || async {
            let live = works.get_opt("towline:agent").await?;
            Ok(live.is_some_and(|live| {
                live.metadata.deletion_timestamp.is_none() && live.metadata.finalizers.is_some()
            }))
        },
    )
    .await?;
    m1.patch_status("m1", json!({})).await?;
    hub.stop().await
}
