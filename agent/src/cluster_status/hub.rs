//! Reads and writes our Cluster, with the one right an agent has there: to patch its status.
//!
//! An empty merge patch writes nothing and returns the object; that is how it is read.

use crate::context::{ClusterView, Refusal};
use common::api::cluster::{ClusterStatus, READY, ResourceModel, UNREGISTERING};
use common::conditions;
use common::labels::{AGENT_FIELD_MANAGER, REGISTRATION_ID, UNREGISTER};
use common::names::ClusterName;
use common::unregister::Mode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Patch, PatchParams, Request};
use serde::Deserialize;
use serde_json::{Value, json};

/// Where Clusters are.
pub(super) const PATH: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// Why our Cluster could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The request could not be built.
    #[error("failed to build the patch of Cluster {cluster:?}")]
    Build {
        /// Which Cluster.
        cluster: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The hub did not take it.
    #[error("failed to patch the status of Cluster {cluster:?}")]
    Patch {
        /// Which Cluster.
        cluster: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// There is none, and nobody here makes it.
    #[error(
        "the hub has no Cluster {cluster:?}: make it there, or run the agent with --register-cluster ({message})"
    )]
    Missing {
        /// Which Cluster.
        cluster: String,
        /// The hub's words.
        message: String,
    },
    /// There is none, and it could not be made.
    #[error("failed to make Cluster {cluster:?}, which the hub does not have")]
    Make {
        /// Which Cluster.
        cluster: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// This member is another Cluster already.
    #[error(
        "Cluster {cluster:?} is not made: this member is Cluster {other:?} on the hub already (spec.id)"
    )]
    IdTaken {
        /// Which Cluster.
        cluster: String,
        /// Which it is.
        other: String,
    },
}

impl Error {
    /// Whether the hub says that we may not, or that there is no such Cluster.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Patch { source, .. } | Self::Make { source, .. } => Refusal::of(source),
            Self::Missing { .. } | Self::IdTaken { .. } => Some(Refusal {
                code: 404,
                message: self.to_string(),
            }),
            Self::Build { .. } => None,
        }
    }

    /// The hub's words when it has no such Cluster.
    pub(super) fn is_missing(&self) -> Option<&str> {
        match self {
            Self::Patch { source, .. } => match source.as_ref() {
                kube::Error::Api(status) if status.code == 404 => Some(&status.message),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether somebody wrote the conditions in between.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Patch { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409)
            }
            _ => false,
        }
    }
}

/// Our Cluster as the hub returned it: the parts that matter here.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    /// The status as the hub has it.
    #[serde(default)]
    pub(super) status: ClusterStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    resource_models: Vec<ResourceModel>,
}

impl Answer {
    /// The version that a patch of a list must carry.
    pub(super) fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// The grades of node sizes the operator defined.
    pub(super) fn models(&self) -> &[ResourceModel] {
        &self.spec.resource_models
    }

    /// What is asked of us, once the Cluster is being deleted.
    pub(super) fn unregister(&self) -> Option<Mode> {
        self.metadata.deletion_timestamp.as_ref()?;
        self.annotated_mode()
    }

    /// What the rest of the agent needs to know.
    pub(super) fn view(&self) -> ClusterView {
        let annotations = self.metadata.annotations.as_ref();
        ClusterView {
            uid: self.metadata.uid.clone().unwrap_or_default(),
            resource_version: self.resource_version().to_owned(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            unregister: self.annotated_mode(),
            acknowledged: conditions::is_true(&self.status.conditions, UNREGISTERING),
            registration: annotations.and_then(|a| a.get(REGISTRATION_ID)).cloned(),
            ready: conditions::get(&self.status.conditions, READY).map(|c| c.status.clone()),
        }
    }

    fn annotated_mode(&self) -> Option<Mode> {
        Mode::parse(self.metadata.annotations.as_ref()?.get(UNREGISTER)?)
    }
}

/// Reads our Cluster.
pub(super) async fn read(hub: &Client, cluster: &ClusterName) -> Result<Answer, Error> {
    patch(hub, cluster, &json!({})).await
}

/// Patches its status and returns what it became.
pub(super) async fn patch(
    hub: &Client,
    cluster: &ClusterName,
    body: &Value,
) -> Result<Answer, Error> {
    let name = cluster.as_str();
    let parameters = PatchParams {
        field_manager: Some(AGENT_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let request = Request::new(PATH)
        .patch_subresource("status", name, &parameters, &Patch::Merge(body))
        .map_err(|e| Error::Build {
            cluster: name.to_owned(),
            source: Box::new(e),
        })?;
    hub.request(request).await.map_err(|source| Error::Patch {
        cluster: name.to_owned(),
        source: Box::new(source),
    })
}
