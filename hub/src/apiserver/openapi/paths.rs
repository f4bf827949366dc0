//! The paths of a document: which operations a kind has.

use super::operation::{Operation, Subject, has};
use super::{component, list_component, schema_of};
use crate::apiserver::scheme::{Resource, Subresource};
use crate::apiserver::strategies;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(super) fn paths(resources: &[Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        add(&mut paths, resource);
    }
    Value::Object(paths)
}

fn add(paths: &mut Map<String, Value>, resource: &Resource) {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if !resource.is_custom() {
        let page = item(vec![Operation::resources(resource)]);
        paths.insert(format!("{root}/"), page);
    }
    let plural = &resource.plural;
    let place = match resource.namespaced {
        true => "namespaces/{namespace}/",
        false => "",
    };
    // Older paths of watches are those of built-in kinds alone.
    let watched = has(resource, "watch") && !resource.is_custom();
    let (one, many) = (component(resource), list_component(resource));
    let objects = Subject::objects(resource, &one);
    let lists = Subject::objects(resource, &many);
    if resource.namespaced && has(resource, "list") {
        let all = Subject {
            everywhere: true,
            ..Subject::objects(resource, &many)
        };
        paths.insert(format!("{root}/{plural}"), item(vec![all.list()]));
        if watched {
            let path = format!("{root}/watch/{plural}");
            paths.insert(path, item(vec![all.watch(false)]));
        }
    }
    let mut collection = Vec::new();
    collection.extend(has(resource, "list").then(|| lists.list()));
    collection.extend(has(resource, "create").then(|| objects.create()));
    collection.extend(has(resource, "deletecollection").then(|| objects.delete_collection()));
    let path = format!("{root}/{place}{plural}");
    if !collection.is_empty() {
        paths.insert(path.clone(), item(collection));
    }
    if watched {
        let path = format!("{root}/watch/{place}{plural}");
        paths.insert(path.clone(), item(vec![objects.watch(false)]));
        paths.insert(format!("{path}/{{name}}"), item(vec![objects.watch(true)]));
    }
    let mut single = operations(&objects, &resource.verbs);
    if has(resource, "delete") {
        let status = status();
        let returned = strategies::of(resource).returns_deleted() && !resource.is_custom();
        let answered = if returned { &one } else { &status };
        single.push(Subject::objects(resource, answered).delete());
    }
    let path = format!("{path}/{{name}}");
    if !single.is_empty() {
        paths.insert(path.clone(), item(single));
    }
    for sub in &resource.subresources {
        let operations = of_subresource(resource, sub, &one);
        if !operations.is_empty() {
            paths.insert(format!("{path}/{}", sub.name), item(operations));
        }
    }
}

fn status() -> String {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status".to_owned()
}

fn of_subresource(resource: &Resource, sub: &Subresource, one: &str) -> Vec<Operation> {
    let (group, version, kind) = &sub.kind;
    let found = schema_of(group, version, kind);
    let mut subject = Subject::objects(resource, found.unwrap_or(one));
    subject.sub = &sub.name;
    // A custom kind says its own kind of everything.
    if !resource.is_custom() {
        subject.kind = json!({"group": &**group, "version": &**version, "kind": &**kind});
    }
    let mut operations = operations(&subject, &sub.verbs);
    if sub.verbs.iter().any(|verb| &**verb == "create") {
        operations.push(subject.create());
    }
    operations
}

/// What is done to one object by its name.
fn operations(subject: &Subject<'_>, verbs: &[Arc<str>]) -> Vec<Operation> {
    let verbs = verbs.iter().filter_map(|verb| match &**verb {
        "get" => Some(subject.read()),
        "update" => Some(subject.replace()),
        "patch" => Some(subject.patch()),
        _ => None,
    });
    verbs.collect()
}

/// A path: what all its operations take is said once.
fn item(operations: Vec<Operation>) -> Value {
    let everywhere = |one: &Value| {
        let mut all = operations.iter();
        all.all(|operation| operation.parameters.contains(one))
    };
    let first = operations.first().map(|one| one.parameters.clone());
    let mut common = first.unwrap_or_default();
    common.retain(everywhere);
    let mut item = Map::new();
    for mut operation in operations {
        operation.parameters.retain(|one| !common.contains(one));
        if !operation.parameters.is_empty() {
            let parameters = sorted(operation.parameters);
            operation.said.insert("parameters".to_owned(), parameters);
        }
        let said = Value::Object(operation.said);
        item.insert(operation.method.to_owned(), said);
    }
    if !common.is_empty() {
        item.insert("parameters".to_owned(), sorted(common));
    }
    Value::Object(item)
}

fn sorted(mut parameters: Vec<Value>) -> Value {
    let key = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
    parameters.sort_by_key(key);
    Value::Array(parameters)
}
