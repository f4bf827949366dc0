//! Which objects of a kind a list or a watch is about.

use super::Registry;
use crate::apiserver::error::ApiError;
use crate::apiserver::names;
use crate::apiserver::request::{Context, FieldSelector, LabelSelector, ListOptions};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{Scope, Stored};
use crate::apiserver::strategies::{self, Strategy};
use crate::go::quote;
use memchr::memmem::Finder;
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
    /// What the text of a matching object has in it somewhere.
    needle: Option<Finder<'static>>,
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
        let needle = needle(resource, &fields);
        Ok(Self {
            labels,
            fields,
            strategy,
            resource: resource.clone(),
            namespace,
            name: Some(context.name.clone())
                .filter(|name| !name.is_empty())
                .or(name),
            needle,
        })
    }

    /// Whether nothing is left out within the namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// Whether objects have to be read to know which are selected.
    pub(super) fn reads(&self) -> bool {
        !self.labels.is_empty() || self.needs_value()
    }

    /// Whether it is decided by what is in an object and not by where it is.
    fn needs_value(&self) -> bool {
        let mut fields = self.fields.fields();
        fields.any(|field| !matches!(field, "metadata.name" | "metadata.namespace"))
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
        if let Some(needle) = &self.needle
            && registry.is_shown_as_stored(&self.resource, stored)
            && needle.find(&stored.json()).is_none()
        {
            return false;
        }
        let value = self
            .needs_value()
            .then(|| registry.view(&self.resource, stored));
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

/// What finds objects that may be selected: reading thousands of large ones takes much longer than looking
/// through their text for a value that they must have.
fn needle(resource: &Resource, fields: &FieldSelector) -> Option<Finder<'static>> {
    // Fields of built-in kinds may be told by more than their text.
    let value = resource
        .is_custom()
        .then(|| plain_value(fields))
        .flatten()?;
    Some(Finder::new(value).into_owned())
}

/// A value that some field of the content has to have, if there is only one way to write it.
fn plain_value(fields: &FieldSelector) -> Option<&str> {
    let content = fields
        .fields()
        .filter(|field| !matches!(*field, "metadata.name" | "metadata.namespace"));
    let mut values = content.filter_map(|field| fields.exact(field));
    // What is empty may be absent.
    let plain = |c: char| !c.is_control() && !matches!(c, '"' | '\\');
    values.find(|value| !value.is_empty() && value.chars().all(plain))
}

/// CRDs write paths with a dot in front.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_that_must_be_there_in_these_words_is_looked_for() {
        for (selector, value) in [
            ("spec.id=x", Some("x")),
            ("spec.id==\u{e4} b", Some("\u{e4} b")),
            ("metadata.name=a,spec.b=,spec.id=x", Some("x")),
            ("spec.id!=x", None),
            ("spec.id=", None),
            ("spec.id=a\"b", None),
            ("spec.id=a\\\\b", None),
            ("metadata.name=a,metadata.namespace=b", None),
            ("", None),
        ] {
            let fields = FieldSelector::parse(selector).expect("a selector");
            assert_eq!(plain_value(&fields), value, "{selector}");
        }
    }
}
