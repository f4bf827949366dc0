//! `towline plan` as somebody types it who then applies what was planned: what it foretold is what runs.

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{MEMBERS, NAMESPACE, SOON, api_of, apply, example, running, runs};
use crate::env::{Fleet, Lab, LabOptions, Parts, Run, Scratch, repository, wait_for};

/// The exit code of a plan by which something changes.
const CHANGES: i32 = 2;

/// A plan by `towline plan` and more flags.
async fn plan(fleet: &Fleet, flags: &[&str]) -> Result<Run> {
    let args: Vec<&str> = ["plan"].iter().chain(flags).copied().collect();
    fleet.cli(&args).await
}

/// The same as JSON, and what it says of the Deployment.
async fn planned(fleet: &Fleet, flags: &[&str]) -> Result<Value> {
    let flags: Vec<&str> = flags.iter().chain(&["-o", "json"]).copied().collect();
    let run = plan(fleet, &flags).await?;
    ensure!(run.code == CHANGES, "{}: {}", run.code, run.stderr);
    let plan: Value = serde_json::from_str(&run.stdout)?;
    let templates = plan["templates"].as_array().context("no templates")?;
    let mut found = templates.iter().filter(|it| it["kind"] == "Deployment");
    found.next().cloned().with_context(|| run.stdout.clone())
}

/// Where a plan has the Deployment, with how many replicas, and what overrides make of its image.
fn told(template: &Value) -> BTreeMap<String, (i64, Option<String>)> {
    let clusters = template["clusters"].as_array().into_iter().flatten();
    let told = clusters.filter_map(|one| {
        let name = one["cluster"].as_str()?.to_owned();
        let replicas = one["replicas"]["after"].as_i64()?;
        let mut overridden = one["overridden"].as_array().into_iter().flatten();
        let image =
            overridden.find(|it| it["path"].as_str().is_some_and(|it| it.ends_with("image")));
        let image = image.and_then(|it| it["after"].as_str()).map(str::to_owned);
        Some((name, (replicas, image)))
    });
    told.collect()
}

fn file(name: &str) -> String {
    repository()
        .join("examples")
        .join(name)
        .display()
        .to_string()
}

/// Before anything is there; of a policy, an override, a cluster and a refusal; each time the exit code and the members say
/// the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_planned_is_what_then_runs() -> Result<()> {
    let scratch = Scratch::new("plan")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(2)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let hub = lab.hub.client().await?;
    let (mut agents, mut members) = (Vec::new(), Vec::new());
    for (plane, name) in lab.members.iter().zip(MEMBERS) {
        agents.push(fleet.join(&plane.kubeconfig, name).await?);
        members.push(plane.client().await?);
    }

    // All that README applies, into a namespace that is not there yet.
    let files = [
        file("web.yaml"),
        file("web-policy.yaml"),
        file("web-override.yaml"),
    ];
    let named: Vec<&str> = files.iter().flat_map(|it| ["-f", it.as_str()]).collect();
    let image = "registry.k8s.io/e2e-test-images/agnhost:2.52".to_owned();
    let expected = BTreeMap::from([
        ("member1".to_owned(), (4, None)),
        ("member2".to_owned(), (2, Some(image))),
    ]);
    // Members that joined just now are not ready yet, and a plan says so.
    wait_for("a plan for both members", SOON, async || {
        let first = told(&planned(&fleet, &named).await?);
        ensure!(first == expected, "{first:?}");
        Ok(true)
    })
    .await?;
    let seen = hub.request_text(http::Request::get("/api/v1/namespaces/shop").body(Vec::new())?);
    ensure!(seen.await.is_err(), "a plan made the namespace");
    let objects = example()?;
    for object in &objects {
        apply(&hub, object).await?;
    }
    runs(&members, [Some((4, "2.53")), Some((2, "2.52"))]).await?;
    same(&fleet, &named).await?;

    // A policy that puts everything into one member.
    let mut policy = objects.get(3).context("a policy")?.clone();
    policy.data["spec"]["placement"] = json!({"clusterAffinity": {"clusterNames": ["member2"]}});
    let moved = scratch.join("moved.json");
    std::fs::write(&moved, serde_json::to_string(&policy)?)?;
    let moved = moved.display().to_string();
    let shown = plan(&fleet, &["-f", &moved]).await?;
    ensure!(shown.code == CHANGES, "{}: {}", shown.code, shown.stderr);
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = shown.stdout.lines().map(words).collect();
    for line in ["member1 4 - lost", "member2 2 6 +4"] {
        ensure!(
            lines.contains(&words(line)),
            "no {line:?} in {}",
            shown.stdout
        );
    }
    apply(&hub, &policy).await?;
    runs(&members, [None, Some((6, "2.52"))]).await?;
    same(&fleet, &["-f", &moved]).await?;

    // A drained cluster: no other is allowed, so that the last copy stays until another serves.
    let drained = planned(&fleet, &["--taint", "member2:drain:NoExecute"]).await?;
    ensure!(drained["clusters"][0]["verdict"] == "Leaves", "{drained}");
    ensure!(drained["unplaced"]["after"].is_string(), "{drained}");
    let cordoned = plan(&fleet, &["--cordon", "member2"]).await?;
    ensure!(cordoned.code == 0, "{}: {}", cordoned.code, cordoned.stdout);

    // Deleting the override, from its file.
    let over = file("web-override.yaml");
    let without = planned(&fleet, &["--delete", "-f", &over]).await?;
    let changes = without["clusters"][0]["changes"].to_string();
    ensure!(
        changes.contains("agnhost:2.52") && changes.contains("agnhost:2.53"),
        "{without}"
    );
    let overrides = objects.last().context("an override")?;
    let overrides = api_of(&hub, overrides)?;
    overrides.delete("web", &DeleteParams::default()).await?;
    runs(&members, [None, Some((6, "2.53"))]).await?;

    // What the hub would refuse.
    let bad = scratch.join("bad.json");
    let text = std::fs::read_to_string(&moved)?.replace("\"clusterNames\"", "\"clusterNamed\"");
    let text = text
        .replace("[\"member2\"]", "7")
        .replace("\"name\":\"web\"", "\"name\":\"Web\"");
    std::fs::write(&bad, text)?;
    let refused = plan(&fleet, &["-f", &bad.display().to_string()]).await?;
    ensure!(refused.code == 1, "{}: {}", refused.code, refused.stdout);
    ensure!(
        refused.stdout.contains("refused: PropagationPolicy"),
        "{}",
        refused.stdout
    );

    // The template that is deleted leaves everywhere.
    let deleted = planned(&fleet, &["--delete", "-f", &moved]).await?;
    ensure!(told(&deleted).is_empty(), "{deleted}");
    let policies = api_of(&hub, &policy)?;
    policies.delete("web", &DeleteParams::default()).await?;
    wait_for("members without the Deployment", SOON, async || {
        let seen = running(&members[1]).await?;
        ensure!(seen.is_none(), "member2 runs {seen:?} in {NAMESPACE}");
        Ok(true)
    })
    .await?;
    drop(agents);
    lab.stop().await;
    scratch.passed();
    Ok(())
}

/// What was applied is planned again, and nothing changes.
async fn same(fleet: &Fleet, flags: &[&str]) -> Result<()> {
    wait_for("a plan of what is there already", SOON, async || {
        let run = plan(fleet, flags).await?;
        ensure!(run.code == 0, "{}: {}{}", run.code, run.stdout, run.stderr);
        Ok(true)
    })
    .await
}
