//! Why a text is not JSON, in the words of Go's reader, which clients know from real API servers. Pure.

/// What may come next.
#[derive(Clone, Copy)]
enum Wants {
    Value,
    /// A value, or the end of an empty list.
    ValueOrEnd,
    /// A key, or the end of an empty object.
    KeyOrEnd,
    Key,
    /// What stands behind a value, which depends on where it is.
    After,
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    Key,
    Member,
    Item,
}

/// The first thing that is wrong; `None` when the text is JSON.
pub(crate) fn problem(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.read() {
        Ok(()) => None,
        Err(End::Eof) => Some("unexpected end of JSON input".to_owned()),
        Err(End::Byte(place)) => {
            let byte = bytes.get(reader.at).copied().unwrap_or_default();
            Some(format!("invalid character {} {place}", shown(byte)))
        }
    }
}

/// The numbers of a text that is JSON, as they are written.
pub(crate) fn numbers(bytes: &[u8]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut reader = Reader { bytes, at: 0 };
    while let Ok(byte) = reader.peek() {
        let start = reader.at;
        let read = match byte {
            b'"' => reader.string(),
            b'-' | b'0'..=b'9' => reader.number(),
            _ => {
                reader.at += 1;
                continue;
            }
        };
        if read.is_err() {
            return found;
        }
        let literal = bytes.get(start..reader.at).unwrap_or_default();
        if byte != b'"'
            && let Ok(literal) = std::str::from_utf8(literal)
        {
            found.push(literal);
        }
    }
    found
}

/// JSON with everything in its texts that is no character replaced: bytes, and halves of pairs.
pub(crate) fn mended(bytes: &[u8]) -> Vec<u8> {
    const REPLACED: &str = "\\ufffd";
    let mut text = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        for _ in chunk.invalid() {
            text.extend_from_slice(REPLACED.as_bytes());
        }
    }
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = match (escaped(rest), rest.get(6..).and_then(escaped)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.extend_from_slice(REPLACED.as_bytes());
                at += 6;
                continue;
            }
            _ if rest.first() == Some(&b'\\') => 2,
            _ => 1,
        };
        out.extend(rest.iter().take(length));
        at += length;
    }
    out
}

/// The half of a pair, or the character, that a text begins with in hexadecimal.
fn escaped(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

enum End {
    Eof,
    /// The byte at the reader does not belong there.
    Byte(String),
}

fn wrong<T>(place: &str) -> Result<T, End> {
    Err(End::Byte(place.to_owned()))
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Result<u8, End> {
        self.bytes.get(self.at).copied().ok_or(End::Eof)
    }

    fn next_is(&mut self, fits: impl Fn(u8) -> bool, place: &str) -> Result<(), End> {
        if !fits(self.peek()?) {
            return wrong(place);
        }
        self.at += 1;
        Ok(())
    }

    fn read(&mut self) -> Result<(), End> {
        let mut places: Vec<Position> = Vec::new();
        let mut wants = Wants::Value;
        loop {
            while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            if matches!(wants, Wants::After) && places.is_empty() {
                return match self.peek() {
                    Ok(_) => wrong("after top-level value"),
                    Err(_) => Ok(()),
                };
            }
            let byte = self.peek()?;
            wants = match (wants, byte) {
                (Wants::ValueOrEnd, b']') | (Wants::KeyOrEnd, b'}') => {
                    self.at += 1;
                    places.pop();
                    Wants::After
                }
                (Wants::KeyOrEnd | Wants::Key, b'"') => {
                    self.string()?;
                    places.pop();
                    places.push(Position::Key);
                    Wants::After
                }
                (Wants::KeyOrEnd | Wants::Key, _) => {
                    return wrong("looking for beginning of object key string");
                }
                (Wants::Value | Wants::ValueOrEnd, b'{') => {
                    self.at += 1;
                    places.push(Position::Key);
                    Wants::KeyOrEnd
                }
                (Wants::Value | Wants::ValueOrEnd, b'[') => {
                    self.at += 1;
                    places.push(Position::Item);
                    Wants::ValueOrEnd
                }
                (Wants::Value | Wants::ValueOrEnd, _) => {
                    self.scalar(byte)?;
                    Wants::After
                }
                (Wants::After, _) => self.after(byte, &mut places)?,
            };
        }
    }

    fn after(&mut self, byte: u8, places: &mut Vec<Position>) -> Result<Wants, End> {
        let place = places.last().copied().unwrap_or(Position::Item);
        let wants = match (place, byte) {
            (Position::Key, b':') => {
                places.pop();
                places.push(Position::Member);
                Wants::Value
            }
            (Position::Key, _) => return wrong("after object key"),
            (Position::Member, b',') => Wants::Key,
            (Position::Item, b',') => Wants::Value,
            (Position::Member, b'}') | (Position::Item, b']') => {
                places.pop();
                Wants::After
            }
            (Position::Member, _) => return wrong("after object key:value pair"),
            (Position::Item, _) => return wrong("after array element"),
        };
        self.at += 1;
        Ok(wants)
    }

    fn scalar(&mut self, byte: u8) -> Result<(), End> {
        match byte {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => wrong("looking for beginning of value"),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), End> {
        for letter in word.bytes() {
            if self.peek()? != letter {
                let letter = char::from(letter);
                return wrong(&format!("in literal {word} (expecting '{letter}')"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), End> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    let escape = self.peek()?;
                    self.next_is(|b| br#"bfnrt\/"u"#.contains(&b), "in string escape code")?;
                    if escape == b'u' {
                        for _ in 0..4 {
                            self.next_is(
                                |b| b.is_ascii_hexdigit(),
                                "in \\u hexadecimal character escape",
                            )?;
                        }
                    }
                }
                0..0x20 => return wrong("in string literal"),
                _ => self.at += 1,
            }
        }
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<(), End> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let first = self.peek()?;
        self.next_is(|b| b.is_ascii_digit(), "in numeric literal")?;
        if first != b'0' {
            self.digits();
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            let place = "after decimal point in numeric literal";
            self.next_is(|b| b.is_ascii_digit(), place)?;
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            let place = "in exponent of numeric literal";
            self.next_is(|b| b.is_ascii_digit(), place)?;
            self.digits();
        }
        Ok(())
    }
}

/// A byte as Go quotes a character.
fn shown(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = crate::go::quote(&char::from(byte).to_string());
            let inner = quoted.trim_start_matches('"').trim_end_matches('"');
            format!("'{inner}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_those_of_go() {
        for (text, want) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("[1", "unexpected end of JSON input"),
            ("nul", "unexpected end of JSON input"),
            (
                "not json",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                "{x",
                "invalid character 'x' looking for beginning of object key string",
            ),
            (
                r#"{"a":1,}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (
                r#"{"a":1 "b"}"#,
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (
                r#""\u00g0""#,
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("-x", "invalid character 'x' in numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            (
                "1ex",
                "invalid character 'x' in exponent of numeric literal",
            ),
            (
                "'a'",
                r"invalid character '\'' looking for beginning of value",
            ),
        ] {
            assert_eq!(problem(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
        for text in [r#" {"a":[1,-0.5e+3,"\u00e9\n",{},[]],"b":null} "#, "true"] {
            assert_eq!(problem(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_serde_reads_has_no_problem(
            text in r#"[\[\]{}:,"\\ntrue0-9.eE +-]{0,24}"#
        ) {
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
                prop_assert_eq!(problem(text.as_bytes()), None);
            }
        }
    }
}
