//! The agent as users run it: the shipped manifests and image, as a pod of a real node whose
//! namespace enforces the restricted level.

use anyhow::{Context as _, Result, ensure};
use common::api::work::Work;
use common::names::AGENT_NAMESPACE;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

use super::hostile::{privileged, reads_key};
use crate::env::{
    Fleet, Image, PAUSE_IMAGE, Part, Parts, Plane, PlaneOptions, Run, Scratch, repository, run,
    wait_for, wait_for_some, write_private,
};

const WITHIN: Duration = Duration::from_secs(120);
const CLUSTER: &str = "podded";

/// A hub with Towline, and a member with a real node that has the agent's image.
struct Stage {
    scratch: Scratch,
    parts: Parts,
    member: Plane,
    fleet: Fleet,
    hub: Plane,
    /// Where pods find the hub.
    address: String,
}

impl Stage {
    async fn set(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let (hub_dir, member_dir) = (scratch.join("hub"), scratch.join("member"));
        let (mut hub, mut member) = futures::try_join!(
            Plane::start(&parts, &hub_dir, PlaneOptions::hub()),
            Plane::start(&parts, &member_dir, PlaneOptions::real("member")),
        )?;
        let address = member.expose(hub.port)?;
        let node = member.node.as_ref().context("the member has a node")?;
        node.import(&Image::agent()?).await?;
        let towline = scratch.join("towline");
        hub.advertise(&[&address]).await?;
        let fleet = Fleet::start(&towline, &hub).await?;
        Ok(Self {
            scratch,
            parts,
            member,
            fleet,
            hub,
            address,
        })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<Run> {
        let mut command = tokio::process::Command::new(self.parts.path(Part::Kubectl)?);
        command
            .arg("--kubeconfig")
            .arg(&self.member.kubeconfig)
            .args(args)
            .current_dir(repository());
        run(command, None, WITHIN).await
    }

    /// The end of a stage whose test passed.
    async fn clear(mut self) {
        self.member.stop().await;
        self.hub.stop().await;
        self.scratch.passed();
    }

    /// Waits for the Cluster, and says what the agent said when it does not become Ready.
    async fn ready(&self) -> Result<()> {
        match self.fleet.wait_ready(CLUSTER, "True", WITHIN).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let log = self.kubectl(&["-n", AGENT_NAMESPACE, "logs", "deploy/towline-agent"]);
                let log = log.await.map(|run| run.stdout + &run.stderr);
                Err(error.context(format!("the agent's log: {log:?}")))
            }
        }
    }

    /// Registers by the command.
    async fn register(&self, token: &str, pin: &str, wait: &str) -> Result<Run> {
        let member = self.member.kubeconfig.display().to_string();
        let args = ["register", &self.address, "--kubeconfig", &member];
        let more = ["--cluster-name", CLUSTER, "--token-file", "-"];
        let pin = ["--discovery-token-ca-cert-hash", pin, "--wait", wait];
        let all = args.into_iter().chain(more).chain(pin);
        self.fleet.towline.cli_with_input(all, Some(token)).await
    }

    /// Registers as `docs/install.md` says for people who use kubectl.
    async fn apply_manifests(&self, token: &str) -> Result<()> {
        self.kubectl(&["apply", "-k", "manifests/agent"])
            .await?
            .ok()?;
        // For users of the hub as ServiceAccounts: it leaves with the rest.
        self.kubectl(&["apply", "-f", "manifests/agent/users.yaml"])
            .await?
            .ok()?;
        // Certificates so short that they are renewed some seconds after they were issued.
        let short = [
            "TOWLINE_AGENT_CERT_EXPIRATION_SECONDS=600",
            "TOWLINE_AGENT_CERT_ROTATION_CHECKING_INTERVAL=1s",
            "TOWLINE_AGENT_CERT_ROTATION_REMAINING_TIME_THRESHOLD=0.97",
        ];
        let args = ["-n", AGENT_NAMESPACE, "set", "env", "deploy/towline-agent"];
        self.kubectl(&[&args[..], &short].concat()).await?.ok()?;
        // A pod of the first template must not be the one that registers.
        self.scale(0).await?;
        let file = self.scratch.join("token");
        write_private(&file, token)?;
        self.kubectl(&[
            "-n",
            AGENT_NAMESPACE,
            "create",
            "secret",
            "generic",
            "towline-agent-bootstrap",
            &format!("--from-literal=hub={}", self.address),
            &format!("--from-literal=cluster-name={CLUSTER}"),
            &format!("--from-literal=ca-cert-hashes={}", self.fleet.pin),
            &format!("--from-file=token={}", file.display()),
        ])
        .await?
        .ok()?;
        self.scale(1).await
    }

    /// Scales the agent and waits until there are that many pods.
    async fn scale(&self, replicas: usize) -> Result<()> {
        let flag = format!("--replicas={replicas}");
        let args = [
            "-n",
            AGENT_NAMESPACE,
            "scale",
            "deploy/towline-agent",
            &flag,
        ];
        self.kubectl(&args).await?.ok()?;
        let pods: Api<Pod> = Api::namespaced(self.member.client().await?, AGENT_NAMESPACE);
        wait_for("that many pods of the agent", WITHIN, async || {
            Ok(pods.list(&ListParams::default()).await?.items.len() == replicas)
        })
        .await
    }
}

/// `kubectl apply -k manifests/agent` and a Secret: a real pod registers, survives its deletion and
/// a rotation, runs a real container for a Work, and takes itself out again.
#[tokio::test(flavor = "multi_thread")]
async fn real_node_agent_by_kubectl() -> Result<()> {
    let stage = Stage::set("pod-kubectl").await?;
    let client = stage.member.client().await?;
    let before = inventory(&client).await?;
    let token = stage.fleet.token(&["--cluster", CLUSTER]).await?;
    stage.apply_manifests(&token).await?;
    stage.ready().await?;

    survives_deletion(&stage, &client).await?;
    rotates(&stage, &client).await?;
    run_container(&stage, &client).await?;

    stage
        .fleet
        .cli(&["unregister", CLUSTER, "--yes"])
        .await?
        .ok()?;
    stage.fleet.wait_gone(CLUSTER, WITHIN).await?;
    wait_for("a member as it was found", WITHIN, async || {
        let now = inventory(&client).await?;
        let more: Vec<_> = now.difference(&before).collect();
        ensure!(more.is_empty(), "left: {more:?}");
        ensure!(now == before, "missing: {:?}", before.difference(&now));
        Ok(true)
    })
    .await?;
    stage.clear().await;
    Ok(())
}

/// `towline register` shows three errors as they happen in the pod, then succeeds;
/// `towline unregister --keep-workloads` leaves the container running.
#[tokio::test(flavor = "multi_thread")]
async fn real_node_agent_by_register() -> Result<()> {
    let stage = Stage::set("pod-register").await?;
    let client = stage.member.client().await?;
    let good = stage.fleet.pin.clone();
    let wrong = format!("sha256:{}", "0".repeat(64));
    let other = stage.fleet.token(&["--cluster", "somebody-else"]).await?;
    let token = stage.fleet.token(&["--cluster", CLUSTER]).await?;
    for (what, token, pin, want) in [
        ("a wrong pin", token.as_str(), &wrong, "pin"),
        (
            "an unknown token",
            "abcdef.0123456789abcdef",
            &good,
            "token",
        ),
        ("another's token", other.as_str(), &good, "somebody-else"),
    ] {
        let said = stage.register(token, pin, "3m").await?.refused()?.stderr;
        ensure!(said.contains(want), "{what} was told so: {said}");
    }
    let ready = stage.register(&token, &good, "3m").await?.ok()?.stdout;
    assert!(ready.contains("cluster podded is Ready"), "{ready}");
    stage.ready().await?;
    run_container(&stage, &client).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let uid = deployments.get("web").await?.uid();
    let pod = web_pod(&client).await?;

    stage
        .fleet
        .cli(&["unregister", CLUSTER, "--keep-workloads", "--yes"])
        .await?
        .ok()?;
    stage.fleet.wait_gone(CLUSTER, WITHIN).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait_for("the end of the agent's namespace", WITHIN, async || {
        Ok(namespaces.get_opt(AGENT_NAMESPACE).await?.is_none())
    })
    .await?;
    let kept = deployments.get("web").await?;
    assert_eq!(kept.uid(), uid);
    assert_eq!(web_pod(&client).await?, pod);
    let ours = |key: &String| key.contains("karmada.io") || key.contains("towline.dev");
    assert!(!kept.labels().keys().any(ours), "{:?}", kept.labels());
    assert!(
        !kept.annotations().keys().any(ours),
        "{:?}",
        kept.annotations()
    );
    stage.clear().await;
    Ok(())
}

/// A hub that writes Works to own its member, against the agent in its pod: nothing runs where it must not,
/// the same in a namespace of its own does, and what the owner allows too.
#[tokio::test(flavor = "multi_thread")]
async fn real_node_hostile_hub() -> Result<()> {
    let stage = Stage::set("pod-hostile").await?;
    let client = stage.member.client().await?;
    let token = stage.fleet.token(&["--cluster", CLUSTER]).await?;
    let pin = stage.fleet.pin.clone();
    stage.register(&token, &pin, "3m").await?.ok()?;
    let works: Api<Work> = Api::namespaced(
        stage.fleet.client().await?,
        &format!("karmada-es-{CLUSTER}"),
    );
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    for (name, manifests) in [
        ("privileged", vec![privileged("kube-system")]),
        ("reads-key", vec![reads_key(AGENT_NAMESPACE)]),
        ("twin", vec![shop, privileged("shop")]),
    ] {
        let work = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": name},
            "spec": {"workload": {"manifests": manifests}},
        }))?;
        works.create(&PostParams::default(), &work).await?;
    }
    applied(&works, "twin", "True", "").await?;
    applied(&works, "privileged", "False", "is reserved").await?;
    applied(&works, "reads-key", "False", "is the agent's own").await?;
    runs_everywhere(&client, "shop").await?;
    let agents: Api<Pod> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    let all = ListParams::default();
    let names: Vec<_> = agents
        .list(&all)
        .await?
        .iter()
        .map(|p| p.name_any())
        .collect();
    ensure!(
        names.iter().all(|name| name.starts_with("towline-agent-")),
        "{names:?}"
    );
    for namespace in ["kube-system", AGENT_NAMESPACE] {
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
        ensure!(
            sets.get_opt("evil").await?.is_none(),
            "it is in {namespace}"
        );
    }

    let member = stage.member.kubeconfig.display().to_string();
    let args = ["register", "--kubeconfig", &member, "--wait", "3m"];
    let all = args.into_iter().chain(["--allow-namespace", "kube-system"]);
    stage.fleet.towline.cli(all).await?.ok()?;
    applied(&works, "privileged", "True", "").await?;
    applied(&works, "reads-key", "False", "is the agent's own").await?;
    runs_everywhere(&client, "kube-system").await?;
    wait_for("the agent's word on what is allowed", WITHIN, async || {
        let said = stage.fleet.cli(&["check", CLUSTER]).await?.stdout;
        Ok(said.contains("allowed to Works: kube-system"))
    })
    .await?;
    stage.clear().await;
    Ok(())
}

/// Waits until the DaemonSet runs a ready pod on every node.
async fn runs_everywhere(client: &Client, namespace: &str) -> Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let what = format!("pods of the DaemonSet in {namespace}");
    wait_for(&what, WITHIN, async || {
        let status = sets.get("evil").await?.status.unwrap_or_default();
        let wanted = status.desired_number_scheduled;
        ensure!(status.number_ready == wanted, "it says {status:?}");
        Ok(wanted > 0)
    })
    .await
}

/// Waits for Applied of a Work with this status and these words.
async fn applied(works: &Api<Work>, name: &str, status: &str, words: &str) -> Result<()> {
    let what = format!("Applied={status} of Work {name}");
    wait_for(&what, WITHIN, async || {
        let work = works.get(name).await?;
        let conditions = work.status.unwrap_or_default().conditions;
        let applied = common::conditions::get(&conditions, "Applied").context("none yet")?;
        let holds = applied.status == status && applied.message.contains(words);
        ensure!(holds, "it is {applied:?}");
        Ok(true)
    })
    .await
}

/// The running container of the Work: its pod and how often it was started.
async fn web_pod(client: &Client) -> Result<(Option<String>, i32)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let list = pods.list(&ListParams::default().labels("app=web")).await?;
    let pod = list.items.first().context("no pod of the Work")?;
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let container = containers.first().context("no container of the Work")?;
    ensure!(container.ready, "the container is not ready");
    Ok((pod.uid(), container.restart_count))
}

/// The pod is deleted; its successor goes on with the same registration.
async fn survives_deletion(stage: &Stage, client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    let old = agent_pod(&pods, None).await?;
    pods.delete(&old, &DeleteParams::default()).await?;
    agent_pod(&pods, Some(&old)).await?;
    stage.ready().await
}

/// The name of the agent's pod, other than `not`, once it is the only one and ready.
async fn agent_pod(pods: &Api<Pod>, not: Option<&str>) -> Result<String> {
    wait_for_some("one ready pod of the agent", WITHIN, async || {
        let list = pods.list(&ListParams::default()).await?.items;
        let [pod] = &list[..] else {
            return Ok(None);
        };
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let ready = conditions
            .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        let stays = ready && pod.metadata.deletion_timestamp.is_none();
        Ok((stays && Some(&*pod.name_any()) != not).then(|| pod.name_any()))
    })
    .await
}

/// The stored certificate changes while one pod keeps running.
async fn rotates(stage: &Stage, client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    let pod = agent_pod(&pods, None).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    let mut seen = BTreeSet::new();
    wait_for("two certificates after each other", WITHIN, async || {
        let secret = secrets.get("towline-agent-credentials").await?;
        seen.insert(serde_json::to_string(&secret.data)?);
        Ok(seen.len() >= 2)
    })
    .await?;
    ensure!(pods.get_opt(&pod).await?.is_some(), "the pod did not stay");
    stage.ready().await
}

/// A Work's Deployment runs a real container.
async fn run_container(stage: &Stage, client: &Client) -> Result<()> {
    let work: Work = serde_json::from_value(serde_json::json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "web"},
        "spec": {"workload": {"manifests": [{
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": PAUSE_IMAGE}]},
                },
            },
        }]}},
    }))?;
    let namespace = format!("karmada-es-{CLUSTER}");
    let works: Api<Work> = Api::namespaced(stage.fleet.client().await?, &namespace);
    works.create(&PostParams::default(), &work).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    wait_for("a real container of the Work", WITHIN, async || {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        Ok(status.ready_replicas == Some(1))
    })
    .await
}

/// Names of what an agent or its Works could leave in a member.
async fn inventory(client: &Client) -> Result<BTreeSet<String>> {
    let all = ListParams::default();
    let mut found = BTreeSet::new();
    for item in Api::<Namespace>::all(client.clone()).list(&all).await? {
        found.insert(format!("Namespace {}", item.name_any()));
    }
    for item in Api::<ClusterRole>::all(client.clone()).list(&all).await? {
        found.insert(format!("ClusterRole {}", item.name_any()));
    }
    for item in Api::<ClusterRoleBinding>::all(client.clone())
        .list(&all)
        .await?
    {
        found.insert(format!("ClusterRoleBinding {}", item.name_any()));
    }
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    for item in policies.list(&all).await? {
        found.insert(format!("ValidatingAdmissionPolicy {}", item.name_any()));
    }
    for item in Api::<Deployment>::all(client.clone()).list(&all).await? {
        found.insert(format!("Deployment {}", item.name_any()));
    }
    for item in Api::<ConfigMap>::all(client.clone()).list(&all).await? {
        let namespace = item.namespace().unwrap_or_default();
        found.insert(format!("ConfigMap {namespace}/{}", item.name_any()));
    }
    for item in Api::<Pod>::all(client.clone()).list(&all).await? {
        found.insert(format!("Pod {}", item.name_any()));
    }
    Ok(found)
}
