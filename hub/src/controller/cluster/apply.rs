//! Carries a decision out, effect by effect, and says in Events what a user should know.

use super::Error;
use super::decide::{ClusterChange, Effect};
use super::observe::Observed;
use crate::controller::events::Events;
use crate::controller::registration::condition;
use crate::epoch::{self, Rounds};
use crate::permissions;
use chrono::{DateTime, Utc};
use common::api::cluster::{Cluster, EXECUTION_SPACE_TERMINATING, Taint};
use common::api::work::Work;
use common::errors::chain;
use common::identity::{AgentSubject, RegistrationId};
use common::labels::{CLOSING_WATCHES, FAILOVER_TAINT, HUB_FIELD_MANAGER, UNREGISTER};
use common::unregister::Mode;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, Request};
use kube::{Client, Resource as _};
use serde_json::{Map, Value, json};

/// Where the effects of a decision are carried out.
pub(super) struct Target<'a> {
    pub(super) client: &'a Client,
    pub(super) now: DateTime<Utc>,
    pub(super) events: &'a Events,
    pub(super) watches: &'a Rounds,
    pub(super) observed: &'a Observed,
}

impl Target<'_> {
    /// Carries out the effects in order; the first failure ends it.
    pub(super) async fn apply_all(&self, effects: &[Effect]) -> Result<(), Error> {
        for effect in effects {
            tracing::debug!(cluster = %self.observed.name, ?effect, "applying");
            self.apply(effect).await?;
        }
        Ok(())
    }

    async fn apply(&self, effect: &Effect) -> Result<(), Error> {
        let name = &self.observed.name;
        match effect {
            Effect::EnsureNamespace => self.ensure_namespace().await,
            Effect::UpdateCluster(change) => self.update(change).await,
            Effect::DeleteWorks => {
                let namespace = name.execution_namespace();
                let deleted = delete_all(&self.works()).await;
                deleted.map_err(|e| Error::write("delete", "Works", &namespace, e))
            }
            Effect::ReleaseWork {
                name,
                resource_version,
                finalizers,
            } => {
                self.release(&self.works(), "Work", name, resource_version, finalizers)
                    .await
            }
            Effect::NoteWatches { registration } => self.note_watches(Some(registration)).await,
            Effect::RemoveRights => Ok(permissions::remove(self.client, name).await?),
            Effect::CloseWatches { registrations } => self.close_watches(registrations).await,
            Effect::DeleteNamespace => self.delete_namespace().await,
            Effect::ReleaseBinding => {
                Ok(permissions::release_works_binding(self.client, name).await?)
            }
            Effect::ShowNamespace { terminating } => self.show_namespace(*terminating).await,
            Effect::DeleteLease => Ok(permissions::remove_lease(self.client, name).await?),
            Effect::ReleaseCluster {
                resource_version,
                finalizers,
            } => {
                let clusters = self.clusters();
                let name = name.as_str();
                self.release(&clusters, "Cluster", name, resource_version, finalizers)
                    .await
            }
        }
    }

    async fn ensure_namespace(&self) -> Result<(), Error> {
        let name = &self.observed.name;
        let (namespace, about) = (name.execution_namespace(), self.about());
        let result = self.own_namespace(&namespace).await;
        match &result {
            Ok(true) => {
                let note = format!("Created execution space({namespace}) for cluster({name}).");
                self.events
                    .normal(&about, "CreateExecutionSpaceSucceed", note)
                    .await;
            }
            Ok(false) => {}
            Err(error) => {
                let note = chain(error).to_string();
                self.events
                    .warning(&about, "CreateExecutionSpaceFailed", note)
                    .await;
            }
        }
        result.map(|_| ())
    }

    async fn show_namespace(&self, terminating: bool) -> Result<(), Error> {
        let name = &self.observed.name;
        let message = format!(
            "Namespace {} is being deleted, and the Works in it with all they made in the member; no \
             Work can be written until it is gone and made anew",
            name.execution_namespace()
        );
        let (reason, message) = if terminating {
            ("NamespaceTerminating", message.as_str())
        } else {
            ("NamespaceReady", "the execution namespace takes Works")
        };
        let shown = condition::Shown {
            type_: EXECUTION_SPACE_TERMINATING,
            status: terminating,
            reason,
            message,
        };
        let shown = condition::show(self.client, self.now, name, shown).await;
        shown.map_err(|error| Error::Condition(Box::new(error)))
    }

    async fn own_namespace(&self, namespace: &str) -> Result<bool, Error> {
        let name = &self.observed.name;
        // Whoever has rights in a namespace would read the Works that are written to it.
        let foreign = permissions::foreign_bindings(self.client, name).await?;
        if let Some(bindings) = foreign.filter(|bindings| !bindings.is_empty()) {
            let (namespace, bindings) = (namespace.to_owned(), bindings.join(", "));
            return Err(Error::Foreign {
                namespace,
                bindings,
            });
        }
        let uid = &self.observed.cluster.uid;
        Ok(permissions::ensure_namespace(self.client, name, uid).await?)
    }

    async fn update(&self, change: &ClusterChange) -> Result<(), Error> {
        let name = self.observed.name.as_str();
        let result = patch(&self.clusters(), name, &patch_of(change)).await;
        let result = result.map_err(|source| Error::write("update", "Cluster", name, source));
        let Some(taints) = &change.taints else {
            return result;
        };
        match result {
            Ok(()) => {
                let note = taint_note(taints);
                self.events
                    .normal(&self.about(), "TaintClusterSucceed", note)
                    .await;
                Ok(())
            }
            Err(error) => {
                // A lost race is tried again at once and worth no Event.
                if !common::controller::Failure::is_conflict(&error) {
                    let note = chain(&error).to_string();
                    self.events
                        .warning(&self.about(), "TaintClusterFailed", note)
                        .await;
                }
                Err(error)
            }
        }
    }

    async fn close_watches(&self, registrations: &[RegistrationId]) -> Result<(), Error> {
        for registration in registrations {
            let subject = AgentSubject {
                cluster: self.observed.name.clone(),
                registration: registration.clone(),
            };
            match epoch::await_denied(self.client, &subject).await {
                // By a binding that is not the hub's: it would keep the Cluster from going for as long as it is there.
                Err(error @ epoch::Error::StillAllowed(_)) => tracing::warn!(
                    cluster = %self.observed.name,
                    error = %chain(&error),
                    "the agent of a Cluster that goes may still open watches"
                ),
                other => other?,
            }
        }
        self.watches.close(self.client).await?;
        self.note_watches(None).await
    }

    /// Notes whose watches are to be closed, or that they are.
    async fn note_watches(&self, registration: Option<&str>) -> Result<(), Error> {
        let name = self.observed.name.as_str();
        // Whatever its version: nobody is given rights under a Cluster that is being deleted.
        let noted = json!({"metadata": {
            "uid": self.observed.cluster.uid,
            "annotations": {CLOSING_WATCHES: registration},
        }});
        let patched = patch(&self.clusters(), name, &noted).await;
        patched.map_err(|source| Error::write("update", "Cluster", name, source))
    }

    async fn delete_namespace(&self) -> Result<(), Error> {
        let name = &self.observed.name;
        let namespace = name.execution_namespace();
        let api: Api<Namespace> = Api::all(self.client.clone());
        // Nobody deletes it without having said so on it, the hub neither.
        let said = json!({"metadata": {"annotations": {UNREGISTER: Mode::Force.as_str()}}});
        let deleted = async {
            api.patch_metadata(&namespace, &params(), &Patch::Merge(said))
                .await?;
            api.delete(&namespace, &DeleteParams::default()).await
        };
        match deleted.await {
            Ok(_) => {
                let note = format!("Removed execution space for cluster({name}).");
                self.events
                    .normal(&self.about(), "RemoveExecutionSpaceSucceed", note)
                    .await;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(source) => {
                let error = Error::write("delete", "Namespace", &namespace, source);
                let note = chain(&error).to_string();
                self.events
                    .warning(&self.about(), "RemoveExecutionSpaceFailed", note)
                    .await;
                Err(error)
            }
        }
    }

    async fn release(
        &self,
        api: &Api<DynamicObject>,
        kind: &'static str,
        name: &str,
        resource_version: &str,
        finalizers: &[String],
    ) -> Result<(), Error> {
        let released = json!({
            "metadata": {"resourceVersion": resource_version, "finalizers": finalizers},
        });
        match patch(api, name, &released).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(source) => Err(Error::write("release", kind, name, source)),
        }
    }

    fn clusters(&self) -> Api<DynamicObject> {
        Api::all_with(
            self.client.clone(),
            &kube::core::ApiResource::erase::<Cluster>(&()),
        )
    }

    fn works(&self) -> Api<DynamicObject> {
        let namespace = self.observed.name.execution_namespace();
        let kind = kube::core::ApiResource::erase::<Work>(&());
        Api::namespaced_with(self.client.clone(), &namespace, &kind)
    }

    fn about(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(Cluster::api_version(&()).into_owned()),
            kind: Some(Cluster::kind(&()).into_owned()),
            name: Some(self.observed.name.to_string()),
            uid: Some(self.observed.cluster.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Changes an object. The answer is not decoded: an agent may have written what cannot be, and the change is made.
pub(super) async fn patch(
    api: &Api<DynamicObject>,
    name: &str,
    patch: &Value,
) -> Result<(), kube::Error> {
    let request = Request::new(api.resource_url());
    let request = request.patch_metadata(name, &params(), &Patch::Merge(patch));
    let request = request.map_err(kube::Error::BuildRequest)?;
    let answer = api.clone().into_client().request_text(request).await;
    answer.map(drop)
}

/// Deletes all objects there are. The answer, which may hold them, is not decoded either.
pub(super) async fn delete_all(api: &Api<DynamicObject>) -> Result<(), kube::Error> {
    let (delete, all) = (DeleteParams::default(), ListParams::default());
    let request = Request::new(api.resource_url()).delete_collection(&delete, &all);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let answer = api.clone().into_client().request_text(request).await;
    answer.map(drop)
}

fn patch_of(change: &ClusterChange) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), json!(change.resource_version));
    if let Some(finalizers) = &change.finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if let Some(key) = &change.failover_taint {
        metadata.insert("annotations".to_owned(), json!({FAILOVER_TAINT: key}));
    }
    let mut spec = Map::new();
    if let Some(taints) = &change.taints {
        spec.insert("taints".to_owned(), json!(taints));
    }
    if let Some(zones) = &change.zones {
        spec.insert("zone".to_owned(), Value::Null);
        spec.insert("zones".to_owned(), json!(zones));
    }
    json!({"metadata": metadata, "spec": spec})
}

fn taint_note(taints: &[Taint]) -> String {
    if taints.is_empty() {
        return "Taint cluster succeed: cluster now does not have taints.".to_owned();
    }
    let shown: Vec<String> = taints
        .iter()
        .map(|taint| match taint.value.as_deref() {
            None | Some("") => format!("{{Key:{},Effect:{:?}}}", taint.key, taint.effect),
            Some(value) => format!(
                "{{Key:{},Value:{value},Effect:{:?}}}",
                taint.key, taint.effect
            ),
        })
        .collect();
    format!(
        "Taint cluster succeed: cluster now has taints([{}]).",
        shown.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::cluster::TaintEffect;

    #[test]
    fn taints_are_shown_as_the_reference_shows_them() {
        let taint = Taint {
            key: "cluster.karmada.io/not-ready".into(),
            effect: TaintEffect::NoSchedule,
            ..Taint::default()
        };
        assert_eq!(
            taint_note(&[taint]),
            "Taint cluster succeed: cluster now has taints([{Key:cluster.karmada.io/not-ready,Effect:NoSchedule}])."
        );
        assert_eq!(
            taint_note(&[]),
            "Taint cluster succeed: cluster now does not have taints."
        );
    }

    #[test]
    fn a_patch_holds_only_what_changes() {
        let change = ClusterChange {
            resource_version: "7".into(),
            zones: Some(vec!["z".into()]),
            ..ClusterChange::default()
        };
        assert_eq!(
            patch_of(&change),
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"zone": null, "zones": ["z"]}})
        );
        for key in [Some("k"), None] {
            let change = ClusterChange {
                failover_taint: Some(key.map(str::to_owned)),
                ..ClusterChange::default()
            };
            let annotations = &patch_of(&change)["metadata"]["annotations"];
            assert_eq!(
                *annotations,
                json!({FAILOVER_TAINT: key}),
                "none takes it off"
            );
        }
    }
}
