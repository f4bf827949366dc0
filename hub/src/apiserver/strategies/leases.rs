//! Leases: a PUT may make one, and it must say which version it replaces.

use super::{Facts, Strategy};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::value::{number, put};
use serde_json::{Value, json};

pub(super) struct Leases;

impl Strategy for Leases {
    fn create_on_update(&self) -> bool {
        true
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        without_election(object);
    }

    fn prepare_update(&self, _: &Facts<'_>, object: &mut Value, _: &Value) {
        without_election(object);
    }

    fn validate(&self, _: &Facts<'_>, object: &Value, _: Option<&Value>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for (field, least, why) in [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ] {
            if let Some(value) = number(object, &["spec", field]).filter(|value| *value < least) {
                errors.push(FieldError::invalid(
                    format!("spec.{field}"),
                    json!(value),
                    why,
                ));
            }
        }
        errors
    }
}

/// Fields of elections that a server coordinates, which is off unless asked for.
fn without_election(lease: &mut Value) {
    for field in ["strategy", "preferredHolder"] {
        put(lease, &["spec", field], None);
    }
}
