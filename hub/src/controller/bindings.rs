//! Reads and writes of bindings, as every controller of propagation does them: of both kinds alike, only where
//! something differs, and until the view has seen it.

use crate::controller::notices::Notices;
use crate::propagation::{Binding, Notice, Template};
use crate::world::{ObjectName, World};
use common::controller::Failure;
use common::gvk::GroupKind;
use common::rest::{self, Call, MERGE_PATCH, METADATA_ONLY, Reply};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use std::time::Duration;

const API: &str = "/apis/work.karmada.io/v1alpha2";
/// How long a view may take to see what was written; then it is decided again on what it has.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error("failed to {verb} {kind} {name:?}")]
    Request {
        /// What was tried.
        verb: &'static str,
        /// The kind.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<rest::Error>,
    },
    /// What was decided has no form in JSON; a defect.
    #[error("failed to write {0:?} as JSON")]
    Form(String, #[source] serde_json::Error),
    /// What was decided cannot be done now.
    #[error("{0}")]
    Undecided(String),
    /// Nothing can be made of what there is, until that changes.
    #[error("{0}")]
    Impossible(String),
}

impl Error {
    /// Wraps a failed request.
    pub fn request(verb: &'static str, kind: &str, name: &str, source: rest::Error) -> Self {
        Self::Request {
            verb,
            kind: kind.to_owned(),
            name: name.to_owned(),
            source: Box::new(source),
        }
    }

    /// Whether the same, tried again, may well be done: nobody refused it.
    pub fn passes(&self) -> bool {
        let Self::Request { source, .. } = self else {
            return false;
        };
        source
            .code()
            .is_none_or(|code| matches!(code, 409 | 429 | 500..))
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "RequestFailed",
            Self::Form(..) => "FormFailed",
            Self::Undecided(_) => "Undecided",
            Self::Impossible(_) => "Impossible",
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.code() == Some(409))
    }

    fn lasts(&self) -> bool {
        matches!(self, Self::Impossible(_))
    }
}

/// What a write made.
#[derive(Debug)]
pub struct Written {
    /// The version that is there now.
    pub version: String,
    /// Its generation.
    pub generation: i64,
}

/// The bindings of a hub.
#[derive(Clone)]
pub struct Bindings {
    client: Client,
    world: World,
    notices: Notices,
}

impl Bindings {
    /// Over a client; what is written is awaited in `world`, and told by `notices`.
    pub fn new(client: Client, world: World, notices: Notices) -> Self {
        Self {
            client,
            world,
            notices,
        }
    }

    /// Makes a binding.
    pub async fn create(&self, binding: &Binding) -> Result<Written, Error> {
        let body = binding.object();
        let body = body.map_err(|error| Error::Form(binding.name.clone(), error))?;
        let uri = collection(binding.namespace.as_deref());
        let call = Call::post(&uri, &body).metadata_only();
        let reply = call.send(&self.client).await;
        self.written("create", binding, reply).await
    }

    /// Makes `wanted` of what was seen.
    pub async fn update(&self, seen: &Binding, wanted: &Binding) -> Result<(), Error> {
        let patch = wanted.patch(seen);
        let patch = patch.map_err(|error| Error::Form(seen.name.clone(), error))?;
        match patch {
            Some(patch) => self.patch(seen, &patch).await.map(drop),
            None => Ok(()),
        }
    }

    /// Sends a merge patch.
    pub async fn patch(&self, binding: &Binding, patch: &Value) -> Result<Written, Error> {
        let uri = uri(binding);
        let call = Call::patch(&uri, MERGE_PATCH, patch).metadata_only();
        let reply = call.send(&self.client).await;
        self.written("patch", binding, reply).await
    }

    /// Sends a merge patch of the status; it carries the version that was seen, for it replaces lists.
    pub async fn patch_status(&self, binding: &Binding, status: &Value) -> Result<Written, Error> {
        let uri = format!("{}/status", uri(binding));
        let version = &binding.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        let call = Call::patch(&uri, MERGE_PATCH, &patch).metadata_only();
        let reply = call.send(&self.client).await;
        self.written("patch the status of", binding, reply).await
    }

    /// Deletes a binding with this UID; one that is gone is gone. One that ends later is seen to end: until then its
    /// Works would be written as if it stayed.
    pub async fn delete(&self, binding: &Binding, uid: &str) -> Result<(), Error> {
        let options = json!({"preconditions": {"uid": uid}});
        match Call::delete(&uri(binding), &options)
            .send(&self.client)
            .await
        {
            Ok(reply) => {
                if let Some(version) = version_of(&reply) {
                    self.caught_up(binding, version).await;
                }
                Ok(())
            }
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request(
                "delete",
                binding.kind(),
                &binding.name,
                error,
            )),
        }
    }

    async fn written(
        &self,
        verb: &'static str,
        binding: &Binding,
        reply: Result<Reply, rest::Error>,
    ) -> Result<Written, Error> {
        let failed = |error| Error::request(verb, binding.kind(), &binding.name, error);
        let object: PartialObjectMeta = reply.map_err(failed)?.json().map_err(failed)?;
        let written = Written {
            version: object.metadata.resource_version.unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(0),
        };
        if let Ok(version) = written.version.parse() {
            self.caught_up(binding, version).await;
        }
        Ok(written)
    }

    /// Waits until the view has seen a write of a binding.
    async fn caught_up(&self, binding: &Binding, version: u64) {
        let view = self.world.propagation.bindings_of(&name_of(binding));
        seen(binding.kind(), version, view.caught_up(version)).await;
    }

    /// Sends a merge patch to a binding that goes; one that is gone needs none.
    pub async fn end(&self, binding: &Binding, patch: &Value) -> Result<(), Error> {
        let uri = uri(binding);
        let call = Call::patch(&uri, MERGE_PATCH, patch).metadata_only();
        match call.send(&self.client).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request(
                "let go of",
                binding.kind(),
                &binding.name,
                error,
            )),
        }
    }

    /// Whether the hub itself knows a binding: what rests on its absence is not decided by a view.
    pub async fn exists(&self, name: &ObjectName) -> Result<bool, Error> {
        let namespace = Some(&*name.namespace).filter(|it| !it.is_empty());
        let uri = format!("{}/{}", collection(namespace), name.name);
        match Call::get(&uri, METADATA_ONLY).send(&self.client).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(Error::request("read", "binding", &name.to_string(), error)),
        }
    }

    /// Waits until the view has seen the Works that were written, of which this is the last version.
    pub async fn await_works(&self, version: u64) {
        seen("Work", version, self.world.works.caught_up(version)).await;
    }

    /// Waits until the view has seen a template that was written.
    pub async fn await_template(&self, kind: &GroupKind, reply: &Reply) {
        if let Some(version) = version_of(reply) {
            let templates = &self.world.propagation.templates;
            seen(&kind.kind, version, templates.caught_up(kind, version)).await;
        }
    }

    /// Has something told about an object.
    pub fn tell(&self, about: &ObjectReference, notices: &[Notice]) {
        for notice in notices {
            self.notices.add(about, notice);
        }
    }
}

/// The version that a write was answered with; none where versions are no numbers.
pub fn version_of(reply: &Reply) -> Option<u64> {
    let written = reply.json::<PartialObjectMeta>().ok()?;
    written.metadata.resource_version?.parse().ok()
}

async fn seen(kind: &str, version: u64, caught_up: impl Future<Output = ()>) {
    if tokio::time::timeout(SEEN_WITHIN, caught_up).await.is_err() {
        tracing::warn!(kind, version, "the watch has not told of a write");
    }
}

/// The bindings that take one along. They lie where it does: whoever may write a binding cannot hold up one of
/// another namespace by naming it.
pub fn required_by(binding: &Binding) -> Vec<ObjectName> {
    let parents = binding.spec.required_by.iter();
    parents
        .filter(|it| it.namespace == binding.namespace)
        .map(|it| ObjectName::new(it.namespace.as_deref(), &it.name))
        .collect()
}

/// The key of a binding in views and queues.
pub fn name_of(binding: &Binding) -> ObjectName {
    ObjectName::new(binding.namespace.as_deref(), &binding.name)
}

/// What an Event on a binding is about.
pub fn about(binding: &Binding) -> ObjectReference {
    ObjectReference {
        api_version: Some("work.karmada.io/v1alpha2".to_owned()),
        kind: Some(binding.kind().to_owned()),
        namespace: binding.namespace.clone(),
        name: Some(binding.name.clone()),
        uid: Some(binding.uid.clone()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

/// What an Event on a Cluster is about.
pub fn about_cluster(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("cluster.karmada.io/v1alpha1".to_owned()),
        kind: Some("Cluster".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// What an Event on a template is about.
pub fn about_template(template: &Template) -> ObjectReference {
    ObjectReference {
        api_version: Some(template.api_version.clone()),
        kind: Some(template.kind.clone()),
        namespace: template.namespace.clone(),
        name: Some(template.name.clone()),
        uid: Some(template.uid.clone()),
        ..ObjectReference::default()
    }
}

/// The same, of the template that a binding names. It lies where the binding does, whatever the binding says: whoever may
/// write one has nothing told of another namespace.
pub fn about_template_of(binding: &Binding) -> ObjectReference {
    let of = &binding.spec.resource;
    ObjectReference {
        api_version: Some(of.api_version.clone()),
        kind: Some(of.kind.clone()),
        namespace: binding.namespace.clone(),
        name: Some(of.name.clone()),
        uid: of.uid.clone(),
        ..ObjectReference::default()
    }
}

fn collection(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{API}/namespaces/{namespace}/resourcebindings"),
        None => format!("{API}/clusterresourcebindings"),
    }
}

fn uri(binding: &Binding) -> String {
    format!(
        "{}/{}",
        collection(binding.namespace.as_deref()),
        binding.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing::unreachable;
    use common::api::binding::BindingSnapshot;
    use std::pin::pin;
    use tokio::time::timeout;

    /// A hub that answers whatever is asked by this.
    fn answering(answer: &Value) -> Client {
        let answer = answer.to_string();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(answer.clone().into_bytes());
            async move { Ok::<_, std::io::Error>(http::Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_that_ends_is_seen_to_end_before_anything_else_is_done() {
        let object = |version: &str, ends: Option<&str>| {
            json!({"metadata": {"namespace": "n", "name": "web-deployment", "uid": "u",
                "resourceVersion": version, "deletionTimestamp": ends, "finalizers": ["f"]},
                "spec": {"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"}}})
        };
        let ending = object("8", Some("2026-01-01T00:00:00Z"));
        let gone =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        // What is answered, and whether the view is waited for.
        for (answer, waits) in [(&ending, true), (&gone, false)] {
            let world = unreachable();
            let view = &world.propagation.bindings;
            view.listed(&[object("7", None)]).await;
            let bindings = Bindings::new(answering(answer), world.clone(), Notices::default());
            let name = ObjectName::new(Some("n"), "web-deployment");
            let held = world.propagation.binding(&name).expect("held");
            let mut delete = pin!(bindings.delete(&held.binding, "u"));
            let done = timeout(SEEN_WITHIN / 2, delete.as_mut()).await;
            assert_eq!(done.is_err(), waits, "{answer}");
            if waits {
                view.sent(std::slice::from_ref(&ending)).await;
                delete.await.expect("deleted");
                assert!(
                    world
                        .propagation
                        .binding(&name)
                        .expect("held")
                        .binding
                        .deleting
                );
            }
        }
    }

    #[test]
    fn an_event_on_a_template_is_told_where_its_binding_lies() {
        // The namespace of the binding, and that of what it names.
        let cases = [
            (Some("mine"), Some("mine")),
            (Some("mine"), Some("theirs")),
            (Some("mine"), None),
            (None, Some("theirs")),
            (None, None),
        ];
        for (namespace, named) in cases {
            let mut binding = Binding {
                namespace: namespace.map(str::to_owned),
                ..Binding::default()
            };
            binding.spec.resource.namespace = named.map(str::to_owned);
            let about = about_template_of(&binding);
            assert_eq!(about.namespace.as_deref(), namespace, "{named:?}");
        }
    }

    #[test]
    fn what_another_namespace_lists_takes_nothing_along() {
        let parent = |namespace: Option<&str>, name: &str| BindingSnapshot {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            ..BindingSnapshot::default()
        };
        let mut binding = Binding {
            namespace: Some("mine".into()),
            ..Binding::default()
        };
        binding.spec.required_by = vec![
            parent(Some("theirs"), "a"),
            parent(Some("mine"), "b"),
            parent(None, "c"),
        ];
        let found = required_by(&binding);
        assert_eq!(found, [ObjectName::new(Some("mine"), "b")]);
    }
}
