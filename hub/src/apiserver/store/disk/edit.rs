//! Changes to a database that nobody serves: what a restore takes out of a backup.

use super::super::error::OpenError;
use super::super::key::Key;
use super::super::stored::{Draft, Stored};
use super::sqlite::{number, revision};
use super::{schema, sealed};
use crate::apiserver::sealing::{AssociatedData, Keyring};
use crate::pack::Packer;
use rusqlite::{ToSql, Transaction, params};
use serde_json::Value;
use std::path::Path;

/// One transaction on it.
pub struct Edit<'a> {
    pub(in super::super) transaction: &'a Transaction<'a>,
    pub(in super::super) ring: &'a Keyring,
    pub(in super::super) file: &'a Path,
    /// The last revision that was handed out.
    pub(in super::super) revision: u64,
}

impl Edit<'_> {
    fn error(&self) -> impl Fn(rusqlite::Error) -> OpenError {
        |source| schema::error("edit", self.file, source)
    }

    /// The objects of a resource, `group/plural`, by their namespaces and names.
    pub fn objects(&self, resource: &str) -> Result<Vec<(Key, Value)>, OpenError> {
        self.select(resource, "", &[&resource])
    }

    fn select(
        &self,
        resource: &str,
        and: &str,
        values: &[&dyn ToSql],
    ) -> Result<Vec<(Key, Value)>, OpenError> {
        let sqlite = self.error();
        let sql = format!(
            "SELECT o.namespace, o.name, o.revision, o.json FROM object o
             JOIN resource r ON r.id = o.resource WHERE r.name = ?1 {and}
             ORDER BY o.namespace, o.name"
        );
        let mut statement = self.transaction.prepare(&sql).map_err(&sqlite)?;
        let mut rows = statement.query(values).map_err(&sqlite)?;
        let mut objects = Vec::new();
        while let Some(row) = rows.next().map_err(&sqlite)? {
            let text = |column| row.get::<_, String>(column).map_err(&sqlite);
            let key = Key::new(&text(0)?, &text(1)?);
            let place = AssociatedData {
                what: resource,
                name: key.as_str(),
                revision: revision(row.get(2).map_err(&sqlite)?),
            };
            let column = row.get_ref(3).map_err(&sqlite)?;
            let json = sealed::content(self.ring, place, column)?;
            let value = serde_json::from_slice(&json).map_err(|_| OpenError::Damaged {
                file: self.file.to_owned(),
                what: format!("{resource} {key}"),
            })?;
            objects.push((key, value));
        }
        Ok(objects)
    }

    /// One of them.
    pub fn object(&self, resource: &str, key: &Key) -> Result<Option<Value>, OpenError> {
        let (namespace, name) = (key.namespace(), key.name());
        let values: [&dyn ToSql; 3] = [&resource, &namespace, &name];
        let and = "AND o.namespace = ?2 AND o.name = ?3";
        let found = self.select(resource, and, &values)?;
        Ok(found.into_iter().next().map(|(_, value)| value))
    }

    /// Takes an object out.
    pub fn delete(&mut self, resource: &str, key: &Key) -> Result<(), OpenError> {
        let sql = "DELETE FROM object WHERE namespace = ?2 AND name = ?3
                   AND resource = (SELECT id FROM resource WHERE name = ?1)";
        let values = params![resource, key.namespace(), key.name()];
        let deleted = self.transaction.execute(sql, values);
        deleted.map(drop).map_err(self.error())
    }

    /// Puts another content in place of what an object has.
    pub fn replace(&mut self, resource: &str, key: &Key, value: Value) -> Result<(), OpenError> {
        let draft = Draft::new(value).map_err(|why| OpenError::Damaged {
            file: self.file.to_owned(),
            what: format!("{resource} {key}: {why}"),
        })?;
        self.revision += 1;
        let stored: Stored =
            draft.finish(key, self.revision, self.revision, &mut Packer::default());
        let content = sealed::column(self.ring, resource, &stored).map_err(self.error())?;
        let sql = "UPDATE object SET revision = ?4, json = ?5 WHERE namespace = ?2 AND name = ?3
                   AND resource = (SELECT id FROM resource WHERE name = ?1)";
        let values = params![
            resource,
            key.namespace(),
            key.name(),
            number(self.revision),
            content
        ];
        let replaced = self.transaction.execute(sql, values);
        replaced.map(drop).map_err(self.error())
    }
}
