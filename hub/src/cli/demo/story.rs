//! What the demo tells, step by step; a step that does not hold ends it.

use super::fleet::{Fleet, Member};
use super::shop;
use crate::cli::{Output, Table};
use anyhow::{Context as _, bail, ensure};
use common::api::binding::{AggregatedStatusItem, FULLY_APPLIED, ResourceBinding};
use common::api::cluster::{Cluster, READY};
use common::conditions;
use common::names::AGENT_NAMESPACE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Silence after which the demo's hub says Unknown; other hubs wait 40 s.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// No step takes longer, on however slow a machine.
const SOON: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

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
        self.propagate(fleet).await?;
        self.fall_silent(fleet).await?;
        self.run_elsewhere(fleet).await?;
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

    /// A Deployment, and what says where it goes.
    async fn propagate(&self, fleet: &Fleet) -> anyhow::Result<()> {
        self.say(
            "Writing to the hub, once: a Deployment with four replicas, the ConfigMap that it names, a \
             PropagationPolicy that divides it 2:1:1, and an OverridePolicy with another image for member2. What \
             its pods say is played.",
        )?;
        let names: Vec<&str> = fleet.members.iter().map(|it| it.name.as_str()).collect();
        shop::open(&fleet.hub, &names).await?;
        let [own, other] = shop::IMAGES;
        for (index, (replicas, image)) in [(2, own), (1, other), (1, own)].into_iter().enumerate() {
            runs(fleet, index, replicas, image).await?;
        }
        self.held(
            "they run 2, 1 and 1 replicas, member2 with its own image, each beside the ConfigMap",
        )?;
        answered(fleet).await?;
        self.held("the Deployment on the hub says that 4 of 4 replicas are ready")?;
        self.show_template(fleet).await
    }

    /// What a person would look at.
    async fn show_template(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let args = ["get", "deployment", shop::NAME, "-n", shop::NAMESPACE];
        self.say(&format!("Looking at it: `towline {}`.", args.join(" ")))?;
        for line in fleet.towline(&args).await?.lines() {
            let line = format!("    {line}");
            self.output.print(line.trim_end()).map_err(source)?;
        }
        Ok(())
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

    /// What the lost member ran is run by the others, though nobody can say whether it still runs there.
    async fn run_elsewhere(&self, fleet: &Fleet) -> anyhow::Result<()> {
        self.say(
            "Its two replicas are to run elsewhere, as nothing in the policy tolerates a lost cluster. This hub waits \
             a second with that; others wait five minutes.",
        )?;
        let [own, other] = shop::IMAGES;
        runs(fleet, 1, 2, other).await?;
        runs(fleet, 2, 2, own).await?;
        answered(fleet).await?;
        self.held(
            "the two that are left run 2 replicas each, and the Deployment on the hub says 4 of 4",
        )?;
        self.show_template(fleet).await
    }

    async fn come_back(&self, fleet: &mut Fleet) -> anyhow::Result<()> {
        self.say("Starting the agent again, with the state it had.")?;
        let name = fleet.members[0].name.clone();
        fleet.agent(0, None)?;
        ready(&fleet.hub, &name, "True").await?;
        self.held("the cluster is Ready again, and asked for no new token")?;
        let deployments = deployments(&fleet.members[0]);
        until("the end of the copy that was left behind", async || {
            Ok(deployments.get_opt(shop::NAME).await?.is_none())
        })
        .await?;
        self.held("the copy that it still had is gone; replicas do not move back without need")
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
        ))?;
        answered(fleet).await?;
        self.held(
            "its replicas went to the others, and the Deployment on the hub says 4 of 4 again",
        )?;
        self.show_template(fleet).await
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
        let member = fleet.members.last().context("no member is left")?;
        let on = |path: &std::path::Path| format!("kubectl --kubeconfig {}", path.display());
        let hub = on(&fleet.kubeconfig);
        let there = format!("get deployment {} -n {}", shop::NAME, shop::NAMESPACE);
        let towline = format!(
            "towline {there} --kubeconfig {}",
            fleet.kubeconfig.display()
        );
        self.say("In another terminal, the clusters, the Deployment in all of them, and in one:")?;
        print(format!("{hub} get clusters"))?;
        print(towline)?;
        print(format!("{} {there}", on(&member.kubeconfig)))
    }

    /// Nothing is left running.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        self.say("Nothing is left running.")
    }
}

fn source(error: crate::cli::CliError) -> anyhow::Error {
    error.source
}

fn deployments(member: &Member) -> Api<Deployment> {
    Api::namespaced(member.client.clone(), shop::NAMESPACE)
}

/// A member runs its share of the Deployment, and has the ConfigMap.
async fn runs(fleet: &Fleet, index: usize, replicas: i32, image: &str) -> anyhow::Result<()> {
    let member = &fleet.members[index];
    let deployments = deployments(member);
    let maps: Api<ConfigMap> = Api::namespaced(member.client.clone(), shop::NAMESPACE);
    until(&format!("the Deployment in {}", member.name), async || {
        let found = deployments.get(shop::NAME).await?;
        let spec = found.spec.context("a Deployment without a spec")?;
        let ready = found.status.and_then(|it| it.ready_replicas);
        let containers = spec
            .template
            .spec
            .map(|it| it.containers)
            .unwrap_or_default();
        let runs = containers.into_iter().find_map(|it| it.image);
        ensure!(
            spec.replicas == Some(replicas),
            "it has {:?} replicas",
            spec.replicas
        );
        ensure!(runs.as_deref() == Some(image), "it runs {runs:?}");
        ensure!(ready == Some(replicas), "{ready:?} of {replicas} are ready");
        maps.get(shop::NAME).await?;
        Ok(true)
    })
    .await
}

/// The hub knows from the members, and from no others, that every replica is ready, and says so on the template.
async fn answered(fleet: &Fleet) -> anyhow::Result<()> {
    let templates: Api<Deployment> = Api::namespaced(fleet.hub.clone(), shop::NAMESPACE);
    let bindings: Api<ResourceBinding> = Api::namespaced(fleet.hub.clone(), shop::NAMESPACE);
    let binding = common::names::binding_name("Deployment", shop::NAME);
    until("the answer of the members on the hub", async || {
        let found = bindings.get(&binding).await?;
        let status = found.status.unwrap_or_default();
        let given = found.spec.clusters.iter();
        let mut given: Vec<_> = given.map(|it| (it.name.as_str(), it.replicas)).collect();
        let told = status.aggregated_status.iter();
        let mut told: Vec<_> = told
            .map(|it| (it.cluster_name.as_str(), ready_of(it)))
            .collect();
        given.sort_unstable();
        told.sort_unstable();
        ensure!(given == told, "of {given:?} there are ready {told:?}");
        let applied = conditions::get(&status.conditions, FULLY_APPLIED);
        let applied = applied.context("nobody has answered")?;
        ensure!(
            applied.status == "True",
            "{}: {}",
            applied.reason,
            applied.message
        );
        let template = templates.get(shop::NAME).await?.status;
        let ready = template.and_then(|it| it.ready_replicas);
        ensure!(
            ready == Some(shop::REPLICAS),
            "the template says that {ready:?} are ready"
        );
        Ok(true)
    })
    .await
}

fn ready_of(told: &AggregatedStatusItem) -> Option<i32> {
    let ready = told.status.as_ref()?.get("readyReplicas")?.as_i64()?;
    i32::try_from(ready).ok()
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
