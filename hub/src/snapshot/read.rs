//! Reads a hub through a client: whole lists, page by page, an object at a time, so that one that cannot be read hides
//! no other.

use super::{Cluster, Scope, Snapshot, Unreadable, Works};
use crate::controller::detector::skip::Skips;
use crate::page::Page;
use crate::propagation::PolicyName;
use crate::world::{self, ObjectName, Record, TemplateName};
use common::api::binding::{ClusterResourceBinding, ResourceBinding};
use common::api::interpreter::ResourceInterpreterCustomization;
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use common::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
use common::gvk::Gvk;
use common::mapper::{Resource, RestMapper};
use common::rest::{self, Call, JSON, METADATA_LIST};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Objects of one page of a list.
const PAGE: u32 = 200;
/// How often a list is begun anew that took longer than the server keeps its pages.
const ATTEMPTS: u32 = 3;

/// What could not be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {what}")]
pub struct Error {
    /// Which collection, or what was asked.
    pub what: String,
    /// The cause.
    #[source]
    pub source: Box<rest::Error>,
}

impl Error {
    /// Wraps a failed request.
    pub(super) fn new(what: String, source: rest::Error) -> Self {
        let source = Box::new(source);
        Self { what, source }
    }
}

/// Reads a hub.
pub struct Reader {
    client: Client,
    mapper: RestMapper,
    skips: Skips,
}

/// Of an object that cannot be read, what tells which it is.
#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: String,
}

impl Reader {
    /// Of the hub behind `client`, whose detector passes over `skips`.
    pub fn new(client: Client, skips: Skips) -> Self {
        Self {
            client,
            mapper: RestMapper::default(),
            skips,
        }
    }

    /// The client of the hub.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads it.
    pub async fn read(&self, scope: &Scope) -> Result<Snapshot, Error> {
        let mut found = Snapshot::default();
        self.policies(&mut found).await?;
        self.bindings(&mut found).await?;
        self.clusters(&mut found).await?;
        self.namespaces(&mut found).await?;
        self.classes(&mut found).await?;
        self.customizations(&mut found).await?;
        self.works(scope.works, &mut found).await?;
        let mut kinds = found.wanted(&self.skips);
        kinds.extend(scope.kinds.iter().cloned());
        for kind in &kinds {
            self.templates(kind, &mut found).await?;
        }
        Ok(found)
    }

    /// Adds the templates of a kind, unless they were read.
    pub async fn templates(&self, kind: &Gvk, into: &mut Snapshot) -> Result<(), Error> {
        let group_kind = kind.group_kind();
        if into.kinds.contains_key(&group_kind) {
            return Ok(());
        }
        let resource = self.resource(kind).await?;
        into.kinds.insert(group_kind.clone(), resource.clone());
        let Some(resource) = resource else {
            return Ok(());
        };
        let path = resource.collection();
        let wrong = self
            .list(&kind.kind, &path, JSON, |text| {
                if let Some(template) = world::Template::read_as(text, Some(kind))? {
                    let identity = &template.identity;
                    let name = TemplateName {
                        kind: group_kind.clone(),
                        name: ObjectName::new(identity.namespace.as_deref(), &identity.name),
                    };
                    into.templates.insert(name, Arc::new(template));
                }
                Ok(())
            })
            .await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    /// How a kind is served; none where it is not.
    pub async fn resource(&self, kind: &Gvk) -> Result<Option<Arc<Resource>>, Error> {
        let resolved = self.mapper.resolve(&self.client, kind).await;
        resolved.map_err(|source| {
            let what = format!("how {} of {} is served", kind.kind, kind.api_version());
            Error::new(what, source)
        })
    }

    async fn policies(&self, into: &mut Snapshot) -> Result<(), Error> {
        let (policies, overrides) = (&mut into.policies, &mut into.overrides);
        let mut wrong = Vec::new();
        let mut policy = |text: &str| {
            let read = world::Policy::read(text)?.map(|it| it.policy);
            policies.extend(read.map(|it| (it.name.clone(), it)));
            Ok(())
        };
        wrong.extend(self.each::<PropagationPolicy>(JSON, &mut policy).await?);
        wrong.extend(
            self.each::<ClusterPropagationPolicy>(JSON, &mut policy)
                .await?,
        );
        let mut one = |text: &str| {
            let read = world::Override::read(text)?.map(Arc::new);
            overrides.extend(read.map(|it| (name_of(&it.metadata), it)));
            Ok(())
        };
        wrong.extend(self.each::<OverridePolicy>(JSON, &mut one).await?);
        wrong.extend(self.each::<ClusterOverridePolicy>(JSON, &mut one).await?);
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn bindings(&self, into: &mut Snapshot) -> Result<(), Error> {
        let bindings = &mut into.bindings;
        let mut one = |text: &str| {
            if let Some(held) = world::Binding::read(text)? {
                let binding = &held.binding;
                let name = ObjectName::new(binding.namespace.as_deref(), &binding.name);
                bindings.insert(name, Arc::new(held));
            }
            Ok(())
        };
        let mut wrong = self.each::<ResourceBinding>(JSON, &mut one).await?;
        wrong.extend(self.each::<ClusterResourceBinding>(JSON, &mut one).await?);
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn clusters(&self, into: &mut Snapshot) -> Result<(), Error> {
        let clusters = &mut into.clusters;
        let one = |text: &str| {
            let (name, object) = object(text)?;
            if let Some(record) = world::Cluster::read(text)? {
                let record = Arc::new(record);
                clusters.insert(name.name.to_string(), Cluster { object, record });
            }
            Ok(())
        };
        let wrong = self
            .each::<common::api::cluster::Cluster>(JSON, one)
            .await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn namespaces(&self, into: &mut Snapshot) -> Result<(), Error> {
        let namespaces = &mut into.namespaces;
        let one = |text: &str| {
            let (name, mut object) = object(text)?;
            // In a list the kind is said once.
            object["apiVersion"] = "v1".into();
            object["kind"] = "Namespace".into();
            namespaces.insert(name.name.to_string(), object);
            Ok(())
        };
        let wrong = self.each::<Namespace>(JSON, one).await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn classes(&self, into: &mut Snapshot) -> Result<(), Error> {
        let classes = &mut into.priority_classes;
        let one = |text: &str| {
            let class: PriorityClass = serde_json::from_str(text)?;
            let name = class.metadata.name.unwrap_or_default();
            classes.insert(name, class.value);
            Ok(())
        };
        let wrong = self.each::<PriorityClass>(JSON, one).await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn customizations(&self, into: &mut Snapshot) -> Result<(), Error> {
        let customizations = &mut into.customizations;
        let one = |text: &str| {
            let Named { metadata } = serde_json::from_str(text)?;
            if let Some(read) = world::Customization::read(text)? {
                customizations.insert(metadata.name, Arc::new(read));
            }
            Ok(())
        };
        let wrong = self
            .each::<ResourceInterpreterCustomization>(JSON, one)
            .await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    async fn works(&self, which: Works, into: &mut Snapshot) -> Result<(), Error> {
        let accept = match which {
            Works::None => return Ok(()),
            Works::Names => METADATA_LIST,
            Works::Whole => JSON,
        };
        let works = &mut into.works;
        let one = |text: &str| {
            let Named { metadata } = serde_json::from_str(text)?;
            if let Some(work) = world::Work::read(text)? {
                let name = ObjectName::new(metadata.namespace.as_deref(), &metadata.name);
                works.insert(name, Arc::new(work));
            }
            Ok(())
        };
        let wrong = self.each::<common::api::work::Work>(accept, one).await?;
        into.unreadable.extend(wrong);
        Ok(())
    }

    /// Every object of a kind, over all namespaces; those that `take` cannot read come back.
    async fn each<K: kube::Resource<DynamicType = ()>>(
        &self,
        accept: &'static str,
        take: impl FnMut(&str) -> serde_json::Result<()>,
    ) -> Result<Vec<Unreadable>, Error> {
        let path = K::url_path(&(), None);
        self.list(&K::kind(&()), &path, accept, take).await
    }

    async fn list(
        &self,
        kind: &str,
        path: &str,
        accept: &'static str,
        mut take: impl FnMut(&str) -> serde_json::Result<()>,
    ) -> Result<Vec<Unreadable>, Error> {
        for attempt in 1.. {
            match self.pages(kind, path, accept, &mut take).await {
                // What was taken is taken again: it is kept by its name.
                Err(error) if error.code() == Some(410) && attempt < ATTEMPTS => {}
                Ok(wrong) => return Ok(wrong),
                Err(source) => return Err(Error::new(format!("{kind} objects ({path})"), source)),
            }
        }
        Ok(Vec::new())
    }

    async fn pages(
        &self,
        kind: &str,
        path: &str,
        accept: &'static str,
        take: &mut impl FnMut(&str) -> serde_json::Result<()>,
    ) -> Result<Vec<Unreadable>, rest::Error> {
        let mut wrong = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let request = Request::new(path).list(&params);
            let request = request.map_err(|error| rest::Error::Body(error.to_string()))?;
            let uri = request.uri().to_string();
            let reply = Call::get(&uri, accept).send(&self.client).await?;
            let page: Page<'_> = reply.json()?;
            for item in page.items() {
                if let Err(error) = take(item) {
                    let named = serde_json::from_str::<Named>(item);
                    let Name { namespace, name } = named.map_err(rest::Error::Decode)?.metadata;
                    wrong.push(Unreadable {
                        kind: kind.to_owned(),
                        name: ObjectName::new(namespace.as_deref(), &name),
                        why: error.to_string(),
                    });
                }
            }
            match page.next() {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(wrong),
            }
        }
    }
}

/// The name of a policy.
fn name_of(metadata: &ObjectMeta) -> PolicyName {
    PolicyName {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// An object without managedFields, and its name.
fn object(text: &str) -> serde_json::Result<(ObjectName, Value)> {
    let mut object: Value = serde_json::from_str(text)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let Named { metadata } = serde_json::from_str(text)?;
    let name = ObjectName::new(metadata.namespace.as_deref(), &metadata.name);
    Ok((name, object))
}
