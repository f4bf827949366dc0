//! Records of kinds that are kept whole: policies and bindings, of which everything decides.

use super::view::Record;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::sync::Arc;

/// An object, without what says who wrote which field. Kinds that differ in nothing but having a namespace are
/// one record.
#[derive(Debug, Deserialize)]
pub struct Whole<S, T = IgnoredAny> {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: S,
    /// What is; none before the first.
    #[serde(default = "none")]
    pub status: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

impl<S, T> Record for Whole<S, T>
where
    S: DeserializeOwned + Send + Sync + 'static,
    T: DeserializeOwned + Send + Sync + 'static,
{
    const KIND: &'static str = "object of propagation";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let mut object: Self = serde_json::from_str(object)?;
        object.metadata.managed_fields = None;
        Ok(Some(object))
    }
}
