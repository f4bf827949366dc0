//! What `towline join` writes on the hub: the Cluster and its Secret.

use crate::cli::error::or_later;
use crate::cli::{CliError, Kind, Progress};
use crate::token_secret::Placement;
use chrono::{DateTime, Utc};
use common::api::cluster::{Cluster, ClusterSpec, LocalSecretReference, READY, SyncMode};
use common::joined::{Joined, Way};
use common::labels::{
    CERTIFICATE_END, CLUSTER_LABEL, JOINED, PART_OF, PART_OF_VALUE, REGISTRATION_ID,
};
use common::names::{CLUSTER_NAMESPACE, ClusterName};
use common::time::from_time;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(500);
const FIELD_MANAGER: &str = "towline-join";

/// What the hub has of a cluster.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) cluster: Option<Cluster>,
    /// What a `join` before this one wrote.
    pub(super) joined: Option<Joined>,
    /// What was there of an agent.
    pub(super) before: Before,
}

/// What an agent that is about to be replaced has left on the hub.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The registration in force.
    registration: Option<String>,
    /// The end of the certificate by which it reported last.
    certificate_end: Option<Time>,
}

impl Before {
    fn of(cluster: &Cluster) -> Self {
        Self {
            registration: cluster.annotations().get(REGISTRATION_ID).cloned(),
            certificate_end: reported_end(cluster).cloned(),
        }
    }
}

/// What the Cluster is to say.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) id: String,
    pub(super) way: Way,
    /// For a new one alone.
    pub(super) placement: Placement,
}

/// The hub, as far as one cluster goes.
pub(super) struct Hub {
    client: Client,
    clusters: Api<Cluster>,
    secrets: Api<Secret>,
    name: ClusterName,
}

impl Hub {
    pub(super) fn new(client: Client, name: ClusterName) -> Self {
        Self {
            clusters: Api::all(client.clone()),
            secrets: Api::namespaced(client.clone(), CLUSTER_NAMESPACE),
            client,
            name,
        }
    }

    /// What there is; an error when a member of this id cannot be joined under this name.
    pub(super) async fn find(&self, id: &str) -> Result<Found, CliError> {
        let name = self.name.as_str();
        let cluster = self.cluster().await?;
        judge(name, id, cluster.as_ref())?;
        if let Some(other) = self.of_same_id(id).await? {
            let message =
                format!("this cluster is a member already, as {other:?}; nothing was changed");
            return Err(CliError::message(Kind::Denied, message)
                .hint("A cluster is a member once. Take it off the hub under that name first."));
        }
        let secret = self.secrets.get_opt(name).await;
        let secret = secret.map_err(failed("get", "Secret", name))?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        Ok(Found {
            // One that is no Secret of ours is written over.
            joined: cluster.as_ref().and_then(|_| Joined::read(&data).ok()),
            before: cluster.as_ref().map(Before::of).unwrap_or_default(),
            cluster,
        })
    }

    async fn cluster(&self) -> Result<Option<Cluster>, CliError> {
        let name = self.name.as_str();
        let found = self.clusters.get_opt(name).await;
        found.map_err(failed("get", "Cluster", name))
    }

    async fn of_same_id(&self, id: &str) -> Result<Option<String>, CliError> {
        // Their status, which agents write, is not decoded.
        let kind = ApiResource::erase::<Cluster>(&());
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let params = ListParams::default()
            .fields(&format!("spec.id={id}"))
            .limit(50);
        let found = all.list(&params).await;
        let found = found.map_err(|e| CliError::api("failed to list Clusters", e))?;
        let same =
            |it: &DynamicObject| it.data["spec"]["id"] == id && it.name_any() != self.name.as_str();
        Ok(found.items.into_iter().find(same).map(|it| it.name_any()))
    }

    /// Makes the Cluster, or has the one there is show the way; returns its UID.
    pub(super) async fn ensure_cluster(
        &self,
        found: Option<&Cluster>,
        wanted: &Wanted,
    ) -> Result<String, CliError> {
        let name = self.name.as_str();
        let written = match found {
            None => {
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                let cluster = made(name, wanted);
                let made = self.clusters.create(&params, &cluster).await;
                made.map_err(failed("create", "Cluster", name))?
            }
            Some(found) => {
                let patch = json!({
                    "metadata": {"uid": found.metadata.uid},
                    "spec": {
                        "apiEndpoint": wanted.way.api_endpoint,
                        "proxyURL": wanted.way.proxy_url,
                        "secretRef": {"namespace": CLUSTER_NAMESPACE, "name": name},
                        "insecureSkipTLSVerification": null,
                    },
                });
                self.patch(&patch).await?
            }
        };
        Ok(written.metadata.uid.unwrap_or_default())
    }

    /// Writes the Secret, which goes with its Cluster; returns its UID and version.
    pub(super) async fn ensure_secret(
        &self,
        cluster_uid: &str,
        joined: &Joined,
    ) -> Result<String, CliError> {
        let name = self.name.as_str();
        let data: BTreeMap<&str, ByteString> = joined
            .data()
            .into_iter()
            .map(|(key, value)| (key, ByteString(value.into_bytes())))
            .collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": CLUSTER_NAMESPACE,
                "labels": {PART_OF: PART_OF_VALUE, CLUSTER_LABEL: name},
                "ownerReferences": [{
                    "apiVersion": "cluster.karmada.io/v1alpha1",
                    "kind": "Cluster",
                    "name": name,
                    "uid": cluster_uid,
                }],
            },
            "type": "Opaque",
            "data": data,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let secret = Patch::Apply(&secret);
        let applied = self.secrets.patch(name, &params, &secret).await;
        let applied = applied.map_err(failed("apply", "Secret", name))?;
        let ObjectMeta {
            uid,
            resource_version,
            ..
        } = applied.metadata;
        let version = resource_version.unwrap_or_default();
        Ok(format!("{}/{version}", uid.unwrap_or_default()))
    }

    /// Tells the process beside the hub that the Secret is there, in this version.
    pub(super) async fn announce(&self, secret: &str) -> Result<(), CliError> {
        let patch = json!({"metadata": {"annotations": {JOINED: secret}}});
        self.patch(&patch).await.map(drop)
    }

    async fn patch(&self, patch: &serde_json::Value) -> Result<Cluster, CliError> {
        let name = self.name.as_str();
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        let patched = self.clusters.patch(name, &params, &patch).await;
        patched.map_err(failed("patch", "Cluster", name))
    }

    /// Waits until the cluster is Ready by another registration than it had before.
    pub(super) async fn until_ready(
        &self,
        before: &Before,
        within: Duration,
        progress: &Progress,
    ) -> Result<(), CliError> {
        let name = self.name.as_str();
        let deadline = Instant::now() + within;
        loop {
            let Some(cluster) = or_later(self.cluster().await, deadline)? else {
                progress.step("the hub does not answer");
                sleep(POLL).await;
                continue;
            };
            let gone = || CliError::message(Kind::NotFound, format!("Cluster {name:?} is gone"));
            let cluster = cluster.ok_or_else(gone)?;
            let stage = stage(&cluster, before);
            let Stage::Waiting(what) = stage else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                let waited = common::duration::format(within);
                let message = format!("Cluster {name:?} is not Ready after {waited}: {what}");
                return Err(CliError::message(Kind::Unavailable, message)
                    .hint("See that `towline-agent push` runs beside the hub, and what it logs of this cluster.")
                    .hint("It goes on by itself: `towline status` shows when the cluster is Ready."));
            }
            progress.step(format!("waiting for cluster {name}: {what}"));
            sleep(POLL).await;
        }
    }
}

/// How far a cluster is that was joined.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting(String),
    Ready,
}

fn stage(cluster: &Cluster, before: &Before) -> Stage {
    let registration = cluster.annotations().get(REGISTRATION_ID);
    if registration.is_none() || registration == before.registration.as_ref() {
        return Stage::Waiting("no agent has registered for it yet".to_owned());
    }
    // The registration is another one before a certificate is signed by it, and what the former agent said last
    // stands for as long as it could have renewed its Lease.
    // Of an authority that ends soon all certificates end with it: then what the hub has signed decides.
    let end = reported_end(cluster);
    let noted = cluster.annotations().get(CERTIFICATE_END);
    let signed = noted.and_then(|it| it.parse::<DateTime<Utc>>().ok());
    let is_signed = signed.is_some() && signed == end.and_then(from_time);
    let is_same = before.certificate_end.is_some() && end == before.certificate_end.as_ref();
    if is_same && !is_signed {
        return Stage::Waiting("its new agent has not reported yet".to_owned());
    }
    match cluster.condition(READY) {
        Some(ready) if ready.status == "True" => Stage::Ready,
        Some(ready) => Stage::Waiting(format!(
            "its agent says Ready={}, {}: {}",
            ready.status, ready.reason, ready.message
        )),
        None => Stage::Waiting("its agent has not reported yet".to_owned()),
    }
}

/// The end of the certificate by which its agent reported last.
fn reported_end(cluster: &Cluster) -> Option<&Time> {
    let agent = cluster.status.as_ref()?.agent.as_ref()?;
    agent.certificate_expiration_time.as_ref()
}

/// Whether a member of this id can be joined under this name, by the Cluster there is.
fn judge(name: &str, id: &str, found: Option<&Cluster>) -> Result<(), CliError> {
    let Some(found) = found else {
        return Ok(());
    };
    let denied = |message: String| {
        let message = format!("{message}; nothing was changed");
        Err(CliError::message(Kind::Denied, message))
    };
    if found.metadata.deletion_timestamp.is_some() {
        return denied(format!("Cluster {name:?} is being deleted"));
    }
    if found.spec.sync_mode != SyncMode::Push {
        return denied(format!("Cluster {name:?} has an agent in the member"));
    }
    if found.spec.id.as_deref() != Some(id) {
        return denied(format!("Cluster {name:?} is another member"));
    }
    Ok(())
}

/// Where a Cluster lies is said when it is made; one that is there is not moved by a flag that nobody looks at.
pub(super) fn may_be_placed(
    name: &ClusterName,
    found: Option<&Cluster>,
    placement: &Placement,
) -> Result<(), CliError> {
    if found.is_none_or(|it| lies_there(it, placement)) {
        return Ok(());
    }
    let message = format!(
        "{name} is there, with another --provider, --region, --zones or --label; nothing was changed"
    );
    Err(CliError::message(Kind::Usage, message).hint(format!(
        "Leave them out, and change them there: kubectl edit cluster {name}"
    )))
}

/// Whether a Cluster says all that flags say, as after the same command before.
fn lies_there(cluster: &Cluster, placement: &Placement) -> bool {
    let spec = &cluster.spec;
    let same = |wanted: &Option<String>, has: &Option<String>| wanted.is_none() || wanted == has;
    let labelled = |(key, value): (&String, &String)| cluster.labels().get(key) == Some(value);
    same(&placement.provider, &spec.provider)
        && same(&placement.region, &spec.region)
        && (placement.zones.is_empty() || placement.zones == spec.zones)
        && placement.labels.iter().all(labelled)
}

/// A Cluster of mode Push.
fn made(name: &str, wanted: &Wanted) -> Cluster {
    let Wanted { id, way, placement } = wanted;
    let spec = ClusterSpec {
        id: Some(id.clone()),
        sync_mode: SyncMode::Push,
        api_endpoint: way.api_endpoint.clone(),
        proxy_url: way.proxy_url.clone(),
        secret_ref: Some(LocalSecretReference {
            namespace: CLUSTER_NAMESPACE.to_owned(),
            name: name.to_owned(),
        }),
        provider: placement.provider.clone(),
        region: placement.region.clone(),
        zones: placement.zones.clone(),
        ..ClusterSpec::default()
    };
    let mut cluster = Cluster::new(name, spec);
    let labels = &placement.labels;
    cluster.metadata.labels = (!labels.is_empty()).then(|| labels.clone());
    cluster
}

fn failed(verb: &str, kind: &str, name: &str) -> impl FnOnce(kube::Error) -> CliError {
    let attempt = format!("failed to {verb} {kind} {name:?} of the hub");
    move |error| CliError::api(attempt, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::cluster::ClusterStatus;

    fn cluster() -> Cluster {
        let wanted = Wanted {
            id: "id".into(),
            way: Way {
                api_endpoint: Some("https://m".into()),
                proxy_url: None,
            },
            placement: Placement::default(),
        };
        made("m1", &wanted)
    }

    #[test]
    fn a_name_that_is_another_members_is_refused() {
        assert!(judge("m1", "id", None).is_ok());
        assert!(judge("m1", "id", Some(&cluster())).is_ok(), "joined anew");
        let mut going = cluster();
        let at = DateTime::UNIX_EPOCH;
        going.metadata.deletion_timestamp = Some(common::time::to_time(at));
        let mut pull = cluster();
        pull.spec.sync_mode = SyncMode::Pull;
        let mut other = cluster();
        other.spec.id = Some("other".into());
        for (found, says) in [
            (going, "is being deleted"),
            (pull, "has an agent in the member"),
            (other, "is another member"),
        ] {
            let error = judge("m1", "id", Some(&found)).expect_err(says);
            assert_eq!(error.kind, Kind::Denied);
            assert!(error.source.to_string().contains(says), "{error:?}");
        }
    }

    #[test]
    fn a_cluster_that_is_there_is_placed_by_no_flag() {
        let name = ClusterName::parse("m1").expect("a name");
        let (nowhere, there) = (Placement::default(), cluster());
        let placed = Placement {
            region: Some("eu".to_owned()),
            ..Placement::default()
        };
        assert!(may_be_placed(&name, None, &placed).is_ok());
        assert!(may_be_placed(&name, Some(&there), &nowhere).is_ok());
        let mut same = cluster();
        same.spec.region = Some("eu".to_owned());
        assert!(
            may_be_placed(&name, Some(&same), &placed).is_ok(),
            "the same command again"
        );
        let refused = may_be_placed(&name, Some(&there), &placed).expect_err("refused");
        assert_eq!(refused.kind, Kind::Usage);
    }

    #[test]
    fn what_an_earlier_agent_said_does_not_count() {
        let mut one = cluster();
        let waits = |cluster: &Cluster, before: &Before| {
            matches!(stage(cluster, before), Stage::Waiting(_))
        };
        let nobody = Before::default();
        assert!(waits(&one, &nobody));
        let registered = |id: &str| {
            Some(BTreeMap::from([(
                REGISTRATION_ID.to_owned(),
                id.to_owned(),
            )]))
        };
        let reported = |end: &str| {
            let status = serde_json::from_value::<ClusterStatus>(json!({
                "conditions": [{
                    "type": READY, "status": "True", "reason": "ClusterReady", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "agent": {"certificateExpirationTime": end},
            }));
            Some(status.expect("a status"))
        };
        one.metadata.annotations = registered("a");
        assert!(waits(&one, &nobody), "nothing reported");
        one.status = reported("2026-02-01T00:00:00Z");
        assert_eq!(stage(&one, &nobody), Stage::Ready);
        let before = Before::of(&one);
        assert!(waits(&one, &before));
        // Taken over, and its certificate not signed yet.
        one.metadata.annotations = registered("b");
        assert!(waits(&one, &before), "the former agent's word");
        // Signed, and both end with their authority.
        let mut signed = one.clone();
        let end = "2026-02-01T00:00:00Z".to_owned();
        signed
            .annotations_mut()
            .insert(CERTIFICATE_END.to_owned(), end);
        assert_eq!(stage(&signed, &before), Stage::Ready);
        one.status = reported("2026-03-01T00:00:00Z");
        assert_eq!(stage(&one, &before), Stage::Ready);
    }
}
