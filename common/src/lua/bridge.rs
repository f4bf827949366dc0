//! Between JSON and values of scripts.
//!
//! Lua knows one kind of table and one kind of number. A table that was a list or a map stays one, if it is passed on; one
//! that the script made is a list when its keys are 1 to n. What is empty and made by the script is neither, see [`restore`].

use super::ledger::{Exceeded, Shape};
use super::machine::{Context, Machine, RunError, told, type_name};
use super::number::whole;
use mlua::{Table, Value};
use serde_json::{Map, Number, Value as Json};

/// How deep a value may be nested.
const DEEPEST: usize = 100;
/// Bytes of JSON that cost a step: a number is six, and takes about as long as a third of a step.
const JSON_A_STEP: f64 = 16.0;
/// With how many values of the originals one of the result is compared in [`restore`].
const CANDIDATES: usize = 64;

/// Why a value of a script is no JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotConverted {
    /// It has something that JSON has not.
    #[error("the result has a {0}, which no object has")]
    Type(&'static str),
    /// It contains itself, or nearly.
    #[error("the result is nested more than {DEEPEST} deep")]
    Deep,
    /// A key is neither text nor number.
    #[error("the result has a {0} as a key, which no object has")]
    Key(&'static str),
    /// No number of JSON.
    #[error("the result has a number that is not finite")]
    Number,
    /// It is too large.
    #[error("the result is larger than {0} bytes")]
    Large(usize),
    /// Reading it took too much.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// A key of a table.
enum Key {
    At(i64),
    Text(String),
}

impl Machine {
    /// A JSON value as one of the script.
    pub fn import(&self, json: &Json) -> Result<Value, RunError> {
        let imported = self.context().import(json);
        imported.map_err(|error| told(&self.ledger, &error))
    }

    /// A value of the script as JSON of at most so many bytes.
    pub fn export(&self, value: &Value, limit: usize) -> Result<Json, NotConverted> {
        self.context().export(value, limit)
    }
}

impl Context<'_> {
    /// A JSON value as one of the script.
    pub fn import(&self, json: &Json) -> mlua::Result<Value> {
        let number = |it: &Number| it.as_f64().unwrap_or(0.0);
        let (table, shape) = match json {
            Json::Null => return Ok(Value::Nil),
            Json::Bool(value) => return Ok(Value::Boolean(*value)),
            Json::Number(it) => return Ok(Value::Number(number(it))),
            Json::String(text) => return Ok(Value::String(self.lua.create_string(text)?)),
            Json::Array(items) => {
                let table = self.lua.create_table_with_capacity(items.len(), 0)?;
                for (at, item) in items.iter().enumerate() {
                    table.raw_set(at + 1, self.import(item)?)?;
                }
                (table, Shape::List)
            }
            Json::Object(map) => {
                let table = self.lua.create_table_with_capacity(0, map.len())?;
                for (key, item) in map {
                    table.raw_set(key.as_str(), self.import(item)?)?;
                }
                (table, Shape::Map)
            }
        };
        let mut shapes = self.ledger.shapes.borrow_mut();
        shapes.insert(table.to_pointer().addr(), shape);
        Ok(Value::Table(table))
    }

    /// A value of the script as JSON of at most so many bytes. Empty tables of which nobody knows whether they are
    /// lists or maps become what [`restore`] settles. It is charged as it goes, so that what is refused in the end has
    /// its price too.
    pub fn export(&self, value: &Value, limit: usize) -> Result<Json, NotConverted> {
        let mut left = limit;
        let exported = self.exported(value, &mut left, 0);
        exported.map_err(|error| match error {
            NotConverted::Large(_) => NotConverted::Large(limit),
            other => other,
        })
    }

    fn exported(
        &self,
        value: &Value,
        left: &mut usize,
        depth: usize,
    ) -> Result<Json, NotConverted> {
        if depth > DEEPEST {
            return Err(NotConverted::Deep);
        }
        let length = match value {
            Value::String(text) => text.as_bytes().len(),
            _ => 3,
        };
        self.spend(left, length + 3)?;
        Ok(match value {
            Value::Nil => Json::Null,
            Value::Boolean(value) => Json::Bool(*value),
            Value::Integer(number) => Json::from(*number),
            Value::Number(number) => Json::Number(exported_number(*number)?),
            Value::String(text) => Json::String(text.to_string_lossy()),
            Value::Table(table) => return self.exported_table(table, left, depth),
            other => return Err(NotConverted::Type(type_name(other))),
        })
    }

    fn exported_table(
        &self,
        table: &Table,
        left: &mut usize,
        depth: usize,
    ) -> Result<Json, NotConverted> {
        // What looks empty may have had many entries.
        let step = self.ledger.step(self.lua);
        step.map_err(|_| self.exceeded())?;
        let shape = {
            let shapes = self.ledger.shapes.borrow();
            shapes.get(&table.to_pointer().addr()).copied()
        };
        let mut entries: Vec<(Key, Json)> = Vec::new();
        let mut problem = None;
        let walked = table.for_each(|key: Value, value: Value| {
            let entry = key_of(&key).and_then(|key| {
                if let Key::Text(text) = &key {
                    self.spend(left, text.len() + 1)?;
                }
                Ok((key, self.exported(&value, left, depth + 1)?))
            });
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    problem = Some(error);
                    return Err(mlua::Error::runtime("ended"));
                }
            }
            Ok(())
        });
        match problem {
            Some(problem) => return Err(problem),
            None => walked.map_err(|_| self.exceeded())?,
        }
        if entries.is_empty() {
            return Ok(match shape {
                Some(Shape::List) => Json::Array(Vec::new()),
                Some(Shape::Map) => Json::Object(Map::new()),
                None => unknown(),
            });
        }
        let positions = entries.iter().map(|(key, _)| match key {
            Key::At(at) if *at > 0 => Some(*at),
            _ => None,
        });
        let positions: Option<Vec<i64>> = positions.collect();
        let most = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        // What was a list is one in spite of holes in it.
        let list = positions.is_some_and(|it| {
            shape == Some(Shape::List) || it.iter().max().is_none_or(|last| *last == most)
        });
        if list {
            entries.sort_by_key(|(key, _)| match key {
                Key::At(at) => *at,
                Key::Text(_) => 0,
            });
            return Ok(entries.into_iter().map(|(_, value)| value).collect());
        }
        let entries = entries.into_iter().map(|(key, value)| match key {
            Key::At(at) => (at.to_string(), value),
            Key::Text(text) => (text, value),
        });
        Ok(Json::Object(entries.collect()))
    }

    /// Bytes of the result, and the steps that they cost.
    fn spend(&self, left: &mut usize, bytes: usize) -> Result<(), NotConverted> {
        *left = left.checked_sub(bytes).ok_or(NotConverted::Large(0))?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let charged = self.ledger.take(f64::from(bytes) / JSON_A_STEP);
        charged.map_err(|_| self.exceeded())
    }

    fn exceeded(&self) -> NotConverted {
        let first = self.ledger.exceeded();
        first.map_or(NotConverted::Large(0), NotConverted::Exceeded)
    }
}

fn key_of(key: &Value) -> Result<Key, NotConverted> {
    match key {
        Value::String(text) => Ok(Key::Text(text.to_string_lossy())),
        Value::Integer(at) => Ok(Key::At(*at)),
        Value::Number(number) => Ok(match exported_number(*number)? {
            whole if whole.is_i64() => Key::At(whole.as_i64().unwrap_or_default()),
            other => Key::Text(other.to_string()),
        }),
        other => Err(NotConverted::Key(type_name(other))),
    }
}

fn exported_number(number: f64) -> Result<Number, NotConverted> {
    match whole(number) {
        Some(whole) => Ok(Number::from(whole)),
        None => Number::from_f64(number).ok_or(NotConverted::Number),
    }
}

/// The key of the map that stands for an empty table which a script made.
const UNKNOWN: &str = "\u{0}empty";

fn unknown() -> Json {
    let mut map = Map::new();
    map.insert(UNKNOWN.to_owned(), Json::Null);
    Json::Object(map)
}

fn is_unknown(json: &Json) -> bool {
    json.as_object()
        .is_some_and(|map| map.contains_key(UNKNOWN))
}

/// Settles what a script left open: empty tables that it made become what lies at the same path of one of the
/// `originals`, and go where none has anything empty there; whole numbers that a float cannot hold become
/// what they were.
pub fn restore(result: &mut Json, originals: &[&Json]) {
    if is_unknown(result) {
        let same = originals.iter().find(|it| is_empty(it));
        *result = same.map_or(Json::Null, |it| (**it).clone());
        return;
    }
    match result {
        Json::Object(map) => {
            let mut gone = Vec::new();
            for (key, value) in map.iter_mut() {
                let within: Vec<&Json> = originals.iter().filter_map(|it| it.get(key)).collect();
                let open = is_unknown(value);
                restore(value, &within);
                if open && value.is_null() {
                    gone.push(key.clone());
                }
            }
            for key in gone {
                map.remove(&key);
            }
        }
        Json::Array(items) => {
            let within = items_of(originals);
            for (at, item) in items.iter_mut().enumerate() {
                restore(item, &candidates(originals, at, &within));
            }
            items.retain(|item| !item.is_null());
        }
        Json::Number(number) => {
            let same = originals.iter().filter(|it| it.as_f64() == number.as_f64());
            if let Some(Json::Number(exact)) = same.copied().next() {
                *number = exact.clone();
            }
        }
        _ => {}
    }
}

/// The items of the first of these that are lists, and the place of each in its own.
fn items_of<'a>(originals: &[&'a Json]) -> Vec<(usize, &'a Json)> {
    let lists = originals.iter().filter_map(|it| it.as_array());
    let items = lists.flat_map(|it| it.iter().enumerate());
    items.take(CANDIDATES).collect()
}

/// What an item of a list may have been, the likeliest first: as in the reference, places in lists are not compared,
/// every item of a list may be any other of `within`. No original is here twice, and there are never more than
/// [`CANDIDATES`] however deep lists lie in lists: no step of the script counts what is looked up in them.
fn candidates<'a>(
    originals: &[&'a Json],
    at: usize,
    within: &[(usize, &'a Json)],
) -> Vec<&'a Json> {
    let same = originals.iter().filter_map(|it| it.get(at));
    let others = within.iter().filter(|(place, _)| *place != at);
    let others = others.map(|(_, item)| *item);
    same.chain(others).take(CANDIDATES).collect()
}

fn is_empty(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.is_empty(),
        Json::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(originals: &[&Json], at: usize) -> Json {
        let found = candidates(originals, at, &items_of(originals));
        found.into_iter().cloned().collect()
    }

    #[test]
    fn an_item_may_be_that_at_its_place_or_any_other() {
        let (some, more, none) = (json!([1, 2, 3]), json!([4, 5]), json!({"a": 1}));
        let many: Json = (0..100).map(Json::from).collect();
        let expected: Vec<i32> = std::iter::once(80).chain(0..63).collect();
        for (originals, at, expected) in [
            (vec![], 0, json!([])),
            (vec![&none], 0, json!([])),
            (vec![&some, &none, &more], 0, json!([1, 4, 2, 3, 5])),
            (vec![&some, &more], 2, json!([3, 1, 2, 4, 5])),
            (vec![&some, &more], 7, json!([1, 2, 3, 4, 5])),
            (vec![&many], 80, json!(expected)),
        ] {
            assert_eq!(of(&originals, at), expected, "{originals:?} {at}");
        }
    }

    #[test]
    fn lists_in_lists_are_compared_with_no_more_the_deeper_they_lie() {
        // One, two, or three items a list.
        for (width, most) in [(1, 1), (2, CANDIDATES), (3, CANDIDATES)] {
            let mut nested = Json::Null;
            for _ in 0..90 {
                let mut items = vec![json!([7]); width];
                items[0] = nested;
                nested = Json::Array(items);
            }
            let (mut place, mut depth) = (&nested, 0);
            let mut held = vec![place];
            while let Some(inner) = place.get(0) {
                held = candidates(&held, 0, &items_of(&held));
                place = inner;
                depth += 1;
                assert!(held.len() <= most, "{} at {depth}", held.len());
                assert!(std::ptr::eq(held[0], place), "at {depth}");
            }
            assert_eq!(depth, 90);
        }
    }
}
