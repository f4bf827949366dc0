//! Image, command and args overriders: the containers of every pod template of built-in kinds, or one image by
//! its path.
//!
//! Pure. Unlike Karmada's, they know init containers and CronJobs.

use super::budget::{Budget, MEMBER, TooMuch};
use super::image::{self, ImageError};
use super::patch::unescaped;
use common::api::override_policy::{CommandArgsOverrider, CommandOperator, ImageOverrider};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Why the image at a path cannot be changed; Karmada's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredicateError {
    /// No path at all.
    #[error("imagePath should be start with / character")]
    NoPath,
    /// The path goes on where nothing is below.
    #[error(
        "failed to obtain imageValue with predicate path({path}), error: path({part}) of rawObj's type is not map[string]interface{{}} and []interface{{}}"
    )]
    Beneath {
        /// The whole path.
        path: String,
        /// The part that leads nowhere.
        part: String,
    },
    /// A list has numbers.
    #[error(
        "failed to obtain imageValue with predicate path({path}), error: path({part}) of rawObj's is not number"
    )]
    NotNumber {
        /// The whole path.
        path: String,
        /// The part that is none.
        part: String,
    },
    /// What is there is no text.
    #[error(
        "failed to obtain imageValue with predicate path({path}), error: failed to convert path({part}) to string"
    )]
    NotText {
        /// The whole path.
        path: String,
        /// Its last part.
        part: String,
    },
    /// What a Secret holds would be told to whoever reads why it is no image.
    #[error("no image can be overridden in a Secret")]
    Secret,
    /// What is there is no image, or would not be one any more.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// All overrides together do too much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

/// Changes one part of the image at the overrider's path, or of every image.
pub(super) fn change_images(
    manifest: &mut Value,
    overrider: &ImageOverrider,
    budget: &Budget,
) -> Result<(), PredicateError> {
    let change = |image: &mut Value| -> Result<(), PredicateError> {
        let before = image.as_str().unwrap_or_default();
        budget.spend(before.len())?;
        *image = image::changed(
            before,
            overrider.component,
            overrider.operator,
            overrider.value.as_deref().unwrap_or_default(),
        )?
        .into();
        Ok(())
    };
    if let Some(predicate) = &overrider.predicate {
        if is_secret(manifest) {
            return Err(PredicateError::Secret);
        }
        return change(image_at(manifest, &predicate.path)?);
    }
    for container in containers(manifest) {
        change(container.entry("image").or_insert(Value::Null))?;
    }
    Ok(())
}

/// Changes `command` or `args` of the container that the overrider names, where there is one.
pub(super) fn change_words(
    manifest: &mut Value,
    field: &'static str,
    overrider: &CommandArgsOverrider,
    budget: &Budget,
) -> Result<(), TooMuch> {
    let values: BTreeSet<&str> = overrider.value.iter().map(String::as_str).collect();
    let is_named = |container: &Map<String, Value>| {
        container.get("name").and_then(Value::as_str) == Some(&overrider.container_name)
    };
    for container in containers(manifest) {
        budget.spend(0)?;
        if !is_named(container) {
            continue;
        }
        let words = container.entry(field).or_insert(Value::Null);
        if !words.is_array() {
            *words = Value::Array(Vec::new());
        }
        let Value::Array(words) = words else { continue };
        budget.spend((words.len() + values.len()) * MEMBER)?;
        match overrider.operator {
            CommandOperator::Add => words.extend(overrider.value.iter().cloned().map(Value::from)),
            CommandOperator::Remove => {
                words.retain(|word| !word.as_str().is_some_and(|word| values.contains(word)));
            }
        }
    }
    Ok(())
}

fn is_secret(manifest: &Value) -> bool {
    let text = |key: &str| manifest.get(key).and_then(Value::as_str);
    (text("apiVersion"), text("kind")) == (Some("v1"), Some("Secret"))
}

/// Every container, those that start a pod too; by the kind's name alone, of whatever group it is.
fn containers(manifest: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let pod = match manifest.get("kind").and_then(Value::as_str) {
        Some("Pod") => Some("/spec"),
        Some(
            "Deployment"
            | "ReplicaSet"
            | "DaemonSet"
            | "StatefulSet"
            | "Job"
            | "ReplicationController",
        ) => Some("/spec/template/spec"),
        Some("CronJob") => Some("/spec/jobTemplate/spec/template/spec"),
        Some("PodTemplate") => Some("/template/spec"),
        _ => None,
    };
    let pod = pod.and_then(|pointer| manifest.pointer_mut(pointer));
    let lists = pod.and_then(Value::as_object_mut).into_iter().flatten();
    lists
        .filter(|(key, _)| matches!(key.as_str(), "containers" | "initContainers"))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .filter_map(Value::as_object_mut)
}

fn image_at<'v>(manifest: &'v mut Value, path: &str) -> Result<&'v mut Value, PredicateError> {
    let rest = path.strip_prefix('/').ok_or(PredicateError::NoPath)?;
    let mut part = "";
    let mut at = Some(manifest);
    for next in rest.split('/') {
        part = next;
        at = match at {
            Some(Value::Object(members)) => members.get_mut(&unescaped(part)),
            Some(Value::Array(items)) => match part.parse::<usize>() {
                Ok(number) if number < items.len() => items.get_mut(number),
                Ok(_) => return Err(beneath(path, part)),
                Err(_) => {
                    return Err(PredicateError::NotNumber {
                        path: path.to_owned(),
                        part: part.to_owned(),
                    });
                }
            },
            _ => return Err(beneath(path, part)),
        };
    }
    at.filter(|found| found.is_string())
        .ok_or_else(|| PredicateError::NotText {
            path: path.to_owned(),
            part: part.to_owned(),
        })
}

fn beneath(path: &str, part: &str) -> PredicateError {
    PredicateError::Beneath {
        path: path.to_owned(),
        part: part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"containers": [{"name": "a", "image": "r.io/a:1"}, {"name": "b", "image": "b"}],
            "initContainers": [{"name": "i", "image": "r.io/i:1"}], "volumes": [{"image": {"reference": "r.io/v:1"}}]})
    }

    fn images(kind: &str, spec: Value, overrider: Value) -> Result<Value, String> {
        let mut manifest = json!({"apiVersion": "x/v1", "kind": kind, "spec": spec});
        let overrider = serde_json::from_value(overrider).expect("an overrider");
        change_images(&mut manifest, &overrider, &Budget::new())
            .map_err(|error| error.to_string())?;
        Ok(manifest["spec"].take())
    }

    #[test]
    fn every_container_of_every_pod_template_is_reached() {
        let changed = json!({"containers": [{"name": "a", "image": "m.io/a:1"}, {"name": "b", "image": "m.io/b"}],
            "initContainers": [{"name": "i", "image": "m.io/i:1"}], "volumes": [{"image": {"reference": "r.io/v:1"}}]});
        let within = |path: &[&str], inner: &Value| {
            let wrap = |inner: Value, key: &&str| Value::from_iter([(*key, inner)]);
            path.iter().rev().fold(inner.clone(), wrap)
        };
        let template: &[&str] = &["template", "spec"];
        let cases = [
            ("Pod", &[][..]),
            ("Deployment", template),
            ("ReplicaSet", template),
            ("DaemonSet", template),
            ("StatefulSet", template),
            ("Job", template),
            ("ReplicationController", template),
            ("CronJob", &["jobTemplate", "spec", "template", "spec"]),
        ];
        let overrider = json!({"component": "Registry", "operator": "replace", "value": "m.io"});
        for (kind, path) in cases {
            let after = images(kind, within(path, &pod()), overrider.clone());
            assert_eq!(after, Ok(within(path, &changed)), "{kind}");
        }
        let widget = within(template, &pod());
        assert_eq!(images("Widget", widget.clone(), overrider), Ok(widget));
    }

    #[test]
    fn a_predicate_is_one_path_and_no_other() {
        let tag = |path: &str| json!({"predicate": {"path": path}, "component": "Tag", "operator": "replace", "value": "v9"});
        let spec = || json!({"template": {"spec": pod()}, "odd~/key": {"image": "o:1"}});
        let mut want = spec();
        want["template"]["spec"]["initContainers"][0]["image"] = json!("r.io/i:v9");
        let path = "/spec/template/spec/initContainers/0/image";
        assert_eq!(images("Deployment", spec(), tag(path)), Ok(want));
        let after = images("Widget", spec(), tag("/spec/odd~0~1key/image")).expect("an image");
        assert_eq!(after["odd~/key"]["image"], "o:v9");
        let cases = [
            (
                "spec/x",
                "imagePath should be start with / character".to_owned(),
            ),
            (
                "/spec/nowhere",
                "failed to convert path(nowhere) to string".into(),
            ),
            (
                "/spec/template",
                "failed to convert path(template) to string".into(),
            ),
            (
                "/spec/template/spec/containers/x/image",
                "path(x) of rawObj's is not number".into(),
            ),
            (
                "/spec/template/spec/containers/7/image",
                "path(7) of rawObj's type is not map[string]interface{} and []interface{}".into(),
            ),
            (
                "/spec/no/where",
                "path(where) of rawObj's type is not map[string]interface{} and []interface{}"
                    .into(),
            ),
        ];
        for (path, want) in cases {
            let error = images("Deployment", spec(), tag(path)).expect_err(path);
            let before =
                format!("failed to obtain imageValue with predicate path({path}), error: ");
            assert_eq!(error.strip_prefix(&before).unwrap_or(&error), want);
        }
    }

    #[test]
    fn an_image_that_is_none_is_refused() {
        let overrider = json!({"component": "Tag", "operator": "replace", "value": "v9"});
        let error = images("Pod", json!({"containers": [{"name": "a"}]}), overrider);
        let want = "failed to parse image value(), error: repository name must have at least one component";
        assert_eq!(error, Err(want.to_owned()));
    }

    /// Whoever may override in a namespace need not be one who may read its Secrets; events tell why none is changed.
    #[test]
    fn nothing_of_a_secret_is_told() {
        let overrider = json!({"component": "Tag", "operator": "replace", "value": "v9", "predicate": {"path": "/data/key"}});
        let overrider = serde_json::from_value(overrider).expect("an overrider");
        let of =
            |kind: &str| json!({"apiVersion": "v1", "kind": kind, "data": {"key": "UEFTUw=="}});
        let told = |kind: &str| {
            change_images(&mut of(kind), &overrider, &Budget::new())
                .expect_err("no image")
                .to_string()
        };
        assert_eq!(told("Secret"), "no image can be overridden in a Secret");
        assert!(
            told("ConfigMap").contains("UEFTUw=="),
            "{}",
            told("ConfigMap")
        );
    }

    #[test]
    fn words_of_the_named_container_change() {
        let spec = json!({"containers": [{"name": "a", "args": ["x", "y", "x"]}, {"name": "b"}],
            "initContainers": [{"name": "i", "args": ["x"]}]});
        let cases = [
            (
                "a",
                "add",
                vec!["z", "x"],
                "/containers/0",
                json!(["x", "y", "x", "z", "x"]),
            ),
            (
                "a",
                "remove",
                vec!["x", "absent"],
                "/containers/0",
                json!(["y"]),
            ),
            ("b", "add", vec!["z"], "/containers/1", json!(["z"])),
            ("b", "remove", vec!["z"], "/containers/1", json!([])),
            (
                "i",
                "add",
                vec!["z"],
                "/initContainers/0",
                json!(["x", "z"]),
            ),
        ];
        for (name, operator, value, at, want) in cases {
            let mut manifest = json!({"kind": "Pod", "spec": spec});
            let overrider = json!({"containerName": name, "operator": operator, "value": value});
            let overrider = serde_json::from_value(overrider).expect("an overrider");
            change_words(&mut manifest, "args", &overrider, &Budget::new()).expect("little");
            let mut wanted = json!({"kind": "Pod", "spec": spec});
            wanted.pointer_mut(&format!("/spec{at}")).expect("there")["args"] = want;
            assert_eq!(manifest, wanted, "{name} {operator}");
        }
        let mut manifest = json!({"kind": "Pod", "spec": spec});
        let absent = json!({"containerName": "absent", "operator": "add", "value": ["z"]});
        change_words(
            &mut manifest,
            "command",
            &serde_json::from_value(absent).expect("one"),
            &Budget::new(),
        )
        .expect("little");
        assert_eq!(manifest, json!({"kind": "Pod", "spec": spec}));
    }
}
