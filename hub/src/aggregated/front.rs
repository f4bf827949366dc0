//! Who asks, as a front proxy that is one says it. Pure.

use super::trust::Headers;
use http::HeaderMap;
use std::collections::BTreeMap;

/// Everybody who proved an identity; the front proxy says it too.
const AUTHENTICATED: &str = "system:authenticated";

/// A user of the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells two of one name apart; mostly empty.
    pub uid: String,
    /// Their groups.
    pub groups: Vec<String>,
    /// What else is known of them.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Reads it; none where it is not said, said twice, or no text.
    pub fn read(said: &HeaderMap, headers: &Headers) -> Option<Self> {
        let all = |name: &str| -> Option<Vec<String>> {
            let values = said.get_all(name).iter();
            let texts = values.map(|value| std::str::from_utf8(value.as_bytes()).ok());
            texts.map(|text| text.map(str::to_owned)).collect()
        };
        let one = |names: &[String]| -> Option<String> {
            for name in names {
                match all(name)?.as_slice() {
                    [] => {}
                    [value] => return Some(value.clone()),
                    _ => return None,
                }
            }
            Some(String::new())
        };
        let name = one(&headers.user)?;
        if name.is_empty() {
            return None;
        }
        let mut groups = Vec::new();
        for header in &headers.group {
            groups.extend(all(header)?);
        }
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut extra = BTreeMap::new();
        for prefix in &headers.extra {
            let prefix = prefix.to_ascii_lowercase();
            for header in said.keys() {
                if let Some(key) = header.as_str().strip_prefix(&prefix) {
                    extra.insert(decoded(key), all(header.as_str())?);
                }
            }
        }
        Some(Self {
            name,
            uid: one(&headers.uid)?,
            groups,
            extra,
        })
    }
}

/// Copies what says who asks, as it came, into the head of a request to another replica, which reads it the same way.
pub(super) fn carry(said: &HeaderMap, headers: &Headers, into: &mut HeaderMap) {
    let named = headers.user.iter().chain(&headers.uid);
    let named = named.chain(&headers.group);
    let is_named = |header: &str| named.clone().any(|name| name.eq_ignore_ascii_case(header));
    let is_extra = |header: &str| {
        let mut prefixes = headers.extra.iter();
        prefixes.any(|prefix| header.starts_with(&prefix.to_ascii_lowercase()))
    };
    for (header, value) in said {
        if is_named(header.as_str()) || is_extra(header.as_str()) {
            into.append(header.clone(), value.clone());
        }
    }
}

/// A key as it was before it was written in the name of a header; as it is where that is broken.
fn decoded(key: &str) -> String {
    let mut bytes = key.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut hex = || char::from(bytes.next()?).to_digit(16);
        match byte {
            b'%' => match (hex(), hex()) {
                (Some(high), Some(low)) => out.extend(u8::try_from(high * 16 + low)),
                _ => return key.to_owned(),
            },
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn names() -> Headers {
        let list = |name: &str| vec![name.to_owned()];
        Headers {
            user: list("X-Remote-User"),
            uid: list("X-Remote-Uid"),
            group: list("X-Remote-Group"),
            extra: list("X-Remote-Extra-"),
        }
    }

    fn head(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn read(pairs: &[(&str, &str)]) -> Option<User> {
        User::read(&head(pairs), &names())
    }

    #[test]
    fn another_replica_reads_the_same_user_and_nothing_else() {
        let came = head(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "ops"),
            ("x-remote-extra-example.com%2fscope", "a"),
            ("authorization", "Bearer x"),
            ("towline-hop", "b"),
            ("x-remote-users", "admin"),
        ]);
        let mut carried = HeaderMap::new();
        carry(&came, &names(), &mut carried);
        assert_eq!(carried.len(), 5);
        let (before, after) = (User::read(&came, &names()), User::read(&carried, &names()));
        assert_eq!(before, after);
        assert_eq!(after.expect("said").groups[..2], ["dev", "ops"]);
    }

    #[test]
    fn a_user_is_said_once_and_whole() {
        let ann = read(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-example.com%2fscope", "a"),
            ("x-remote-extra-example.com%2fscope", "b"),
            ("x-remote-extra-odd%zz", "c"),
        ]);
        let ann = ann.expect("said");
        assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("ann", "7"));
        assert_eq!(ann.groups, ["dev", "system:authenticated"]);
        assert_eq!(ann.extra["example.com/scope"], ["a", "b"]);
        assert_eq!(ann.extra["odd%zz"], ["c"]);
        assert_eq!(
            read(&[("x-remote-user", "a")]).expect("said").groups.len(),
            1
        );
        for none in [
            &[][..],
            &[("x-remote-user", "")],
            &[("x-remote-user", "ann"), ("x-remote-user", "admin")],
            &[("x-remote-group", "system:masters")],
            &[("impersonate-user", "ann")],
        ] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
