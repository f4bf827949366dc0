//! Agents whose certificate holds and whose registration this hub does not know: it was removed, or
//! replaced, or was made after the backup that the hub was restored from. They are told so, and an operator reads their names.

use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::store::{Key, Store};
use crate::commands;
use common::api::cluster::SyncMode;
use common::denial::UNKNOWN_REGISTRATION;
use common::identity::{AGENT_USER_PREFIX, CLUSTER_GROUP_PREFIX};
use common::labels::{JOINED, REGISTRATION_ID};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

const CLUSTERS: &str = "cluster.karmada.io/clusters";
/// How many are named in the log; there are no more of ours, and strangers have no certificate.
const NAMED: usize = 10_000;

/// Those that were named already.
#[derive(Debug, Default)]
pub struct Unknown(Mutex<BTreeSet<String>>);

impl Unknown {
    /// Says in a refusal that the registration is the reason, if it is.
    pub fn explain(&self, store: &Store, caller: &Caller, mut error: ApiError) -> ApiError {
        let Some(cluster) = caller.user.strip_prefix(AGENT_USER_PREFIX) else {
            return error;
        };
        let found = store.get(CLUSTERS, &Key::cluster(cluster));
        let metadata = found.map(|cluster| cluster.metadata()).unwrap_or_default();
        let annotations = &metadata["annotations"];
        let in_force = annotations[REGISTRATION_ID].as_str();
        if in_force.is_some_and(|id| caller.is_in(&format!("{CLUSTER_GROUP_PREFIX}{cluster}:{id}")))
        {
            return error;
        }
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() < NAMED && named.insert(caller.user.clone()) {
            tracing::warn!(
                cluster,
                "an agent asks whose registration is not known here: removed, replaced, or newer than the backup of this hub"
            );
        }
        let of = match annotations[JOINED].is_string() {
            true => SyncMode::Push,
            false => SyncMode::Pull,
        };
        let again = commands::register_again(cluster, of);
        let why = match in_force {
            None => format!(
                "it was removed, or is newer than the backup that the hub was restored from: register the cluster again \
                 by `{again}`"
            ),
            // Also where a backup has brought back an earlier registration of the same agent.
            Some(_) => format!(
                "another registration of the cluster is in force: another agent was registered in place of this one, \
                 or this one is newer than the backup that the hub was restored from. Stop this agent if the other one \
                 is meant; only if this one is meant, register it again by `{again}`"
            ),
        };
        let said = format!(": {UNKNOWN_REGISTRATION}; {why}");
        error.message.push_str(&said);
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::store::{Change, Class, Expect, Options, Write};
    use serde_json::json;

    #[tokio::test]
    async fn who_is_not_known_is_told_and_who_lacks_a_right_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(dir.path(), Options::default()).expect("opens");
        for (name, annotations) in [
            ("m1", json!({REGISTRATION_ID: "aa"})),
            ("m3", json!({REGISTRATION_ID: "aa", JOINED: "s/1"})),
            ("m4", json!({JOINED: "s/1"})),
        ] {
            let cluster = json!({"metadata": {"name": name, "annotations": annotations}});
            let write = Write {
                resource: CLUSTERS.into(),
                key: Key::cluster(name),
                expect: Expect::Absent,
                change: Change::Put(cluster),
                class: Class::Durable,
            };
            store.commit(write).await.expect("written");
        }
        let unknown = Unknown::default();
        let said = |cluster: &str, id: &str| {
            let caller = Caller {
                user: format!("{AGENT_USER_PREFIX}{cluster}"),
                groups: vec![format!("{CLUSTER_GROUP_PREFIX}{cluster}:{id}")],
                ..Caller::default()
            };
            let error = ApiError::plain(403, "Forbidden", "no");
            unknown.explain(&store, &caller, error).message
        };
        assert_eq!(said("m1", "aa"), "no");
        for (cluster, id, is_replaced, again) in [
            (
                "m1",
                "bb",
                true,
                "towline token create --cluster m1 --replace",
            ),
            (
                "m2",
                "aa",
                false,
                "towline token create --cluster m2 --replace",
            ),
            (
                "m3",
                "bb",
                true,
                "towline join m3 --cluster-kubeconfig FILE",
            ),
            (
                "m4",
                "aa",
                false,
                "towline join m4 --cluster-kubeconfig FILE",
            ),
        ] {
            let message = said(cluster, id);
            let start = format!("no: {UNKNOWN_REGISTRATION}; ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.ends_with(&format!("by `{again}`")), "{message}");
            assert_eq!(
                message.contains("another agent was registered in place of this one")
                    && message.contains("Stop this agent"),
                is_replaced,
                "{message}"
            );
            assert_eq!(message.contains("was removed"), !is_replaced, "{message}");
        }
        store.close().await;
    }
}
