//! The kinds of a CustomResourceDefinition.

use super::{Column, Custom, LazySchema, Origin, Packed, Resource, Scale, Subresource, Versions};
use crate::apiserver::schema::Schema;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(value, |value, key| value.get(key));
    found.and_then(Value::as_str).unwrap_or("")
}

fn words(value: Option<&Value>) -> Vec<Arc<str>> {
    let listed = value.and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(Value::as_str).map(Arc::from).collect()
}

fn condition(crd: &Value, name: &str) -> bool {
    let all = crd["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .any(|one| text(one, &["type"]) == name && text(one, &["status"]) == "True")
}

/// A number that is another one as soon as a CRD defines something else.
pub(super) fn fingerprint(crd: &Value) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    text(crd, &["metadata", "name"]).hash(&mut hasher);
    condition(crd, "Established").hash(&mut hasher);
    crd["spec"].hash(&mut hasher);
    crd["status"]["acceptedNames"].hash(&mut hasher);
    crd["metadata"]
        .get("deletionTimestamp")
        .is_some()
        .hash(&mut hasher);
    hasher.finish()
}

/// The versions that a CRD serves, if it is established.
pub(super) fn resources(crd: &Value) -> Vec<Resource> {
    if !condition(crd, "Established") {
        return Vec::new();
    }
    let versions = crd["spec"]["versions"].as_array();
    let versions = versions.into_iter().flatten();
    let stored = versions
        .clone()
        .find(|version| version["storage"] == Value::Bool(true))
        .map_or("", |version| text(version, &["name"]));
    let preserve = crd["spec"]["preserveUnknownFields"] == Value::Bool(true);
    let read: Vec<(&Value, Packed)> = versions
        .map(|version| (version, Packed::new(&version["schema"]["openAPIV3Schema"])))
        .collect();
    let schemas: Versions = read
        .iter()
        .map(|(version, openapi)| {
            let name = Arc::from(text(version, &["name"]));
            (name, schema(openapi.clone(), preserve))
        })
        .collect();
    read.into_iter()
        .filter(|(version, _)| version["served"] == Value::Bool(true))
        .map(|(version, openapi)| resource(crd, version, stored, openapi, &schemas))
        .collect()
}

fn resource(
    crd: &Value,
    version: &Value,
    stored: &str,
    openapi: Packed,
    versions: &Versions,
) -> Resource {
    let spec = &crd["spec"];
    let preserve = spec["preserveUnknownFields"] == Value::Bool(true);
    // What was accepted is what is served; other names may be taken by somebody else.
    let names = match crd["status"].get("acceptedNames") {
        Some(accepted) if !text(accepted, &["plural"]).is_empty() => accepted,
        _ => &spec["names"],
    };
    let group = text(spec, &["group"]);
    let plural = text(names, &["plural"]);
    let kind = text(names, &["kind"]);
    let list_kind = match text(names, &["listKind"]) {
        "" => format!("{kind}List"),
        given => given.to_owned(),
    };
    let singular = match text(names, &["singular"]) {
        "" => kind.to_lowercase(),
        given => given.to_owned(),
    };
    let name = text(version, &["name"]);
    // While it goes, its objects can no longer be made, which discovery says.
    let ending = crd["metadata"].get("deletionTimestamp").is_some();
    let verbs = VERBS.iter();
    Resource {
        group: group.into(),
        version: name.into(),
        kind: kind.into(),
        list_kind: list_kind.into(),
        plural: plural.into(),
        singular: singular.into(),
        short_names: words(names.get("shortNames")),
        categories: words(names.get("categories")),
        namespaced: text(spec, &["scope"]) == "Namespaced",
        verbs: verbs.map(|verb| Arc::from(*verb)).collect(),
        subresources: subresources(version, group, name, kind),
        schema: schema(openapi.clone(), preserve),
        versions: versions.clone(),
        origin: Origin::Crd(Arc::new(Custom {
            crd: text(crd, &["metadata", "name"]).into(),
            openapi,
            scale: scale(version),
            selectable: selectable(version),
            deprecation: deprecation(spec, version, group, kind),
            ending,
        })),
        columns: columns(version),
        storage_key: format!("{group}/{plural}").into(),
        storage_version: stored.into(),
        strategic: false,
    }
}

fn schema(openapi: Packed, preserve: bool) -> LazySchema {
    LazySchema::new(Box::new(move || {
        Schema::of_crd(&openapi.unpack(), preserve)
    }))
}

fn subresources(version: &Value, group: &str, name: &str, kind: &str) -> Vec<Subresource> {
    let given = &version["subresources"];
    let verbs: Vec<Arc<str>> = ["get", "patch", "update"].map(Arc::from).to_vec();
    let mut all = Vec::new();
    if given.get("status").is_some_and(|status| !status.is_null()) {
        all.push(Subresource {
            name: "status".into(),
            kind: (group.into(), name.into(), kind.into()),
            verbs: verbs.clone(),
        });
    }
    if given.get("scale").is_some_and(|scale| !scale.is_null()) {
        all.push(Subresource {
            name: "scale".into(),
            kind: ("autoscaling".into(), "v1".into(), "Scale".into()),
            verbs,
        });
    }
    all
}

fn scale(version: &Value) -> Option<Scale> {
    let given = version["subresources"].get("scale")?;
    let label = text(given, &["labelSelectorPath"]);
    (!given.is_null()).then(|| Scale {
        spec_replicas: text(given, &["specReplicasPath"]).into(),
        status_replicas: text(given, &["statusReplicasPath"]).into(),
        label_selector: (!label.is_empty()).then(|| label.into()),
    })
}

fn selectable(version: &Value) -> Vec<Arc<str>> {
    let given = version["selectableFields"].as_array();
    let paths = given.into_iter().flatten();
    paths
        .map(|field| text(field, &["jsonPath"]).into())
        .collect()
}

/// What is told to whoever uses a deprecated version: also which one is newer, if there is one.
fn deprecation(spec: &Value, version: &Value, group: &str, kind: &str) -> Option<Arc<str>> {
    if version["deprecated"] != Value::Bool(true) {
        return None;
    }
    if let Some(given) = version["deprecationWarning"].as_str() {
        return Some(given.into());
    }
    let name = text(version, &["name"]);
    let all = spec["versions"].as_array().into_iter().flatten();
    let good = all.filter(|one| one["served"] == true && one["deprecated"] != true);
    let newest = good
        .map(|one| text(one, &["name"]))
        .filter(|other| by_maturity(other, name).is_lt())
        .min_by(|a, b| by_maturity(a, b));
    let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}"));
    let instead = instead.unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}").into())
}

fn columns(version: &Value) -> Vec<Column> {
    let mut columns = vec![Column {
        name: "Name".into(),
        r#type: "string".into(),
        format: "name".into(),
        description: "".into(),
        priority: 0,
        json_path: None,
    }];
    let given = version["additionalPrinterColumns"].as_array();
    let Some(given) = given.filter(|given| !given.is_empty()) else {
        columns.push(Column {
            name: "Age".into(),
            r#type: "date".into(),
            format: "".into(),
            description: "".into(),
            priority: 0,
            json_path: Some(".metadata.creationTimestamp".into()),
        });
        return columns;
    };
    columns.extend(given.iter().map(|column| {
        let priority = column["priority"].as_i64().unwrap_or(0);
        Column {
            name: text(column, &["name"]).into(),
            r#type: text(column, &["type"]).into(),
            format: text(column, &["format"]).into(),
            description: match text(column, &["description"]) {
                "" => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    text(column, &["jsonPath"])
                )
                .into(),
                given => given.into(),
            },
            priority: i32::try_from(priority).unwrap_or(0),
            json_path: Some(text(column, &["jsonPath"]).into()),
        }
    }));
    columns
}

/// In the order of discovery: groups by name, the best version first, then kinds by plural name.
pub(super) fn in_order(mut all: Vec<Arc<Resource>>) -> Vec<Arc<Resource>> {
    let mut versions: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for resource in &all {
        let known = versions.entry(resource.group.clone()).or_default();
        if !known.contains(&resource.version) {
            known.push(resource.version.clone());
        }
    }
    for known in versions.values_mut() {
        known.sort_by(|a, b| by_maturity(a, b));
    }
    let rank = |resource: &Resource| {
        let known = versions.get(&resource.group);
        known.and_then(|known| known.iter().position(|one| *one == resource.version))
    };
    all.sort_by(|a, b| (&a.group, rank(a), &a.plural).cmp(&(&b.group, rank(b), &b.plural)));
    all
}

/// `v10`, `v2`, `v2beta1`, `v1alpha1`, then others by name.
fn by_maturity(a: &str, b: &str) -> Ordering {
    match (maturity(a), maturity(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// How settled a version is, its number, and that of its draft.
fn maturity(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let major = rest.get(..end)?.parse().ok()?;
    let draft = rest.get(end..)?;
    if draft.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, number) = match (draft.strip_prefix("beta"), draft.strip_prefix("alpha")) {
        (Some(number), _) => (1, number),
        (_, Some(number)) => (0, number),
        _ => return None,
    };
    Some((stage, major, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_maturity() {
        let mut versions = [
            "v1alpha1", "foo", "v2", "v1beta1", "v10", "v1beta2", "v1", "bar",
        ];
        versions.sort_by(|a, b| by_maturity(a, b));
        let want = [
            "v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo",
        ];
        assert_eq!(versions, want);
    }
}
