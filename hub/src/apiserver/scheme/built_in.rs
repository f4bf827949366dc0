//! The built-in kinds, from the table of their schemas.

use super::{Column, LazySchema, Origin, Resource, Subresource, Versions};
use crate::apiserver::schema::Schema;
use crate::apiserver::schema::builtin::{BuiltinKind, schemas};
use std::sync::Arc;

/// Kinds that are stored together with those of another group or version.
const STORED_AS: [(&str, &str, &str, &str, &str); 3] = [
    ("events.k8s.io", "v1", "events", "/events", "v1"),
    (
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "autoscaling/horizontalpodautoscalers",
        "v2",
    ),
    (
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "autoscaling/horizontalpodautoscalers",
        "v2",
    ),
];

pub(super) fn resources() -> Vec<Arc<Resource>> {
    let kinds = schemas().kinds.iter();
    kinds.map(|kind| Arc::new(resource(kind))).collect()
}

fn words(texts: &[String]) -> Vec<Arc<str>> {
    texts.iter().map(|text| Arc::from(text.as_str())).collect()
}

fn resource(kind: &BuiltinKind) -> Resource {
    let stored = STORED_AS.iter().find(|(group, version, plural, ..)| {
        (*group, *version, *plural) == (&kind.group, &kind.version, &kind.plural)
    });
    let (storage_key, storage_version) = match stored {
        Some((.., key, version)) => (Arc::from(*key), Arc::from(*version)),
        None => (
            Arc::from(format!("{}/{}", kind.group, kind.plural)),
            Arc::from(kind.version.as_str()),
        ),
    };
    let definition = kind.definition;
    Resource {
        group: kind.group.as_str().into(),
        version: kind.version.as_str().into(),
        kind: kind.kind.as_str().into(),
        list_kind: format!("{}List", kind.kind).into(),
        plural: kind.plural.as_str().into(),
        singular: kind.singular.as_str().into(),
        short_names: words(&kind.short_names),
        categories: words(&kind.categories),
        namespaced: kind.namespaced,
        verbs: words(&kind.verbs),
        subresources: kind
            .subresources
            .iter()
            .map(|sub| Subresource {
                name: sub.name.as_str().into(),
                kind: (
                    sub.kind.0.as_str().into(),
                    sub.kind.1.as_str().into(),
                    sub.kind.2.as_str().into(),
                ),
                verbs: words(&sub.verbs),
            })
            .collect(),
        schema: LazySchema::new(Box::new(move || Schema::built_in(definition))),
        versions: Versions::default(),
        origin: Origin::BuiltIn,
        columns: kind
            .columns
            .iter()
            .map(|column| Column {
                name: column.name.as_str().into(),
                r#type: column.r#type.as_str().into(),
                format: column.format.as_str().into(),
                description: "".into(),
                priority: column.priority,
                json_path: None,
            })
            .collect(),
        storage_key,
        storage_version,
        strategic: true,
    }
}
