//! Objects are held against the schema of a CustomResourceDefinition, in the words of a real
//! server.

mod combine;
mod defaults;
mod embedded;
mod formats;
mod lists;
pub(crate) mod old;

use super::rules::Rules;
use super::{Kind, Schema};
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind, FieldErrors};
use crate::go::quote;
use old::Old;
use serde_json::{Map, Number, Value, json};
use std::collections::HashSet;

/// What came of a look at one value. The number of checks passed decides which of several
/// alternatives is told.
#[derive(Debug, Default)]
struct Outcome {
    errors: FieldErrors,
    checks: usize,
}

impl Outcome {
    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.checks += other.checks;
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// What came of an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What is wrong with it.
    pub errors: FieldErrors,
    /// Rules that do not hold for what did not change.
    pub forgiven: FieldErrors,
}

impl Schema {
    /// What is wrong with a value; an update is forgiven what was wrong before and did not change.
    pub fn validate(&self, value: &Value, old: Option<&Value>) -> Verdict {
        let errors = check(self, value, Old::root(self, value, old), "").errors;
        let mut verdict = Verdict {
            errors,
            forgiven: FieldErrors::new(),
        };
        embedded::check(self, value, "", true, &mut verdict.errors);
        self.check_lists_and_rules(value, old, &mut verdict);
        verdict
    }

    /// The same for an update of the status alone: the rest is not looked at but for rules and lists.
    pub fn validate_status(&self, value: &Value, old: &Value) -> Verdict {
        let mut verdict = Verdict::default();
        if let (Some(status), Some(child)) = (value.get("status"), self.child("status")) {
            let before = Old::root(self, value, Some(old)).key("status", child, status);
            verdict.errors = check(child, status, before, "").errors;
            for error in verdict.errors.iter_mut() {
                error.path = match error.path.as_str() {
                    "<nil>" => "status".to_owned(),
                    below => format!("status.{below}"),
                };
            }
        }
        self.check_lists_and_rules(value, Some(old), &mut verdict);
        verdict
    }

    fn check_lists_and_rules(&self, value: &Value, old: Option<&Value>, verdict: &mut Verdict) {
        let errors = &mut verdict.errors;
        let mut lists = FieldErrors::new();
        lists::check(self, value, "", &mut lists);
        if !lists.is_empty() {
            let mut before = FieldErrors::new();
            if let Some(old) = old {
                lists::check(self, old, "", &mut before);
            }
            if before.is_empty() {
                errors.extend(lists);
            }
        }
        if self.has_rules() {
            if errors.more() > 0 || errors.iter().any(blocks) {
                errors.push(FieldError::invalid(
                    "<nil>",
                    Value::Null,
                    "some validation rules were not checked because the object was invalid; \
                     correct the existing errors to complete validation",
                ));
            } else {
                super::cel::check(self, value, Old::root(self, value, old), verdict);
            }
        }
    }
}

/// Rules in CEL count on the types and on what is required.
fn blocks(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

fn check<'a>(schema: &'a Schema, value: &'a Value, old: Old<'a>, path: &str) -> Outcome {
    let mut outcome = check_new(schema, value, old, path);
    if !outcome.is_valid() && old.is_same() {
        outcome.errors.clear();
    }
    outcome
}

fn check_new<'a>(schema: &'a Schema, value: &'a Value, old: Old<'a>, path: &str) -> Outcome {
    static NO_RULES: Rules = Rules::none();
    let rules = schema.rules.as_deref().unwrap_or(&NO_RULES);
    let mut outcome = Outcome::default();
    if schema.definition().is_some() {
        // Metadata has a type of its own and is checked with it.
        return outcome;
    }
    if let Some(error) = wrong_type(schema, value, path) {
        outcome.errors.push(error);
    }
    outcome.checks += 2;
    if !value.is_null() {
        outcome.merge(combine::check(rules, value, path));
        outcome.checks += 1;
        match value {
            Value::String(text) => {
                outcome.errors.extend(check_text(rules, text, path));
                if schema.kind() != Kind::Integer
                    && schema.kind() != Kind::Number
                    && let Some(format) = schema.format()
                {
                    outcome.errors.extend(formats::check(format, text, path));
                    outcome.checks += 1;
                }
                outcome.checks += 1;
            }
            Value::Number(number) => {
                check_number(schema, rules, number, path, &mut outcome);
            }
            Value::Array(list) => check_list(schema, rules, list, old, path, &mut outcome),
            Value::Object(object) => check_object(schema, rules, object, old, path, &mut outcome),
            Value::Bool(_) | Value::Null => {}
        }
    }
    if !rules.one_of_values.is_empty() && !rules.one_of_values.iter().any(|v| same(v, value)) {
        outcome.errors.push(not_in_enum(rules, value, path));
    }
    outcome.checks += 2;
    outcome
}

/// Numbers are the same whatever their notation.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn not_in_enum(rules: &Rules, value: &Value, path: &str) -> FieldError {
    let texts: Vec<String> = rules
        .one_of_values
        .iter()
        .map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    FieldError::not_supported(shown_path(path), value.clone(), &texts)
}

/// The object as a whole has no path.
fn shown_path(path: &str) -> String {
    if path.is_empty() {
        "<nil>".to_owned()
    } else {
        path.to_owned()
    }
}

/// The largest number up to which floats can tell one whole number from the next.
const MOST_WHOLE: f64 = 9_007_199_254_740_991.0;

fn is_whole(number: &Number) -> bool {
    let as_float = |n: f64| n.fract() == 0.0 && n.abs() <= MOST_WHOLE;
    number.is_i64() || number.as_f64().is_some_and(as_float)
}

/// The whole number that the text of a number stands for.
fn reads_as_whole(number: &Number) -> Option<i64> {
    let float = || number.as_f64().filter(|n| n.fract() == 0.0);
    number
        .as_i64()
        .or_else(|| float()?.to_string().parse().ok())
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if !number.is_i64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_type(schema: &Schema, value: &Value, path: &str) -> Option<FieldError> {
    if !schema.typed {
        return None;
    }
    let wanted = match schema.kind() {
        Kind::Any => return None,
        Kind::Object => "object",
        Kind::Array => "array",
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::IntOrString | Kind::Quantity => "integer,string",
    };
    let fits = match (value, schema.kind()) {
        (Value::Null, _) => schema.nullable,
        (Value::Object(_), Kind::Object)
        | (Value::Array(_), Kind::Array)
        | (Value::String(_), Kind::String | Kind::IntOrString)
        | (Value::Number(_), Kind::Number)
        | (Value::Bool(_), Kind::Boolean) => true,
        (Value::Number(number), Kind::Integer | Kind::IntOrString) => is_whole(number),
        // A format takes the place of the type where a list stands in for a string.
        (Value::Array(_), Kind::String) => schema.format().is_some(),
        _ => false,
    };
    if fits {
        return None;
    }
    let found = name_of(value);
    let detail = format!("{path} in body must be of type {wanted}: {}", quote(found));
    Some(FieldError::type_invalid(
        shown_path(path),
        json!(found),
        detail,
    ))
}

fn check_text(rules: &Rules, text: &str, path: &str) -> Option<FieldError> {
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if let Some(max) = rules.max_length.filter(|max| length > *max) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        return Some(FieldError::too_long(shown_path(path), max));
    }
    if let Some(min) = rules.min_length.filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        return Some(FieldError::invalid(shown_path(path), json!(text), detail));
    }
    let pattern = rules.pattern.as_ref()?;
    let detail = match pattern.matches(text) {
        Some(true) => return None,
        Some(false) => format!("{path} in body should match '{}'", pattern.text),
        None => format!(
            "{path} in body should match '{}, but pattern is invalid'",
            pattern.text
        ),
    };
    Some(FieldError::invalid(shown_path(path), json!(text), detail))
}

fn check_number(
    schema: &Schema,
    rules: &Rules,
    number: &Number,
    path: &str,
    outcome: &mut Outcome,
) {
    outcome.checks += 2;
    let invalid = |detail: String| {
        FieldError::invalid(shown_path(path), Value::Number(number.clone()), detail)
    };
    let whole = reads_as_whole(number);
    let format = match (schema.kind(), schema.format()) {
        (Kind::Integer, Some("int32")) if whole.is_none_or(|n| i32::try_from(n).is_err()) => {
            Some("integer with format int32")
        }
        (Kind::Integer, _) if whole.is_none() => Some("integer (default format)"),
        (Kind::Number, Some("float")) if !is_single(number) => Some("number with format float"),
        _ => None,
    };
    if let Some(format) = format {
        // This one is no field error upstream: it has neither path nor value.
        let detail = format!("Checked value must be of type {format} in {path}");
        outcome
            .errors
            .push(FieldError::invalid("<nil>", json!(""), detail));
    }
    if let Some(factor) = rules.multiple_of {
        let exact = Number::from_f64(factor).map(|factor| limit(number, &factor));
        match (number.as_i64(), exact.and_then(|factor| factor.as_i64())) {
            // A factor below one is nothing to a whole number.
            (Some(_), Some(factor)) if factor <= 0 => {
                let detail =
                    format!("factor MultipleOf declared for {path} must be positive: {factor}");
                let path = shown_path(path);
                let error = FieldError::invalid(path, json!(factor), detail);
                outcome.errors.push(error);
            }
            (Some(whole), Some(factor)) => {
                if whole.checked_rem(factor).is_some_and(|rest| rest != 0) {
                    let text = format!("{path} in body should be a multiple of {factor}");
                    outcome.errors.push(invalid(text));
                }
            }
            _ => {
                let quotient = number.as_f64().unwrap_or_default() / factor;
                if factor > 0.0 && (quotient - quotient.round()).abs() > 1e-9 {
                    let text = format!("{path} in body should be a multiple of {factor}");
                    outcome.errors.push(invalid(text));
                }
            }
        }
    }
    if let Some(max) = &rules.maximum {
        let max = &limit(number, max);
        let above = compare(number, max);
        if above > 0 || (rules.exclusive_maximum && above == 0) {
            let or_equal = if rules.exclusive_maximum {
                ""
            } else {
                " or equal to"
            };
            let text = format!(
                "{path} in body should be less than{or_equal} {}",
                plain(max)
            );
            outcome.errors.push(invalid(text));
        }
    }
    if let Some(min) = &rules.minimum {
        let min = &limit(number, min);
        let above = compare(number, min);
        if above < 0 || (rules.exclusive_minimum && above == 0) {
            let or_equal = if rules.exclusive_minimum {
                ""
            } else {
                " or equal to"
            };
            let text = format!(
                "{path} in body should be greater than{or_equal} {}",
                plain(min)
            );
            outcome.errors.push(invalid(text));
        }
    }
}

/// Whether a number is none too many for a float of four bytes.
fn is_single(number: &Number) -> bool {
    number
        .as_f64()
        .is_some_and(|n| n.abs() <= f64::from(f32::MAX))
}

/// A limit as it is held against a number: whole numbers are held against what is whole of it.
fn limit(number: &Number, limit: &Number) -> Number {
    let whole = match limit.as_f64() {
        Some(float) if number.is_i64() && !limit.is_i64() => {
            float.trunc().to_string().parse::<i64>().ok()
        }
        _ => None,
    };
    whole.map_or_else(|| limit.clone(), Number::from)
}

/// A limit without a fraction that is none.
fn plain(number: &Number) -> String {
    match number.as_f64() {
        Some(n) if number.is_f64() => format!("{n}"),
        _ => number.to_string(),
    }
}

fn compare(a: &Number, b: &Number) -> i32 {
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return a.cmp(&b) as i32;
    }
    let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
    a.partial_cmp(&b).map_or(0, |order| order as i32)
}

fn check_list<'a>(
    schema: &'a Schema,
    rules: &Rules,
    list: &'a [Value],
    old: Old<'a>,
    path: &str,
    outcome: &mut Outcome,
) {
    let length = u64::try_from(list.len()).unwrap_or(u64::MAX);
    // A list that is longer than it may be is refused whatever is in it.
    let most = rules.max_items.filter(|max| length > *max);
    if let Some(items) = schema.items().filter(|_| most.is_none()) {
        let before = old.items(schema);
        for (at, item) in list.iter().enumerate() {
            let below = before.of(at, items, item);
            outcome.merge(check(items, item, below, &format!("{path}[{at}]")));
        }
    }
    if let Some(min) = rules.min_items.filter(|min| length < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        let error = FieldError::invalid(shown_path(path), json!(length), detail);
        outcome.errors.push(error);
    }
    if let Some(max) = most {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let error = FieldError::too_many(shown_path(path), list.len(), max);
        outcome.errors.push(error);
    }
    if rules.unique_items && most.is_none() {
        let mut seen = HashSet::with_capacity(list.len());
        if !list.iter().all(|item| seen.insert(item)) {
            let detail = format!("{path} in body shouldn't contain duplicates");
            let error = FieldError::invalid(shown_path(path), json!(""), detail);
            outcome.errors.push(error);
        }
    }
    outcome.checks += 2;
}

fn check_object<'a>(
    schema: &'a Schema,
    rules: &'a Rules,
    object: &'a Map<String, Value>,
    old: Old<'a>,
    path: &str,
    outcome: &mut Outcome,
) {
    let length = u64::try_from(object.len()).unwrap_or(u64::MAX);
    if let Some(min) = rules.min_properties.filter(|min| length < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        let error = FieldError::invalid(shown_path(path), json!(length), detail);
        outcome.errors.push(error);
    }
    if let Some(max) = rules.max_properties.filter(|max| length > *max) {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let error = FieldError::too_many(shown_path(path), object.len(), max);
        outcome.errors.push(error);
    }
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    for (key, inner) in object {
        let Some(child) = schema.child(key) else {
            continue;
        };
        let old = old.key(key, child, inner);
        outcome.merge(check(child, inner, old, &below(key)));
    }
    if let (Some(metadata), Some(inner)) = (&rules.metadata, object.get("metadata")) {
        let old = old.key("metadata", metadata, inner);
        outcome.merge(check(metadata, inner, old, &below("metadata")));
    }
    for name in &rules.required {
        if !object.contains_key(name.as_ref()) {
            let error =
                FieldError::new(below(name), FieldErrorKind::Required, BadValue::Omitted, "");
            outcome.errors.push(error);
        }
    }
    outcome.checks += 1;
}

#[cfg(test)]
#[path = "validate/tests.rs"]
mod tests;
