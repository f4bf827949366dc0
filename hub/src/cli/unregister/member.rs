//! Removes from a member an agent that cannot remove itself: its own objects, by name.

use super::same;
use crate::cli::register::mark_of_hub;
use crate::cli::{CliError, ConnectArgs, Kind, Output, join};
use common::names::{
    AGENT_NAME, AGENT_NAMESPACE, AGENT_WORKLOADS, BOOTSTRAP_SECRET, CREDENTIALS_SECRET, PROXY_NAME,
    USERS_NAMESPACE,
};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long the namespace may take to go.
const PATIENCE: Duration = Duration::from_secs(120);

/// A member that is left.
pub(super) struct Member {
    client: Client,
    server: String,
}

impl Member {
    /// Connects to it, and asks something of it, so that a wrong kubeconfig is found out early.
    pub(super) async fn connect(connect: &ConnectArgs) -> Result<Self, CliError> {
        let (client, config) = connect.connect("cli unregister").await?;
        let version = client.apiserver_version().await;
        version.map_err(|e| CliError::api("failed to reach the member", e))?;
        let server = config.cluster_url.to_string();
        Ok(Self {
            client,
            server: server.trim_end_matches('/').to_owned(),
        })
    }

    /// Fails when this is another cluster than the member `name`, or a hub without an agent: an agent is
    /// removed by names that are the same everywhere. `id` is what the hub knows the member by, where it does.
    pub(super) async fn refuse_another(
        &self,
        name: &str,
        id: Option<&str>,
    ) -> Result<(), CliError> {
        let denied = |what: String| {
            let message = format!("{} is {what}; nothing was changed", self.server);
            CliError::message(Kind::Denied, message)
        };
        let found = match id {
            Some(_) => Some(join::id(&self.client, "the member").await?),
            None => None,
        };
        let ids = id.zip(found.as_deref());
        if let Some(why) = same::contradiction(name, ids, &self.speaks_for().await?) {
            return Err(denied(format!("not the member {name:?}: {why}")).hint(
                "Name this member's own kubeconfig, or give none: the Cluster then leaves the hub, and the agent stays.",
            ));
        }
        let mark = match ids {
            Some(_) => None,
            None => mark_of_hub(&self.client).await?,
        };
        let Some(mark) = mark else {
            return Ok(());
        };
        if self.has_agent().await? {
            return Ok(());
        }
        Err(denied(format!("a hub, not a member: {mark}"))
            .hint("Name the member's own kubeconfig.")
            .hint("From a cluster that is both, `kubectl delete -k manifests/agent` removes the agent."))
    }

    /// The clusters that the agent here speaks for, or asks to; none where no agent is, or none that keeps this here.
    async fn speaks_for(&self) -> Result<Vec<String>, CliError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), AGENT_NAMESPACE);
        let get = async |name: &str| {
            let attempt = format!("failed to get Secret {AGENT_NAMESPACE}/{name} of the member");
            let found = secrets.get_opt(name).await;
            found.map_err(|e| CliError::api(attempt, e))
        };
        let credentials = get(CREDENTIALS_SECRET).await?;
        let bootstrap = get(BOOTSTRAP_SECRET).await?;
        Ok(same::names(credentials.as_ref(), bootstrap.as_ref()))
    }

    /// Whether there is an agent, whatever it keeps here.
    async fn has_agent(&self) -> Result<bool, CliError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), AGENT_NAMESPACE);
        let attempt =
            format!("failed to get ServiceAccount {AGENT_NAMESPACE}/{AGENT_NAME} of the member");
        let found = accounts.get_opt(AGENT_NAME).await;
        Ok(found.map_err(|e| CliError::api(attempt, e))?.is_some())
    }

    /// Removes the agent; what is gone already is no error.
    pub(super) async fn remove(&self, output: &Output) -> Result<(), CliError> {
        let progress = output.progress("removing the agent from the member");
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), AGENT_NAMESPACE);
        // First, so that it does not write anything anew.
        delete(&deployments, AGENT_NAME).await?;
        for name in [AGENT_WORKLOADS, PROXY_NAME, AGENT_NAME] {
            delete::<ClusterRoleBinding>(&Api::all(self.client.clone()), name).await?;
            delete::<ClusterRole>(&Api::all(self.client.clone()), name).await?;
        }
        // An old API server knows no such kind, which is as if there were none.
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        delete(&bindings, AGENT_NAME).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(self.client.clone());
        delete(&policies, AGENT_NAME).await?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        delete(&namespaces, USERS_NAMESPACE).await?;
        delete(&namespaces, AGENT_NAMESPACE).await?;
        let deadline = Instant::now() + PATIENCE;
        let attempt = "failed to get namespace towline-system";
        while namespaces
            .get_opt(AGENT_NAMESPACE)
            .await
            .map_err(|e| CliError::api(attempt, e))?
            .is_some()
        {
            if Instant::now() >= deadline {
                output.note("namespace towline-system of the member is still being deleted");
                break;
            }
            sleep(Duration::from_millis(500)).await;
        }
        drop(progress);
        output.note("the agent is removed from the member");
        Ok(())
    }
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), CliError>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => {
            let kind = K::kind(&());
            Err(CliError::api(
                format!("failed to delete {kind} {name:?} of the member"),
                error,
            ))
        }
    }
}
