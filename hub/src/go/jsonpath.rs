//! The part of kubectl's JSONPath that columns and `scale` use: fields, indices and one filter.

use serde_json::Value;

/// A path that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// From one place up to another, by steps.
    Slice(Option<i64>, Option<i64>, i64),
    /// Several names, one after the other.
    Union(Vec<String>),
    All,
    /// Everything at and below.
    Deep,
    Filter {
        path: JsonPath,
        operator: &'static str,
        value: Value,
    },
    Exists(JsonPath),
}

const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

impl JsonPath {
    /// Reads a path: `.spec.a`, `.status.conditions[?(@.type=="Ready")].status`, `.a[0]`,
    /// `.metadata.annotations.a\.b`, `.a['b']`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = bracket(after)?;
                steps.push(inside(after.get(..end)?)?);
                rest = after.get(end + 1..)?;
                continue;
            }
            rest = rest.strip_prefix('.')?;
            if rest.starts_with('[') {
                continue;
            }
            if rest.starts_with('.') {
                steps.push(Step::Deep);
                continue;
            }
            let mut name = String::new();
            let mut end = rest.len();
            let mut chars = rest.char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    other => name.push(other),
                }
            }
            rest = rest.get(end..)?;
            match name.as_str() {
                "" => return None,
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Field(name)),
            }
        }
        Some(Self { steps })
    }

    /// The first value that it leads to.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.follow(value, &mut next);
            }
            found = next;
        }
        found.into_iter().next()
    }
}

/// Where a bracket closes, quotes and inner brackets aside.
fn bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(c),
            ('[', None) => depth += 1,
            (']', None) if depth == 0 => return Some(at),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?;
        inner
            .strip_suffix(quote)
            .filter(|inner| !inner.contains(quote))
    })
}

fn inside(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    if text.contains(':') && !text.starts_with('?') {
        let mut parts = text.split(':');
        let mut place = || match parts.next().map(str::trim) {
            None | Some("") => Some(None),
            Some(number) => number.parse().ok().map(Some),
        };
        let (from, to, by) = (place()?, place()?, place()?.unwrap_or(1));
        return (by > 0).then_some(Step::Slice(from, to, by));
    }
    if text.contains(',') && !text.starts_with('?') {
        let names = text.split(',').map(|name| quoted(name.trim()));
        let names: Option<Vec<&str>> = names.collect();
        return Some(Step::Union(names?.into_iter().map(str::to_owned).collect()));
    }
    let filter = text.strip_prefix("?(")?.strip_suffix(')')?.trim();
    let found = OPERATORS
        .into_iter()
        .filter_map(|operator| Some((filter.find(operator)?, operator)))
        .min_by_key(|(at, operator)| (*at, std::cmp::Reverse(operator.len())));
    let Some((at, operator)) = found else {
        return Some(Step::Exists(JsonPath::parse(filter.strip_prefix('@')?)?));
    };
    let path = filter.get(..at)?.trim().strip_prefix('@')?;
    let right = filter.get(at + operator.len()..)?.trim();
    let value = match quoted(right) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Filter {
        path: JsonPath::parse(path)?,
        operator,
        value,
    })
}

impl Step {
    fn follow<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(object)) => found.extend(object.get(name)),
            (Self::Index(index), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let at = if *index < 0 { index + length } else { *index };
                found.extend(usize::try_from(at).ok().and_then(|at| list.get(at)));
            }
            (Self::Slice(from, to, by), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let place = |at: i64| if at < 0 { at + length } else { at };
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
                let places = (0..).zip(list);
                found.extend(places.filter_map(|(at, item)| {
                    let within = (from..to).contains(&at) && (at - from) % by == 0;
                    within.then_some(item)
                }));
            }
            (Self::Union(names), Value::Object(object)) => {
                found.extend(names.iter().filter_map(|name| object.get(name)));
            }
            (Self::Deep, value) => {
                found.push(value);
                let below: Vec<&Value> = match value {
                    Value::Array(list) => list.iter().collect(),
                    Value::Object(object) => object.values().collect(),
                    _ => Vec::new(),
                };
                for inner in below {
                    self.follow(inner, found);
                }
            }
            (Self::All, Value::Array(list)) => found.extend(list),
            (Self::All, Value::Object(object)) => found.extend(object.values()),
            (Self::Exists(path), Value::Array(list)) => {
                found.extend(list.iter().filter(|item| path.first(item).is_some()));
            }
            (
                Self::Filter {
                    path,
                    operator,
                    value,
                },
                Value::Array(list),
            ) => {
                found.extend(list.iter().filter(|item| {
                    path.first(item)
                        .is_some_and(|left| compare(left, operator, value))
                }));
            }
            _ => {}
        }
    }
}

fn compare(left: &Value, operator: &str, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (left, right) => return (left == right) == (operator == "=="),
    };
    order.is_some_and(|order| match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        ">" => order.is_gt(),
        "<=" => order.is_le(),
        _ => order.is_ge(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"spec": {"a": {"b.c": 1}, "list": [{"type": "x", "n": 1}, {"type": "Ready", "n": 2}]}});
        let cases = [
            (".spec.a.b\\.c", Some(json!(1))),
            (".spec.a['b.c']", Some(json!(1))),
            (".spec.list[0].n", Some(json!(1))),
            (".spec.list[-1].n", Some(json!(2))),
            (".spec.list[*].n", Some(json!(1))),
            (".spec.list[?(@.type==\"Ready\")].n", Some(json!(2))),
            (".spec.list[?(@.type=='Ready')].n", Some(json!(2))),
            (".spec.list[?(@.n>1)].type", Some(json!("Ready"))),
            (".spec.list[?(@.n!=1)].type", Some(json!("Ready"))),
            (".spec.list[?(@.gone)].n", None),
            (".spec.missing.deep", None),
            (".spec.list[-1:].n", Some(json!(2))),
            (".spec.list[0:1].type", Some(json!("x"))),
            ("..n", Some(json!(1))),
            (".spec['gone','a']", Some(json!({"b.c": 1}))),
            ("{.spec}", None),
        ];
        for (path, want) in cases {
            let found = JsonPath::parse(path).and_then(|path| path.first(&object).cloned());
            assert_eq!(found, want, "{path}");
        }
    }
}
