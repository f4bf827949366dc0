//! What a view holds, and what each event of its watch makes of it. Pure: the time is passed in.

use super::kept::{Keep as _, Packing};
use super::view::Record;
use common::client::Problem;
use common::gvk::Gvk;
use common::watch::{Decode, Event, ObjectKey};
use serde::de::Error as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Namespace and name of an object; the namespace is empty where its kind has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectName {
    /// The name of an object.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.unwrap_or_default().into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One object of a view.
#[derive(Debug)]
pub struct Object<R> {
    /// Its resourceVersion, as it was sent.
    pub version: Box<str>,
    /// Its size as it was sent.
    pub bytes: u64,
    /// What is known of it; none when it could not be read.
    pub record: Option<Arc<R>>,
}

impl<R> Clone for Object<R> {
    fn clone(&self) -> Self {
        Self {
            version: self.version.clone(),
            bytes: self.bytes,
            record: self.record.clone(),
        }
    }
}

/// What became of one object.
#[derive(Debug)]
pub struct Change<R> {
    /// Which.
    pub name: ObjectName,
    /// What was held before.
    pub old: Option<Object<R>>,
    /// What is held now; none when it is gone.
    pub new: Option<Object<R>>,
    /// A list told of it: it may have changed at any time since the last event, or not at all.
    pub listed: bool,
}

impl<R> Clone for Change<R> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            listed: self.listed,
        }
    }
}

impl<R> Change<R> {
    /// What was known of it.
    pub fn before(&self) -> Option<&R> {
        self.old.as_ref()?.record.as_deref()
    }

    /// What is known of it.
    pub fn after(&self) -> Option<&R> {
        self.new.as_ref()?.record.as_deref()
    }

    /// Whether the server has written it since: not so for what is merely listed once more.
    pub fn is_written(&self) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => old.version != new.version,
            _ => true,
        }
    }
}

/// What a view tells.
#[derive(Debug)]
pub enum Told<R> {
    /// An object came, changed or went.
    Changed(Change<R>),
    /// The view is complete. What happened in between is told, but not when, if there is a gap; a first list has one
    /// only where it did not come at once.
    Complete {
        /// Whether it was not before.
        first: bool,
        /// For how long nothing was known.
        gap: Option<Duration>,
    },
    /// Nothing is heard for now; told again for every failed attempt.
    Lost(Problem),
}

impl<R> Clone for Told<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Changed(change) => Self::Changed(change.clone()),
            Self::Complete { first, gap } => Self::Complete {
                first: *first,
                gap: *gap,
            },
            Self::Lost(problem) => Self::Lost(problem.clone()),
        }
    }
}

/// An object as it was sent.
#[derive(Debug)]
pub(super) struct Raw {
    key: ObjectKey,
    /// Read by who keeps it.
    text: Box<str>,
}

impl Decode for Raw {
    fn decode(object: &str) -> serde_json::Result<Self> {
        let key = ObjectKey::of(object);
        if key.name.is_empty() {
            return Err(serde_json::Error::custom("it has no metadata.name"));
        }
        let text = object.into();
        Ok(Self { key, text })
    }
}

/// One object.
pub(super) struct Kept<R: Record> {
    version: Box<str>,
    bytes: u64,
    record: Option<R::Kept>,
}

/// The objects.
pub(super) struct Held<R: Record> {
    /// The kind, where the record does not know it.
    pub(super) kind: Option<Gvk>,
    pub(super) objects: BTreeMap<ObjectName, Kept<R>>,
    pub(super) packing: Packing<R>,
    /// While a list is read: what was there before and has not come by.
    missing: BTreeSet<ObjectName>,
    listing: bool,
    /// A list was complete.
    pub(super) complete: bool,
    /// The highest resourceVersion that was heard; versions that are no numbers do not count.
    pub(super) position: u64,
    /// Of all objects, as they were sent.
    pub(super) bytes: u64,
    /// When an event came last.
    pub(super) heard: Option<Instant>,
}

impl<R: Record> Default for Held<R> {
    fn default() -> Self {
        Self {
            kind: None,
            objects: BTreeMap::new(),
            packing: Packing::default(),
            missing: BTreeSet::new(),
            listing: false,
            complete: false,
            position: 0,
            bytes: 0,
            heard: None,
        }
    }
}

impl<R: Record> Held<R> {
    /// Takes an event in; what is to be told of it, in order.
    pub(super) fn take(&mut self, event: Event<Raw>, now: Instant) -> Vec<Told<R>> {
        if !matches!(event, Event::Disconnected { .. }) {
            self.heard = Some(now);
        }
        match event {
            Event::Init => {
                self.listing = true;
                self.missing = self.objects.keys().cloned().collect();
                Vec::new()
            }
            Event::Applied(Raw { key, text }) => {
                let read = R::Kept::read(&text, self.kind.as_ref(), &mut self.packing);
                let record = match read {
                    Ok(Some(record)) => Some(record),
                    Ok(None) => return self.left_out(&key),
                    Err(error) => {
                        let (kind, name) = (R::KIND, &key.name);
                        tracing::warn!(kind, object.name = name, %error, "cannot read an object");
                        None
                    }
                };
                let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
                vec![self.put(&key, record, bytes)]
            }
            // Without a name.
            Event::Undecodable(object) => vec![self.put(&object.key, None, 0)],
            Event::Deleted(key) => self.left_out(&key),
            Event::InitDone { gap, .. } => {
                self.listing = false;
                let first = !std::mem::replace(&mut self.complete, true);
                let missing = std::mem::take(&mut self.missing);
                let gone = missing
                    .into_iter()
                    .filter_map(|name| self.remove(name, true));
                let mut told: Vec<_> = gone.collect();
                told.push(Told::Complete { first, gap });
                told
            }
            Event::Disconnected { problem, .. } => vec![Told::Lost(problem)],
            Event::Resumed { .. } => Vec::new(),
        }
    }

    fn put(&mut self, key: &ObjectKey, record: Option<(Arc<R>, R::Kept)>, bytes: u64) -> Told<R> {
        self.moved_to(key);
        let name = self.name_of(key);
        self.missing.remove(&name);
        let (record, held) = record.unzip();
        let version: Box<str> = key.resource_version.as_str().into();
        let kept = Kept {
            version: version.clone(),
            bytes,
            record: held,
        };
        let before = self.objects.insert(name.clone(), kept);
        let old = before.map(|kept| self.told(&name, kept));
        match &record {
            Some(record) => R::Kept::note(&name, record, &mut self.packing),
            None => self.packing.forget(&name),
        }
        let new = Object {
            version,
            bytes,
            record,
        };
        self.bytes = (self.bytes + bytes).saturating_sub(old.as_ref().map_or(0, |old| old.bytes));
        Told::Changed(Change {
            name,
            old,
            new: Some(new),
            listed: self.listing,
        })
    }

    /// An object as it was, which is held no more.
    fn told(&mut self, name: &ObjectName, kept: Kept<R>) -> Object<R> {
        let packing = &mut self.packing;
        Object {
            record: kept.record.and_then(|it| it.record(name, packing)),
            version: kept.version,
            bytes: kept.bytes,
        }
    }

    /// Calls `each` for every object, in the order of their names.
    pub(super) fn for_each(&self, each: &mut impl FnMut(&ObjectName, &Object<R>)) {
        // Who looks at all of them looks at none of them soon.
        let mut packing = Packing::default();
        for (name, kept) in &self.objects {
            let record = kept.record.as_ref();
            let object = Object {
                record: record.and_then(|it| it.record(name, &mut packing)),
                version: kept.version.clone(),
                bytes: kept.bytes,
            };
            each(name, &object);
        }
    }

    /// What is held of an object.
    pub(super) fn get(&mut self, name: &ObjectName) -> Option<Object<R>> {
        let kept = self.objects.get(name)?;
        let record = kept.record.as_ref();
        Some(Object {
            record: record.and_then(|it| it.record(name, &mut self.packing)),
            version: kept.version.clone(),
            bytes: kept.bytes,
        })
    }

    /// An object that is gone, or is not one that this view holds.
    fn left_out(&mut self, key: &ObjectKey) -> Vec<Told<R>> {
        self.moved_to(key);
        let name = ObjectName::new(key.namespace.as_deref(), &key.name);
        self.missing.remove(&name);
        let listed = self.listing;
        self.remove(name, listed).into_iter().collect()
    }

    fn remove(&mut self, name: ObjectName, listed: bool) -> Option<Told<R>> {
        let kept = self.objects.remove(&name)?;
        let old = self.told(&name, kept);
        self.packing.forget(&name);
        self.bytes = self.bytes.saturating_sub(old.bytes);
        Some(Told::Changed(Change {
            name,
            old: Some(old),
            new: None,
            listed,
        }))
    }

    /// Holds nothing any more; what is to be told of that.
    pub(super) fn give_up(&mut self) -> Vec<Told<R>> {
        let names: Vec<ObjectName> = self.objects.keys().cloned().collect();
        let gone = names.into_iter().filter_map(|name| self.remove(name, true));
        gone.collect()
    }

    fn moved_to(&mut self, key: &ObjectKey) {
        let version = key.resource_version.parse().unwrap_or(0);
        self.position = self.position.max(version);
    }

    /// The name of an object; the text of its namespace is shared with its neighbour's.
    fn name_of(&self, key: &ObjectKey) -> ObjectName {
        let name = ObjectName::new(key.namespace.as_deref(), &key.name);
        let upto = (Bound::Unbounded, Bound::Included(&name));
        let neighbour = self.objects.range::<ObjectName, _>(upto).next_back();
        match neighbour {
            Some((held, _)) if *held == name => held.clone(),
            Some((held, _)) if held.namespace == name.namespace => ObjectName {
                namespace: Arc::clone(&held.namespace),
                name: name.name,
            },
            _ => name,
        }
    }
}
