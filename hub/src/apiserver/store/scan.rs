//! Finds the few places inside an encoded object that the store needs, without decoding it.

use std::ops::Range;

/// A range of bytes within an encoded object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    pub(super) fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Where the parts of an object's metadata lie. What is not there has an empty span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Places {
    /// The whole of `metadata`, with its braces.
    pub(super) metadata: Span,
    /// `metadata.labels`, with its braces.
    pub(super) labels: Span,
    /// `metadata.ownerReferences`, with its brackets.
    pub(super) owners: Span,
    /// `metadata.resourceVersion`, without its quotes; may be empty and yet be there.
    pub(super) revision: Option<Span>,
    /// `metadata.uid`, without its quotes.
    pub(super) uid: Span,
    /// Whether `metadata.deletionTimestamp` is there.
    pub(super) deleting: bool,
}

/// Reads an encoded object up to the end of its metadata; `None` if it is no JSON object with one.
pub(super) fn places(json: &[u8]) -> Option<Places> {
    // Spans are 32 bits wide; the API's limits are a thousandth of that.
    u32::try_from(json.len()).ok()?;
    let mut reader = Reader { json, at: 0 };
    let mut found = None;
    reader.object(|reader, name| {
        if name != b"metadata" {
            return reader.value().map(|_| true);
        }
        let mut places = Places::default();
        let start = reader.at;
        reader.object(|reader, name| {
            let value = reader.value()?;
            match name {
                b"labels" => places.labels = value,
                b"ownerReferences" => places.owners = value,
                b"uid" => places.uid = unquoted(json, value)?,
                b"resourceVersion" => places.revision = Some(unquoted(json, value)?),
                b"deletionTimestamp" => places.deleting = json.get(value.range())? != b"null",
                _ => {}
            }
            Some(true)
        })?;
        places.metadata = reader.span(start);
        found = Some(places);
        Some(false)
    })?;
    found
}

fn unquoted(json: &[u8], value: Span) -> Option<Span> {
    match json.get(value.range())? {
        [b'"', .., b'"'] => Some(Span {
            start: value.start + 1,
            len: value.len - 2,
        }),
        _ => None,
    }
}

struct Reader<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.json.get(self.at) {
            self.at += 1;
        }
        self.json.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "`places` refuses what does not fit"
    )]
    fn span(&self, start: usize) -> Span {
        Span {
            start: start as u32,
            len: (self.at - start) as u32,
        }
    }

    /// Calls `member` at each value; it moves past the value and says whether to go on.
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<bool>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            if self.peek()? != b'"' {
                return None;
            }
            let start = self.at;
            self.string()?;
            let name = self.json.get(start + 1..self.at - 1)?;
            self.expect(b':')?;
            self.peek()?;
            if !member(self, name)? {
                return Some(());
            }
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Moves past a value, however deep.
    fn value(&mut self) -> Option<Span> {
        self.peek()?;
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.word()?,
            }
            if depth == 0 {
                return Some(self.span(start));
            }
        }
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.json.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) -> Option<()> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') =
            self.json.get(self.at)
        {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn text(json: &[u8], span: Span) -> &str {
        std::str::from_utf8(&json[span.range()]).expect("utf-8")
    }

    #[test]
    fn finds_what_the_store_needs() {
        let object = json!({
            "a": {"metadata": {"uid": "wrong"}, "deep": [[{"x": "}\"]"}], 1, -2.5e9, null]},
            "metadata": {
                "annotations": {"uid": "wrong", "q": "\\\""},
                "labels": {"app": "x"},
                "ownerReferences": [{"uid": "o"}],
                "resourceVersion": "12",
                "uid": "u-1",
            },
            "spec": {},
        });
        let encoded = serde_json::to_vec(&object).expect("encodes");
        let found = places(&encoded).expect("has metadata");
        assert_eq!(text(&encoded, found.uid), "u-1");
        assert_eq!(text(&encoded, found.labels), r#"{"app":"x"}"#);
        assert_eq!(text(&encoded, found.owners), r#"[{"uid":"o"}]"#);
        assert_eq!(text(&encoded, found.revision.expect("there")), "12");
        assert!(!found.deleting);
        let metadata: Value = serde_json::from_str(text(&encoded, found.metadata)).expect("JSON");
        assert_eq!(metadata, object["metadata"]);
    }

    #[test]
    fn refuses_what_is_no_object() {
        for bad in [
            "",
            "[]",
            "{}",
            "{\"metadata\":1}",
            "{\"metadata\":{",
            "{\"metadata\":{\"uid\":1}}",
            "{\"a\"}",
            "{\"a\":]}",
            "{\"a\":\"\\",
        ] {
            assert_eq!(places(bad.as_bytes()), None, "{bad}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_serde(before in any_json(), labels in any_json(), uid in "[a-z0-9-]{0,36}") {
            let object = json!({
                "apiVersion": before,
                "metadata": {"labels": labels, "name": before, "uid": uid},
            });
            for encoded in [
                serde_json::to_vec(&object).expect("encodes"),
                serde_json::to_vec_pretty(&object).expect("encodes"),
            ] {
                let found = places(&encoded).expect("has metadata");
                prop_assert_eq!(text(&encoded, found.uid), &uid);
                let read: Value = serde_json::from_str(text(&encoded, found.labels)).expect("JSON");
                prop_assert_eq!(&read, &object["metadata"]["labels"]);
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = places(&bytes);
            let mut wrapped = b"{\"metadata\":{\"uid\":".to_vec();
            wrapped.extend(bytes);
            let _ = places(&wrapped);
        }
    }
}
