//! A hub, and a member on kube-apiserver whose agent was installed by `towline register`: its rights, its
//! flags and its policy are the shipped ones, and only its process runs beside the cluster in place of a pod.

use anyhow::{Context as _, Result, ensure};
use common::api::work::Work;
use common::names::{AGENT_NAME, AGENT_NAMESPACE};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{
    CLUSTER_READY_WITHIN, Fleet, Parts, Plane, PlaneOptions, Process, ProcessSpec, Run, Scratch,
    Version, binary, client, wait_for, wait_for_some,
};

/// The cluster's name.
pub(in crate::cases) const CLUSTER: &str = "target";
/// Where its Works are.
pub(in crate::cases) const EXECUTION: &str = "karmada-es-target";
/// How long anything may take; the machine is shared.
pub(in crate::cases) const SOON: Duration = Duration::from_secs(150);

/// The stage of an attack.
pub(in crate::cases) struct Rig {
    /// The hub with Towline.
    pub(in crate::cases) fleet: Fleet,
    /// The member's owner.
    pub(in crate::cases) owner: Client,
    pub(in crate::cases) scratch: Scratch,
    hub: Plane,
    pub(in crate::cases) member: Plane,
    /// A kubeconfig of the agent's ServiceAccount.
    shipped: PathBuf,
    agent: Option<Process>,
}

impl Rig {
    /// A hub and a member without an agent.
    pub(in crate::cases) async fn bare(name: &str) -> Result<Self> {
        Self::planes(name, Version::default()).await
    }

    /// A hub, and a member of that version in which an agent is installed that does not run yet.
    pub(in crate::cases) async fn start(name: &str, version: Version) -> Result<Self> {
        let rig = Self::planes(name, version).await?;
        rig.register(&rig.member.kubeconfig, &[]).await?.ok()?;
        Ok(rig)
    }

    async fn planes(name: &str, version: Version) -> Result<Self> {
        let mut options = PlaneOptions::member("member").version(version);
        // Policies are what only a real API server has; nothing here needs a Pod that runs.
        (options.builtin, options.nodes, options.scheduler) = (false, 0, false);
        Self::of(name, PlaneOptions::hub(), options).await
    }

    /// A hub and a member without an agent, of these servers.
    pub(in crate::cases) async fn of(
        name: &str,
        hub: PlaneOptions,
        member: PlaneOptions,
    ) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let (hub_dir, member_dir) = (scratch.join("hub"), scratch.join("member"));
        let (hub, member) = futures::try_join!(
            Plane::start(&parts, &hub_dir, hub),
            Plane::start(&parts, &member_dir, member),
        )?;
        let fleet = Fleet::start(&scratch.join("towline"), &hub).await?;
        let user = format!("system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_NAME}");
        let groups = ["system:serviceaccounts", "system:authenticated"];
        let shipped = member.kubeconfig_for(&scratch.join("shipped"), &user, &groups)?;
        Ok(Self {
            fleet,
            owner: member.client().await?,
            scratch,
            hub,
            member,
            shipped,
            agent: None,
        })
    }

    /// `towline register` with a new token and more flags; no pod is started.
    pub(in crate::cases) async fn register(
        &self,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<Run> {
        let token = self.fleet.token(&["--cluster", CLUSTER]).await?;
        let kubeconfig = kubeconfig.display().to_string();
        let args = ["register", &self.fleet.address, "--kubeconfig", &kubeconfig];
        let more = ["--cluster-name", CLUSTER, "--token-file", "-"];
        let pin = ["--discovery-token-ca-cert-hash", &self.fleet.pin];
        let all = args.into_iter().chain(more).chain(pin);
        let all = all.chain(["--replicas=0", "--wait=0"]);
        let all = all.chain(flags.iter().copied());
        self.fleet.towline.cli_with_input(all, Some(&token)).await
    }

    /// Starts the agent with the flags of its Deployment and the rights of its ServiceAccount.
    pub(in crate::cases) async fn start_agent(&mut self) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.owner.clone(), AGENT_NAMESPACE);
        let deployment = serde_json::to_value(deployments.get(AGENT_NAME).await?)?;
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let args: Vec<String> = serde_json::from_value(args.clone())?;
        let spec = ProcessSpec::new("agent", &binary("towline-agent")?, self.scratch.path())
            .args(args)
            .arg("--kubeconfig")
            .arg(&self.shipped)
            .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
            .args(["--cluster-success-threshold=1s"]);
        let agent = self.agent.insert(Process::start(spec)?);
        let ready = self.fleet.wait_ready(CLUSTER, "True", CLUSTER_READY_WITHIN);
        ready
            .await
            .with_context(|| format!("the agent says: {}", agent.log_text()))
    }

    /// The owner allows a reserved namespace, and the agent is started anew as its pod would be.
    pub(in crate::cases) async fn allow(&mut self, namespace: &str) -> Result<()> {
        let kubeconfig = self.member.kubeconfig.display().to_string();
        let args = ["register", "--kubeconfig", &kubeconfig, "--wait=0"];
        let all = args.into_iter().chain(["--allow-namespace", namespace]);
        let said = self.fleet.towline.cli(all).await?.ok()?;
        let warned = said.stderr.contains("owns what runs there");
        ensure!(warned, "{}", said.stderr);
        self.stop_agent().await?;
        self.start_agent().await
    }

    /// Ends the agent's process; whoever looks sees that there was one.
    pub(in crate::cases) async fn stop_agent(&mut self) -> Result<()> {
        match self.agent.take() {
            Some(mut agent) => agent.stop(SOON).await.map(drop),
            None => Ok(()),
        }
    }

    /// A client that is the agent's ServiceAccount.
    pub(in crate::cases) async fn as_agent(&self) -> Result<Client> {
        client(&self.shipped).await
    }

    async fn works(&self) -> Result<Api<Work>> {
        Ok(Api::namespaced(self.fleet.client().await?, EXECUTION))
    }

    /// Writes a Work.
    pub(in crate::cases) async fn deliver(&self, name: &str, manifests: &[Value]) -> Result<()> {
        let work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
            "spec": {"workload": {"manifests": manifests}},
        }))?;
        let works = self.works().await?;
        works.create(&PostParams::default(), &work).await?;
        Ok(())
    }

    /// Deletes a Work and waits until it is gone.
    pub(in crate::cases) async fn delete(&self, name: &str) -> Result<()> {
        let works = self.works().await?;
        works.delete(name, &DeleteParams::default()).await?;
        wait_for(&format!("the end of Work {name}"), SOON, async || {
            Ok(works.get_opt(name).await?.is_none())
        })
        .await
    }

    /// Waits for Applied with this status and these words, and returns its message.
    pub(in crate::cases) async fn applied(
        &self,
        name: &str,
        status: &str,
        words: &str,
    ) -> Result<String> {
        let works = self.works().await?;
        let what = format!("Applied={status} of Work {name} with {words:?}");
        let waited = wait_for_some(&what, SOON, async || {
            let work = serde_json::to_value(works.get(name).await?)?;
            let conditions = work["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let applied = conditions.find(|c| c["type"] == "Applied");
            let applied = applied.context("no condition Applied yet")?;
            let message = applied["message"].as_str().unwrap_or_default();
            ensure!(
                applied["status"] == status && message.contains(words),
                "it is {applied}"
            );
            Ok(Some(message.to_owned()))
        });
        waited.await
    }

    /// The owner allows nothing any more, and the agent is started anew.
    pub(in crate::cases) async fn withdraw(&mut self) -> Result<()> {
        let kubeconfig = self.member.kubeconfig.display().to_string();
        let args = ["register", "--kubeconfig", &kubeconfig, "--wait=0"];
        let all = args.into_iter().chain(["--allow-namespace", "none"]);
        self.fleet.towline.cli(all).await?.ok()?;
        self.stop_agent().await?;
        self.start_agent().await?;
        self.applied("privileged", "False", "is reserved").await?;
        Ok(())
    }

    /// `towline unregister`: the agent takes itself and its policy out, though the policy is in force.
    pub(in crate::cases) async fn leave(&mut self) -> Result<()> {
        self.fleet
            .cli(&["unregister", CLUSTER, "--yes"])
            .await?
            .ok()?;
        self.fleet.wait_gone(CLUSTER, SOON).await?;
        let namespaces: Api<Namespace> = Api::all(self.owner.clone());
        let roles: Api<ClusterRole> = Api::all(self.owner.clone());
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.owner.clone());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.owner.clone());
        wait_for("a member without an agent", SOON, async || {
            let namespace = namespaces.get_opt(AGENT_NAMESPACE).await?;
            ensure!(namespace.is_none(), "its namespace is there");
            ensure!(roles.get_opt(AGENT_NAME).await?.is_none(), "its role is");
            let binding = bindings.get_opt(AGENT_NAME).await?;
            ensure!(binding.is_none(), "its policy's binding is");
            ensure!(
                policies.get_opt(AGENT_NAME).await?.is_none(),
                "its policy is"
            );
            Ok(true)
        })
        .await
    }

    /// Ends both planes and removes the folder.
    pub(in crate::cases) async fn passed(mut self) {
        drop(self.agent.take());
        self.member.stop().await;
        self.hub.stop().await;
        self.scratch.passed();
    }
}
