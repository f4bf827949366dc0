//! What the demo tells, step by step; a step that does not hold ends it.

use super::fleet::Fleet;
use crate::cli::{Output, Table};
use anyhow::{Context as _, bail, ensure};
use common::api::cluster::{Cluster, READY};
use common::api::work::Work;
use common::names::AGENT_NAMESPACE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Silence after which the demo's hub says Unknown; other hubs wait 40 s.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// No step takes longer, on however slow a machine.
const SOON: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
const WORK: &str = "demo-web";

/// The teller.
pub(super) struct Story<'a> {
    output: &'a Output,
    began: Instant,
}

impl<'a> Story<'a> {
    /// Begins to count the time.
    pub(super) fn begin(output: &'a Output) -> Self {
        let began = Instant::now();
        Self { output, began }
    }

    /// Tells what is done next.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        self.output.print(format!("\n* {text}")).map_err(source)
    }

    fn held(&self, text: &str) -> anyhow::Result<()> {
        self.output.print(format!("  ok: {text}")).map_err(source)
    }

    /// The whole loop.
    pub(super) async fn tell(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        let took = self.began.elapsed().as_secs_f64();
        self.held(&format!("all answer after {took:.1} s"))?;
        for index in 0..fleet.members.len() {
            self.register(fleet, index).await?;
        }
        self.show_clusters(fleet).await?;
        self.place_work(fleet).await?;
        self.deployment_ready(fleet).await?;
        self.fall_silent(fleet).await?;
        self.come_back(fleet).await?;
        self.unregister(fleet).await?;
        let took = self.began.elapsed().as_secs_f64();
        self.say(&format!("Every step held, in {took:.1} s."))
    }

    async fn register(&self, fleet: &mut Fleet, index: usize) -> anyhow::Result<()> {
        let name = fleet.members[index].name.clone();
        self.say(&format!(
            "Registering {name}: `towline token create --cluster {name}`, and with that token an agent \
             beside the member. The hub never connects to it."
        ))?;
        let began = Instant::now();
        let said = fleet
            .towline(&["token", "create", "--cluster", &name])
            .await?;
        let token = said.split_whitespace().next();
        let token = token.context("`towline token create` printed nothing")?;
        fleet.agent(index, Some(token))?;
        ready(&fleet.hub, &name, "True").await?;
        let took = began.elapsed().as_secs_f64();
        self.held(&format!("{name} is Ready after {took:.1} s"))
    }

    async fn show_clusters(&self, fleet: &Fleet) -> anyhow::Result<()> {
        self.say("Asking the hub for its clusters, as `kubectl get clusters` does.")?;
        let request = http::Request::get("/apis/cluster.karmada.io/v1alpha1/clusters")
            .header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
            .body(Vec::new())?;
        let found: Value = fleet.hub.request(request).await?;
        let columns = found["columnDefinitions"].as_array();
        let columns: Vec<&str> = columns
            .into_iter()
            .flatten()
            .filter(|column| column["priority"] == 0)
            .filter_map(|column| column["name"].as_str())
            .collect();
        let wanted = ["Name", "Version", "Mode", "Ready", "Age"];
        ensure!(columns == wanted, "the table has the columns {columns:?}");
        let mut table = Table::new(["NAME", "VERSION", "MODE", "READY", "AGE"]);
        let rows = found["rows"].as_array().map_or(&[][..], Vec::as_slice);
        for row in rows {
            let cell = |index: usize| row["cells"][index].as_str().unwrap_or_default().to_owned();
            table.row([cell(0), cell(1), cell(2), cell(3), cell(4)]);
            ensure!(cell(2) == "Pull", "{} is not in mode Pull", cell(0));
            ensure!(cell(3) == "True", "{} is not ready", cell(0));
        }
        ensure!(
            rows.len() == fleet.members.len(),
            "there are {} clusters",
            rows.len()
        );
        for line in table.to_string().lines() {
            self.output.print(format!("    {line}")).map_err(source)?;
        }
        self.held("every member is there and ready")
    }

    async fn place_work(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let name = &fleet.members[0].name;
        self.say(&format!(
            "Writing a Work for {name} on the hub: a Deployment with three replicas, whose pods are played."
        ))?;
        let work: Work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1",
            "kind": "Work",
            "metadata": {"name": WORK},
            "spec": {"workload": {"manifests": [{
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "replicas": 3,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "web", "image": "registry.invalid/web:1"}]},
                    },
                },
            }]}},
        }))
        .context("the demo's Work is no Work")?;
        works(fleet)
            .create(&PostParams::default(), &work)
            .await
            .context("failed to create the Work")?;
        Ok(())
    }

    /// The Deployment runs in the member, and the Work says so on the hub.
    async fn deployment_ready(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let deployments = deployments(fleet, 0);
        until("three ready replicas in the member", async || {
            let found = deployments.get("web").await?.status.unwrap_or_default();
            Ok(found.ready_replicas == Some(3))
        })
        .await?;
        let works = works(fleet);
        until("the Work's own report of it", async || {
            let work = serde_json::to_value(works.get(WORK).await?)?;
            let conditions = work["status"]["conditions"].as_array();
            let applied = conditions
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Applied" && c["status"] == "True");
            let manifest = &work["status"]["manifestStatuses"][0];
            ensure!(applied, "it is not Applied: {}", work["status"]);
            ensure!(
                manifest["status"]["readyReplicas"] == 3 && manifest["health"] == "Healthy",
                "it reports {manifest}"
            );
            Ok(true)
        })
        .await?;
        self.held(
            "3 of 3 replicas are ready in the member, and the Work on the hub says Applied and Healthy",
        )
    }

    async fn fall_silent(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        let name = fleet.members[0].name.clone();
        self.say(&format!(
            "Killing the agent of {name}. The hub must notice by its silence alone, {} s after the last \
             sign of life.",
            GRACE.as_secs()
        ))?;
        let agent = fleet.members[0].agent.take();
        let mut agent = agent.context("its agent does not run")?;
        agent.kill().await.context("failed to kill the agent")?;
        let killed = Instant::now();
        ready(&fleet.hub, &name, "Unknown").await?;
        let took = killed.elapsed().as_secs_f64();
        self.held(&format!("Ready is Unknown, {took:.1} s after the kill"))
    }

    async fn come_back(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        self.say("Starting the agent again, with the state it had.")?;
        let name = fleet.members[0].name.clone();
        fleet.agent(0, None)?;
        ready(&fleet.hub, &name, "True").await?;
        self.held("the cluster is Ready again, and asked for no new token")?;
        self.deployment_ready(fleet).await
    }

    /// The last member leaves, so that something is left to look at.
    async fn unregister(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        let last = fleet.members.len() - 1;
        let name = fleet.members[last].name.clone();
        self.say(&format!(
            "Unregistering {name}: `towline unregister {name} --yes`. The agent cleans up and ends."
        ))?;
        fleet.towline(&["unregister", &name, "--yes"]).await?;
        let clusters: Api<Cluster> = Api::all(fleet.hub.clone());
        until("the end of the cluster", async || {
            Ok(clusters.get_opt(&name).await?.is_none())
        })
        .await?;
        let mut member = fleet.members.remove(last);
        let agent = member.agent.as_mut().context("its agent does not run")?;
        until("the end of its agent", async || {
            Ok(agent.try_wait()?.is_some())
        })
        .await?;
        let namespaces: Api<Namespace> = Api::all(member.client.clone());
        until("the end of the agent's namespace", async || {
            Ok(namespaces.get_opt(AGENT_NAMESPACE).await?.is_none())
        })
        .await?;
        member.end().await;
        self.held(&format!(
            "nothing of {name} is left on the hub, nor of Towline in {name}"
        ))
    }

    /// Says where things are, and what to try.
    pub(super) fn stay(&self, fleet: &Fleet) -> anyhow::Result<()> {
        self.say("It stays up until Ctrl-C. Kubeconfigs, each with every right:")?;
        let print = |line: String| self.output.print(format!("    {line}")).map_err(source);
        print(format!("{}   # the hub", fleet.kubeconfig.display()))?;
        for member in &fleet.members {
            print(format!(
                "{}   # {}",
                member.kubeconfig.display(),
                member.name
            ))?;
        }
        let member = fleet.members.first().context("no member is left")?;
        let on = |path: &std::path::Path| format!("kubectl --kubeconfig {}", path.display());
        let hub = on(&fleet.kubeconfig);
        let work = format!(
            "-n {}{} work/{WORK}",
            common::names::EXECUTION_PREFIX,
            member.name
        );
        self.say("In another terminal, the clusters, what became of the Work, and what it made:")?;
        print(format!("{hub} get clusters"))?;
        print(format!("{hub} get {work} -o yaml"))?;
        print(format!("{} get deployment web", on(&member.kubeconfig)))
    }

    /// Nothing is left running.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        self.say("Nothing is left running.")
    }
}

fn source(error: crate::cli::CliError) -> anyhow::Error {
    error.source
}

fn works(fleet: &Fleet) -> Api<Work> {
    let namespace = format!(
        "{}{}",
        common::names::EXECUTION_PREFIX,
        fleet.members[0].name
    );
    Api::namespaced(fleet.hub.clone(), &namespace)
}

fn deployments(fleet: &Fleet, index: usize) -> Api<Deployment> {
    Api::namespaced(fleet.members[index].client.clone(), "default")
}

async fn ready(hub: &Client, name: &str, status: &str) -> anyhow::Result<()> {
    let clusters: Api<Cluster> = Api::all(hub.clone());
    until(&format!("Ready={status} of {name}"), async || {
        let found = clusters
            .get_opt(name)
            .await?
            .context("no such Cluster yet")?;
        let ready = found.condition(READY).context("no condition Ready yet")?;
        ensure!(
            ready.status == status,
            "it is {} ({}: {})",
            ready.status,
            ready.reason,
            ready.message
        );
        Ok(true)
    })
    .await
}

/// Waits until a condition holds; its last error says why it did not.
async fn until(
    what: &str,
    mut condition: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + SOON;
    let mut last = String::from("it did not hold");
    while Instant::now() < deadline {
        match timeout_at(deadline, condition()).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
        }
        sleep(POLL).await;
    }
    bail!("{what} did not come within {SOON:?}: {last}")
}
