//! `towline get` of what members have, of several at once.

use super::rig::{Stage, apply, reach};
use crate::env::{Parts, Run, binary, run, wait_for};
use anyhow::{Context as _, Result, ensure};
use common::labels::{MANAGED, MANAGED_VALUE};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::process::Command;

const WITHIN: Duration = Duration::from_secs(60);

/// Who is well answers, and who is not is named.
#[tokio::test(flavor = "multi_thread")]
async fn access_shows_what_many_members_have() -> Result<()> {
    let stage = Stage::among("access-many", "impersonate", 2).await?;
    // Of m2 nobody opened the way in.
    let mut closed = stage
        .fleet
        .join(&stage.lab.members[1].kubeconfig, "m2")
        .await?;
    let hub = stage.fleet.client().await?;
    apply(&hub, reach("ann", &["m1", "m2"], &["get", "create"])).await?;
    let kept = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kept", "namespace": "default", "labels": {MANAGED: MANAGED_VALUE}},
    });
    apply(&stage.member().await?, vec![kept]).await?;
    let ann = stage.kubeconfig("ann", &[])?.display().to_string();
    let get = async |words: &[&str]| -> Result<Run> {
        let words = ["get"].iter().chain(words).copied();
        let words = words.chain(["--kubeconfig", &ann]);
        stage.fleet.towline.cli(words).await
    };

    let one = get(&["cm", "-s", "members", "-C", "m1"]).await?.ok()?;
    let lines: Vec<Vec<&str>> = one.stdout.lines().map(words).collect();
    ensure!(
        lines.first() == Some(&vec!["NAME", "CLUSTER", "DATA", "AGE", "ADOPTION"]),
        "{one:?}"
    );
    let row = |name: &str| lines.iter().find(|it| it[0] == name);
    let here = row("here").context("no row of what is here")?;
    ensure!(here[1..3] == ["m1", "1"] && here[4] == "N", "{one:?}");
    let kept = row("kept").context("no row of what a Work keeps")?;
    ensure!(kept[1] == "m1" && kept[4] == "Y", "{one:?}");

    // The other one is named, and does not keep what there is from being shown.
    let all = get(&["configmaps", "--all"]).await?.refused()?;
    ensure!(all.code == 6, "{all:?}");
    let mut rows = all.stdout.lines().map(words);
    ensure!(rows.any(|it| it[..2] == ["here", "m1"]), "{all:?}");
    ensure!(
        all.stderr.contains("m2: ") && all.stderr.contains("has no tunnel to this hub"),
        "{all:?}"
    );
    ensure!(
        all.stderr.contains("1 of 2 clusters did not answer"),
        "{all:?}"
    );

    let whole = get(&["cm", "here", "-s", "members", "-C", "m1", "-o", "json"]);
    let whole: Value = serde_json::from_str(&whole.await?.ok()?.stdout)?;
    let item = &whole["items"][0];
    ensure!(
        item["kind"] == "ConfigMap"
            && item["data"] == json!({"cluster": "m1"})
            && item["metadata"]["annotations"]["resource.karmada.io/cached-from-cluster"] == "m1",
        "{whole}"
    );
    let names = get(&["cm", "-s", "members", "-C", "m1", "-o", "name"]);
    let names = names.await?.ok()?.stdout;
    ensure!(
        names.contains("-C m1 -n default configmaps/here\n"),
        "{names}"
    );
    let nothing = get(&["cm", "nobody", "-s", "members", "-C", "m1"]).await?;
    ensure!(
        nothing.code == 4 && nothing.stderr.contains("is in none of the clusters"),
        "{nothing:?}"
    );
    let unknown = get(&["cm", "--all", "-C", "m3"]).await?;
    ensure!(unknown.code == 2, "{unknown:?}");
    let unknown = get(&["cm", "-s", "members", "-C", "m3"]).await?;
    ensure!(unknown.code == 4, "{unknown:?}");
    // What Ann may not see there she does not see here.
    let denied = get(&["secrets", "-s", "members", "-C", "m1"]).await?;
    ensure!(
        denied.code == 5 && denied.stderr.contains("cannot list resource"),
        "{denied:?}"
    );
    kubectl(&ann).await?;
    walked(&stage).await?;
    closed.stop(WITHIN).await?;
    stage.passed().await;
    Ok(())
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// `towline check` of a member that is open, and of one that is not.
async fn walked(stage: &Stage) -> Result<()> {
    for (cluster, access, tunnel) in [
        ("m1", "opened: impersonate", "its owner does not let you in"),
        (
            "m2",
            "off",
            "off: its owner opened it to no user of the hub",
        ),
    ] {
        wait_for(&format!("a look at {cluster}"), WITHIN, async || {
            let look = ["check", cluster, "-o", "json"];
            let found = stage.fleet.cli(&look).await?.ok()?;
            let found: Value = serde_json::from_str(&found.stdout)?;
            let says = |step: &str, text: &str| {
                let mut all = found.as_array().into_iter().flatten();
                all.any(|it| {
                    let said = it["message"].as_str().unwrap_or_default();
                    it["step"] == step && it["ok"] == true && said.contains(text)
                })
            };
            ensure!(says("access", access) && says("tunnel", tunnel), "{found}");
            Ok(true)
        })
        .await?;
    }
    Ok(())
}

/// kubectl itself, at the member, by the hub's kubeconfig.
async fn kubectl(ann: &str) -> Result<()> {
    let Some(program) = Parts::from_env()?.any_kubectl() else {
        crate::env::left_out("kubectl by `towline kubectl`", "there is none");
        return Ok(());
    };
    let mut command = Command::new(binary("towline")?);
    command
        .env("KUBECTL", program)
        .args(["kubectl", "get", "cm/here", "-n", "default"])
        .args(["-o", "jsonpath={.data.cluster}", "-C", "m1"])
        .args(["--kubeconfig", ann]);
    let said = run(command, None, WITHIN).await?.ok()?;
    ensure!(said.stdout == "m1", "{said:?}");
    Ok(())
}
