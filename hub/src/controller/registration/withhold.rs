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

use super::apply::patch_metadata;
use super::observe::clusters;
use super::{Claim, Error};
use crate::epoch::{self, Rounds};
use crate::permissions::{self, Grant, Registration};
use common::controller::Failure as _;
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{CLOSING_WATCHES, QUARANTINED_SINCE, REGISTRATION_ID};
use common::names::ClusterName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::json;

/// Its agent cannot write a Cluster any more; five misses in a row are a fault.
const CONFLICT_RETRIES: usize = 5;

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
/// had opened before neither; false when its Cluster is not quarantined as it was meanwhile, and is to be looked at
/// again. It is claimed until the rights are gone. Whoever needs the same at about the same time shares the `watches`
/// that are ended.
pub(crate) async fn take(
    client: &Client,
    watches: &Rounds,
    claim: Claim,
    cluster: &ObjectMeta,
    registration: &Registration,
) -> Result<bool, Error> {
    let name = &registration.cluster;
    let before = closing(cluster);
    let Some(id) = annotation(cluster, REGISTRATION_ID).and_then(RegistrationId::parse) else {
        return Ok(true);
    };
    let noted = note(client, registration, &id, before).await?;
    let ensured = permissions::ensure(client, registration).await;
    ensured.map_err(Error::Permissions)?;
    drop(claim);
    if !noted {
        return Ok(true);
    }
    let mut want = state(cluster);
    want.closing = Some(before.unwrap_or(id.as_str()));
    let earlier = before
        .and_then(RegistrationId::parse)
        .filter(|earlier| *earlier != id);
    let registrations = [Some(id.clone()), earlier].into_iter().flatten();
    let ended = end_watches(client, watches, name, registrations).await;
    forget(client, name, &want, ended).await
}

/// Waits until registrations may open no watch, then until those that are open have ended.
async fn end_watches(
    client: &Client,
    watches: &Rounds,
    cluster: &ClusterName,
    registrations: impl Iterator<Item = RegistrationId>,
) -> Result<(), epoch::Error> {
    for registration in registrations {
        let subject = AgentSubject {
            cluster: cluster.clone(),
            registration,
        };
        epoch::await_denied(client, &subject).await?;
    }
    watches.close(client).await
}

/// Notes that the watches of a Cluster have `ended`. False where it says something else than `want` by now: then it does
/// not matter what came of them.
async fn forget(
    client: &Client,
    cluster: &ClusterName,
    want: &State<'_>,
    ended: Result<(), epoch::Error>,
) -> Result<bool, Error> {
    let name = cluster.as_str();
    let mut tries = CONFLICT_RETRIES;
    loop {
        let read = clusters(client).get_metadata_opt(name).await;
        let read = read.map_err(Error::request("read Cluster", name))?;
        let Some(read) = read.filter(|read| state(&read.metadata) == *want) else {
            return Ok(false);
        };
        if let Err(error) = ended {
            return Err(Error::Watches(error));
        }
        let patch = json!({"metadata": {
            "uid": want.uid,
            "resourceVersion": read.metadata.resource_version,
            "annotations": {CLOSING_WATCHES: null},
        }});
        let doing = "note the end of the watches of Cluster";
        let patched = patch_metadata(client, cluster, doing, patch).await;
        tries -= 1;
        match patched {
            Err(error) if error.is_conflict() && tries > 0 => {}
            other => return other.map(|()| true),
        }
    }
}

/// What a Cluster says of the rights of its agent. Whatever else is written to it, by whomever, opens no watch.
#[derive(Debug, PartialEq, Eq)]
struct State<'a> {
    uid: Option<&'a str>,
    quarantined: Option<&'a str>,
    registration: Option<&'a str>,
    closing: Option<&'a str>,
}

fn state(cluster: &ObjectMeta) -> State<'_> {
    State {
        uid: cluster.uid.as_deref(),
        quarantined: annotation(cluster, QUARANTINED_SINCE),
        registration: annotation(cluster, REGISTRATION_ID),
        closing: closing(cluster),
    }
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
