//! Objects in the versions that their managers speak. Versions of a custom kind differ in nothing but
//! their schemas, so an object is one of another version if the schema there has all its fields.

use super::check::check;
use super::types::Type;
use super::update::Rules;
use crate::apiserver::catalogue::LazySchema;
use crate::apiserver::error::quote;
use serde_json::Value;
use std::sync::Arc;

/// The versions of a custom kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Others<'r> {
    pub(super) group: &'r str,
    pub(super) kind: &'r str,
    pub(super) versions: &'r [(Arc<str>, LazySchema)],
}

impl<'r> Rules<'r> {
    /// The version in whose type the fields of a manager are looked at.
    pub(super) fn named<'v>(&self, version: &'v str) -> &'v str
    where
        'r: 'v,
    {
        match self.others {
            Some(_) => version,
            None => self.version,
        }
    }

    /// The type of an object in a version; why it is none there.
    pub(super) fn in_version(&self, object: &Value, version: &str) -> Result<Type<'r>, String> {
        let Some(others) = self.others.filter(|_| version != self.version) else {
            return Ok(self.of);
        };
        let (group, name) = version.split_once('/').unwrap_or(("", version));
        if group != others.group {
            return Err(format!(
                "{}, Kind={} is unstructured and is not suitable for converting to {}",
                self.version,
                others.kind,
                quote(version)
            ));
        }
        let mut all = others.versions.iter();
        let found = all.find(|(known, _)| &**known == name);
        let (_, schema) = found.ok_or_else(|| {
            format!("request to convert CR to an invalid group/version: {version}")
        })?;
        let of = Type::of(schema);
        check(object, of, false).map_err(|wrong| wrong.to_string())?;
        Ok(of)
    }
}
