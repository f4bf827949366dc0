//! What the controllers look at: each collection of the hub watched once, and kept as what decisions need of it.
//!
//! A [`View`] is one collection. It holds a narrow [`Record`] for each object, tells every change as (old, new),
//! also what went while nobody watched, keeps [`Index`]es, and can be asked whether it has caught up with a
//! write. A term of leadership begins with an empty world and drops it at its end.

mod binding;
mod cluster;
mod held;
mod index;
mod interpreter;
mod kept;
mod metrics;
mod placements;
mod progress;
mod propagation;
mod records;
mod template;
mod templates;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;
mod whole;
pub mod writers;

pub use binding::Binding;
pub use cluster::Cluster;
pub use held::{Change, Object, ObjectName, Told};
pub use index::Index;
pub use interpreter::{Customization, Kinds, interpreter_of};
pub use metrics::Sizes;
pub use placements::Shared as SharedPlacement;
pub use propagation::{Override, Policy, Propagation, Rebalancer};
pub use records::{
    Condition, Event, Lease, Marker, Owned, Space, Status, WORK_ANNOTATIONS, WORK_LABELS, Work,
    digest,
};
pub use template::Template;
pub use templates::{TemplateName, Templates};
pub use view::{Record, View};
pub use whole::Whole;

use common::chance::Chance;
use common::controller::{Metrics, keep_up};
use common::identity::SIGNER;
use common::interpreter::custom::Customizations;
use common::labels::{HUB_FIELD_MANAGER, MANAGED_BY, MANAGED_VALUE, SYSTEM};
use common::names::CLUSTER_NAMESPACE;
use common::watch::{Collection, WatchConfig};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease as CoreLease;
use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{Client, Resource};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Objects of the first page of a list.
const PAGE: u32 = 200;
/// About so many bytes the others have: some hundreds of Works.
const PAGE_BYTES: u32 = 2 * 1024 * 1024;

/// How long a list waits at most for those that are needed sooner.
const LATER_WITHIN: Duration = Duration::from_secs(30);
/// How long that of Works waits at most for those of templates.
const TEMPLATES_WITHIN: Duration = Duration::from_secs(10);

/// Every collection that controllers look at; clones share it.
#[derive(Clone)]
pub struct World {
    /// Clusters.
    pub clusters: View<Cluster>,
    /// Clusters by `spec.id`.
    pub clusters_of: Index<Box<str>>,
    /// The Leases of agents.
    pub leases: View<Lease>,
    /// Works.
    pub works: View<Work>,
    /// Works by the binding that they name.
    pub works_of: Index<ObjectName>,
    /// Events in execution namespaces.
    pub events: View<Event>,
    /// Execution namespaces.
    pub namespaces: View<Space>,
    /// Certificate requests for our signer.
    pub requests: View<Marker>,
    /// What carries the rights of agents, by kind.
    pub rights: [View<Owned>; 4],
    /// What says where templates go, and where they went.
    pub propagation: Propagation,
}

impl World {
    /// A world in which nothing was seen yet, and what is known of kinds anyway. Listeners are added before
    /// [`World::run`].
    pub fn new(client: &Client, chance: &Chance, shipped: Arc<Customizations>) -> Self {
        let pages = || pages(chance);
        let requests = WatchConfig {
            field_selector: Some(format!("spec.signerName={SIGNER}")),
            metadata_only: true,
            ..pages()
        };
        let namespaces = WatchConfig {
            label_selector: Some(format!("{SYSTEM}={MANAGED_VALUE}")),
            metadata_only: true,
            ..pages()
        };
        let leases = Collection::of::<CoreLease>(Some(CLUSTER_NAMESPACE));
        let clusters: View<Cluster> =
            all::<common::api::cluster::Cluster, _>(client, "clusters", pages());
        let works: View<Work> = all::<common::api::work::Work, _>(client, "works", pages());
        Self {
            clusters_of: clusters.index(|_, cluster| cluster.id.iter().cloned().collect()),
            clusters,
            leases: View::new(client.clone(), "leases", leases, pages()),
            works_of: works.index(|_, work| work.binding.iter().cloned().collect()),
            works,
            events: all::<CoreEvent, _>(client, "events", pages()),
            namespaces: all::<Namespace, _>(client, "namespaces", namespaces),
            requests: all::<CertificateSigningRequest, _>(
                client,
                "certificatesigningrequests",
                requests,
            ),
            rights: [
                owned::<ClusterRole>(client, "clusterroles", pages()),
                owned::<ClusterRoleBinding>(client, "clusterrolebindings", pages()),
                owned::<Role>(client, "roles", pages()),
                owned::<RoleBinding>(client, "rolebindings", pages()),
            ],
            propagation: Propagation::new(client, chance, &pages(), shipped),
        }
    }

    /// Waits until all was listed once, but the templates, by which these get their bindings and bindings their
    /// clusters. Who decides that waits for all of it: what one finds at a start would only keep the lists waiting that
    /// the others need.
    pub async fn placing_synced(&self) {
        self.propagation.synced().await;
        self.clusters.synced().await;
    }

    /// The same of all by which Works are written, and told of.
    pub async fn synced(&self) {
        self.placing_synced().await;
        self.works.synced().await;
    }

    /// Watches everything, for ever.
    pub async fn run(self, metrics: Metrics, chance: Chance) {
        let (placing, all) = (self.clone(), self.clone());
        // Works are most of what there is: where templates go is decided again before they are known.
        let works = watched(&self.works, &metrics, &chance);
        let before_works = async move {
            placing.placing_synced().await;
            let templates = placing.propagation.templates.synced();
            // Works of other kinds do not wait for one that cannot be listed.
            let _ = tokio::time::timeout(TEMPLATES_WITHIN, templates).await;
        };
        let works = later(before_works, works);
        let events = watched(&self.events, &metrics, &chance);
        let events = later(async move { all.synced().await }, events);
        let mut watches = vec![
            watched(&self.clusters, &metrics, &chance),
            watched(&self.leases, &metrics, &chance),
            works,
            events,
            watched(&self.namespaces, &metrics, &chance),
            watched(&self.requests, &metrics, &chance),
        ];
        let rights = self.rights.iter();
        watches.extend(rights.map(|rights| watched(rights, &metrics, &chance)));
        watches.extend(self.propagation.watches(&metrics, &chance));
        // A task each: what one decodes keeps no other waiting.
        let watches: JoinSet<()> = watches.into_iter().collect();
        watches.join_all().await;
    }
}

/// A watch that begins when others were listed, or that takes long.
fn later(
    others: impl Future<Output = ()> + Send + 'static,
    watch: BoxFuture<'static, ()>,
) -> BoxFuture<'static, ()> {
    async move {
        let _ = tokio::time::timeout(LATER_WITHIN, others).await;
        watch.await;
    }
    .boxed()
}

/// Watches one collection, for ever.
pub fn watched<R: Record>(
    view: &View<R>,
    metrics: &Metrics,
    chance: &Chance,
) -> BoxFuture<'static, ()> {
    let (name, view) = (view.name(), view.clone());
    let again = move || {
        let view = view.clone();
        async move {
            view.run().await;
            ControlFlow::Continue(())
        }
    };
    keep_up(name, metrics.clone(), chance.stream(name), again).boxed()
}

/// Everything of a collection, at little cost to the API server.
fn pages(chance: &Chance) -> WatchConfig {
    WatchConfig {
        streams: true,
        page_size: PAGE,
        page_bytes: Some(PAGE_BYTES),
        ..WatchConfig::new(chance)
    }
}

/// All objects of a kind.
fn all<K, R>(client: &Client, name: &'static str, config: WatchConfig) -> View<R>
where
    K: Resource<DynamicType = ()>,
    R: Record,
{
    View::new(client.clone(), name, Collection::of::<K>(None), config)
}

/// The metadata of those objects of a kind that carry rights of agents.
fn owned<K: Resource<DynamicType = ()>>(
    client: &Client,
    name: &'static str,
    config: WatchConfig,
) -> View<Owned> {
    let config = WatchConfig {
        label_selector: Some(format!("{MANAGED_BY}={HUB_FIELD_MANAGER}")),
        metadata_only: true,
        ..config
    };
    all::<K, Owned>(client, name, config)
}
