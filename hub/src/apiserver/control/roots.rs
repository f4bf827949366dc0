//! What every namespace has: its default ServiceAccount, and the CA of this server.

use super::follow::{Follow, News};
use super::{CaBundle, body, context, update, warn};
use crate::apiserver::registry::Registry;
use crate::apiserver::store::{Kind, Stored};
use serde_json::{Value, json};
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

pub(super) async fn run(registry: Registry, ca: CaBundle) {
    let mut namespaces = Follow::new(&registry, NAMESPACES);
    let mut accounts = Follow::new(&registry, ACCOUNTS);
    let mut maps = Follow::new(&registry, CONFIGMAPS);
    loop {
        let concerned: Option<String> = tokio::select! {
            biased;
            // Seldom any of ours, and passed over at once; Namespaces take time.
            news = maps.next() => match news {
                None => return,
                Some(News::One(event)) if event.kind != Kind::Added && event.object.name() == ROOT_CA => {
                    Some(event.object.namespace().to_owned())
                }
                Some(_) => continue,
            },
            news = accounts.next() => match news {
                None => return,
                Some(News::One(event)) if event.kind == Kind::Deleted && event.object.name() == DEFAULT => {
                    Some(event.object.namespace().to_owned())
                }
                Some(_) => continue,
            },
            news = namespaces.next() => match news {
                None => return,
                Some(News::One(event)) if event.kind == Kind::Added => {
                    Some(event.object.name().to_owned())
                }
                Some(News::One(_)) => continue,
                Some(News::Anything(_)) => None,
            },
            () = tokio::time::sleep(EVERY) => None,
        };
        let bundle = ca();
        let snapshot = registry.store().snapshot(NAMESPACES);
        let all = snapshot.table.iter().filter(|stored| !stored.deleting());
        let concerned = all.filter(|stored| match &concerned {
            Some(name) => stored.name() == name,
            None => true,
        });
        for namespace in concerned {
            ensure(&registry, namespace, &bundle).await;
        }
    }
}

async fn ensure(registry: &Registry, namespace: &Stored, bundle: &str) {
    let name = namespace.name();
    let account = json!({"metadata": {"name": DEFAULT}});
    ensure_one(registry, "serviceaccounts", name, &account, None).await;
    let map = json!({
        "metadata": {"name": ROOT_CA, "annotations": {DESCRIPTION: DESCRIBED}},
        "data": {"ca.crt": bundle},
    });
    ensure_one(registry, "configmaps", name, &map, Some("data")).await;
}

async fn ensure_one(
    registry: &Registry,
    plural: &str,
    namespace: &str,
    wanted: &Value,
    field: Option<&str>,
) {
    let Some(resource) = registry.scheme().resource("", "v1", plural) else {
        return;
    };
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let key = crate::apiserver::store::Key::new(namespace, name);
    let written = match registry.store().get(&resource.storage_key, &key) {
        None => {
            let context = context(resource, namespace, "", MANAGER);
            registry.create(&context, body(wanted)).await
        }
        Some(stored) => {
            let Some(field) = field else {
                return;
            };
            let mut object = stored.value();
            if object[field] == wanted[field] {
                return;
            }
            object[field] = wanted[field].clone();
            let context = context(resource, namespace, name, MANAGER);
            update(registry, &context, "", &object).await
        }
    };
    if let Err(error) = written
        && error.code != 403
    {
        warn("what every namespace has", &error);
    }
}
