//! ConfigMaps: texts and bytes by key, immutable when they say so.

use super::secrets::{SIZE_MAX, decoded_len, frozen};
use super::{Facts, Strategy};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::names;
use crate::apiserver::value::{at, map};
use serde_json::{Value, json};

pub(super) struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn validates_anew(&self) -> bool {
        true
    }

    fn validate(&self, _: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if let Some(old) = old {
            errors.extend(frozen(object, old, &["data", "binaryData"]));
        }
        let mut size = 0;
        for (key, value) in map(object, &["data"]).into_iter().flatten() {
            let path = format!("data[{key}]");
            for why in names::config_key(key) {
                errors.push(FieldError::invalid(path.clone(), json!(key), why));
            }
            if at(object, &["binaryData", key]).is_some() {
                errors.push(FieldError::invalid(
                    path,
                    json!(key),
                    "duplicate of key present in binaryData",
                ));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in map(object, &["binaryData"]).into_iter().flatten() {
            for why in names::config_key(key) {
                errors.push(FieldError::invalid(
                    format!("binaryData[{key}]"),
                    json!(key),
                    why,
                ));
            }
            size += decoded_len(value.as_str().unwrap_or_default());
        }
        if size > SIZE_MAX {
            errors.push(FieldError::too_long("[]", SIZE_MAX));
        }
        errors
    }
}
