//! A prepared hub with registrations but no agents: a test speaks in their names.

use anyhow::{Context as _, Result};
use common::identity::{AgentSubject, RegistrationId};
use common::names::ClusterName;
use hub::permissions::{self, Grant, Registration};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::{Parts, Plane, PlaneOptions, Scratch, Towline, Version};

/// A hub that `towline init` has prepared.
pub(crate) struct PreparedHub {
    /// Logs and keys.
    pub(crate) scratch: Scratch,
    /// The control plane.
    pub(crate) plane: Plane,
    /// A client with every right.
    pub(crate) admin: Client,
    /// The programs.
    pub(crate) towline: Towline,
}

/// One registration, and a client with a certificate of it.
pub(crate) struct Registered {
    /// The cluster's name.
    pub(crate) name: String,
    /// Who the client is.
    pub(crate) subject: AgentSubject,
    /// What the hub granted.
    pub(crate) registration: Registration,
    /// The agent's view of the hub.
    pub(crate) client: Client,
}

impl PreparedHub {
    /// Starts a control plane and prepares it.
    pub(crate) async fn start(name: &str, version: Version) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let parts = Parts::from_env()?;
        let options = PlaneOptions::hub().version(version);
        let plane = Plane::start(&parts, &scratch.join("hub"), options).await?;
        let admin = plane.client().await?;
        let towline = Towline::new(scratch.path())?;
        let kubeconfig = plane.kubeconfig.display().to_string();
        towline
            .cli(["init", "--kubeconfig", &kubeconfig])
            .await?
            .ok()?;
        Ok(Self {
            scratch,
            plane,
            admin,
            towline,
        })
    }

    /// Makes a Cluster and its rights, and a certificate that has them.
    pub(crate) async fn register(&self, name: &str) -> Result<Registered> {
        let cluster = ClusterName::parse(name)?;
        let kind = GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster");
        let clusters: Api<DynamicObject> =
            Api::all_with(self.admin.clone(), &ApiResource::from_gvk(&kind));
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"syncMode": "Pull", "id": format!("id-that-only-{name}-may-know")},
        });
        let made = clusters
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await
            .with_context(|| format!("failed to create Cluster {name}"))?;
        let id = RegistrationId::of_public_key(name.as_bytes());
        let registration = Registration {
            cluster: cluster.clone(),
            cluster_uid: made.uid().context("a created object has a UID")?,
            grant: Grant::InForce(id.clone()),
        };
        permissions::ensure(&self.admin, &registration).await?;
        let subject = AgentSubject {
            cluster,
            registration: id,
        };
        let client = self
            .client_of(&subject.common_name(), &subject.organizations())
            .await?;
        Ok(Registered {
            name: name.to_owned(),
            subject,
            registration,
            client,
        })
    }

    /// A client with a certificate for any user and groups.
    pub(crate) async fn client_of(&self, user: &str, groups: &[String]) -> Result<Client> {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let file = format!("{}.kubeconfig", user.replace(':', "-"));
        let path = self
            .plane
            .kubeconfig_for(&self.scratch.join(file), user, &groups)?;
        super::client(&path).await
    }
}

impl Registered {
    /// `/apis/cluster.karmada.io/v1alpha1/clusters/<name>`.
    pub(crate) fn cluster_path(&self) -> String {
        format!("/apis/cluster.karmada.io/v1alpha1/clusters/{}", self.name)
    }

    /// The path of the Lease.
    pub(crate) fn lease_path(&self) -> String {
        let name = &self.name;
        format!("/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/{name}")
    }

    /// The path of the Works.
    pub(crate) fn works_path(&self) -> String {
        let name = &self.name;
        format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{name}/works")
    }

    /// The path of the Events of its execution namespace.
    pub(crate) fn events_path(&self) -> String {
        format!("/api/v1/namespaces/karmada-es-{}/events", self.name)
    }
}
