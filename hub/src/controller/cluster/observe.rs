//! Reads what one decision about a Cluster needs, live and no more than needed.

use super::Error;
use crate::page::Page;
use crate::permissions::{AGENT_BINDING, rights_name};
use common::api::cluster::{
    Cluster, EXECUTION_SPACE_TERMINATING, QUARANTINED, READY, Taint, UNREGISTERING,
};
use common::api::work::Work;
use common::labels::{
    CLOSING_WATCHES, FAILOVER_TAINT, MANAGED_VALUE, REGISTRATION_FINALIZER, REGISTRATION_ID,
    SYSTEM, UNREGISTER, WORK_FINALIZER,
};
use common::names::ClusterName;
use common::unregister::Mode;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::params::GetParams;
use kube::core::request::Request;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Works looked at in one round; more are found in the next.
pub(super) const WORKS_PAGE: u32 = 200;

/// What a decision needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Its name.
    pub name: ClusterName,
    /// The Cluster.
    pub cluster: ClusterState,
    /// Its execution namespace.
    pub namespace: NamespaceState,
    /// Only while it or its execution namespace is being deleted.
    pub leftovers: Leftovers,
}

/// The Cluster, narrowly.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterState {
    /// UID.
    pub uid: String,
    /// Version every write is conditional on.
    pub resource_version: String,
    /// For how long this hub has seen it being deleted; none of one that lives.
    pub leaving_for: Option<Duration>,
    /// How `towline unregister` asked for it.
    pub mode: Option<Mode>,
    /// The registration in force.
    pub registration: Option<String>,
    /// The registration whose watches are to be closed; not an id where it is not known.
    pub closing_watches: Option<String>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether an agent that speaks to the hub moves its Works: in the member, or beside the hub.
    pub pull: bool,
    /// The deprecated field.
    pub zone: Option<String>,
    /// Its zones.
    pub zones: Vec<String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// The key of the taint that failover put on, as the hub has noted on it.
    pub failover_taint: Option<String>,
    /// Status of its Ready condition.
    pub ready: Option<String>,
    /// Whether its agent knows that it is being deleted.
    pub acknowledged: bool,
    /// Whether its agent is one that acknowledges: registered here, or Towline's own with credentials made
    /// by hand.
    pub acknowledges: bool,
    /// Whether its agent has no rights at present.
    pub quarantined: bool,
    /// Whether its conditions say that its execution namespace is being deleted.
    pub namespace_terminating: bool,
}

/// The execution namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NamespaceState {
    /// There is none.
    #[default]
    Absent,
    /// It is as it should be.
    Owned,
    /// It is there without our label or owner.
    Unowned,
    /// It is being deleted.
    Terminating,
}

/// What a Cluster still has that is being deleted, or whose execution namespace is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Works, at most [`WORKS_PAGE`].
    pub works: Vec<WorkState>,
    /// Whether the ClusterRoleBinding of its agent is there.
    pub bound: bool,
    /// Whether the RoleBinding of its agent is there, in the execution namespace, with the finalizer that only the hub
    /// takes off: neither it nor the namespace goes before.
    pub held: bool,
}

impl Leftovers {
    /// Whether its agent's rights are still there. Others may delete what they consist of in any order: a deletion in
    /// the foreground begins with what has no finalizer.
    pub fn rights(&self) -> bool {
        self.bound || self.held
    }
}

/// A Work that is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkState {
    /// Its name.
    pub name: String,
    /// Its version.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its finalizers but the agent's; none when the agent's is not there.
    pub other_finalizers: Option<Vec<String>>,
}

/// What is read of the metadata of objects that agents write. What is not named here is passed over, however deep it is:
/// of managedFields kube reads no more than 128 levels.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetadataView {
    name: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct WorkView {
    metadata: MetadataView,
}

/// Cluster as it is stored; nothing in it that an agent writes can keep it from being read.
#[derive(Debug, Deserialize)]
struct ClusterView {
    metadata: MetadataView,
    #[serde(default)]
    spec: SpecView,
    #[serde(default)]
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    #[serde(default)]
    sync_mode: Option<String>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    zones: Option<Vec<String>>,
    #[serde(default)]
    taints: Option<Vec<Taint>>,
}

/// Reads everything; none when the Cluster is gone.
pub(super) async fn observe(
    client: &Client,
    name: &ClusterName,
) -> Result<Option<Observed>, Error> {
    let Some(cluster) = cluster(client, name).await? else {
        return Ok(None);
    };
    let namespace = namespace(client, name, &cluster.uid).await?;
    let ends = cluster.leaving_for.is_some() || namespace == NamespaceState::Terminating;
    let leftovers = if ends {
        leftovers(client, name, namespace).await?
    } else {
        Leftovers::default()
    };
    Ok(Some(Observed {
        name: name.clone(),
        cluster,
        namespace,
        leftovers,
    }))
}

async fn cluster(client: &Client, name: &ClusterName) -> Result<Option<ClusterState>, Error> {
    let request = Request::new(Cluster::url_path(&(), None))
        .get(name.as_str(), &GetParams::default())
        .expect("invariant: a cluster name is not empty");
    match client.request::<ClusterView>(request).await {
        Ok(view) => Ok(Some(view.state())),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(source) => Err(Error::read("Cluster", name.as_str(), source)),
    }
}

async fn namespace(
    client: &Client,
    name: &ClusterName,
    uid: &str,
) -> Result<NamespaceState, Error> {
    let namespace = name.execution_namespace();
    let api: Api<Namespace> = Api::all(client.clone());
    let found = api.get_metadata_opt(&namespace).await;
    let found = found.map_err(|source| Error::read("Namespace", &namespace, source))?;
    Ok(found.map_or(NamespaceState::Absent, |object| {
        namespace_state(&object.metadata, uid)
    }))
}

fn namespace_state(metadata: &ObjectMeta, uid: &str) -> NamespaceState {
    let labels = metadata.labels.as_ref();
    let labelled = labels
        .and_then(|l| l.get(SYSTEM))
        .is_some_and(|v| v == MANAGED_VALUE);
    let owned = metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid);
    if metadata.deletion_timestamp.is_some() {
        NamespaceState::Terminating
    } else if labelled && owned {
        NamespaceState::Owned
    } else {
        NamespaceState::Unowned
    }
}

async fn leftovers(
    client: &Client,
    name: &ClusterName,
    namespace: NamespaceState,
) -> Result<Leftovers, Error> {
    let rights = rights_name(name);
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let bound = bindings.get_metadata_opt(&rights).await;
    let bound = bound.map_err(|source| Error::read("ClusterRoleBinding", &rights, source))?;
    let (mut works, mut held) = (Vec::new(), false);
    if namespace != NamespaceState::Absent {
        let namespace = name.execution_namespace();
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
        let binding = bindings.get_metadata_opt(AGENT_BINDING).await;
        let binding =
            binding.map_err(|source| Error::read("RoleBinding", AGENT_BINDING, source))?;
        held = binding.is_some_and(|binding| is_held(&binding.metadata));
        let page = works_page(client, &namespace).await;
        works = page.map_err(|source| Error::read("Works", &namespace, source))?;
    }
    Ok(Leftovers {
        works,
        bound: bound.is_some(),
        held,
    })
}

async fn works_page(client: &Client, namespace: &str) -> Result<Vec<WorkState>, kube::Error> {
    let request = Request::new(Work::url_path(&(), Some(namespace)))
        .list_metadata(&ListParams::default().limit(WORKS_PAGE));
    let request = request.map_err(kube::Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    let page: Page<'_> = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    let views = page.items().map(serde_json::from_str::<WorkView>);
    let states = views.map(|view| view.map(|view| work_state(view.metadata)));
    let states: serde_json::Result<Vec<WorkState>> = states.collect();
    states.map_err(kube::Error::SerdeError)
}

/// Whether a RoleBinding waits for the hub before it goes.
fn is_held(metadata: &ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.any(|finalizer| finalizer == REGISTRATION_FINALIZER)
}

fn work_state(metadata: MetadataView) -> WorkState {
    let finalizers = metadata.finalizers.unwrap_or_default();
    let ours = finalizers
        .iter()
        .any(|finalizer| finalizer == WORK_FINALIZER);
    let others = || {
        finalizers
            .iter()
            .filter(|f| *f != WORK_FINALIZER)
            .cloned()
            .collect()
    };
    WorkState {
        name: metadata.name,
        resource_version: metadata.resource_version,
        deleting: metadata.deletion_timestamp.is_some(),
        other_finalizers: ours.then(others),
    }
}

impl ClusterView {
    fn state(self) -> ClusterState {
        let condition = |type_: &str| {
            let list = self.status["conditions"].as_array()?;
            let found = list.iter().find(|condition| condition["type"] == type_)?;
            found["status"].as_str().map(str::to_owned)
        };
        let (ready, acknowledged) = (condition(READY), condition(UNREGISTERING));
        let quarantined = condition(QUARANTINED);
        let terminating = condition(EXECUTION_SPACE_TERMINATING);
        let annotations = self.metadata.annotations.unwrap_or_default();
        // No other agent reports a version of its own.
        let is_towlines = self.status["agent"]["version"].is_string();
        ClusterState {
            uid: self.metadata.uid,
            resource_version: self.metadata.resource_version,
            // Nobody has waited yet.
            leaving_for: (self.metadata.deletion_timestamp).map(|_| Duration::ZERO),
            mode: annotations
                .get(UNREGISTER)
                .and_then(|mode| Mode::parse(mode)),
            registration: annotations.get(REGISTRATION_ID).cloned(),
            closing_watches: annotations.get(CLOSING_WATCHES).cloned(),
            finalizers: self.metadata.finalizers.unwrap_or_default(),
            pull: self.spec.sync_mode.as_deref() != Some("Push")
                || annotations.contains_key(REGISTRATION_ID),
            zone: self.spec.zone.filter(|zone| !zone.is_empty()),
            zones: self.spec.zones.unwrap_or_default(),
            taints: self.spec.taints.unwrap_or_default(),
            failover_taint: annotations.get(FAILOVER_TAINT).cloned(),
            ready,
            acknowledged: acknowledged.as_deref() == Some("True"),
            acknowledges: is_towlines || annotations.contains_key(REGISTRATION_ID),
            quarantined: quarantined.as_deref() == Some("True"),
            namespace_terminating: terminating.as_deref() == Some("True"),
        }
    }
}
