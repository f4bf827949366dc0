//! Text that is kept for long, compressed where that gains something.
//!
//! Pure. The same bytes are kept in memory and in the stored set, so that storing compresses nothing.

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use std::borrow::Cow;
use std::io::{Read as _, Write as _};

/// First byte of a text kept as it is.
const PLAIN: u8 = 0;
/// First byte of a deflated one.
const DEFLATED: u8 = 1;
/// Shorter texts grow rather than shrink.
const WORTH_IT: usize = 64;
/// Longest text that is unpacked: etcd takes 1.5 MiB, and JSON may be twice that.
const TEXT_LIMIT: u64 = 16 * 1024 * 1024;

/// A packed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl Packed {
    /// Packs a text.
    pub fn new(text: &str) -> Self {
        let deflated = (text.len() >= WORTH_IT).then(|| deflate(text.as_bytes()));
        match deflated.flatten() {
            Some(bytes) if bytes.len() <= text.len() => Self(bytes.into()),
            _ => {
                let mut bytes = Vec::with_capacity(text.len() + 1);
                bytes.push(PLAIN);
                bytes.extend_from_slice(text.as_bytes());
                Self(bytes.into())
            }
        }
    }

    /// Takes bytes that [`Packed::bytes`] gave; none when they are not such.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let packed = Self(bytes.into());
        packed.unpack().map(drop)?;
        Some(packed)
    }

    /// What to store.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    pub fn text(&self) -> Cow<'_, str> {
        // Only what unpacks was ever packed or taken.
        self.unpack().unwrap_or_default()
    }

    fn unpack(&self) -> Option<Cow<'_, str>> {
        match self.0.split_first()? {
            (&PLAIN, rest) => std::str::from_utf8(rest).ok().map(Cow::Borrowed),
            (&DEFLATED, rest) => inflate(rest, TEXT_LIMIT)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .map(Cow::Owned),
            _ => None,
        }
    }
}

fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(vec![DEFLATED], Compression::default());
    // Writing to memory does not fail; what did would merely stay plain.
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn inflate(bytes: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = DeflateDecoder::new(bytes).take(limit + 1);
    decoder.read_to_end(&mut out).ok()?;
    (u64::try_from(out.len()).ok()? <= limit).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_repeats_shrinks_and_what_does_not_grows_by_a_byte() {
        let long = r#"{"apiVersion":"v1","kind":"ConfigMap"}"#.repeat(50);
        assert!(Packed::new(&long).bytes().len() < long.len() / 10);
        assert_eq!(Packed::new("[]").bytes(), [PLAIN, b'[', b']']);
        assert_eq!(Packed::from_bytes(vec![]), None);
        assert_eq!(Packed::from_bytes(vec![7, 1]), None);
        assert_eq!(Packed::from_bytes(vec![DEFLATED, 255, 255]), None);
    }

    proptest! {
        /// Whatever is packed comes back, also by way of its bytes.
        #[test]
        fn texts_come_back(text in "\\PC{0,400}") {
            let packed = Packed::new(&text);
            prop_assert_eq!(&*packed.text(), &*text);
            let again = Packed::from_bytes(packed.bytes().to_vec());
            prop_assert_eq!(again, Some(packed));
        }
    }
}
