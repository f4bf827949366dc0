//! `towline check` finds what is wrong, and says so by its exit code.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{Fleet, Parts, Plane, PlaneOptions, Run, Scratch, wait_for};

const SOON: Duration = Duration::from_secs(120);
/// The exit code of a command that looked and found something wrong.
const WRONG: i32 = 7;

/// The steps of a run with `-o json`, as `step` and whether it is right.
fn steps(run: &Run) -> Result<Vec<(String, bool)>> {
    let found: Vec<Value> =
        serde_json::from_str(&run.stdout).with_context(|| format!("no JSON: {}", run.stdout))?;
    let step = |f: &Value| Some((f["step"].as_str()?.to_owned(), f["ok"].as_bool()?));
    Ok(found.iter().filter_map(step).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_what_is_wrong() -> Result<()> {
    let scratch = Scratch::new("check")?;
    let parts = Parts::from_env()?;
    let mut hub = Plane::start(&parts, &scratch.join("hub"), PlaneOptions::hub()).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &hub).await?;
    a_wrong_pin(&fleet).await?;

    let well = fleet.cli(&["check", "-o", "json"]).await?.ok()?;
    let seen = steps(&well)?;
    ensure!(seen.contains(&("readyz".to_owned(), true)), "{seen:?}");

    let client = fleet.client().await?;
    a_namespace_that_is_going(&client).await?;
    let clusters: Api<common::api::cluster::Cluster> = Api::all(client.clone());
    let cluster = serde_json::from_value(json!({
        "metadata": {"name": "going"}, "spec": {"syncMode": "Pull"},
    }))?;
    clusters.create(&PostParams::default(), &cluster).await?;
    let status = json!({"status": {"agent": {"orphans": {"count": 3}}}});
    let params = PatchParams::default();
    clusters
        .patch_status("going", &params, &Patch::Merge(&status))
        .await?;
    for args in [
        &["check", "going", "-o", "json"][..],
        &["check", "-o", "json"],
    ] {
        let run = fleet.cli(args).await?.refused()?;
        ensure!(run.code == WRONG, "it ended with {}", run.code);
        ensure!(run.stderr.contains("Terminating"), "{}", run.stderr);
        let seen = steps(&run)?;
        for step in ["Works", "orphans"] {
            ensure!(seen.contains(&(step.to_owned(), false)), "{seen:?}");
        }
    }
    let said = fleet.cli(&["check"]).await?.refused()?;
    ensure!(
        said.stdout.contains("WRONG  cluster going"),
        "{}",
        said.stdout
    );
    hub.stop().await;
    scratch.passed();
    Ok(())
}

/// An agent would not register by it.
async fn a_wrong_pin(fleet: &Fleet) -> Result<()> {
    let wrong = format!("sha256:{}", "0".repeat(64));
    let check = async |pin: &str| {
        let pin = ["--discovery-token-ca-cert-hash", pin, "-o", "json"];
        let args = ["check", "--server", &fleet.address].into_iter();
        fleet.towline.cli(args.chain(pin)).await
    };
    let seen = steps(&check(&fleet.pin).await?.ok()?)?;
    ensure!(seen.last() == Some(&("pin".to_owned(), true)), "{seen:?}");
    let run = check(&wrong).await?.refused()?;
    ensure!(run.code == WRONG, "it ended with {}", run.code);
    ensure!(run.stderr.contains("wrong pin"), "{}", run.stderr);
    ensure!(steps(&run)?.last() == Some(&("pin".to_owned(), false)));
    Ok(())
}

/// An execution namespace that waits for what somebody holds in it.
async fn a_namespace_that_is_going(client: &kube::Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "karmada-es-going"}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "karmada-es-going");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    let held = serde_json::from_value(held)?;
    maps.create(&PostParams::default(), &held).await?;
    namespaces
        .delete("karmada-es-going", &DeleteParams::default())
        .await?;
    wait_for("a namespace that is Terminating", SOON, async || {
        let found = namespaces.get("karmada-es-going").await?;
        Ok(found.metadata.deletion_timestamp.is_some())
    })
    .await
}
