//! Reads and writes the installation in the member.

use super::bootstrap::Bootstrap;
use super::objects::{Object, name_installation, render};
use super::proxy::Proxy;
use super::reading::{Readable, is_constrained};
use super::settings::{Installed, Settings};
use crate::cli::error::request_error;
use crate::cli::{CliError, Kind, Output};
use common::names::{
    AGENT_NAME, AGENT_NAMESPACE, AGENT_WORKLOADS, BOOTSTRAP_SECRET, PROXY_NAME, STATUS_CONFIG_MAP,
    USERS_NAMESPACE,
};
use common::rest::Call;
use common::tunnel::Mode;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;
use std::fmt::Display;

const FIELD_MANAGER: &str = "towline-register";
/// Longest metrics that are read, in bytes: those of a large API server have tens of thousands of lines.
const METRICS_MAX: usize = 64 * 1024 * 1024;
/// All resources of an API server in two answers; since Kubernetes 1.30.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Kind of the admission policy, with which that of its binding begins.
const POLICY: &str = "ValidatingAdmissionPolicy";
/// Plural names of the kinds in the files.
const PLURALS: [(&str, &str); 9] = [
    ("Namespace", "namespaces"),
    ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    (
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    ("ServiceAccount", "serviceaccounts"),
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "roles"),
    ("RoleBinding", "rolebindings"),
    ("Deployment", "deployments"),
];
const CLUSTER_WIDE: [&str; 5] = [
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// What became of the Deployment.
pub(super) struct Applied {
    /// Whether it differs from the one before.
    pub(super) changed: bool,
    /// The name its pods have for it.
    pub(super) installation: String,
}

/// The member an agent is installed in.
pub(super) struct Member {
    client: Client,
}

impl Member {
    /// A member.
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// What is installed.
    pub(super) async fn installed(&self) -> Result<Installed, CliError> {
        let deployments: Api<Deployment> = self.ours();
        let deployment = deployments
            .get_opt(AGENT_NAME)
            .await
            .map_err(failed("get the agent's Deployment"))?;
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let role = roles
            .get_opt(AGENT_WORKLOADS)
            .await
            .map_err(failed("get the agent's ClusterRole"))?;
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let binding = bindings
            .get_opt(AGENT_WORKLOADS)
            .await
            .map_err(failed("get the agent's ClusterRoleBinding"))?;
        let proxy = roles
            .get_opt(PROXY_NAME)
            .await
            .map_err(failed("get the ClusterRole of who is let in"))?;
        let of_users: Api<Role> = Api::namespaced(self.client.clone(), USERS_NAMESPACE);
        let accounts = of_users.get_opt(PROXY_NAME).await.map_err(failed(
            "get the Role of the ServiceAccounts that users come in as",
        ))?;
        let json = |value| serde_json::to_value(value).unwrap_or_default();
        let values = |rules: Option<Vec<PolicyRule>>| {
            let rules = rules?.into_iter();
            let rules = rules.map(|rule| serde_json::to_value(rule).unwrap_or_default());
            Some(rules.collect::<Vec<_>>())
        };
        Ok(Installed {
            exists: deployment.is_some(),
            deployment: json(&deployment),
            rules: values(role.and_then(|role| role.rules)),
            proxy: values(proxy.and_then(|role| role.rules)).unwrap_or_default(),
            accounts: accounts.map(|role| values(role.rules).unwrap_or_default()),
            role: binding.map(|binding| binding.role_ref.name),
        })
    }

    /// Has the member itself judge that users who come in for reading alone read alone, where it can.
    pub(super) async fn constrain(
        &self,
        proxy: &mut Proxy,
        output: &Output,
    ) -> Result<(), CliError> {
        if proxy.mode != Mode::ReadOnly {
            return Ok(());
        }
        match self.readable().await? {
            Some(readable) => proxy.constrain(readable),
            None => output.note(
                "this API server has no constrained impersonation, as Kubernetes 1.36 or newer has, or does not say so: that users read alone is kept by the agent",
            ),
        }
        Ok(())
    }

    /// What can be read in the member by name, where its API server judges what is done as somebody else; none where it
    /// does not, or does not say.
    async fn readable(&self) -> Result<Option<Readable>, CliError> {
        let failed = |error| {
            let attempt = "failed to ask the member what can be read there";
            request_error(attempt.to_owned(), error)
        };
        let metrics = Call::get("/metrics", "text/plain").at_most(METRICS_MAX);
        let metrics = match metrics.send(&self.client).await {
            Err(error) if matches!(error.code(), Some(403 | 404)) => return Ok(None),
            read => read.map_err(failed)?,
        };
        if !is_constrained(&String::from_utf8_lossy(&metrics.body)) {
            return Ok(None);
        }
        let mut lists: Vec<Value> = Vec::new();
        for path in ["/api", "/apis"] {
            let reply = Call::get(path, DISCOVERY).send(&self.client).await;
            lists.push(reply.and_then(|reply| reply.json()).map_err(failed)?);
        }
        Ok(Some(Readable::of(&lists)))
    }

    /// Applies everything but the Deployment. Says whether the API server keeps the admission policy: an
    /// old one has none, and the agent's own rule stands alone there.
    pub(super) async fn apply_foundation(&self, settings: &Settings) -> Result<bool, CliError> {
        let mut guarded = true;
        for object in render(settings)? {
            let kind = object["kind"].as_str().unwrap_or_default();
            match kind {
                "Deployment" => continue,
                "ClusterRoleBinding" => self.make_way(&object).await?,
                _ => {}
            }
            match self.apply(&object).await {
                // An apply makes what is missing: only an unknown kind is not found.
                Err(error) if error.kind == Kind::NotFound && kind.starts_with(POLICY) => {
                    guarded = false;
                }
                applied => drop(applied?),
            }
        }
        Ok(guarded)
    }

    /// Applies the Deployment.
    pub(super) async fn apply_deployment(&self, settings: &Settings) -> Result<Applied, CliError> {
        let deployments: Api<Deployment> = self.ours();
        let attempt = failed("get the agent's Deployment");
        let before = deployments.get_opt(AGENT_NAME).await.map_err(attempt)?;
        let before = before.and_then(|d| d.metadata.generation);
        let mut objects = render(settings)?;
        let installation = name_installation(&mut objects).unwrap_or_default();
        let mut after = None;
        for object in objects.iter().filter(|o| o["kind"] == "Deployment") {
            after = self.apply(object).await?.metadata.generation;
        }
        Ok(Applied {
            changed: before != after,
            installation,
        })
    }

    /// Hands the bootstrap over; returns the version of the Secret when there is something new in it.
    pub(super) async fn hand_over(
        &self,
        bootstrap: &Bootstrap,
    ) -> Result<Option<String>, CliError> {
        let secrets: Api<Secret> = self.ours();
        let applied = if let Some(secret) = bootstrap.secret() {
            let patch = Patch::Apply(&secret);
            secrets
                .patch(BOOTSTRAP_SECRET, &apply_params(), &patch)
                .await
        } else if let Some(moved) = bootstrap.move_only() {
            let params = PatchParams {
                field_manager: apply_params().field_manager,
                ..PatchParams::default()
            };
            secrets
                .patch(BOOTSTRAP_SECRET, &params, &Patch::Merge(&moved))
                .await
        } else {
            return Ok(None);
        };
        let attempt =
            failed("hand the bootstrap over in Secret towline-system/towline-agent-bootstrap");
        Ok(applied.map_err(attempt)?.metadata.resource_version)
    }

    /// What the agent says about itself.
    pub(super) async fn status(&self) -> Result<Option<ConfigMap>, CliError> {
        let maps: Api<ConfigMap> = self.ours();
        maps.get_opt(STATUS_CONFIG_MAP)
            .await
            .map_err(failed("get the agent's status"))
    }

    /// The agent's Deployment.
    pub(super) async fn deployment(&self) -> Result<Option<Deployment>, CliError> {
        let deployments: Api<Deployment> = self.ours();
        deployments
            .get_opt(AGENT_NAME)
            .await
            .map_err(failed("get the agent's Deployment"))
    }

    /// The agent's pods.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>, CliError> {
        let pods: Api<Pod> = self.ours();
        let ours = ListParams::default().labels("app.kubernetes.io/name=towline-agent");
        Ok(pods
            .list(&ours)
            .await
            .map_err(failed("list the agent's pods"))?
            .items)
    }

    /// The name the member has on the hub, as it was handed over.
    pub(super) async fn cluster_name(&self) -> Result<Option<String>, CliError> {
        let secrets: Api<Secret> = self.ours();
        let secret = secrets.get_opt(BOOTSTRAP_SECRET).await;
        let secret = secret.map_err(failed("get the agent's bootstrap"))?;
        let name = secret.and_then(|secret| secret.data?.remove("cluster-name"));
        Ok(name.map(|name| String::from_utf8_lossy(&name.0).into_owned()))
    }

    fn ours<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), AGENT_NAMESPACE)
    }

    /// A binding cannot change its role: one that refers to another is removed first.
    async fn make_way(&self, object: &Object) -> Result<(), CliError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let found = bindings.get_opt(name).await;
        let found = found.map_err(failed("get the agent's ClusterRoleBinding"))?;
        if found.is_some_and(|found| object["roleRef"]["name"] != found.role_ref.name) {
            let gone = bindings.delete(name, &DeleteParams::default()).await;
            gone.map_err(failed("replace the agent's ClusterRoleBinding"))?;
        }
        Ok(())
    }

    async fn apply(&self, object: &Object) -> Result<DynamicObject, CliError> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let kind = text("kind");
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        let plural = PLURALS
            .iter()
            .find(|(k, _)| *k == kind)
            .map_or("", |(_, plural)| plural);
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = if CLUSTER_WIDE.contains(&kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            let namespace = object["metadata"]["namespace"].as_str();
            let namespace = namespace.unwrap_or(AGENT_NAMESPACE);
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let applied = api
            .patch(name, &apply_params(), &Patch::Apply(object))
            .await;
        applied.map_err(|error| {
            let error = CliError::api(format!("failed to apply {kind} {name:?}"), error);
            match error.kind {
                Kind::Denied => error
                    .hint("Use a kubeconfig of the member that may create roles and namespaces."),
                _ => error,
            }
        })
    }
}

fn apply_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

fn failed(attempt: impl Display) -> impl FnOnce(kube::Error) -> CliError {
    let attempt = format!("failed to {attempt}");
    move |error| CliError::api(attempt, error)
}
