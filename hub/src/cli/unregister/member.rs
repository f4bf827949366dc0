//! Removes from a member an agent that cannot remove itself: its own objects, by name.

use crate::cli::{CliError, ConnectArgs, Output};
use common::names::{AGENT_NAME, AGENT_NAMESPACE, AGENT_WORKLOADS, PROXY_NAME, USERS_NAMESPACE};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
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
}

impl Member {
    /// Connects to it, and asks something of it, so that a wrong kubeconfig is found out early.
    pub(super) async fn connect(connect: &ConnectArgs) -> Result<Self, CliError> {
        let (client, _) = connect.connect("cli unregister").await?;
        let version = client.apiserver_version().await;
        version.map_err(|e| CliError::api("failed to reach the member", e))?;
        Ok(Self { client })
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
