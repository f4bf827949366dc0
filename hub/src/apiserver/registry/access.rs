//! Between the store and the verbs: objects in the version of the request, and commits.

use super::Registry;
use crate::apiserver::error::ApiError;
use crate::apiserver::metadata::finalizers;
use crate::apiserver::request::Context;
use crate::apiserver::scheme::{Resource, Scheme};
use crate::apiserver::store::{self, Change, Class, Expect, Key, Stored, Write};
use crate::apiserver::value::{at, put, text};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

const LEASES: &str = "coordination.k8s.io";

/// How long an object may be as it is stored. What is sent, as a whole object or as its status, has 3 MiB at the
/// most; beside both of them there is room for defaults and for who owns which field.
const MOST_STORED: usize = 8 << 20;
/// By how much an object may become longer that loses a finalizer: that somebody took it is noted.
const RELEASING: usize = 4096;

/// How long an object may be that takes the place of one of this length. One that is too long already may shrink,
/// and be released, or nobody could ever delete it.
fn most_stored(old: usize, is_released: impl FnOnce() -> bool) -> usize {
    let with_note = old.saturating_add(RELEASING);
    match with_note > MOST_STORED && is_released() {
        true => with_note,
        false => MOST_STORED.max(old),
    }
}

/// Whether an object loses a finalizer and gets nothing but the note of who took it.
fn is_released(old: &Value, new: &Value) -> bool {
    let differs = |old: &Value, new: &Value, but: &[&str]| {
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
            return true;
        };
        let rest =
            |of: &Map<String, Value>| of.keys().filter(|it| !but.contains(&it.as_str())).count();
        let mut kept = new.iter().filter(|(key, _)| !but.contains(&key.as_str()));
        rest(old) != rest(new) || kept.any(|(key, value)| old.get(key) != Some(value))
    };
    let noted = ["finalizers", "managedFields", "resourceVersion"];
    finalizers(new).len() < finalizers(old).len()
        && !differs(old, new, &["apiVersion", "metadata"])
        && !differs(&old["metadata"], &new["metadata"], &noted)
}

/// The group that the objects of a kind are stored in: events have two groups and one place.
fn storage_group(resource: &Resource) -> &str {
    let key = resource.storage_key.as_ref();
    key.rsplit_once('/').map_or("", |(group, _)| group)
}

/// The key of an object of a kind.
pub(crate) fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    if resource.namespaced {
        Key::new(namespace, name)
    } else {
        Key::cluster(name)
    }
}

#[derive(Deserialize)]
struct TypeOnly<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
}

fn is_of(json: &[u8], api_version: &str) -> bool {
    let start = format!("{{\"apiVersion\":\"{api_version}\"");
    if json.starts_with(start.as_bytes()) {
        return true;
    }
    serde_json::from_slice::<TypeOnly<'_>>(json).is_ok_and(|of| of.api_version == api_version)
}

fn decoded(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("invariant: what is stored is JSON")
}

/// Rewrites a stored object for a request.
fn converted(scheme: &Scheme, resource: &Resource, stored: Value) -> Value {
    let mut stored = stored;
    let of = text(&stored, &["apiVersion"]).to_owned();
    let (group, version) = of.split_once('/').unwrap_or(("", &of));
    let from = scheme
        .snapshot()
        .kind(group, version, text(&stored, &["kind"]));
    match from {
        Some(from) => {
            if resource.is_custom() {
                reshape(&from, &mut stored);
            }
            from.convert(&mut stored, resource);
        }
        None => put(
            &mut stored,
            &["apiVersion"],
            Some(json!(resource.api_version())),
        ),
    }
    if resource.is_custom() {
        resource.schema.prune(&mut stored);
    }
    stored
}

/// Brings an object into the shape that its version has today.
fn reshape(resource: &Resource, object: &mut Value) {
    resource.schema.prune(object);
    resource.apply_defaults(object);
}

impl Registry {
    /// A stored object in the version of the request.
    pub(crate) fn view(&self, resource: &Resource, stored: &Stored) -> Value {
        let json = stored.json();
        let mut object = decoded(&json);
        if !is_of(&json, &resource.api_version()) {
            return converted(&self.inner.scheme, resource, object);
        }
        if self.is_older_than_schema(resource, stored) {
            reshape(resource, &mut object);
        }
        object
    }

    /// The same, encoded; shared with the store when nothing has to be rewritten.
    pub(crate) fn shown(&self, resource: &Resource, stored: &Arc<Stored>) -> Bytes {
        let json = stored.bytes();
        if is_of(&json, &resource.api_version()) && !self.is_older_than_schema(resource, stored) {
            json
        } else {
            encode(&self.view(resource, stored))
        }
    }

    /// Whether a request for this version is answered with the very text that is stored.
    pub(super) fn is_shown_as_stored(&self, resource: &Resource, stored: &Stored) -> bool {
        is_of(&stored.json(), &resource.api_version())
            && !self.is_older_than_schema(resource, stored)
    }

    /// Whether an object may lack defaults that its kind has by now.
    fn is_older_than_schema(&self, resource: &Resource, stored: &Stored) -> bool {
        resource.is_custom()
            && self
                .reshaped(&resource.storage_key)
                .is_some_and(|since| stored.revision() < since)
    }

    /// The object that a request is about, as it is stored.
    pub(crate) fn stored(&self, context: &Context) -> Option<Arc<Stored>> {
        let resource = &context.resource;
        let key = key(resource, &context.namespace, &context.name);
        self.inner.store.get(&resource.storage_key, &key)
    }

    /// Whether a stored object is in the version that is stored today.
    pub(super) fn is_current(&self, resource: &Resource, stored: &Stored) -> bool {
        let (group, version) = (storage_group(resource), &resource.storage_version);
        let of = if group.is_empty() {
            version.to_string()
        } else {
            format!("{group}/{version}")
        };
        is_of(&stored.json(), &of)
    }

    /// Writes an object of the version of the request, unless it is too long.
    pub(super) async fn commit(
        &self,
        context: &Context,
        key: Key,
        expect: Expect,
        object: Value,
        class: Class,
    ) -> Result<Arc<Stored>, store::Error> {
        let stored = self.inner.store.get(&context.resource.storage_key, &key);
        let most = stored.map_or(MOST_STORED, |old| {
            most_stored(old.json_len(), || is_released(&old.value(), &object))
        });
        self.put(context, key, expect, object, class, most).await
    }

    /// Writes an object that is to be deleted, however long it is: what marks it as such is little.
    pub(super) async fn commit_marked(
        &self,
        context: &Context,
        key: Key,
        expect: Expect,
        object: Value,
    ) -> Result<Arc<Stored>, store::Error> {
        let class = Class::Durable;
        self.put(context, key, expect, object, class, usize::MAX)
            .await
    }

    async fn put(
        &self,
        context: &Context,
        key: Key,
        expect: Expect,
        object: Value,
        class: Class,
        most: usize,
    ) -> Result<Arc<Stored>, store::Error> {
        let resource = &context.resource;
        context.holding.let_go();
        let mut object = object;
        let (group, version) = (storage_group(resource), &resource.storage_version);
        if *version != resource.version || group != resource.group.as_ref() {
            let scheme = &self.inner.scheme;
            if let Some(to) = scheme.resource(group, version, &resource.plural) {
                resource.convert(&mut object, &to);
                if to.is_custom() {
                    reshape(&to, &mut object);
                }
            } else {
                // A stored version that is not served any more; objects differ in nothing else.
                let of = format!("{group}/{version}");
                put(&mut object, &["apiVersion"], Some(json!(of)));
            }
        }
        let write = Write {
            resource: resource.storage_key.clone(),
            key,
            expect,
            change: Change::Put(object),
            class,
        };
        self.inner.store.commit_within(write, most).await
    }

    /// Removes an object at a revision.
    pub(super) async fn remove(
        &self,
        context: &Context,
        key: Key,
        revision: u64,
    ) -> Result<Arc<Stored>, store::Error> {
        context.holding.let_go();
        self.inner
            .store
            .commit(Write {
                resource: context.resource.storage_key.clone(),
                key,
                expect: Expect::Revision(revision),
                change: Change::Delete,
                class: Class::Durable,
            })
            .await
    }
}

/// What a failure of the store is to clients.
pub(super) fn failed(error: &store::Error) -> ApiError {
    match error {
        store::Error::Full { .. } => ApiError::plain(507, "InsufficientStorage", error.to_string()),
        store::Error::Closed => ApiError::unavailable(error.to_string()),
        store::Error::Unfit { .. } => ApiError::bad_request(error.to_string()),
        store::Error::TooLong { length, most, .. } => ApiError::too_large(&format!(
            "the object would have {length} bytes with what the server keeps of it, and the limit is {most}; make it smaller, or several of it"
        )),
        _ => ApiError::internal(error),
    }
}

pub(crate) fn encode(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// Whether a write of a Lease only says that its holder is still there.
pub(super) fn is_renewal(resource: &Resource, new: &Value, old: &Value) -> bool {
    if resource.group.as_ref() != LEASES || resource.plural.as_ref() != "leases" {
        return false;
    }
    let holder = |object| at(object, &["spec", "holderIdentity"]).and_then(Value::as_str);
    holder(old).is_some_and(|holder| !holder.is_empty()) && same_but_time(new, old)
}

/// What a renewal moves in one part of a Lease.
fn moves(part: &str) -> &'static [&'static str] {
    match part {
        "metadata" => &["managedFields", "resourceVersion"],
        "spec" => &["renewTime"],
        _ => &[],
    }
}

/// Whether two Leases differ in nothing but what a renewal moves. Compared where they stand: nothing is
/// written as often as these.
fn same_but_time(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return false;
    };
    let same = |part: &String, a: &Value| match (a, b.get(part)) {
        (Value::Object(a), Some(Value::Object(b))) => {
            let stays = |key: &String| !moves(part).contains(&key.as_str());
            let rest = |map: &Map<String, Value>| map.keys().filter(|key| stays(key)).count();
            rest(a) == rest(b)
                && a.iter()
                    .all(|(key, value)| !stays(key) || b.get(key) == Some(value))
        }
        (a, b) => Some(a) == b,
    };
    a.len() == b.len() && a.iter().all(|(part, value)| same(part, value))
}

/// An object without its kind and version, as built-in kinds stand in lists.
pub(crate) fn without_type(object: &[u8]) -> Option<Vec<u8>> {
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(object).ok()?;
    fields.remove("apiVersion");
    fields.remove("kind");
    serde_json::to_vec(&fields).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_a_lease_makes_a_renewal() {
        let kind = Resource {
            group: LEASES.into(),
            plural: "leases".into(),
            ..crate::apiserver::registry::testing::bare()
        };
        let lease = |holder: &str, at: &str, version: &str| {
            json!({"metadata": {"resourceVersion": version, "managedFields": [at]},
                "spec": {"holderIdentity": holder, "renewTime": at, "leaseTransitions": 1}})
        };
        let old = lease("a", "1", "1");
        assert!(is_renewal(&kind, &lease("a", "2", "2"), &old));
        assert!(!is_renewal(&kind, &lease("b", "2", "2"), &old));
        assert!(!is_renewal(
            &kind,
            &lease("", "2", "2"),
            &lease("", "1", "1")
        ));
        let mut other = lease("a", "2", "2");
        other["spec"]["leaseTransitions"] = json!(2);
        assert!(!is_renewal(&kind, &other, &old));
        let mut fewer = lease("a", "2", "2");
        fewer["spec"] = json!({"holderIdentity": "a", "renewTime": "2"});
        assert!(!is_renewal(&kind, &fewer, &old) && !is_renewal(&kind, &old, &fewer));
        let mut first = old.clone();
        first["spec"] = json!({"holderIdentity": "a", "leaseTransitions": 1});
        assert!(is_renewal(&kind, &old, &first));
        let mut labelled = lease("a", "2", "2");
        labelled["metadata"]["labels"] = json!({"k": "v"});
        assert!(!is_renewal(&kind, &labelled, &old));
    }

    #[test]
    fn what_is_too_long_may_shrink_and_be_released() {
        // How long the object was, whether it loses a finalizer, and how long it may be.
        for (old, is_released, most) in [
            (0, false, MOST_STORED),
            (100, true, MOST_STORED),
            (MOST_STORED, false, MOST_STORED),
            (MOST_STORED, true, MOST_STORED + RELEASING),
            (MOST_STORED + 5, false, MOST_STORED + 5),
            (10 * MOST_STORED, false, 10 * MOST_STORED),
            (10 * MOST_STORED, true, 10 * MOST_STORED + RELEASING),
        ] {
            assert_eq!(
                most_stored(old, || is_released),
                most,
                "{old} {is_released}"
            );
        }
    }

    #[test]
    fn types_are_told_apart() {
        assert!(is_of(br#"{"apiVersion":"v1","kind":"A"}"#, "v1"));
        assert!(is_of(
            br#"{"aggregationRule":{},"apiVersion":"r/v1"}"#,
            "r/v1"
        ));
        assert!(!is_of(br#"{"apiVersion":"v1"}"#, "v2"));
        let bare = without_type(br#"{"apiVersion":"v1","data":{"a":"b"},"kind":"A"}"#);
        assert_eq!(bare.as_deref(), Some(&br#"{"data":{"a":"b"}}"#[..]));
    }
}
