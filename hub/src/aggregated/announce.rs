//! Where members are reached: told to the API server by an APIService, whose Service names the address of one replica,
//! and to agents in cluster-info, which names all of them. The replica that leads tells it once its port serves, and
//! keeps it so. One that ends leaves it to those that stay, and the last one takes it back: an APIService that nobody
//! answers for keeps namespaces from being deleted.

use super::replicas::decide::told;
use super::replicas::{Peer, Replicas, Said};
use super::{GROUP, VERSION};
use crate::install::object::Desired;
use crate::install::plan;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::client::HostPort;
use common::discovery::{CLUSTER_INFO, PUBLIC_NAMESPACE};
use common::errors::chain;
use common::labels::{HUB_FIELD_MANAGER, MANAGED_BY};
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use common::tunnel::Place;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
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
struct Told {
    place: Place,
    /// The Service first: the APIService names it.
    objects: [Desired; 2],
}

/// Tells it, and knows whether this replica has while it leads.
pub(super) struct Announcement {
    client: Client,
    has_told: bool,
}

/// Why it cannot be told.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to register {APISERVICE} with the hub's API server")]
    Register(#[source] plan::Error),
    #[error("failed to tell agents in ConfigMap {PUBLIC_NAMESPACE}/{CLUSTER_INFO} where they dial")]
    Tell(#[source] Box<kube::Error>),
}

impl Told {
    fn of((service, place): (HostPort, Place)) -> Self {
        let objects = objects(&service, &place.ca_pem);
        Self { place, objects }
    }
}

impl Announcement {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            has_told: false,
        }
    }

    /// Tells where all replicas are and keeps it told, while this one leads, until `stop`.
    pub(super) async fn keep(
        &mut self,
        replicas: &Replicas,
        mut leading: signal::Receiver<bool>,
        stop: &CancellationToken,
    ) {
        let leads = async |leading: &mut signal::Receiver<bool>| {
            // Without an election there is nobody else, for ever.
            let _ = leading.wait_for(|leads| *leads).await;
        };
        let mut changed = replicas.changed();
        let mut complaint = None;
        loop {
            if !*leading.borrow() {
                self.has_told = false;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = leads(&mut leading) => {}
                () = self.stand_in(replicas) => {}
            }
            changed.borrow_and_update();
            let outcome = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                outcome = self.tell_of(replicas) => outcome,
            };
            let pause = match outcome {
                Ok(()) => {
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
                () = stop.cancelled() => return,
                Ok(()) = changed.changed() => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn tell_of(&mut self, replicas: &Replicas) -> Result<(), Error> {
        replicas.sweep().await;
        let others = replicas.living();
        let mut all: Vec<_> = others.iter().map(|peer| peer.said()).collect();
        all.push(replicas.own());
        self.tell(&Told::of(told(replicas.own(), &all))).await?;
        if !std::mem::replace(&mut self.has_told, true) {
            tracing::info!("{APISERVICE} is registered, and agents are told where they dial");
        }
        Ok(())
    }

    /// Where the API server is told to ask; none where it is told nothing of ours, or cannot be asked.
    pub(super) async fn told(&self) -> Option<HostPort> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), SYSTEM_NAMESPACE);
        let spec = services.get_opt(SERVICE).await.ok()??.spec?;
        let port = u16::try_from(spec.ports?.first()?.port).ok()?;
        Some(HostPort::new(&spec.external_name?, port))
    }

    /// Tells the API server to ask this replica, and agents of it and of the others that answer.
    pub(super) async fn tell_instead(
        &mut self,
        replicas: &Replicas,
        others: &[Arc<Peer>],
    ) -> Result<(), String> {
        let mut all: Vec<_> = others.iter().map(|peer| peer.said()).collect();
        all.push(replicas.own());
        let told = self.tell(&Told::of(told(replicas.own(), &all))).await;
        told.map_err(|error| chain(&error).to_string())?;
        self.has_told = true;
        Ok(())
    }

    /// Leaves it to the replicas that stay; where none does, takes back what still stands as it was told.
    pub(super) async fn leave(self, replicas: &Replicas) {
        let left = async {
            let handed = match replicas.staying_as_known().await {
                others if others.is_empty() => false,
                others if self.has_told => self.hand_over(&others).await,
                // It is for the one that leads to tell.
                _ => true,
            };
            // They may have gone meanwhile, each counting on the other.
            let stays = !replicas.staying_as_known().await.is_empty();
            if !handed || !stays {
                self.take_back(replicas.own()).await;
            }
        };
        if timeout(BACK_WITHIN, left).await.is_err() {
            tracing::warn!(
                "{APISERVICE} could not be taken back in time; `towline init` removes it"
            );
        }
    }

    /// Sends the API server to another replica, before one that leads begins to tell it; whether that was told.
    async fn hand_over(&self, others: &[Arc<Peer>]) -> bool {
        let all: Vec<_> = others.iter().map(|peer| peer.said()).collect();
        let Some(first) = all.first() else {
            return false;
        };
        let told = self.tell(&Told::of(told(first, &all))).await;
        let told = told.inspect_err(|error| {
            let error = chain(error).to_string();
            tracing::warn!(error, "failed to leave members to another replica");
        });
        told.is_ok()
    }

    async fn tell(&self, told: &Told) -> Result<(), Error> {
        for desired in &told.objects {
            let enforced = plan::enforce(&self.client, desired).await;
            enforced.map_err(Error::Register)?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), PUBLIC_NAMESPACE);
        let failed = |error| Error::Tell(Box::new(error));
        let map = maps.get(CLUSTER_INFO).await.map_err(failed)?;
        let said = map.data.as_ref().and_then(|data| data.get(Place::KEY));
        let wanted = told.place.written();
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

    /// Takes it all back, whichever replica told it: none is there.
    async fn take_back(&self, own: &Said) {
        let [service, apiservice] = objects(&own.service, &own.ca_pem);
        self.remove(&apiservice).await;
        self.remove(&service).await;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), PUBLIC_NAMESPACE);
        let Ok(map) = maps.get(CLUSTER_INFO).await else {
            return;
        };
        let said = map.data.as_ref().and_then(|data| data.get(Place::KEY));
        let Some(said) = said else { return };
        let path = format!("/data/{}", Place::KEY);
        let patch = json!([
            {"op": "test", "path": path, "value": said},
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

    /// Removes an object of ours, as it is seen now.
    async fn remove(&self, desired: &Desired) {
        let (api, name) = (desired.api(self.client.clone()), desired.key().name);
        let removed = async {
            match api.get_opt(&name).await?.filter(is_ours) {
                Some(live) => delete(&api, &live).await,
                None => kube::Result::Ok(()),
            }
        };
        if let Err(error) = removed.await {
            let error = chain(&error).to_string();
            tracing::warn!(error, object = %desired.key(), "failed to take back where members are reached");
        }
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

fn is_ours(live: &DynamicObject) -> bool {
    let by = live.labels().get(MANAGED_BY);
    by.is_some_and(|by| by == crate::install::object::MANAGED_BY_VALUE)
}

/// Whether it is ours and the API server says that it does not answer.
fn is_abandoned(live: &DynamicObject) -> bool {
    let conditions = live.data["status"]["conditions"].as_array();
    let unavailable = |it: &Value| it["type"] == "Available" && it["status"] == "False";
    is_ours(live) && conditions.into_iter().flatten().any(unavailable)
}

fn objects(at: &HostPort, ca_pem: &str) -> [Desired; 2] {
    let (host, port) = (at.host(), at.port());
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
