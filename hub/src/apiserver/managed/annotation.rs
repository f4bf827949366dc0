//! What client-side apply left in an annotation, for the one manager that may follow it.

use super::check::check;
use super::compare::compare;
use super::entries::Id;
use super::owned::fields_of;
use super::set::Set;
use super::update::Rules;
use serde_json::Value;

/// The configuration that was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that applied on the client before it could on the server.
const FOLLOWER: &str = "kubectl";

/// All annotations of an object together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn last_applied(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    let text = annotations.get(LAST_APPLIED)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The fields that client-side apply set and that still are as it set them.
pub(super) fn left_by_client_side_apply(live: &Value, rules: &Rules<'_>, id: &Id) -> Option<Set> {
    if id.manager != FOLLOWER {
        return None;
    }
    let applied: Value = serde_json::from_str(last_applied(live)?).ok()?;
    if applied.get("apiVersion")?.as_str()? != rules.version {
        return None;
    }
    check(&applied, rules.of, false).ok()?;
    let changes = compare(&applied, live, rules.of);
    let set = fields_of(&applied, rules.of)
        .difference(&changes.modified)
        .difference(&changes.added)
        .difference(&changes.removed);
    Some(set)
}

/// Keeps the annotation of an object in step with what was applied on the server.
pub(super) fn keep_in_step(object: &mut Value, config: &Value, manager: &str) {
    if manager != FOLLOWER || last_applied(object).is_none() {
        return;
    }
    let mut applied = config.clone();
    if let Some(Value::Object(annotations)) = applied
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{applied}\n");
    let Some(Value::Object(annotations)) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
    else {
        return;
    };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    let size: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}
