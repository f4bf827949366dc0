//! The JSON of lists and watches, taken apart without looking into the objects.

use super::{Decode, Event, Undecodable};
use crate::client::Problem;
use kube::core::Status;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The annotation of the bookmark at the end of a list that is the beginning of a watch.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectKey {
    /// Its namespace, unless it has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version at which this was said of it.
    pub resource_version: String,
}

impl ObjectKey {
    /// Reads it from an object's JSON, up to the end of its metadata; empty where that cannot be read.
    pub fn of(object: &str) -> Self {
        let mut found = Self::default();
        // What follows the metadata is most of the object: that it was not read is an error here, and no matter.
        let _ = serde_json::Deserializer::from_str(object).deserialize_map(Finding(&mut found));
        found
    }
}

/// Reads an object as far as its metadata.
struct Finding<'a>(&'a mut ObjectKey);

impl<'de> Visitor<'de> for Finding<'_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object with metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta {
            #[serde(default)]
            namespace: Option<String>,
            #[serde(default)]
            name: String,
            #[serde(default)]
            uid: String,
            #[serde(default)]
            resource_version: String,
        }
        while let Some(field) = fields.next_key::<Cow<'_, str>>()? {
            if field != "metadata" {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            let metadata: Meta = fields.next_value()?;
            *self.0 = ObjectKey {
                namespace: metadata.namespace,
                name: metadata.name,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
            };
            break;
        }
        Ok(())
    }
}

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl<'a> Page<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &'a str> {
        self.items.iter().flatten().map(|raw| raw.get())
    }

    pub(super) fn len(&self) -> usize {
        self.items.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|token| !token.is_empty())
    }

    pub(super) fn version(&self) -> String {
        self.metadata.resource_version.clone()
    }
}

/// One line of a watch.
pub(super) enum WireEvent<'a, K> {
    /// The object as it was sent, and what is told of it.
    Applied(&'a str, Event<K>),
    Deleted(&'a str),
    Bookmark(&'a str),
    Error(Problem),
}

impl<'a, K: Decode> WireEvent<'a, K> {
    pub(super) fn parse(line: &'a [u8]) -> serde_json::Result<Self> {
        // A line as API servers write it is read once, by who wants what is in it. Only where that fails is it asked what
        // is wrong with it, and whether with the object alone.
        if let Some(object) = applied(line)
            && let Ok(decoded) = K::decode(object)
        {
            return Ok(Self::Applied(object, Event::Applied(decoded)));
        }
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let Line { kind, object } = serde_json::from_slice(line)?;
        let object = object.get();
        Ok(match kind {
            "DELETED" => Self::Deleted(object),
            "BOOKMARK" => Self::Bookmark(object),
            "ERROR" => Self::Error(status_problem(object.as_bytes(), 500)),
            // ADDED and MODIFIED.
            _ => Self::Applied(object, decode(object)),
        })
    }
}

/// The object in a line that tells of one that is there, if it is written as API servers do; it may be no JSON.
fn applied(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?.strip_suffix('}')?;
    line.strip_prefix(r#"{"type":"ADDED","object":"#)
        .or_else(|| line.strip_prefix(r#"{"type":"MODIFIED","object":"#))
}

pub(super) fn decode<K: Decode>(object: &str) -> Event<K> {
    match K::decode(object) {
        Ok(object) => Event::Applied(object),
        Err(error) => Event::Undecodable(Undecodable {
            key: ObjectKey::of(object),
            error: error.to_string(),
        }),
    }
}

/// Whether a bookmark says that everything was told that there was when the watch began.
pub(super) fn ends_list(bookmark: &str) -> bool {
    #[derive(Deserialize)]
    struct Bookmark<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, default)]
        annotations: BTreeMap<&'a str, &'a str>,
    }
    serde_json::from_str::<Bookmark<'_>>(bookmark)
        .is_ok_and(|it| it.metadata.annotations.get(INITIAL_END) == Some(&"true"))
}

/// Reads a `Status`; `code` is what HTTP said, for bodies that are none.
pub(super) fn status_problem(body: &[u8], code: u16) -> Problem {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(body).into_owned(),
        ..Status::default()
    });
    let retry = status
        .details
        .map_or(0, |details| details.retry_after_seconds);
    Problem::Api {
        code: if status.code == 0 { code } else { status.code },
        reason: status.reason,
        message: status.message,
        retry_after: (retry > 0).then(|| Duration::from_secs(u64::from(retry))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    /// What a line says, by the one who wants its ConfigMaps.
    fn told(line: &str) -> String {
        match WireEvent::<ConfigMap>::parse(line.as_bytes()) {
            Ok(WireEvent::Applied(object, Event::Applied(map))) => {
                assert_eq!(serde_json::from_str::<ConfigMap>(object).ok(), Some(map));
                format!("+ {object}")
            }
            Ok(WireEvent::Applied(_, Event::Undecodable(it))) => format!("? {}", it.key.name),
            Ok(WireEvent::Applied(..)) => "else".to_owned(),
            Ok(WireEvent::Deleted(object)) => format!("- {object}"),
            Ok(WireEvent::Bookmark(object)) => format!("= {object}"),
            Ok(WireEvent::Error(_)) => "error".to_owned(),
            Err(_) => "broken".to_owned(),
        }
    }

    #[test]
    fn a_line_says_the_same_however_it_is_written() {
        let map = r#"{"metadata":{"name":"a"},"data":{"b":"}"}}"#;
        let is = format!("+ {map}");
        for kind in ["ADDED", "MODIFIED"] {
            for line in [
                format!(r#"{{"type":"{kind}","object":{map}}}"#),
                format!(r#"{{"type":"{kind}", "object": {map} }}"#),
                format!(r#" {{"object":{map},"type":"{kind}"}}"#),
                format!(r#"{{"type":"{kind}","object":{map},"more":{{}}}}"#),
            ] {
                assert_eq!(told(&line), is, "{line}");
            }
            let bad =
                format!(r#"{{"type":"{kind}","object":{{"metadata":{{"name":"a"}},"data":1}}}}"#);
            assert_eq!(told(&bad), "? a", "an object hides no other");
            for broken in [
                format!(r#"{{"type":"{kind}","object":{{"metadata":{{"name":"a"}}}}"#),
                format!(
                    r#"{{"type":"{kind}","object":{{"metadata":{{"name":"a"}},"data":{{}}}},}}"#
                ),
                format!(r#"{{"type":"{kind}","object":}}"#),
            ] {
                assert_eq!(told(&broken), "broken", "{broken}");
            }
        }
        assert_eq!(
            told(&format!(r#"{{"type":"DELETED","object":{map}}}"#)),
            format!("- {map}")
        );
        assert_eq!(
            told(&format!(r#"{{"type":"BOOKMARK","object":{map}}}"#)),
            format!("= {map}")
        );
        assert_eq!(told(r#"{"type":"ERROR","object":{"code":410}}"#), "error");
        assert_eq!(told("{"), "broken");
    }

    #[test]
    fn a_key_is_read_no_further_than_the_metadata() {
        let key = |object: &str| {
            let key = ObjectKey::of(object);
            (key.namespace, key.name, key.uid, key.resource_version)
        };
        let (none, whole) = (
            (None, String::new(), String::new(), String::new()),
            (Some("n".into()), "a".into(), "u".into(), "7".into()),
        );
        let metadata = r#"{"labels":{"metadata":"x"},"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}"#;
        for object in [
            format!(r#"{{"metadata":{metadata}}}"#),
            format!(r#"{{"spec":{{"metadata":{{"name":"b"}}}},"metadata":{metadata},"status":1}}"#),
            format!(r#"{{"kind":"A","meta\u0064ata":{metadata},"spec":{{"cut":"of"#),
        ] {
            assert_eq!(key(&object), whole, "{object}");
        }
        for object in ["", "[]", "{}", r#"{"metadata":{"name":1}}"#, r#"{"spec":{"#] {
            assert_eq!(key(object), none, "{object}");
        }
    }
}
