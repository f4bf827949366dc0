//! `towline demo`: every step holds, what it says to try works, and the examples work on its hub.

mod examples;
mod people;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

use crate::env::{
    Parts, Process, ProcessSpec, Run, Scratch, Towline, binary, left_out, repository, run,
    wait_for, wait_for_some,
};

/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(150);

#[tokio::test]
async fn every_step_of_the_demo_holds() -> Result<()> {
    let scratch = Scratch::new("demo")?;
    let towline = Towline::new(scratch.path())?;
    let data = scratch.join("data").display().to_string();
    let said = towline
        .cli(["demo", "--once", "--dir", &data])
        .await?
        .ok()?;
    for step in [
        "no container runs",
        "member3 is Ready",
        "each beside the ConfigMap",
        "4 of 4 replicas are ready",
        "applied everywhere",
        "Ready is Unknown",
        "run 2 replicas each",
        "replicas do not move back without need",
        "its replicas went to the others",
        "Every step held",
    ] {
        ensure!(said.stdout.contains(step), "no {step:?} in {}", said.stdout);
    }
    scratch.passed();
    Ok(())
}

/// What stays up is named, its commands work as printed, and so do the examples.
#[tokio::test]
async fn what_the_demo_says_to_try_works_and_so_do_the_examples() -> Result<()> {
    let Some(kubectl) = Parts::from_env()?.any_kubectl() else {
        left_out("what the demo says to try", "there is no kubectl");
        return Ok(());
    };
    let scratch = Scratch::new("demo-stays")?;
    let data = scratch.join("data");
    let spec = ProcessSpec::new("demo", &binary("towline")?, scratch.path());
    let mut demo = Process::start(spec.arg("demo").arg("--dir").arg(&data))?;
    wait_for("the commands to try", SOON, async || {
        demo.check()?;
        Ok(demo
            .log_text()
            .contains("member2.kubeconfig get deployment"))
    })
    .await?;
    let said = demo.log_text();
    ensure!(!said.contains("member3.kubeconfig"), "it has left: {said}");
    let lines = said.lines().map(str::trim);
    let tried = |line: &&str| line.starts_with("kubectl ") || line.starts_with("towline get");
    let commands: Vec<&str> = lines.filter(tried).collect();
    ensure!(commands.len() == 3, "not three commands: {said}");
    let shown = ["member2", "applied everywhere", "web"];
    for (command, shown) in commands.into_iter().zip(shown) {
        let out = typed(&kubectl, command).await?;
        ensure!(out.contains(shown), "{command}: {out}");
    }
    the_agents_have_the_rights_of_an_installation(&kubectl, &data).await?;
    large_works(&kubectl, &data).await?;
    examples::of_the_readme(&kubectl, &data).await?;
    examples::act(&kubectl, &data).await?;
    let hub = data.join("hub/admin.kubeconfig").display().to_string();
    people::have_their_rights(&kubectl, &hub).await?;
    demo.stop(SOON).await?;
    scratch.passed();
    Ok(())
}

/// Not those of an administrator: Secrets are not among the default kinds.
async fn the_agents_have_the_rights_of_an_installation(kubectl: &Path, data: &Path) -> Result<()> {
    let agent = data.join("agent-member1.kubeconfig");
    let agent = agent.to_str().context("a path in UTF-8")?;
    let can = async |verb: &str, resource: &str| -> Result<String> {
        let args = ["--kubeconfig", agent, "auth", "can-i", verb, resource, "-A"];
        Ok(ask(kubectl, args).await?.stdout.trim().to_owned())
    };
    ensure!(can("create", "deployments.apps").await? == "yes");
    ensure!(can("list", "secrets").await? == "no");
    ensure!(can("create", "clusterrolebindings").await? == "no");
    Ok(())
}

/// A manifest too large for the annotation of a client-side apply.
async fn large_works(kubectl: &Path, data: &Path) -> Result<()> {
    let hub = data.join("hub/admin.kubeconfig");
    let hub = hub.to_str().context("a path in UTF-8")?;
    let large = large_work();
    let path = data.join("large.json");
    std::fs::write(&path, large.to_string())?;
    let path = path.to_str().context("a path in UTF-8")?;
    let refused = ask(kubectl, ["--kubeconfig", hub, "apply", "-f", path]);
    let refused = refused.await?.refused()?;
    ensure!(
        refused.stderr.contains("metadata.annotations: Too long"),
        "{}",
        refused.stderr
    );
    let args = ["--kubeconfig", hub, "apply", "--server-side", "-f", path];
    ask(kubectl, args).await?.ok()?;
    applied(kubectl, hub, "large").await
}

/// A Work of nearly a MiB.
fn large_work() -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "large", "namespace": "karmada-es-member1"},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "large", "namespace": "default"},
            "data": {"text": "x".repeat(950_000)},
        }]}},
    })
}

async fn applied(kubectl: &Path, hub: &str, name: &str) -> Result<()> {
    let args = [
        "--kubeconfig",
        hub,
        "--namespace=karmada-es-member1",
        "get",
        "work",
        name,
        "--output=jsonpath={.status.conditions[?(@.type=='Applied')]}",
    ];
    let condition: Value = wait_for_some(&format!("the condition of {name}"), SOON, async || {
        let out = ask(kubectl, args).await?.ok()?;
        Ok(serde_json::from_str::<Value>(&out.stdout)
            .ok()
            .filter(|condition| condition["status"] == "True"))
    })
    .await?;
    ensure!(condition["reason"] == "AppliedSuccessful", "{condition}");
    Ok(())
}

/// What a line for people prints, typed in the root of the repository.
async fn typed(kubectl: &Path, line: &str) -> Result<String> {
    let mut words = line.split_whitespace();
    let mut command = match words.next() {
        Some("kubectl") => Command::new(kubectl),
        Some("towline") => Command::new(binary("towline")?),
        other => bail!("nobody can type {other:?}"),
    };
    command.args(words).current_dir(repository());
    Ok(run(command, None, SOON).await?.ok()?.stdout)
}

async fn ask(kubectl: &Path, args: impl IntoIterator<Item = &str>) -> Result<Run> {
    let mut command = Command::new(kubectl);
    command.args(args);
    run(command, None, SOON).await
}
