//! Objects in the versions that their managers speak.

use super::check::check;
use super::compare::{Changes, compare};
use super::types::Type;
use super::update::Rules;
use crate::apiserver::scheme::{LazySchema, Resource};
use crate::go::quote;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// A kind in all its versions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Others<'r> {
    /// Versions of a custom kind differ in nothing but their schemas: an object is one of another
    /// version if the schema there has all its fields.
    Custom {
        group: &'r str,
        kind: &'r str,
        versions: &'r [(Arc<str>, LazySchema)],
    },
    /// Those of a built-in one are converted; a version that is not known is taken for the one written.
    BuiltIn(&'r [Arc<Resource>]),
}

impl<'r> Rules<'r> {
    /// The version in which the fields of a manager are looked at.
    pub(super) fn named<'v>(&self, version: &'v str) -> &'v str
    where
        'r: 'v,
    {
        match self.others {
            Others::BuiltIn(_) if self.built_in(version).is_none() => self.version,
            Others::BuiltIn(_) | Others::Custom { .. } => version,
        }
    }

    /// What changes when it is looked at in another version.
    pub(super) fn compare_in(
        &self,
        version: &str,
        old: &Value,
        new: &Value,
    ) -> Result<Changes, String> {
        let convert = |what: &str, object| {
            let read = self.convert(object, self.version, version);
            read.map_err(|why| format!("failed to convert {what} object: {why}"))
        };
        let ((old, _), (new, of)) = (convert("old", old)?, convert("new", new)?);
        let changes = compare(&old, &new, of);
        Ok(match self.others {
            Others::Custom { .. } => changes,
            Others::BuiltIn(_) => changes.without(self.beyond),
        })
    }

    /// An object of one version in another, and its type there; why it is none.
    pub(super) fn convert<'o>(
        &self,
        object: &'o Value,
        from: &str,
        to: &str,
    ) -> Result<(Cow<'o, Value>, Type<'r>), String> {
        let (group, kind, versions) = match self.others {
            Others::BuiltIn(_) => {
                let of = match self.built_in(to) {
                    Some(there) if to != self.version => Type::of(&there.schema),
                    _ => self.of,
                };
                let (Some(here), Some(there)) = (self.built_in(from), self.built_in(to)) else {
                    return Ok((Cow::Borrowed(object), of));
                };
                if from == to {
                    return Ok((Cow::Borrowed(object), of));
                }
                let mut object = object.clone();
                here.convert(&mut object, there);
                return Ok((Cow::Owned(object), of));
            }
            Others::Custom { .. } if to == self.version => {
                return Ok((Cow::Borrowed(object), self.of));
            }
            Others::Custom {
                group,
                kind,
                versions,
            } => (group, kind, versions),
        };
        let (wanted, name) = to.split_once('/').unwrap_or(("", to));
        if wanted != group {
            let (own, wanted) = (self.version, quote(to));
            return Err(format!(
                "{own}, Kind={kind} is unstructured and is not suitable for converting to {wanted}"
            ));
        }
        let mut all = versions.iter();
        let (_, schema) = all
            .find(|(known, _)| &**known == name)
            .ok_or_else(|| format!("request to convert CR to an invalid group/version: {to}"))?;
        let of = Type::of(schema);
        check(object, of, false).map_err(|wrong| wrong.to_string())?;
        Ok((Cow::Borrowed(object), of))
    }

    /// A built-in kind in one of its versions.
    fn built_in(&self, version: &str) -> Option<&'r Resource> {
        let Others::BuiltIn(versions) = self.others else {
            return None;
        };
        let mut all = versions.iter();
        all.find(|one| one.api_version() == version)
            .map(|one| &**one)
    }
}
