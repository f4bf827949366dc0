//! What somebody may do: the caller itself, or whoever it asks about.

use super::ReviewHandler;
use crate::apiserver::authz::{Attributes, Rule};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::{
    ApiError, BadValue, FieldError, FieldErrorKind, FieldErrors, GroupKind,
};
use crate::apiserver::names;
use crate::apiserver::patch::print;
use crate::apiserver::schema::builtin::schemas;
use serde_json::{Value, json};

/// How much of the rules that somebody has is told.
const MOST_TOLD: usize = 256 * 1024;

impl ReviewHandler<'_> {
    pub(super) fn self_access(&self, review: Value) -> Result<Value, ApiError> {
        let mut errors = attribute_errors(&review["spec"]);
        errors.extend(selector_errors(&review["spec"]["resourceAttributes"]));
        errors.extend(metadata_errors(&review["metadata"], false));
        refuse(errors)?;
        Ok(self.decided(review, &self.context.caller))
    }

    pub(super) fn subject_access(
        &self,
        mut review: Value,
        local: Option<&str>,
    ) -> Result<Value, ApiError> {
        if let Some(namespace) = local {
            let told = text(&review["metadata"], "namespace");
            if !told.is_empty() && told != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            review["metadata"]["namespace"] = json!(namespace);
        }
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
        errors.extend(selector_errors(&spec["resourceAttributes"]));
        errors.extend(metadata_errors(&review["metadata"], local.is_some()));
        if let Some(namespace) = local {
            errors.extend(local_errors(spec, namespace));
        }
        refuse(errors)?;
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
        let (roles, problems) = self.authorizer.rules(&self.context.caller, namespace);
        review["metadata"] = json!({});
        review["spec"] = json!({});
        review["status"] = rules_told(roles.iter().flat_map(|role| role.iter()), problems);
        Ok(review)
    }
}

/// The rules that somebody has, as far as they are told, and what is wrong with others.
fn rules_told<'a>(rules: impl Iterator<Item = &'a Rule>, mut problems: Vec<String>) -> Value {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let mut room = MOST_TOLD;
    let mut has_room = |size: usize| {
        let left = room.checked_sub(size);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let mut left_out = 0_usize;
    for rule in rules {
        if !has_room(size(rule)) {
            left_out += 1;
            continue;
        }
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
    let found = problems.len();
    problems.retain(|problem| has_room(problem.len() + 2));
    let more = found - problems.len();
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    if left_out > 0 {
        problems.push(format!(
            "{left_out} rules are not listed: no more than {MOST_TOLD} bytes of rules are; get the roles to see all"
        ));
    }
    let mut status = json!({
        "resourceRules": resources,
        "nonResourceRules": paths,
        "incomplete": !problems.is_empty(),
    });
    if !problems.is_empty() {
        status["evaluationError"] = json!(problems.join(", "));
    }
    status
}

/// How long a rule is in an answer, about.
fn size(rule: &Rule) -> usize {
    let lists = [
        &rule.verbs,
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.non_resource_urls,
    ];
    let words = lists.into_iter().flatten();
    100 + words.map(|word| word.len() + 3).sum::<usize>()
}

fn refuse(errors: FieldErrors) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind::new("authorization.k8s.io", "");
    Err(ApiError::invalid(&kind, "", errors))
}

fn attribute_errors(spec: &Value) -> FieldErrors {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_null(), path.is_null()) {
        (false, false) => FieldError::new(
            "spec.nonResourceAttributes",
            FieldErrorKind::Invalid,
            shown_path(path),
            "cannot be specified in combination with resourceAttributes",
        )
        .into(),
        (true, true) => FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )
        .into(),
        _ => FieldErrors::new(),
    }
}

/// What is wrong with the selectors of a question; operators that nobody knows may come from newer clients.
fn selector_errors(resource: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for field in ["fieldSelector", "labelSelector"] {
        let selector = &resource[field];
        if selector.is_null() {
            continue;
        }
        let at = format!("spec.resourceAttributes.{field}");
        let raw = text(selector, "rawSelector");
        let requirements = selector["requirements"].as_array();
        let requirements = requirements.map(Vec::as_slice).unwrap_or_default();
        match (raw.is_empty(), requirements.is_empty()) {
            (false, false) => errors.push(FieldError::invalid(
                format!("{at}.rawSelector"),
                json!(raw),
                "may not specified at the same time as requirements",
            )),
            (true, true) => errors.push(FieldError::required(
                format!("{at}.requirements"),
                format!("when {at} is specified, requirements or rawSelector is required"),
            )),
            _ => {}
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let at = format!("{at}.requirements[{index}]");
            requirement_errors(requirement, &at, field == "labelSelector", &mut errors);
        }
    }
    errors
}

fn requirement_errors(requirement: &Value, at: &str, label: bool, errors: &mut FieldErrors) {
    let values = requirement["values"].as_array();
    let values = values.map(Vec::as_slice).unwrap_or_default();
    match requirement["operator"].as_str() {
        Some("In" | "NotIn") if values.is_empty() => errors.push(FieldError::required(
            format!("{at}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        Some("Exists" | "DoesNotExist") if !values.is_empty() => {
            errors.push(FieldError::forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ));
        }
        _ => {}
    }
    let key = text(requirement, "key");
    if !label {
        if key.is_empty() {
            errors.push(FieldError::required(
                format!("{at}.key"),
                "must be specified",
            ));
        }
        return;
    }
    for why in names::qualified(&key) {
        errors.push(FieldError::invalid(format!("{at}.key"), json!(key), why));
    }
    for (index, value) in values.iter().enumerate() {
        for why in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(
                format!("{at}.values[{index}]"),
                value.clone(),
                why,
            ));
        }
    }
}

/// A question that is asked in a namespace is about what is in it.
fn local_errors(spec: &Value, namespace: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let asked = text(&spec["resourceAttributes"], "namespace");
    if !spec["resourceAttributes"].is_null() && asked != namespace {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            json!(asked),
            "must match metadata.namespace",
        ));
    }
    if !spec["nonResourceAttributes"].is_null() {
        errors.push(FieldError::new(
            "spec.nonResourceAttributes",
            FieldErrorKind::Invalid,
            shown_path(&spec["nonResourceAttributes"]),
            "disallowed on this kind of request",
        ));
    }
    errors
}

/// A path as the server's own type has it.
fn shown_path(path: &Value) -> BadValue {
    let [path, verb] = ["path", "verb"].map(|field| json!(text(path, field)).to_string());
    BadValue::Typed(format!(r#"{{"Path":{path},"Verb":{verb}}}"#).into())
}

/// A question is no object: it has no metadata, but for the namespace it may be asked in.
fn metadata_errors(metadata: &Value, local: bool) -> Option<FieldError> {
    let members = metadata.as_object().into_iter().flatten();
    let mut said = members.filter(|(key, value)| {
        let own = *key == "managedFields" || local && *key == "namespace";
        !own && !value.is_null()
    });
    said.next()?;
    let mut types = schemas().definitions().iter();
    let of_metadata = types.find(|one| one.name.ends_with(".meta.v1.ObjectMeta"));
    let shown = match of_metadata {
        Some(of) => print::patched(metadata, &of.schema, &Value::Null),
        None => metadata.to_string(),
    };
    let why = if local {
        "must be empty except for namespace"
    } else {
        "must be empty"
    };
    Some(FieldError::new(
        "metadata",
        FieldErrorKind::Invalid,
        BadValue::Typed(shown.into()),
        why,
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_as_far_as_an_answer_goes() {
        let of = |names: usize| Rule {
            verbs: vec!["get".to_owned()],
            api_groups: vec![String::new()],
            resources: vec!["secrets".to_owned()],
            resource_names: (0..names).map(|name| name.to_string()).collect(),
            ..Rule::default()
        };
        let path = Rule {
            verbs: vec!["get".to_owned()],
            non_resource_urls: vec!["/version".to_owned()],
            ..Rule::default()
        };
        let (small, large, missing) = (of(1), of(100_000), || "gone".to_owned());
        // rules, problems, how many of resources and of paths are told, and what is said.
        let cases = [
            (vec![&small, &path], vec![], (1, 1), None),
            (vec![&small], vec![missing()], (1, 0), Some("gone")),
            (
                vec![&small, &large, &large, &path],
                vec![missing()],
                (1, 1),
                Some(
                    "gone, 2 rules are not listed: no more than 262144 bytes of rules are; get the roles to see all",
                ),
            ),
            (
                vec![&small],
                vec![missing(), "x".repeat(MOST_TOLD)],
                (1, 0),
                Some("gone, and 1 more"),
            ),
        ];
        for (rules, problems, told, said) in cases {
            let status = rules_told(rules.into_iter(), problems);
            let length = |field: &str| status[field].as_array().map(Vec::len);
            let found = (length("resourceRules"), length("nonResourceRules"));
            assert_eq!(found, (Some(told.0), Some(told.1)), "{said:?}");
            assert_eq!(status["incomplete"], json!(said.is_some()));
            assert_eq!(status["evaluationError"].as_str(), said);
        }
        let many = std::iter::repeat_n(&small, 100_000);
        assert!(rules_told(many, Vec::new()).to_string().len() < 2 * MOST_TOLD);
    }
}
