//! Strategic merge patch: objects member by member, lists by their merge keys, and directives for the rest.

mod directives;
mod lists;

use crate::apiserver::error::{ApiError, StatusDetails};
use crate::apiserver::schema::{Go, Schema};
use crate::go::print;
use directives::{DELETE_FROM, MARKER, ORDER};
use lists::ListRule;
use serde_json::{Map, Value};

/// Members of an object.
type Members = Map<String, Value>;

/// Why a patch does not apply. The texts are known to clients.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failed {
    /// A directive is not written as it has to be.
    #[error("invalid patch format of {0}")]
    Format(&'static str),
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// Anything else: servers call it their own failure.
    #[error("{0}")]
    Other(String),
}

impl Failed {
    fn no_merge_key(item: &Members, key: &str) -> Self {
        let shown = print::members(item);
        Self::Other(format!(
            "map: {shown} does not contain declared merge key: {key}"
        ))
    }

    fn unknown_directive(directive: &Value, patch: &Members) -> Self {
        let (directive, patch) = (print::as_text(directive), print::members(patch));
        Self::Other(format!("unknown patch type: {directive} in map: {patch}"))
    }

    fn wrong_type(wanted: &str, found: &Value) -> Self {
        let found = print::type_of(found);
        Self::Other(format!("expected a {wanted}, but received a {found}"))
    }
}

impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Format(_) => Self::bad_request(failed.to_string()),
            Failed::ListOfLists => Self {
                details: Some(StatusDetails::default()),
                ..Self::plain(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                )
            },
            Failed::Other(text) => Self::plain(500, "", text),
        }
    }
}

/// Merges `patch` into `live`.
pub(super) fn apply(live: &Value, patch: Value, schema: &Schema) -> Result<Value, ApiError> {
    let (Value::Object(live), Value::Object(patch)) = (live.clone(), patch) else {
        return Err(ApiError::bad_request("invalid JSON document"));
    };
    // A patch cannot make another kind of an object.
    let kind = ["apiVersion", "kind"].map(|key| (key, live.get(key).cloned()));
    let mut merged = merge(live, patch, schema)?;
    for (key, value) in kind {
        if let Some(value) = value {
            merged.insert(key.to_owned(), value);
        }
    }
    Ok(Value::Object(merged))
}

/// The field that is merged; without one there are no lists to merge and no objects either.
fn field<'s>(schema: &'s Schema, name: &str) -> Result<&'s Schema, Failed> {
    if let Some(found) = schema.property(name) {
        return Ok(found);
    }
    Err(Failed::Other(match schema.go() {
        Go::Struct(known) => {
            let known = known.rsplit('.').next().unwrap_or_default();
            format!("unable to find api field in struct {known} for the json field {name:?}")
        }
        Go::Raw => {
            format!("unable to find api field in struct RawExtension for the json field {name:?}")
        }
        Go::Slice => {
            "merging an object in json but data type is not struct, instead is: slice".into()
        }
        Go::String(_) => {
            "merging an object in json but data type is not struct, instead is: string".into()
        }
        _ => "merging an object in json but data type is not struct, instead is: map".into(),
    }))
}

/// Merges the members of `patch` into `live`.
fn merge(mut live: Members, mut patch: Members, schema: &Schema) -> Result<Members, Failed> {
    if let Some(directive) = patch.get(MARKER) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(MARKER);
                Ok(patch)
            }
            Some("delete") => Ok(Members::new()),
            _ => Err(Failed::unknown_directive(directive, &patch)),
        };
    }
    directives::retain_keys(&mut live, &mut patch)?;
    ordered_lists(&mut live, &mut patch, schema)?;
    for (key, value) in patch {
        let deleted = key.starts_with(DELETE_FROM);
        let name = if deleted {
            directives::target(&key, DELETE_FROM)?.to_owned()
        } else {
            key
        };
        if value.is_null() {
            live.remove(&name);
            continue;
        }
        merge_member(&mut live, name, value, deleted, schema)?;
    }
    Ok(live)
}

/// Merges one member; `deleted` is a list of what to remove from a list.
fn merge_member(
    live: &mut Members,
    name: String,
    value: Value,
    deleted: bool,
    schema: &Schema,
) -> Result<(), Failed> {
    let merged = match (live.remove(&name), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let field = field(schema, &name)?;
            if field.patch_strategy().replace {
                Some(Value::Object(new))
            } else {
                Some(Value::Object(merge(old, new, field)?))
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let rule = ListRule::of(field(schema, &name)?)?;
            Some(Value::Array(lists::merge(old, new, &rule, deleted)?))
        }
        (old, _) if deleted => old,
        (old, mut new) => {
            if old.as_ref().map(print::type_of) != Some(print::type_of(&new)) {
                directives::discard_nulls(&mut new);
            }
            directives::removed(new)
        }
    };
    if let Some(merged) = merged {
        live.insert(name, merged);
    }
    Ok(())
}

/// Merges every list for which the patch says in what order its items are to be.
fn ordered_lists(live: &mut Members, patch: &mut Members, schema: &Schema) -> Result<(), Failed> {
    let ordered: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(ORDER))
        .cloned()
        .collect();
    for key in ordered {
        let order = match patch.remove(&key) {
            Some(Value::Array(order)) => order,
            other => {
                let found = other.unwrap_or_default();
                return Err(Failed::wrong_type("[]interface {}", &found));
            }
        };
        let name = directives::target(&key, ORDER)?;
        let old = list(live.get(name))?;
        let new = list(patch.get(name))?;
        let rule = ListRule::of(field(schema, name)?)?;
        lists::check_order(new.as_deref().unwrap_or_default(), &order, rule.key)?;
        let merged = match (&old, &new) {
            (None, None) => continue,
            (Some(old), None) => old.clone(),
            (None, Some(new)) => new
                .iter()
                .cloned()
                .filter_map(directives::removed)
                .collect(),
            (Some(old), Some(new)) if rule.merges => {
                lists::merge(old.clone(), new.clone(), &rule, false)?
            }
            (Some(_), Some(new)) => new.clone(),
        };
        let old = old.unwrap_or_default();
        lists::check_items(&[&old, new.as_deref().unwrap_or_default()])?;
        let arranged = lists::arrange(merged, &order, &old, rule.key)?;
        live.insert(name.to_owned(), Value::Array(arranged));
        patch.remove(name);
    }
    Ok(())
}

fn list(value: Option<&Value>) -> Result<Option<Vec<Value>>, Failed> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(Failed::wrong_type("[]interface {}", other)),
    }
}

#[cfg(test)]
mod tests;
