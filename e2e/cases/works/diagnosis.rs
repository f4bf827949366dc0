//! Pods that do not run in a member: the hub is told why, once, and no more when they are not wanted.

use super::rig::{Rig, Running, SOON, condition};
use crate::env::{LabOptions, wait_for, wait_for_some};
use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// What each Deployment's pod is to say.
const FAILURES: [(&str, &str); 4] = [
    ("nowhere", "Unschedulable"),
    ("unpulled", "ImagePullBackOff"),
    ("crashing", "CrashLoopBackOff"),
    ("unconfigured", "CreateContainerConfigError"),
];

fn deployment(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "registry.invalid/app"}]}}}})
}

/// What a kubelet would say of a pod's container.
fn container(reason: &str) -> Value {
    let state = match reason {
        "CrashLoopBackOff" => {
            json!({"waiting": {"reason": reason, "message": "back-off 10s restarting"}})
        }
        "ImagePullBackOff" => json!({"waiting": {"reason": reason, "message": "no such image"}}),
        _ => json!({"waiting": {"reason": reason, "message": "configmap \"settings\" not found"}}),
    };
    let ended =
        json!({"terminated": {"exitCode": 3, "reason": "Error", "message": "no such file"}});
    let last = if reason == "CrashLoopBackOff" {
        ended
    } else {
        json!({})
    };
    json!({"name": "app", "image": "registry.invalid/app", "imageID": "", "ready": false, "restartCount": 1,
        "state": state, "lastState": last})
}

async fn say<T>(api: &Api<DynamicObject>, name: &str, status: T) -> Result<()>
where
    T: Into<Value>,
{
    let patch = json!({"status": status.into()});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("failed to write the status of {name}"))?;
    Ok(())
}

/// The pod of a Deployment. On a built-in member nobody makes pods: the test does what the controllers would.
async fn pod_of(rig: &Rig, name: &str) -> Result<String> {
    let pods = rig.objects("v1", "Pod", "default");
    if rig.lab.members[0].options.builtin {
        let deployments = rig.objects("apps/v1", "Deployment", "default");
        let pod: DynamicObject = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-1"), "namespace": "default", "labels": {"app": name}},
            "spec": {"containers": [{"name": "app", "image": "registry.invalid/app"}]}}))?;
        pods.create(&PostParams::default(), &pod).await?;
        let status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "no nodes available to schedule pods"}]});
        say(&pods, &format!("{name}-1"), status).await?;
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1});
        say(&deployments, name, status).await?;
    }
    let of = ListParams::default().labels(&format!("app={name}"));
    wait_for_some(&format!("the pod of {name}"), SOON, || async {
        let found = pods.list(&of).await?.items;
        Ok(found.into_iter().next().and_then(|it| it.metadata.name))
    })
    .await
}

/// The status of a Work that says why, with a reason.
async fn told(rig: &Rig, name: &str, reason: &str) -> Result<Value> {
    rig.status(name, |status| {
        condition(status, "WorkloadHealthy")
            .is_some_and(|it| it["status"] == "False" && it["reason"] == reason)
    })
    .await
}

/// How often a Work's workload was asked why.
fn looks(run: &Running, name: &str) -> usize {
    let asked = run.member.asked();
    let of = format!("labelSelector=app%3D{name}&");
    asked.iter().filter(|line| line.contains(&of)).count()
}

fn statuses(run: &Running) -> usize {
    let written = run.hub.written();
    written.iter().filter(|it| it.contains("/status")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_run_are_told_once_until_they_do() -> Result<()> {
    // No node: whoever makes pods cannot place them, and what a kubelet would say the test says.
    let mut options = LabOptions::new(1);
    options.members[0].nodes = 0;
    let rig = Rig::start_with("works-diagnosis", &options).await?;
    let run = rig.run().await?;
    let pods = rig.objects("v1", "Pod", "default");
    for (name, reason) in FAILURES {
        rig.deliver(name, &[deployment(name, 1)]).await?;
        rig.applied(name, "True", "").await?;
        let pod = pod_of(&rig, name).await?;
        if reason != "Unschedulable" {
            let status = json!({"phase": "Pending", "conditions": [], "containerStatuses": [container(reason)]});
            say(&pods, &pod, status).await?;
        }
    }
    for (name, reason) in FAILURES {
        let status = told(&rig, name, reason).await?;
        let message = condition(&status, "WorkloadHealthy").expect("just seen")["message"].clone();
        let message = message.as_str().unwrap_or_default();
        let words = match reason {
            "Unschedulable" => "pod nowhere-",
            "CrashLoopBackOff" => "container app: CrashLoopBackOff, exit code 3: no such file",
            "ImagePullBackOff" => "container app: ImagePullBackOff: no such image",
            _ => "configmap \"settings\" not found",
        };
        ensure!(message.contains(words), "{name}: {message}");
        ensure!(
            status["manifestStatuses"][0]["health"] == "Unhealthy",
            "{status}"
        );
    }
    // Looked at again, they say the same, and the hub hears nothing.
    let before = FAILURES.map(|(name, _)| looks(&run, name));
    let written = statuses(&run);
    wait_for("another look at each", SOON, || async {
        Ok(FAILURES
            .iter()
            .zip(before)
            .all(|((name, _), before)| looks(&run, name) > before))
    })
    .await?;
    ensure!(statuses(&run) == written, "{:?}", run.hub.written());
    // Nothing is wanted any more, so nothing is wrong.
    for (name, _) in FAILURES {
        rig.redeliver(name, &[deployment(name, 0)]).await?;
        if rig.lab.members[0].options.builtin {
            let deployments = rig.objects("apps/v1", "Deployment", "default");
            rig.live(&deployments, name, |it| it["metadata"]["generation"] == 2)
                .await?;
            let none = json!({"observedGeneration": 2, "replicas": null, "updatedReplicas": null,
                "unavailableReplicas": null});
            say(&deployments, name, none).await?;
        }
        rig.status(name, |status| {
            condition(status, "WorkloadHealthy").is_none()
                && status["manifestStatuses"][0]["health"] == "Healthy"
        })
        .await?;
    }
    run.stop().await;
    rig.passed().await;
    Ok(())
}
