//! PATCH in its four kinds.

use super::update::{Change, check_name, inherit};
use super::{Effect, Outcome, Registry, decode, scale, tracking, yaml};
use crate::apiserver::error::{ApiError, FieldError, GroupKind};
use crate::apiserver::request::{Context, PatchKind};
use crate::apiserver::scheme::Resource;
use crate::apiserver::value::{put, text};
use crate::apiserver::{managed, metadata, patch};
use crate::go::{print, strict};
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

impl Registry {
    /// A change to an object; `force` takes fields from other managers.
    pub async fn patch(
        &self,
        context: &Context,
        kind: PatchKind,
        body: Bytes,
        force: Option<bool>,
    ) -> Result<Outcome, ApiError> {
        context.note_deprecation();
        if context.subresource == "scale" && kind != PatchKind::Apply {
            return scale::patch(self, context, kind, &body).await;
        }
        if kind == PatchKind::Apply {
            return self.apply(context, &body, force.unwrap_or_default()).await;
        }
        if force.is_some() {
            return Err(ApiError::invalid(
                &GroupKind::new("meta.k8s.io", "PatchOptions"),
                "",
                vec![FieldError::forbidden(
                    "force",
                    "may not be specified for non-apply patch",
                )],
            ));
        }
        if kind == PatchKind::Merge
            && says_nothing(&body)
            && let Some(same) = self.unchanged(context)
        {
            return Ok(same);
        }
        let strategic = kind == PatchKind::Strategic;
        let make = |old: Option<&Value>| {
            let resource = &context.resource;
            let on = resource.group_resource();
            let old = old.ok_or_else(|| ApiError::not_found(&on, &context.name))?;
            let mut object = patched(resource, kind, old, &body)?;
            let refused = |why: &str| refused(&shown(resource, kind, old, &body), why);
            if !strategic && !resource.is_custom() {
                if text(&object, &["apiVersion"]).is_empty() {
                    without_version(context, &object, refused)?;
                } else if text(&object, &["kind"]).is_empty() {
                    put(&mut object, &["kind"], Some(json!(*resource.kind)));
                }
            }
            self.check_type(context, &object)
                .map_err(|why| refused(&why))?;
            let unknown = resource.schema.prune(&mut object);
            let read = if strategic {
                resource.schema.restore(&mut object)
            } else {
                resource.schema.coerce(&mut object)
            };
            read.map_err(|why| refused(&why))?;
            let mut odd = oddities(kind, &body);
            for one in decode::oddities(unknown, Vec::new(), true, Vec::new) {
                if !odd.contains(&one) {
                    odd.push(one);
                }
            }
            decode::report(context, odd, |odd| refused(&odd))?;
            check_name(context, &object)?;
            self.default(context, &mut object);
            tracking::updated(self, context, old, &mut object);
            inherit(context, &mut object, old);
            Ok(object)
        };
        let change = Change {
            force_create: false,
            uid: None,
            make: &make,
        };
        self.change(context, &change).await
    }

    /// The object as it is, unless even a change of nothing would let it go.
    fn unchanged(&self, context: &Context) -> Option<Outcome> {
        let stored = self.stored(context)?;
        let stays = !stored.deleting() && self.is_current(&context.resource, &stored);
        stays.then(|| Outcome {
            object: self.shown(&context.resource, &stored),
            effect: Effect::Nothing,
        })
    }

    async fn apply(
        &self,
        context: &Context,
        body: &Bytes,
        force: bool,
    ) -> Result<Outcome, ApiError> {
        if context.field_manager.is_empty() {
            return Err(ApiError::invalid(
                &GroupKind::new("meta.k8s.io", "PatchOptions"),
                "",
                vec![FieldError::required(
                    "fieldManager",
                    "is required for apply patch",
                )],
            ));
        }
        let config = config(context, body)?;
        if context.subresource == "scale" {
            return scale::apply(self, context, &config, force).await;
        }
        let schema = &context.resource.schema;
        let now = self.inner.env.clock.now();
        let manager = tracking::manager(self, context);
        let make = |old: Option<&Value>| {
            let mut object = managed::apply(old, &config, schema, &manager, force, now)?;
            if old.is_none() {
                put(&mut object, &["metadata", "resourceVersion"], None);
            }
            check_name(context, &object)?;
            let _ = context.resource.decode(&mut object)?;
            self.default(context, &mut object);
            Ok(object)
        };
        let change = Change {
            force_create: true,
            uid: Some(metadata::uid(&config).to_owned()).filter(|uid| !uid.is_empty()),
            make: &make,
        };
        self.change(context, &change).await
    }

    /// A patch does not make another kind of an object.
    fn check_type(&self, context: &Context, object: &Value) -> Result<(), String> {
        let resource = &context.resource;
        let (version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
        let wanted = resource.api_version();
        if kind == resource.kind.as_ref() && version == wanted {
            return Ok(());
        }
        if kind.is_empty() {
            return Err(format!("Object 'Kind' is missing in '{object}'"));
        }
        let (group, bare) = version.split_once('/').unwrap_or(("", version));
        if let Some(other) = self.inner.scheme.snapshot().kind(group, bare, kind) {
            // It is read as what it says it is, before anybody looks at what it should be.
            let mut read = object.clone();
            other.schema.prune(&mut read);
            other.schema.coerce(&mut read)?;
            if !resource.is_custom() && !other.is_custom() {
                let into = resource.go_type(false);
                return Err(format!(
                    "converting ({bare}.{kind}) to ({}): unknown conversion",
                    into.trim_start_matches('*')
                ));
            }
            return Err(format!(
                "{version}, Kind={kind} is not {wanted}, Kind={}",
                resource.kind
            ));
        }
        Err(decode::not_registered(kind, version))
    }
}

/// A result without a version is read as what servers work with themselves, whose fields have other
/// names: it has nothing that is known, not even a name. Of another kind it is looked at elsewhere.
fn without_version(
    context: &Context,
    object: &Value,
    refused: impl Fn(&str) -> ApiError,
) -> Result<(), ApiError> {
    let kind = text(object, &["kind"]);
    if !kind.is_empty() && kind != context.resource.kind.as_ref() {
        return Ok(());
    }
    let fields = object.as_object().into_iter().flatten();
    let unknown = fields
        .map(|(name, _)| name.clone())
        .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"))
        .collect();
    let odd = decode::oddities(unknown, Vec::new(), true, Vec::new);
    decode::report(context, odd, |odd| refused(&odd))?;
    check_name(context, &json!({}))
}

/// Whether a merge patch has no field: so an agent, which may not read its Cluster, asks for it at
/// every tick.
fn says_nothing(body: &[u8]) -> bool {
    let fields = serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(body);
    fields.is_ok_and(|fields| fields.is_empty())
}

/// What an apply says, as it was written.
fn config(context: &Context, body: &Bytes) -> Result<Value, ApiError> {
    let unread = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    let mut read =
        yaml::read(body).map_err(|why| unread(format!("error converting YAML to JSON: {why}")))?;
    if read.value.is_null() {
        read.value = json!({});
    }
    if !read.value.is_object() {
        return Err(unread(format!(
            "error unmarshaling JSON: while decoding JSON: {}",
            patch::no_object(&read.value)
        )));
    }
    let twice = read.duplicates;
    decode::report(context, twice.clone(), |_| {
        ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            twice.join("\n  ")
        ))
    })?;
    Ok(read.value)
}

/// What the real server shows of a patch that makes no object of the kind: of strategic ones the patch,
/// of others the result.
fn shown(resource: &Resource, kind: PatchKind, old: &Value, body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).unwrap_or_default();
    if kind == PatchKind::Strategic {
        return print::value(&said);
    }
    let Ok(object) = patched(resource, kind, old, body) else {
        return String::new();
    };
    if resource.is_custom() {
        return object.to_string();
    }
    let reached = match kind {
        PatchKind::Json => patch::print::reached_by(&said),
        _ => said,
    };
    patch::print::patched(&object, &resource.schema, &reached)
}

/// Members of a patch that it has twice, and those of operations that mean nothing.
fn oddities(kind: PatchKind, body: &[u8]) -> Vec<String> {
    let Ok(read) = strict::read(body) else {
        return Vec::new();
    };
    if kind != PatchKind::Json {
        return decode::oddities(Vec::new(), read.duplicates, true, Vec::new);
    }
    let operations = read.value.as_array().into_iter().flatten().enumerate();
    let unknown = operations
        .flat_map(|(index, operation)| {
            let names = operation.as_object().into_iter().flatten();
            names
                .filter(|(name, _)| !["op", "path", "from", "value"].contains(&name.as_str()))
                .map(move |(name, _)| format!("[{index}].{name}"))
        })
        .collect();
    // What a value has twice is its own affair.
    let mut twice = read.duplicates;
    twice.retain(|path| path.matches('.').count() == 1);
    decode::oddities(unknown, twice, false, || strict::order(body))
        .into_iter()
        .map(|odd| format!("json patch {odd}"))
        .collect()
}

pub(super) fn patched(
    resource: &Resource,
    kind: PatchKind,
    old: &Value,
    body: &[u8],
) -> Result<Value, ApiError> {
    match kind {
        PatchKind::Json => patch::json_patch(old, body),
        PatchKind::Merge => patch::merge_patch(old, body),
        PatchKind::Strategic if resource.strategic => {
            patch::strategic_merge(old, body, &resource.schema)
        }
        PatchKind::Strategic => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        PatchKind::Apply => Err(ApiError::internal("an apply is not a patch of bytes")),
    }
}

/// The result of a patch cannot be read as the kind.
pub(super) fn refused(shown: &str, why: &str) -> ApiError {
    ApiError::invalid(
        &GroupKind::new("", ""),
        "",
        vec![FieldError::invalid("patch", json!(shown), why)],
    )
}
