//! JSON patch, with the liberties that API servers take: indices below zero count from the end, and
//! `replace` sets a member that is not there.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// One operation of a patch.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    #[serde(default)]
    op: Value,
    #[serde(default)]
    path: Option<Value>,
    #[serde(default)]
    from: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Value>,
    /// Whether a number of the value is written as no object has it: numbers are compared as texts.
    #[serde(skip)]
    pub(super) odd: bool,
}

/// Tells `null` from nothing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Why a patch does not apply.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("there is no operation {0}")]
    Operation(String),
    #[error("an operation has no {0}")]
    Member(&'static str),
    #[error("nothing is at {0}")]
    Missing(String),
    #[error("{0} is no index of its list")]
    Index(String),
    #[error("the value at {0} is another")]
    Test(String),
    #[error("only an object or a list can replace the whole")]
    Root,
    #[error("copies make the object longer by {0} bytes, which is too much")]
    Copied(usize),
    #[error("the object would be nested deeper than {MOST_DEEP} levels")]
    Deep,
    #[error("too many items of lists would be moved")]
    Moved,
}

/// No body can be nested deeper, and neither may what a patch puts together: whatever walks over an
/// object does so level by level on its stack.
const MOST_DEEP: usize = 127;
/// How often the depth may be measured anew.
const MOST_MEASURED: usize = 100;
/// How many items may make room for others or close a gap, in all operations together.
const MOST_MOVED: usize = 50_000_000;

/// How deep the document is at the most, and how many items moved. Kept as operations go, for measuring
/// or counting anew after each would let a patch take hours.
struct Bounds {
    deep: usize,
    measured: usize,
    moved: usize,
}

impl Bounds {
    fn of(document: &Value) -> Self {
        Self {
            deep: depth(document),
            measured: 0,
            moved: 0,
        }
    }

    /// Something of this depth was put at `path`.
    fn put(&mut self, document: &Value, path: &str, deep: usize) -> Result<(), Failed> {
        self.deep = self.deep.max(level(path) + deep);
        if self.deep <= MOST_DEEP {
            return Ok(());
        }
        self.measured += 1;
        if self.measured <= MOST_MEASURED {
            self.deep = depth(document);
        }
        if self.deep > MOST_DEEP {
            return Err(Failed::Deep);
        }
        Ok(())
    }

    /// Something moved or was copied: it is no deeper than the document was below where it came from.
    fn moved(&mut self, document: &Value, from: &str, path: &str) -> Result<(), Failed> {
        let deep = self.deep.saturating_sub(level(from));
        self.put(document, path, deep)
    }

    /// An item came to or left the list that `path` ends in.
    fn shifted(&mut self, document: &Value, path: &str) -> Result<(), Failed> {
        if let Ok((Value::Array(items), key)) = container(document, path)
            && let Ok(at) = index(&key, items.len())
        {
            self.moved += items.len() - at;
        }
        if self.moved > MOST_MOVED {
            return Err(Failed::Moved);
        }
        Ok(())
    }
}

/// How many containers lie around what is at a path.
fn level(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// How many containers lie within each other, this one counted.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Applies all operations, or none.
pub(super) fn apply(
    live: &Value,
    operations: Vec<Operation>,
    most_copied: usize,
) -> Result<Value, Failed> {
    let mut document = live.clone();
    let mut copied = 0;
    let mut bounds = Bounds::of(&document);
    for operation in operations {
        let name = operation.op.as_str().unwrap_or("unknown").to_owned();
        match name.as_str() {
            "add" => {
                let (path, value) = (path(&operation)?, given(operation.value));
                let deep = depth(&value);
                add(&mut document, &path, value)?;
                bounds.shifted(&document, &path)?;
                bounds.put(&document, &path, deep)?;
            }
            "remove" => {
                let path = path(&operation)?;
                bounds.shifted(&document, &path)?;
                remove(&mut document, &path)?;
            }
            "replace" => {
                let path = path(&operation)?;
                let deep = operation.value.as_ref().map_or(0, depth);
                replace(&mut document, &path, operation.value)?;
                bounds.put(&document, &path, deep)?;
            }
            "move" => {
                let (from, path) = (from(&operation)?, path(&operation)?);
                bounds.shifted(&document, &from)?;
                let value = remove(&mut document, &from)?;
                add(&mut document, &path, value)?;
                bounds.shifted(&document, &path)?;
                bounds.moved(&document, &from, &path)?;
            }
            "copy" => {
                let (from, path) = (from(&operation)?, path(&operation)?);
                let value = get(&document, &from)?.clone();
                copied += value.to_string().len();
                if copied > most_copied {
                    return Err(Failed::Copied(copied));
                }
                add(&mut document, &path, value)?;
                bounds.shifted(&document, &path)?;
                bounds.moved(&document, &from, &path)?;
            }
            "test" if operation.odd => return Err(Failed::Test(path(&operation)?)),
            "test" => test(&document, &path(&operation)?, &given(operation.value))?,
            other => return Err(Failed::Operation(other.to_owned())),
        }
    }
    Ok(document)
}

fn path(operation: &Operation) -> Result<String, Failed> {
    pointer(operation.path.as_ref(), "path")
}

fn from(operation: &Operation) -> Result<String, Failed> {
    pointer(operation.from.as_ref(), "from")
}

fn pointer(value: Option<&Value>, member: &'static str) -> Result<String, Failed> {
    let text = value.and_then(Value::as_str);
    text.map(str::to_owned).ok_or(Failed::Member(member))
}

/// An operation without a value has null.
fn given(value: Option<Value>) -> Value {
    value.unwrap_or(Value::Null)
}

fn decoded(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The object or list that `path` ends in, and the last key.
fn container<'v>(document: &'v Value, path: &str) -> Result<(&'v Value, String), Failed> {
    let missing = || Failed::Missing(path.to_owned());
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() < 2 {
        return Err(missing());
    }
    let last = parts.pop().unwrap_or_default();
    let mut at = document;
    for part in &parts[1..] {
        at = match at {
            Value::Object(members) => members.get(&decoded(part)).ok_or_else(missing)?,
            Value::Array(items) => &items[index(part, items.len())?],
            _ => return Err(missing()),
        };
    }
    if at.is_object() || at.is_array() {
        Ok((at, decoded(last)))
    } else {
        Err(missing())
    }
}

fn container_mut<'v>(
    document: &'v mut Value,
    path: &str,
) -> Result<(&'v mut Value, String), Failed> {
    let missing = || Failed::Missing(path.to_owned());
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() < 2 {
        return Err(missing());
    }
    let last = parts.pop().unwrap_or_default();
    let mut at = document;
    for part in &parts[1..] {
        at = match at {
            Value::Object(members) => members.get_mut(&decoded(part)).ok_or_else(missing)?,
            Value::Array(items) => {
                let index = index(part, items.len())?;
                &mut items[index]
            }
            _ => return Err(missing()),
        };
    }
    if at.is_object() || at.is_array() {
        Ok((at, decoded(last)))
    } else {
        Err(missing())
    }
}

/// An index below `length`; one below zero counts from the end.
fn index(key: &str, length: usize) -> Result<usize, Failed> {
    let wrong = || Failed::Index(key.to_owned());
    let number: i64 = key.parse().map_err(|_| wrong())?;
    let counted = if number < 0 {
        number + i64::try_from(length).map_err(|_| wrong())?
    } else {
        number
    };
    let index = usize::try_from(counted).map_err(|_| wrong())?;
    if index < length {
        Ok(index)
    } else {
        Err(wrong())
    }
}

/// What is at a path; a member that is not there is null.
fn get<'v>(document: &'v Value, path: &str) -> Result<&'v Value, Failed> {
    let (container, key) = container(document, path)?;
    match container {
        Value::Object(members) => Ok(members.get(&key).unwrap_or(&Value::Null)),
        Value::Array(items) => Ok(&items[index(&key, items.len())?]),
        _ => Err(Failed::Missing(path.to_owned())),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Failed> {
    let (container, key) = container_mut(document, path)?;
    match container {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => return Err(Failed::Missing(path.to_owned())),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Failed> {
    let (container, key) = container_mut(document, path)?;
    match container {
        Value::Object(members) => members
            .remove(&key)
            .ok_or_else(|| Failed::Missing(path.to_owned())),
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err(Failed::Missing(path.to_owned())),
    }
}

fn replace(document: &mut Value, path: &str, value: Option<Value>) -> Result<(), Failed> {
    let value = given(value);
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Failed::Root);
        }
        *document = value;
        return Ok(());
    }
    let (container, key) = container_mut(document, path)?;
    match container {
        Value::Object(members) => {
            members.insert(key, value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            items[at] = value;
        }
        _ => return Err(Failed::Missing(path.to_owned())),
    }
    Ok(())
}

fn test(document: &Value, path: &str, value: &Value) -> Result<(), Failed> {
    let found = if path.is_empty() {
        document
    } else {
        get(document, path)?
    };
    if found == value {
        Ok(())
    } else {
        Err(Failed::Test(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(live: Value, patch: Value) -> Option<Value> {
        apply(&live, serde_json::from_value(patch).unwrap(), 100).ok()
    }

    #[test]
    fn operations_do_what_servers_do() {
        let cases = [
            (
                json!({"a": 1}),
                json!([{"op": "add", "path": "/b", "value": 2}]),
                Some(json!({"a": 1, "b": 2})),
            ),
            (
                json!({}),
                json!([{"op": "add", "path": "/b/c", "value": 2}]),
                None,
            ),
            (
                json!({"a": [1, 3]}),
                json!([{"op": "add", "path": "/a/1", "value": 2}]),
                Some(json!({"a": [1, 2, 3]})),
            ),
            (
                json!({"a": [1]}),
                json!([{"op": "add", "path": "/a/-", "value": 2}]),
                Some(json!({"a": [1, 2]})),
            ),
            (
                json!({"a": [1]}),
                json!([{"op": "add", "path": "/a/2", "value": 2}]),
                None,
            ),
            (
                json!({"a": [1, 2]}),
                json!([{"op": "remove", "path": "/a/-1"}]),
                Some(json!({"a": [1]})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "remove", "path": "/b"}]),
                None,
            ),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "/b", "value": 1}]),
                Some(json!({"a": 1, "b": 1})),
            ),
            (
                json!({"a": [1]}),
                json!([{"op": "replace", "path": "/a/1", "value": 1}]),
                None,
            ),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "", "value": {"b": 1}}]),
                Some(json!({"b": 1})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "replace", "path": "", "value": 1}]),
                None,
            ),
            (
                json!({"a": 1}),
                json!([{"op": "move", "from": "/a", "path": "/b"}]),
                Some(json!({"b": 1})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                Some(json!({"a": 1, "b": 1})),
            ),
            (
                json!({"a": "x".repeat(120)}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                None,
            ),
            (
                json!({"a": 1}),
                json!([{"op": "test", "path": "/a", "value": 1}]),
                Some(json!({"a": 1})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "test", "path": "/b"}]),
                Some(json!({"a": 1})),
            ),
            (
                json!({"a": 1}),
                json!([{"op": "test", "path": "/a", "value": 2}]),
                None,
            ),
            (
                json!({"a/b": 1, "c~d": 2}),
                json!([{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}]),
                Some(json!({})),
            ),
            (json!({}), json!([{"op": "grow", "path": "/a"}]), None),
            (json!({}), json!([{"op": "add", "value": 1}]), None),
            (
                json!({"a": 1}),
                json!([{"op": "add", "path": "/a/b", "value": 1}]),
                None,
            ),
        ];
        for (live, patch, wanted) in cases {
            assert_eq!(
                patched(live.clone(), patch.clone()),
                wanted,
                "{live} {patch}"
            );
        }
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn no_patch_makes_an_object_deeper_than_a_body_can_be() {
        // One level with each operation.
        let deeper: Vec<Value> = (0..9000)
            .map(|_| {
                json!([{"op": "move", "from": "/a", "path": "/b"},
                {"op": "add", "path": "/a", "value": {}},
                {"op": "move", "from": "/b", "path": "/a/b"}])
            })
            .flat_map(|ops| ops.as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(patched(json!({"a": 1}), Value::Array(deeper)), None);
        // As many as fit with each.
        let path = "/a".repeat(100);
        let add = json!([{"op": "add", "path": path, "value": nested(100)}]);
        assert_eq!(patched(nested(100), add), None);
        let copy = json!([{"op": "copy", "from": "/a", "path": path}]);
        assert_eq!(patched(nested(100), copy), None);
        // What is as deep as it was may move as often as it likes.
        let back: Vec<Value> = (0..4000)
            .flat_map(|_| {
                [
                    json!({"op": "move", "from": "/a", "path": "/b"}),
                    json!({"op": "move", "from": "/b", "path": "/a"}),
                ]
            })
            .collect();
        let live = nested(100);
        assert_eq!(patched(live.clone(), Value::Array(back)), Some(live));
    }

    #[test]
    fn items_of_long_lists_move_only_so_often() {
        let live = json!({"a": vec![0; 100_000]});
        let first = json!({"op": "add", "path": "/a/0", "value": 0});
        let many = Value::Array(vec![first.clone(); 5000]);
        assert_eq!(patched(live.clone(), many), None);
        assert!(patched(live.clone(), Value::Array(vec![first; 100])).is_some());
        let last = json!({"op": "add", "path": "/a/-", "value": 0});
        assert!(patched(live, Value::Array(vec![last; 5000])).is_some());
    }
}
