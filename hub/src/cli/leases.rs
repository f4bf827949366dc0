//! When agents renewed their Leases. Agents write them, and what one of them wrote hides no other.

use super::get::read::{Scope, one, pages};
use chrono::{DateTime, Utc};
use common::names::CLUSTER_NAMESPACE;
use common::time::from_micro_time;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use serde::Deserialize as _;
use std::collections::BTreeMap;

/// When an agent renewed its Lease last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Renewed {
    /// This kubeconfig may not see.
    Unseen,
    /// At a time that cannot be read.
    Unreadable,
    #[default]
    Never,
    At(DateTime<Utc>),
}

/// When the agent of a cluster renewed its Lease.
pub(super) async fn of(client: &Client, cluster: &str) -> Result<Renewed, kube::Error> {
    let lease = one(&leases(client), cluster).await?;
    Ok(lease.map_or(Renewed::Never, |it| renewed(&it)))
}

/// The same of all clusters that have a Lease, by name.
pub(super) async fn all(client: &Client) -> Result<BTreeMap<String, Renewed>, kube::Error> {
    let found = pages(&leases(client), &Scope::default()).await?;
    let each = found.iter().map(|it| (it.name_any(), renewed(it)));
    Ok(each.collect())
}

// Dynamic: the API server takes times that kube's type cannot hold.
fn leases(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<Lease>(&());
    Api::namespaced_with(client.clone(), CLUSTER_NAMESPACE, &kind)
}

fn renewed(lease: &DynamicObject) -> Renewed {
    let told = &lease.data["spec"]["renewTime"];
    if told.is_null() {
        return Renewed::Never;
    }
    let at = MicroTime::deserialize(told).ok();
    let at = at.as_ref().and_then(from_micro_time);
    at.map_or(Renewed::Unreadable, Renewed::At)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::error::scripted;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_time_that_cannot_be_read_hides_no_other_lease() {
        let at = "2026-01-01T00:00:00.000000Z";
        let known = Renewed::At(at.parse().expect("a time"));
        let leases: Vec<(&str, Value, Renewed)> = vec![
            (
                "beyond",
                json!({"renewTime": "9999-12-31T23:59:59.000000Z"}),
                Renewed::Unreadable,
            ),
            ("known", json!({"renewTime": at}), known),
            ("never", json!({"renewTime": null}), Renewed::Never),
            ("new", json!({}), Renewed::Never),
            ("odd", json!({"renewTime": 7}), Renewed::Unreadable),
        ];
        let lease = |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
        let items: Vec<Value> = leases.iter().map(|it| lease(it.0, &it.1)).collect();
        let (client, _) = scripted::hub(move |ask| {
            let name = ask.path.rsplit('/').next()?;
            let found = items.iter().find(|it| it["metadata"]["name"] == name);
            match name {
                "leases" => Some((200, json!({"metadata": {}, "items": items}))),
                _ => found.map_or_else(
                    || scripted::refusal(404, "gone"),
                    |it| Some((200, it.clone())),
                ),
            }
        });
        let listed = all(&client).await.expect("they are read");
        assert_eq!(listed.len(), leases.len());
        for (name, spec, want) in leases {
            assert_eq!(listed.get(name), Some(&want), "{name}: {spec}");
            assert_eq!(of(&client, name).await.expect("read"), want, "{name}");
        }
        assert_eq!(of(&client, "none").await.expect("read"), Renewed::Never);
    }
}
