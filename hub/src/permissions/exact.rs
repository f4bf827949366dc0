//! Makes one live object what it should be: created, corrected, or left alone.

use super::{Error, failed};
use common::names::ClusterName;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// An object of which the hub owns a part.
pub(super) trait Exact {
    /// Copies what the hub owns from `self` into `live`; false when only a new object can say it.
    fn impose(&self, live: &mut Self) -> bool;
}

/// Two controllers of this hub may write the same object; whoever comes second looks again.
const CONFLICT_RETRIES: usize = 3;

/// Creates or corrects `desired`; returns the number of writes.
pub(super) async fn ensure<K>(
    api: &Api<K>,
    desired: K,
    cluster: &ClusterName,
) -> Result<usize, Error>
where
    K: Resource<DynamicType = ()>
        + Exact
        + Clone
        + PartialEq
        + Serialize
        + DeserializeOwned
        + Debug,
{
    let mut tries = CONFLICT_RETRIES;
    loop {
        let ensured = ensure_once(api, &desired, cluster).await;
        tries -= 1;
        match ensured {
            Err(error) if tries > 0 && error.status().is_some_and(|s| s.code == 409) => {}
            other => return other,
        }
    }
}

async fn ensure_once<K>(api: &Api<K>, desired: &K, cluster: &ClusterName) -> Result<usize, Error>
where
    K: Resource<DynamicType = ()>
        + Exact
        + Clone
        + PartialEq
        + Serialize
        + DeserializeOwned
        + Debug,
{
    let name = desired.name_any();
    let kind = K::kind(&());
    let create = async || {
        api.create(&PostParams::default(), desired)
            .await
            .map(|_| 1)
            .map_err(failed("create", &kind, &name, cluster))
    };
    let live = api
        .get_opt(&name)
        .await
        .map_err(failed("read", &kind, &name, cluster))?;
    let Some(live) = live else {
        return create().await;
    };
    let mut wanted = live.clone();
    // Metadata first: an object that must be made anew takes its finalizers off on the way.
    let replaceable = desired.impose(&mut wanted);
    impose_metadata(desired.meta(), wanted.meta_mut());
    if !replaceable {
        delete(api, &live, cluster).await?;
        return create().await;
    }
    if wanted == live {
        return Ok(0);
    }
    api.replace(&name, &PostParams::default(), &wanted)
        .await
        .map(|_| 1)
        .map_err(failed("correct", &kind, &name, cluster))
}

/// Deletes the very object that was read, whatever finalizers it has.
async fn delete<K>(api: &Api<K>, live: &K, cluster: &ClusterName) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let (name, kind) = (live.name_any(), K::kind(&()));
    let mut bare = live.clone();
    bare.meta_mut().finalizers = None;
    let bare = api
        .replace(&name, &PostParams::default(), &bare)
        .await
        .map_err(failed("release", &kind, &name, cluster))?;
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: bare.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = api.delete(&name, &params).await;
    super::gone_is_fine(deleted).map_err(failed("delete", &kind, &name, cluster))
}

/// Owners exactly; labels and finalizers at least ours.
fn impose_metadata(desired: &ObjectMeta, live: &mut ObjectMeta) {
    live.owner_references.clone_from(&desired.owner_references);
    let labels = live.labels.get_or_insert_default();
    labels.extend(desired.labels.clone().into_iter().flatten());
    // A finalizer cannot be added to what is being deleted.
    if live.deletion_timestamp.is_some() {
        return;
    }
    for finalizer in desired.finalizers.iter().flatten() {
        let finalizers = live.finalizers.get_or_insert_default();
        if !finalizers.contains(finalizer) {
            finalizers.push(finalizer.clone());
        }
    }
}

// === impl Exact ===

impl Exact for Namespace {
    fn impose(&self, _live: &mut Self) -> bool {
        true
    }
}

impl Exact for Lease {
    fn impose(&self, live: &mut Self) -> bool {
        let (Some(ours), spec) = (&self.spec, live.spec.get_or_insert_default()) else {
            return true;
        };
        // The renewal is the agent's, and stays.
        spec.holder_identity.clone_from(&ours.holder_identity);
        spec.lease_duration_seconds = ours.lease_duration_seconds;
        true
    }
}

impl Exact for ClusterRole {
    fn impose(&self, live: &mut Self) -> bool {
        live.rules.clone_from(&self.rules);
        live.aggregation_rule = None;
        true
    }
}

impl Exact for Role {
    fn impose(&self, live: &mut Self) -> bool {
        live.rules.clone_from(&self.rules);
        true
    }
}

impl Exact for ClusterRoleBinding {
    fn impose(&self, live: &mut Self) -> bool {
        live.subjects.clone_from(&self.subjects);
        live.role_ref == self.role_ref
    }
}

impl Exact for RoleBinding {
    fn impose(&self, live: &mut Self) -> bool {
        live.subjects.clone_from(&self.subjects);
        live.role_ref == self.role_ref
    }
}
