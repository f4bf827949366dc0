//! From the bytes of a body to an object of the kind that is expected.

use super::yaml;
use crate::apiserver::error::{ApiError, FieldError};
use crate::apiserver::protobuf::{self, Unread};
use crate::apiserver::request::{Body, Context, FieldValidation, MediaType};
use crate::apiserver::schema::Schema;
use crate::apiserver::scheme::{Resource, Scheme, go_package};
use crate::apiserver::value::text;
use crate::go::{quote, strict, syntax};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Group, version and kind, and whether a body may leave them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) custom: bool,
}

impl Expected {
    /// Of an object of `resource`.
    pub(crate) fn of(resource: &Resource) -> Self {
        Self {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            kind: resource.kind.to_string(),
            custom: resource.is_custom(),
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// A body that was read, with what is odd about it.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) value: Value,
    duplicates: Vec<String>,
    /// What YAML has twice, as it is told.
    yaml: Vec<String>,
    /// The order of the fields, asked for only when it matters.
    json: Option<bytes::Bytes>,
}

/// Reads the bytes, whatever they are about.
pub(crate) fn read(body: &Body, expected: &Expected) -> Result<Raw, ApiError> {
    read_or(body, expected, |why| unrecognized(body, expected, &why))
}

/// A value does not fit into the kind.
fn unhandled(expected: &Expected, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {} cannot be handled as a {}: {why}",
        expected.kind,
        quote(&expected.version),
        expected.kind
    ))
}

/// What a type says of a number, which it tells as it was written.
fn as_written(why: String, json: &[u8]) -> String {
    let Some((number, wanted)) = why
        .strip_prefix("json: cannot unmarshal number ")
        .and_then(|rest| rest.split_once(' '))
    else {
        return why;
    };
    let reads = |literal: &&str| {
        let read = serde_json::from_str::<serde_json::Number>(literal);
        read.is_ok_and(|read| read.to_string() == number)
    };
    match syntax::numbers(json).into_iter().find(reads) {
        Some(literal) => format!("json: cannot unmarshal number {literal} {wanted}"),
        None => why,
    }
}

fn unrecognized(body: &Body, expected: &Expected, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        expected.kind,
        summary(&body.bytes)
    ))
}

/// The same, where bytes that are no object are told as `unrecognized` says.
pub(crate) fn read_or(
    body: &Body,
    expected: &Expected,
    unrecognized: impl Fn(String) -> ApiError,
) -> Result<Raw, ApiError> {
    let read = match body.media {
        MediaType::Protobuf => {
            return Ok(Raw {
                value: protobuf::decode(&body.bytes).map_err(|why| match why {
                    Unread::Kind { version, kind } => ApiError::bad_request(format!(
                        "{kind} in version {} cannot be handled as a {}: {}",
                        quote(version.rsplit('/').next().unwrap_or_default()),
                        expected.kind,
                        not_registered(&kind, &version)
                    )),
                    other => unrecognized(other.to_string()),
                })?,
                duplicates: Vec::new(),
                yaml: Vec::new(),
                json: None,
            });
        }
        MediaType::Json => {
            strict::read_as_go(&body.bytes, !expected.custom).map_err(|why| match why {
                strict::Unread::Text(why) => unrecognized(format!(
                    "couldn't get version/kind; json parse error: {why}"
                )),
                strict::Unread::Number(why) => unhandled(expected, &why),
            })?
        }
        MediaType::Yaml => yaml::read(&body.bytes).map_err(&unrecognized)?,
    };
    let mut read = read;
    if read.value.is_null() {
        read.value = json!({});
    }
    if !read.value.is_object() {
        let what = match &read.value {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(unrecognized(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    let yaml = match body.media {
        MediaType::Yaml => std::mem::take(&mut read.duplicates),
        _ => Vec::new(),
    };
    Ok(Raw {
        value: read.value,
        duplicates: read.duplicates,
        yaml,
        json: (body.media == MediaType::Json).then(|| body.bytes.clone()),
    })
}

/// What the real server says of a kind that it does not have.
pub(crate) fn not_registered(kind: &str, version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quote(kind),
        quote(version)
    )
}

/// What the real server shows of a body that it cannot read.
fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    match bytes {
        [] => "<empty>".to_owned(),
        [b'{', ..] if bytes.len() > MAX => {
            let start = bytes.get(..MAX).unwrap_or_default();
            format!("{} ...", String::from_utf8_lossy(start))
        }
        [b'{', ..] => String::from_utf8_lossy(bytes).into_owned(),
        _ => {
            let mut shown = String::new();
            for byte in bytes.iter().take(MAX) {
                let _ = write!(shown, "{byte:02x}");
            }
            if bytes.len() > MAX {
                shown.push_str(" ...");
            }
            shown
        }
    }
}

/// Puts kind and version where a body left them out, and refuses others.
/// `known` tells whether a kind is served at all.
pub(crate) fn check_kind(
    value: &mut Value,
    expected: &Expected,
    raw: Option<&[u8]>,
    known: impl Fn(&str, &str) -> bool,
) -> Result<(), ApiError> {
    let kind = text(value, &["kind"]).to_owned();
    let version = text(value, &["apiVersion"]).to_owned();
    let wanted = expected.api_version();
    if expected.custom && kind.is_empty() {
        let shown = match raw {
            Some(raw) => String::from_utf8_lossy(raw).into_owned(),
            None => value.to_string(),
        };
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{shown}' ({})",
            expected.kind,
            summary(shown.as_bytes())
        )));
    }
    let kind = if kind.is_empty() {
        expected.kind.clone()
    } else {
        kind
    };
    let version = if version.is_empty() && !expected.custom {
        wanted.clone()
    } else {
        version
    };
    let is_expected = version == wanted && kind == expected.kind;
    if !is_expected && !expected.custom && !known(&version, &kind) {
        return Err(ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: {}",
            quote(version.rsplit('/').next().unwrap_or_default()),
            expected.kind,
            not_registered(&kind, &version)
        )));
    }
    if version != wanted && kind == expected.kind {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if kind != expected.kind {
        if expected.custom {
            return Err(ApiError::invalid(
                &crate::apiserver::error::GroupKind::new(expected.group.clone(), kind.clone()),
                text(value, &["metadata", "name"]),
                vec![FieldError::invalid(
                    "kind",
                    json!(kind),
                    format!("must be {}", expected.kind),
                )],
            ));
        }
        let short = version.rsplit('/').next().unwrap_or_default();
        let package = go_package(&expected.group);
        return Err(ApiError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {}: converting ({short}.{kind}) to ({package}.{}): unknown conversion",
            quote(short),
            expected.kind,
            expected.kind
        )));
    }
    if let Some(object) = value.as_object_mut() {
        object.insert("kind".to_owned(), json!(kind));
        object.insert("apiVersion".to_owned(), json!(version));
        match object.get("metadata") {
            None | Some(Value::Null) => {
                object.insert("metadata".to_owned(), json!({}));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What a body says, as an object of the expected kind: fields it does not have are dropped, and told
/// as the request wants it.
pub(crate) fn as_kind(
    context: &Context,
    kinds: &Scheme,
    body: &Body,
    expected: &Expected,
    schema: &Schema,
) -> Result<Value, ApiError> {
    let raw = read(body, expected)?;
    let mut value = raw.value;
    let version = text(&value, &["apiVersion"]);
    if !expected.custom && version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        return Err(unrecognized(body, expected, &why));
    }
    check_kind(
        &mut value,
        expected,
        raw.json.as_deref(),
        |version, kind| is_known(kinds, version, kind),
    )?;
    let refuse = |why: String| {
        let why = match &raw.json {
            Some(json) => as_written(why, json),
            None => why,
        };
        unhandled(expected, &why)
    };
    let unknown = schema.prune(&mut value);
    schema.coerce(&mut value).map_err(refuse)?;
    let order = || raw.json.as_deref().map(strict::order).unwrap_or_default();
    let mut odd = raw.yaml;
    if context.field_validation == FieldValidation::Strict && !odd.is_empty() {
        odd = vec![format!("yaml: unmarshal errors:\n  {}", odd.join("\n  "))];
    }
    odd.extend(oddities(unknown, raw.duplicates, expected.custom, order));
    report(context, odd, refuse)?;
    Ok(value)
}

/// The same, of the kind of the request.
pub(crate) fn object(context: &Context, kinds: &Scheme, body: &Body) -> Result<Value, ApiError> {
    let resource = &context.resource;
    as_kind(
        context,
        kinds,
        body,
        &Expected::of(resource),
        &resource.schema,
    )
}

/// Whether a kind is served in a version.
pub(crate) fn is_known(kinds: &Scheme, version: &str, kind: &str) -> bool {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    kinds.snapshot().kind(group, version, kind).is_some()
}

/// Unknown and repeated fields in the order of the real server: built-in kinds tell them as they come,
/// others what is there twice first.
pub(crate) fn oddities(
    mut unknown: Vec<String>,
    duplicates: Vec<String>,
    custom: bool,
    order: impl FnOnce() -> Vec<String>,
) -> Vec<String> {
    if unknown.is_empty() && duplicates.is_empty() {
        return Vec::new();
    }
    unknown.truncate(strict::MOST_TOLD);
    let mut all: Vec<String> = Vec::new();
    let mut tell = |text: String| {
        if !all.contains(&text) {
            all.push(text);
        }
    };
    if !custom && !unknown.is_empty() {
        let mut seen: Vec<&String> = Vec::new();
        let order = order();
        for path in &order {
            if unknown.contains(path) {
                tell(format!("unknown field {}", quote(path)));
            } else if duplicates.contains(path) && seen.contains(&path) {
                tell(format!("duplicate field {}", quote(path)));
            }
            if duplicates.contains(path) {
                seen.push(path);
            }
        }
        for path in unknown {
            tell(format!("unknown field {}", quote(&path)));
        }
    } else {
        for path in duplicates {
            tell(format!("duplicate field {}", quote(&path)));
        }
        for path in unknown {
            tell(format!("unknown field {}", quote(&path)));
        }
    }
    all
}

/// Tells oddities as the request wants it.
pub(crate) fn report(
    context: &Context,
    odd: Vec<String>,
    refuse: impl FnOnce(String) -> ApiError,
) -> Result<(), ApiError> {
    if odd.is_empty() {
        return Ok(());
    }
    match context.field_validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            for one in odd {
                context.warnings.add(one);
            }
            Ok(())
        }
        FieldValidation::Strict => {
            Err(refuse(format!("strict decoding error: {}", odd.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(custom: bool) -> Expected {
        Expected {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            custom,
        }
    }

    #[test]
    fn kinds_are_filled_in_or_refused() {
        let mut bare = json!({});
        assert_eq!(
            check_kind(&mut bare, &expected(false), None, |_, _| true),
            Ok(())
        );
        assert_eq!(
            bare,
            json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {}})
        );
        let refused = |mut value: Value, custom| {
            check_kind(&mut value, &expected(custom), None, |_, kind| kind != "Foo")
                .expect_err("refused")
                .message
        };
        assert_eq!(
            refused(json!({"kind": "Foo", "apiVersion": "x/v2"}), false),
            "Foo in version \"v2\" cannot be handled as a Deployment: no kind \"Foo\" is registered for version \"x/v2\" in scheme \"pkg/runtime/scheme.go:111\""
        );
        assert_eq!(
            refused(json!({"apiVersion": "v1"}), false),
            "the API version in the data (v1) does not match the expected API version (apps/v1)"
        );
        assert_eq!(
            refused(json!({"kind": "ReplicaSet"}), false),
            "ReplicaSet in version \"v1\" cannot be handled as a Deployment: converting (v1.ReplicaSet) to (apps.Deployment): unknown conversion"
        );
        assert!(refused(json!({}), true).contains("Object 'Kind' is missing"));
    }

    #[test]
    fn oddities_come_in_order() {
        let unknown = vec!["spec.x".to_owned(), "a".to_owned()];
        let twice = vec!["spec.paused".to_owned()];
        let order = || {
            ["spec", "spec.x", "spec.paused", "spec.paused", "a"]
                .map(str::to_owned)
                .to_vec()
        };
        assert_eq!(
            oddities(unknown.clone(), twice.clone(), false, order),
            [
                "unknown field \"spec.x\"",
                "duplicate field \"spec.paused\"",
                "unknown field \"a\""
            ]
        );
        assert_eq!(
            oddities(unknown, twice, true, Vec::new),
            [
                "duplicate field \"spec.paused\"",
                "unknown field \"spec.x\"",
                "unknown field \"a\""
            ]
        );
    }
}
