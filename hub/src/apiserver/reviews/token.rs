//! Tokens of ServiceAccounts on request.

use super::ReviewHandler;
use crate::apiserver::authn::{API_AUDIENCE, Claims};
use crate::apiserver::error::{ApiError, FieldError, GroupKind, GroupResource};
use crate::apiserver::keys::account::LONGEST_TOKEN;
use crate::go::quote;
use chrono::{Duration, SecondsFormat};
use common::chance::secret;
use common::uuid::random_uuid;
use serde_json::{Value, json};

/// How long a token holds when nobody says.
pub(super) const DEFAULT_SECONDS: i64 = 3600;
const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

impl ReviewHandler<'_> {
    pub(super) fn token_request(
        &self,
        namespace: &str,
        name: &str,
        mut request: Value,
    ) -> Result<Value, ApiError> {
        check_target(&request["metadata"], namespace, name)?;
        let account = self
            .authenticator
            .object("/serviceaccounts", namespace, name)
            .ok_or_else(|| not_found("serviceaccounts", name))?;
        let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        let wanted = request["metadata"]["uid"].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != uid {
            return Err(ApiError::conflict(
                &GroupResource::new(GROUP, KIND),
                name,
                &format!(
                    "the UID in the token request ({wanted}) does not match the UID of the service account ({uid})"
                ),
            ));
        }
        let spec = &request["spec"];
        let seconds = spec["expirationSeconds"].as_i64();
        let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
        let wrong = if seconds < SHORTEST {
            Some("may not specify a duration less than 10 minutes")
        } else if seconds > LONGEST {
            Some("may not specify a duration larger than 2^32 seconds")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let error = FieldError::invalid("spec.expirationSeconds", json!(seconds), wrong);
            return Err(ApiError::invalid(
                &GroupKind::new(GROUP, KIND),
                "",
                vec![error],
            ));
        }
        let granted = seconds.min(LONGEST_TOKEN.num_seconds());
        if granted < seconds {
            self.context.warnings.add(format!(
                "requested expiration of {seconds} seconds shortened to {granted} seconds"
            ));
        }
        let mut audiences: Vec<String> = spec["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|audience| audience.as_str().map(str::to_owned))
            .collect();
        if audiences.is_empty() {
            audiences.push(API_AUDIENCE.to_owned());
        }
        let bound = self.bound(namespace, name, &spec["boundObjectRef"])?;
        let id = random_uuid(&mut secret::rng());
        let claims = Claims {
            namespace,
            name,
            uid,
            audiences: &audiences,
            bound: bound
                .as_ref()
                .map(|(claim, name, uid)| (*claim, name.as_str(), uid.as_str())),
            now: self.now,
            seconds: granted,
            id: &id,
        };
        let token = self.authenticator.sign(&claims)?;
        let until = self.now + Duration::seconds(granted);
        let metadata = &mut request["metadata"];
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(self.seconds());
        let bound_to = request["spec"]["boundObjectRef"].clone();
        request["spec"] = json!({
            "audiences": audiences,
            "expirationSeconds": granted,
            "boundObjectRef": bound_to,
        });
        request["status"] = json!({
            "token": token,
            "expirationTimestamp": until.to_rfc3339_opts(SecondsFormat::Secs, true),
        });
        Ok(request)
    }

    /// The object with which a token is to end: claim, name, uid.
    fn bound(
        &self,
        namespace: &str,
        account: &str,
        reference: &Value,
    ) -> Result<Option<(&'static str, String, String)>, ApiError> {
        if reference.is_null() {
            return Ok(None);
        }
        let kind = reference["kind"].as_str().unwrap_or_default();
        let version = reference["apiVersion"].as_str().unwrap_or_default();
        let (claim, plural, place) = match (version, kind) {
            ("v1", "Pod") => ("pod", "pods", namespace),
            ("v1", "Secret") => ("secret", "secrets", namespace),
            ("v1", "Node") => ("node", "nodes", ""),
            _ => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token to object of type {}, Kind={kind}",
                    if version.contains('/') {
                        version.to_owned()
                    } else {
                        format!("/{version}")
                    },
                )));
            }
        };
        let name = reference["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let object = self
            .authenticator
            .object(&format!("/{plural}"), place, name)
            .ok_or_else(|| not_found(plural, name))?;
        if kind == "Pod" && object["spec"]["serviceAccountName"] != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                quote(account)
            )));
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let wanted = reference["uid"].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != uid {
            return Err(ApiError::conflict(
                &GroupResource::new("", kind),
                name,
                &format!(
                    "the UID in the bound object reference ({wanted}) does not match the UID in \
                     record. The object might have been deleted and then recreated"
                ),
            ));
        }
        Ok(Some((claim, name.to_owned(), uid.to_owned())))
    }
}

/// A request that names an account names the one of its path.
fn check_target(metadata: &Value, namespace: &str, name: &str) -> Result<(), ApiError> {
    let said = |field: &str| metadata[field].as_str().unwrap_or_default();
    if !said("namespace").is_empty() && said("namespace") != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if said("name").is_empty() || said("name") == name {
        return Ok(());
    }
    let error = FieldError::invalid(
        "metadata.name",
        json!(said("name")),
        "must match the service account name if specified",
    );
    let kind = GroupKind::new(GROUP, KIND);
    Err(ApiError::invalid(&kind, name, vec![error]))
}

fn not_found(plural: &str, name: &str) -> ApiError {
    ApiError::not_found(&GroupResource::new("", plural), name)
}
