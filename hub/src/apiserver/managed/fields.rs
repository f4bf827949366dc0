//! `fieldsV1`: sets of paths as JSON.

use super::element::{Element, Unread};
use super::set::Set;
use serde_json::{Map, Value};

/// Deeper sets are no sets of anything that was ever stored.
const MAX_DEPTH: usize = 512;

/// Writes a set.
pub(super) fn write(set: &Set) -> Value {
    contents(set, false)
}

fn contents(set: &Set, with_self: bool) -> Value {
    let mut written = Map::new();
    if with_self {
        written.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for step in &set.members {
        if !set.children.contains_key(step) {
            written.insert(step.written(), Value::Object(Map::new()));
        }
    }
    for (step, below) in &set.children {
        if !below.is_empty() {
            let below = contents(below, set.members.contains(step));
            written.insert(step.written(), below);
        } else if set.members.contains(step) {
            written.insert(step.written(), Value::Object(Map::new()));
        }
    }
    Value::Object(written)
}

/// Reads a set; `None` when it is not well-formed.
pub(super) fn read(value: &Value) -> Option<Set> {
    below(value, 0).map(|(set, _)| set)
}

/// The paths below a step, and whether the step itself is one.
fn below(value: &Value, depth: usize) -> Option<(Set, bool)> {
    let members = value.as_object()?;
    if depth > MAX_DEPTH {
        return None;
    }
    let mut set = Set::default();
    let mut own = false;
    let mut any = false;
    for (key, value) in members {
        if key == "." {
            own = true;
            continue;
        }
        let step = match Element::read(key) {
            Ok(step) => step,
            Err(Unread::Unknown) => continue,
            Err(Unread::Malformed) => return None,
        };
        let (under, member) = below(value, depth + 1)?;
        any = true;
        if !under.members.is_empty() || !under.children.is_empty() {
            set.children.insert(step.clone(), under);
        }
        if member {
            set.members.insert(step);
        }
    }
    Some((set, own || !any))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_step_with_others_below_is_owned_where_a_dot_says_so() {
        let value = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}}, "f:set": {"v:\"a\"": {}}},
        });
        let set = read(&value).unwrap();
        assert_eq!(write(&set), value);
        assert_eq!(set.paths().len(), 5);
        assert_eq!(read(&json!({"f:a": {"z:1": {}}})).unwrap().paths().len(), 1);
        assert!(read(&json!({"f:a": 1})).is_none());
        assert!(read(&json!({"a": {}})).is_none());
    }

    fn step() -> impl Strategy<Value = Element> {
        prop_oneof![
            "[a-c]{1,2}".prop_map(Element::Field),
            (0i64..4).prop_map(|n| Element::Value(json!(n))),
            ("[a-b]", 0i64..3).prop_map(|(k, n)| Element::Key(vec![(k, json!(n))])),
        ]
    }

    pub(in crate::apiserver::managed) fn sets() -> impl Strategy<Value = Set> {
        prop::collection::vec(prop::collection::vec(step(), 1..5), 0..12).prop_map(|paths| {
            let mut set = Set::default();
            for path in paths {
                set.insert(&path);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(set in sets()) {
            prop_assert_eq!(read(&write(&set)).unwrap(), set);
        }

        #[test]
        fn sets_are_sets(a in sets(), b in sets()) {
            let (union, both, left) = (a.union(&b), a.intersection(&b), a.difference(&b));
            for path in union.paths() {
                prop_assert!(a.has(&path) || b.has(&path));
                prop_assert_eq!(both.has(&path), a.has(&path) && b.has(&path));
                prop_assert_eq!(left.has(&path), a.has(&path) && !b.has(&path));
            }
            prop_assert!(left.intersection(&b).is_empty());
            prop_assert_eq!(left.union(&both).paths(), a.paths());
        }

        #[test]
        fn nothing_stays_below_what_is_taken(a in sets(), b in sets()) {
            for path in a.recursive_difference(&b).paths() {
                for end in 1..=path.len() {
                    prop_assert!(!b.has(&path[..end]));
                }
            }
        }
    }
}
