//! The replicas of this hub that take tunnels: what each says of itself in a Lease of its own, who of them is there, and
//! who was heard to have the tunnel of a cluster.
//!
//! Which tunnels a replica has is written nowhere: it is asked.

pub(super) mod decide;
mod said;

pub(super) use said::Said;

use super::certificate::Made;
use super::trust;
use crate::config::Access;
use crate::world::{Change, ObjectName, View};
use chrono::{DateTime, Utc};
use common::client::Relay;
use common::env::Env;
use common::errors::chain;
use common::labels::{HUB_FIELD_MANAGER, MANAGED_VALUE, REPLICA, REPLICA_ACCESS};
use common::lock::lock;
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use common::time::to_micro_time;
use common::tls::{self, CertificateSwap};
use common::watch::{Collection, WatchConfig};
use decide::{LIVES, RENEWED_EVERY, Way, is_living, way};
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use said::Replica;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How soon after a failure the Lease is renewed again.
const AGAIN: Duration = Duration::from_secs(3);
/// How long it may take to take it back.
const BACK_WITHIN: Duration = Duration::from_secs(1);
/// Replicas beyond this many, by name, are nobody.
const REPLICAS_MAX: usize = 16;
/// Clusters of whom it is remembered who has their tunnel; with more, all is asked for anew.
const REMEMBERED_MAX: usize = 20_000;

/// Another replica.
pub(super) struct Peer {
    pub(super) id: String,
    said: Said,
    authority: Arc<dyn ClientCertVerifier>,
    /// The way there.
    pub(super) relay: Relay,
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Replicas {
    own: Arc<Own>,
    leases: View<Replica>,
    known: Arc<Mutex<Known>>,
    changed: signal::Sender<u64>,
}

/// This replica.
struct Own {
    id: String,
    /// The process, as the election calls it.
    holder: String,
    said: Said,
    client: Client,
    env: Env,
}

#[derive(Default)]
struct Known {
    /// By name, with when each was seen renewing.
    peers: BTreeMap<String, (Arc<Peer>, Instant)>,
    /// By cluster: who had its tunnel.
    remembered: BTreeMap<String, String>,
}

impl Replicas {
    /// Those of a hub whose Leases are not watched yet.
    pub(super) fn new(
        client: Client,
        env: &Env,
        access: &Access,
        made: &Made,
        holder: &str,
    ) -> Self {
        let config = WatchConfig {
            label_selector: Some(format!("{REPLICA}={MANAGED_VALUE}")),
            metadata_only: true,
            ..WatchConfig::new(&env.chance)
        };
        let leases = Collection::of::<Lease>(Some(SYSTEM_NAMESPACE));
        let leases = View::new(client.clone(), "replicas", leases, config);
        let replicas = Self {
            own: Arc::new(Own {
                id: made.id.clone(),
                holder: holder.to_owned(),
                said: Said {
                    peer: access.peer.clone(),
                    service: access.service.clone(),
                    advertise: access.advertise.clone(),
                    ca_pem: made.ca_pem.clone(),
                },
                client,
                env: env.clone(),
            }),
            leases,
            known: Arc::default(),
            changed: signal::Sender::new(0),
        };
        let (told, identity) = (replicas.clone(), made.identity.clone());
        replicas
            .leases
            .on_change(move |change| told.note(change, &identity));
        replicas
    }

    /// Their Leases, to be watched.
    pub(super) fn leases(&self) -> &View<Replica> {
        &self.leases
    }

    fn note(&self, change: &Change<Replica>, identity: &CertificateSwap) {
        let id = &*change.name.name;
        if id == self.own.id {
            return;
        }
        let said = change.after().map(|replica| replica.said.as_ref());
        let peer = match said {
            None => None,
            Some(Ok(said)) => {
                let mut known = lock(&self.known);
                if let Some((peer, seen)) = known.peers.get_mut(id)
                    && peer.said == *said
                {
                    if change.is_written() {
                        *seen = Instant::now();
                    }
                    return;
                }
                drop(known);
                Peer::new(id, said, identity, &self.own.env)
                    .inspect_err(|why| {
                        tracing::warn!(replica = id, why, "a replica cannot be asked");
                    })
                    .ok()
            }
            Some(Err(why)) => {
                tracing::warn!(replica = id, why, "the Lease of a replica cannot be used");
                None
            }
        };
        {
            let mut known = lock(&self.known);
            match peer {
                Some(peer) => {
                    tracing::info!(replica = id, "another replica takes tunnels");
                    let peer = (Arc::new(peer), Instant::now());
                    known.peers.insert(id.to_owned(), peer);
                }
                None => {
                    if known.peers.remove(id).is_some() {
                        tracing::info!(replica = id, "a replica takes tunnels no more");
                    }
                }
            }
        }
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Tells when another one comes or goes.
    pub(super) fn changed(&self) -> signal::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The name of this one.
    pub(super) fn id(&self) -> &str {
        &self.own.id
    }

    /// What this one says.
    pub(super) fn own(&self) -> &Said {
        &self.own.said
    }

    /// The others that are there, in the order of their names.
    pub(super) fn living(&self) -> Vec<Arc<Peer>> {
        let known = lock(&self.known);
        let living = known
            .peers
            .values()
            .filter(|(_, seen)| is_living(seen.elapsed()));
        living
            .take(REPLICAS_MAX)
            .map(|(peer, _)| peer.clone())
            .collect()
    }

    /// Which other one shows this certificate.
    pub(super) fn who(
        &self,
        chain: &[CertificateDer<'_>],
        now: DateTime<Utc>,
    ) -> Option<Arc<Peer>> {
        let mut living = self.living().into_iter();
        living.find(|peer| trust::is_named(&peer.id, &*peer.authority, chain, now))
    }

    /// Who answers for a cluster, whose tunnel may be here, and which another replica may have passed on.
    pub(super) fn way(&self, cluster: &str, here: bool, passed_on: bool) -> Way {
        let living: Vec<String> = self.living().iter().map(|peer| peer.id.clone()).collect();
        let remembered = lock(&self.known).remembered.get(cluster).cloned();
        way(here, passed_on, remembered.as_deref(), &living)
    }

    /// Remembers who has it, or that nobody is known to.
    pub(super) fn remember(&self, cluster: &str, id: Option<&str>) {
        let remembered = &mut lock(&self.known).remembered;
        match id {
            Some(id) => {
                if remembered.len() >= REMEMBERED_MAX {
                    remembered.clear();
                }
                remembered.insert(cluster.to_owned(), id.to_owned());
            }
            None => drop(remembered.remove(cluster)),
        }
    }

    /// Renews the Lease of this one until `stop`, then takes it back.
    pub(super) async fn keep(&self, stop: &CancellationToken) {
        let mut is_failing = false;
        loop {
            let renewed = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                renewed = self.renew() => renewed,
            };
            let pause = match renewed {
                Ok(()) => {
                    is_failing = false;
                    RENEWED_EVERY
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        let (error, lease) = (chain(&error).to_string(), self.id());
                        tracing::error!(
                            error,
                            lease,
                            "failed to tell other replicas where this one is"
                        );
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
        let api = self.api();
        let params = DeleteParams::default();
        let back = timeout(BACK_WITHIN, api.delete(self.id(), &params)).await;
        if !matches!(back, Ok(Ok(_))) {
            tracing::warn!(
                lease = self.id(),
                "the Lease of this replica stays until it has run out"
            );
        }
    }

    async fn renew(&self) -> kube::Result<()> {
        let seconds = LIVES.as_secs();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": self.own.id, "namespace": SYSTEM_NAMESPACE,
                "labels": {REPLICA: MANAGED_VALUE},
                "annotations": {REPLICA_ACCESS: self.own.said.written()},
            },
            "spec": {
                "holderIdentity": self.own.holder,
                "leaseDurationSeconds": seconds,
                "renewTime": to_micro_time(self.own.env.clock.now()),
            },
        });
        let params = PatchParams::apply(HUB_FIELD_MANAGER).force();
        let (api, lease) = (self.api(), Patch::Apply(&lease));
        api.patch(self.id(), &params, &lease).await.map(drop)
    }

    /// Deletes the Leases of those who are not there, as they were seen.
    pub(super) async fn sweep(&self) {
        let living: BTreeSet<String> = self.living().into_iter().map(|it| it.id.clone()).collect();
        let dead = {
            let known = lock(&self.known);
            let mut ids = known.peers.keys().cloned().collect::<Vec<_>>();
            ids.retain(|id| !living.contains(id));
            ids
        };
        for id in dead {
            let seen = self
                .leases
                .get(&ObjectName::new(Some(SYSTEM_NAMESPACE), &id));
            let Some(seen) = seen else { continue };
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: None,
                    resource_version: Some(seen.version.into()),
                }),
                ..DeleteParams::default()
            };
            match self.api().delete(&id, &params).await {
                Ok(_) => tracing::info!(
                    replica = id,
                    "the Lease of a replica that is gone is deleted"
                ),
                // Gone, or renewed meanwhile.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    let error = chain(&error).to_string();
                    tracing::warn!(
                        error,
                        replica = id,
                        "failed to delete the Lease of a replica"
                    );
                }
            }
        }
    }

    /// The others that have not taken their Leases back, as the API server says now, and that answer.
    pub(super) async fn staying(&self) -> kube::Result<Vec<Arc<Peer>>> {
        let listed = self.listed().await?;
        Ok(self.answering(self.with_leases(Some(&listed))).await)
    }

    /// The same, where the API server does not say by who renewed lately.
    pub(super) async fn staying_as_known(&self) -> Vec<Arc<Peer>> {
        let listed = self.listed().await.inspect_err(|error| {
            let error = chain(error).to_string();
            tracing::warn!(error, "failed to list the Leases of other replicas");
        });
        let living = self.with_leases(listed.ok().as_deref());
        self.answering(living).await
    }

    async fn listed(&self) -> kube::Result<Vec<PartialObjectMeta<Lease>>> {
        let params = ListParams::default().labels(&format!("{REPLICA}={MANAGED_VALUE}"));
        Ok(self.api().list_metadata(&params).await?.items)
    }

    async fn answering(&self, living: Vec<Arc<Peer>>) -> Vec<Arc<Peer>> {
        let answers = living.iter().map(|peer| self.is_there(peer));
        let answers = join_all(answers).await;
        let living = living.into_iter().zip(answers);
        living
            .filter_map(|(peer, there)| there.then_some(peer))
            .collect()
    }

    /// Those of whom a renewal was seen lately and whose Lease is listed; all, where the list is not known.
    fn with_leases(&self, listed: Option<&[PartialObjectMeta<Lease>]>) -> Vec<Arc<Peer>> {
        let mut living = self.living();
        if let Some(listed) = listed {
            let names: BTreeSet<String> = listed.iter().map(ResourceExt::name_any).collect();
            living.retain(|peer| names.contains(&peer.id));
        }
        living
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.own.client.clone(), SYSTEM_NAMESPACE)
    }
}

impl Peer {
    fn new(id: &str, said: &Said, identity: &CertificateSwap, env: &Env) -> Result<Self, String> {
        let authorities = tls::certificates(said.ca_pem.as_bytes());
        let authorities = authorities.map_err(|error| chain(&error).to_string())?;
        let relay = Relay::between(&said.peer, &said.ca_pem, identity.clone(), env);
        Ok(Self {
            id: id.to_owned(),
            said: said.clone(),
            authority: trust::verifier("certificateAuthority", &authorities)?,
            relay: relay.map_err(|error| chain(&error).to_string())?,
        })
    }

    /// What it says.
    pub(super) fn said(&self) -> &Said {
        &self.said
    }
}

#[cfg(test)]
mod tests;
