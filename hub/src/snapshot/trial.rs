//! What a hub would make of an object that a file holds: asked of itself by a dry run, so that defaults, rules of schemas
//! and admission are its own.
//!
//! Changes are those of `kubectl apply`: what the file says is so, what it said the last time and no longer does goes,
//! and the rest stays. Lists are replaced whole.

use super::read::{Error, Reader};
use crate::world::ObjectName;
use common::gvk::Gvk;
use common::mapper::Resource;
use common::rest::{self, Call, JSON, MERGE_PATCH};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// In which `kubectl apply` keeps what a file said.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A change that a file asks for.
#[derive(Debug, Clone)]
pub struct Trial {
    resource: Arc<Resource>,
    /// Namespace and name.
    pub name: ObjectName,
    /// The object as it is; none when there is none.
    pub live: Option<Value>,
    /// What the file says.
    file: Value,
}

/// What became of a trial.
#[derive(Debug)]
pub enum Outcome {
    /// The object as the hub would have it.
    Made(Box<Value>),
    /// It lies in a namespace, or is of a kind, that is not there yet: nobody knows what the hub adds to it.
    Unknown(String),
    /// The hub refuses.
    Refused(String),
}

impl Reader {
    /// The change that an object of a file asks for; none where its kind is not served. `namespace` is that of an object
    /// that names none.
    pub async fn trial(&self, file: &Value, namespace: &str) -> Result<Option<Trial>, Error> {
        let text = |pointer: &str| file.pointer(pointer).and_then(Value::as_str);
        let kind = Gvk::new(
            text("/apiVersion").unwrap_or_default(),
            text("/kind").unwrap_or_default(),
        );
        let resource = match &kind {
            Some(kind) => self.resource(kind).await?,
            None => None,
        };
        let Some(resource) = resource else {
            return Ok(None);
        };
        let own = text("/metadata/namespace").unwrap_or(namespace).to_owned();
        let own = Some(own).filter(|_| resource.namespaced);
        let name = ObjectName::new(own.as_deref(), text("/metadata/name").unwrap_or_default());
        let live = self.object(&resource, &name).await?;
        let mut file = file.clone();
        if let Some(own) = &own {
            file["metadata"]["namespace"] = json!(own);
        }
        Ok(Some(Trial {
            resource,
            name,
            live,
            file,
        }))
    }

    /// An object as the hub has it.
    pub async fn object(
        &self,
        resource: &Resource,
        name: &ObjectName,
    ) -> Result<Option<Value>, Error> {
        let uri = resource.object(&name.namespace, &name.name);
        let failed = |source| Error::new(format!("{} {name}", resource.gvk.kind), source);
        match Call::get(&uri, JSON).send(self.client()).await {
            Ok(reply) => reply.json().map(Some).map_err(failed),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Has the hub try a change, and write nothing.
    pub async fn attempt(&self, trial: &Trial) -> Result<Outcome, Error> {
        match self.send(trial, "?dryRun=All&fieldManager=towline").await {
            Ok(mut object) => {
                if trial.live.is_none() {
                    // It gets another one when it is made.
                    let metadata = object["metadata"].as_object_mut();
                    metadata.map(|metadata| metadata.remove("uid"));
                }
                Ok(Outcome::Made(Box::new(object)))
            }
            Err(error) => match error.code() {
                Some(404) => Ok(Outcome::Unknown(error.to_string())),
                Some(400 | 403 | 405 | 409 | 413 | 422) => Ok(Outcome::Refused(error.to_string())),
                _ => Err(Error::new(
                    format!(
                        "what the hub makes of {} {}",
                        trial.resource.gvk.kind, trial.name
                    ),
                    error,
                )),
            },
        }
    }

    /// Sends a change; `query` says how.
    pub(crate) async fn send(&self, trial: &Trial, query: &str) -> Result<Value, rest::Error> {
        let resource = &trial.resource;
        let reply = match &trial.live {
            None => {
                let collection = match resource.namespaced {
                    true => resource.collection_in(&trial.name.namespace),
                    false => resource.collection(),
                };
                let uri = format!("{collection}{query}");
                Call::post(&uri, &trial.file).send(self.client()).await?
            }
            Some(live) => {
                let uri = format!("{}{query}", trial.uri());
                let patch = patch(live, &trial.file);
                let call = Call::patch(&uri, MERGE_PATCH, &patch);
                call.send(self.client()).await?
            }
        };
        reply.json()
    }
}

impl Trial {
    /// Where the object is.
    pub fn uri(&self) -> String {
        self.resource.object(&self.name.namespace, &self.name.name)
    }

    /// Whether it lies in a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.resource.namespaced
    }

    /// `TYPE/NAME`, as commands take it.
    pub fn shown(&self) -> String {
        let kind = self.resource.gvk.group_kind().to_string().to_lowercase();
        format!("{kind}/{}", self.name.name)
    }

    /// The object as its file has it, where the hub cannot say what it makes of it.
    pub fn as_written(&self) -> Value {
        self.file.clone()
    }
}

/// The merge patch that makes of `live` what `file` says.
fn patch(live: &Value, file: &Value) -> Value {
    let annotation = live.pointer("/metadata/annotations");
    let said = annotation.and_then(|it| it.get(LAST_APPLIED)?.as_str());
    let said: Value = said
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut patch = file.clone();
    if let (Some(patch), Some(said)) = (patch.as_object_mut(), said.as_object()) {
        forget(patch, said);
    }
    if let Some(fields) = patch.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
    }
    patch
}

/// What was said and no longer is, goes.
fn forget(patch: &mut Map<String, Value>, said: &Map<String, Value>) {
    for (key, value) in said {
        match (patch.get_mut(key), value) {
            (None, _) => {
                patch.insert(key.clone(), Value::Null);
            }
            (Some(Value::Object(now)), Value::Object(then)) => forget(now, then),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_no_longer_says_goes_and_what_others_say_stays() {
        let said =
            json!({"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"x": 1, "y": {"z": 1}}});
        let live = json!({"metadata": {"annotations": {LAST_APPLIED: said.to_string()}}, "spec": {"replicas": 7}});
        let file = json!({"metadata": {"uid": "u", "labels": {"a": "2"}}, "spec": {"y": {"w": 2}}, "status": {}});
        assert_eq!(
            patch(&live, &file),
            json!({"metadata": {"labels": {"a": "2", "b": null}}, "spec": {"x": null, "y": {"z": null, "w": 2}}})
        );
        let unknown = json!({"metadata": {}});
        assert_eq!(
            patch(&unknown, &json!({"data": {"a": "b"}})),
            json!({"data": {"a": "b"}})
        );
    }
}
