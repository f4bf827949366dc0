//! A reader of DER that accepts one encoding of each value, and distinguished names on top of it. Pure.

/// Tags as they occur in requests and certificates.
pub(super) mod tag {
    pub(in crate::approver) const INTEGER: u8 = 0x02;
    pub(in crate::approver) const BIT_STRING: u8 = 0x03;
    pub(in crate::approver) const OID: u8 = 0x06;
    pub(in crate::approver) const UTF8_STRING: u8 = 0x0c;
    pub(in crate::approver) const PRINTABLE_STRING: u8 = 0x13;
    pub(in crate::approver) const SEQUENCE: u8 = 0x30;
    pub(in crate::approver) const SET: u8 = 0x31;
    pub(in crate::approver) const CONTEXT_0: u8 = 0xa0;
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a value is cut short")]
    Short,
    #[error("a length is not in its shortest form")]
    Length,
    #[error("a value is of an unexpected type")]
    Tag,
    #[error("something follows where nothing may")]
    Trailing,
    #[error("an attribute of the subject is neither a common name nor an organization")]
    Attribute,
    #[error("a subject value is neither a UTF8String nor a PrintableString")]
    String,
    #[error("the subject must have exactly one common name, not {0}")]
    CommonNames(usize),
}

/// Reads values from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

/// One value: its content, and its bytes as they were.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) content: &'a [u8],
    pub(super) raw: &'a [u8],
}

/// A distinguished name, reduced to what a subject of ours may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next value has this tag.
    pub(super) fn at(self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// Reads one value of this tag.
    pub(super) fn read(&mut self, tag: u8) -> Result<Value<'a>, Malformed> {
        if !self.at(tag) {
            return Err(if self.is_empty() {
                Malformed::Short
            } else {
                Malformed::Tag
            });
        }
        let (length, header) = self.length()?;
        let end = header.checked_add(length).ok_or(Malformed::Short)?;
        let raw = self.0.get(..end).ok_or(Malformed::Short)?;
        self.0 = &self.0[end..];
        Ok(Value {
            content: &raw[header..],
            raw,
        })
    }

    /// Ends the reading: nothing may be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(Malformed::Trailing)
        }
    }

    /// The length of the next value's content and of its header.
    fn length(self) -> Result<(usize, usize), Malformed> {
        let byte = |at: usize| {
            self.0
                .get(at)
                .copied()
                .map(usize::from)
                .ok_or(Malformed::Short)
        };
        match byte(1)? {
            short @ 0..=0x7f => Ok((short, 2)),
            0x81 => match byte(2)? {
                length @ 0x80.. => Ok((length, 3)),
                _ => Err(Malformed::Length),
            },
            0x82 => match (byte(2)? << 8) | byte(3)? {
                length @ 0x100.. => Ok((length, 4)),
                _ => Err(Malformed::Length),
            },
            // Indefinite, or longer than anything we read.
            _ => Err(Malformed::Length),
        }
    }
}

/// Reads a value of this tag and gives a reader of what it holds.
pub(super) fn enter<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<Reader<'a>, Malformed> {
    reader.read(tag).map(|value| Reader::new(value.content))
}

/// Reads a name whose attributes are one common name and any number of organisations, in any RDNs.
pub(super) fn read_name(reader: &mut Reader<'_>) -> Result<Name, Malformed> {
    let mut common_names = Vec::new();
    let mut organizations = Vec::new();
    let mut rdns = enter(reader, tag::SEQUENCE)?;
    while !rdns.is_empty() {
        let mut rdn = enter(&mut rdns, tag::SET)?;
        if rdn.is_empty() {
            return Err(Malformed::Short);
        }
        while !rdn.is_empty() {
            let mut attribute = enter(&mut rdn, tag::SEQUENCE)?;
            let kind = attribute.read(tag::OID)?.content;
            let value = read_string(&mut attribute)?;
            attribute.end()?;
            match kind {
                COMMON_NAME => common_names.push(value),
                ORGANIZATION => organizations.push(value),
                _ => return Err(Malformed::Attribute),
            }
        }
    }
    match <[String; 1]>::try_from(common_names) {
        Ok([common_name]) => Ok(Name {
            common_name,
            organizations,
        }),
        Err(other) => Err(Malformed::CommonNames(other.len())),
    }
}

fn read_string(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let (value, allowed): (_, fn(u8) -> bool) = if reader.at(tag::UTF8_STRING) {
        (reader.read(tag::UTF8_STRING)?, |_| true)
    } else if reader.at(tag::PRINTABLE_STRING) {
        (reader.read(tag::PRINTABLE_STRING)?, is_printable)
    } else {
        return Err(Malformed::String);
    };
    let text = std::str::from_utf8(value.content).map_err(|_| Malformed::String)?;
    if !value.content.iter().all(|byte| allowed(*byte)) {
        return Err(Malformed::String);
    }
    Ok(text.to_owned())
}

/// The characters of a PrintableString.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte)
}
