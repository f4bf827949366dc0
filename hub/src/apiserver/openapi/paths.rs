//! The paths of a document: which operations a kind has, and what they take.

use super::{component, kind_of, list_component, reference};
use crate::apiserver::catalogue::Resource;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

pub(super) fn paths(resources: &[Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let root = if resource.group.is_empty() {
            format!("/api/{}", resource.version)
        } else {
            format!("/apis/{}/{}", resource.group, resource.version)
        };
        let place = if resource.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let all = format!("{root}{place}/{}", resource.plural);
        let has = |verb: &str| resource.verbs.iter().any(|one| &**one == verb);
        let mut collection = Map::new();
        if has("list") {
            collection.insert("get".to_owned(), list(resource));
        }
        if has("create") {
            let body = component(resource);
            collection.insert("post".to_owned(), write(resource, "post", &body));
        }
        if has("deletecollection") {
            collection.insert("delete".to_owned(), delete(resource, "deletecollection"));
        }
        if resource.namespaced && has("list") {
            let everywhere = format!("{root}/{}", resource.plural);
            paths.insert(everywhere, json!({"get": list(resource)}));
        }
        insert(
            &mut paths,
            all.clone(),
            collection,
            resource.namespaced,
            false,
        );
        if !has("get") {
            continue;
        }
        let one = format!("{all}/{{name}}");
        let body = component(resource);
        let mut single = operations(resource, &body, &resource.verbs);
        if has("delete") {
            single.insert("delete".to_owned(), delete(resource, "delete"));
        }
        insert(&mut paths, one.clone(), single, resource.namespaced, true);
        for sub in &resource.subresources {
            let (group, version, kind) = &sub.kind;
            let named = crate::apiserver::facts::facts()
                .named
                .get(&format!("{group}/{version}/{kind}"))
                .map(|number| {
                    crate::apiserver::facts::definition(*number)
                        .name
                        .to_string()
                });
            let body = named.unwrap_or_else(|| body.clone());
            let mut operations = operations(resource, &body, &sub.verbs);
            if sub.verbs.iter().any(|verb| &**verb == "create") {
                operations.insert("post".to_owned(), write(resource, "post", &body));
            }
            let path = format!("{one}/{}", sub.name);
            insert(&mut paths, path, operations, resource.namespaced, true);
        }
    }
    Value::Object(paths)
}

fn operations(resource: &Resource, body: &str, verbs: &[Arc<str>]) -> Map<String, Value> {
    let mut operations = Map::new();
    for verb in verbs {
        match &**verb {
            "get" => {
                operations.insert("get".to_owned(), read(resource, body));
            }
            "update" => {
                operations.insert("put".to_owned(), write(resource, "put", body));
            }
            "patch" => {
                operations.insert("patch".to_owned(), patch(resource, body));
            }
            _ => {}
        }
    }
    operations
}

fn insert(
    paths: &mut Map<String, Value>,
    path: String,
    mut operations: Map<String, Value>,
    namespaced: bool,
    named: bool,
) {
    if operations.is_empty() {
        return;
    }
    let mut parameters = Vec::new();
    for (name, set) in [("name", named), ("namespace", namespaced)] {
        if set {
            let text = json!({"type": "string", "uniqueItems": true});
            parameters.push(json!({"name": name, "in": "path", "required": true, "schema": text}));
        }
    }
    parameters.push(query("pretty", "string"));
    operations.insert("parameters".to_owned(), Value::Array(parameters));
    paths.insert(path, Value::Object(operations));
}

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn queries(names: &[&str]) -> Vec<Value> {
    let kind = |name: &str| match name {
        "force" | "allowWatchBookmarks" | "sendInitialEvents" | "watch" | "orphanDependents" => {
            "boolean"
        }
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        _ => "string",
    };
    names.iter().map(|name| query(name, kind(name))).collect()
}

fn operation(resource: &Resource, action: &str, parameters: &[&str], answers: &str) -> Value {
    let tag = if resource.group.is_empty() {
        format!("core_{}", resource.version)
    } else {
        let group = resource.group.trim_end_matches(".k8s.io");
        let group: String = group
            .split(['.', '-'])
            .enumerate()
            .map(|(at, part)| {
                if at == 0 {
                    part.to_owned()
                } else {
                    capital(part)
                }
            })
            .collect();
        format!("{group}_{}", resource.version)
    };
    json!({
        "tags": [tag],
        "parameters": queries(parameters),
        "responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": reference(answers)}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind_of(resource),
    })
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

fn read(resource: &Resource, body: &str) -> Value {
    operation(resource, "get", &[], body)
}

fn list(resource: &Resource) -> Value {
    let parameters = [
        "allowWatchBookmarks",
        "continue",
        "fieldSelector",
        "labelSelector",
        "limit",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    ];
    operation(resource, "list", &parameters, &list_component(resource))
}

fn write(resource: &Resource, action: &str, body: &str) -> Value {
    let parameters = ["dryRun", "fieldManager", "fieldValidation"];
    let mut shown = operation(resource, action, &parameters, body);
    shown["requestBody"] = json!({
        "content": {"*/*": {"schema": reference(body)}},
        "required": true,
    });
    shown
}

fn patch(resource: &Resource, body: &str) -> Value {
    let parameters = ["dryRun", "fieldManager", "fieldValidation", "force"];
    let mut shown = operation(resource, "patch", &parameters, body);
    let mut types = vec![
        "application/apply-patch+yaml",
        "application/json-patch+json",
    ];
    types.push("application/merge-patch+json");
    if resource.strategic {
        types.push("application/strategic-merge-patch+json");
    }
    let schema = json!({"schema": reference(&format!("{META}.Patch"))});
    let content: Map<String, Value> = types
        .into_iter()
        .map(|name| (name.to_owned(), schema.clone()))
        .collect();
    shown["requestBody"] = json!({"content": content, "required": true});
    shown
}

fn delete(resource: &Resource, action: &str) -> Value {
    let parameters = [
        "dryRun",
        "gracePeriodSeconds",
        "orphanDependents",
        "propagationPolicy",
    ];
    let mut shown = operation(resource, action, &parameters, &format!("{META}.Status"));
    let schema = reference(&format!("{META}.DeleteOptions"));
    shown["requestBody"] = json!({"content": {"*/*": {"schema": schema}}});
    shown
}
