//! PATCH in its four kinds.

use super::update::{Change, check_name};
use super::value::{put, text};
use super::{Context, Outcome, PatchKind, Registry, decode, metadata, scale, strict, tracking};
use crate::apiserver::catalogue::Resource;
use crate::apiserver::error::{ApiError, FieldError, GroupKind, quote};
use crate::apiserver::{managed, patch};
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
        if context.subresource == "scale" {
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
        let make = |old: Option<&Value>| {
            let on = context.resource.group_resource();
            let old = old.ok_or_else(|| ApiError::not_found(&on, &context.name))?;
            let mut object = patched(&context.resource, kind, old, &body)?;
            // Only a refusal tells what the patch made; most patches are fine.
            let refused = |why: &str| {
                let shown = match kind {
                    PatchKind::Strategic => go_map(&body),
                    _ => patched(&context.resource, kind, old, &body)
                        .map(|object| object.to_string())
                        .unwrap_or_default(),
                };
                refused(&shown, why)
            };
            self.check_type(context, &object)
                .map_err(|why| refused(&why))?;
            let unknown = context.resource.decode(&mut object).map_err(|error| {
                let message = error.message.split_once(": ");
                refused(message.map_or(error.message.as_str(), |(_, why)| why))
            })?;
            let custom = context.resource.is_custom();
            let odd = decode::oddities(unknown, duplicates(&body), custom, Vec::new);
            decode::report(context, odd, |odd| refused(&odd))?;
            check_name(context, &object)?;
            self.default(context, &mut object);
            tracking::updated(self, context, old, &mut object);
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
            created: false,
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
        let schema = &context.resource.schema;
        let now = self.inner.clock.now();
        let manager = tracking::manager(context);
        let make = |old: Option<&Value>| {
            let mut object = managed::apply(old, &config, schema, &manager, force, now)?;
            if old.is_none() {
                put(&mut object, &["metadata", "resourceVersion"], None);
            }
            if metadata::name(&object).is_empty() {
                put(
                    &mut object,
                    &["metadata", "name"],
                    Some(json!(context.name)),
                );
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
        if decode::is_known(&self.inner.catalogue, version, kind) {
            return Err(format!(
                "{version}, Kind={kind} is not {wanted}, Kind={}",
                resource.kind
            ));
        }
        Err(decode::not_registered(kind, version))
    }
}

/// Whether a merge patch has no field: so an agent, which may not read its Cluster, asks for it at
/// every tick.
fn says_nothing(body: &[u8]) -> bool {
    let fields = serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(body);
    fields.is_ok_and(|fields| fields.is_empty())
}

/// What an apply says, as it was written.
fn config(context: &Context, body: &Bytes) -> Result<Value, ApiError> {
    let read = strict::read_yaml(body)
        .map_err(|why| ApiError::bad_request(format!("error decoding YAML: {why}")))?;
    if !read.value.is_object() {
        return Err(ApiError::bad_request(
            "error decoding YAML: the body is no object",
        ));
    }
    let twice: Vec<String> = read
        .duplicates
        .iter()
        .map(|path| {
            let key = path.rsplit('.').next().unwrap_or_default();
            let line = last_line(body, key);
            format!("line {line}: key {} already set in map", quote(key))
        })
        .collect();
    decode::report(context, twice.clone(), |_| {
        ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            twice.join("\n  ")
        ))
    })?;
    Ok(read.value)
}

/// The number of the last line that begins with a key.
fn last_line(yaml: &[u8], key: &str) -> usize {
    let text = String::from_utf8_lossy(yaml);
    let begins = |line: &str| {
        let rest = line.trim_start().trim_start_matches("- ").strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| begins(line))
        .last()
        .map_or(1, |(index, _)| index + 1)
}

/// As Go prints a map, which the real server shows of strategic patches.
fn go_map(body: &[u8]) -> String {
    fn shown(value: &Value) -> String {
        match value {
            Value::Object(map) => {
                let parts: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{key}:{}", shown(value)))
                    .collect();
                format!("map[{}]", parts.join(" "))
            }
            Value::Array(list) => {
                let parts: Vec<String> = list.iter().map(shown).collect();
                format!("[{}]", parts.join(" "))
            }
            Value::String(text) => text.clone(),
            Value::Null => "<nil>".to_owned(),
            other => other.to_string(),
        }
    }
    serde_json::from_slice::<Value>(body).map_or_else(|_| String::new(), |body| shown(&body))
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

fn duplicates(body: &[u8]) -> Vec<String> {
    strict::read(body)
        .map(|read| read.duplicates)
        .unwrap_or_default()
}

/// The result of a patch cannot be read as the kind.
fn refused(shown: &str, why: &str) -> ApiError {
    ApiError::invalid(
        &GroupKind::new("", ""),
        "",
        vec![FieldError::invalid("patch", json!(shown), why)],
    )
}
