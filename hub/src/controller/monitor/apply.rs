//! Reads a silent cluster live and writes the Unknown.

use super::decide::{Live, NEVER, Read, Seen};
use super::observe::{ClusterView, LeaseView};
use crate::controller::registration::condition::make_room;
use chrono::{DateTime, Utc};
use common::api::cluster::{Cluster, READY};
use common::conditions;
use common::labels::HUB_FIELD_MANAGER;
use common::names::CLUSTER_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::params::{GetParams, Patch, PatchParams};
use kube::core::request::Request;
use kube::{Client, Error, Resource as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// How long a live read may take; after that the hub counts as away.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the live read found.
#[derive(Debug)]
pub(super) enum Found {
    /// The API server answered.
    Live(Box<Reading>),
    /// It did not: nobody can be judged.
    Away(String),
}

/// Both objects as they are now.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) live: Live,
    /// The Cluster, for the write.
    pub(super) cluster: Option<ClusterView>,
}

/// How a write went.
#[derive(Debug)]
pub(super) enum Written {
    /// It is Unknown now.
    Done(Seen),
    /// Somebody else wrote first.
    Conflict,
    /// The Cluster is gone.
    Gone,
    /// It failed.
    Failed(String),
}

/// Reads Lease and Cluster at once.
pub(super) async fn read(client: &Client, name: &str) -> Found {
    let lease_path = Lease::url_path(&(), Some(CLUSTER_NAMESPACE));
    let cluster_path = Cluster::url_path(&(), None);
    let (lease, cluster) = tokio::join!(
        get::<LeaseView>(client, &lease_path, name),
        get::<ClusterView>(client, &cluster_path, name),
    );
    let (lease, cluster) = match (lease, cluster) {
        (Ok(lease), Ok(cluster)) => (lease, cluster),
        (lease, cluster) => {
            // One object alone may be unreadable; then it must not keep the others from being judged.
            if let Err(error) = reach(client).await {
                return Found::Away(error);
            }
            (
                lease.unwrap_or(Read::Broken),
                cluster.unwrap_or(Read::Broken),
            )
        }
    };
    let live = Live {
        renewed: lease.map(|lease| lease.renewed().map(str::to_owned)),
        cluster: match &cluster {
            Read::Present(cluster) => Read::Present(cluster.seen()),
            Read::Missing => Read::Missing,
            Read::Broken => Read::Broken,
        },
    };
    let cluster = match cluster {
        Read::Present(cluster) => Some(cluster),
        Read::Missing | Read::Broken => None,
    };
    Found::Live(Box::new(Reading { live, cluster }))
}

/// Whether the API server answers, with data that it had to ask its store for.
pub(super) async fn reach(client: &Client) -> Result<(), String> {
    let path = Namespace::url_path(&(), None);
    match get::<Value>(client, &path, CLUSTER_NAMESPACE).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes Ready=Unknown, if nobody wrote the Cluster since it was read.
pub(super) async fn mark(
    client: &Client,
    cluster: &ClusterView,
    reason: &str,
    now: DateTime<Utc>,
) -> Written {
    let patch = json!({
        "metadata": {
            "resourceVersion": cluster.metadata.resource_version,
            "uid": cluster.metadata.uid,
        },
        "status": {"conditions": with_unknown(cluster.conditions(), reason, now)},
    });
    let params = PatchParams {
        field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let request = Request::new(Cluster::url_path(&(), None)).patch_subresource(
        "status",
        &cluster.metadata.name,
        &params,
        &Patch::Merge(patch),
    );
    let request = match request {
        Ok(request) => request,
        Err(error) => return Written::Failed(error.to_string()),
    };
    match timeout(WRITE_TIMEOUT, client.request::<ClusterView>(request)).await {
        Ok(Ok(cluster)) => Written::Done(cluster.seen()),
        Ok(Err(Error::Api(status))) if status.code == 409 => Written::Conflict,
        Ok(Err(Error::Api(status))) if status.code == 404 => Written::Gone,
        Ok(Err(error)) => Written::Failed(common::errors::chain(&error).to_string()),
        Err(_) => Written::Failed("no answer to the write".to_owned()),
    }
}

/// The conditions with Ready=Unknown in place of the Ready they had, the others untouched as far as there is room.
fn with_unknown(conditions: &[Value], reason: &str, now: DateTime<Utc>) -> Vec<Value> {
    let message = if reason == NEVER {
        "Cluster status controller never posted cluster status."
    } else {
        "Cluster status controller stopped posting cluster status."
    };
    let unknown = json!(conditions::with_status(
        READY, "Unknown", reason, message, now
    ));
    let others = conditions
        .iter()
        .filter(|condition| condition["type"] != READY);
    let mut written: Vec<Value> = others.cloned().collect();
    let at = conditions
        .iter()
        .position(|condition| condition["type"] == READY);
    written.insert(at.unwrap_or(written.len()).min(written.len()), unknown);
    make_room(&mut written);
    written
}

async fn get<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    name: &str,
) -> Result<Read<T>, String> {
    let request = Request::new(path)
        .get(name, &GetParams::default())
        .map_err(|error| error.to_string())?;
    match timeout(READ_TIMEOUT, client.request::<T>(request)).await {
        Ok(Ok(object)) => Ok(Read::Present(object)),
        Ok(Err(Error::Api(status))) if status.code == 404 => Ok(Read::Missing),
        Ok(Err(Error::SerdeError(_))) => Ok(Read::Broken),
        Ok(Err(error)) => Err(common::errors::chain(&error).to_string()),
        Err(_) => Err(format!("no answer within {READ_TIMEOUT:?}")),
    }
}

impl<T> Read<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Read<U> {
        match self {
            Self::Present(value) => Read::Present(change(value)),
            Self::Missing => Read::Missing,
            Self::Broken => Read::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::schema::CONDITIONS_MAX;

    #[test]
    fn only_ready_is_written() {
        let before = [
            json!({"type": "CompleteAPIEnablements", "status": "True", "odd": 1}),
            json!({"type": "Ready", "status": "True"}),
        ];
        let now = DateTime::from_timestamp(1_700_000_000, 0).expect("in range");
        let after = with_unknown(&before, super::super::decide::STOPPED, now);
        assert_eq!(after[0], before[0]);
        assert_eq!(after[1]["status"], "Unknown");
        assert_eq!(after[1]["lastTransitionTime"], "2023-11-14T22:13:20Z");
        assert_eq!(after.len(), 2);
        assert_eq!(with_unknown(&[], NEVER, now).len(), 1);
        // An agent that fills the list up is lost like any other.
        let full: Vec<Value> = (0..CONDITIONS_MAX)
            .map(|number| json!({"type": format!("Odd{number}"), "status": "True"}))
            .collect();
        let after = with_unknown(&full, NEVER, now);
        assert_eq!(after.len(), CONDITIONS_MAX);
        assert_eq!(after[..CONDITIONS_MAX - 1], full[..CONDITIONS_MAX - 1]);
        let last = &after[CONDITIONS_MAX - 1];
        assert_eq!(
            (&last["type"], &last["status"]),
            (&json!(READY), &json!("Unknown"))
        );
    }
}
