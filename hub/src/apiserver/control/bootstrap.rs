//! What is always there: namespaces of the system, the Service by which this server is found, and the
//! authority by which other servers know its clients.

use super::{CaBundle, Failed, body, context, update};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::store::Key;
use crate::apiserver::value::{at, put};
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::{Value, json};
use std::fmt;
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const MANAGER: &str = "kube-apiserver";
/// All of it is looked at so often; only what is not as it should be is written.
const EVERY: Duration = Duration::from_secs(10);

/// Where a kind is served.
type Kind = (&'static str, &'static str, &'static str);

const NAMESPACE: Kind = ("", "v1", "namespaces");
const CONFIGMAP: Kind = ("", "v1", "configmaps");
const SERVICE: Kind = ("", "v1", "services");
const ENDPOINTS: Kind = ("", "v1", "endpoints");
const SLICE: Kind = ("discovery.k8s.io", "v1", "endpointslices");

/// Makes the namespaces of the system, where they are not there.
pub async fn ensure_namespaces(registry: &Registry) -> Result<(), ApiError> {
    for name in NAMESPACES {
        let namespace = json!({"metadata": {"name": name}});
        match ensure(registry, NAMESPACE, "", &namespace, &[]).await {
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What is kept so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    Namespaces,
    Authority,
    Service,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces of the system",
            Self::Authority => "authority of clients",
            Self::Service => "address of this server",
        })
    }
}

/// Keeps all of it so.
pub(super) struct Bootstrap {
    registry: Registry,
    ca: CaBundle,
    /// `host:port` of this server as discovery says it.
    address: String,
}

pub(super) fn controller(
    registry: &Registry,
    ca: CaBundle,
    address: String,
) -> Controller<Bootstrap> {
    let registry = registry.clone();
    Controller::new(Bootstrap {
        registry,
        ca,
        address,
    })
    .source(|queue: Queue<Part>| async move {
        let all = [Part::Namespaces, Part::Authority, Part::Service];
        all.into_iter().for_each(|part| queue.add(part));
        pending::<()>().await;
    })
}

impl Reconcile for Bootstrap {
    const NAME: &'static str = "bootstrap-controller";
    type Key = Part;
    type Error = Failed;

    async fn reconcile(&self, part: &Part) -> Result<Requeue, Failed> {
        let (doing, done) = match part {
            Part::Namespaces => (
                "make the namespaces of the system",
                ensure_namespaces(&self.registry).await,
            ),
            Part::Authority => (
                "publish the authority of clients",
                ensure_authority(&self.registry, &(self.ca)()).await,
            ),
            Part::Service => (
                "publish where this server is",
                ensure_service(&self.registry, &self.address).await,
            ),
        };
        done.map_err(Failed::to(doing))?;
        Ok(Requeue::After(EVERY))
    }
}

/// By which servers behind this one would know who asks.
async fn ensure_authority(registry: &Registry, bundle: &str) -> Result<(), ApiError> {
    let map = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": bundle},
    });
    ensure(
        registry,
        CONFIGMAP,
        "kube-system",
        &map,
        &[&["data", "client-ca-file"]],
    )
    .await
}

async fn ensure_service(registry: &Registry, address: &str) -> Result<(), ApiError> {
    for (kind, wanted, fields) in published(address) {
        ensure(registry, kind, "default", &wanted, fields).await?;
    }
    Ok(())
}

type Wanted = (Kind, Value, &'static [&'static [&'static str]]);

/// The Service, and where it leads. Nothing here hands out addresses, so it has none of its own; an address
/// that only this machine reaches leads nowhere.
fn published(address: &str) -> Vec<Wanted> {
    let (host, port) = match address.parse::<SocketAddr>() {
        Ok(address) => (Ok(address.ip()), address.port()),
        Err(_) => {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            (Err(host), port.parse().unwrap_or(443))
        }
    };
    let (family, reached) = match host {
        Ok(ip) => {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            (family, is_reached(ip).then(|| ip.to_string()))
        }
        Err(name) => ("FQDN", (!name.is_empty()).then(|| name.to_owned())),
    };
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let service = json!({
        "metadata": {
            "name": "kubernetes",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    let mut endpoints = json!({"metadata": {
        "name": "kubernetes",
        "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
    }});
    if let Some(ip) = reached.as_ref().filter(|_| family != "FQDN") {
        endpoints["subsets"] = json!([{"addresses": [{"ip": ip}], "ports": ports}]);
    }
    let leads = reached.iter();
    let leads = leads.map(|to| json!({"addresses": [to], "conditions": {"ready": true}}));
    let slice = json!({
        "metadata": {
            "name": "kubernetes",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": family,
        "endpoints": leads.collect::<Vec<_>>(),
        "ports": ports,
    });
    vec![
        (SERVICE, service, &[&["spec", "ports"]]),
        (ENDPOINTS, endpoints, &[&["subsets"]]),
        (
            SLICE,
            slice,
            &[&["addressType"], &["endpoints"], &["ports"]],
        ),
    ]
}

fn is_reached(ip: IpAddr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified()
}

/// Makes an object, or puts back those of its `fields` that are not as they should be.
async fn ensure(
    registry: &Registry,
    (group, version, plural): Kind,
    namespace: &str,
    wanted: &Value,
    fields: &[&[&str]],
) -> Result<(), ApiError> {
    let Some(resource) = registry.scheme().resource(group, version, plural) else {
        return Ok(());
    };
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let make = context(resource.clone(), namespace, "", MANAGER);
    let Some(stored) = registry
        .store()
        .get(&resource.storage_key, &Key::new(namespace, name))
    else {
        return registry.create(&make, body(wanted)).await.map(|_| ());
    };
    let mut object = stored.value();
    // A list of nothing is stored as none.
    let is_said = |it: &&Value| !it.is_null() && **it != json!([]);
    let said = |of: &Value, field: &[&str]| at(of, field).filter(is_said).cloned();
    let off = |object: &Value, field: &[&str]| said(object, field) != said(wanted, field);
    if stored.deleting() || !fields.iter().any(|field| off(&object, field)) {
        return Ok(());
    }
    let context = context(resource, namespace, name, MANAGER);
    // What kind of addresses a slice has is said once.
    if off(&object, &["addressType"]) {
        registry.delete(&context, DeleteOptions::default()).await?;
        return registry.create(&make, body(wanted)).await.map(|_| ());
    }
    for field in fields {
        put(&mut object, field, at(wanted, field).cloned());
    }
    update(registry, &context, "", &object).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::testing::Rig;

    fn leads(address: &str) -> (Value, Value, Value) {
        let all = published(address);
        let at = |index: usize, path: &str| all[index].1.pointer(path).cloned();
        (
            at(0, "/spec/ports/0/targetPort").unwrap_or_default(),
            at(1, "/subsets/0/addresses/0/ip").unwrap_or_default(),
            json!([all[2].1["addressType"], at(2, "/endpoints/0/addresses/0")]),
        )
    }

    #[test]
    fn a_service_leads_to_where_others_reach_the_server() {
        for (address, want) in [
            (
                "192.0.2.7:6443",
                (
                    json!(6443),
                    json!("192.0.2.7"),
                    json!(["IPv4", "192.0.2.7"]),
                ),
            ),
            (
                "[2001:db8::1]:443",
                (
                    json!(443),
                    json!("2001:db8::1"),
                    json!(["IPv6", "2001:db8::1"]),
                ),
            ),
            (
                "hub.example:443",
                (json!(443), Value::Null, json!(["FQDN", "hub.example"])),
            ),
            (
                "127.0.0.1:7000",
                (json!(7000), Value::Null, json!(["IPv4", null])),
            ),
        ] {
            assert_eq!(leads(address), want, "{address}");
        }
    }

    #[tokio::test]
    async fn what_is_published_is_made_kept_and_follows() {
        let rig = Rig::new().await;
        let maps = "v1/kube-system:configmaps/extension-apiserver-authentication";
        ensure_namespaces(&rig.registry).await.expect("made");
        for (bundle, address) in [("one", "192.0.2.7:6443"), ("two", "hub.example:443")] {
            for _ in 0..2 {
                ensure_authority(&rig.registry, bundle).await.expect("made");
                ensure_service(&rig.registry, address).await.expect("made");
            }
            let map = rig.get(maps).await.expect("there");
            assert_eq!(map["data"], json!({"client-ca-file": bundle}));
        }
        let service = rig
            .get("v1/default:services/kubernetes")
            .await
            .expect("there");
        assert_eq!(service["spec"]["clusterIP"], "None");
        assert_eq!(service["spec"]["ports"][0]["targetPort"], 443);
        for address in ["hub.example:443", "127.0.0.1:7000"] {
            ensure_service(&rig.registry, address).await.expect("made");
            let revision = || rig.registry.store().snapshot("/services").revision;
            let before = revision();
            ensure_service(&rig.registry, address)
                .await
                .expect("as it is");
            ensure_authority(&rig.registry, "two")
                .await
                .expect("as it is");
            assert_eq!(before, revision(), "at rest nothing is written: {address}");
        }
    }
}
