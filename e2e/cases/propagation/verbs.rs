//! The verbs beside `plan` and `get`, as somebody types them one after another: apply, status, events, work, and a
//! watch that goes on.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use super::{MEMBERS, SOON, merge, runs};
use crate::env::{
    Fleet, Lab, LabOptions, Parts, Process, ProcessSpec, Run, Scratch, binary, repository, wait_for,
};

/// What a verb says that succeeds.
async fn said(fleet: &Fleet, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Run { stdout, .. } = fleet.cli(&words).await?.ok()?;
    Ok(stdout)
}

async fn until(fleet: &Fleet, line: &str, wanted: &[&str]) -> Result<()> {
    wait_for(&format!("`towline {line}`"), SOON, async || {
        let said = said(fleet, line).await?;
        let missing = wanted.iter().find(|it| !said.contains(**it));
        ensure!(missing.is_none(), "no {missing:?} in {said}");
        Ok(true)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_worked_with_by_towline_alone() -> Result<()> {
    let scratch = Scratch::new("verbs")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(2)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let (mut agents, mut members) = (Vec::new(), Vec::new());
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
        members.push(plane.client().await?);
    }
    until(&fleet, "status", &["2: 2 Ready", "templates   none"]).await?;

    let web = repository().join("examples/web.yaml").display().to_string();
    let line = format!("apply -f {web} -C member1,member2");
    let tried = said(&fleet, &format!("{line} --dry-run")).await?;
    for would in [
        "namespace/shop created (dry run)",
        "deployment.apps/web created (not tried before its namespace is there)",
    ] {
        ensure!(tried.contains(would), "no {would:?} in {tried}");
    }
    let applied = said(&fleet, &line).await?;
    for done in [
        "namespace/shop created",
        "deployment.apps/web created in shop",
        "propagationpolicy.policy.karmada.io/web created in shop",
    ] {
        ensure!(applied.contains(done), "no {done:?} in {applied}");
    }
    runs(&members, [Some((6, "2.53")), Some((6, "2.53"))]).await?;
    let again = said(&fleet, &format!("{line} -o json")).await?;
    let again: Value = serde_json::from_str(&again)?;
    let done = again.as_array().into_iter().flatten();
    let changed: Vec<&Value> = done.filter(|it| it["done"] == "created").collect();
    ensure!(changed.is_empty(), "made again: {changed:?}");
    until(
        &fleet,
        "events deployment/web -n shop",
        &["ScheduleBindingSucceed"],
    )
    .await?;
    until(
        &fleet,
        "status -o yaml",
        &["deployment.apps/web", "state: Running"],
    )
    .await?;

    // What changes while somebody watches is shown.
    let spec = ProcessSpec::new("watch", &binary("towline")?, scratch.path());
    let spec = spec.args(["get", "deployments", "-n", "shop", "-w", "--kubeconfig"]);
    let mut watch = Process::start(spec.arg(fleet.kubeconfig()))?;
    wait_for("the first line", SOON, async || {
        watch.check()?;
        Ok(watch.log_text().contains("pp/web"))
    })
    .await?;
    merge(&lab.hub.client().await?, json!({"spec": {"replicas": 7}})).await?;
    wait_for("the line of what changed", SOON, async || {
        watch.check()?;
        let text = watch.log_text();
        let seven = |line: &str| line.split_whitespace().any(|it| it == "7");
        ensure!(text.lines().any(seven), "{text}");
        Ok(text.matches("POLICY").count() == 1)
    })
    .await?;
    watch.stop(SOON).await?;

    // An object for one member alone.
    let file = scratch.join("map.yaml");
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: alone, namespace: default}, data: {a: b}}";
    std::fs::write(&file, text)?;
    let line = format!("work create --from-file {} -C member2", file.display());
    let made = said(&fleet, &line).await?;
    ensure!(
        made.contains("work.work.karmada.io/alone created in karmada-es-member2"),
        "{made}"
    );
    let maps: Api<ConfigMap> = Api::default_namespaced(members[1].clone());
    wait_for("the object in the member", SOON, async || {
        Ok(maps.get_opt("alone").await?.is_some())
    })
    .await?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let twice = fleet.cli(&words).await?.refused()?;
    ensure!(
        twice.stderr.contains("There is one of that name"),
        "{}",
        twice.stderr
    );
    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
