//! Values that are none of the type their schema says: whoever looks at one is told so, and whoever does
//! not look is not.

use super::{Stop, Told};
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::Opaque;
use std::sync::Arc;

/// Why a value is none.
#[derive(Debug, PartialEq, Eq)]
struct Invalid(String);

impl Opaque for Invalid {
    fn runtime_type_name(&self) -> &str {
        "error"
    }
}

/// A value that is none.
pub(super) fn invalid(why: String) -> Cel {
    Cel::Opaque(Arc::new(Invalid(why)))
}

/// The error that a value stands for.
pub(super) fn error(value: &Cel) -> Option<Stop> {
    match value {
        Cel::Opaque(opaque) => {
            let invalid = opaque.downcast_ref::<Invalid>()?;
            Some(Stop::Error(invalid.0.clone()))
        }
        _ => None,
    }
}

/// The value, if it is one.
pub(super) fn sound(value: Cel) -> Told {
    error(&value).map_or(Ok(value), Err)
}
