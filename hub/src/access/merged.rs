//! The answers of many clusters as one list, and who is not in it. Pure.

#[cfg(test)]
mod tests;
mod write;

use super::listed::Form;
use bytes::Bytes;
use common::harmless;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use write::{Sound, Written, each, is_object};

/// The annotation that says in which cluster an object was found, as Karmada's own answers over many clusters have it.
pub const FROM: &str = "resource.karmada.io/cached-from-cluster";
/// The column of a table that says it.
const COLUMN: &str = "Cluster";
/// Where it stands, after the name.
const OWN: usize = 1;
/// Columns of a table. Kubernetes' own tables have ten at most.
const COLUMNS: usize = 64;
/// Why a cluster is missing that has too much.
pub(super) const NO_ROOM: &str = "its answer is longer than there is room for: name a namespace or a \
    selector, or ask it alone";
/// Characters of what a cluster says when it refuses.
const SAID: usize = 200;
/// Bytes of all warnings together: clients take only so many headers, hyper 16 KiB of them.
const WARNINGS: usize = 3_700;
/// Of these, those that say why.
const WITH_REASON: usize = 1_200;
/// Bytes of the name of a kind or of its version; no API server has longer ones.
const NAMED: usize = 512;
/// Bytes of a warning that names several clusters.
const NAMES: usize = 240;

/// An answer that is no page of a list.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// Not the JSON of one.
    #[error("its answer is no list")]
    NoList(#[source] serde_json::Error),
    /// One that says in too many words what it is: they would be told, and each may be told as six.
    #[error("the name of its kind has more than {NAMED} bytes")]
    LongName,
    /// The JSON of something else.
    #[error("its answer is no list, but of kind {0:?}")]
    OtherKind(String),
    /// A table without columns.
    #[error("its answer is no table")]
    NoTable,
    /// Columns that are none.
    #[error("a column of its table is none")]
    NoColumn(#[source] serde_json::Error),
    /// A table that nobody reads.
    #[error("its table has more than {COLUMNS} columns")]
    ManyColumns,
    /// Something among its objects or rows that is none.
    #[error("something in its answer is no object")]
    NoObject(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
    #[serde(borrow)]
    rows: Option<&'a RawValue>,
    #[serde(borrow, rename = "columnDefinitions")]
    columns: Option<&'a RawValue>,
}

impl Wire<'_> {
    /// Lists say by the name of their kind that they are; a CustomResourceDefinition may call its own otherwise.
    fn is_list(&self) -> bool {
        let other = matches!(self.kind.as_str(), "" | "Status");
        self.kind.ends_with("List") || (self.items.is_some() && !other)
    }
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, rename = "continue")]
    more: String,
}

/// A column of a table.
#[derive(Debug)]
struct Column {
    name: String,
    raw: Box<RawValue>,
}

#[derive(Deserialize)]
struct ColumnName {
    #[serde(default)]
    name: String,
}

/// What one cluster has.
#[derive(Debug, Default)]
pub(super) struct Part {
    kind: String,
    api_version: String,
    columns: Vec<Column>,
    /// The objects or rows of each page, an array as it was sent.
    pages: Vec<Box<RawValue>>,
}

impl Part {
    /// Adds a page; the token of the next one, if there is one.
    pub(super) fn add(&mut self, form: Form, page: &[u8]) -> Result<Option<String>, Unfit> {
        let wire: Wire<'_> = serde_json::from_slice(page).map_err(Unfit::NoList)?;
        if wire.kind.len().max(wire.api_version.len()) > NAMED {
            return Err(Unfit::LongName);
        }
        let columns = match form {
            Form::Table => columns(wire.columns)?,
            Form::Objects | Form::Metadata => Vec::new(),
        };
        let fits = match form {
            Form::Table if columns.is_empty() => return Err(Unfit::NoTable),
            Form::Table => wire.kind == "Table",
            Form::Objects | Form::Metadata => wire.is_list(),
        };
        if !fits {
            return Err(Unfit::OtherKind(wire.kind));
        }
        let found = match form {
            Form::Table => wire.rows,
            Form::Objects | Form::Metadata => wire.items,
        };
        // Of a list without objects some servers say null.
        if let Some(found) = found {
            if !found.get().starts_with('[') {
                return Err(Unfit::NoList(serde_json::Error::custom("no array")));
            }
            each(found, |_, item| sound(item)).map_err(Unfit::NoObject)?;
            self.pages.push(found.to_owned());
        }
        (self.kind, self.api_version) = (wire.kind, wire.api_version);
        self.columns = columns;
        Ok(Some(wire.metadata.more).filter(|it| !it.is_empty()))
    }

    /// What it is a list of.
    fn of(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }
}

/// Refuses what would spoil the list of all.
fn sound(object: &RawValue) -> serde_json::Result<()> {
    let Sound = serde_json::from_str(object.get())?;
    match is_object(object) {
        true => Ok(()),
        false => Err(serde_json::Error::custom("no object")),
    }
}

fn columns(raw: Option<&RawValue>) -> Result<Vec<Column>, Unfit> {
    let mut columns = Vec::new();
    let mut count = 0;
    let Some(raw) = raw.filter(|it| it.get().starts_with('[')) else {
        return Ok(columns);
    };
    let read = each(raw, |_, raw| {
        count += 1;
        if count > COLUMNS {
            return Err(serde_json::Error::custom("too many"));
        }
        sound(raw)?;
        let ColumnName { name } = serde_json::from_str(raw.get())?;
        let raw = raw.to_owned();
        columns.push(Column { name, raw });
        Ok(())
    });
    match read {
        Ok(()) => Ok(columns),
        Err(_) if count > COLUMNS => Err(Unfit::ManyColumns),
        Err(error) => Err(Unfit::NoColumn(error)),
    }
}

/// What all clusters said.
#[derive(Debug)]
pub struct Merged {
    form: Form,
    parts: BTreeMap<String, Part>,
    /// Those that did not answer, and why.
    missing: BTreeMap<String, String>,
    /// Those that whoever asks may not reach.
    refused: BTreeSet<String>,
    text: Bytes,
}

impl Merged {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            parts: BTreeMap::new(),
            missing: BTreeMap::new(),
            refused: BTreeSet::new(),
            text: Bytes::new(),
        }
    }

    pub(super) fn found(&mut self, cluster: String, part: Part) {
        self.parts.insert(cluster, part);
    }

    pub(super) fn missing(&mut self, cluster: String, why: &str) {
        self.missing.insert(cluster, harmless::line(why, SAID));
    }

    pub(super) fn refused(&mut self, cluster: String) {
        self.refused.insert(cluster);
    }

    /// Leaves out whoever answered another kind of list than most, for no cluster says what the others list. Of as many,
    /// the first by name counts.
    pub(super) fn agree(&mut self) {
        // Of the other forms the kind is always the same.
        if self.form != Form::Objects {
            return;
        }
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for part in self.parts.values() {
            *counts.entry(part.of()).or_default() += 1;
        }
        let most = counts.values().max();
        let mut usual = self.parts.values().map(Part::of);
        let Some((version, kind)) = usual.find(|it| counts.get(it) == most) else {
            return;
        };
        let odd = self.parts.iter().filter(|it| it.1.of() != (version, kind));
        let why = |part: &Part| {
            let (its_version, its_kind) = part.of();
            format!(
                "its answer is {its_kind:?} of {its_version:?}, and others' {kind} of {version}"
            )
        };
        let odd: Vec<_> = odd.map(|(name, it)| (name.clone(), why(it))).collect();
        for (cluster, why) in odd {
            self.parts.remove(&cluster);
            self.missing(cluster, &why);
        }
    }

    /// Whether there are clusters, and they may be reached by somebody else alone.
    pub fn is_refused(&self) -> bool {
        self.parts.is_empty() && self.missing.is_empty() && !self.refused.is_empty()
    }

    /// What the first cluster says, where none of those that were asked answered.
    pub fn failed(&self) -> Option<String> {
        let (cluster, why) = self
            .missing
            .first_key_value()
            .filter(|_| self.parts.is_empty())?;
        let count = self.missing.len();
        Some(format!(
            "none of {count} clusters answered: {cluster}: {why}"
        ))
    }

    /// The clusters that are in the list.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.parts.keys().map(String::as_str)
    }

    /// A warning for each cluster that is not, as long as there is room; then several in one. Who may not list the
    /// clusters of the hub is told of none that they may not reach.
    pub fn warnings(&self, may_list: bool) -> Vec<String> {
        let mut missing: Vec<(&str, &str)> = Vec::new();
        missing.extend(
            self.missing
                .iter()
                .map(|(cluster, why)| (cluster.as_str(), why.as_str())),
        );
        let mut warnings = Vec::new();
        if may_list {
            let why = "you have no right to clusters/proxy of it";
            missing.extend(self.refused.iter().map(|cluster| (cluster.as_str(), why)));
            missing.sort_unstable();
        } else {
            warnings.push("clusters that you may not reach are left out".to_owned());
        }
        let mut said: usize = warnings.iter().map(String::len).sum();
        let mut rest = missing.into_iter().peekable();
        while let Some((cluster, why)) = rest.peek() {
            let warning = format!("cluster {cluster} is missing: {why}");
            said += warning.len();
            if said > WITH_REASON {
                said -= warning.len();
                break;
            }
            warnings.push(warning);
            rest.next();
        }
        let mut names = String::new();
        let mut left = rest.len();
        for (cluster, _) in rest {
            if names.len() + cluster.len() > NAMES {
                warnings.push(std::mem::take(&mut names));
            }
            if said + cluster.len() > WARNINGS {
                break;
            }
            let before = if names.is_empty() {
                "missing too: "
            } else {
                ", "
            };
            names = names + before + cluster;
            said += before.len() + cluster.len();
            left -= 1;
        }
        if left > 0 {
            names = match names.as_str() {
                "" => format!("{left} more clusters are missing"),
                some => format!("{some} and {left} more clusters"),
            };
        }
        warnings.extend(Some(names).filter(|it| !it.is_empty()));
        warnings
    }

    /// The list up to its objects, for so many bytes in all.
    pub(super) fn begin(&self, room: usize) -> Written {
        let first = self.parts.values().next();
        let of = match (self.form, first) {
            (Form::Table, _) => ("Table", "meta.k8s.io/v1"),
            (Form::Metadata, _) => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            (Form::Objects, Some(part)) => (part.kind.as_str(), part.api_version.as_str()),
            (Form::Objects, None) => ("List", "v1"),
        };
        let columns = first.map_or(&[][..], |it| &it.columns);
        Written::begin(self.form, of, columns, room)
    }

    /// Adds the objects of one cluster, each saying where it was found. One without room for all of its objects is missing.
    pub(super) fn write(&mut self, cluster: &str, into: &mut Written) {
        let Some(part) = self.parts.get_mut(cluster) else {
            return;
        };
        let pages = std::mem::take(&mut part.pages);
        // All of it was read before: there may be no room, and nothing else.
        if into.add(cluster, &part.columns, &pages).is_err() {
            self.parts.remove(cluster);
            self.missing(cluster.to_owned(), NO_ROOM);
        }
    }

    /// The whole list, once it is written.
    pub(super) fn ends(&mut self, written: Written) {
        self.text = written.end().into();
    }

    /// The whole list, as JSON.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }
}
