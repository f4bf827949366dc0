//! The Cluster of an agent with hand-made credentials: made when the hub has none and the operator says so.
//!
//! A hub of ours makes its Clusters itself, and its agents may not. On Karmada's hub agents do.

use super::hub::{Error, PATH};
use common::names::ClusterName;
use kube::Client;
use kube::api::{PostParams, Request};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct Clusters {
    #[serde(default)]
    items: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    spec: Id,
}

#[derive(Debug, Default, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Id {
    #[serde(default)]
    id: Option<String>,
}

/// Makes the Cluster, in Pull mode and with the member's id, unless another Cluster has that id.
pub(super) async fn make(hub: &Client, cluster: &ClusterName, id: &str) -> Result<(), Error> {
    let name = cluster.as_str();
    if let Some(other) = other_with_id(hub, name, id).await? {
        return Err(Error::IdTaken {
            cluster: name.to_owned(),
            other,
        });
    }
    let body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {"syncMode": "Pull", "id": id},
    });
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let request = Request::new(PATH)
        .create(&PostParams::default(), body)
        .map_err(|e| Error::Build {
            cluster: name.to_owned(),
            source: Box::new(e),
        })?;
    match hub.request::<IgnoredAny>(request).await {
        Ok(_) => {
            tracing::info!(cluster = name, "the hub had no Cluster of this name: made");
            Ok(())
        }
        // Somebody made it meanwhile.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(Error::Make {
            cluster: name.to_owned(),
            source: Box::new(source),
        }),
    }
}

/// The Cluster that this member is already; none also when we may not list them.
async fn other_with_id(hub: &Client, name: &str, id: &str) -> Result<Option<String>, Error> {
    let request = http::Request::get(PATH).body(Vec::new());
    let request = request.map_err(|e| Error::Build {
        cluster: name.to_owned(),
        source: Box::new(e),
    })?;
    let clusters: Clusters = match hub.request(request).await {
        Ok(clusters) => clusters,
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        Err(source) => {
            return Err(Error::Make {
                cluster: name.to_owned(),
                source: Box::new(source),
            });
        }
    };
    let other = clusters
        .items
        .into_iter()
        .find(|found| found.spec.id.as_deref() == Some(id) && found.metadata.name != name);
    Ok(other.map(|found| found.metadata.name))
}
