//! One Work as it is kept.

use super::{Claims, News, ObjectKey};
use crate::execution::conditions::Verdict;
use crate::execution::interpret::Scripts;
use crate::execution::manifest::{Target, hash_bytes, hash_value, targets};
use crate::execution::pace::Pace;
use crate::execution::packed::Packed;
use crate::execution::wire::WireWork;
use chrono::{DateTime, Utc};
use common::backoff::Backoff;
use common::gvk::Gvk;
use common::labels::WORK_FINALIZER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

/// What became of one manifest.
#[derive(Debug, Clone, Default)]
pub struct Item {
    /// Its object; none when the manifest is bad.
    pub key: Option<Arc<ObjectKey>>,
    /// The kind as the manifest names it.
    pub gvk: Option<Arc<Gvk>>,
    /// Why it is not applied.
    pub failure: Option<Box<Failure>>,
}

/// A manifest that cannot be applied for now.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Text for the condition.
    pub message: String,
    /// Hash of what was tried.
    pub hash: u64,
    /// How long to wait.
    pub backoff: Backoff,
    /// Not before then.
    pub retry_at: DateTime<Utc>,
}

/// What left a Work and does not go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Since when something of it waits.
    pub since: DateTime<Utc>,
    /// What it waits for.
    pub blockers: Vec<String>,
}

/// What the operator orders about the orphans of a Work, by its annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Show what the Work of this name wanted, so that it can be written anew.
    pub tell: bool,
    /// Delete these very objects.
    pub delete: Box<[Box<str>]>,
}

/// A Work of the hub.
#[derive(Debug)]
pub struct WorkRecord {
    /// UID.
    pub uid: Box<str>,
    /// Version last seen or written.
    pub resource_version: Box<str>,
    /// Version of the last news; after a write of our own `resource_version` is newer than the manifests that are known.
    pub seen: u64,
    /// Generation last seen.
    pub generation: i64,
    /// Whether the hub said that it is being deleted.
    pub deleting: bool,
    /// Whether the hub, which ordered its deletion, does not have it any more.
    pub gone: bool,
    /// Whether its objects should be deleted in the foreground.
    pub foreground: bool,
    /// Finalizers.
    pub finalizers: Vec<Box<str>>,
    /// Whether delivery is suspended.
    pub suspended: bool,
    /// Whether its objects outlive it.
    pub preserve: bool,
    /// The manifests, a JSON array.
    pub manifests: Packed,
    /// Their hash.
    pub hash: u64,
    /// The scripts that it carries.
    pub scripts: Option<Arc<Scripts>>,
    /// The manifests that were applied before these; none once these are applied.
    pub before: Option<Packed>,
    /// Conditions as on the hub.
    pub conditions: Vec<Condition>,
    /// Hash of the manifestStatuses on the hub.
    pub reported: u64,
    /// How soon the hub is told what changes.
    pub pace: Pace,
    /// What the conditions should say.
    pub verdicts: Vec<Verdict>,
    /// Why its workloads are not healthy, while they are not and that is known.
    pub diagnosis: Option<Box<Verdict>>,
    /// What became of each manifest, by ordinal.
    pub items: Vec<Item>,
    /// What left it by the hub's word and is to leave the member.
    pub leaving: Vec<Target>,
    /// The stored set knows what leaves once it is flushed up to there; 0 when that is not waited for.
    pub leaves_at: u64,
    /// What of it was tried to take out of the member, and does not go.
    pub stuck: Option<Box<Stuck>>,
    /// What it does not name any more without the hub having said so; that stays in the member.
    pub left: Vec<Target>,
    /// The very objects that it has applied.
    pub claims: Claims,
    /// Whether the hub has named it in this life; if not, it is known from the stored set alone.
    pub confirmed: bool,
    /// What the operator orders about its orphans.
    pub order: Order,
    /// Since when its deletion waits.
    pub deleting_since: Option<DateTime<Utc>>,
    /// The stored set knows that it is being deleted once it is flushed up to there.
    pub kept_at: u64,
}

impl WorkRecord {
    /// A Work seen for the first time.
    pub fn new(wire: &WireWork, scripts: Option<Arc<Scripts>>) -> Self {
        let text = wire.manifests();
        let mut record = Self {
            uid: wire.metadata.uid.as_str().into(),
            resource_version: wire.metadata.resource_version.as_str().into(),
            seen: wire.metadata.resource_version.parse().unwrap_or(0),
            generation: wire.metadata.generation,
            deleting: false,
            gone: false,
            foreground: false,
            finalizers: Vec::new(),
            suspended: wire.suspended(),
            preserve: wire.preserve(),
            manifests: Packed::new(text),
            hash: hash_bytes(text.as_bytes()),
            scripts,
            before: None,
            conditions: Vec::new(),
            reported: 0,
            pace: Pace::default(),
            verdicts: Vec::new(),
            diagnosis: None,
            items: Vec::new(),
            leaving: Vec::new(),
            leaves_at: 0,
            stuck: None,
            left: Vec::new(),
            claims: Claims::default(),
            confirmed: true,
            order: wire.order(),
            deleting_since: None,
            kept_at: 0,
        };
        record.take_metadata(wire);
        record.take_status(wire);
        record
    }

    fn take_metadata(&mut self, wire: &WireWork) {
        let meta = &wire.metadata;
        self.resource_version = meta.resource_version.as_str().into();
        self.deleting |= meta.deletion_timestamp.is_some();
        self.gone = false;
        self.foreground = meta.finalizers.iter().any(|f| f == "foregroundDeletion");
        self.finalizers = meta.finalizers.iter().map(|f| f.as_str().into()).collect();
    }

    /// Takes over the status; returns whether it is another one than was known.
    fn take_status(&mut self, wire: &WireWork) -> bool {
        let conditions: Vec<Condition> = wire
            .conditions()
            .iter()
            .filter_map(|c| serde_json::from_value(c.clone()).ok())
            .collect();
        let reported = hash_value(&wire.manifest_statuses());
        let is_other = conditions != self.conditions || reported != self.reported;
        self.conditions = conditions;
        self.reported = reported;
        is_other
    }

    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    /// Takes in news of this very Work.
    pub fn update(
        &mut self,
        wire: &WireWork,
        scripts: Option<Arc<Scripts>>,
        from_list: bool,
    ) -> News {
        let meta = &wire.metadata;
        let version: u64 = meta.resource_version.parse().unwrap_or(u64::MAX);
        // A list may be older than what we wrote while it was read, and bring news all the same.
        let known_at = match from_list {
            true => self.seen,
            false => self.version(),
        };
        let back = meta.generation < self.generation || version < known_at;
        let known = self.instructions();
        if back {
            // Older than what we know: a restored hub says so in a list; else it is late news.
            if !from_list {
                return News::Nothing;
            }
            self.deleting = false;
            self.deleting_since = None;
        }
        let regressed = meta.generation < self.generation;
        self.take_metadata(wire);
        self.seen = self.version();
        let is_restated = self.take_status(wire);
        self.take_manifests(wire.manifests(), back);
        self.generation = meta.generation;
        self.suspended = wire.suspended();
        self.preserve = wire.preserve();
        self.order = wire.order();
        self.scripts = scripts;
        let changed = known != self.instructions();
        // Whatever it says: a Work that changed while we were away is as much confirmed as one that did not.
        let confirmed = !std::mem::replace(&mut self.confirmed, true);
        if back && (regressed || changed) {
            News::Restored
        } else if changed || confirmed {
            News::Changed
        } else if is_restated {
            News::Restated
        } else {
            News::Nothing
        }
    }

    /// Takes over manifests. What is not among them any more leaves the member, unless the hub merely
    /// went back to a time before it.
    fn take_manifests(&mut self, text: &str, back: bool) {
        let hash = hash_bytes(text.as_bytes());
        if hash == self.hash {
            return;
        }
        let old = std::mem::replace(&mut self.manifests, Packed::new(text));
        let new = targets(text);
        let gone = targets(&old.text());
        let list = if back {
            &mut self.left
        } else {
            &mut self.leaving
        };
        list.extend(gone);
        self.named(&new);
        // What was applied last stays known until the next complete apply.
        self.before.get_or_insert(old);
        self.hash = hash;
    }

    /// Everything that it may have brought to the member.
    pub fn all_targets(&self) -> Vec<Target> {
        let mut all = targets(&self.manifests.text());
        all.extend(self.leaving.iter().cloned());
        all.extend(self.left.iter().cloned());
        all
    }

    /// Takes note that it names `targets`: they neither leave nor have left.
    pub fn named(&mut self, targets: &[Target]) {
        for list in [&mut self.leaving, &mut self.left] {
            list.sort_unstable();
            list.dedup();
            list.retain(|old| !targets.iter().any(|new| new.same_object(old)));
        }
    }

    /// What decides what there is to do.
    fn instructions(&self) -> (bool, bool, bool, bool, u64, u64, Order) {
        (
            self.deleting,
            self.has_finalizer(),
            self.suspended,
            self.preserve,
            self.hash,
            self.scripts.as_ref().map_or(0, |it| it.hash),
            self.order.clone(),
        )
    }

    /// Takes note that the hub, which ordered its deletion, does not have it any more: finalizers of others keep it no
    /// longer. Ours stays until its objects are gone.
    pub fn ended(&mut self) {
        self.gone = true;
        if !self.has_finalizer() {
            self.finalizers.clear();
        }
    }

    /// Whether our finalizer stands on it.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|f| &**f == WORK_FINALIZER)
    }
}
