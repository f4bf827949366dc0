//! What somebody may do: the caller itself, or whoever it asks about.

use super::Desk;
use crate::apiserver::authz::Attributes;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::{ApiError, FieldError, GroupKind};
use serde_json::{Value, json};

impl Desk<'_> {
    pub(super) fn self_access(&self, review: Value) -> Result<Value, ApiError> {
        refuse(attribute_errors(&review["spec"]))?;
        Ok(self.decided(review, self.caller))
    }

    pub(super) fn subject_access(
        &self,
        review: Value,
        local: Option<&str>,
    ) -> Result<Value, ApiError> {
        let spec = &review["spec"];
        let mut errors = attribute_errors(spec);
        let caller = subject(spec);
        if caller.user.is_empty() && caller.groups.is_empty() {
            errors.push(FieldError::invalid(
                "spec.user",
                json!(""),
                "at least one of user or group must be specified",
            ));
        }
        if local.is_some() && !spec["nonResourceAttributes"].is_null() {
            errors.push(FieldError::forbidden(
                "spec.nonResourceAttributes",
                "disallowed on this kind of request",
            ));
        }
        refuse(errors)?;
        if let Some(namespace) = local {
            let asked = spec["resourceAttributes"]["namespace"].as_str();
            if asked.unwrap_or_default() != namespace {
                return Err(ApiError::bad_request(format!(
                    "spec.resourceAttributes.namespace must match namespace: {namespace}"
                )));
            }
        }
        Ok(self.decided(review, &caller))
    }

    fn decided(&self, mut review: Value, caller: &Caller) -> Value {
        let asked = attributes(&review["spec"]);
        let decision = self.authorizer.decide(caller, &asked);
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = json!(decision.reason);
        }
        review["status"] = status;
        review
    }

    pub(super) fn self_rules(&self, mut review: Value) -> Result<Value, ApiError> {
        let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let (rules, problems) = self.authorizer.rules(self.caller, namespace);
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for rule in &rules {
            if !rule.resources.is_empty() {
                let mut shown = json!({
                    "verbs": rule.verbs,
                    "apiGroups": rule.api_groups,
                    "resources": rule.resources,
                });
                if !rule.resource_names.is_empty() {
                    shown["resourceNames"] = json!(rule.resource_names);
                }
                resources.push(shown);
            }
            if !rule.non_resource_urls.is_empty() {
                paths.push(json!({
                    "verbs": rule.verbs,
                    "nonResourceURLs": rule.non_resource_urls,
                }));
            }
        }
        let mut status = json!({
            "resourceRules": resources,
            "nonResourceRules": paths,
            "incomplete": !problems.is_empty(),
        });
        if !problems.is_empty() {
            status["evaluationError"] = json!(problems.join(", "));
        }
        review["metadata"] = json!({});
        review["spec"] = json!({});
        review["status"] = status;
        Ok(review)
    }
}

fn refuse(errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind::new("authorization.k8s.io", "");
    Err(ApiError::invalid(&kind, "", errors))
}

fn attribute_errors(spec: &Value) -> Vec<FieldError> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_null(), path.is_null()) {
        (false, false) => vec![FieldError::invalid(
            "spec.nonResourceAttributes",
            path.clone(),
            "cannot be specified in combination with resourceAttributes",
        )],
        (true, true) => vec![FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn attributes(spec: &Value) -> Attributes {
    let path = &spec["nonResourceAttributes"];
    if path.is_object() {
        return Attributes {
            verb: text(path, "verb"),
            path: Some(text(path, "path")),
            ..Attributes::default()
        };
    }
    let resource = &spec["resourceAttributes"];
    Attributes {
        verb: text(resource, "verb"),
        group: text(resource, "group"),
        resource: text(resource, "resource"),
        subresource: text(resource, "subresource"),
        namespace: text(resource, "namespace"),
        name: text(resource, "name"),
        path: None,
    }
}

fn subject(spec: &Value) -> Caller {
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    Caller {
        user: text(spec, "user"),
        uid: text(spec, "uid"),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, value)| (key.clone(), texts(value)))
            .collect(),
    }
}
