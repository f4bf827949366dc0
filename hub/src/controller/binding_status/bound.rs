//! Keeps what members say within what one object can hold.
//!
//! Pure. A binding has one item for each member, and an API server takes objects of 1.5 MiB. Each member has an
//! equal share of a part of that, so that no member's words push another's out.

use common::api::binding::AggregatedStatusItem;
use serde_json::{Map, Value, json};

/// Bytes of all reflected statuses of one binding.
pub const STATUSES: usize = 640 * 1024;
/// Bytes of all messages of one binding.
pub const MESSAGES: usize = 192 * 1024;
/// Bytes of one message.
pub const MESSAGE: usize = 4 * 1024;
/// Says in a status which of its members were too long.
const OMITTED: &str = "towlineOmitted";

/// Cuts what is longer than the share of its member.
pub fn bound(items: &mut [AggregatedStatusItem]) {
    let members = items.len().max(1);
    let share = STATUSES / members;
    let message = MESSAGE.min(MESSAGES / members);
    for item in items {
        if let Some(text) = &mut item.applied_message {
            cut(text, message);
        }
        if let Some(status) = item.status.take() {
            item.status = fit(status, share);
        }
    }
}

/// Shortens a text to so many bytes, between characters.
fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
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
    members.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
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
