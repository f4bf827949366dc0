//! The options of verbs, as the query and the body of a request give them.

use crate::apiserver::error::{ApiError, FieldError, FieldErrors, GroupKind};
use crate::apiserver::value::{at, texts};
use crate::go::quote;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(in crate::apiserver) const EXACT: &str = "Exact";
const NOT_OLDER: &str = "NotOlderThan";
const MATCH: &str = "resourceVersionMatch";

/// How a patch is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`.
    Json,
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`.
    Apply,
}

/// The options of lists and watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`.
    pub label_selector: String,
    /// `fieldSelector`.
    pub field_selector: String,
    /// `resourceVersion`.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: String,
    /// `limit`; 0 is none.
    pub limit: i64,
    /// `continue`.
    pub continue_token: String,
    /// `timeoutSeconds`.
    pub timeout_seconds: Option<i64>,
    /// `allowWatchBookmarks`.
    pub allow_watch_bookmarks: bool,
    /// `sendInitialEvents`.
    pub send_initial_events: Option<bool>,
}

/// What must hold for a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object's uid.
    pub uid: Option<String>,
    /// The object's resourceVersion.
    pub resource_version: Option<String>,
}

/// What becomes of the objects that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay, without their owner.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// The options of deletions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// What must hold.
    pub preconditions: Preconditions,
    /// `propagationPolicy`.
    pub propagation: Option<Propagation>,
    /// `orphanDependents`, which came before it.
    pub orphan_dependents: Option<bool>,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `dryRun` in the body.
    pub dry_run: bool,
}

impl ListOptions {
    /// From the query of a request.
    pub fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut options = Self::default();
        for (key, value) in firsts(query) {
            match key.as_str() {
                "labelSelector" => options.label_selector.clone_from(value),
                "fieldSelector" => options.field_selector.clone_from(value),
                "resourceVersion" => options.resource_version.clone_from(value),
                "resourceVersionMatch" => options.resource_version_match.clone_from(value),
                "continue" => options.continue_token.clone_from(value),
                "limit" => options.limit = number(value)?,
                "timeoutSeconds" => options.timeout_seconds = Some(number(value)?),
                "allowWatchBookmarks" => options.allow_watch_bookmarks = boolean(value),
                "sendInitialEvents" => options.send_initial_events = Some(boolean(value)),
                _ => {}
            }
        }
        Ok(options)
    }

    /// Refuses combinations that mean nothing.
    pub fn validate(&self, watch: bool) -> Result<(), ApiError> {
        let mut errors = FieldErrors::new();
        let rv_match = self.resource_version_match.as_str();
        let invalid_match = || json!(rv_match);
        if watch {
            self.validate_watch(&mut errors);
        } else {
            if !rv_match.is_empty() {
                if self.resource_version.is_empty() {
                    errors.push(FieldError::forbidden(
                        MATCH,
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    ));
                }
                if !self.continue_token.is_empty() {
                    errors.push(FieldError::forbidden(
                        MATCH,
                        "resourceVersionMatch is forbidden when continue is provided",
                    ));
                }
                if rv_match != EXACT && rv_match != NOT_OLDER {
                    errors.push(FieldError::not_supported(
                        MATCH,
                        invalid_match(),
                        &[EXACT, NOT_OLDER, ""],
                    ));
                }
                if rv_match == EXACT && self.resource_version == "0" {
                    errors.push(FieldError::forbidden(
                        MATCH,
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    ));
                }
            }
            if self.send_initial_events.is_some() {
                errors.push(FieldError::forbidden(
                    "sendInitialEvents",
                    "sendInitialEvents is forbidden for list",
                ));
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "ListOptions"),
            "",
            errors,
        ))
    }

    fn validate_watch(&self, errors: &mut FieldErrors) {
        let rv_match = self.resource_version_match.as_str();
        if self.send_initial_events.is_some() {
            if rv_match != NOT_OLDER {
                errors.push(FieldError::forbidden(
                    MATCH,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
        } else if !rv_match.is_empty() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !rv_match.is_empty() && rv_match != NOT_OLDER {
            errors.push(FieldError::not_supported(
                MATCH,
                json!(rv_match),
                &[NOT_OLDER],
            ));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
}

/// Of each parameter the first: that is the one by which rights were judged.
fn firsts(query: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    let mut seen = BTreeSet::new();
    query.iter().filter(move |(key, _)| seen.insert(key))
}

/// As Go reads it.
fn number(text: &str) -> Result<i64, ApiError> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let why = if is_number {
            "value out of range"
        } else {
            "invalid syntax"
        };
        ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(text)))
    })
}

/// Everything but these is true, even nothing.
fn boolean(text: &str) -> bool {
    !(text == "0" || text.eq_ignore_ascii_case("false"))
}

impl DeleteOptions {
    /// From the query of a request.
    pub fn from_query(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut value = json!({});
        for (key, text) in firsts(query) {
            match key.as_str() {
                "gracePeriodSeconds" => value[key] = json!(number(text)?),
                "orphanDependents" => value[key] = json!(boolean(text)),
                "propagationPolicy" => value[key] = json!(text),
                "dryRun" if !text.is_empty() => value[key] = json!([text]),
                _ => {}
            }
        }
        Self::from_value(&value)
    }

    /// From the body of a request, once it was read.
    pub fn from_value(value: &Value) -> Result<Self, ApiError> {
        let mut errors = FieldErrors::new();
        let orphan = value.get("orphanDependents").and_then(Value::as_bool);
        let policy = value
            .get("propagationPolicy")
            .and_then(Value::as_str)
            .filter(|policy| !policy.is_empty());
        if orphan.is_some() && policy.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                json!(policy),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    json!(other),
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        let dry_run = texts(value, &["dryRun"]);
        if dry_run.iter().any(|mode| *mode != "All") {
            errors.push(FieldError::not_supported(
                "dryRun",
                json!(dry_run),
                &["All"],
            ));
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(
                &GroupKind::new("meta.k8s.io", "DeleteOptions"),
                "",
                errors,
            ));
        }
        let precondition = |key: &str| {
            let value = at(value, &["preconditions", key])?;
            value.as_str().map(str::to_owned)
        };
        Ok(Self {
            preconditions: Preconditions {
                uid: precondition("uid"),
                resource_version: precondition("resourceVersion"),
            },
            propagation,
            orphan_dependents: orphan,
            grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
            dry_run: !dry_run.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Vec<(String, String)> {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn of_what_is_said_twice_the_first_counts() {
        let read = ListOptions::parse(&of(
            "fieldSelector=metadata.name%3Dx&fieldSelector=&limit=1&limit=2",
        ));
        let read = read.expect("options");
        assert_eq!(
            (read.field_selector.as_str(), read.limit),
            ("metadata.name%3Dx", 1)
        );
        let read = DeleteOptions::from_query(&of("gracePeriodSeconds=1&gracePeriodSeconds=2"));
        assert_eq!(read.expect("options").grace_period_seconds, Some(1));
    }

    #[test]
    fn combinations_of_lists_and_watches() {
        let cases = [
            ("", false, None),
            ("resourceVersion=5&resourceVersionMatch=Exact", false, None),
            (
                "resourceVersion=0&resourceVersionMatch=NotOlderThan",
                false,
                None,
            ),
            (
                "resourceVersionMatch=Exact",
                false,
                Some("resourceVersionMatch is forbidden unless"),
            ),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                false,
                Some("is forbidden for resourceVersion \"0\""),
            ),
            (
                "resourceVersion=5&resourceVersionMatch=Some",
                false,
                Some("Unsupported value: \"Some\""),
            ),
            (
                "resourceVersion=5&resourceVersionMatch=Exact&continue=x",
                false,
                Some("when continue is provided"),
            ),
            ("sendInitialEvents=true", false, Some("forbidden for list")),
            ("resourceVersion=5", true, None),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                true,
                None,
            ),
            (
                "sendInitialEvents=true",
                true,
                Some("requires setting resourceVersionMatch"),
            ),
            (
                "sendInitialEvents=false&resourceVersionMatch=Exact",
                true,
                Some("Unsupported value"),
            ),
            (
                "resourceVersionMatch=NotOlderThan",
                true,
                Some("unless sendInitialEvents is provided"),
            ),
            (
                "continue=x",
                true,
                Some("forbidden when continue is provided"),
            ),
        ];
        for (query, watch, refused) in cases {
            let options = ListOptions::parse(&of(query)).expect("parses");
            match (options.validate(watch), refused) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => {
                    assert_eq!(error.code, 422);
                    assert!(error.message.contains(part), "{query}: {}", error.message);
                }
                (got, _) => panic!("{query}: {got:?}"),
            }
        }
        assert!(ListOptions::parse(&of("limit=x")).is_err());
    }
}
