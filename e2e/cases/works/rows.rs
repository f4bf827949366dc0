//! The rows A15 to A33 of the behaviour that Works of the reference show, one function each.
//!
//! They share one lab and one engine, and each has objects of its own.

use super::rig::{EXECUTION, Rig, Running, SOON, condition, config_map};
use crate::env::wait_for;
use agent::context::ClusterView;
use agent::execution::pace::LONGEST;
use anyhow::{Result, ensure};
use common::labels::{
    CONFLICT_RESOLUTION, MANAGED, RETAIN_REPLICAS, TEMPLATE_GENERATION, WORK_FINALIZER, WORK_NAME,
    WORK_NAMESPACE,
};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

type Row = for<'a> fn(&'a Rig, &'a Running) -> LocalBoxFuture<'a, Result<()>>;

macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), (|rig, run| $name(rig, run).boxed_local()) as Row)),*]
    };
}

/// Every row, all at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn works_rows() -> Result<()> {
    let rig = Rig::start("works-rows").await?;
    let running = rig.run().await?;
    let rows = rows![
        a15_config_map,
        a16_unmanaged_object,
        a18_a19_drift,
        a20_status_only,
        a21_dropped_label,
        a22_service,
        a23_replicas,
        a24_suspension,
        a25_deletion,
        a26_preserved,
        a27_not_ready_on_the_hub,
        a28_second_manifest_bad,
        a29_rollout,
        a30_kind_without_rule,
        a31_pod,
        a32_claim_and_balancer,
        a33_generation_of_the_template,
    ];
    let ended = futures::future::join_all(rows.map(|(name, row)| {
        let (rig, running) = (&rig, &running);
        async move { (name, row(rig, running).await) }
    }))
    .await;
    let mut failed = Vec::new();
    for (name, result) in ended {
        match result {
            Ok(()) => println!("{name} holds"),
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    if let Some(text) = running.context.errors.text() {
        println!("the engine says: {text}");
    }
    running.stop().await;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    rig.passed().await;
    Ok(())
}

async fn edit(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<Value> {
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    let object = api.patch(name, &params, &Patch::Merge(patch)).await?;
    Ok(serde_json::to_value(object)?)
}

async fn a15_config_map(rig: &Rig, run: &Running) -> Result<()> {
    rig.deliver("a15", &[config_map("a15", &json!({"k": "v"}))])
        .await?;
    let status = rig.applied("a15", "True", "").await?;
    let applied = condition(&status, "Applied").expect("just seen");
    ensure!(applied["reason"] == "AppliedSuccessful", "{applied}");
    ensure!(
        applied["message"] == "Manifest has been successfully applied",
        "{applied}"
    );
    let dispatching = condition(&status, "Dispatching").cloned();
    ensure!(
        dispatching.as_ref().is_some_and(|c| c["status"] == "True"),
        "{dispatching:?}"
    );
    let manifest = &status["manifestStatuses"][0];
    ensure!(
        manifest["identifier"]["ordinal"] == 0 && manifest["health"] == "Healthy",
        "{status}"
    );
    let mut asked = run.member.asked();
    asked.retain(|line| line.contains("configmaps/a15"));
    ensure!(
        asked.len() == 1,
        "an object that is new costs more: {asked:?}"
    );
    let live = rig.live(&rig.maps(), "a15", |_| true).await?;
    let metadata = &live["metadata"];
    ensure!(live["data"]["k"] == "v" && metadata["labels"][MANAGED] == "true");
    ensure!(metadata["annotations"][WORK_NAME] == "a15");
    ensure!(metadata["annotations"][WORK_NAMESPACE] == EXECUTION);
    let work = rig.works().get("a15").await?;
    ensure!(
        work.metadata
            .finalizers
            .iter()
            .flatten()
            .any(|f| f == WORK_FINALIZER)
    );
    let events: Api<Event> = Api::namespaced(rig.hub.clone(), EXECUTION);
    wait_for("the Event", SOON, || async {
        let fields = ListParams::default().fields("involvedObject.name=a15");
        let list = events.list(&fields).await?;
        let want = format!("Sync work({EXECUTION}/a15) to cluster(member1) successful.");
        Ok(list.iter().any(|e| {
            e.reason.as_deref() == Some("SyncSucceed") && e.message.as_deref() == Some(&want)
        }) && list
            .iter()
            .any(|e| e.reason.as_deref() == Some("WorkDispatching")))
    })
    .await
}

async fn a16_unmanaged_object(rig: &Rig, _: &Running) -> Result<()> {
    let theirs: DynamicObject =
        serde_json::from_value(config_map("a16", &json!({"k": "theirs", "own": "x"})))?;
    let made = rig.maps().create(&PostParams::default(), &theirs).await?;
    rig.deliver("a16", &[config_map("a16", &json!({"k": "ours"}))])
        .await?;
    let status = rig.applied("a16", "False", "already exists").await?;
    let applied = condition(&status, "Applied").expect("just seen");
    ensure!(applied["reason"] == "AppliedFailed");
    ensure!(
        applied["message"]
            == "Failed to apply all manifests (0/1): resource(kind=ConfigMap, default/a16) already exists in the cluster member1 and the work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource",
        "{applied}"
    );
    let now = rig.maps().get("a16").await?;
    ensure!(
        now.metadata.resource_version == made.metadata.resource_version,
        "touched"
    );
    // A17: with the annotation it is taken over.
    let mut manifest = config_map("a16", &json!({"k": "ours"}));
    manifest["metadata"]["annotations"] = json!({CONFLICT_RESOLUTION: "overwrite"});
    rig.redeliver("a16", &[manifest]).await?;
    rig.applied("a16", "True", "").await?;
    let live = rig.live(&rig.maps(), "a16", |_| true).await?;
    ensure!(
        live["data"]["k"] == "ours" && live["metadata"]["labels"][MANAGED] == "true",
        "{live}"
    );
    Ok(())
}

async fn a18_a19_drift(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("a18", &[config_map("a18", &json!({"k": "v"}))])
        .await?;
    rig.applied("a18", "True", "").await?;
    edit(
        &rig.maps(),
        "a18",
        json!({"metadata": {"labels": {"extra": "1"}, "finalizers": ["example.com/keep"]}, "data": {"k": "drift", "other": "1"}}),
    )
    .await?;
    let healed = rig
        .live(&rig.maps(), "a18", |v| v["data"]["k"] == "v")
        .await?;
    ensure!(healed["metadata"]["labels"]["extra"] == "1", "{healed}");
    ensure!(
        healed["metadata"]["finalizers"] == json!(["example.com/keep"]),
        "{healed}"
    );
    edit(
        &rig.maps(),
        "a18",
        json!({"metadata": {"finalizers": null}}),
    )
    .await?;
    let uid = healed["metadata"]["uid"].clone();
    rig.maps().delete("a18", &DeleteParams::default()).await?;
    let again = rig
        .live(&rig.maps(), "a18", |v| v["metadata"]["uid"] != uid)
        .await?;
    ensure!(again["data"] == json!({"k": "v"}), "{again}");
    Ok(())
}

async fn a20_status_only(rig: &Rig, run: &Running) -> Result<()> {
    rig.deliver("a20", &[claim("a20")]).await?;
    rig.applied("a20", "True", "").await?;
    let api = rig.objects("v1", "PersistentVolumeClaim", "default");
    let status =
        json!({"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}});
    api.patch_status("a20", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    rig.status("a20", |s| {
        s["manifestStatuses"][0]["status"]["conditions"][0]["type"] == "FileSystemResizePending"
    })
    .await?;
    let mut writes = run.member.written();
    writes.retain(|line| line.contains("persistentvolumeclaims/a20"));
    ensure!(writes.len() == 1, "{writes:?}");
    Ok(())
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}})
}

async fn a21_dropped_label(rig: &Rig, _: &Running) -> Result<()> {
    let mut manifest = config_map("a21", &json!({"k": "v"}));
    manifest["metadata"]["labels"] = json!({"one": "1", "two": "2"});
    rig.deliver("a21", &[manifest.clone()]).await?;
    rig.applied("a21", "True", "").await?;
    edit(
        &rig.maps(),
        "a21",
        json!({"metadata": {"labels": {"live": "x"}}}),
    )
    .await?;
    manifest["metadata"]["labels"] = json!({"two": "2"});
    rig.redeliver("a21", &[manifest]).await?;
    let live = rig
        .live(&rig.maps(), "a21", |v| {
            v["metadata"]["labels"].get("one").is_none()
        })
        .await?;
    ensure!(live["metadata"]["labels"]["live"] == "x" && live["metadata"]["labels"]["two"] == "2");
    Ok(())
}

async fn a22_service(rig: &Rig, _: &Running) -> Result<()> {
    let service = |port: u16| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a22", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"app": "a22"},
                "ports": [{"name": "http", "port": port}]}})
    };
    rig.deliver("a22", &[service(80)]).await?;
    rig.applied("a22", "True", "").await?;
    let api = rig.objects("v1", "Service", "default");
    if rig.lab.members[0].options.builtin {
        // It has no addresses to hand out; who has some gives them, as Kubernetes would.
        let given = json!({"spec": {"clusterIP": "10.0.0.22", "healthCheckNodePort": 30022}});
        let params = PatchParams {
            field_manager: Some("addresses".into()),
            ..PatchParams::default()
        };
        api.patch("a22", &params, &Patch::Merge(given)).await?;
    }
    let before = rig.live(&api, "a22", |_| true).await?;
    rig.redeliver("a22", &[service(81)]).await?;
    let after = rig
        .live(&api, "a22", |v| v["spec"]["ports"][0]["port"] == 81)
        .await?;
    for field in ["clusterIP", "healthCheckNodePort"] {
        ensure!(!before["spec"][field].is_null(), "{before}");
        ensure!(before["spec"][field] == after["spec"][field], "{field}");
    }
    ensure!(
        after["spec"]["ports"].as_array().map(Vec::len) == Some(1),
        "{after}"
    );
    Ok(())
}

fn deployment(name: &str, replicas: u32, labels: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.invalid/c"}]}}}})
}

async fn a23_replicas(rig: &Rig, _: &Running) -> Result<()> {
    let api = rig.objects("apps/v1", "Deployment", "default");
    let retain = json!({RETAIN_REPLICAS: "true"});
    rig.deliver("a23", &[deployment("a23", 2, &retain)]).await?;
    rig.applied("a23", "True", "").await?;
    rig.live(&api, "a23", |v| v["spec"]["replicas"] == 2)
        .await?;
    edit(&api, "a23", json!({"spec": {"replicas": 3}})).await?;
    let mut labels = retain;
    labels["mark"] = "1".into();
    rig.redeliver("a23", &[deployment("a23", 2, &labels)])
        .await?;
    let kept = rig
        .live(&api, "a23", |v| v["metadata"]["labels"]["mark"] == "1")
        .await?;
    ensure!(kept["spec"]["replicas"] == 3, "{kept}");
    // Without the label the manifest's number holds again.
    rig.redeliver("a23", &[deployment("a23", 2, &json!({}))])
        .await?;
    rig.live(&api, "a23", |v| v["spec"]["replicas"] == 2)
        .await?;
    edit(&api, "a23", json!({"spec": {"replicas": 4}})).await?;
    rig.live(&api, "a23", |v| v["spec"]["replicas"] == 2)
        .await?;
    Ok(())
}

async fn a24_suspension(rig: &Rig, _: &Running) -> Result<()> {
    rig.deliver("a24", &[config_map("a24", &json!({"k": "v"}))])
        .await?;
    rig.applied("a24", "True", "").await?;
    rig.patch_work("a24", json!({"spec": {"suspendDispatching": true}}))
        .await?;
    let status = rig
        .status("a24", |s| {
            condition(s, "Dispatching").is_some_and(|c| c["status"] == "False")
        })
        .await?;
    let dispatching = condition(&status, "Dispatching").expect("just seen");
    ensure!(
        dispatching["reason"] == "SuspendDispatching",
        "{dispatching}"
    );
    ensure!(dispatching["message"] == "Work dispatching is in a suspended state.");
    rig.redeliver("a24", &[config_map("a24", &json!({"k": "later"}))])
        .await?;
    edit(
        &rig.maps(),
        "a24",
        json!({"data": {"drift": "1", "k": "drift"}}),
    )
    .await?;
    // Another Work that is written after it and applied tells that the change was passed over.
    rig.deliver("a24-probe", &[config_map("a24-probe", &json!({}))])
        .await?;
    rig.applied("a24-probe", "True", "").await?;
    let live = rig.live(&rig.maps(), "a24", |_| true).await?;
    ensure!(live["data"]["k"] == "drift", "{live}");
    rig.delete_work("a24").await?;
    rig.work_gone("a24").await?;
    ensure!(rig.maps().get_opt("a24").await?.is_none());
    Ok(())
}

async fn a25_deletion(rig: &Rig, _: &Running) -> Result<()> {
    let theirs: DynamicObject = serde_json::from_value(config_map("a25-theirs", &json!({})))?;
    rig.maps().create(&PostParams::default(), &theirs).await?;
    rig.deliver(
        "a25",
        &[
            config_map("a25", &json!({"k": "v"})),
            config_map("a25-theirs", &json!({"k": "v"})),
        ],
    )
    .await?;
    rig.applied("a25", "False", "(1/2)").await?;
    rig.delete_work("a25").await?;
    rig.work_gone("a25").await?;
    ensure!(rig.maps().get_opt("a25").await?.is_none());
    ensure!(rig.maps().get_opt("a25-theirs").await?.is_some());
    Ok(())
}

async fn a26_preserved(rig: &Rig, _: &Running) -> Result<()> {
    rig.work(
        "a26",
        json!({"preserveResourcesOnDeletion": true, "workload": {"manifests": [
            config_map("a26", &json!({"k": "v"})), config_map("a26-gone", &json!({}))]}}),
    )
    .await?;
    rig.applied("a26", "True", "").await?;
    rig.patch_work("a26", json!({"spec": {"suspendDispatching": true}}))
        .await?;
    rig.status("a26", |s| {
        condition(s, "Dispatching").is_some_and(|c| c["status"] == "False")
    })
    .await?;
    rig.maps()
        .delete("a26-gone", &DeleteParams::default())
        .await?;
    rig.delete_work("a26").await?;
    rig.work_gone("a26").await?;
    let live = rig.live(&rig.maps(), "a26", |_| true).await?;
    ensure!(live["data"]["k"] == "v");
    let metadata = &live["metadata"];
    ensure!(metadata["labels"].get(MANAGED).is_none(), "{metadata}");
    ensure!(
        metadata["annotations"].get(WORK_NAME).is_none(),
        "{metadata}"
    );
    Ok(())
}

/// A difference on purpose: what the hub thinks of the cluster holds nothing back.
async fn a27_not_ready_on_the_hub(rig: &Rig, run: &Running) -> Result<()> {
    run.context.cluster_view.send_replace(Some(ClusterView {
        ready: Some("False".into()),
        ..ClusterView::default()
    }));
    rig.deliver("a27", &[config_map("a27", &json!({"k": "v"}))])
        .await?;
    rig.applied("a27", "True", "").await?;
    rig.live(&rig.maps(), "a27", |v| v["data"]["k"] == "v")
        .await?;
    Ok(())
}

async fn a28_second_manifest_bad(rig: &Rig, _: &Running) -> Result<()> {
    let bad = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a28-bad", "namespace": "absent"}});
    rig.deliver("a28", &[config_map("a28", &json!({"k": "v"})), bad])
        .await?;
    let status = rig.applied("a28", "False", "(1/2)").await?;
    let message = condition(&status, "Applied").expect("just seen")["message"].clone();
    ensure!(
        message
            .as_str()
            .is_some_and(|m| m.contains("namespaces \"absent\" not found")),
        "{message}"
    );
    rig.live(&rig.maps(), "a28", |v| v["data"]["k"] == "v")
        .await?;
    Ok(())
}

async fn a29_rollout(rig: &Rig, run: &Running) -> Result<()> {
    let begun = Instant::now();
    rig.deliver("a29", &[deployment("a29", 10, &json!({}))])
        .await?;
    let status = rig
        .status("a29", |s| s["manifestStatuses"][0]["health"] == "Healthy")
        .await?;
    let reflected = &status["manifestStatuses"][0]["status"];
    for field in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
    ] {
        ensure!(reflected[field] == 10, "{field}: {status}");
    }
    ensure!(
        reflected["generation"] == reflected["observedGeneration"],
        "{status}"
    );
    let writes = run
        .hub
        .written()
        .iter()
        .filter(|line| line.contains("works/a29/status"))
        .count();
    println!("a rollout of 10 replicas: {writes} status writes");
    // A rollout that a busy machine draws out may cost one more in each such time.
    let more = begun.elapsed().as_secs() / LONGEST.as_secs();
    ensure!(writes as u64 <= 5 + more, "{writes} status writes");
    Ok(())
}

async fn a30_kind_without_rule(rig: &Rig, _: &Running) -> Result<()> {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a30", "namespace": "default"},
        "spec": {"hard": {"count/secrets": "500"}}});
    rig.deliver("a30", &[quota]).await?;
    if rig.lab.members[0].options.builtin {
        // Nothing there counts what quotas limit; here somebody says what it would say.
        rig.applied("a30", "True", "").await?;
        let counted =
            json!({"status": {"hard": {"count/secrets": "500"}, "used": {"count/secrets": "0"}}});
        let quotas = rig.objects("v1", "ResourceQuota", "default");
        quotas
            .patch_status("a30", &PatchParams::default(), &Patch::Merge(counted))
            .await?;
    }
    let status = rig
        .status("a30", |s| {
            !s["manifestStatuses"][0]["status"]["hard"].is_null()
        })
        .await?;
    ensure!(
        status["manifestStatuses"][0]["health"] == "Healthy",
        "{status}"
    );
    ensure!(
        !status["manifestStatuses"][0]["status"]["hard"].is_null(),
        "the whole status: {status}"
    );
    Ok(())
}

async fn a31_pod(rig: &Rig, _: &Running) -> Result<()> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a31", "namespace": "default"},
        "spec": {"nodeSelector": {"a31": "nowhere"}, "containers": [{"name": "c", "image": "registry.invalid/c"}]}});
    rig.deliver("a31", &[pod]).await?;
    rig.status("a31", |s| s["manifestStatuses"][0]["health"] == "Unhealthy")
        .await?;
    let api = rig.objects("v1", "Pod", "default");
    api.patch_status(
        "a31",
        &PatchParams::default(),
        &Patch::Merge(json!({"status": {"phase": "Succeeded"}})),
    )
    .await?;
    rig.status("a31", |s| s["manifestStatuses"][0]["health"] == "Healthy")
        .await?;
    Ok(())
}

async fn a32_claim_and_balancer(rig: &Rig, _: &Running) -> Result<()> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a32", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    rig.deliver("a32", &[claim("a32"), service]).await?;
    rig.status("a32", |s| {
        s["manifestStatuses"][0]["health"] == "Unhealthy"
            && s["manifestStatuses"][1]["health"] == "Unhealthy"
    })
    .await?;
    let claims = rig.objects("v1", "PersistentVolumeClaim", "default");
    claims
        .patch_status(
            "a32",
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"phase": "Bound"}})),
        )
        .await?;
    let services = rig.objects("v1", "Service", "default");
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    services
        .patch_status("a32", &PatchParams::default(), &Patch::Merge(ingress))
        .await?;
    let status = rig
        .status("a32", |s| {
            s["manifestStatuses"][1]["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
        })
        .await?;
    ensure!(
        status["manifestStatuses"][1]["health"] == "Healthy",
        "{status}"
    );
    rig.status("a32", |s| s["manifestStatuses"][0]["health"] == "Healthy")
        .await?;
    Ok(())
}

/// A difference on purpose: without the annotation the field is left out, not the status.
async fn a33_generation_of_the_template(rig: &Rig, _: &Running) -> Result<()> {
    let mut marked = deployment("a33", 1, &json!({}));
    marked["metadata"]["annotations"] = json!({TEMPLATE_GENERATION: "7"});
    let plain = deployment("a33-plain", 1, &json!({}));
    rig.deliver("a33", &[marked, plain]).await?;
    let status = rig
        .status("a33", |s| {
            let all = s["manifestStatuses"].as_array();
            all.is_some_and(|all| all.len() == 2 && all.iter().all(|m| m["health"] == "Healthy"))
        })
        .await?;
    let all = &status["manifestStatuses"];
    ensure!(all[0]["status"]["resourceTemplateGeneration"] == 7, "{all}");
    let plain = &all[1]["status"];
    ensure!(plain["readyReplicas"] == 1, "{all}");
    ensure!(plain.get("resourceTemplateGeneration").is_none(), "{all}");
    Ok(())
}
