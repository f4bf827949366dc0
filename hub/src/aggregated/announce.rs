//! Where the port is: told to the API server by an APIService, whose Service names the address, and to agents in
//! cluster-info. Told once the port serves, kept so, and taken back before it ends: an APIService that nobody answers
//! for keeps namespaces from being deleted.

use super::{GROUP, VERSION};
use crate::config::Access;
use crate::install::object::Desired;
use crate::install::plan;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE};
use common::errors::chain;
use common::labels::{HUB_FIELD_MANAGER, MANAGED_BY};
use common::names::SYSTEM_NAMESPACE;
use common::tunnel::Place;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The name of the APIService.
pub const APISERVICE: &str = "v1alpha1.proxy.towline.dev";
/// The Service that it names.
const SERVICE: &str = "towline-hub";
/// The name by which the API server asks for the certificate of that Service.
pub(super) const SERVICE_HOST: &str = "towline-hub.karmada-system.svc";
/// How often what was told is compared with what stands.
const EVERY: Duration = Duration::from_secs(30);
/// How soon after a failure.
const AGAIN: Duration = Duration::from_secs(3);
/// How long taking it back may take.
const BACK_WITHIN: Duration = Duration::from_secs(4);

/// What is told.
pub(super) struct Announcement {
    client: Client,
    place: Place,
    /// The Service first: the APIService names it.
    objects: [Desired; 2],
}

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to register {APISERVICE} with the hub's API server")]
    Register(#[source] plan::Error),
    #[error("failed to tell agents in ConfigMap {PUBLIC_NAMESPACE}/{CLUSTER_INFO} where they dial")]
    Tell(#[source] Box<kube::Error>),
}

impl Announcement {
    pub(super) fn new(client: Client, access: &Access, ca_pem: &str) -> Self {
        Self {
            client,
            place: Place {
                servers: access.advertise.clone(),
                ca_pem: ca_pem.to_owned(),
            },
            objects: objects(access, ca_pem),
        }
    }

    /// Tells it and keeps it told until `stop`, then takes it back.
    pub(super) async fn keep(self, stop: &CancellationToken) {
        let mut complaint = None;
        let mut told = false;
        loop {
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                outcome = self.tell() => outcome,
            };
            let pause = match outcome {
                Ok(()) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::info!(
                            "{APISERVICE} is registered, and agents are told where they dial"
                        );
                    }
                    complaint = None;
                    EVERY
                }
                Err(error) => {
                    let text = chain(&error).to_string();
                    if complaint.as_ref() != Some(&text) {
                        tracing::error!(error = text, "users of this hub cannot reach members");
                        complaint = Some(text);
                    }
                    AGAIN
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        if timeout(BACK_WITHIN, self.take_back()).await.is_err() {
            tracing::warn!(
                "{APISERVICE} could not be taken back in time; `towline init` removes it"
            );
        }
    }

    async fn tell(&self) -> Result<(), Error> {
        for desired in &self.objects {
            let enforced = plan::enforce(&self.client, desired).await;
            enforced.map_err(Error::Register)?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), PUBLIC_NAMESPACE);
        let failed = |error| Error::Tell(Box::new(error));
        let map = maps.get(CLUSTER_INFO).await.map_err(failed)?;
        let said = map.data.as_ref().and_then(|data| data.get(Place::KEY));
        let wanted = self.place.written();
        if said != Some(&wanted) {
            let patch = json!({"data": {Place::KEY: wanted}});
            let params = PatchParams {
                field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patched = maps
                .patch(CLUSTER_INFO, &params, &Patch::Merge(&patch))
                .await;
            patched.map_err(failed)?;
        }
        Ok(())
    }

    /// Takes back what still is as this process said it: a successor's stays.
    async fn take_back(&self) {
        let told = [self.objects[1].clone(), self.objects[0].clone()];
        for desired in told {
            if let Err(error) = self.remove(&desired).await {
                let error = chain(&error).to_string();
                tracing::warn!(error, object = %desired.key(), "failed to take back where members are reached");
            }
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), PUBLIC_NAMESPACE);
        let path = format!("/data/{}", Place::KEY);
        let patch = json!([
            {"op": "test", "path": path, "value": self.place.written()},
            {"op": "remove", "path": path},
        ]);
        let patch = serde_json::from_value(patch).map(Patch::<()>::Json);
        if let Ok(patch) = patch
            && let Err(error) = maps
                .patch(CLUSTER_INFO, &PatchParams::default(), &patch)
                .await
        {
            tracing::debug!(%error, "agents are told another place already");
        }
    }

    async fn remove(&self, desired: &Desired) -> kube::Result<()> {
        let (api, name) = (desired.api(self.client.clone()), desired.key().name);
        let Some(live) = api.get_opt(&name).await? else {
            return Ok(());
        };
        if live.data["spec"]["caBundle"] != desired.value()["spec"]["caBundle"]
            || live.data["spec"]["externalName"] != desired.value()["spec"]["externalName"]
        {
            return Ok(());
        }
        delete(&api, &live).await
    }
}

/// Deletes an object as it was seen.
async fn delete(api: &Api<DynamicObject>, seen: &DynamicObject) -> kube::Result<()> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: seen.uid(),
            resource_version: seen.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match api.delete(&seen.name_any(), &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Removes an APIService of ours for which nobody answers: left behind by a hub that was cut off, it keeps namespaces
/// from being deleted. A hub that comes back registers it again. Whether there was one; nothing is removed in a dry run.
pub async fn withdraw_unavailable(client: &Client, dry_run: bool) -> kube::Result<bool> {
    let api = apiservice(json!({}), json!({})).api(client.clone());
    let live = match api.get_opt(APISERVICE).await {
        // An API server that aggregates nothing has none.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        found => found?,
    };
    let Some(live) = live.filter(is_abandoned) else {
        return Ok(false);
    };
    if !dry_run {
        delete(&api, &live).await?;
    }
    Ok(true)
}

/// Whether it is ours and the API server says that it does not answer.
fn is_abandoned(live: &DynamicObject) -> bool {
    let ours = live.labels().get(MANAGED_BY);
    let ours = ours.is_some_and(|by| by == crate::install::object::MANAGED_BY_VALUE);
    let conditions = live.data["status"]["conditions"].as_array();
    let unavailable = |it: &Value| it["type"] == "Available" && it["status"] == "False";
    ours && conditions.into_iter().flatten().any(unavailable)
}

fn objects(access: &Access, ca_pem: &str) -> [Desired; 2] {
    let (host, port) = (access.service.host(), access.service.port());
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "type": "ExternalName",
            "externalName": host,
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
    });
    let named = json!({"name": SERVICE, "namespace": SYSTEM_NAMESPACE, "port": port});
    let ca = json!(STANDARD.encode(ca_pem));
    [Desired::new(service), apiservice(named, ca)]
}

fn apiservice(service: Value, ca: Value) -> Desired {
    Desired::new(json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": APISERVICE},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": service,
            "caBundle": ca,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_group() {
        assert_eq!(APISERVICE, format!("{VERSION}.{GROUP}"));
        assert_eq!(SERVICE_HOST, format!("{SERVICE}.{SYSTEM_NAMESPACE}.svc"));
    }

    #[test]
    fn only_what_is_ours_and_does_not_answer_is_abandoned() {
        let object = |by: &str, status: &str| -> DynamicObject {
            let mut object = apiservice(json!({}), json!("")).value();
            object["metadata"]["labels"][MANAGED_BY] = json!(by);
            object["status"] = json!({"conditions": [{"type": "Available", "status": status}]});
            serde_json::from_value(object).expect("an object")
        };
        assert!(is_abandoned(&object("towline-init", "False")));
        assert!(!is_abandoned(&object("towline-init", "True")));
        assert!(!is_abandoned(&object("towline-init", "Unknown")));
        assert!(!is_abandoned(&object("somebody", "False")));
    }
}
