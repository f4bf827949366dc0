//! The desired set as it is stored in the member, so that an agent that starts without its hub knows
//! what should be there.
//!
//! It lies in numbered volumes, each a Secret or a file and each written whole. A volume ends with a
//! digest of itself, a Work too big for one is believed only when all its parts belong together, and of
//! two copies of a Work the later one counts: so whatever a crash leaves behind is either believed whole
//! or not at all.

pub mod place;
pub mod plan;

use super::manifest::Target;
use super::packed::Packed;
use super::state::Claims;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use plan::Plan;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

/// What a volume begins with; another format has another number.
const MAGIC: &[u8] = b"towline works 1\n";
/// Longest table of contents, unpacked.
const TABLE_LIMIT: u64 = 32 * 1024 * 1024;

/// Why a volume is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Not ours, or of a later format.
    #[error("it has a format that this version does not know")]
    Format,
    /// Its digest does not fit.
    #[error("it is damaged")]
    Damaged,
}

/// What all entries of a volume have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The execution namespace on the hub.
    pub namespace: String,
    /// Whether the hub said that our registration is gone: then nothing is healed by this set.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stopped: bool,
}

/// A Work, or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Generation last seen.
    #[serde(default, skip_serializing_if = "is_default")]
    pub generation: i64,
    /// resourceVersion last seen.
    #[serde(default, skip_serializing_if = "is_default")]
    pub version: String,
    /// Whether delivery is suspended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// Whether its objects outlive it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub preserve: bool,
    /// Whether the hub said that it is being deleted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deleting: bool,
    /// Whether its objects are to be deleted in the foreground.
    #[serde(default, skip_serializing_if = "is_default")]
    pub foreground: bool,
    /// Whether it vanished from the hub without having been deleted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub orphaned: bool,
    /// What left it by the hub's word and is still to leave the member.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaving: Vec<Target>,
    /// What it does not name any more without the hub having said so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left: Vec<Target>,
    /// The very objects that it has applied; with its first part only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claims: Claims,
    /// The scripts that it carries, empty without; with its first part only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scripts: String,
    /// A number that differs when anything above but the version does.
    pub print: u64,
    /// Which part this is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub part: u8,
    /// Of how many; 0 stands for 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parts: u8,
    /// Later writes have greater numbers.
    pub sequence: u64,
    /// Bytes of its manifests in this volume.
    pub size: usize,
}

impl Entry {
    /// What claims and scripts cost in the stored set, at most, in bytes.
    pub fn stored_extra(&self) -> usize {
        let scripts = match self.scripts.as_str() {
            "" => 0,
            text => Packed::new(text).bytes().len(),
        };
        self.claims.stored_size() + scripts
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Serialize, Deserialize)]
struct Table {
    #[serde(flatten)]
    header: Header,
    entries: Vec<Entry>,
}

/// A volume as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// What its entries have in common.
    pub header: Header,
    /// Entries with their bytes.
    pub entries: Vec<(Entry, Vec<u8>)>,
}

/// Makes a volume of entries and their bytes.
pub fn encode(header: &Header, entries: Vec<(Entry, Vec<u8>)>) -> Vec<u8> {
    let (entries, blobs): (Vec<Entry>, Vec<Vec<u8>>) = entries
        .into_iter()
        .map(|(entry, bytes)| {
            let size = bytes.len();
            (Entry { size, ..entry }, bytes)
        })
        .unzip();
    let table = Table {
        header: header.clone(),
        entries,
    };
    // Text and numbers always serialise, and memory takes whatever is written.
    let table = serde_json::to_vec(&table).unwrap_or_default();
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let _ = encoder.write_all(&table);
    let table = encoder.finish().unwrap_or_default();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&u32::try_from(table.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&table);
    out.extend(blobs.into_iter().flatten());
    let sum = digest(&SHA256, &out);
    out.extend_from_slice(sum.as_ref());
    out
}

/// Reads a volume.
pub fn decode(bytes: &[u8]) -> Result<Volume, Bad> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Bad::Format)?;
    let end = bytes
        .len()
        .checked_sub(SHA256_OUTPUT_LEN)
        .filter(|end| *end >= MAGIC.len())
        .ok_or(Bad::Damaged)?;
    let (body, sum) = bytes.split_at(end);
    if digest(&SHA256, body).as_ref() != sum {
        return Err(Bad::Damaged);
    }
    let rest = &rest[..rest.len() - SHA256_OUTPUT_LEN];
    let (length, rest) = rest.split_first_chunk::<4>().ok_or(Bad::Damaged)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Bad::Damaged)?;
    let (table, mut blobs) = rest.split_at_checked(length).ok_or(Bad::Damaged)?;
    let mut text = Vec::new();
    let read = DeflateDecoder::new(table)
        .take(TABLE_LIMIT)
        .read_to_end(&mut text);
    read.map_err(|_| Bad::Damaged)?;
    let table: Table = serde_json::from_slice(&text).map_err(|_| Bad::Damaged)?;
    let mut entries = Vec::with_capacity(table.entries.len());
    for entry in table.entries {
        let (bytes, rest) = blobs.split_at_checked(entry.size).ok_or(Bad::Damaged)?;
        blobs = rest;
        entries.push((entry, bytes.to_vec()));
    }
    Ok(Volume {
        header: table.header,
        entries,
    })
}

/// The set as it is believed.
#[derive(Debug, Default)]
pub struct Set {
    /// Works, each once.
    pub works: Vec<(Entry, Packed)>,
    /// Whether the hub said that our registration is gone.
    pub stopped: bool,
    /// Where everything lies.
    pub plan: Plan,
}

/// Puts volumes together, by their numbers. What is not of `namespace` is not believed and will be
/// written over.
pub fn assemble(namespace: &str, volumes: Vec<(usize, Result<Volume, Bad>)>) -> Set {
    let mut set = Set::default();
    let mut found: BTreeMap<String, Vec<(usize, Entry, Vec<u8>)>> = BTreeMap::new();
    for (number, volume) in volumes {
        set.plan.present(number);
        match volume {
            Ok(volume) if volume.header.namespace == namespace => {
                set.stopped |= volume.header.stopped;
                for (entry, bytes) in volume.entries {
                    let parts = found.entry(entry.name.clone()).or_default();
                    parts.push((number, entry, bytes));
                }
            }
            _ => set.plan.spoiled(number),
        }
    }
    for (name, mut parts) in found {
        let newest = parts.iter().map(|(_, e, _)| (e.sequence, e.print)).max();
        let (stays, stale): (Vec<_>, Vec<_>) = parts
            .drain(..)
            .partition(|(_, e, _)| Some((e.sequence, e.print)) == newest);
        for (number, ..) in &stale {
            set.plan.spoiled(*number);
        }
        let mut stays = stays;
        stays.sort_by_key(|(_, e, _)| e.part);
        stays.dedup_by_key(|(_, e, _)| e.part);
        let numbers: Vec<usize> = stays.iter().map(|(number, ..)| *number).collect();
        let Some((_, first, _)) = stays.first() else {
            continue;
        };
        let first = first.clone();
        let whole = stays.len() == usize::from(first.parts.max(1));
        let bytes: Vec<u8> = stays.into_iter().flat_map(|(_, _, bytes)| bytes).collect();
        let size = bytes.len();
        match Packed::from_bytes(bytes).filter(|_| whole) {
            Some(manifests) => {
                let name: Arc<str> = name.as_str().into();
                set.plan.found(
                    &name,
                    &numbers,
                    size,
                    first.stored_extra(),
                    (first.print, first.sequence),
                );
                set.works.push((first, manifests));
            }
            None => numbers.iter().for_each(|n| set.plan.spoiled(*n)),
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            namespace: "karmada-es-m1".into(),
            stopped: false,
        }
    }

    fn entry(name: &str, print: u64, sequence: u64) -> Entry {
        Entry {
            name: name.into(),
            uid: format!("uid-{name}"),
            print,
            sequence,
            ..Entry::default()
        }
    }

    fn volume(entries: Vec<(Entry, Vec<u8>)>) -> Result<Volume, Bad> {
        decode(&encode(&header(), entries))
    }

    fn packed(text: &str) -> Vec<u8> {
        Packed::new(text).bytes().to_vec()
    }

    #[test]
    fn works_come_back_and_others_do_not() {
        let one = volume(vec![
            (entry("a", 1, 1), packed("[1]")),
            (entry("b", 2, 1), packed("[2]")),
        ]);
        let foreign = Header {
            namespace: "karmada-es-other".into(),
            stopped: true,
        };
        let foreign = decode(&encode(&foreign, vec![(entry("c", 3, 1), packed("[3]"))]));
        let set = assemble(
            "karmada-es-m1",
            vec![(0, one), (3, foreign), (4, Err(Bad::Damaged))],
        );
        let names: Vec<&str> = set.works.iter().map(|(e, _)| e.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(!set.stopped);
        assert_eq!(set.plan.dirty(), [3, 4]);
        assert!(set.plan.contains("a") && !set.plan.contains("c"));
    }

    #[test]
    fn of_two_copies_the_later_counts() {
        let old = volume(vec![(entry("a", 1, 1), packed("[1]"))]);
        let new = volume(vec![(entry("a", 2, 2), packed("[2]"))]);
        let set = assemble("karmada-es-m1", vec![(0, old), (1, new)]);
        assert_eq!(set.works.len(), 1);
        assert_eq!(set.works[0].1.text(), "[2]");
        assert_eq!(set.plan.dirty(), [0]);
    }

    #[test]
    fn a_work_in_parts_is_believed_whole_or_not_at_all() {
        let bytes = packed("[1,2,3]");
        let (left, right) = bytes.split_at(3);
        let part = |part, print, bytes: &[u8]| {
            let entry = Entry {
                part,
                parts: 2,
                ..entry("a", print, 1)
            };
            volume(vec![(entry, bytes.to_vec())])
        };
        let whole = assemble(
            "karmada-es-m1",
            vec![(0, part(0, 1, left)), (1, part(1, 1, right))],
        );
        assert_eq!(whole.works[0].1.text(), "[1,2,3]");
        let torn = assemble(
            "karmada-es-m1",
            vec![(0, part(0, 2, left)), (1, part(1, 1, right))],
        );
        assert!(torn.works.is_empty());
        assert_eq!(torn.plan.dirty().len(), 2);
    }

    proptest! {
        /// A volume that lost or changed any byte is not believed.
        #[test]
        fn damage_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8, cut: bool) {
            let mut bytes = encode(&header(), vec![(entry("a", 1, 1), packed("[1]"))]);
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
