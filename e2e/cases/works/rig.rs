//! A lab with one member and an engine whose requests are counted.

use agent::config::RunArgs;
use agent::context::{AgentContext, Certified, ErrorReport};
use agent::execution::engine::Engine;
use agent::hub::{Connect, HubHandle};
use anyhow::{Context as _, Result};
use clap::Parser;
use common::chance::Chance;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use common::names::ClusterName;
use common::signal;
use common::time::SystemClock;
use futures::future::BoxFuture;
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::env::{Lab, LabOptions, Parts, Relay, Scratch, wait_for, wait_for_some};

/// The cluster's name.
pub(super) const CLUSTER: &str = "member1";
/// Where its Works are.
pub(super) const EXECUTION: &str = "karmada-es-member1";
/// How long anything may take; the machine is shared.
pub(super) const SOON: Duration = Duration::from_secs(150);

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// Requests that went through a client, each with its method.
#[derive(Debug, Default)]
pub(super) struct Counter {
    log: Mutex<Vec<String>>,
}

impl Counter {
    /// What was asked since the beginning.
    pub(super) fn asked(&self) -> Vec<String> {
        self.log.lock().expect("nobody panics here").clone()
    }

    /// What was written since the beginning.
    pub(super) fn written(&self) -> Vec<String> {
        let mut asked = self.asked();
        asked.retain(|line| !line.starts_with("GET "));
        asked
    }
}

/// A client whose requests are counted.
fn counted(client: kube::Client, counter: Arc<Counter>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, counter) = (client.clone(), counter.clone());
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            counter.log.lock().expect("nobody panics here").push(line);
            client.send(request).await
        }
    });
    kube::Client::new::<_, Body, _>(service, "default")
}

struct Given(kube::Client);

impl Connect for Given {
    fn connect(
        &self,
        _options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn std::error::Error + Send + Sync>>> {
        let client = self.0.clone();
        Box::pin(async move { Ok(client) })
    }
}

/// An engine that runs.
pub(super) struct Running {
    pub(super) engine: Arc<Engine>,
    pub(super) hub: Arc<Counter>,
    pub(super) member: Arc<Counter>,
    pub(super) context: AgentContext,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts one over two kubeconfigs.
    pub(super) async fn start(hub: &Path, member: &Path) -> Result<Self> {
        let flags = Flags::try_parse_from(["towline-agent", "--concurrent-work-syncs=32"])?;
        let env = Env::system();
        let options = ClientOptions::new("hub");
        let (hub_client, _) = kubeconfig_client(Some(hub), None, &options, &env).await?;
        let options = ClientOptions::new("member");
        let (member_client, member_config) =
            kubeconfig_client(Some(member), None, &options, &env).await?;
        let (hub, member) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let stop = CancellationToken::new();
        let connector = Given(counted(hub_client, hub.clone()));
        let context = AgentContext {
            cluster: ClusterName::parse(CLUSTER)?,
            cluster_id: "id".into(),
            config: Arc::new(flags.run.into_config()?),
            hub: HubHandle::new(Arc::new(connector)).await?,
            member: counted(member_client, member.clone()),
            member_config,
            member_proxy: common::proxy::ProxyChoice::direct(),
            clock: Arc::new(SystemClock),
            chance: Chance::from_os(),
            network: None,
            metrics: Arc::default(),
            shutdown: stop.clone(),
            standing: None,
            superseded: CancellationToken::new(),
            cluster_view: signal::Sender::new(None),
            heard: signal::Sender::new(true),
            told_to_leave: signal::Sender::new(None),
            refused: signal::Sender::new(None),
            orphans: signal::Sender::new(None),
            certified: signal::channel(Certified::default()).1,
            errors: ErrorReport::default(),
        };
        let engine = agent::execution::engine(&context);
        let task = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run().await }
        });
        Ok(Self {
            engine,
            hub,
            member,
            context,
            stop,
            task,
        })
    }

    /// Stops it and waits for its end.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }

    /// Ends it between any two instructions, as a kill would.
    pub(super) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// The lab, its clients, and one engine.
pub(super) struct Rig {
    pub(super) lab: Lab,
    pub(super) hub: kube::Client,
    pub(super) member: kube::Client,
    scratch: Scratch,
}

impl Rig {
    /// Starts a lab whose hub knows Works.
    pub(super) async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &LabOptions::new(1)).await
    }

    /// The same, with another hub or member.
    pub(super) async fn start_with(name: &str, options: &LabOptions) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let lab = Lab::start(&parts, scratch.path(), options).await?;
        let (hub, member) = (lab.hub.client().await?, lab.members[0].client().await?);
        install(&hub).await?;
        // Where the agent keeps what the hub wanted last.
        namespace(&member, common::names::AGENT_NAMESPACE).await?;
        Ok(Self {
            lab,
            hub,
            member,
            scratch,
        })
    }

    /// An engine over this lab.
    pub(super) async fn run(&self) -> Result<Running> {
        Running::start(&self.lab.hub.kubeconfig, &self.lab.members[0].kubeconfig).await
    }

    /// An engine that reaches the hub by another address.
    pub(super) async fn run_by(&self, relay: &Relay) -> Result<Running> {
        let member = self.lab.members[0].kubeconfig.clone();
        self.run_as(relay, &member).await
    }

    /// The same, with other rights in the member.
    pub(super) async fn run_as(&self, relay: &Relay, member: &Path) -> Result<Running> {
        let path = self.lab.dir().join("relayed.kubeconfig");
        let admin = self.lab.hub.pki.client("lab", &["system:masters"])?;
        let address = relay.address().to_string();
        self.lab.hub.kubeconfig_at(&path, &address, &admin)?;
        Running::start(&path, member).await
    }

    /// Ends the lab and removes its folder.
    pub(super) async fn passed(mut self) {
        self.lab.stop().await;
        self.scratch.passed();
    }

    /// Works.
    pub(super) fn works(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work");
        Api::namespaced_with(self.hub.clone(), EXECUTION, &ApiResource::from_gvk(&gvk))
    }

    /// Writes a Work.
    pub(super) async fn work(&self, name: &str, spec: Value) -> Result<()> {
        let work: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": EXECUTION}, "spec": spec,
        }))?;
        self.works()
            .create(&PostParams::default(), &work)
            .await
            .with_context(|| format!("failed to create the Work {name}"))?;
        Ok(())
    }

    /// Writes a Work of some manifests.
    pub(super) async fn deliver(&self, name: &str, manifests: &[Value]) -> Result<()> {
        self.work(name, json!({"workload": {"manifests": manifests}}))
            .await
    }

    /// Changes a Work.
    pub(super) async fn patch_work(&self, name: &str, patch: Value) -> Result<()> {
        self.works()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Replaces the manifests of a Work.
    pub(super) async fn redeliver(&self, name: &str, manifests: &[Value]) -> Result<()> {
        self.patch_work(
            name,
            json!({"spec": {"workload": {"manifests": manifests}}}),
        )
        .await
    }

    /// Deletes a Work.
    pub(super) async fn delete_work(&self, name: &str) -> Result<()> {
        self.works().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a Work is gone.
    pub(super) async fn work_gone(&self, name: &str) -> Result<()> {
        wait_for(&format!("end of Work {name}"), SOON, || async {
            Ok(self.works().get_opt(name).await?.is_none())
        })
        .await
    }

    /// A Work's status once it holds.
    pub(super) async fn status(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let last = Mutex::new(Value::Null);
        let waited = wait_for_some(&format!("status of Work {name}"), SOON, || async {
            let work = self.works().get(name).await?;
            let status = work.data.get("status").cloned().unwrap_or_default();
            *last.lock().expect("nobody panics here") = status.clone();
            Ok(holds(&status).then_some(status))
        })
        .await;
        waited.with_context(|| format!("it was {}", last.lock().expect("nobody panics here")))
    }

    /// Waits for Applied with this status and these words in its message.
    pub(super) async fn applied(&self, name: &str, status: &str, words: &str) -> Result<Value> {
        self.status(name, |s| {
            condition(s, "Applied").is_some_and(|c| {
                c["status"] == status && c["message"].as_str().is_some_and(|m| m.contains(words))
            })
        })
        .await
    }

    /// Objects of the member, of a kind by `group/version` and name.
    pub(super) fn objects(&self, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        Api::namespaced_with(self.member.clone(), namespace, &ApiResource::from_gvk(&gvk))
    }

    /// ConfigMaps of the member's default namespace.
    pub(super) fn maps(&self) -> Api<DynamicObject> {
        self.objects("v1", "ConfigMap", "default")
    }

    /// Waits until an object of the member holds.
    pub(super) async fn live(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let last = Mutex::new(Value::Null);
        let waited = wait_for_some(&format!("object {name}"), SOON, || async {
            let object = api.get_opt(name).await?;
            let value = object.map(serde_json::to_value).transpose()?;
            *last.lock().expect("nobody panics here") = value.clone().unwrap_or_default();
            Ok(value.filter(|v| holds(v)))
        })
        .await;
        waited.with_context(|| format!("it was {}", last.lock().expect("nobody panics here")))
    }

    /// Waits until an object of the member is gone.
    pub(super) async fn gone(&self, api: &Api<DynamicObject>, name: &str) -> Result<()> {
        wait_for(&format!("end of object {name}"), SOON, || async {
            Ok(api.get_opt(name).await?.is_none())
        })
        .await
    }
}

/// A condition of a status.
pub(super) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == kind)
}

/// A ConfigMap manifest in the default namespace.
pub(super) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

async fn namespace(client: &kube::Client, name: &str) -> Result<()> {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    Ok(())
}

/// Makes a hub's API know Works.
pub(super) async fn install(hub: &kube::Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(hub.clone());
    for crd in common::api::all_crds() {
        match crds.create(&PostParams::default(), &crd).await {
            // A built-in hub has them from its start.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => {
                made?;
            }
        }
    }
    namespace(hub, EXECUTION).await?;
    wait_for("the Works' API", SOON, || async {
        let gvk = GroupVersionKind::gvk("work.karmada.io", "v1alpha1", "Work");
        let api: Api<DynamicObject> =
            Api::namespaced_with(hub.clone(), EXECUTION, &ApiResource::from_gvk(&gvk));
        Ok(api.list(&kube::api::ListParams::default()).await.is_ok())
    })
    .await
}
