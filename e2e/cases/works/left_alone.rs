//! What others decide about an object is left to them, and costs no write.

use super::rig::{Rig, SOON};
use super::webhook::{LABEL, Webhook};
use crate::env::wait_for;
use anyhow::{Result, ensure};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, interval};

/// How long nothing may be written.
const WINDOW: Duration = Duration::from_secs(300);
/// How often the number of replicas moves meanwhile.
const MOVES: Duration = Duration::from_secs(45);

fn deployment(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.invalid/c",
                    "resources": {"requests": {"cpu": "10m"}}}]}}}})
}

fn containers(object: &Value) -> Vec<&str> {
    let list = object["spec"]["template"]["spec"]["containers"].as_array();
    let names = list.into_iter().flatten();
    names.filter_map(|c| c["name"].as_str()).collect()
}

/// The replicas of a HorizontalPodAutoscaler and the sidecar of a mutating webhook, both in the member:
/// for five minutes the agent writes neither Deployment, though the replicas move.
pub(crate) async fn left_alone_for_five_minutes() -> Result<()> {
    let rig = Rig::start("works-left-alone").await?;
    let run = rig.run().await?;
    let webhook = Webhook::start(&rig.lab.members[0]).await?;
    let gvk = GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
    );
    let hooks: Api<DynamicObject> = Api::all_with(rig.member.clone(), &ApiResource::from_gvk(&gvk));
    let hook = serde_json::from_value(webhook.configuration())?;
    hooks.create(&PostParams::default(), &hook).await?;

    let deployments = rig.objects("apps/v1", "Deployment", "default");
    let scalers = rig.objects("autoscaling/v2", "HorizontalPodAutoscaler", "default");
    rig.deliver("scaled", &[deployment("scaled", &json!({}))])
        .await?;
    rig.applied("scaled", "True", "").await?;
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaled"},
        "spec": {"minReplicas": 4, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}}});
    let scaler = serde_json::from_value(scaler)?;
    scalers.create(&PostParams::default(), &scaler).await?;
    // The member's own controller raises it to the least it may be.
    rig.live(&deployments, "scaled", |v| v["spec"]["replicas"] == 4)
        .await?;

    // The webhook may be asked before the API server knows it: made anew until it was.
    let injected = json!({LABEL: "true"});
    rig.deliver("injected", &[deployment("injected", &injected)])
        .await?;
    rig.applied("injected", "True", "").await?;
    let params = PatchParams::default();
    wait_for("the webhook to be asked", SOON, async || {
        let nudge =
            json!({"metadata": {"annotations": {"nudge": format!("{:?}", Instant::now())}}});
        deployments
            .patch("injected", &params, &Patch::Merge(nudge))
            .await?;
        Ok(webhook.injected() > 0)
    })
    .await?;
    let sidecar = |v: &Value| containers(v) == ["c", "sidecar"];
    rig.live(&deployments, "injected", sidecar).await?;
    // What a Work changes later goes through the webhook too, and leaves its part alone.
    let mut changed = deployment("injected", &injected);
    changed["spec"]["replicas"] = 3.into();
    rig.redeliver("injected", &[changed]).await?;
    rig.live(&deployments, "injected", |v| {
        v["spec"]["replicas"] == 3 && sidecar(v)
    })
    .await?;
    for work in ["scaled", "injected"] {
        rig.status(work, |s| {
            let status = &s["manifestStatuses"][0]["status"];
            !status.is_null() && status["generation"] == status["observedGeneration"]
        })
        .await?;
    }

    let written = || {
        let all = run.member.written();
        let ours = all
            .into_iter()
            .filter(|line| line.contains("/deployments/"));
        ours.collect::<Vec<_>>()
    };
    let before = written();
    let started = Instant::now();
    let mut replicas = 4;
    let mut looks = interval(MOVES);
    while started.elapsed() < WINDOW {
        looks.tick().await;
        // Within its bounds, as the autoscaler does when load comes and goes.
        replicas = if replicas == 8 { 4 } else { replicas + 1 };
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        deployments
            .patch_subresource("scale", "scaled", &params, &scale)
            .await?;
        rig.status("scaled", |s| {
            s["manifestStatuses"][0]["status"]["replicas"] == replicas
        })
        .await?;
        ensure!(written() == before, "it wrote {:?}", written());
    }
    let scaled = rig.live(&deployments, "scaled", |_| true).await?;
    ensure!(scaled["spec"]["replicas"] == replicas, "{scaled}");
    let injected = rig.live(&deployments, "injected", |_| true).await?;
    ensure!(sidecar(&injected), "{injected}");
    ensure!(written() == before, "it wrote {:?}", written());
    run.stop().await;
    rig.passed().await;
    Ok(())
}
