//! `/scale`: the number of replicas of a kind, as an object of its own.

use super::access::encode;
use super::update::{Change, check_name, uid_conflict};
use super::{Outcome, Registry, decode, patch, tracking};
use crate::apiserver::error::{ApiError, FieldError, GroupKind};
use crate::apiserver::request::{Body, Context, PatchKind};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::Stored;
use crate::apiserver::value::{at, map, number, put, text};
use crate::apiserver::{managed, metadata};
use bytes::Bytes;
use serde_json::{Value, json};

/// What the scale of a custom object says to patches that has no replicas.
const NO_REPLICAS: i64 = -2_147_483_648;

/// Where the numbers of a kind stand.
struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Vec<String>,
}

impl Paths {
    fn of(resource: &Resource) -> Self {
        let path = |text: &str| -> Vec<String> {
            text.split('.')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        if let Some(scale) = resource.custom().and_then(|custom| custom.scale.as_ref()) {
            return Self {
                spec: path(&scale.spec_replicas),
                status: path(&scale.status_replicas),
                selector: path(scale.label_selector.as_deref().unwrap_or_default()),
            };
        }
        Self {
            spec: path("spec.replicas"),
            status: path("status.replicas"),
            selector: path("spec.selector"),
        }
    }
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// The scale of a stored object.
pub(super) fn get(
    registry: &Registry,
    context: &Context,
    stored: &Stored,
) -> Result<Bytes, ApiError> {
    let object = registry.view(&context.resource, stored);
    let paths = Paths::of(&context.resource);
    if context.resource.is_custom() && at(&object, &borrowed(&paths.spec)).is_none() {
        return Err(ApiError::internal(format!(
            "the spec replicas field \".{}\" does not exist",
            paths.spec.join(".")
        )));
    }
    Ok(encode(&scale_of(context, &paths, &object)))
}

fn scale_of(context: &Context, paths: &Paths, object: &Value) -> Value {
    let count = |path: &[String]| number(object, &borrowed(path)).unwrap_or_default();
    let mut details = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = at(object, &["metadata", field]) {
            details[field] = value.clone();
        }
    }
    let selector = selector_text(&context.resource, object, &borrowed(&paths.selector));
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": details,
        "spec": {},
        "status": {"replicas": count(&paths.status)},
    });
    if count(&paths.spec) != 0 {
        scale["spec"]["replicas"] = json!(count(&paths.spec));
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// A selector as it is written in queries.
fn selector_text(resource: &Resource, object: &Value, path: &[&str]) -> String {
    if path.is_empty() {
        return String::new();
    }
    if resource.is_custom() {
        return text(object, path).to_owned();
    }
    let equal = |labels: &serde_json::Map<String, Value>| -> Vec<(String, String)> {
        labels
            .iter()
            .map(|(key, value)| {
                let value = value.as_str().unwrap_or_default();
                (key.clone(), format!("{key}={value}"))
            })
            .collect()
    };
    if resource.plural.as_ref() == "replicationcontrollers" {
        let terms = map(object, path).map(equal).unwrap_or_default();
        return joined(terms);
    }
    let selector = at(object, path).cloned().unwrap_or_default();
    let mut terms = map(&selector, &["matchLabels"])
        .map(equal)
        .unwrap_or_default();
    for term in crate::apiserver::value::list(&selector, &["matchExpressions"]) {
        let key = text(term, &["key"]);
        let mut values = crate::apiserver::value::texts(term, &["values"]);
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(term, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        };
        terms.push((key.to_owned(), shown));
    }
    joined(terms)
}

fn joined(terms: Vec<(String, String)>) -> String {
    let mut terms = terms;
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

/// PUT of a scale.
pub(super) async fn update(
    registry: &Registry,
    context: &Context,
    body: &Body,
) -> Result<Outcome, ApiError> {
    let expected = decode::Expected {
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        kind: "Scale".to_owned(),
        custom: false,
    };
    let mut scale = decode::read(body, &expected)?.value;
    decode::check_kind(&mut scale, &expected, None, |version, kind| {
        decode::is_known(&registry.inner.scheme, version, kind)
    })?;
    set(registry, context, &|_| Ok(scale.clone())).await
}

/// PATCH of a scale.
pub(super) async fn patch(
    registry: &Registry,
    context: &Context,
    kind: PatchKind,
    body: &Bytes,
) -> Result<Outcome, ApiError> {
    // A scale has no lists: a strategic merge is a merge.
    let kind = match kind {
        PatchKind::Strategic => PatchKind::Merge,
        other => other,
    };
    set(registry, context, &|old| {
        patch::patched(&context.resource, kind, old, body)
    })
    .await
}

/// APPLY of a scale: of the object's replicas and nothing else, for a manager of the scale.
pub(super) async fn apply(
    registry: &Registry,
    context: &Context,
    config: &Value,
    force: bool,
) -> Result<Outcome, ApiError> {
    if context.resource.is_custom() {
        // A real server cannot either: it takes the scale for an object of the kind.
        return Err(ApiError::plain(
            500,
            "",
            "failed to create manager for existing fields: failed to convert live object (/; \
             autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid \
             group/version: autoscaling/v1"
                .to_owned(),
        ));
    }
    let kind = (text(config, &["apiVersion"]), text(config, &["kind"]));
    if kind != ("autoscaling/v1", "Scale") {
        let (version, kind) = kind;
        return Err(ApiError::bad_request(format!(
            "invalid object type: {version}, Kind={kind}"
        )));
    }
    let paths = Paths::of(&context.resource);
    let resource = &context.resource;
    let mut whole = json!({"apiVersion": resource.api_version(), "kind": resource.kind.as_ref()});
    whole["metadata"] = at(config, &["metadata"]).cloned().unwrap_or_default();
    let replicas = at(config, &["spec", "replicas"]).cloned();
    if replicas.is_some() {
        put(&mut whole, &borrowed(&paths.spec), replicas);
    }
    let manager = tracking::manager(registry, context);
    let now = registry.inner.env.clock.now();
    let on = resource.group_resource();
    let make = |old: Option<&Value>| {
        let old = old.ok_or_else(|| ApiError::not_found(&on, &context.name))?;
        let mut object = managed::apply(Some(old), &whole, &resource.schema, &manager, force, now)?;
        // A scale that says nothing of them has none.
        if at(&object, &borrowed(&paths.spec)).is_none() {
            put(&mut object, &borrowed(&paths.spec), Some(json!(0)));
        }
        keep_times(old, &mut object);
        not_negative(context, &object, &paths)?;
        check_name(context, &object)?;
        let _ = resource.decode(&mut object)?;
        keep_times(old, &mut object);
        Ok(object)
    };
    changed(registry, context, &paths, &make).await
}

fn not_negative(context: &Context, object: &Value, paths: &Paths) -> Result<(), ApiError> {
    let replicas = number(object, &borrowed(&paths.spec)).unwrap_or_default();
    // A custom kind is looked at with its object.
    if replicas >= 0 || context.resource.is_custom() {
        return Ok(());
    }
    let detail = "must be greater than or equal to 0";
    Err(ApiError::invalid(
        &GroupKind::new("autoscaling", "Scale"),
        &context.name,
        vec![FieldError::invalid(
            "spec.replicas",
            json!(replicas),
            detail,
        )],
    ))
}

async fn set(
    registry: &Registry,
    context: &Context,
    scale: &(dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync),
) -> Result<Outcome, ApiError> {
    let paths = Paths::of(&context.resource);
    let on = context.resource.group_resource();
    let make = |old: Option<&Value>| {
        let old = old.ok_or_else(|| ApiError::not_found(&on, &context.name))?;
        let mut before = scale_of(context, &paths, old);
        let is_new = at(old, &borrowed(&paths.spec)).is_none();
        if context.resource.is_custom() && is_new {
            before["spec"]["replicas"] = json!(NO_REPLICAS);
        }
        let new = scale(&before)?;
        let replicas = number(&new, &["spec", "replicas"]).unwrap_or_default();
        let mut object = old.clone();
        put(&mut object, &borrowed(&paths.spec), Some(json!(replicas)));
        not_negative(context, &object, &paths)?;
        check_name(context, &new)?;
        if !matches!(
            new["spec"].get("replicas"),
            None | Some(Value::Null | Value::Number(_))
        ) {
            let shown = new.to_string();
            let why = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of \
                       type int32";
            return Err(patch::refused(&shown, why));
        }
        let version = metadata::resource_version(&new);
        if !version.is_empty() && version != metadata::resource_version(old) {
            return Err(ApiError::modified(&on, &context.name));
        }
        let uid = metadata::uid(&new);
        if !uid.is_empty() && uid != metadata::uid(old) {
            return Err(uid_conflict(context, uid, metadata::uid(old)));
        }
        if context.resource.is_custom() && replicas == NO_REPLICAS {
            let why = format!(
                "the spec replicas field \".{}\" cannot be empty",
                paths.spec.join(".")
            );
            return Err(ApiError::bad_request(why));
        }
        if is_owned(old, &paths.spec) {
            if replicas == 0 {
                // A scale leaves out a zero, and so nobody says it.
                managed::disown(&mut object, &borrowed(&paths.spec));
            } else {
                tracking::updated(registry, context, old, &mut object);
                keep_times(old, &mut object);
            }
        }
        Ok(object)
    };
    changed(registry, context, &paths, &make).await
}

/// The object changes as by any update of its spec.
async fn changed(
    registry: &Registry,
    context: &Context,
    paths: &Paths,
    make: &(dyn Fn(Option<&Value>) -> Result<Value, ApiError> + Send + Sync),
) -> Result<Outcome, ApiError> {
    let mut whole = context.clone();
    whole.subresource.clear();
    let change = Change {
        force_create: false,
        uid: None,
        make,
    };
    let outcome = registry.change(&whole, &change).await?;
    let object: Value = serde_json::from_slice(&outcome.object).map_err(ApiError::internal)?;
    Ok(Outcome {
        object: encode(&scale_of(context, paths, &object)),
        effect: outcome.effect,
    })
}

/// A scale knows no times: who sets it for the first time has none, and later keeps what it had.
fn keep_times(old: &Value, object: &mut Value) {
    let same = |a: &Value, b: &Value| {
        ["manager", "operation", "apiVersion", "subresource"]
            .iter()
            .all(|key| a[key] == b[key])
    };
    let before = crate::apiserver::value::list(old, &["metadata", "managedFields"]);
    let entries = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        if entry["subresource"] == "scale" {
            let had = before.iter().find(|one| same(one, entry));
            let time = had.and_then(|one| at(one, &["time"])).cloned();
            put(entry, &["time"], time);
        }
    }
    managed::sort(object);
}

/// Whether any manager owns a field.
fn is_owned(object: &Value, path: &[String]) -> bool {
    let path: Vec<String> = path.iter().map(|part| format!("f:{part}")).collect();
    crate::apiserver::value::list(object, &["metadata", "managedFields"])
        .iter()
        .any(|entry| at(&entry["fieldsV1"], &borrowed(&path)).is_some())
}
