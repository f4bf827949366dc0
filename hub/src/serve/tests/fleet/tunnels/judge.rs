//! What has to hold of each request of a user: nothing outlives its rights, nothing that is cut short looks whole,
//! nobody gets what is another member's, and nobody is refused what is theirs.

use super::super::wires::Heard;
use super::asks::{How, LARGE, LENGTH, Record, large};
use super::plan::Wanted;
use super::rights::{Rights, Span};
use serde_json::Value;
use std::time::Duration;

/// What does not hold of a request, as far as it has gone; `now` is where it goes on.
pub(super) fn problem(
    record: &Record,
    heard: &Heard,
    rights: &Rights,
    now: Duration,
) -> Option<String> {
    let to = record.ended.as_ref().map_or(now, |(at, _)| *at);
    let (user, member) = (record.ask.user.as_str(), record.ask.member);
    let tell = |kind: &str, what: String| {
        let Record { ask, began, .. } = record;
        Some(format!(
            "{kind}: {} ({:?} of {user} to m{member}, begun {began:?} after the beginning): {what}",
            record.id(),
            ask.what
        ))
    };
    if let Some(from) = record.went_on() {
        let was = Span {
            from: record.began,
            to,
        };
        if let Some(outlived) = rights.outlived(user, member, was) {
            return tell("rights", format!("it outlived {outlived}"));
        }
        let begun = Span {
            from: record.began,
            to: from,
        };
        if let Some(lacks) = rights.had_none(user, member, begun) {
            return tell("rights", format!("it was granted without {lacks}"));
        }
    }
    let (_, how) = record.ended.as_ref()?;
    let (_, status) = record.answered?;
    match (status, how) {
        (200 | 201, How::Clean) => wrong(record, heard).and_then(|what| tell("whole", what)),
        (101, How::Clean) => unspoken(record, heard).and_then(|what| tell("whole", what)),
        (403, How::Clean) => {
            let was = Span {
                from: record.began,
                to,
            };
            let in_order = rights.lacked(user, member, was) || rights.moved(member, was);
            let text = String::from_utf8_lossy(&record.heard);
            (!in_order).then(|| tell("refused", text.into_owned()))?
        }
        (200 | 201 | 101 | 401 | 404 | 429 | 500..=504, _) => None,
        (_, How::Clean) => tell("status", format!("it was answered {status}")),
        _ => None,
    }
}

/// What does not hold of an answer that has ended as what is whole.
fn wrong(record: &Record, heard: &Heard) -> Option<String> {
    let member = record.ask.member;
    let text = String::from_utf8_lossy(&record.heard);
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    let said = heard.of(&record.id());
    match record.ask.what {
        Wanted::Get => {
            let told = read(&text).map(|it| it["data"]["told"].clone());
            let is_right = told.is_some_and(|it| it == format!("m{member}"));
            (!is_right).then(|| format!("it is not what the member has: {text}"))
        }
        Wanted::List => {
            let list = read(&text);
            let items = list.as_ref().and_then(|it| it["items"].as_array());
            let right = |item: &Value| {
                let text = item["data"]["large"].as_str().unwrap_or_default();
                text.len() == LENGTH
            };
            let is_right = items.is_some_and(|it| it.len() == LARGE && it.iter().all(right));
            (!is_right).then(|| format!("{} bytes are no list of all", record.heard.len()))
        }
        Wanted::Watch(_) => {
            if let Some(line) = text.split_inclusive('\n').find(|line| read(line).is_none()) {
                let line: String = line.chars().take(60).collect();
                return Some(format!("there is a piece of an event in it: {line}"));
            }
            let is_whole = said.is_some_and(|it| it.answered.1);
            (!is_whole).then(|| "it ended, and the member did not end it".to_owned())
        }
        Wanted::Put => {
            let is_right =
                read(&text).is_some_and(|it| it["data"]["large"] == large(record.number));
            (!is_right).then(|| "what was made is not what was sent".to_owned())
        }
        Wanted::Exec(_) => Some("nothing was taken over".to_owned()),
    }
}

/// What does not hold of a connection that was taken over and has ended in order.
fn unspoken(record: &Record, heard: &Heard) -> Option<String> {
    let greeting = format!("member{} {}\n", record.ask.member, record.ask.user);
    let mut expected = greeting.into_bytes();
    expected.extend_from_slice(&record.said);
    let is_over = heard.of(&record.id()).is_some_and(|it| it.answered.1);
    match (is_over, record.heard == expected) {
        (true, true) => None,
        (false, _) => Some("it ended in order, and the member did not end it".to_owned()),
        (true, false) => Some(format!(
            "{} bytes came of {}",
            record.heard.len(),
            expected.len()
        )),
    }
}

/// What does not hold of what members heard: who did not say the whole of a request must not seem to have.
pub(super) fn overheard(record: &Record, heard: &Heard) -> Option<String> {
    let (is_chunked, is_whole) = heard.of(&record.id())?.asked;
    let sent_all = record.ask.what != Wanted::Put || record.answered.is_some();
    // All of it may have left although nothing came back.
    let short = Duration::from_millis(50);
    let (ended, _) = record.ended.as_ref()?;
    let was_short = *ended < record.began + 4 * short;
    (is_chunked && is_whole && was_short && !sent_all).then(|| {
        format!(
            "whole: {} was not sent to its end, and its member heard one",
            record.id()
        )
    })
}
