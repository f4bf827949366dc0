//! Objects of one resource resemble each other, in their fields and in what is noted of their managers: each lies in
//! memory as what differs from one of them. So do those that the store has, and those that views hold.

use std::borrow::Cow;
use std::sync::Arc;

/// What is shorter lies as it is: little is saved, and Leases, which are, are read and written all the time.
const SHORTEST: usize = 768;
/// As much of an object as others are likened to; matches reach no further back than 64 KiB.
const LONGEST_SAMPLE: usize = 32 << 10;
/// After so many objects that resemble the sample little, the next becomes the sample.
const MISSES: u32 = 32;

/// An object that others are likened to.
pub(crate) struct Sample(Box<[u8]>);

impl Sample {
    fn of(json: &[u8]) -> Arc<Self> {
        Arc::new(Self(json.get(..LONGEST_SAMPLE).unwrap_or(json).into()))
    }

    /// What differs from this; none where that is hardly less.
    fn pack(&self, json: &[u8]) -> Option<Vec<u8>> {
        let packed = lz4_flex::block::compress_with_dict(json, &self.0);
        (packed.len() <= json.len() / 4 * 3).then_some(packed)
    }

    /// What was packed, `len` bytes long.
    pub(crate) fn unpack(&self, packed: &[u8], len: usize) -> Vec<u8> {
        lz4_flex::block::decompress_with_dict(packed, len, &self.0)
            .expect("invariant: it was packed by this sample")
    }
}

/// Packs the objects of one resource.
#[derive(Clone)]
pub(crate) struct Packer {
    sample: Option<Arc<Sample>>,
    misses: u32,
    /// What is shorter lies as it is.
    shortest: usize,
}

impl Default for Packer {
    fn default() -> Self {
        Self::from(SHORTEST)
    }
}

impl Packer {
    /// One that packs whatever is of this length or longer.
    pub(crate) fn from(shortest: usize) -> Self {
        Self {
            sample: None,
            misses: 0,
            shortest,
        }
    }

    /// How an object is to lie in memory, and what it is likened to, if it is.
    pub(crate) fn pack<'j>(&mut self, json: &'j [u8]) -> (Cow<'j, [u8]>, Option<Arc<Sample>>) {
        if json.len() < self.shortest {
            return (Cow::Borrowed(json), None);
        }
        if self.misses >= MISSES {
            (self.sample, self.misses) = (None, 0);
        }
        let sample = self.sample.get_or_insert_with(|| Sample::of(json));
        let packed = sample.pack(json);
        match packed.as_ref().map(Vec::len) {
            Some(len) if len <= json.len() / 2 => self.misses = 0,
            _ => self.misses += 1,
        }
        match packed {
            Some(packed) => (Cow::Owned(packed), Some(Arc::clone(sample))),
            None => (Cow::Borrowed(json), None),
        }
    }

    /// One that likens to what another object was likened to.
    pub(crate) fn like(sample: Option<&Arc<Sample>>) -> Self {
        Self {
            sample: sample.cloned(),
            ..Self::default()
        }
    }
}

/// A text as it lies in memory.
pub(crate) struct Packed {
    held: Box<[u8]>,
    /// What it was packed by; none where it lies as it is.
    sample: Option<Arc<Sample>>,
    len: usize,
}

impl Packed {
    /// Packs a text.
    pub(crate) fn new(text: &str, packer: &mut Packer) -> Self {
        let (held, sample) = packer.pack(text.as_bytes());
        Self {
            held: held.into(),
            sample,
            len: text.len(),
        }
    }

    /// How many bytes it takes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The text.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match &self.sample {
            Some(sample) => {
                let text = String::from_utf8(sample.unpack(&self.held, self.len));
                Cow::Owned(text.expect("invariant: it was text"))
            }
            None => Cow::Borrowed(str::from_utf8(&self.held).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object(number: u64, size: usize) -> Vec<u8> {
        let uid = format!("{:032x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fields: Vec<String> = (0..size).map(|at| format!("f:field-{at}")).collect();
        let object =
            json!({"metadata": {"name": format!("n-{number}"), "uid": uid, "fields": fields}});
        object.to_string().into_bytes()
    }

    #[test]
    fn what_resembles_the_others_takes_a_fraction() {
        let mut packer = Packer::default();
        for number in 0..100 {
            let json = object(number, 100);
            let (packed, sample) = packer.pack(&json);
            assert!(
                packed.len() * 8 < json.len(),
                "{} of {}",
                packed.len(),
                json.len()
            );
            let sample = sample.expect("likened");
            assert_eq!(sample.unpack(&packed, json.len()), json);
        }
    }

    #[test]
    fn a_sample_that_nothing_resembles_gives_way() {
        let noise = |seed: u64| {
            let mut state = seed;
            let byte = std::iter::repeat_with(move || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            });
            byte.take(2 * SHORTEST).collect::<Vec<u8>>()
        };
        let mut packer = Packer::default();
        for seed in 0..=u64::from(MISSES) {
            let _ = packer.pack(&noise(seed));
        }
        let json = object(1, 100);
        let _ = packer.pack(&json);
        let again: Vec<bool> = (2..2 + 2 * u64::from(MISSES))
            .map(|number| packer.pack(&object(number, 100)).1.is_some())
            .collect();
        assert!(again.ends_with(&[true]), "{again:?}");
    }

    #[test]
    fn what_is_short_lies_as_it_is() {
        let mut packer = Packer::default();
        let json = object(1, 10);
        let (packed, sample) = packer.pack(&json);
        assert!(sample.is_none() && *packed == *json);
    }

    proptest! {
        #[test]
        fn what_was_packed_is_what_it_was(all in prop::collection::vec(prop::collection::vec(0..4_u8, 0..5000), 1..8)) {
            let mut packer = Packer::default();
            for bytes in &all {
                let (packed, sample) = packer.pack(bytes);
                let read = match sample {
                    Some(sample) => sample.unpack(&packed, bytes.len()),
                    None => packed.into_owned(),
                };
                prop_assert_eq!(&read, bytes);
                let text = String::from_utf8_lossy(bytes);
                let held = Packed::new(&text, &mut packer);
                prop_assert_eq!(held.text(), text);
            }
        }
    }
}
