//! Rules of a CRD: whether each makes sense where it stands, and what they cost at the worst.

use super::super::check::{Errors, list, map, text, typed};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use crate::apiserver::schema::cel::Scope;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// What one expression may cost at the worst, and what all of a schema may.
const MOST_OF_ONE: u64 = 10_000_000;
const MOST_OF_ALL: u64 = 100_000_000;
/// So many of the dearest rules are named.
const NAMED: usize = 4;

/// Checks all rules of a schema that is otherwise sound but for `plain`.
pub(super) fn check(schema: &Value, path: &str, unchanged: bool, plain: &Errors) -> Errors {
    let mut visit = Visit {
        plain,
        unchanged,
        total: 0,
        dearest: Vec::new(),
        errors: Errors::new(),
    };
    let place = Position {
        whole: true,
        often: Some(1),
        apart: None,
    };
    visit.node(schema, path, &place);
    visit.in_all(path);
    visit.errors
}

/// Where a schema stands.
struct Position {
    /// At the root of an object.
    whole: bool,
    /// How often it can be in one object, if that is bounded.
    often: Option<u64>,
    /// The schema below which values of before cannot be found again.
    apart: Option<String>,
}

struct Visit<'a> {
    plain: &'a Errors,
    unchanged: bool,
    total: u64,
    dearest: Vec<(String, u64)>,
    errors: Errors,
}

impl Visit<'_> {
    fn node(&mut self, schema: &Value, path: &str, place: &Position) {
        let often = match (place.often, members(schema)) {
            (Some(often), Some(members)) => Some(often.saturating_mul(members)),
            _ => None,
        };
        let below = |inner: &Value, apart: bool| Position {
            whole: inner["x-kubernetes-embedded-resource"] == Value::Bool(true),
            often,
            apart: place
                .apart
                .clone()
                .or_else(|| apart.then(|| path.to_owned())),
        };
        let additional = &schema["additionalProperties"];
        if additional.is_object() {
            let at = format!("{path}.additionalProperties");
            self.node(additional, &at, &below(additional, false));
        }
        for (name, property) in map(schema, "properties").into_iter().flatten() {
            let map_type = text(schema, "x-kubernetes-map-type");
            let apart = !matches!(map_type, "" | "granular" | "atomic");
            let at = format!("{path}.properties[{name}]");
            self.node(property, &at, &below(property, apart));
        }
        let items = &schema["items"];
        if items.is_object() {
            let apart = text(schema, "x-kubernetes-list-type") != "map";
            self.node(items, &format!("{path}.items"), &below(items, apart));
        }
        let rules = list(schema, "x-kubernetes-validations");
        if rules.is_empty() || self.is_unsound(path) {
            return;
        }
        let at = format!("{path}.x-kubernetes-validations");
        let Some(scope) = Scope::of(schema, place.whole) else {
            let detail = "internal error: failed to construct type information for \
                          x-kubernetes-validations rules: unable to convert structural schema \
                          to CEL declarations";
            let kind = FieldErrorKind::Internal;
            self.errors
                .push(FieldError::new(at, kind, BadValue::Omitted, detail));
            return;
        };
        for (index, rule) in rules.iter().enumerate() {
            self.rule(rule, &scope, place, &format!("{at}[{index}]"));
        }
    }

    /// Whether the plain checks found something at or below a schema.
    fn is_unsound(&self, path: &str) -> bool {
        self.plain.iter().any(|error| {
            let rest = error.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    fn rule(&mut self, rule: &Value, scope: &Scope, place: &Position, at: &str) {
        let optional_old = rule["optionalOldSelf"] == Value::Bool(true);
        let at_rule = format!("{at}.rule");
        let found = scope.judge(text(rule, "rule"), optional_old);
        let found = found.map_err(|why| format!("compilation failed: {why}"));
        let found = found.and_then(|found| match found.is_bool() {
            true => Ok(found),
            false => Err("cel expression must evaluate to a bool".to_owned()),
        });
        let mut uses_old = false;
        match found {
            Err(why) => self.wrong(rule, at_rule.clone(), why),
            Ok(found) => {
                uses_old = found.uses_old;
                let often = place.often.unwrap_or_else(|| scope.most_often());
                let cost = found.cost.saturating_mul(often);
                self.pay(&at_rule, "estimated rule cost", cost);
                self.message(rule, scope, optional_old, format!("{at}.messageExpression"));
            }
        }
        if uses_old {
            if let Some(apart) = &place.apart {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {apart}"
                );
                let shown = rule["rule"].clone();
                self.errors
                    .push(FieldError::invalid(at_rule, shown, detail));
            }
        } else if rule.get("optionalOldSelf").is_some_and(Value::is_boolean) {
            let detail = "may not be set if oldSelf is not used in rule";
            let shown = rule["optionalOldSelf"].clone();
            let at = format!("{at}.optionalOldSelf");
            self.errors.push(FieldError::invalid(at, shown, detail));
        }
    }

    fn message(&mut self, rule: &Value, scope: &Scope, optional_old: bool, at: String) {
        let expression = text(rule, "messageExpression");
        if expression.is_empty() {
            return;
        }
        match scope.judge(expression, optional_old) {
            Err(why) => {
                let why = format!("messageExpression compilation failed: {why}");
                self.wrong(rule, at, why);
            }
            Ok(found) if !found.is_text() => {
                let why = "messageExpression must evaluate to a string".to_owned();
                self.wrong(rule, at, why);
            }
            Ok(found) => self.pay(&at, "estimated messageExpression cost", found.cost),
        }
    }

    fn wrong(&mut self, rule: &Value, at: String, why: String) {
        let shown = typed(&[
            ("Rule", &rule["rule"]),
            ("Message", &json!(text(rule, "message"))),
            ("MessageExpression", &json!(text(rule, "messageExpression"))),
            ("Reason", &rule["reason"]),
            ("FieldPath", &json!(text(rule, "fieldPath"))),
            ("OptionalOldSelf", &rule["optionalOldSelf"]),
        ]);
        let error = FieldError::new(at, FieldErrorKind::Invalid, shown, why);
        self.errors.push(error);
    }

    fn pay(&mut self, at: &str, what: &str, cost: u64) {
        if cost > MOST_OF_ONE && !self.unchanged {
            let detail = too_dear(what, cost, MOST_OF_ONE);
            self.errors.push(FieldError::forbidden(at, detail));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= MOST_OF_ALL / 100 {
            self.dearest.push((at.to_owned(), cost));
            self.dearest.sort_by_key(|(_, cost)| Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }

    fn in_all(&mut self, path: &str) {
        if self.total <= MOST_OF_ALL {
            return;
        }
        for (at, _) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for \
                          entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(at, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = too_dear(what, self.total, MOST_OF_ALL);
        self.errors.push(FieldError::forbidden(path, detail));
    }
}

/// By how much a schema makes its children more; nothing if without bound.
fn members(schema: &Value) -> Option<u64> {
    let bound = |key: &str| {
        let most = schema.get(key).and_then(Value::as_i64)?;
        Some(u64::try_from(most).unwrap_or(0))
    };
    match text(schema, "type") {
        "object" if !schema["additionalProperties"].is_null() => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

fn too_dear(what: &str, cost: u64, most: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with few digits")]
    let factor = cost as f64 / most as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding \
         maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The schema to which a path leads that is written as `.a.b` or `['a']`.
pub(super) fn steps<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    let mut here = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let mut end = None;
            let mut before = '\'';
            for (at, c) in after.char_indices() {
                if c == '\'' && before != '\\' {
                    end = Some(at);
                    break;
                }
                before = c;
            }
            let end = end?;
            name = after[..end].replace("\\'", "'").replace("\\\\", "\\");
            rest = after[end + 1..].strip_prefix(']')?;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            name = after[..end].to_owned();
            rest = &after[end..];
            if name.is_empty() {
                return None;
            }
        }
        here = match map(here, "properties") {
            Some(properties) => properties.get(&name)?,
            None => here
                .get("additionalProperties")
                .filter(|values| values.is_object())?,
        };
    }
    Some(here)
}
