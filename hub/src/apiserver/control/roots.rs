//! What every namespace has: its default ServiceAccount, and the CA of this server.

use super::follow::{News, follow};
use super::{CaBundle, Failed, body, context, update};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::store::{Event, Key, Kind, Scope};
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NAMESPACES: &str = "/namespaces";
const ACCOUNTS: &str = "/serviceaccounts";
const CONFIGMAPS: &str = "/configmaps";
const DEFAULT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const MANAGER: &str = "kube-controller-manager";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIBED: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
/// The CA is looked at so often, and when something changes.
const EVERY: Duration = Duration::from_secs(60);

/// Gives namespaces what each of them has; its keys are their names.
pub(super) struct Roots {
    registry: Registry,
    ca: CaBundle,
}

pub(super) fn controller(registry: &Registry, ca: CaBundle) -> Controller<Roots> {
    let (made, lost, changed) = (registry.clone(), registry.clone(), registry.clone());
    let every = registry.clone();
    let registry = registry.clone();
    Controller::new(Roots { registry, ca })
        .source(move |queue| {
            // A Namespace that changes still has what it had.
            let concerned = |event: &Event| event.kind == Kind::Added;
            source(made.clone(), NAMESPACES, queue, concerned)
        })
        .source(move |queue| {
            let is_default = |event: &Event| event.object.name() == DEFAULT;
            source(lost.clone(), ACCOUNTS, queue, move |event| {
                event.kind == Kind::Deleted && is_default(event)
            })
        })
        .source(move |queue| {
            let is_ours = |event: &Event| event.object.name() == ROOT_CA;
            source(changed.clone(), CONFIGMAPS, queue, move |event| {
                event.kind != Kind::Added && is_ours(event)
            })
        })
        .source(move |queue| all(every.clone(), queue))
}

/// Adds the namespace of each event that concerns this controller.
async fn source(
    registry: Registry,
    kind: &'static str,
    queue: Queue<Arc<str>>,
    concerned: impl Fn(&Event) -> bool,
) {
    follow(&registry, kind, Scope::All, |news| match news {
        // They are all looked at anyway.
        News::Anything(_) => {}
        News::One(event) if concerned(&event) => {
            let object = &event.object;
            let of = if kind == NAMESPACES {
                object.name()
            } else {
                object.namespace()
            };
            queue.add(of.into());
        }
        News::One(_) => {}
    })
    .await;
}

/// Adds every namespace, now and then.
async fn all(registry: Registry, queue: Queue<Arc<str>>) {
    loop {
        let snapshot = registry.store().snapshot(NAMESPACES);
        let names = snapshot.table.iter().map(|stored| stored.name().into());
        names.for_each(|name| queue.add(name));
        drop(snapshot);
        tokio::time::sleep(EVERY).await;
    }
}

impl Reconcile for Roots {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    type Key = Arc<str>;
    type Error = Failed;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Failed> {
        let there = self.registry.store().get(NAMESPACES, &Key::cluster(name));
        if there.is_none_or(|namespace| namespace.deleting()) {
            return Ok(Requeue::Never);
        }
        let account = json!({"metadata": {"name": DEFAULT}});
        let map = json!({
            "metadata": {"name": ROOT_CA, "annotations": {DESCRIPTION: DESCRIBED}},
            "data": {"ca.crt": (self.ca)()},
        });
        let account = ensure(&self.registry, "serviceaccounts", name, &account, None).await;
        let map = ensure(&self.registry, "configmaps", name, &map, Some("data")).await;
        let ensured = account.and(map);
        ensured.map_err(Failed::to("make what every namespace has"))?;
        Ok(Requeue::Never)
    }
}

async fn ensure(
    registry: &Registry,
    plural: &str,
    namespace: &str,
    wanted: &Value,
    field: Option<&str>,
) -> Result<(), ApiError> {
    let Some(resource) = registry.scheme().resource("", "v1", plural) else {
        return Ok(());
    };
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let key = Key::new(namespace, name);
    let written = match registry.store().get(&resource.storage_key, &key) {
        None => {
            let context = context(resource, namespace, "", MANAGER);
            registry.create(&context, body(wanted)).await
        }
        Some(stored) => {
            let Some(field) = field else {
                return Ok(());
            };
            let mut object = stored.value();
            if object[field] == wanted[field] {
                return Ok(());
            }
            object[field] = wanted[field].clone();
            let context = context(resource, namespace, name, MANAGER);
            update(registry, &context, "", &object).await
        }
    };
    match written {
        // It ends just now.
        Err(error) if error.code == 403 => Ok(()),
        written => written.map(|_| ()),
    }
}
