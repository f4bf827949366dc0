//! The errors of the API, with the codes, reasons and texts that Kubernetes clients know.

mod field;
mod fields;

pub use field::{BadValue, FieldError, FieldErrorKind};
pub use fields::{FieldErrors, MOST_TOLD};

use crate::access::Failure;
use crate::go::quote;
use common::tunnel::cause;
use serde_json::{Value, json};
use std::fmt;

/// Bytes of errors of one object after which no other one is told.
pub(super) const LONGEST_TOLD: usize = 256 * 1024;

/// A kind of object by its plural name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Its name in paths.
    pub resource: String,
}

impl GroupResource {
    /// The plural name of a kind in a group.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

/// A kind of object by its name in bodies.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Its name in bodies.
    pub kind: String,
}

impl GroupKind {
    /// A kind in a group.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if !group.is_empty() {
        write!(f, ".{group}")?;
    }
    Ok(())
}

/// One reason of several for an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// What kind of cause; left out when empty.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The field it is about; left out when empty.
    pub field: String,
}

/// What the error is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// Name of the object.
    pub name: String,
    /// API group of its kind; empty for the core group.
    pub group: String,
    /// Its plural name; its kind when it is invalid.
    pub kind: String,
    /// UID of the object, where one was asked for.
    pub uid: String,
    /// What exactly is wrong.
    pub causes: Vec<StatusCause>,
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Status code of HTTP.
    pub code: u16,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// What it is about.
    pub details: Option<StatusDetails>,
    /// Seconds after which to try again; also a header.
    pub retry_after: Option<u32>,
    /// Where a list may go on though it is no longer consistent.
    pub continue_token: Option<String>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// Why a member did not answer, to whoever asked it.
impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let said = failure.to_string();
        match failure {
            Failure::Elsewhere(_)
            | Failure::NotForwarded(_)
            | Failure::Unreadable
            | Failure::NotAList(_)
            | Failure::NotTakenOver => Self::bad_request(said),
            Failure::Unfit(_) | Failure::Ended(_) => Self::plain(403, "Forbidden", said),
            Failure::NoTunnel(_) => Self::unavailable(said).with_cause(cause::NO_TUNNEL, "", ""),
            Failure::Lost { .. } => Self::unavailable(said),
            Failure::Moved(_) => Self {
                retry_after: Some(1),
                ..Self::unavailable(said)
            },
            Failure::TooMany(_) => Self::too_many_requests(said, 1),
            Failure::NotPassedOn { .. } | Failure::NotSwitched { .. } => {
                Self::plain(502, "InternalError", said)
            }
            Failure::Unmade(_) => Self::internal(said),
        }
    }
}

impl ApiError {
    /// An error without details.
    pub fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
        }
    }

    fn about(
        code: u16,
        reason: &'static str,
        on: &GroupResource,
        name: &str,
        message: String,
    ) -> Self {
        let details = StatusDetails {
            name: name.to_owned(),
            group: on.group.clone(),
            kind: on.resource.clone(),
            ..StatusDetails::default()
        };
        Self {
            details: Some(details),
            ..Self::plain(code, reason, message)
        }
    }

    /// The object does not exist.
    pub fn not_found(on: &GroupResource, name: &str) -> Self {
        let message = format!("{on} {} not found", quote(name));
        Self::about(404, "NotFound", on, name, message)
    }

    /// No such path.
    pub fn no_such_path() -> Self {
        Self {
            details: Some(StatusDetails::default()),
            ..Self::plain(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        }
    }

    /// The object exists.
    pub fn already_exists(on: &GroupResource, name: &str) -> Self {
        let message = format!("{on} {} already exists", quote(name));
        Self::about(409, "AlreadyExists", on, name, message)
    }

    /// No free name was found for `generateName`.
    pub fn generate_name_conflict(on: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{on} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        Self {
            retry_after: Some(1),
            ..Self::about(409, "AlreadyExists", on, name, message)
        }
    }

    /// The object changed, or a precondition does not hold.
    pub fn conflict(on: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {on} {}: {why}",
            quote(name)
        );
        Self::about(409, "Conflict", on, name, message)
    }

    /// The object changed since it was read.
    pub fn modified(on: &GroupResource, name: &str) -> Self {
        Self::conflict(
            on,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Fields of an apply belong to others.
    pub fn apply_conflict(causes: Vec<StatusCause>, message: impl Into<String>) -> Self {
        Self {
            details: Some(StatusDetails {
                causes,
                ..StatusDetails::default()
            }),
            ..Self::plain(409, "Conflict", message)
        }
    }

    /// No identity.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// Not allowed; an empty resource is a path, an empty name the kind as a whole.
    pub fn forbidden(on: &GroupResource, name: &str, why: &str) -> Self {
        let message = if on.resource.is_empty() && on.group.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{on} is forbidden: {why}")
        } else {
            format!("{on} {} is forbidden: {why}", quote(name))
        };
        Self::about(403, "Forbidden", on, name, message)
    }

    /// Fields are wrong. Of very many errors, and of very long ones, only the first are told.
    pub fn invalid(on: &GroupKind, name: &str, errors: impl Into<FieldErrors>) -> Self {
        let errors = errors.into();
        let mut more = errors.more();
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        let mut causes = Vec::with_capacity(errors.len());
        let mut length = 0;
        for error in errors.iter() {
            if length > LONGEST_TOLD {
                more += 1;
                continue;
            }
            let text = error.to_string();
            length += text.len();
            if !texts.contains(&text) {
                texts.push(text);
            }
            causes.push(error.to_cause());
        }
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let subject = format!("{on} {} is invalid", quote(name));
        let message = match texts.as_slice() {
            [] => subject,
            [one] => format!("{subject}: {one}"),
            many => format!("{subject}: [{}]", many.join(", ")),
        };
        Self {
            details: Some(StatusDetails {
                name: name.to_owned(),
                group: on.group.clone(),
                kind: on.kind.clone(),
                uid: String::new(),
                causes,
            }),
            ..Self::plain(422, "Invalid", message)
        }
    }

    /// Not understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// The verb does not exist for this kind.
    pub fn method_not_allowed(on: &GroupResource, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quote(&on.to_string())
        );
        Self::about(405, "MethodNotAllowed", on, "", message)
    }

    /// None of the accepted types can be written.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            accepted.join(", ")
        );
        Self::plain(406, "NotAcceptable", message)
    }

    /// The type of the body cannot be read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// What a list or watch began from is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// It is gone for good.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::plain(410, "Gone", message)
    }

    /// The body is too long.
    pub fn too_large(message: &str) -> Self {
        let message = format!("Request entity too large: {message}");
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// Try again later.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self {
            details: Some(StatusDetails::default()),
            retry_after: Some(seconds),
            ..Self::plain(429, "TooManyRequests", message)
        }
    }

    /// It took too long, and may still happen.
    pub fn timeout(message: &str, seconds: u32) -> Self {
        Self {
            details: Some(StatusDetails::default()),
            retry_after: (seconds > 0).then_some(seconds),
            ..Self::plain(504, "Timeout", format!("Timeout: {message}"))
        }
    }

    /// Something that will pass; try again.
    pub fn server_timeout(on: &GroupResource, operation: &str, seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {on} could not be completed at this time, please try again."
        );
        Self {
            retry_after: (seconds > 0).then_some(seconds),
            ..Self::about(500, "ServerTimeout", on, operation, message)
        }
    }

    /// Not able to serve now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::plain(503, "ServiceUnavailable", message)
    }

    /// A defect, or a failure below.
    pub fn internal(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        let message = format!("Internal error occurred: {why}");
        Self {
            details: Some(StatusDetails {
                causes: vec![StatusCause {
                    message: why,
                    ..StatusCause::default()
                }],
                ..StatusDetails::default()
            }),
            ..Self::plain(500, "InternalError", message)
        }
    }

    /// The same with one more cause.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.causes.push(StatusCause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        });
        self
    }

    /// The body of the answer.
    pub fn to_status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if self.details.is_some() || self.retry_after.is_some() {
            let details = self.details.clone().unwrap_or_default();
            let mut shown = details.to_value();
            if let Some(seconds) = self.retry_after {
                shown["retryAfterSeconds"] = json!(seconds);
            }
            status["details"] = shown;
        }
        status
    }
}

impl StatusDetails {
    /// As JSON, without what is empty.
    pub fn to_value(&self) -> Value {
        let mut shown = json!({});
        for (key, value) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !value.is_empty() {
                shown[key] = json!(value);
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(StatusCause::to_value);
            shown["causes"] = causes.collect();
        }
        shown
    }
}

impl StatusCause {
    fn to_value(&self) -> Value {
        let mut shown = json!({});
        for (key, value) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !value.is_empty() {
                shown[key] = json!(value);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_known_ones() {
        let maps = GroupResource::new("", "configmaps");
        let apps = GroupResource::new("apps", "deployments");
        let cases = [
            (
                ApiError::not_found(&apps, "a"),
                404,
                "deployments.apps \"a\" not found",
            ),
            (
                ApiError::already_exists(&maps, "a"),
                409,
                "configmaps \"a\" already exists",
            ),
            (
                ApiError::forbidden(&maps, "", "no"),
                403,
                "configmaps is forbidden: no",
            ),
            (
                ApiError::forbidden(&GroupResource::new("", ""), "", "no"),
                403,
                "forbidden: no",
            ),
            (
                ApiError::internal("disk"),
                500,
                "Internal error occurred: disk",
            ),
        ];
        for (error, code, message) in cases {
            assert_eq!((error.code, error.message.as_str()), (code, message));
        }
    }

    #[test]
    fn of_very_many_or_long_errors_the_first_are_told() {
        let kind = GroupKind::new("", "ConfigMap");
        let error = |at| FieldError::invalid(format!("a[{at}]"), json!(0), "must be an object");
        let errors: FieldErrors = (0..100_000).map(error).collect();
        let told = ApiError::invalid(&kind, "a", errors);
        assert!(told.message.ends_with("must be an object, and 99900 more]"));
        assert_eq!(
            told.details.map_or(0, |details| details.causes.len()),
            MOST_TOLD
        );
        let long = |at| FieldError::invalid(format!("a[{at}]"), json!("x".repeat(100_000)), "");
        let errors: FieldErrors = (0..50).map(long).collect();
        let told = ApiError::invalid(&kind, "a", errors);
        assert!(told.message.len() < 400_000, "{}", told.message.len());
        assert!(told.message.ends_with(", and 47 more]"));
    }

    #[test]
    fn invalid_names_every_field_and_says_each_text_once() {
        let kind = GroupKind::new("apps", "Deployment");
        let twice = FieldError::required("spec.selector", "");
        let other = FieldError::invalid("spec.replicas", json!(-1), "must be positive");
        let error = ApiError::invalid(&kind, "a", vec![twice.clone(), twice, other]);
        assert_eq!(
            error.message,
            "Deployment.apps \"a\" is invalid: [spec.selector: Required value, \
             spec.replicas: Invalid value: -1: must be positive]"
        );
        let causes = &error.to_status()["details"]["causes"];
        assert_eq!(causes.as_array().map(Vec::len), Some(3));
        assert_eq!(
            causes[2],
            json!({"reason": "FieldValueInvalid", "field": "spec.replicas",
                   "message": "Invalid value: -1: must be positive"})
        );
    }

    #[test]
    fn seconds_and_tokens_are_shown_where_clients_look() {
        let status = ApiError::too_many_requests("later", 1).to_status();
        assert_eq!(status["details"], json!({"retryAfterSeconds": 1}));
        let mut expired = ApiError::expired("old");
        expired.continue_token = Some("x".to_owned());
        assert_eq!(expired.to_status()["metadata"], json!({"continue": "x"}));
    }
}
