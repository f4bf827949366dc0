//! Builders of the objects that one registration's rights consist of. Pure.

use super::Registration;
use common::identity::CLUSTER_GROUP_PREFIX;
use common::labels::{
    CLUSTER_LABEL, HUB_FIELD_MANAGER, MANAGED_BY, MANAGED_VALUE, REGISTRATION_FINALIZER, SYSTEM,
};
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;

/// The RoleBinding in every execution namespace.
pub const AGENT_BINDING: &str = "towline:agent";
/// The ClusterRole that `init` makes for it.
pub const AGENT_WORKS_ROLE: &str = "towline:agent-works";
/// How long a Lease is said to last; the monitor does not believe it.
pub const LEASE_DURATION_SECONDS: i32 = 40;
const RBAC: &str = "rbac.authorization.k8s.io";

/// Every object of one registration.
#[derive(Debug, Clone, PartialEq)]
pub struct Objects {
    /// `karmada-es-<cluster>`.
    pub namespace: Namespace,
    /// `karmada-cluster/<cluster>`.
    pub lease: Lease,
    /// The status of its own Cluster.
    pub cluster_role: ClusterRole,
    /// Binds [`Self::cluster_role`].
    pub cluster_role_binding: ClusterRoleBinding,
    /// Its own Lease.
    pub role: Role,
    /// Binds [`Self::role`].
    pub role_binding: RoleBinding,
    /// Its own Works, by the shared ClusterRole.
    pub works_binding: RoleBinding,
}

/// The name of a cluster's ClusterRole, Role and their bindings.
pub fn rights_name(cluster: &ClusterName) -> String {
    format!("{CLUSTER_GROUP_PREFIX}{cluster}")
}

impl Objects {
    /// Builds the objects of `registration`.
    pub fn of(registration: &Registration) -> Self {
        let cluster = &registration.cluster;
        let uid = &registration.cluster_uid;
        let name = rights_name(cluster);
        let subjects = registration.group().map(|group| {
            vec![Subject {
                api_group: Some(RBAC.to_owned()),
                kind: "Group".to_owned(),
                name: group,
                namespace: None,
            }]
        });
        let mut works_meta = metadata(AGENT_BINDING, cluster, uid);
        works_meta.namespace = Some(cluster.execution_namespace());
        works_meta.finalizers = Some(vec![REGISTRATION_FINALIZER.to_owned()]);
        Self {
            namespace: execution_namespace(cluster, uid),
            lease: Lease {
                metadata: in_cluster_namespace(metadata(cluster.as_str(), cluster, uid)),
                spec: Some(LeaseSpec {
                    holder_identity: Some(cluster.to_string()),
                    lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
                    ..LeaseSpec::default()
                }),
            },
            cluster_role: ClusterRole {
                metadata: metadata(&name, cluster, uid),
                rules: Some(vec![patch_one(
                    "cluster.karmada.io",
                    "clusters/status",
                    cluster,
                )]),
                aggregation_rule: None,
            },
            cluster_role_binding: ClusterRoleBinding {
                metadata: metadata(&name, cluster, uid),
                role_ref: role_ref("ClusterRole", &name),
                subjects: subjects.clone(),
            },
            role: Role {
                metadata: in_cluster_namespace(metadata(&name, cluster, uid)),
                rules: Some(vec![patch_one("coordination.k8s.io", "leases", cluster)]),
            },
            role_binding: RoleBinding {
                metadata: in_cluster_namespace(metadata(&name, cluster, uid)),
                role_ref: role_ref("Role", &name),
                subjects: subjects.clone(),
            },
            works_binding: RoleBinding {
                metadata: works_meta,
                role_ref: role_ref("ClusterRole", AGENT_WORKS_ROLE),
                subjects,
            },
        }
    }
}

/// The namespace of a cluster's Works.
pub(super) fn execution_namespace(cluster: &ClusterName, cluster_uid: &str) -> Namespace {
    let mut metadata = metadata(&cluster.execution_namespace(), cluster, cluster_uid);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(SYSTEM.to_owned(), MANAGED_VALUE.to_owned());
    Namespace {
        metadata,
        ..Namespace::default()
    }
}

/// Whether a RoleBinding in the execution namespace is one that the hub writes.
pub(super) fn is_ours(binding: &RoleBinding, cluster: &ClusterName) -> bool {
    let prefix = format!("{CLUSTER_GROUP_PREFIX}{cluster}:");
    binding.metadata.name.as_deref() == Some(AGENT_BINDING)
        && binding.role_ref == role_ref("ClusterRole", AGENT_WORKS_ROLE)
        && binding
            .subjects
            .iter()
            .flatten()
            .all(|subject| subject.kind == "Group" && subject.name.starts_with(&prefix))
}

/// One verb, one object, by name.
fn patch_one(group: &str, resource: &str, cluster: &ClusterName) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(vec![cluster.to_string()]),
        verbs: vec!["patch".to_owned()],
        ..PolicyRule::default()
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef {
        api_group: RBAC.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn in_cluster_namespace(mut metadata: ObjectMeta) -> ObjectMeta {
    metadata.namespace = Some(CLUSTER_NAMESPACE.to_owned());
    metadata
}

fn metadata(name: &str, cluster: &ClusterName, cluster_uid: &str) -> ObjectMeta {
    let labels = [
        (CLUSTER_LABEL.to_owned(), cluster.to_string()),
        (MANAGED_BY.to_owned(), HUB_FIELD_MANAGER.to_owned()),
    ];
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from(labels)),
        owner_references: Some(vec![OwnerReference {
            api_version: "cluster.karmada.io/v1alpha1".to_owned(),
            kind: "Cluster".to_owned(),
            name: cluster.to_string(),
            uid: cluster_uid.to_owned(),
            // Neither: the Cluster's own finalizer orders its deletion.
            block_owner_deletion: None,
            controller: None,
        }]),
        ..ObjectMeta::default()
    }
}
