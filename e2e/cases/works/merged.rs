//! Fields that a Work shares with its member: lists to which both add, and a number that an autoscaler
//! had.

use super::rig::Rig;
use anyhow::{Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn account(secrets: &[&str], pull_secrets: &[&str]) -> Value {
    let names = |all: &[&str]| all.iter().map(|n| json!({"name": n})).collect::<Vec<_>>();
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "builder", "namespace": "default"},
        "secrets": names(secrets), "imagePullSecrets": names(pull_secrets)})
}

fn names(value: &Value) -> Vec<&str> {
    let all = value.as_array().into_iter().flatten();
    let mut names: Vec<&str> = all.filter_map(|v| v["name"].as_str()).collect();
    names.sort_unstable();
    names
}

/// Secrets of a ServiceAccount that the member added stay, those of the manifest are added, and the
/// hub's own token Secret is not among them.
#[tokio::test(flavor = "multi_thread")]
async fn works_merge_secrets_of_accounts() -> Result<()> {
    let rig = Rig::start("works-accounts").await?;
    let running = rig.run().await?;
    let accounts = rig.objects("v1", "ServiceAccount", "default");
    rig.deliver("sa", &[account(&["one", "builder-token-x"], &["pull-a"])])
        .await?;
    rig.applied("sa", "True", "").await?;
    let live = accounts.get("builder").await?;
    ensure!(names(&live.data["secrets"]) == ["one"], "{live:?}");
    let by = PatchParams {
        field_manager: Some("someone".into()),
        ..PatchParams::default()
    };
    let patch = json!({"secrets": [{"name": "one"}, {"name": "theirs"}],
        "imagePullSecrets": [{"name": "pull-a"}, {"name": "pull-theirs"}]});
    accounts.patch("builder", &by, &Patch::Merge(patch)).await?;
    rig.redeliver("sa", &[account(&["two"], &["pull-a", "pull-b"])])
        .await?;
    rig.live(&accounts, "builder", |v| {
        names(&v["secrets"]) == ["theirs", "two"]
            && names(&v["imagePullSecrets"]) == ["pull-a", "pull-b", "pull-theirs"]
    })
    .await?;
    rig.applied("sa", "True", "").await?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}

/// The autoscaler of a Deployment goes while the agent is away: its number is the manifest's again.
#[tokio::test(flavor = "multi_thread")]
async fn works_take_replicas_back_from_an_autoscaler() -> Result<()> {
    let rig = Rig::start("works-rescaled").await?;
    let running = rig.run().await?;
    let deployments = rig.objects("apps/v1", "Deployment", "default");
    let scalers = rig.objects("autoscaling/v2", "HorizontalPodAutoscaler", "default");
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": {"minReplicas": 1, "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let scaler = serde_json::from_value(scaler)?;
    scalers.create(&PostParams::default(), &scaler).await?;
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "none.example/none"}]}}}});
    rig.deliver("web", &[web]).await?;
    rig.applied("web", "True", "").await?;
    let scale = PatchParams {
        field_manager: Some("kube-controller-manager".into()),
        ..PatchParams::default()
    };
    let five = Patch::Merge(json!({"spec": {"replicas": 5}}));
    deployments
        .patch_subresource("scale", "web", &scale, &five)
        .await?;
    rig.live(&deployments, "web", |v| v["spec"]["replicas"] == 5)
        .await?;
    running.stop().await;
    scalers.delete("web", &DeleteParams::default()).await?;
    let running = rig.run().await?;
    rig.live(&deployments, "web", |v| v["spec"]["replicas"] == 2)
        .await?;
    rig.applied("web", "True", "").await?;
    running.stop().await;
    rig.passed().await;
    Ok(())
}
