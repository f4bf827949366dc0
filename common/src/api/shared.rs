//! Parts of objects that many of them share: on the wire as if each had its own.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

pub(super) fn serialize<T: Serialize, S: Serializer>(
    part: &Option<Arc<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    part.as_deref().serialize(serializer)
}

pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<T>>, D::Error> {
    let part = Option::<T>::deserialize(deserializer)?;
    Ok(part.map(Arc::new))
}
