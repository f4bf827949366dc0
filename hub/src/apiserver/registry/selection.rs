//! Which objects of a kind a list or a watch is about.

use super::selector::{FieldSelector, LabelSelector};
use super::{Context, ListOptions, Registry, names};
use crate::apiserver::catalogue::Resource;
use crate::apiserver::error::{ApiError, quote};
use crate::apiserver::store::{Scope, Stored};
use crate::apiserver::strategies::{self, Strategy};
use std::sync::Arc;

/// The selectors of a request, and the part of the kind that can match them.
#[derive(Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    strategy: &'static dyn Strategy,
    resource: Arc<Resource>,
    /// Empty for all namespaces.
    pub(super) namespace: String,
    /// The only name that can match.
    name: Option<String>,
}

impl Selection {
    pub(super) fn new(context: &Context, options: &ListOptions) -> Result<Self, ApiError> {
        let resource = &context.resource;
        let strategy = strategies::of(resource);
        let labels =
            LabelSelector::parse(&options.label_selector).map_err(ApiError::bad_request)?;
        let fields =
            FieldSelector::parse(&options.field_selector).map_err(ApiError::bad_request)?;
        for field in fields.fields() {
            check_field(resource, strategy, field)?;
        }
        let mut namespace = context.namespace.clone();
        if namespace.is_empty()
            && let Some(only) = fields.exact("metadata.namespace")
            && names::label(only).is_empty()
        {
            only.clone_into(&mut namespace);
        }
        let name = fields.exact("metadata.name").map(str::to_owned);
        Ok(Self {
            labels,
            fields,
            strategy,
            resource: resource.clone(),
            namespace,
            name: Some(context.name.clone())
                .filter(|name| !name.is_empty())
                .or(name),
        })
    }

    /// Whether nothing is left out within the namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// The part of the kind that the store can follow by itself.
    pub(super) fn scope(&self) -> Scope {
        let everywhere = self.resource.namespaced && self.namespace.is_empty();
        match &self.name {
            Some(name) if !everywhere => {
                Scope::Object(super::access::key(&self.resource, &self.namespace, name))
            }
            _ if everywhere || !self.resource.namespaced => Scope::All,
            _ => Scope::Namespace(self.namespace.as_str().into()),
        }
    }

    /// Whether an object of the scope is selected.
    pub(super) fn matches(&self, registry: &Registry, stored: &Stored) -> bool {
        if let Some(name) = &self.name
            && stored.name() != name
        {
            return false;
        }
        if !self.labels.is_empty() {
            let labels = stored.labels();
            let label = |key: &str| labels.get(key).map(AsRef::as_ref);
            if !self.labels.matches(label) {
                return false;
            }
        }
        if self.fields.is_empty() {
            return true;
        }
        let needs_value = self
            .fields
            .fields()
            .any(|field| !matches!(field, "metadata.name" | "metadata.namespace"));
        let value = needs_value.then(|| registry.view(&self.resource, stored));
        self.fields.matches(|field| match field {
            "metadata.name" => stored.name().to_owned(),
            "metadata.namespace" => stored.namespace().to_owned(),
            _ => value
                .as_ref()
                .map(|value| self.strategy.field(value, field))
                .unwrap_or_default(),
        })
    }
}

/// Definitions write paths with a dot in front.
fn same_path(path: &str, field: &str) -> bool {
    path.strip_prefix('.').unwrap_or(path) == field
}

fn check_field(resource: &Resource, strategy: &dyn Strategy, field: &str) -> Result<(), ApiError> {
    let known = match field {
        "metadata.name" | "metadata.namespace" => true,
        _ => match resource.custom() {
            Some(custom) => custom.selectable.iter().any(|path| same_path(path, field)),
            None => strategy.selectable().contains(&field),
        },
    };
    if known {
        return Ok(());
    }
    let message = if resource.is_custom() || !strategy.selectable().is_empty() {
        format!("field label not supported: {field}")
    } else {
        format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(field)
        )
    };
    Err(ApiError::bad_request(message))
}

/// The object's resourceVersion replaced: what a watcher is told of an object that it no longer sees.
pub(super) fn at_revision(object: serde_json::Value, revision: u64) -> serde_json::Value {
    let mut object = object;
    object["metadata"]["resourceVersion"] = serde_json::json!(revision.to_string());
    object
}
