//! One line of the audit log. Nothing that a client sends makes it long.

use super::Entry;
use crate::apiserver::caller::Caller;
use chrono::SecondsFormat;
use serde::Serialize;
use std::net::IpAddr;

/// How much of a path is written, of a name, and how many groups.
pub(super) const PATH_MAX: usize = 512;
const NAME_MAX: usize = 256;
const GROUPS_MAX: usize = 16;

/// Its members in the order of their names.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    code: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Who<'a>>,
    /// How many refusals of this user before it stand nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    path: &'a str,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source: Option<[IpAddr; 1]>,
    time: String,
    user: Who<'a>,
    verb: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Who<'a> {
    groups: Vec<&'a str>,
    /// How many groups are not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_groups: Option<usize>,
    username: &'a str,
}

impl<'a> Who<'a> {
    fn of(caller: &'a Caller) -> Self {
        let groups = caller.groups.iter().take(GROUPS_MAX);
        let more = caller.groups.len().saturating_sub(GROUPS_MAX);
        Self {
            groups: groups.map(|group| cut(group, NAME_MAX)).collect(),
            more_groups: (more > 0).then_some(more),
            username: cut(&caller.user, NAME_MAX),
        }
    }
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The line of an entry, with its end.
pub(super) fn of(entry: &Entry<'_>, left_out: u64) -> Vec<u8> {
    let line = Line {
        audit_id: entry.id,
        code: entry.code,
        dry_run: entry.dry_run.then_some(true),
        impersonated_user: entry.acting.map(Who::of),
        left_out: (left_out > 0).then_some(left_out),
        path: cut(&entry.info.path, PATH_MAX),
        source: entry.source.map(|address| [address.to_canonical()]),
        time: entry.now.to_rfc3339_opts(SecondsFormat::Micros, true),
        user: Who::of(entry.user),
        verb: cut(&entry.info.verb, NAME_MAX),
    };
    let mut text = Vec::with_capacity(512);
    // Texts and numbers can always be encoded, and memory be written to.
    let _ = serde_json::to_writer(&mut text, &line);
    text.push(b'\n');
    text
}
