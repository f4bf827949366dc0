//! An object as it lies in memory: its encoded form, and where in it the parts are that lists need.

use super::key::{Key, split};
use super::scan::{Span, places};
use crate::pack::{Packer, Sample};
use bytes::Bytes;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One version of one object; never changes. Shared by the current state, the history and whoever
/// reads it.
///
/// The encoded object and its key lie in one allocation, for there may be a hundred thousand.
pub struct Stored {
    revision: u64,
    id: u64,
    /// The object, as text or packed, then its key as `namespace/name`, then its UID.
    data: Box<[u8]>,
    /// What the object was packed by; none where it lies as text.
    sample: Option<Arc<Sample>>,
    json_len: u32,
    /// How long the object is as it lies in `data`.
    held_len: u32,
    key_len: u32,
    deleting: bool,
    metadata: Span,
    labels: Span,
    owners: Span,
}

impl Stored {
    /// Takes an encoded object that holds its revision; `None` if it is none.
    pub(super) fn read(
        key: &str,
        id: u64,
        revision: u64,
        json: &[u8],
        packer: &mut Packer,
    ) -> Option<Self> {
        let at = places(json)?;
        let (held, sample) = packer.pack(json);
        let uid = json.get(at.uid.range())?;
        let mut data = Vec::with_capacity(held.len() + key.len() + uid.len());
        for part in [&*held, key.as_bytes(), uid] {
            data.extend_from_slice(part);
        }
        Some(Self {
            revision,
            id,
            data: data.into_boxed_slice(),
            sample,
            json_len: u32::try_from(json.len()).ok()?,
            held_len: u32::try_from(held.len()).ok()?,
            key_len: u32::try_from(key.len()).ok()?,
            deleting: at.deleting,
            metadata: at.metadata,
            labels: at.labels,
            owners: at.owners,
        })
    }

    /// The revision that made this version: its resourceVersion.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision that created the object, which is also its number on disk.
    pub fn created(&self) -> u64 {
        self.id
    }

    /// The object as JSON, with `metadata.resourceVersion`.
    pub fn json(&self) -> Cow<'_, [u8]> {
        let held = self.data.get(..self.held_len as usize).unwrap_or_default();
        match &self.sample {
            Some(sample) => Cow::Owned(sample.unpack(held, self.json_len())),
            None => Cow::Borrowed(held),
        }
    }

    /// How long the object is as JSON.
    pub fn json_len(&self) -> usize {
        self.json_len as usize
    }

    /// The object as JSON; shared and not copied where it lies as text.
    pub fn bytes(self: &Arc<Self>) -> Bytes {
        struct Shared(Arc<Stored>);
        impl AsRef<[u8]> for Shared {
            fn as_ref(&self) -> &[u8] {
                self.0.data.get(..self.0.json_len()).unwrap_or_default()
            }
        }
        match self.json() {
            Cow::Owned(json) => Bytes::from(json),
            Cow::Borrowed(_) => Bytes::from_owner(Shared(self.clone())),
        }
    }

    /// The object, decoded.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json()).expect("invariant: what is stored is JSON")
    }

    /// Decodes only `metadata`.
    pub fn metadata(&self) -> Value {
        serde_json::from_slice(&self.part(self.metadata))
            .expect("invariant: what is stored is JSON")
    }

    /// Namespace and name as they are ordered.
    pub(super) fn joined(&self) -> &str {
        std::str::from_utf8(self.joined_bytes()).unwrap_or_default()
    }

    /// Namespace and name as they are ordered, for comparing.
    pub(super) fn joined_bytes(&self) -> &[u8] {
        let (start, len) = (self.held_len as usize, self.key_len as usize);
        self.data.get(start..start + len).unwrap_or_default()
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// The namespace; empty for what has none.
    pub fn namespace(&self) -> &str {
        split(self.joined()).0
    }

    /// The name.
    pub fn name(&self) -> &str {
        split(self.joined()).1
    }

    /// `metadata.uid`; empty if it has none.
    pub fn uid(&self) -> &str {
        let start = self.held_len as usize + self.key_len as usize;
        let uid = self.data.get(start..).unwrap_or_default();
        std::str::from_utf8(uid).unwrap_or_default()
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn deleting(&self) -> bool {
        self.deleting
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> BTreeMap<String, String> {
        if self.labels.is_empty() {
            return BTreeMap::new();
        }
        serde_json::from_slice(&self.part(self.labels)).unwrap_or_default()
    }

    /// Whether the object names any owner; cheap.
    pub fn owned(&self) -> bool {
        self.owners.len > 2
    }

    /// Whether both name the same owners in the same words; cheap where they name none.
    pub fn owned_like(&self, other: &Self) -> bool {
        self.owners.len == other.owners.len
            && (!self.owned() || self.part(self.owners) == other.part(other.owners))
    }

    /// `metadata.ownerReferences`, decoded.
    pub fn owners(&self) -> Vec<Value> {
        if self.owners.is_empty() {
            return Vec::new();
        }
        serde_json::from_slice(&self.part(self.owners)).unwrap_or_default()
    }

    /// What this version costs in memory, about.
    pub(super) fn cost(&self) -> usize {
        self.data.len() + 128
    }

    /// This version with another revision: what a deletion tells.
    pub(super) fn at_revision(&self, revision: u64) -> Self {
        let json = self.json();
        let again = places(&json).expect("invariant: what is stored has metadata");
        let at = again.revision.unwrap_or_default();
        let mut packer = Packer::like(self.sample.as_ref());
        splice(&json, at, self.joined(), self.id, revision, &mut packer)
    }

    fn part(&self, span: Span) -> Cow<'_, [u8]> {
        match self.json() {
            Cow::Borrowed(json) => Cow::Borrowed(json.get(span.range()).unwrap_or_default()),
            Cow::Owned(json) => Cow::Owned(json.get(span.range()).unwrap_or_default().to_vec()),
        }
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the content, which may be a secret.
        write!(f, "{}@{}", self.key(), self.revision)
    }
}

/// How deep an object may be nested, with what the server notes of its fields. Readers of JSON stop at
/// 128 levels, and an object comes to them within lists, events and other objects.
const MOST_DEEP: usize = 100;

/// How many lists and objects of a JSON text lie within each other.
fn depth(json: &[u8]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' if !in_text => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// An encoded object that waits for its revision. Encoded by the caller, so that the one writer
/// has only bytes to copy.
#[derive(Debug)]
pub(super) struct Draft {
    json: Vec<u8>,
    at: Span,
}

impl Draft {
    /// Encodes an object; says what it lacks to be one.
    pub(super) fn new(mut object: Value) -> Result<Self, &'static str> {
        let metadata = object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .ok_or("it has no metadata")?;
        metadata.insert("resourceVersion".to_owned(), Value::String(String::new()));
        let json = serde_json::to_vec(&object).map_err(|_| "it cannot be encoded")?;
        if depth(&json) > MOST_DEEP {
            return Err("it is nested deeper than 100 levels");
        }
        let found = places(&json).ok_or("its metadata cannot be read")?;
        let at = found.revision.ok_or("its metadata cannot be read")?;
        Ok(Self { json, at })
    }

    /// The object with its revision.
    pub(super) fn finish(&self, key: &Key, id: u64, revision: u64, packer: &mut Packer) -> Stored {
        splice(&self.json, self.at, key.as_str(), id, revision, packer)
    }

    /// How long it is, without its revision.
    pub(super) fn len(&self) -> usize {
        self.json.len()
    }
}

/// Puts a revision into an encoded object, in place of what is at `at`.
fn splice(json: &[u8], at: Span, key: &str, id: u64, revision: u64, packer: &mut Packer) -> Stored {
    let digits = revision.to_string();
    let (before, after) = (&json[..at.range().start], &json[at.range().end..]);
    let whole = [before, digits.as_bytes(), after].concat();
    // Read again rather than shifted: what is true of the bytes is read from the bytes.
    Stored::read(key, id, revision, &whole, packer).expect("invariant: a draft has metadata")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_revision_is_spliced_in() {
        let object = json!({
            "kind": "ConfigMap",
            "metadata": {"name": "n", "resourceVersion": "7", "uid": "u", "labels": {"a": "b"}},
        });
        let stored = Draft::new(object).expect("fit").finish(
            &Key::new("ns", "n"),
            3,
            4711,
            &mut Packer::default(),
        );
        assert_eq!(stored.value()["metadata"]["resourceVersion"], "4711");
        assert_eq!(
            (stored.namespace(), stored.name(), stored.uid()),
            ("ns", "n", "u")
        );
        assert_eq!(stored.labels().get("a").map(String::as_str), Some("b"));
        let later = stored.at_revision(5000);
        assert_eq!(later.value()["metadata"]["resourceVersion"], "5000");
        assert_eq!((later.revision(), later.created()), (5000, 3));
        let shared = Arc::new(later);
        assert_eq!(*shared.bytes(), *shared.json());
    }

    #[test]
    fn a_packed_object_is_read_like_any_other() {
        let object = |name: &str| {
            json!({
                "apiVersion": "v1",
                "data": {"text": "a long text ".repeat(200)},
                "metadata": {
                    "name": name, "uid": format!("uid-of-{name}"), "labels": {"a": name},
                    "ownerReferences": [{"name": name}], "deletionTimestamp": "now",
                },
            })
        };
        let mut packer = Packer::default();
        for (name, revision) in [("one", 1), ("other", 200)] {
            let draft = Draft::new(object(name)).expect("fit");
            let stored = draft.finish(&Key::new("ns", name), revision, revision, &mut packer);
            let stored = Arc::new(stored);
            assert!(stored.sample.is_some() && stored.data.len() < stored.json_len() / 4);
            let mut whole = object(name);
            whole["metadata"]["resourceVersion"] = json!(revision.to_string());
            assert_eq!(stored.value(), whole);
            assert_eq!(stored.metadata(), whole["metadata"]);
            assert_eq!(*stored.bytes(), *stored.json());
            assert_eq!(stored.json().len(), stored.json_len());
            assert_eq!(stored.joined(), format!("ns/{name}"));
            assert_eq!(stored.uid(), format!("uid-of-{name}"));
            assert_eq!(stored.labels()["a"], name);
            assert_eq!(stored.owners(), [json!({"name": name})]);
            assert!(stored.owned() && stored.deleting() && stored.owned_like(&stored));
            let later = stored.at_revision(5000);
            assert!(later.sample.is_some() && later.owned_like(&stored));
            whole["metadata"]["resourceVersion"] = json!("5000");
            assert_eq!(later.value(), whole);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in [json!(1), json!({}), json!({"metadata": []})] {
            assert!(Draft::new(bad.clone()).is_err(), "{bad}");
        }
        assert!(Draft::new(json!({"metadata": {"uid": 1}})).is_err());
    }

    #[test]
    fn what_could_not_be_read_again_is_refused() {
        let nested = |levels: usize| {
            let inner = (1..levels).fold(json!({}), |inner, _| json!({"{\"[": inner}));
            Draft::new(json!({"metadata": {}, "spec": inner}))
        };
        let stored = nested(MOST_DEEP - 1).expect("fits");
        let key = Key::new("a", "b");
        let _ = stored.finish(&key, 1, 1, &mut Packer::default()).value();
        assert!(nested(MOST_DEEP).is_err());
    }

    #[test]
    fn an_object_costs_little_beside_its_text() {
        assert!(size_of::<Stored>() <= 88, "{}", size_of::<Stored>());
    }
}
