//! A hub with short grace periods, shared by these tests, and the part of an agent that a test plays.

use anyhow::{Context as _, Result};
use common::api::cluster::{Cluster, ClusterSpec, READY, SyncMode, Taint};
use common::conditions;
use common::names::CLUSTER_NAMESPACE;
use common::time::{Clock as _, SystemClock};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

use crate::env::{Fleet, Parts, Plane, PlaneOptions, Scratch, wait_for};

/// Grace of a cluster that reported.
pub(super) const GRACE: Duration = Duration::from_secs(6);
/// Grace of one that never did.
pub(super) const STARTUP: Duration = Duration::from_secs(9);
/// The hub's flags that say so.
pub(super) const FLAGS: [&str; 2] = [
    "--cluster-monitor-grace-period=6s",
    "--cluster-startup-grace-period=9s",
];
/// For what the hub does at once.
pub(super) const SOON: Duration = Duration::from_secs(150);

/// A control plane with a hub on it.
pub(super) struct Rig {
    pub(super) plane: Plane,
    pub(super) fleet: Fleet,
}

static RIG: OnceCell<Rig> = OnceCell::const_new();

/// The hub these tests share; each uses names of its own.
pub(super) async fn rig() -> Result<&'static Rig> {
    RIG.get_or_try_init(async || {
        let dir = Scratch::new("hub-rows")?.path().to_owned();
        start(&dir).await
    })
    .await
}

/// A control plane with a hub on it, in a folder.
pub(super) async fn start(dir: &std::path::Path) -> Result<Rig> {
    let parts = Parts::from_env()?;
    let options = PlaneOptions::hub().hub_flags(&FLAGS);
    let plane = Plane::start(&parts, &dir.join("hub"), options).await?;
    let fleet = Fleet::start(&dir.join("towline"), &plane).await?;
    Ok(Rig { plane, fleet })
}

impl Rig {
    /// A client of the calling test's own: connections end with the runtime that made them.
    pub(super) async fn client(&self) -> Result<Client> {
        self.fleet.client().await
    }
}

/// A Cluster whose agent the test plays.
#[derive(Clone)]
pub(super) struct Played {
    pub(super) name: String,
    pub(super) clusters: Api<Cluster>,
    leases: Api<Lease>,
    pub(super) client: Client,
}

static RENEWALS: AtomicU64 = AtomicU64::new(0);

impl Played {
    /// Makes a pull Cluster and its Lease, which nobody has renewed.
    pub(super) async fn create(client: &Client, name: &str) -> Result<Self> {
        let spec = ClusterSpec {
            sync_mode: SyncMode::Pull,
            ..ClusterSpec::default()
        };
        Self::create_with(client, name, spec).await
    }

    /// The same, with a spec.
    pub(super) async fn create_with(
        client: &Client,
        name: &str,
        spec: ClusterSpec,
    ) -> Result<Self> {
        let clusters: Api<Cluster> = Api::all(client.clone());
        clusters
            .create(&PostParams::default(), &Cluster::new(name, spec))
            .await?;
        let leases: Api<Lease> = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
        let lease = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
        }))?;
        leases.create(&PostParams::default(), &lease).await?;
        Ok(Self::known(client, name))
    }

    /// One that was made before, by another client.
    pub(super) fn known(client: &Client, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            clusters: Api::all(client.clone()),
            leases: Api::namespaced(client.clone(), CLUSTER_NAMESPACE),
            client: client.clone(),
        }
    }

    /// Renews the Lease, with a time that differs from every other.
    pub(super) async fn renew(&self) -> Result<()> {
        let count = RENEWALS.fetch_add(1, Ordering::Relaxed);
        let at = chrono::DateTime::from_timestamp(1_700_000_000, 0).context("in range")?
            + chrono::Duration::microseconds(i64::try_from(count)?);
        let renew = json!({"spec": {"renewTime": common::time::to_micro_time(at)}});
        self.leases
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(renew))
            .await?;
        Ok(())
    }

    /// Renews every second until dropped.
    pub(super) fn keep_renewing(&self) -> Renewing {
        let played = self.clone();
        Renewing(tokio::spawn(async move {
            let mut every = tokio::time::interval(Duration::from_secs(1));
            loop {
                every.tick().await;
                // A hub that is away for a while is what some tests are about.
                let _ = tokio::time::timeout(Duration::from_secs(2), played.renew()).await;
            }
        }))
    }

    /// Posts Ready.
    pub(super) async fn post(&self, ready: bool, message: &str) -> Result<()> {
        let now = SystemClock.now();
        let reason = if ready {
            "ClusterReady"
        } else {
            "ClusterNotReachable"
        };
        let condition = conditions::new(READY, ready, reason, message, now);
        let status = json!({"status": {"conditions": [condition]}});
        let params = PatchParams::default();
        self.clusters
            .patch_status(&self.name, &params, &Patch::Merge(status))
            .await?;
        Ok(())
    }

    /// The Cluster as it is.
    pub(super) async fn get(&self) -> Result<Cluster> {
        Ok(self.clusters.get(&self.name).await?)
    }

    /// Status and reason of Ready.
    pub(super) async fn ready(&self) -> Result<Option<(String, String)>> {
        let cluster = self.get().await?;
        Ok(cluster
            .condition(READY)
            .map(|c| (c.status.clone(), c.reason.clone())))
    }

    /// Waits until Ready has a status and a reason.
    pub(super) async fn wait_ready(&self, status: &str, reason: &str) -> Result<()> {
        let want = Some((status.to_owned(), reason.to_owned()));
        wait_for(&format!("{want:?} on {}", self.name), SOON, async || {
            let found = self.ready().await?;
            anyhow::ensure!(found == want, "it is {found:?}");
            Ok(true)
        })
        .await
    }

    /// Waits until the taints are these, as `key:effect`.
    pub(super) async fn wait_taints(&self, want: &[&str]) -> Result<()> {
        wait_for(
            &format!("taints {want:?} on {}", self.name),
            SOON,
            async || {
                let taints = self.get().await?.spec.taints;
                let shown = |taint: &Taint| format!("{}:{:?}", taint.key, taint.effect);
                let found: Vec<String> = taints.iter().map(shown).collect();
                anyhow::ensure!(found == want, "they are {found:?}");
                Ok(true)
            },
        )
        .await
    }

    /// Waits for an Event about the Cluster.
    pub(super) async fn wait_event(&self, reason: &str, note: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let about = ListParams::default().fields(&format!("regarding.name={}", self.name));
        wait_for(
            &format!("Event {reason} about {}", self.name),
            SOON,
            async || {
                let list = events.list(&about).await?;
                let found = list.items.iter().any(|event| {
                    event.reason.as_deref() == Some(reason) && event.note.as_deref() == Some(note)
                });
                anyhow::ensure!(
                    found,
                    "there are {:?}",
                    list.items.iter().map(|e| &e.note).collect::<Vec<_>>()
                );
                Ok(true)
            },
        )
        .await
    }
}

/// An agent's heartbeat.
pub(super) struct Renewing(tokio::task::JoinHandle<()>);

impl Drop for Renewing {
    fn drop(&mut self) {
        self.0.abort();
    }
}
