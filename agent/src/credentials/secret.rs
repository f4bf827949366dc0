//! The document as a Secret of the member: created or replaced over the resourceVersion that was read.

use super::{DOCUMENT, Error, Stored, Version};
use common::{labels, names};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use std::collections::BTreeMap;

/// The Secret `towline-agent-credentials`.
#[derive(Debug, Clone)]
pub struct SecretStore {
    namespace: String,
    api: Api<Secret>,
}

impl SecretStore {
    pub(super) fn new(member: kube::Client, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            api: Api::namespaced(member, namespace),
        }
    }

    pub(super) async fn load(&self) -> Result<(Stored, Version), Error> {
        let found = self.api.get_opt(names::CREDENTIALS_SECRET).await;
        let Some(secret) = found.map_err(|e| self.error("get", e))? else {
            return Ok((Stored::default(), Version::default()));
        };
        let document = secret.data.as_ref().and_then(|data| data.get(DOCUMENT));
        // An empty Secret, as someone may prepare it, is an empty document.
        let stored = document.map_or_else(|| Ok(Stored::default()), |d| Stored::decode(&d.0))?;
        Ok((stored, Version(secret.metadata.resource_version)))
    }

    pub(super) async fn save(&self, stored: &Stored, over: &Version) -> Result<Version, Error> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(names::CREDENTIALS_SECRET.into()),
                namespace: Some(self.namespace.clone()),
                labels: Some(BTreeMap::from([
                    (labels::PART_OF.into(), labels::PART_OF_VALUE.into()),
                    (labels::MANAGED_BY.into(), names::AGENT_NAME.into()),
                ])),
                resource_version: over.0.clone(),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".into()),
            data: Some(BTreeMap::from([(
                DOCUMENT.into(),
                ByteString(stored.encode()?),
            )])),
            ..Secret::default()
        };
        let params = PostParams {
            field_manager: Some(labels::AGENT_FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        let written = if over.0.is_none() {
            self.api.create(&params, &secret).await
        } else {
            let name = names::CREDENTIALS_SECRET;
            self.api.replace(name, &params, &secret).await
        };
        match written {
            Ok(secret) => Ok(Version(secret.metadata.resource_version)),
            // Gone between read and write is a change by another hand like any other.
            Err(kube::Error::Api(status))
                if matches!(status.code, 404 | 409) && !is_missing_namespace(&status, over) =>
            {
                Err(Error::Conflict)
            }
            Err(e) => Err(self.error("write", e)),
        }
    }

    pub(super) async fn remove(&self) -> Result<(), Error> {
        let name = names::CREDENTIALS_SECRET;
        match self.api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(e) => Err(self.error("delete", e)),
        }
    }

    fn error(&self, verb: &'static str, source: kube::Error) -> Error {
        Error::Secret {
            verb,
            namespace: self.namespace.clone(),
            source: Box::new(source),
        }
    }
}

/// A create answers 404 only when its namespace is missing, which reading again does not cure.
fn is_missing_namespace(status: &kube::core::Status, over: &Version) -> bool {
    status.code == 404 && over.0.is_none()
}
