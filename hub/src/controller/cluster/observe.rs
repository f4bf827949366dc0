//! Reads what one decision about a Cluster needs, live and no more than needed.

use super::Error;
use common::api::cluster::{
    Cluster, EXECUTION_SPACE_TERMINATING, QUARANTINED, READY, Taint, UNREGISTERING,
};
use common::api::work::Work;
use common::labels::{MANAGED_VALUE, REGISTRATION_ID, SYSTEM, UNREGISTER, WORK_FINALIZER};
use common::names::ClusterName;
use common::unregister::Mode;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::params::GetParams;
use kube::core::request::Request;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

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
    /// Whether its agent's rights are still there.
    pub rights: bool,
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

/// Cluster as it is stored; nothing in it that an agent writes can keep it from being read.
#[derive(Debug, Deserialize)]
struct ClusterView {
    metadata: ObjectMeta,
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
    let rights = crate::permissions::rights_name(name);
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let bound = bindings.get_metadata_opt(&rights).await;
    let bound = bound.map_err(|source| Error::read("ClusterRoleBinding", &rights, source))?;
    let mut works = Vec::new();
    if namespace != NamespaceState::Absent {
        let namespace = name.execution_namespace();
        let api: Api<Work> = Api::namespaced(client.clone(), &namespace);
        let page = api
            .list_metadata(&ListParams::default().limit(WORKS_PAGE))
            .await;
        let page = page.map_err(|source| Error::read("Works", &namespace, source))?;
        works.extend(page.items.into_iter().map(|work| work_state(work.metadata)));
    }
    Ok(Leftovers {
        works,
        rights: bound.is_some(),
    })
}

fn work_state(metadata: ObjectMeta) -> WorkState {
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
        name: metadata.name.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
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
            uid: self.metadata.uid.unwrap_or_default(),
            resource_version: self.metadata.resource_version.unwrap_or_default(),
            // Nobody has waited yet.
            leaving_for: (self.metadata.deletion_timestamp).map(|_| Duration::ZERO),
            mode: annotations
                .get(UNREGISTER)
                .and_then(|mode| Mode::parse(mode)),
            finalizers: self.metadata.finalizers.unwrap_or_default(),
            pull: self.spec.sync_mode.as_deref() != Some("Push")
                || annotations.contains_key(REGISTRATION_ID),
            zone: self.spec.zone.filter(|zone| !zone.is_empty()),
            zones: self.spec.zones.unwrap_or_default(),
            taints: self.spec.taints.unwrap_or_default(),
            ready,
            acknowledged: acknowledged.as_deref() == Some("True"),
            acknowledges: is_towlines || annotations.contains_key(REGISTRATION_ID),
            quarantined: quarantined.as_deref() == Some("True"),
            namespace_terminating: terminating.as_deref() == Some("True"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{Object, Record};
    use serde_json::json;

    #[test]
    fn a_cluster_is_read_whatever_its_status_holds() {
        let view: ClusterView = serde_json::from_value(json!({
            "metadata": {
                "name": "m1", "uid": "u", "resourceVersion": "7",
                "annotations": {"towline.dev/unregister": "keep-workloads"},
            },
            "spec": {"syncMode": "Pull", "zone": "z"},
            "status": {"conditions": [7, {"type": "Ready", "status": "True"}], "nodeSummary": "odd"},
        }))
        .expect("decodes");
        let state = view.state();
        assert_eq!(state.ready.as_deref(), Some("True"));
        assert_eq!(state.mode, Some(Mode::KeepWorkloads));
        assert_eq!(state.zone.as_deref(), Some("z"));
        assert!(state.pull && !state.acknowledged && !state.quarantined);
        assert!(!state.acknowledges, "nobody registered it");
    }

    /// What is held of a Cluster that lives, and of its namespace, is what would be read.
    #[test]
    fn what_is_held_decides_as_what_is_read() {
        let conditions = |ready: &str, terminating: &str| {
            json!([{"type": "Ready", "status": ready},
                {"type": EXECUTION_SPACE_TERMINATING, "status": terminating}])
        };
        let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let settled = json!({
            "metadata": {"name": "m1", "uid": "u", "resourceVersion": "7", "generation": 1,
                "finalizers": ["karmada.io/cluster-controller"],
                "annotations": {REGISTRATION_ID: "x"}},
            "spec": {"syncMode": "Push", "zones": ["a", "b"], "taints": [taint]},
            "status": {"conditions": conditions("True", "False")},
        });
        let with = |path: &str, value: Value| {
            let mut changed = settled.clone();
            *changed.pointer_mut(path).expect("there") = value;
            changed
        };
        let clusters = [
            settled.clone(),
            with("/metadata/finalizers", json!(["x"])),
            with("/metadata/annotations", json!({})),
            with("/spec", json!({"syncMode": "Pull", "zone": "z"})),
            with(
                "/spec",
                json!({"syncMode": "Pull", "zone": "", "taints": null}),
            ),
            with("/status/conditions", conditions("Unknown", "True")),
            with("/status/conditions", json!([7])),
            with("/status", json!(null)),
        ];
        let space = |owner: &str| {
            json!({"metadata": {"labels": {SYSTEM: MANAGED_VALUE},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Cluster", "name": "m1", "uid": owner}]}})
        };
        let mut gone = space("u");
        gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let name = ClusterName::parse("m1").expect("valid");
        for cluster in &clusters {
            for namespace in [Some(space("u")), Some(space("v")), Some(gone.clone()), None] {
                let view: ClusterView = serde_json::from_value(cluster.clone()).expect("decodes");
                let read = Observed {
                    name: name.clone(),
                    cluster: view.state(),
                    namespace: namespace
                        .as_ref()
                        .map_or(NamespaceState::Absent, |namespace| {
                            let metadata = namespace["metadata"].clone();
                            namespace_state(&serde_json::from_value(metadata).expect("is"), "u")
                        }),
                    leftovers: Leftovers::default(),
                };
                let held_cluster = held(cluster);
                let held_space = namespace.as_ref().map(held);
                let mut known =
                    super::super::held::observed(&name, &held_cluster, held_space.as_ref())
                        .expect("it lives");
                // Only an end asks for them.
                known.cluster.acknowledges = read.cluster.acknowledges;
                known.cluster.pull = read.cluster.pull;
                assert_eq!(known, read, "{cluster} {namespace:?}");
            }
        }
    }

    fn held<R: Record>(object: &Value) -> Object<R> {
        let text = object.to_string();
        Object {
            version: "7".into(),
            bytes: 0,
            record: R::read(&text).expect("an object").map(Into::into),
        }
    }

    #[test]
    fn a_cluster_that_ends_is_read() {
        let cluster = held(&json!({
            "metadata": {"name": "m1", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        }));
        let name = ClusterName::parse("m1").expect("valid");
        assert_eq!(super::super::held::observed(&name, &cluster, None), None);
    }

    #[test]
    fn a_work_without_our_finalizer_is_not_ours_to_release() {
        let state = |finalizers: &[&str]| {
            let finalizers = finalizers.iter().map(|&f| f.to_owned()).collect();
            work_state(ObjectMeta {
                finalizers: Some(finalizers),
                ..ObjectMeta::default()
            })
        };
        assert_eq!(state(&["x"]).other_finalizers, None);
        assert_eq!(
            state(&["x", WORK_FINALIZER]).other_finalizers,
            Some(vec!["x".to_owned()])
        );
    }
}
