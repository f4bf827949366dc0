//! One field that is wrong.

use super::StatusCause;
use crate::go::{escape_html, quote, settle_numbers};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// In which way a field is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// What it names does not exist.
    NotFound,
    /// It is missing.
    Required,
    /// It is there twice.
    Duplicate,
    /// It is malformed.
    Invalid,
    /// It is none of the allowed values.
    NotSupported,
    /// It may not be there, or not change.
    Forbidden,
    /// It is too long.
    TooLong,
    /// It is too short.
    TooShort,
    /// It has too many items.
    TooMany,
    /// It has too few items.
    TooFew,
    /// Not the user's fault.
    Internal,
    /// It is of another type.
    TypeInvalid,
    /// No field at all: so many others are wrong as well.
    More,
}

impl FieldErrorKind {
    /// The reason of its cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid | Self::More => "FieldValueTypeInvalid",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::More => "More",
        }
    }

    /// These never repeat the value.
    fn hides_value(self) -> bool {
        matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal
        )
    }
}

/// The value that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum BadValue {
    /// Not shown.
    Omitted,
    /// Shown as JSON, a text in quotes.
    Is(Value),
    /// Shown as it is: JSON whose fields stand in the order of a type of the server.
    Typed(Arc<str>),
}

impl From<Value> for BadValue {
    fn from(value: Value) -> Self {
        Self::Is(value)
    }
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// Where: `spec.list[0].name`, `metadata.labels[a/b]`; `<nil>` for the object as a whole.
    pub path: String,
    /// In which way.
    pub kind: FieldErrorKind,
    /// What was there.
    pub value: BadValue,
    /// What should be there; may be empty.
    pub detail: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl FieldError {
    /// Any of them.
    pub fn new(
        path: impl Into<String>,
        kind: FieldErrorKind,
        value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            kind,
            value: value.into(),
            detail: detail.into(),
        }
    }

    /// It is missing.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Required, BadValue::Omitted, detail)
    }

    /// It is malformed.
    pub fn invalid(path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Invalid, value, detail)
    }

    /// It is of another type.
    pub fn type_invalid(path: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::TypeInvalid, value, detail)
    }

    /// It is none of `supported`, which is shown in this order.
    pub fn not_supported(path: impl Into<String>, value: Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|one| quote(one)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(path, FieldErrorKind::NotSupported, value, detail)
    }

    /// It is there twice.
    pub fn duplicate(path: impl Into<String>, value: Value) -> Self {
        Self::new(path, FieldErrorKind::Duplicate, value, "")
    }

    /// What it names does not exist.
    pub fn not_found(path: impl Into<String>, value: Value) -> Self {
        Self::new(path, FieldErrorKind::NotFound, value, "")
    }

    /// It may not be there, or not change.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Forbidden, BadValue::Omitted, detail)
    }

    /// It is longer than so many bytes.
    pub fn too_long(path: impl Into<String>, max_bytes: usize) -> Self {
        let detail = format!("may not be more than {}", counted(max_bytes, "byte"));
        Self::new(path, FieldErrorKind::TooLong, BadValue::Omitted, detail)
    }

    /// It has more than so many items.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let detail = format!("must have at most {}", counted(max, "item"));
        Self::new(path, FieldErrorKind::TooMany, Value::from(actual), detail)
    }

    /// Not the user's fault.
    pub fn internal(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Internal, BadValue::Omitted, detail)
    }

    /// The text without the path.
    pub fn body(&self) -> String {
        let title = self.kind.title();
        let mut text = match &self.value {
            BadValue::Is(value) if !self.kind.hides_value() => {
                format!("{title}: {}", shown(value))
            }
            BadValue::Typed(json) if !self.kind.hides_value() => {
                format!("{title}: {}", escape_html(json))
            }
            _ => title.to_owned(),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    pub(super) fn to_cause(&self) -> StatusCause {
        StatusCause {
            reason: self.kind.reason().to_owned(),
            message: self.body(),
            field: self.path.clone(),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => {
            let mut other = other.clone();
            settle_numbers(&mut other);
            escape_html(&other.to_string())
        }
    }
}

fn counted(count: usize, unit: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts() {
        let cases = [
            (FieldError::required("a.b", ""), "a.b: Required value"),
            (FieldError::required("a", "now"), "a: Required value: now"),
            (
                FieldError::invalid("a", json!("x\n"), "bad"),
                "a: Invalid value: \"x\\n\": bad",
            ),
            (
                FieldError::invalid("a", json!({"b": "<"}), ""),
                "a: Invalid value: {\"b\":\"\\u003c\"}",
            ),
            (
                FieldError::invalid("a", Value::Null, ""),
                "a: Invalid value: null",
            ),
            (
                FieldError::not_supported("a", json!("x"), &["b", "c"]),
                "a: Unsupported value: \"x\": supported values: \"b\", \"c\"",
            ),
            (
                FieldError::too_long("a", 1),
                "a: Too long: may not be more than 1 byte",
            ),
            (
                FieldError::too_many("a", 3, 2),
                "a: Too many: 3: must have at most 2 items",
            ),
            (FieldError::forbidden("a", "no"), "a: Forbidden: no"),
            (
                FieldError::duplicate("a[0]", json!("x")),
                "a[0]: Duplicate value: \"x\"",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }
}
