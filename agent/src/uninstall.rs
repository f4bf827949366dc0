//! Takes the agent out of its member after `towline unregister`: by name, its own objects and no others.
//!
//! The roles that let it do so go last and by the garbage collector: they are handed to the namespace,
//! whose deletion needs nobody's rights any more once it has begun.

use crate::credentials::{self, Store};
use crate::execution::stored::place::Place;
use common::errors::chain;
use common::names;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

/// A failure to remove something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of the member.
    #[error("failed to {verb} {kind} {name:?}")]
    Object {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: String,
        /// On which object.
        name: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// The stored credentials.
    #[error("failed to remove the stored registration")]
    Credentials(#[source] credentials::Error),
}

/// Removes the files of a state directory; the member holds nothing of such an agent.
pub async fn remove_state(store: &Store, works: &Place) -> Result<(), Error> {
    clear(works).await;
    store.remove().await.map_err(Error::Credentials)
}

/// Removes everything of the agent in `namespace` and the cluster-wide objects it has.
///
/// What is missing is skipped, and so is what we may not touch: a hand-made installation may have
/// given less, and its remains are named in the log.
pub async fn remove_from_member(
    member: &kube::Client,
    store: &Store,
    works: &Place,
    namespace: &str,
) -> Result<(), Error> {
    let space = Space { member, namespace };
    // Rights over workloads first: if this stops half-way, what is left can do the least.
    space
        .delete_cluster_wide::<ClusterRoleBinding>(names::AGENT_WORKLOADS)
        .await?;
    space
        .delete_cluster_wide::<ClusterRole>(names::AGENT_WORKLOADS)
        .await?;
    space
        .delete_cluster_wide::<ClusterRoleBinding>(names::PROXY_NAME)
        .await?;
    space
        .delete_cluster_wide::<ClusterRole>(names::PROXY_NAME)
        .await?;
    space
        .delete_cluster_wide::<Namespace>(names::USERS_NAMESPACE)
        .await?;
    // What limits those rights goes after them.
    space
        .delete_cluster_wide::<ValidatingAdmissionPolicyBinding>(names::AGENT_NAME)
        .await?;
    space
        .delete_cluster_wide::<ValidatingAdmissionPolicy>(names::AGENT_NAME)
        .await?;
    clear(works).await;
    space.delete::<Secret>(names::BOOTSTRAP_SECRET).await?;
    space.delete::<Lease>(names::AGENT_NAME).await?;
    space.delete::<ConfigMap>(names::STATUS_CONFIG_MAP).await?;
    if let Some(uid) = space.namespace_uid().await? {
        space.hand_over::<ClusterRoleBinding>(&uid).await?;
        space.hand_over::<ClusterRole>(&uid).await?;
    }
    space.delete::<Deployment>(names::AGENT_NAME).await?;
    // That the hub has told it to leave is stored with the registration, which therefore goes last: whoever is started
    // before that goes on where this one ended. A namespace that is ours by its name takes it along; one that somebody
    // chose may hold other things.
    let goes_along = namespace == names::AGENT_NAMESPACE
        && space.delete_cluster_wide::<Namespace>(namespace).await?;
    if !goes_along {
        store.remove().await.map_err(Error::Credentials)?;
    }
    Ok(())
}

/// Removes the stored Works; without them being read they do no harm.
async fn clear(works: &Place) {
    if let Err(error) = works.clear().await {
        tracing::warn!(error = %chain(&error), "stored Works are left behind");
    }
}

struct Space<'a> {
    member: &'a kube::Client,
    namespace: &'a str,
}

impl Space<'_> {
    async fn delete<K>(&self, name: &str) -> Result<bool, Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        delete(
            Api::<K>::namespaced(self.member.clone(), self.namespace),
            name,
        )
        .await
    }

    async fn delete_cluster_wide<K>(&self, name: &str) -> Result<bool, Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        delete(Api::<K>::all(self.member.clone()), name).await
    }

    async fn namespace_uid(&self) -> Result<Option<String>, Error> {
        let api: Api<Namespace> = Api::all(self.member.clone());
        match api.get_opt(self.namespace).await {
            Ok(found) => Ok(found.and_then(|namespace| namespace.metadata.uid)),
            Err(e) => tolerate::<Namespace>("get", self.namespace, e).map(|_| None),
        }
    }

    /// Makes the namespace the owner of the agent's own role or binding.
    async fn hand_over<K>(&self, namespace_uid: &str) -> Result<bool, Error>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let owner = json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1",
            "kind": "Namespace",
            "name": self.namespace,
            "uid": namespace_uid,
        }]}});
        let api: Api<K> = Api::all(self.member.clone());
        let params = PatchParams::default();
        match api
            .patch(names::AGENT_NAME, &params, &Patch::Merge(&owner))
            .await
        {
            Ok(_) => Ok(true),
            Err(e) => tolerate::<K>("hand over", names::AGENT_NAME, e),
        }
    }
}

async fn delete<K>(api: Api<K>, name: &str) -> Result<bool, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => Ok(true),
        Err(e) => tolerate::<K>("delete", name, e),
    }
}

/// Whether it is done: nothing of that name is there. What we may not touch is left behind.
fn tolerate<K: kube::Resource<DynamicType = ()>>(
    verb: &'static str,
    name: &str,
    error: kube::Error,
) -> Result<bool, Error> {
    let kind = K::kind(&()).into_owned();
    match &error {
        kube::Error::Api(status) if status.code == 404 => Ok(true),
        kube::Error::Api(status) if status.code == 403 => {
            let error = chain(&error);
            tracing::warn!(verb, kind, name, %error, "left behind: remove it by hand");
            Ok(false)
        }
        _ => Err(Error::Object {
            verb,
            kind,
            name: name.to_owned(),
            source: Box::new(error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json as answer, service};
    use std::sync::{Arc, Mutex};

    const CREDENTIALS: &str =
        "DELETE /api/v1/namespaces/towline-system/secrets/towline-agent-credentials";

    /// What is asked of a member that lets the agent delete its namespace, or does not.
    async fn asked(namespace: &str, may: bool) -> Vec<String> {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = log.clone();
        let member = service(move |request| {
            let line = format!("{} {}", request.method(), request.uri().path());
            let refused = line.starts_with("DELETE /api/v1/namespaces/")
                && line.matches('/').count() == 4
                && !may;
            noted.lock().expect("nobody panics here").push(line);
            async move {
                let status = |code: u16, reason: &str| {
                    json!({"kind": "Status", "apiVersion": "v1",
                        "status": "Failure", "code": code, "reason": reason, "message": reason})
                };
                match (request.method().as_str(), refused) {
                    (_, true) => answer(403, &status(403, "Forbidden")),
                    ("DELETE", _) => answer(200, &json!({"kind": "Status", "status": "Success"})),
                    _ => answer(404, &status(404, "NotFound")),
                }
            }
        });
        let store = Store::in_member(member.clone(), namespace);
        let works = Place::new(member.clone(), namespace, None);
        let removed = remove_from_member(&member, &store, &works, namespace).await;
        removed.expect("removed");
        let log = log.lock().expect("nobody panics here");
        log.clone()
    }

    /// A process that is killed in the middle finds what it was told when it is started again.
    #[tokio::test]
    async fn that_it_was_told_to_leave_is_forgotten_last() {
        let asked_of = asked(names::AGENT_NAMESPACE, true).await;
        assert_eq!(
            asked_of.last().map(String::as_str),
            Some("DELETE /api/v1/namespaces/towline-system")
        );
        assert!(!asked_of.iter().any(|line| line == CREDENTIALS));
        let users = "DELETE /api/v1/namespaces/towline-users";
        assert!(asked_of.iter().any(|line| line == users));
        // What takes nothing along is followed by it.
        let asked_of = asked(names::AGENT_NAMESPACE, false).await;
        assert_eq!(asked_of.last().map(String::as_str), Some(CREDENTIALS));
        let elsewhere = asked("elsewhere", true).await;
        let credentials = CREDENTIALS.replace("towline-system", "elsewhere");
        assert_eq!(elsewhere.last(), Some(&credentials));
    }
}
