//! Questions about identities and rights, and tokens on request: kinds that are answered, not stored.

mod access;
mod identity;
mod token;

use super::authn::Authenticator;
use super::authz::Authorizer;
use super::error::ApiError;
use super::managed::{self, Manager};
use super::registry::decode::{self, Expected};
use super::scheme::Scheme;
use crate::apiserver::request::{Body, Context};
use crate::apiserver::schema::builtin::schemas;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// What a review is answered from.
pub struct ReviewHandler<'a> {
    /// Says what somebody may.
    pub authorizer: &'a Authorizer,
    /// Says whose a token is.
    pub authenticator: &'a Authenticator,
    /// Who asks for the review, and where.
    pub context: &'a Context,
    /// All kinds.
    pub kinds: &'a Scheme,
    /// The time of day.
    pub now: DateTime<Utc>,
}

/// Whether a kind is one of these.
pub fn is_review(group: &str, resource: &str, subresource: &str) -> bool {
    match group {
        AUTHORIZATION | AUTHENTICATION => subresource.is_empty(),
        "" => (resource, subresource) == ("serviceaccounts", "token"),
        _ => false,
    }
}

impl ReviewHandler<'_> {
    /// Answers a review; `name` is that of the ServiceAccount whose token is wanted.
    pub fn answer(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        body: &Body,
    ) -> Result<Value, ApiError> {
        match resource {
            "selfsubjectreviews" => {
                self.read(body, AUTHENTICATION, "SelfSubjectReview")?;
                Ok(self.who_am_i())
            }
            "tokenreviews" => self.token_review(self.read(body, AUTHENTICATION, "TokenReview")?),
            "subjectaccessreviews" => {
                self.subject_access(self.read(body, AUTHORIZATION, "SubjectAccessReview")?, None)
            }
            "localsubjectaccessreviews" => {
                let review = self.read(body, AUTHORIZATION, "LocalSubjectAccessReview")?;
                self.subject_access(review, Some(namespace))
            }
            "selfsubjectaccessreviews" => {
                self.self_access(self.read(body, AUTHORIZATION, "SelfSubjectAccessReview")?)
            }
            "selfsubjectrulesreviews" => {
                self.self_rules(self.read(body, AUTHORIZATION, "SelfSubjectRulesReview")?)
            }
            "serviceaccounts" => {
                let request = self.read(body, AUTHENTICATION, "TokenRequest")?;
                self.token_request(namespace, name, request)
            }
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn read(&self, body: &Body, group: &str, kind: &str) -> Result<Value, ApiError> {
        let expected = Expected {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            custom: false,
        };
        let resource = &self.context.resource;
        let schema = schemas().named(group, "v1", kind);
        let schema = schema.unwrap_or(&resource.schema);
        let mut value = decode::as_kind(self.context, self.kinds, body, &expected, schema)?;
        if !value["spec"].is_object() {
            value["spec"] = json!({});
        }
        if kind == "TokenRequest" && value["spec"]["expirationSeconds"].is_null() {
            value["spec"]["expirationSeconds"] = json!(token::DEFAULT_SECONDS);
        }
        // Answers that are no object of the question's own kind say nothing of fields.
        if !matches!(kind, "SelfSubjectReview" | "SelfSubjectRulesReview") {
            let subresource = if kind == "TokenRequest" { "token" } else { "" };
            let name = &self.context.field_manager;
            let mut manager = Manager::new(resource, name, subresource);
            manager.api_version = format!("{group}/v1");
            managed::track(None, &mut value, schema, &manager, self.now);
        }
        Ok(value)
    }

    fn seconds(&self) -> String {
        self.now.to_rfc3339_opts(SecondsFormat::Secs, true)
    }
}
