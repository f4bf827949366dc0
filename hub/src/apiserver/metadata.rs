//! The metadata that every object has: what the server fills in, and what is refused.

use super::names;
use super::value::{at, copy, list, map, number, put, same, text, texts};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind, FieldErrors};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
const ANNOTATIONS_MAX: usize = 256 * 1024;
const NAME_MAX: usize = 63;
const SUFFIX: usize = 5;

pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(object, &["metadata", "finalizers"])
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let list = (!finalizers.is_empty()).then(|| json!(finalizers));
    put(object, &["metadata", "finalizers"], list);
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some_and(|at| !at.is_null())
}

pub(crate) fn generation(object: &Value) -> i64 {
    number(object, &["metadata", "generation"]).unwrap_or_default()
}

pub(crate) fn set_generation(object: &mut Value, generation: i64) {
    let value = (generation != 0).then(|| json!(generation));
    put(object, &["metadata", "generation"], value);
}

/// As Kubernetes writes times: seconds, UTC.
pub(crate) fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Takes out of a new object what only the server says.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    for gone in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "uid",
    ] {
        put(object, &["metadata", gone], None);
    }
}

/// Fields that only the server says, on a new object.
pub(crate) fn fill_system_fields(object: &mut Value, uid: &str, now: DateTime<Utc>) {
    for gone in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        put(object, &["metadata", gone], None);
    }
    put(object, &["metadata", "uid"], Some(json!(uid)));
    put(
        object,
        &["metadata", "creationTimestamp"],
        Some(json!(timestamp(now))),
    );
}

/// A name that begins with `base` and goes on at random.
pub(crate) fn generated_name(base: &str, random: impl FnMut(usize) -> usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut end = base.len().min(NAME_MAX - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut random = random;
    let suffix = (0..SUFFIX)
        .filter_map(|_| LETTERS.get(random(LETTERS.len()) % LETTERS.len()))
        .map(|letter| char::from(*letter));
    base.get(..end)
        .unwrap_or_default()
        .chars()
        .chain(suffix)
        .collect()
}

/// How many seconds an object that is being deleted was given.
pub(crate) fn grace(object: &Value) -> Option<i64> {
    let found = at(object, &["metadata", "deletionGracePeriodSeconds"])?;
    found.as_i64().map(at_least)
}

/// Seconds of grace; less than nothing is a second, everywhere in deletions.
pub(crate) fn at_least(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// Puts the object's mark of deletion: at this time, after so many seconds of grace.
pub(crate) fn set_grace(object: &mut Value, end: DateTime<Utc>, seconds: i64) {
    let end = json!(timestamp(end));
    put(object, &["metadata", "deletionTimestamp"], Some(end));
    let place = ["metadata", "deletionGracePeriodSeconds"];
    put(object, &place, Some(json!(seconds)));
}

/// Puts the object's mark of deletion: now, without grace.
pub(crate) fn mark_deleting(object: &mut Value, now: DateTime<Utc>) {
    if !is_deleting(object) {
        let generation = generation(object);
        if generation > 0 {
            set_generation(object, generation + 1);
        }
        put(
            object,
            &["metadata", "deletionTimestamp"],
            Some(json!(timestamp(now))),
        );
    }
    put(
        object,
        &["metadata", "deletionGracePeriodSeconds"],
        Some(json!(0)),
    );
}

/// Fields that an update cannot change are what they were.
pub(crate) fn keep_system_fields(new: &mut Value, old: &Value) {
    if uid(new).is_empty() {
        copy(new, old, &["metadata", "uid"]);
    }
    copy(new, old, &["metadata", "creationTimestamp"]);
    if is_deleting(old) {
        copy(new, old, &["metadata", "deletionTimestamp"]);
    }
    if at(new, &["metadata", "deletionGracePeriodSeconds"]).is_none() {
        copy(new, old, &["metadata", "deletionGracePeriodSeconds"]);
    }
    put(new, &["metadata", "selfLink"], None);
}

/// What is wrong with the metadata of a new object; `check` is the rule for its name.
pub(crate) fn validate(
    object: &Value,
    namespaced: bool,
    check: impl Fn(&str, bool) -> Vec<String>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let generate = text(object, &["metadata", "generateName"]);
    if !generate.is_empty() {
        errors.extend(invalid(
            "metadata.generateName",
            generate,
            check(generate, true),
        ));
    }
    let name = name(object);
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        errors.extend(invalid("metadata.name", name, check(name, false)));
    }
    let namespace = namespace(object);
    if namespaced && namespace.is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    } else if namespaced {
        errors.extend(invalid(
            "metadata.namespace",
            namespace,
            names::label(namespace),
        ));
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(
            "metadata.namespace",
            "not allowed on this type",
        ));
    }
    if generation(object) < 0 {
        errors.push(FieldError::invalid(
            "metadata.generation",
            json!(generation(object)),
            "must be greater than or equal to 0",
        ));
    }
    errors.extend(labels(object));
    errors.extend(annotations(object));
    errors.extend(owners(object));
    errors.extend(finalizer_names(object));
    errors
}

/// What is wrong with the metadata of a changed object.
pub(crate) fn validate_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if is_deleting(old) {
        let before: BTreeSet<&str> = finalizers(old).into_iter().collect();
        let mut added: Vec<&str> = finalizers(new);
        added.retain(|one| !before.contains(one));
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|one| format!("{one:?}")).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            ));
        }
    }
    if resource_version(new).is_empty() {
        errors.push(FieldError::invalid(
            "metadata.resourceVersion",
            json!(""),
            "must be specified for an update",
        ));
    }
    if generation(new) < generation(old) {
        errors.push(FieldError::invalid(
            "metadata.generation",
            json!(generation(new)),
            "must not be decremented",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if !same(new, old, &["metadata", field]) {
            errors.push(immutable(new, &["metadata", field]));
        }
    }
    errors.extend(labels(new));
    errors.extend(annotations(new));
    errors.extend(owners(new));
    errors
}

/// The field at `path` may not change.
pub(crate) fn immutable(new: &Value, path: &[&str]) -> FieldError {
    let value = at(new, path).cloned().unwrap_or(Value::Null);
    FieldError::invalid(path.join("."), value, "field is immutable")
}

fn invalid(path: &str, value: &str, why: Vec<String>) -> FieldErrors {
    why.into_iter()
        .map(|why| FieldError::invalid(path, json!(value), why))
        .collect()
}

fn labels(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (key, value) in map(object, &["metadata", "labels"]).into_iter().flatten() {
        errors.extend(invalid("metadata.labels", key, names::qualified(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid("metadata.labels", value, names::label_value(value)));
    }
    errors
}

fn annotations(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let mut size = 0;
    for (key, value) in map(object, &["metadata", "annotations"])
        .into_iter()
        .flatten()
    {
        let wrong = names::qualified(&key.to_lowercase());
        errors.extend(invalid("metadata.annotations", key, wrong));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(
            "metadata.annotations",
            ANNOTATIONS_MAX,
        ));
    }
    errors
}

/// Owners as a type of the server prints them.
fn owners_as_typed(all: &[Value]) -> Arc<str> {
    let fields = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let shown: Vec<String> = all
        .iter()
        .map(|owner| {
            let given = fields.iter().filter_map(|key| {
                let value = owner.get(*key).filter(|value| !value.is_null())?;
                Some(format!("{}:{value}", json!(key)))
            });
            format!("{{{}}}", given.collect::<Vec<_>>().join(","))
        })
        .collect();
    format!("[{}]", shown.join(",")).into()
}

fn owners(object: &Value) -> FieldErrors {
    const PATH: &str = "metadata.ownerReferences";
    let mut errors = FieldErrors::new();
    let all = list(object, &["metadata", "ownerReferences"]);
    let mut controller: Option<String> = None;
    // Said of every further one, put together once.
    let shown: OnceCell<Arc<str>> = OnceCell::new();
    for owner in all {
        let field = |name: &str| text(owner, &[name]).to_owned();
        let version = field("apiVersion");
        let (_, of_group) = version.split_once('/').unwrap_or(("", version.as_str()));
        if of_group.is_empty() || of_group.contains('/') {
            errors.push(FieldError::invalid(
                format!("{PATH}.apiVersion"),
                json!(version),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if field(key).is_empty() {
                errors.push(FieldError::invalid(
                    format!("{PATH}.{key}"),
                    json!(""),
                    "must not be empty",
                ));
            }
        }
        if version == "v1" && field("kind") == "Event" {
            errors.push(FieldError::invalid(
                PATH,
                owner.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if at(owner, &["controller"]) == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", field("kind"), field("name"));
            match &controller {
                Some(first) => errors.push(FieldError::new(
                    PATH,
                    FieldErrorKind::Invalid,
                    BadValue::Typed(shown.get_or_init(|| owners_as_typed(all)).clone()),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    ),
                )),
                None => controller = Some(this),
            }
        }
    }
    errors
}

fn finalizer_names(object: &Value) -> FieldErrors {
    const PATH: &str = "metadata.finalizers";
    let all = finalizers(object);
    let mut errors: FieldErrors = all
        .iter()
        .flat_map(|one| invalid(PATH, one, names::qualified(one)))
        .collect();
    if all.contains(&ORPHAN) && all.contains(&FOREGROUND) {
        errors.push(FieldError::invalid(
            PATH,
            json!(all),
            format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"),
        ));
    }
    errors
}

/// Finalizers of built-in kinds are the known ones, or have a domain.
pub(crate) fn known_finalizers(object: &Value) -> FieldErrors {
    const KNOWN: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];
    finalizers(object)
        .into_iter()
        .enumerate()
        .filter(|(_, one)| !one.contains('/') && !KNOWN.contains(one))
        .map(|(index, one)| {
            FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                json!(one),
                "name is neither a standard finalizer name nor is it fully qualified",
            )
        })
        .collect()
}

/// Warnings about new finalizers without a domain, for kinds where they are not refused.
pub(crate) fn unqualified_finalizers(object: &Value, old: Option<&Value>) -> Vec<String> {
    let before: BTreeSet<&str> = old.map(finalizers).into_iter().flatten().collect();
    finalizers(object)
        .into_iter()
        .filter(|one| !before.contains(one))
        .filter(|one| !one.contains('/') && *one != ORPHAN && *one != FOREGROUND)
        .map(|one| {
            format!(
                "metadata.finalizers: {one:?}: prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers",
                if one.contains('.') { " including a path (/)" } else { "" }
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::names::NameRule;

    fn wrong(object: &Value) -> Vec<String> {
        let check = |name: &str, prefix| NameRule::Subdomain.check(name, prefix);
        let errors = validate(object, true, check);
        errors.into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn metadata_of_new_objects() {
        let good = json!({"metadata": {"name": "a", "namespace": "b",
            "labels": {"a/b": "c"}, "annotations": {"A/B": "any thing"},
            "finalizers": ["x.y/z"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "n", "uid": "u"}]}});
        assert_eq!(wrong(&good), Vec::<String>::new());
        let bad = json!({"metadata": {"name": "A", "namespace": "b.c", "generateName": "_",
            "labels": {"a b": "c d"}, "annotations": {"a/b/c": ""},
            "finalizers": ["x y", "orphan", "foregroundDeletion"], "ownerReferences": [{}]}});
        assert_eq!(
            wrong(&bad),
            [
                "metadata.generateName",
                "metadata.name",
                "metadata.namespace",
                "metadata.labels",
                "metadata.labels",
                "metadata.annotations",
                "metadata.ownerReferences.apiVersion",
                "metadata.ownerReferences.kind",
                "metadata.ownerReferences.name",
                "metadata.ownerReferences.uid",
                "metadata.finalizers",
                "metadata.finalizers",
            ]
        );
    }

    #[test]
    fn updates_keep_what_is_fixed() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "generation": 3,
            "creationTimestamp": "t", "deletionTimestamp": "d", "resourceVersion": "5"}});
        let mut new = json!({"metadata": {"name": "b", "finalizers": ["x/y"]}});
        keep_system_fields(&mut new, &old);
        let paths: Vec<String> = validate_update(&new, &old)
            .into_iter()
            .map(|error| error.path)
            .collect();
        assert_eq!(
            paths,
            [
                "metadata.finalizers",
                "metadata.resourceVersion",
                "metadata.generation",
                "metadata.name"
            ]
        );
    }

    #[test]
    fn generated_names_fit() {
        let name = generated_name(&"a".repeat(80), |_| 0);
        assert_eq!(name, format!("{}bbbbb", "a".repeat(58)));
    }
}
