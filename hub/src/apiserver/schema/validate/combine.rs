//! `allOf`, `anyOf`, `oneOf` and `not`.

use super::{Outcome, check_new};
use crate::apiserver::error::FieldError;
use crate::apiserver::schema::rules::Rules;
use crate::apiserver::schema::validate::old::Old;
use serde_json::{Value, json};

fn whole(path: &str, what: &str) -> FieldError {
    // Upstream these have neither a path nor a value of their own.
    FieldError::invalid("<nil>", json!(""), format!("{path:?} {what}"))
}

/// The alternative that passed most checks is the one that is told.
fn better(best: &mut Option<Outcome>, other: Outcome) {
    if best.as_ref().is_none_or(|best| other.checks > best.checks) {
        *best = Some(other);
    }
}

pub(super) fn check(rules: &Rules, value: &Value, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let look = |schema| check_new(schema, value, Old::none(), path);
    if !rules.any_of.is_empty() {
        let mut best = None;
        let mut passed = None;
        for schema in &rules.any_of {
            let one = look(schema);
            if one.is_valid() {
                passed = Some(one);
                break;
            }
            better(&mut best, one);
        }
        if passed.is_none() {
            let what = "must validate at least one schema (anyOf)";
            outcome.errors.push(whole(path, what));
        }
        if let Some(told) = passed.or(best) {
            outcome.merge(told);
        }
    }
    if !rules.one_of.is_empty() {
        let mut best = None;
        let mut first = None;
        let mut valid = 0;
        for schema in &rules.one_of {
            let one = look(schema);
            if one.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(one);
            } else if valid == 0 {
                better(&mut best, one);
            }
        }
        if valid == 1 {
            outcome.merge(first.unwrap_or_default());
        } else {
            let found = match valid {
                0 => "Found none valid".to_owned(),
                _ => format!("Found {valid} valid alternatives"),
            };
            let what = format!("must validate one and only one schema (oneOf). {found}");
            outcome.errors.push(whole(path, &what));
            outcome.merge(best.unwrap_or_default());
        }
    }
    if !rules.all_of.is_empty() {
        let mut valid = 0;
        for schema in &rules.all_of {
            let one = look(schema);
            valid += usize::from(one.is_valid());
            outcome.merge(one);
        }
        if valid != rules.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            let what = format!("must validate all the schemas (allOf){none}");
            outcome.errors.push(whole(path, &what));
        }
    }
    if let Some(not) = &rules.not
        && look(not).is_valid()
    {
        let what = "must not validate the schema (not)";
        outcome.errors.push(whole(path, what));
    }
    outcome.checks += 1;
    outcome
}
