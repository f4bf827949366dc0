//! Whose an object is: what its Work applied, whatever its labels say.

use super::rig::{EXECUTION, Rig, config_map};
use crate::env::wait_for;
use agent::execution::stored::decode;
use anyhow::{Context as _, Result, ensure};
use common::labels::{MANAGED, WORK_NAME, WORK_NAMESPACE};
use common::names::{AGENT_NAMESPACE, WORKS_SECRET_PREFIX};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

/// How long anything may take on a machine that builds beside the lab.
const LONG: Duration = Duration::from_secs(180);

/// Waits until the stored set knows what each of so many Works has applied.
async fn claims_are_stored(rig: &Rig, works: usize) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(rig.member.clone(), AGENT_NAMESPACE);
    wait_for(
        "the stored set to know what was applied",
        LONG,
        async || {
            let mut claimed = 0;
            for secret in api.list(&ListParams::default()).await? {
                let name = secret.metadata.name.unwrap_or_default();
                if !name.starts_with(WORKS_SECRET_PREFIX) {
                    continue;
                }
                let mut data = secret.data.unwrap_or_default();
                let bytes = data.remove("works").context("an empty Secret")?;
                let volume = decode(&bytes.0).with_context(|| format!("Secret {name}"))?;
                let entries = volume.entries.iter();
                claimed += entries
                    .filter(|(entry, _)| !entry.claims.is_empty())
                    .count();
            }
            ensure!(claimed == works, "{claimed} of {works}");
            Ok(true)
        },
    )
    .await
}

async fn edit(rig: &Rig, name: &str, patch: &Value) -> Result<()> {
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    rig.maps()
        .patch(name, &params, &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Takes our label off, and changes what the Work wants.
async fn take_away(rig: &Rig, name: &str) -> Result<()> {
    let patch = json!({"metadata": {"labels": {MANAGED: null}}, "data": {"k": "drift"}});
    edit(rig, name, &patch).await
}

async fn healed(rig: &Rig, name: &str) -> Result<()> {
    let whole = |v: &Value| v["metadata"]["labels"][MANAGED] == "true" && v["data"]["k"] == "v";
    rig.live(&rig.maps(), name, whole).await?;
    Ok(())
}

/// A label that is taken off is put back, also when the agent was away, and with it what changed; one of
/// other words too. A Work that goes takes what it applied along, labelled or not.
#[tokio::test(flavor = "multi_thread")]
async fn works_keep_what_lost_its_label() -> Result<()> {
    let rig = Rig::start("works-labels").await?;
    let run = rig.run().await?;
    for name in ["stays", "goes", "leaves"] {
        rig.deliver(name, &[config_map(name, &json!({"k": "v"}))])
            .await?;
        rig.applied(name, "True", "").await?;
    }
    claims_are_stored(&rig, 3).await?;
    let uid = rig.maps().get("stays").await?.metadata.uid;

    take_away(&rig, "stays").await?;
    healed(&rig, "stays").await?;
    edit(
        &rig,
        "stays",
        &json!({"metadata": {"labels": {MANAGED: "no"}, "annotations": {WORK_NAME: null}}}),
    )
    .await?;
    healed(&rig, "stays").await?;
    rig.applied("stays", "True", "").await?;
    // A manifest that leaves its Work takes the object along.
    edit(
        &rig,
        "leaves",
        &json!({"metadata": {"labels": {MANAGED: null}, "finalizers": ["example.com/x"]}}),
    )
    .await?;
    rig.redeliver("leaves", &[]).await?;
    let going = |v: &Value| v["metadata"]["deletionTimestamp"].is_string();
    rig.live(&rig.maps(), "leaves", going).await?;
    edit(&rig, "leaves", &json!({"metadata": {"finalizers": null}})).await?;
    rig.gone(&rig.maps(), "leaves").await?;

    run.stop().await;
    take_away(&rig, "stays").await?;
    take_away(&rig, "goes").await?;
    let run = rig.run().await?;
    healed(&rig, "stays").await?;
    healed(&rig, "goes").await?;

    run.kill().await;
    take_away(&rig, "goes").await?;
    rig.delete_work("goes").await?;
    let run = rig.run().await?;
    rig.work_gone("goes").await?;
    ensure!(
        rig.maps().get_opt("goes").await?.is_none(),
        "it left something behind"
    );

    take_away(&rig, "stays").await?;
    rig.delete_work("stays").await?;
    rig.work_gone("stays").await?;
    let left = rig.maps().get_opt("stays").await?;
    ensure!(left.is_none(), "it left {uid:?} behind: {left:?}");
    run.stop().await;
    rig.passed().await;
    Ok(())
}

/// An object that merely carries the marks of a Work, with a finalizer that nobody takes off, does not hold
/// up the Work's deletion; it is told as an orphan afterwards. Marks bring no stranger's object into a Work.
#[tokio::test(flavor = "multi_thread")]
async fn works_go_whoever_carries_their_marks() -> Result<()> {
    let rig = Rig::start("works-marks").await?;
    let forged = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged",
        "namespace": "default", "labels": {MANAGED: "true"}, "finalizers": ["example.com/mine"],
        "annotations": {WORK_NAMESPACE: EXECUTION, WORK_NAME: "victim"}}});
    let forged = serde_json::from_value(forged)?;
    rig.maps().create(&PostParams::default(), &forged).await?;
    // One that only names the Work, without the label: not ours to touch.
    let mut unlabelled = config_map("theirs", &json!({"k": "theirs"}));
    unlabelled["metadata"]["annotations"] = json!({WORK_NAMESPACE: EXECUTION, WORK_NAME: "other"});
    let unlabelled = serde_json::from_value(unlabelled)?;
    let made = rig
        .maps()
        .create(&PostParams::default(), &unlabelled)
        .await?;

    let run = rig.run().await?;
    rig.deliver("victim", &[config_map("victim", &json!({"k": "v"}))])
        .await?;
    rig.applied("victim", "True", "").await?;
    rig.deliver("other", &[config_map("theirs", &json!({"k": "ours"}))])
        .await?;
    rig.applied("other", "False", "already exists").await?;

    rig.delete_work("victim").await?;
    rig.work_gone("victim").await?;
    rig.gone(&rig.maps(), "victim").await?;
    let forged = rig.live(&rig.maps(), "forged", |_| true).await?;
    ensure!(
        forged["metadata"]["deletionTimestamp"].is_null(),
        "{forged}"
    );
    wait_for("the orphan to be told", LONG, async || {
        let report = run.context.orphans.borrow().clone();
        let told = report.into_iter().flat_map(|report| report.objects);
        Ok(told.into_iter().any(|object| object.name == "forged"))
    })
    .await?;

    rig.delete_work("other").await?;
    rig.work_gone("other").await?;
    let theirs = rig.maps().get("theirs").await?;
    ensure!(
        theirs.metadata.resource_version == made.metadata.resource_version,
        "touched"
    );
    edit(&rig, "forged", &json!({"metadata": {"finalizers": null}})).await?;
    run.stop().await;
    rig.passed().await;
    Ok(())
}
