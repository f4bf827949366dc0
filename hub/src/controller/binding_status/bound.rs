//! Keeps what members say within what one object can hold.
//!
//! Pure. A binding has one item for each member, and an API server takes objects of 1.5 MiB. The members that say
//! something have equal shares of what the rest of the binding leaves, so that no member's words push another's out.

use crate::propagation::Binding;
use common::api::binding::AggregatedStatusItem;
use common::api::work::ResourceHealth;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Bytes of a binding without its conditions and what API servers add to its metadata.
const WHOLE: usize = 1408 * 1024;
/// Bytes of all reflected statuses of one binding.
pub const STATUSES: usize = 640 * 1024;
/// Bytes of all messages of one binding.
pub const MESSAGES: usize = 192 * 1024;
/// Bytes of one message.
pub const MESSAGE: usize = 4 * 1024;
/// Bytes of the names of the fields that an item loses when its status or its message does.
const FIELD: usize = r#","appliedMessage":"""#.len();
/// Bytes of a status that tells at least how many replicas are available; where there are not so many for each member,
/// those that are healthy say no more than that.
const LEAST: usize = 96;
/// Bytes of a status that count for the template's, however many members there are.
const AGGREGATED: usize = 4 * 1024;
/// Levels of a status that is shown. Whoever reads what it is copied into stops at 128, and reads nothing of it then.
const LEVELS: usize = 64;
/// Says in a status which of its members were too long.
const OMITTED: &str = "towlineOmitted";
/// What evictions wait for: it stays before anything else.
const AVAILABLE: &str = "availableReplicas";

/// Whether a status can be copied into other objects.
pub fn is_shown(status: &Value) -> bool {
    is_within(status, LEVELS)
}

fn is_within(value: &Value, levels: usize) -> bool {
    let within = |it: &Value| levels > 0 && is_within(it, levels - 1);
    match value {
        Value::Array(values) => levels > 0 && values.iter().all(within),
        Value::Object(members) => levels > 0 && members.values().all(within),
        _ => true,
    }
}

/// Cuts what is longer than the share of its member in a binding that has so many bytes beside its status (see
/// [`beside`]).
pub fn bound(items: &mut [AggregatedStatusItem], beside: usize) {
    let said = items.iter_mut();
    let said: Vec<_> = said
        .map(|item| (item.status.take(), item.applied_message.take()))
        .collect();
    let bare = bytes(&items) + items.len() * FIELD;
    let left = WHOLE.saturating_sub(beside + bare);
    let left = left.min(STATUSES + MESSAGES);
    let messages = left * MESSAGES / (STATUSES + MESSAGES);
    let told = said.iter().filter(|(_, message)| message.is_some()).count();
    let message = MESSAGE.min(share(messages, told));
    let each = share(left - messages, items.len());
    let is_tight = each < LEAST;
    let is_told = |item: &AggregatedStatusItem| !is_tight || !is_healthy(item);
    let told = items.iter().zip(&said);
    let told = told.filter(|(item, (status, _))| status.is_some() && is_told(item));
    let each = match is_tight {
        true => share(left - messages, told.count()),
        false => each,
    };
    for (item, (status, text)) in items.iter_mut().zip(said) {
        item.applied_message = text.map(|text| cut(text, message));
        let status = status.filter(|_| is_told(item));
        item.status = status.and_then(|it| fit(it, each));
    }
}

/// Cuts what is too long to make a template's status of it. That is no part of the binding: what members usually say
/// counts whole, however many they are.
pub fn bound_each(items: &mut [AggregatedStatusItem]) {
    let each = share(STATUSES, items.len()).max(AGGREGATED);
    for item in items {
        item.status = item.status.take().and_then(|it| fit(it, each));
    }
}

/// Bytes of a binding beside its status. Its placement is in an annotation too, as a text.
pub fn beside(binding: &Binding) -> usize {
    let spec = &binding.spec;
    bytes(spec)
        + 2 * bytes(&spec.placement.as_deref())
        + bytes(&binding.labels)
        + bytes(&binding.annotations)
}

fn bytes(of: &impl Serialize) -> usize {
    serde_json::to_vec(of).map_or(0, |text| text.len())
}

fn share(of: usize, members: usize) -> usize {
    of / members.max(1)
}

fn is_healthy(item: &AggregatedStatusItem) -> bool {
    item.health == Some(ResourceHealth::Healthy)
}

/// A text of so many bytes, cut between characters.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
    }
    text
}

/// A status without its largest members, as many as have to go; none when nothing would be left.
fn fit(status: Value, limit: usize) -> Option<Value> {
    let size = status.to_string().len();
    if size <= limit {
        return Some(status);
    }
    let Value::Object(status) = status else {
        return None;
    };
    let mut members: Vec<(usize, String, Value)> = status
        .into_iter()
        .map(|(key, value)| (key.len() + value.to_string().len() + 4, key, value))
        .collect();
    members
        .sort_unstable_by(|a, b| (a.1 != AVAILABLE, a.0, &a.1).cmp(&(b.1 != AVAILABLE, b.0, &b.1)));
    let mut kept = Map::new();
    let mut omitted = Vec::new();
    // What names the omitted has its place too.
    let mut left = limit.saturating_sub(OMITTED.len() + 8);
    for (size, key, value) in members {
        let name = key.len() + 3;
        if omitted.is_empty() && size + name <= left {
            left -= size;
            kept.insert(key, value);
        } else if name <= left {
            left -= name;
            omitted.push(key);
        }
    }
    kept.insert(OMITTED.to_owned(), json!(omitted));
    let kept = Value::Object(kept);
    (kept.to_string().len() <= limit).then_some(kept)
}
