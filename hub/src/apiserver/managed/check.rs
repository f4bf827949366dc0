//! Whether a value is of its type.

use super::element::Element;
use super::types::{Form, Scalar, Type};
use crate::go::print;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong, one line a field, in the words that clients know.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub(super) struct Wrong(Vec<String>);

impl Wrong {
    fn text(&self) -> String {
        match self.0.as_slice() {
            [one] => one.clone(),
            many => {
                let lines: Vec<String> = many.iter().map(|line| format!("  {line}")).collect();
                format!("errors:\n{}", lines.join("\n"))
            }
        }
    }
}

/// Checks a whole object; `duplicates` may be in lists that an older server let in.
pub(super) fn check(value: &Value, of: Type<'_>, duplicates: bool) -> Result<(), Wrong> {
    let mut check = Check {
        duplicates,
        wrong: Wrong::default(),
    };
    check.value(value, of, &Path::Root);
    if check.wrong.0.is_empty() {
        Ok(())
    } else {
        Err(check.wrong)
    }
}

struct Check {
    duplicates: bool,
    wrong: Wrong,
}

/// Where a value is; put into words only when something is wrong there.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Item(&'a Path<'a>, &'a Element),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(of, key) => write!(f, "{of}.{key}"),
            Self::Index(of, at) => write!(f, "{of}[{at}]"),
            Self::Item(of, step) => write!(f, "{of}{step}"),
        }
    }
}

impl Path<'_> {
    /// Whether it is `metadata.managedFields`, which is read by itself.
    fn is_ownership(&self) -> bool {
        matches!(
            self,
            Self::Field(Path::Field(Path::Root, "metadata"), "managedFields")
        )
    }
}

impl Check {
    fn fail(&mut self, path: &Path<'_>, text: &str) {
        self.wrong.0.push(match path {
            Path::Root => text.to_owned(),
            path => format!("{path}: {text}"),
        });
    }

    fn value(&mut self, value: &Value, of: Type<'_>, path: &Path<'_>) {
        match of.forms().deduced(Some(value)).first() {
            Form::Scalar(scalar) => {
                if let Some(text) = wrong_scalar(scalar, value) {
                    self.fail(path, &text);
                }
            }
            Form::List => self.list(value, of, path),
            Form::Map => self.map(value, of, path),
        }
    }

    fn map(&mut self, value: &Value, of: Type<'_>, path: &Path<'_>) {
        let members = match value {
            Value::Null => return,
            Value::Object(members) => members,
            other => {
                let text = format!("expected map, got &{{{}}}", print::value(other));
                return self.fail(path, &text);
            }
        };
        let Some(map) = of.map() else { return };
        for (key, member) in members {
            let path = Path::Field(path, key);
            let Some(child) = map.child(key) else {
                self.fail(&path, "field not declared in schema");
                return;
            };
            if !path.is_ownership() {
                self.value(member, child, &path);
            }
        }
    }

    fn list(&mut self, value: &Value, of: Type<'_>, path: &Path<'_>) {
        let items = match value {
            Value::Null => return,
            Value::Array(items) => items,
            other => {
                let text = format!("expected list, got &{{{}}}", print::value(other));
                return self.fail(path, &text);
            }
        };
        let Some(list) = of.list() else { return };
        let mut seen: BTreeSet<Element> = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            if list.atomic {
                self.value(item, list.items, &Path::Index(path, at));
                continue;
            }
            match list.step(item) {
                Err(text) => return self.fail(path, &format!("element {at}: {text}")),
                Ok(step) => {
                    if seen.contains(&step) && !self.duplicates {
                        self.fail(path, &format!("duplicate entries for key {step}"));
                    }
                    self.value(item, list.items, &Path::Item(path, &step));
                    seen.insert(step);
                }
            }
        }
    }
}

/// What is wrong with a scalar.
pub(super) fn wrong_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    let fits = match scalar {
        Scalar::Number => value.is_number(),
        Scalar::String => value.is_string(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => value.is_number() || value.is_string() || value.is_boolean(),
    };
    if fits || value.is_null() {
        return None;
    }
    let shown = print::value(value);
    Some(match scalar {
        Scalar::Number => format!(
            "expected numeric (int or float), got {}",
            print::type_of(value)
        ),
        Scalar::String => format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            print::source(value)
        ),
        Scalar::Boolean => format!("expected boolean, got &{{{shown}}}"),
        Scalar::Any => format!("expected any scalar, got &{{{shown}}}"),
    })
}
