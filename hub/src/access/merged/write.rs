//! The text of a list over clusters, in so many bytes. Of what members sent only what is changed is taken apart, for
//! values take up to a hundred times their text.

use super::{COLUMN, COLUMNS, Column, FROM, OWN};
use crate::access::listed::Form;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Result, json};
use std::fmt;

/// Where the cell of a column comes from.
enum Cell {
    /// The name of the cluster.
    Cluster,
    /// The member's own, by its place.
    Own(usize),
    /// The member does not have that column.
    None,
}

/// What is written so far.
pub(in crate::access) struct Written {
    form: Form,
    /// The names of all columns, of a table.
    columns: Vec<String>,
    text: Vec<u8>,
    room: usize,
}

impl Written {
    /// The list up to its objects, for so many bytes.
    pub(super) fn begin(
        form: Form,
        (kind, version): (&str, &str),
        own: &[Column],
        room: usize,
    ) -> Self {
        let (kind, version) = (json!(kind), json!(version));
        let head = format!(
            "{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{{\"resourceVersion\":\"\"}},"
        );
        let mut written = Self {
            form,
            columns: Vec::new(),
            text: head.into_bytes(),
            room,
        };
        if form == Form::Table {
            let mut columns: Vec<(&str, &str)> = Vec::new();
            columns.extend(own.iter().map(|it| (it.name.as_str(), it.raw.get())));
            let ours = json!({
                "name": COLUMN, "type": "string", "format": "", "priority": 0,
                "description": "The cluster in which the object was found.",
            });
            let ours = ours.to_string();
            columns.insert(OWN.min(columns.len()), (COLUMN, &ours));
            let raws: Vec<&str> = columns.iter().map(|it| it.1).collect();
            let raws = format!("\"columnDefinitions\":[{}],\"rows\":[", raws.join(","));
            written.text.extend_from_slice(raws.as_bytes());
            written.columns = columns.into_iter().map(|it| it.0.to_owned()).collect();
        } else {
            written.text.extend_from_slice(b"\"items\":[");
        }
        written
    }

    /// Adds the objects of one cluster, all or none.
    pub(super) fn add(
        &mut self,
        cluster: &str,
        own: &[Column],
        pages: &[Box<RawValue>],
    ) -> Result<()> {
        let before = self.text.len();
        let place = |(at, name): (usize, &String)| match own.iter().position(|it| it.name == *name)
        {
            _ if at == OWN => Cell::Cluster,
            Some(at) => Cell::Own(at),
            None => Cell::None,
        };
        let cells: Vec<Cell> = self.columns.iter().enumerate().map(place).collect();
        let cluster = json!(cluster).to_string();
        let mut added = pages.iter().map(|page| {
            each(page, |_, item| {
                if self.text.last().is_some_and(|it| *it != b'[') {
                    self.put(",")?;
                }
                match self.form {
                    Form::Table => self.row(item, &cluster, &cells),
                    Form::Objects | Form::Metadata => self.object(item, &cluster),
                }
            })
        });
        let added = added.try_for_each(|it| it);
        if added.is_err() {
            self.text.truncate(before);
        }
        added
    }

    /// The whole list.
    pub(in crate::access) fn end(mut self) -> Vec<u8> {
        self.text.extend_from_slice(b"]}");
        self.text
    }

    fn put(&mut self, text: &str) -> Result<()> {
        if self.text.len() + text.len() > self.room {
            return Err(serde_json::Error::custom("there is no room left for it"));
        }
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// What comes before a value of an object.
    fn key(&mut self, key: &str) -> Result<()> {
        if self.text.last() != Some(&b'{') {
            self.put(",")?;
        }
        self.put(&json!(key).to_string())?;
        self.put(":")
    }

    /// A row under the columns of all: members of other versions have others.
    fn row(&mut self, row: &RawValue, cluster: &str, columns: &[Cell]) -> Result<()> {
        self.put("{")?;
        let mut has_cells = false;
        each(row, |key, value| {
            self.key(key)?;
            match key {
                "cells" => {
                    has_cells = true;
                    self.cells(Some(value), cluster, columns)
                }
                "object" => self.object(value, cluster),
                _ => self.put(value.get()),
            }
        })?;
        if !has_cells {
            self.key("cells")?;
            self.cells(None, cluster, columns)?;
        }
        self.put("}")
    }

    fn cells(&mut self, own: Option<&RawValue>, cluster: &str, columns: &[Cell]) -> Result<()> {
        let mut cells: Vec<&str> = Vec::new();
        if let Some(own) = own.filter(|it| it.get().starts_with('[')) {
            each(own, |_, cell| {
                // More than there are columns stand under none.
                if cells.len() < COLUMNS {
                    cells.push(cell.get());
                }
                Ok(())
            })?;
        }
        let mut before = "[";
        for column in columns {
            self.put(before)?;
            before = ",";
            self.put(match column {
                Cell::Cluster => cluster,
                Cell::Own(at) => cells.get(*at).copied().unwrap_or("\"<none>\""),
                Cell::None => "\"<none>\"",
            })?;
        }
        self.put("]")
    }

    /// An object that says where it was found, if it has metadata. What says something twice says it twice there.
    fn object(&mut self, object: &RawValue, cluster: &str) -> Result<()> {
        if !is_object(object) {
            return self.put(object.get());
        }
        self.put("{")?;
        each(object, |key, value| {
            self.key(key)?;
            match key {
                "metadata" if is_object(value) => self.metadata(value, cluster),
                _ => self.put(value.get()),
            }
        })?;
        self.put("}")
    }

    fn metadata(&mut self, metadata: &RawValue, cluster: &str) -> Result<()> {
        self.put("{")?;
        let mut is_marked = false;
        each(metadata, |key, value| {
            self.key(key)?;
            match key {
                "annotations" => {
                    is_marked = true;
                    self.annotations(Some(value), cluster)
                }
                _ => self.put(value.get()),
            }
        })?;
        if !is_marked {
            self.key("annotations")?;
            self.annotations(None, cluster)?;
        }
        self.put("}")
    }

    fn annotations(&mut self, own: Option<&RawValue>, cluster: &str) -> Result<()> {
        self.put("{")?;
        if let Some(own) = own.filter(|it| is_object(it)) {
            each(own, |key, value| {
                if key == FROM {
                    return Ok(());
                }
                self.key(key)?;
                self.put(value.get())
            })?;
        }
        self.key(FROM)?;
        self.put(cluster)?;
        self.put("}")
    }
}

/// Whether it is an object.
pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Has each value of an object, or of an array (without a key), as it was sent.
pub(super) fn each<'a>(
    raw: &'a RawValue,
    of: impl FnMut(&str, &'a RawValue) -> Result<()>,
) -> Result<()> {
    serde_json::Deserializer::from_str(raw.get()).deserialize_any(Each(of))
}

struct Each<F>(F);

impl<'a, F: FnMut(&str, &'a RawValue) -> Result<()>> Visitor<'a> for Each<F> {
    type Value = ();

    fn expecting(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            (self.0)(&key, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> std::result::Result<(), A::Error> {
        while let Some(value) = seq.next_element()? {
            (self.0)("", value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Something that every reader of JSON can read: no deeper, and of no greater numbers, than `serde_json` itself reads.
/// Nothing of it is kept.
pub(super) struct Sound;

impl<'a> Deserialize<'a> for Sound {
    fn deserialize<D: Deserializer<'a>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'a> Visitor<'a> for Sound {
    type Value = Self;

    fn expecting(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> std::result::Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> std::result::Result<Self, A::Error> {
        while seq.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> std::result::Result<Self, E> {
        Ok(self)
    }
}
