//! Which clusters a verb is about: those that it names, or all that the hub has.

use super::get::read::{Scope, metadata, one, pages};
use super::{CliError, Kind};
use common::api::cluster::{Cluster, SyncMode};
use common::names::ClusterName;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use std::collections::BTreeSet;

/// The clusters of these names, or all of the hub when there are none. There is at least one. Whoever may not list them
/// may perhaps read those that they name.
pub(super) async fn meant(
    client: &Client,
    named: &[ClusterName],
) -> Result<BTreeSet<String>, CliError> {
    // Dynamic: only their names matter.
    let kind = ApiResource::erase::<Cluster>(&());
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let there = match metadata(&clusters, &Scope::default()).await {
        Ok(found) => {
            let names = found.into_iter().filter_map(|it| it.metadata.name);
            names.collect()
        }
        Err(error) if is_forbidden(&error) && !named.is_empty() => {
            let mut there = BTreeSet::new();
            for name in named {
                let found = one(&clusters, name.as_str()).await;
                let found = found.map_err(|error| unread(name, error))?;
                there.extend(found.and_then(|it| it.metadata.name));
            }
            there
        }
        Err(error) => {
            return Err(CliError::api(
                "failed to list the clusters of the hub",
                error,
            ));
        }
    };
    let there: BTreeSet<String> = there;
    if named.is_empty() && there.is_empty() {
        return Err(CliError::message(Kind::NotFound, "the hub has no cluster")
            .hint("Register one: `towline token create --print-register-command`."));
    }
    if let Some(missing) = named.iter().find(|it| !there.contains(it.as_str())) {
        let there: Vec<&str> = there.iter().map(String::as_str).collect();
        let there = match there.as_slice() {
            [] => "none".to_owned(),
            some => some.join(", "),
        };
        let missing = missing.as_str();
        let message = format!("the hub has no cluster {missing:?}; it has {there}");
        return Err(CliError::message(Kind::NotFound, message));
    }
    match named {
        [] => Ok(there),
        some => Ok(some.iter().map(ClusterName::to_string).collect()),
    }
}

/// That the hub has the clusters by which something is chosen. Whoever may see none of them is believed.
pub(super) async fn known(client: &Client, named: &[ClusterName]) -> Result<(), CliError> {
    if named.is_empty() {
        return Ok(());
    }
    match meant(client, named).await {
        Err(error) if error.kind == Kind::Denied => Ok(()),
        found => found.map(drop),
    }
}

/// Those that were joined: the hub reaches them itself. Whoever may not see which is told of none.
pub(super) async fn joined(client: &Client) -> BTreeSet<String> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let found = pages(&clusters, &Scope::default()).await;
    let found = found.into_iter().flatten();
    let joined = found.filter(|it| it.spec.sync_mode == SyncMode::Push);
    joined.filter_map(|it| it.metadata.name).collect()
}

/// Whether somebody lacks a right.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// That a cluster cannot be read.
pub(super) fn unread(name: &ClusterName, error: kube::Error) -> CliError {
    CliError::api(format!("failed to get cluster {name} of the hub"), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing::at_once;
    use serde_json::json;

    #[tokio::test]
    async fn a_name_that_the_hub_has_not_is_no_choice() {
        let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
            "items": [{"metadata": {"name": "m1"}}]});
        let client = at_once(list.to_string());
        let name = |name: &str| ClusterName::parse(name).expect("a name");
        known(&client, &[]).await.expect("nothing is chosen");
        known(&client, &[name("m1")]).await.expect("it is there");
        let error = known(&client, &[name("m1"), name("nosuch")]).await;
        let error = error.expect_err("it is not there");
        assert_eq!(error.kind, Kind::NotFound);
        let text = error.to_string();
        assert!(text.contains(r#"no cluster "nosuch"; it has m1"#), "{text}");
    }
}
