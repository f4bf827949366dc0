//! Agents whose certificate holds and whose registration this hub does not know: it was removed, or was made
//! after the backup that the hub was restored from. They are told so, and an operator reads their names.

use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::store::{Key, Store};
use common::denial::UNKNOWN_REGISTRATION;
use common::identity::{AGENT_USER_PREFIX, CLUSTER_GROUP_PREFIX};
use common::labels::REGISTRATION_ID;
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
        let metadata = found.map(|cluster| cluster.metadata());
        let in_force = metadata
            .as_ref()
            .and_then(|metadata| metadata["annotations"][REGISTRATION_ID].as_str());
        if in_force.is_some_and(|id| caller.is_in(&format!("{CLUSTER_GROUP_PREFIX}{cluster}:{id}")))
        {
            return error;
        }
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() < NAMED && named.insert(caller.user.clone()) {
            tracing::warn!(
                cluster,
                "an agent asks whose registration is not known here: removed, or newer than the backup of this hub"
            );
        }
        error.message.push_str(&format!(
            ": {UNKNOWN_REGISTRATION}; it was removed, or is newer than the backup that the hub was restored from: \
             register the cluster again with a token of `towline token create --cluster \
             {cluster} --replace`"
        ));
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
        let cluster = json!({"metadata": {"name": "m1", "annotations": {REGISTRATION_ID: "aa"}}});
        let write = Write {
            resource: CLUSTERS.into(),
            key: Key::cluster("m1"),
            expect: Expect::Absent,
            change: Change::Put(cluster),
            class: Class::Durable,
        };
        store.commit(write).await.expect("written");
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
        for (cluster, id) in [("m1", "bb"), ("m2", "aa")] {
            let message = said(cluster, id);
            assert!(
                message.contains("--replace") && message.starts_with("no: "),
                "{message}"
            );
        }
        store.close().await;
    }
}
