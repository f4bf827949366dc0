//! OpenAPI v3: what `kubectl explain`, `apply` and `--validate` read; and v2 for older tools.

mod components;
mod custom;
mod groups;
mod kept;
mod operation;
mod pages;
mod paths;
mod v2;

pub use kept::kept;
pub use v2::kept as v2;

use super::schema::builtin;
use super::scheme::{Resource, Snapshot};
use bytes::Bytes;
use ring::digest;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The index, `/openapi/v3`: a document for each group and version, by a hash of its content.
pub fn index(kinds: &Snapshot) -> Value {
    kinds.documents().index(|| make_index(kinds)).clone()
}

fn make_index(kinds: &Snapshot) -> Value {
    let mut paths = Map::new();
    let groups = groups(kinds);
    for path in groups.keys().cloned().chain(pages::paths(kinds)) {
        let of = groups.get(&path).map(Vec::as_slice).unwrap_or_default();
        let hash = if of.iter().any(|resource| resource.is_custom()) {
            document(kinds, &path).map(|(_, hash)| hash)
        } else {
            fixed_hash(kinds, &path)
        };
        if let Some(hash) = hash {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// The hash of a document that no CRD changes: CRDs come and go, and each time the index
/// is made anew.
fn fixed_hash(kinds: &Snapshot, path: &str) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = known().get(path) {
        return Some(hash.clone());
    }
    let (_, hash) = document(kinds, path)?;
    known().insert(path.to_owned(), hash.clone());
    Some(hash)
}

/// One document, by its path below `/openapi/v3/` (`api/v1`, `apis/apps/v1`, `version`), with the hash that
/// the index names; `None` if there is none.
pub fn document(kinds: &Snapshot, path: &str) -> Option<(Bytes, String)> {
    let bytes = Bytes::from(value(kinds, path)?.to_string());
    let hash = hash(&bytes);
    Some((bytes, hash))
}

fn value(kinds: &Snapshot, path: &str) -> Option<Value> {
    let mut document = match groups(kinds).remove(path) {
        Some(resources) => {
            let mut document = json!({
                "paths": paths::paths(&resources),
                "components": {"schemas": components::schemas(&resources)},
            });
            if resources.iter().all(|resource| resource.is_custom()) {
                document["info"] = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
            }
            document
        }
        None => pages::document(kinds, path)?,
    };
    document["openapi"] = json!("3.0.0");
    if document.get("info").is_none() {
        let part = |key: &str| builtin::schemas().version[key].as_str().unwrap_or("");
        let version = format!("{}.{}", part("major"), part("minor"));
        document["info"] = json!({"title": "Kubernetes", "version": version});
        document["components"]["securitySchemes"] = json!({"BearerToken": {
            "type": "apiKey",
            "name": "authorization",
            "in": "header",
            "description": "Bearer Token authentication",
        }});
    }
    Some(document)
}

/// The older form, OpenAPI v2, in protobuf, as far as it goes here: a document without types. With
/// it `kubectl` finds that a kind is unknown to it and goes on, where an error would end it.
pub fn empty_v2() -> Bytes {
    let mut info = field(1, b"Kubernetes");
    let version = &builtin::schemas().version["gitVersion"];
    info.extend(field(2, version.as_str().unwrap_or("").as_bytes()));
    let mut document = field(1, b"2.0");
    document.extend(field(2, &info));
    document.extend(field(8, b""));
    document.into()
}

/// A length-delimited field that is shorter than 128 bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap_or(0) & 0x7f;
    let mut field = vec![number << 3 | 2, length];
    field.extend(value.iter().take(length.into()));
    field
}

fn hash(bytes: &[u8]) -> String {
    hexadecimal(digest::digest(&digest::SHA512, bytes).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

/// The kinds of each document.
fn groups(kinds: &Snapshot) -> BTreeMap<String, Vec<Arc<Resource>>> {
    let mut groups: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
    for resource in kinds.all() {
        let path = if resource.group.is_empty() {
            format!("api/{}", resource.version)
        } else {
            format!("apis/{}/{}", resource.group, resource.version)
        };
        groups.entry(path).or_default().push(resource.clone());
    }
    groups
}

/// The name of the schema of a kind among the components.
fn component(resource: &Resource) -> String {
    match resource.schema.definition() {
        Some(number) => builtin::definition(number).name.to_string(),
        None => {
            let mut labels: Vec<&str> = resource.group.split('.').collect();
            labels.reverse();
            format!(
                "{}.{}.{}",
                labels.join("."),
                resource.version,
                resource.kind
            )
        }
    }
}

/// The same for its lists.
fn list_component(resource: &Resource) -> String {
    let one = component(resource);
    let package = one.rsplit_once('.').map_or("", |(package, _)| package);
    format!("{package}.{}", resource.list_kind)
}

/// The name of the schema of a kind that is no resource, as `Scale`.
fn schema_of(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let named = &builtin::schemas().named;
    let number = named.get(&format!("{group}/{version}/{kind}"))?;
    Some(&builtin::definition(*number).name)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn kind_of(resource: &Resource) -> Value {
    json!({
        "group": &*resource.group,
        "version": &*resource.version,
        "kind": &*resource.kind,
    })
}

#[cfg(test)]
mod tests {
    use super::super::scheme::Scheme;
    use super::*;

    fn read(kinds: &Snapshot, path: &str) -> Value {
        let (bytes, _) = document(kinds, path).expect(path);
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[test]
    fn every_group_has_a_document_in_which_every_reference_has_a_target() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(object) => {
                    found.extend(object.get("$ref").and_then(Value::as_str));
                    object.values().for_each(|inner| references(inner, found));
                }
                Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
                _ => {}
            }
        }
        let kinds = Scheme::new().snapshot();
        let index = index(&kinds);
        for (path, entry) in index["paths"].as_object().expect("paths") {
            let url = entry["serverRelativeURL"].as_str().expect("a URL");
            let (bytes, hash) = document(&kinds, path).expect(path);
            assert!(url.ends_with(&hash), "{url}");
            let document: Value = serde_json::from_slice(&bytes).expect("JSON");
            let mut found = Vec::new();
            references(&document, &mut found);
            for reference in found {
                let pointer = reference.strip_prefix('#').expect("within the document");
                assert!(document.pointer(pointer).is_some(), "{path}: {reference}");
            }
        }
    }

    #[test]
    fn the_older_form_has_a_title_and_no_types() {
        let document = empty_v2();
        assert!(document.starts_with(b"\x0a\x032.0\x12"));
        assert!(document.ends_with(b"\x42\x00"));
    }

    #[test]
    fn kubectl_finds_what_it_looks_for() {
        let kinds = Scheme::new().snapshot();
        let core = read(&kinds, "api/v1");
        let patch = &core["paths"]["/api/v1/namespaces/{name}"]["patch"];
        assert_eq!(
            patch["x-kubernetes-group-version-kind"],
            json!({"group": "", "version": "v1", "kind": "Namespace"})
        );
        let parameters = patch["parameters"].as_array().expect("parameters");
        assert!(
            parameters
                .iter()
                .any(|one| one["name"] == "fieldValidation")
        );
        let apps = read(&kinds, "apis/apps/v1");
        let spec = &apps["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"];
        assert_eq!(
            spec["properties"]["replicas"],
            json!({"type": "integer", "format": "int32"})
        );
        let containers = &apps["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
            ["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    }

    #[test]
    fn custom_kinds_show_the_schema_they_came_with() {
        let scheme = Scheme::new();
        scheme.set_crds([&json!({"metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A thing.", "properties": {
                        "spec": {"type": "object", "properties": {"n": {"type": "integer", "description": "How many."}}}}}}}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})]);
        let document = read(&scheme.snapshot(), "apis/example.com/v1");
        let thing = &document["components"]["schemas"]["com.example.v1.Thing"];
        assert_eq!(
            thing["properties"]["spec"]["properties"]["n"]["description"],
            "How many."
        );
        assert_eq!(thing["x-kubernetes-group-version-kind"][0]["kind"], "Thing");
        assert!(document["components"]["schemas"]["com.example.v1.ThingList"].is_object());
        let path = "/apis/example.com/v1/namespaces/{namespace}/things/{name}";
        assert!(document["paths"][path]["patch"].is_object());
    }
}
