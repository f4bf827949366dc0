//! The options of deletions, which may come in a body.

use super::decode::{self, Expected};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Body, DeleteOptions};
use crate::apiserver::schema::builtin::schemas;
use serde_json::Value;

impl DeleteOptions {
    /// From the body, and from the query where there is none.
    pub fn parse(query: &[(String, String)], body: Option<&Body>) -> Result<Self, ApiError> {
        match body.filter(|body| !body.bytes.is_empty()) {
            Some(body) => Self::from_value(&read(body)?),
            None => Self::from_query(query),
        }
    }
}

fn read(body: &Body) -> Result<Value, ApiError> {
    let expected = Expected {
        group: "meta.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "DeleteOptions".to_owned(),
        custom: false,
    };
    let mut value = decode::read_or(body, &expected, ApiError::bad_request)?.value;
    let kind = value.get("kind").and_then(Value::as_str);
    if let Some(kind) = kind.filter(|kind| !kind.is_empty() && *kind != "DeleteOptions") {
        let version = value.get("apiVersion").and_then(Value::as_str);
        return Err(ApiError::bad_request(decode::not_registered(
            kind,
            version.unwrap_or_default(),
        )));
    }
    if let Some(schema) = schemas().named(&expected.group, "v1", &expected.kind) {
        schema.prune(&mut value);
        schema.coerce(&mut value).map_err(ApiError::bad_request)?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::{MediaType, Propagation};

    fn of(query: &str) -> Vec<(String, String)> {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn deletions_are_read_from_body_or_query() {
        let body = Body {
            media: MediaType::Json,
            bytes: br#"{"preconditions":{"uid":"u"},"propagationPolicy":"Foreground"}"#[..].into(),
        };
        let options =
            DeleteOptions::parse(&of("propagationPolicy=Orphan"), Some(&body)).expect("fine");
        assert_eq!(options.propagation, Some(Propagation::Foreground));
        assert_eq!(options.preconditions.uid.as_deref(), Some("u"));
        let options =
            DeleteOptions::parse(&of("propagationPolicy=Orphan&dryRun=All"), None).expect("fine");
        assert_eq!(
            (options.propagation, options.dry_run),
            (Some(Propagation::Orphan), true)
        );
        for bad in [
            "propagationPolicy=x",
            "orphanDependents=1&propagationPolicy=Orphan",
            "dryRun=no",
        ] {
            assert_eq!(
                DeleteOptions::parse(&of(bad), None).map_err(|error| error.code),
                Err(422)
            );
        }
    }
}
