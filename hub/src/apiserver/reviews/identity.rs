//! Who somebody is: the caller itself, or the bearer of a token.

use super::ReviewHandler;
use crate::apiserver::authn::{API_AUDIENCE, authenticated};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use serde_json::{Value, json};

/// A caller as reviews show it.
fn user_info(caller: &Caller) -> Value {
    let mut user = json!({"username": caller.user});
    if !caller.uid.is_empty() {
        user["uid"] = json!(caller.uid);
    }
    if !caller.groups.is_empty() {
        user["groups"] = json!(caller.groups);
    }
    if !caller.extra.is_empty() {
        user["extra"] = json!(caller.extra);
    }
    user
}

impl ReviewHandler<'_> {
    pub(super) fn who_am_i(&self) -> Value {
        json!({
            "kind": "SelfSubjectReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": self.seconds()},
            "status": {"userInfo": user_info(&self.context.caller)},
        })
    }

    pub(super) fn token_review(&self, mut review: Value) -> Result<Value, ApiError> {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        let wanted: Vec<String> = review["spec"]["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|audience| audience.as_str().map(str::to_owned))
            .collect();
        let wanted = if wanted.is_empty() {
            vec![API_AUDIENCE.to_owned()]
        } else {
            wanted
        };
        review["status"] = match self.authenticator.token(token, &wanted) {
            Some(Ok((caller, audiences))) => json!({
                "authenticated": true,
                "user": user_info(&authenticated(caller)),
                "audiences": audiences,
            }),
            Some(Err(why)) => {
                json!({"user": {}, "error": format!("[invalid bearer token, {why}]")})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        };
        Ok(review)
    }
}
