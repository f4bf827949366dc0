//! Gives a registration its rights, or takes them while it stays, and with them the watches that they opened.
//!
//! A watch is authorized once, when it is opened: whoever loses the right keeps the watch. So before the bindings are
//! emptied the Cluster is annotated with the registration whose watches must end, as one that is replaced is, and the
//! annotation goes when they have ended: a hub that dies in between finds it and goes on. Nothing is concluded from the
//! condition, which the agent can write.

#[cfg(test)]
pub(crate) mod played;
#[cfg(test)]
mod tests;

use super::Error;
use super::apply::patch_metadata;
use super::observe::clusters;
use crate::epoch::{self, Rounds};
use crate::permissions::{self, Grant, Registration};
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{CLOSING_WATCHES, REGISTRATION_ID};
use common::names::ClusterName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::json;

/// Puts the rights of a registration that is in force in place; returns how many objects were written.
///
/// Where they were withheld until now, and its watches had not ended, these may go on.
pub(crate) async fn give(
    client: &Client,
    cluster: &ObjectMeta,
    registration: &Registration,
) -> Result<usize, Error> {
    let ensured = permissions::ensure(client, registration).await;
    let written = ensured.map_err(Error::Permissions)?;
    if let Grant::InForce(id) = &registration.grant
        && closing(cluster) == Some(id.as_str())
    {
        go_on(client, registration, cluster.resource_version.as_deref()).await?;
    }
    Ok(written)
}

/// Lets the watches go on of a registration whose rights were withheld and are in force again, if its Cluster is still
/// of this version.
pub(super) async fn go_on(
    client: &Client,
    registration: &Registration,
    version: Option<&str>,
) -> Result<(), Error> {
    // A registration that replaces it in this moment writes the same annotation, which must stay.
    let patch = json!({"metadata": {
        "uid": registration.cluster_uid,
        "resourceVersion": version,
        "annotations": {CLOSING_WATCHES: null},
    }});
    let doing = "let the watches go on of Cluster";
    patch_metadata(client, &registration.cluster, doing, patch).await
}

/// Takes the rights of a registration that is suspended, and returns when its agent reads nothing any more, by what it
/// had opened before neither. Whoever needs the same at about the same time shares the `watches` that are ended.
pub(crate) async fn take(
    client: &Client,
    watches: &Rounds,
    cluster: &ObjectMeta,
    registration: &Registration,
) -> Result<(), Error> {
    let name = &registration.cluster;
    let before = closing(cluster);
    let Some(id) = annotation(cluster, REGISTRATION_ID).and_then(RegistrationId::parse) else {
        return Ok(());
    };
    let noted = note(client, registration, &id, before).await?;
    let ensured = permissions::ensure(client, registration).await;
    ensured.map_err(Error::Permissions)?;
    if !noted {
        return Ok(());
    }
    let earlier = before
        .and_then(RegistrationId::parse)
        .filter(|earlier| *earlier != id);
    for registration in [Some(id), earlier].into_iter().flatten() {
        let subject = AgentSubject {
            cluster: name.clone(),
            registration,
        };
        let denied = epoch::await_denied(client, &subject).await;
        denied.map_err(Error::Watches)?;
    }
    // Its agent cannot write it any more: what changes from now on is another's word, and is to be read.
    let read = clusters(client).get_metadata_opt(name.as_str()).await;
    let Some(read) = read.map_err(Error::request("read Cluster", name.as_str()))? else {
        return Ok(());
    };
    watches.close(client).await.map_err(Error::Watches)?;
    let patch = json!({"metadata": {
        "uid": registration.cluster_uid,
        "resourceVersion": read.metadata.resource_version,
        "annotations": {CLOSING_WATCHES: null},
    }});
    let doing = "note the end of the watches of Cluster";
    patch_metadata(client, name, doing, patch).await
}

/// Annotates a Cluster whose agent is about to lose its rights, if it has any; whether watches have to be ended after
/// that. `closing` is what the annotation says already.
pub(super) async fn note(
    client: &Client,
    registration: &Registration,
    id: &RegistrationId,
    closing: Option<&str>,
) -> Result<bool, Error> {
    let cluster: &ClusterName = &registration.cluster;
    if closing.is_some() {
        return Ok(true);
    }
    let bound = permissions::is_bound(client, cluster).await;
    if !bound.map_err(Error::Permissions)? {
        return Ok(false);
    }
    // Whatever its version: an agent that writes its status all the time must not hold this up.
    let patch = json!({"metadata": {
        "uid": registration.cluster_uid,
        "annotations": {CLOSING_WATCHES: id.as_str()},
    }});
    let doing = "note the watches to end of Cluster";
    patch_metadata(client, cluster, doing, patch).await?;
    Ok(true)
}

fn closing(cluster: &ObjectMeta) -> Option<&str> {
    annotation(cluster, CLOSING_WATCHES)
}

fn annotation<'a>(cluster: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    let annotations = cluster.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}
