//! What `towline get` reads of a hub: types, templates, bindings, Works and whether clusters are Ready.

mod pages;
#[cfg(test)]
mod tests;

pub(in crate::cli) use pages::{count, metadata, one, pages, readable};

use super::answer::{Answer, Around, Bound, Seen};
use super::names::{self, Type};
use super::works::{self, Delivery};
use crate::cli::{CliError, Kind};
use crate::propagation::{Template, group};
use chrono::{DateTime, Utc};
use common::api::binding::{ClusterResourceBinding, ObjectReference, ResourceBinding};
use common::api::work::Work;
use common::labels::{BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID};
use common::mapper::Resource;
use common::time::from_time;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::TypeMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters?includeObject=None";

/// A hub that is asked.
pub(in crate::cli) struct Hub {
    pub(in crate::cli) client: Client,
    types: Vec<Type>,
}

/// Which objects of a type.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Scope {
    /// Their namespace; all of them when there is none.
    pub(in crate::cli) namespace: Option<String>,
    /// Their labels, as kubectl writes a selector.
    pub(in crate::cli) selector: Option<String>,
    /// Their name, where those of one name in several namespaces are meant.
    pub(in crate::cli) name: Option<String>,
}

/// A binding's template: group, kind, namespace and name.
type Key = (String, String, Option<String>, String);

fn key(reference: &ObjectReference) -> Key {
    let group = group(&reference.api_version).to_owned();
    let (kind, name) = (reference.kind.clone(), reference.name.clone());
    (group, kind, reference.namespace.clone(), name)
}

impl Hub {
    /// Asks a hub for its types.
    pub(in crate::cli) async fn discover(client: Client) -> Result<Self, CliError> {
        let mut types = Vec::new();
        for path in ["/api", "/apis"] {
            types.extend(names::types(&ask(&client, path, DISCOVERY).await?));
        }
        Ok(Self { client, types })
    }

    /// A client of it.
    pub(in crate::cli) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The type that a word means.
    pub(in crate::cli) fn resolve(&self, word: &str) -> Result<Resource, CliError> {
        let found = names::resolve(&self.types, word).map(|it| it.resource.clone());
        found.ok_or_else(|| {
            let message = format!("the server doesn't have a resource type {word:?}");
            CliError::message(Kind::NotFound, message)
                .hint("`kubectl api-resources` lists those there are.")
        })
    }

    /// Every template of a type, with its binding.
    pub(in crate::cli) async fn templates(
        &self,
        resource: &Resource,
        scope: &Scope,
    ) -> Result<Vec<Answer>, CliError> {
        let objects = list(
            &self.objects(resource, scope.namespace.as_deref()),
            resource,
            scope,
        )
        .await?;
        let unselected = Scope {
            selector: None,
            ..scope.clone()
        };
        let bindings = match resource.namespaced {
            true => self.bindings(&unselected).await?,
            false => self.cluster_bindings(&unselected).await?,
        };
        let by_template: BTreeMap<Key, &Bound> = bindings
            .iter()
            .map(|it| (key(&it.spec.resource), it))
            .collect();
        let around = self.around(scope.namespace.as_deref()).await?;
        let mut answers = Vec::new();
        let known = resource.api_resource();
        for mut object in objects {
            // In a list the kind is said once.
            object.types = Some(TypeMeta {
                api_version: known.api_version.clone(),
                kind: known.kind.clone(),
            });
            let object = whole(object)?;
            let reference = Template::of(&object).map(|it| key(&it.reference()));
            let seen = Seen {
                template: Some(&object),
                binding: reference.and_then(|it| by_template.get(&it).copied()),
                around: &around,
            };
            answers.extend(Answer::of(&seen));
        }
        Ok(answers)
    }

    /// One template with all that is known of it.
    pub(in crate::cli) async fn template(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Answer, CliError> {
        let objects = self.objects(resource, resource.namespaced.then_some(namespace));
        let object = one(&objects, name)
            .await
            .map_err(|error| missing(&resource.qualified(), name, error))?
            .ok_or_else(|| not_found(&resource.qualified(), name))?;
        let object = whole(object)?;
        let template = Template::of(&object);
        let template = template
            .ok_or_else(|| broken(format!("{}/{name} has no kind or name", resource.plural)))?;
        let found = self
            .bound(template.namespace.as_deref(), &template.binding_name())
            .await?;
        // Kinds of two groups may have one name, and then one of them has the binding.
        let found = found.filter(|it| key(&it.spec.resource) == key(&template.reference()));
        let namespace = template.namespace.as_deref();
        self.answer(namespace, Some(&object), found.as_ref()).await
    }

    /// Every binding: of one namespace, or of all with those of cluster-scoped templates.
    pub(in crate::cli) async fn every_binding(
        &self,
        resource: &Resource,
        scope: &Scope,
    ) -> Result<Vec<Answer>, CliError> {
        let mut bindings = Vec::new();
        if resource.namespaced {
            bindings.extend(self.bindings(scope).await?);
        }
        if !resource.namespaced || scope.namespace.is_none() {
            bindings.extend(self.cluster_bindings(scope).await?);
        }
        let around = self.around(scope.namespace.as_deref()).await?;
        let seen = |binding| Seen {
            template: None,
            binding: Some(binding),
            around: &around,
        };
        Ok(bindings
            .iter()
            .filter_map(|it| Answer::of(&seen(it)))
            .collect())
    }

    /// Whatever is propagated, as its bindings tell.
    pub(in crate::cli) async fn propagated(&self) -> Result<Vec<Answer>, CliError> {
        let everywhere = Scope::default();
        let mut bindings = self.bindings(&everywhere).await?;
        bindings.extend(self.cluster_bindings(&everywhere).await?);
        let around = self.around(None).await?;
        let of = |binding| {
            Answer::of(&Seen {
                template: None,
                binding: Some(binding),
                around: &around,
            })
        };
        Ok(bindings.iter().filter_map(of).collect())
    }

    /// One binding.
    pub(in crate::cli) async fn binding(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Answer, CliError> {
        let found = self
            .bound(resource.namespaced.then_some(namespace), name)
            .await?;
        let found = found.ok_or_else(|| not_found(&resource.qualified(), name))?;
        let namespace = resource.namespaced.then_some(namespace);
        self.answer(namespace, None, Some(&found)).await
    }

    /// Works: of one execution namespace, or of all.
    pub(in crate::cli) async fn works(
        &self,
        resource: &Resource,
        scope: &Scope,
    ) -> Result<Vec<Delivery>, CliError> {
        let api: Api<Work> = match &scope.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let found = list(&api, resource, scope).await?;
        Ok(found.iter().map(Delivery::of).collect())
    }

    /// Works that no binding made: those of namespaces, and what somebody wrote.
    pub(in crate::cli) async fn unbound(&self) -> Result<Vec<Delivery>, CliError> {
        let api: Api<Work> = Api::all(self.client.clone());
        let without = format!("!{BINDING_PERMANENT_ID},!{CLUSTER_BINDING_PERMANENT_ID}");
        let scope = Scope {
            selector: Some(without),
            ..Scope::default()
        };
        let found = pages(&api, &scope).await;
        let found = found.map_err(|error| CliError::api("failed to list Works", error))?;
        Ok(found.iter().map(Delivery::of).collect())
    }

    async fn answer(
        &self,
        namespace: Option<&str>,
        template: Option<&Value>,
        binding: Option<&Bound>,
    ) -> Result<Answer, CliError> {
        let mut around = self.around(namespace).await?;
        if let Some(binding) = binding {
            around.works = self.since(binding).await?;
        }
        let seen = Seen {
            template,
            binding,
            around: &around,
        };
        Answer::of(&seen).ok_or_else(|| broken("neither a template nor a binding".to_owned()))
    }

    /// The objects of a type, in one namespace or in all.
    pub(in crate::cli) fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
    ) -> Api<DynamicObject> {
        let known = resource.api_resource();
        match namespace.filter(|_| resource.namespaced) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &known),
            None => Api::all_with(self.client.clone(), &known),
        }
    }

    async fn bindings(&self, scope: &Scope) -> Result<Vec<Bound>, CliError> {
        let api: Api<ResourceBinding> = match &scope.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let found = pages(&api, scope).await;
        let found =
            found.map_err(|error| CliError::api("failed to list ResourceBindings", error))?;
        Ok(found.into_iter().map(Bound::from).collect())
    }

    async fn cluster_bindings(&self, scope: &Scope) -> Result<Vec<Bound>, CliError> {
        let api: Api<ClusterResourceBinding> = Api::all(self.client.clone());
        let found = pages(&api, scope).await;
        let found = found
            .map_err(|error| CliError::api("failed to list ClusterResourceBindings", error))?;
        Ok(found.into_iter().map(Bound::from).collect())
    }

    /// The binding of a name: of a namespace, or of cluster-scoped templates.
    pub(in crate::cli) async fn bound(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Bound>, CliError> {
        let client = self.client.clone();
        let found = match namespace {
            Some(namespace) => {
                let api: Api<ResourceBinding> = Api::namespaced(client, namespace);
                one(&api, name).await.map(|it| it.map(Bound::from))
            }
            None => {
                let api: Api<ClusterResourceBinding> = Api::all(client);
                one(&api, name).await.map(|it| it.map(Bound::from))
            }
        };
        found.map_err(|error| CliError::api(format!("failed to get the binding {name:?}"), error))
    }

    /// Which clusters are not Ready, and which policies wait: of one namespace, or of all. Who may not see clusters sees
    /// everything else.
    async fn around(&self, namespace: Option<&str>) -> Result<Around, CliError> {
        let silent = match ask(&self.client, CLUSTERS, TABLE).await {
            Ok(table) => silent(&table),
            Err(error) if error.kind == Kind::Denied => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Around {
            silent,
            works: BTreeMap::new(),
            waiting: self.waiting(namespace).await?,
        })
    }

    /// When each Work of a binding was made. Who may not see Works sees everything else.
    async fn since(&self, binding: &Bound) -> Result<BTreeMap<String, DateTime<Utc>>, CliError> {
        let labels = binding.metadata.labels.iter().flatten();
        let id = labels
            .filter(|(key, _)| {
                [BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID].contains(&key.as_str())
            })
            .map(|(key, value)| format!("{key}={value}"))
            .next();
        let Some(id) = id else {
            return Ok(BTreeMap::new());
        };
        let works: Api<Work> = Api::all(self.client.clone());
        let scope = Scope {
            selector: Some(id),
            ..Scope::default()
        };
        let found = match metadata(&works, &scope).await {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == 403 => Vec::new(),
            Err(error) => return Err(CliError::api("failed to list Works", error)),
        };
        let since = found.iter().filter_map(|it| {
            let cluster = works::cluster(it.metadata.namespace.as_deref()?);
            Some((
                cluster.to_owned(),
                from_time(it.metadata.creation_timestamp.as_ref()?)?,
            ))
        });
        Ok(since.collect())
    }
}

/// The clusters that are not Ready, of a table as kubectl gets it.
fn silent(table: &Value) -> BTreeMap<String, String> {
    let list = |key: &str| table[key].as_array().map_or(&[][..], Vec::as_slice);
    let column = |name: &str| {
        list("columnDefinitions")
            .iter()
            .position(|it| it["name"] == name)
    };
    let (Some(name), Some(ready)) = (column("Name"), column("Ready")) else {
        return BTreeMap::new();
    };
    let text =
        |row: &Value, column: usize| row["cells"][column].as_str().unwrap_or_default().to_owned();
    let rows = list("rows")
        .iter()
        .map(|row| (text(row, name), text(row, ready)));
    rows.filter(|(_, ready)| ready != "True")
        .map(|(name, ready)| match ready.as_str() {
            "" => (name, "was never Ready".to_owned()),
            status => (name, format!("has Ready={status}")),
        })
        .collect()
}

async fn ask(client: &Client, path: &str, accept: &str) -> Result<Value, CliError> {
    let request = http::Request::get(path)
        .header(http::header::ACCEPT, accept)
        .body(Vec::new());
    let request = request.map_err(|error| CliError::new(Kind::Internal, error))?;
    let answer = client.request(request).await;
    answer.map_err(|error| CliError::api(format!("failed to get {path}"), error))
}

async fn list<K>(api: &Api<K>, resource: &Resource, scope: &Scope) -> Result<Vec<K>, CliError>
where
    K: kube::Resource + Clone + DeserializeOwned,
{
    let found = pages(api, scope).await;
    found.map_err(|error| CliError::api(format!("failed to list {}", resource.qualified()), error))
}

pub(in crate::cli) fn whole(object: DynamicObject) -> Result<Value, CliError> {
    serde_json::to_value(object).map_err(|error| CliError::new(Kind::Internal, error))
}

fn broken(message: String) -> CliError {
    CliError::message(Kind::Internal, message)
}

pub(in crate::cli) fn missing(resource: &str, name: &str, error: kube::Error) -> CliError {
    match error {
        kube::Error::Api(status) if status.code == 404 => not_found(resource, name),
        error => CliError::api(format!("failed to get {resource}/{name}"), error),
    }
}

pub(in crate::cli) fn not_found(resource: &str, name: &str) -> CliError {
    CliError::message(Kind::NotFound, format!("{resource} {name:?} not found"))
        .hint("-n NAMESPACE looks elsewhere, -A everywhere.")
}
