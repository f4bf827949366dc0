//! Defaults are held against their own schemas, which is less than objects are held against.

use super::old::Old;
use super::{Verdict, check, embedded};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::schema::{Schema, cel};
use serde_json::Value;

impl Schema {
    /// What is wrong with a value that stands in a schema as a default, at `path`. Lists may hold
    /// something twice; rules are to hold for it as an object that was and as one that is new.
    pub(in crate::apiserver::schema) fn validate_default(
        &self,
        value: &Value,
        path: &str,
    ) -> FieldErrors {
        let below = |error: FieldError| {
            let path = match error.path.as_str() {
                "<nil>" => path.to_owned(),
                inner if inner.starts_with(['.', '[']) => format!("{path}{inner}"),
                inner => format!("{path}.{inner}"),
            };
            FieldError { path, ..error }
        };
        let mut errors = FieldErrors::new();
        embedded::check(self, value, "", false, &mut errors);
        if !errors.is_empty() {
            return errors.into_iter().map(below).collect();
        }
        for mut error in check(self, value, Old::none(), "").errors {
            if error.path.starts_with('[') {
                error.path.insert(0, '.');
            }
            errors.push(below(error));
        }
        for old in [Some(value), None] {
            if errors.is_empty() && self.has_rules() {
                let mut verdict = Verdict::default();
                let before = Old::root(self, value, old);
                cel::check(self, value, before, &mut verdict);
                let told = verdict.forgiven.into_iter().chain(verdict.errors);
                errors.extend(told.map(below));
            }
        }
        errors
    }
}
