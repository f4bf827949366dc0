//! The answers of many clusters as one list, and who is not in it. Pure.

#[cfg(test)]
mod tests;

use super::listed::Form;
use common::harmless;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation that says in which cluster an object was found, as Karmada's own answers over many clusters have it.
pub const FROM: &str = "resource.karmada.io/cached-from-cluster";
/// The column of a table that says it.
const COLUMN: &str = "Cluster";
/// Where it stands, after the name.
const OWN: usize = 1;
/// Characters of what a cluster says when it refuses.
const SAID: usize = 200;
/// Bytes of all warnings together: clients take only so many headers, hyper 16 KiB of them.
const WARNINGS: usize = 3_700;
/// Of these, those that say why.
const WITH_REASON: usize = 1_200;
/// Bytes of a warning that names several clusters.
const NAMES: usize = 240;

/// An answer that is no page of a list.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// Not the JSON of one.
    #[error("its answer is no list")]
    NoList(#[source] serde_json::Error),
    /// The JSON of something else.
    #[error("its answer is no list, but of kind {0:?}")]
    OtherKind(String),
    /// A table without columns.
    #[error("its answer is no table")]
    NoTable,
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
    items: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    rows: Option<Vec<&'a RawValue>>,
    #[serde(default, rename = "columnDefinitions")]
    columns: Vec<Value>,
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

/// What one cluster has, page by page.
#[derive(Debug, Default)]
pub(super) struct Part {
    kind: String,
    api_version: String,
    columns: Vec<Value>,
    items: Vec<Box<RawValue>>,
}

impl Part {
    /// Adds a page; the token of the next one, if there is one.
    pub(super) fn add(&mut self, form: Form, page: &[u8]) -> Result<Option<String>, Unfit> {
        let wire: Wire<'_> = serde_json::from_slice(page).map_err(Unfit::NoList)?;
        let fits = match form {
            Form::Table if wire.columns.is_empty() => return Err(Unfit::NoTable),
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
        let found = found.unwrap_or_default();
        for item in &found {
            // Read as it will be when it is written: what cannot be would spoil the list of all.
            serde_json::from_str::<Map<String, Value>>(item.get()).map_err(Unfit::NoObject)?;
        }
        self.items.extend(found.into_iter().map(ToOwned::to_owned));
        (self.kind, self.api_version) = (wire.kind, wire.api_version);
        self.columns = wire.columns;
        Ok(Some(wire.metadata.more).filter(|it| !it.is_empty()))
    }

    /// What it is a list of.
    fn of(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
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
}

impl Merged {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            parts: BTreeMap::new(),
            missing: BTreeMap::new(),
            refused: BTreeSet::new(),
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

    /// The list up to its objects.
    pub(super) fn head(&self) -> Vec<u8> {
        let first = self.parts.values().next();
        let (kind, version) = match (self.form, first) {
            (Form::Table, _) => ("Table", "meta.k8s.io/v1"),
            (Form::Metadata, _) => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            (Form::Objects, Some(part)) => (part.kind.as_str(), part.api_version.as_str()),
            (Form::Objects, None) => ("List", "v1"),
        };
        let (kind, version) = (json!(kind), json!(version));
        let metadata = json!({"resourceVersion": ""});
        let head = format!("{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{metadata}");
        let items = match self.form {
            Form::Table => {
                let columns = Value::from(self.columns());
                format!("\"columnDefinitions\":{columns},\"rows\"")
            }
            Form::Objects | Form::Metadata => "\"items\"".to_owned(),
        };
        format!("{head},{items}:[").into_bytes()
    }

    /// The columns of the first cluster by name, with one that says which cluster it is.
    fn columns(&self) -> Vec<Value> {
        let mut columns = self
            .parts
            .values()
            .next()
            .map_or_else(Vec::new, |it| it.columns.clone());
        let own = json!({
            "name": COLUMN, "type": "string", "format": "", "priority": 0,
            "description": "The cluster in which the object was found.",
        });
        columns.insert(OWN.min(columns.len()), own);
        columns
    }

    /// The objects of one cluster, each saying where it was found, separated by commas.
    pub(super) fn written(&self, cluster: &str, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let Some(part) = self.parts.get(cluster) else {
            return Ok(());
        };
        let columns = names(&self.columns());
        let own = names(&part.columns);
        for item in &part.items {
            let mut item: Value = serde_json::from_str(item.get())?;
            match self.form {
                Form::Table => row(&mut item, cluster, &columns, &own),
                Form::Objects | Form::Metadata => mark(&mut item, cluster),
            }
            if into.last().is_some_and(|it| *it != b'[') {
                into.push(b',');
            }
            serde_json::to_writer(&mut *into, &item)?;
        }
        Ok(())
    }
}

fn names(columns: &[Value]) -> Vec<String> {
    let names = columns.iter();
    names
        .map(|it| it["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// A row under the columns of all: members of other versions have others.
fn row(row: &mut Value, cluster: &str, columns: &[String], own: &[String]) {
    let cells = row["cells"].as_array().cloned().unwrap_or_default();
    let cell = |(at, name): (usize, &String)| {
        if at == OWN {
            return json!(cluster);
        }
        let at = own.iter().position(|it| it == name);
        at.and_then(|at| cells.get(at))
            .cloned()
            .unwrap_or_else(|| json!("<none>"))
    };
    let cells: Vec<Value> = columns.iter().enumerate().map(cell).collect();
    row["cells"] = cells.into();
    if row["object"]["metadata"].is_object() {
        mark(&mut row["object"], cluster);
    }
}

fn mark(object: &mut Value, cluster: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[FROM] = cluster.into();
}
