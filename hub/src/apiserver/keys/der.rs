//! A writer of DER, as much as a client certificate needs. Pure.

use chrono::{DateTime, Datelike as _, Utc};

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const UTF8_STRING: u8 = 0x0c;

/// One value: tag, length, content.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().position(|b| *b != 0).unwrap_or(length.len())..];
    match content.len() {
        0..0x80 => out.push(significant.first().copied().unwrap_or(0)),
        _ => {
            // At most eight bytes of length.
            out.push(0x80 | u8::try_from(significant.len()).unwrap_or(0x7f));
            out.extend_from_slice(significant);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A value that consists of values.
pub(super) fn of(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    value(tag, &parts.concat())
}

/// A positive integer.
pub(super) fn positive(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
    let bytes = &bytes[start..];
    match bytes.first() {
        Some(first) if *first < 0x80 => value(INTEGER, bytes),
        _ => of(INTEGER, &[&[0], bytes]),
    }
}

/// A time: with two digits of the year as long as that is unmistakable.
pub(super) fn time(at: DateTime<Utc>) -> Vec<u8> {
    if (1950..2050).contains(&at.year()) {
        value(0x17, at.format("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        value(0x18, at.format("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_integers_take_their_shortest_form() {
        assert_eq!(value(OCTET_STRING, b""), [4, 0]);
        assert_eq!(&value(OCTET_STRING, &[7; 0x80])[..3], [4, 0x81, 0x80]);
        assert_eq!(&value(OCTET_STRING, &[7; 0x100])[..4], [4, 0x82, 1, 0]);
        assert_eq!(positive(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(positive(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(positive(&[]), [2, 1, 0]);
    }

    #[test]
    fn times_change_their_form_in_2050() {
        let at = |text: &str| time(text.parse().expect("a time"));
        assert_eq!(&at("2049-12-31T23:59:59Z")[2..], b"491231235959Z");
        assert_eq!(&at("2050-01-01T00:00:00Z")[2..], b"20500101000000Z");
    }
}
