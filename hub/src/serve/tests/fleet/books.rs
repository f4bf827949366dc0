//! What is stored on the hub and in members, and as much of the past as invariants look back on.

use super::history::History;
use super::steps;
use super::steps::order::Offered;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn of(kind: &str, object: &Value) -> Self {
        Self::new(
            kind,
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        )
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A change of one object.
pub(super) struct Event {
    pub(super) key: Key,
    /// As it is now; none when it is gone.
    pub(super) object: Option<Value>,
    pub(super) revision: u64,
}

impl Event {
    pub(super) fn new(kind: &str, event: &str, object: Value) -> Self {
        Self {
            key: Key::of(kind, &object),
            revision: steps::revisions::revision(&object),
            object: (event != "DELETED").then_some(object),
        }
    }
}

/// A text of an object; empty when there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn is_going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// What a condition of an object says.
pub(super) fn says<'a>(object: &'a Value, condition: &str) -> Option<&'a str> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|it| it["type"] == condition)?;
    found["status"].as_str()
}

/// Something as it was from a time on.
pub(super) type Past<T> = Vec<(Duration, T)>;

/// What something was at any time after `since`.
pub(super) fn lately<T>(past: &Past<T>, since: Duration) -> impl Iterator<Item = &T> {
    let ends = past
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([Duration::MAX]);
    let each = past.iter().zip(ends);
    each.filter(move |(_, end)| *end >= since)
        .map(|((_, it), _)| it)
}

/// What a manifest comes to: for a Deployment its replicas and image, for a ConfigMap its content.
pub(super) type Essence = (i64, String);

pub(super) fn essence_of(object: &Value) -> Essence {
    match text(object, "/kind") {
        "Deployment" => (
            number(object, "/spec/replicas"),
            text(object, "/spec/template/spec/containers/0/image").to_owned(),
        ),
        _ => (0, text(object, "/data/rev").to_owned()),
    }
}

/// The manifests of a Work, by what they make.
pub(super) fn manifests(work: &Value) -> BTreeMap<Key, &Value> {
    let all = work
        .pointer("/spec/workload/manifests")
        .and_then(Value::as_array);
    let all = all.into_iter().flatten();
    all.map(|it| (Key::of(text(it, "/kind"), it), it)).collect()
}

/// Whether a Work is one of those that people write.
pub(super) fn is_by_hand(name: &str) -> bool {
    name.starts_with("hand-")
}

/// The cluster of an execution namespace.
pub(super) fn cluster_of(namespace: &str) -> &str {
    namespace.strip_prefix("karmada-es-").unwrap_or_default()
}

/// Where a binding is at one time: replicas by cluster, where they are said.
pub(super) type Given = BTreeMap<String, Option<i64>>;

/// Everything.
pub(super) struct Books {
    began: Instant,
    /// How far behind a decision of the hub may be that is carried out.
    pub(super) lag: Duration,
    pub(super) hub: BTreeMap<Key, Value>,
    pub(super) members: BTreeMap<String, BTreeMap<Key, Value>>,
    /// Where each binding was, with those that it follows.
    pub(super) given: BTreeMap<Key, Past<Given>>,
    /// Where each binding was, with what it leaves and does not take away yet.
    pub(super) held: BTreeMap<Key, Past<BTreeSet<String>>>,
    pub(super) clusters: BTreeMap<String, Past<Option<Value>>>,
    /// Whether somebody sets the hub's clock: by it tasks end.
    pub(super) is_timeless: bool,
    /// Since when a binding leaves a cluster.
    pub(super) left: BTreeMap<(Key, String), Duration>,
    /// Whether most of the fleet was lost.
    pub(super) most_lost: Past<bool>,
    /// When what decides on a binding changed last, and on all.
    pub(super) asked: BTreeMap<Key, Duration>,
    pub(super) fleet_changed: Duration,
    /// When a binding was moved last.
    pub(super) moved: BTreeMap<Key, Duration>,
    /// Since when some Work wants an object in a member, without a break.
    pub(super) wanted: BTreeMap<(String, Key), Duration>,
    /// Since when it is there.
    pub(super) appeared: BTreeMap<(String, Key), Duration>,
    /// What it has been, ever.
    pub(super) been: BTreeMap<(String, Key), BTreeSet<Essence>>,
    /// What users of members deleted, and was not made again.
    pub(super) meddled: BTreeSet<(String, Key)>,
    /// What each Work brought, version by version.
    pub(super) versions: BTreeMap<Key, Vec<Vec<(Key, Essence)>>>,
    /// What users of members made of something last.
    pub(super) tampered: BTreeMap<(String, Key), Essence>,
    /// What Works wanted objects of members to be.
    pub(super) offered: BTreeMap<(String, Key), Offered>,
    /// What stays in members that were silent when they were unregistered.
    pub(super) abandoned: BTreeSet<(String, Key)>,
    /// When a Lease was renewed last.
    pub(super) renewed: BTreeMap<String, Duration>,
    /// The last write on the hub that was no renewal, and what it was.
    pub(super) written: (Duration, String),
    /// When somebody wrote the Lease last by which the agents of a member elect a leader.
    pub(super) led: BTreeMap<String, Duration>,
    /// When the agent of a cluster got a certificate last.
    pub(super) certified: BTreeMap<String, Duration>,
    /// The clusters whose agents a bootstrap token let in, by its id.
    pub(super) used: BTreeMap<String, BTreeSet<String>>,
    /// Whose each revision of the hub is.
    pub(super) revisions: BTreeMap<u64, Key>,
    /// What was not there after a restart, with its last revision, and was not told to be deleted yet.
    pub(super) doubtful: BTreeMap<Key, u64>,
    /// What does not hold.
    pub(super) problems: Vec<String>,
    /// What became of objects, where somebody wants to know.
    pub(super) history: Option<History>,
}

impl Books {
    pub(super) fn new(began: Instant, lag: Duration) -> Self {
        Self {
            began,
            lag,
            hub: BTreeMap::new(),
            members: BTreeMap::new(),
            given: BTreeMap::new(),
            held: BTreeMap::new(),
            clusters: BTreeMap::new(),
            is_timeless: false,
            left: BTreeMap::new(),
            most_lost: Past::new(),
            asked: BTreeMap::new(),
            fleet_changed: Duration::ZERO,
            moved: BTreeMap::new(),
            wanted: BTreeMap::new(),
            appeared: BTreeMap::new(),
            been: BTreeMap::new(),
            meddled: BTreeSet::new(),
            versions: BTreeMap::new(),
            tampered: BTreeMap::new(),
            offered: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            renewed: BTreeMap::new(),
            written: (Duration::ZERO, String::new()),
            led: BTreeMap::new(),
            certified: BTreeMap::new(),
            used: BTreeMap::new(),
            revisions: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            problems: Vec::new(),
            history: None,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Everything of a kind on the hub.
    pub(super) fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let from = Key::new(kind, "", "");
        let all = self.hub.range(from..);
        all.take_while(move |(key, _)| key.kind == kind)
    }

    pub(super) fn bindings(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.all("ResourceBinding")
            .chain(self.all("ClusterResourceBinding"))
    }

    pub(super) fn cluster(&self, name: &str) -> Option<&Value> {
        self.hub.get(&Key::new("Cluster", "", name))
    }

    pub(super) fn of_hub(&mut self, event: Event) {
        let Event {
            key,
            object,
            revision,
        } = event;
        let old = match &object {
            Some(object) => self.hub.insert(key.clone(), object.clone()),
            None => self.hub.remove(&key),
        };
        let now = self.now();
        if let Some(history) = &mut self.history {
            history.note("hub", &key, now, old.as_ref(), object.as_ref());
        }
        if key.kind != "Lease" {
            self.written = (self.now(), key.to_string());
        }
        steps::of_hub(self, &key, revision, old.as_ref(), object.as_ref());
    }

    pub(super) fn of_member(&mut self, member: &str, event: Event) {
        let Event { key, object, .. } = event;
        let all = self.members.entry(member.to_owned()).or_default();
        let old = match &object {
            Some(object) => all.insert(key.clone(), object.clone()),
            None => all.remove(&key),
        };
        let now = self.now();
        if let Some(history) = &mut self.history {
            history.note(member, &key, now, old.as_ref(), object.as_ref());
        }
        steps::of_member(self, member, &key, old.as_ref(), object.as_ref());
    }

    pub(super) fn meddled(&mut self, member: &str, key: &Key) {
        self.meddled.insert((member.to_owned(), key.clone()));
    }

    pub(super) fn problem(&mut self, text: String) {
        let at = self.now().as_secs_f64();
        self.problems.push(format!("{text} (at {at:.3} s)"));
    }
}
