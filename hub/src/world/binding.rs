//! What is kept of a binding.
//!
//! There are as many as templates, and each is a few kilobytes as it was sent, most of it what it has in common with
//! others: its placement, twice, and who wrote which field. While nobody looks at it, what is left lies packed.

use super::held::ObjectName;
use super::kept::{Keep, Packing};
use super::placements::{self, Shared};
use super::view::Record;
use crate::pack::Packed;
use crate::propagation;
use common::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use common::gvk::Gvk;
use common::labels::APPLIED_PLACEMENT;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Debug, Clone)]
pub struct Binding {
    /// What decisions look at, without the annotation that tells the placement that was applied.
    pub binding: propagation::Binding,
    /// Its placement, which is that of its spec too.
    pub placement: Option<Arc<Shared>>,
    /// The placement that was applied last, as JSON.
    pub applied: Option<Arc<str>>,
    /// Counts changes of its spec.
    pub generation: i64,
    /// What is said of it, without what members say: see [`Self::whole_status`].
    pub status: ResourceBindingStatus,
    /// What members say, as JSON, a fraction of what it takes when it is read.
    answers: Option<Box<str>>,
}

impl Binding {
    /// One that is about to be written; what it has in common with others is shared.
    pub fn new(
        mut binding: propagation::Binding,
        generation: i64,
        status: ResourceBindingStatus,
    ) -> Self {
        let placement = binding.spec.placement.as_ref().map(placements::shared);
        let applied = binding.annotations.remove(APPLIED_PLACEMENT);
        let common = Common {
            applied: applied.map(|text| of_applied(text, placement.as_deref())),
            placement,
        };
        Self::with(binding, common, generation, status)
    }

    fn with(
        mut binding: propagation::Binding,
        common: Common,
        generation: i64,
        mut status: ResourceBindingStatus,
    ) -> Self {
        let Common { placement, applied } = common;
        binding.spec.placement = placement.as_ref().map(|it| Arc::clone(&it.placement));
        let answers = std::mem::take(&mut status.aggregated_status);
        let answers = Some(answers).filter(|all| !all.is_empty());
        Self {
            binding,
            placement,
            applied,
            generation,
            status,
            // It was read from JSON, or is about to be written as such.
            answers: answers.and_then(|all| Some(serde_json::to_string(&all).ok()?.into())),
        }
    }

    /// Whether members say the same of both.
    pub fn has_answers_of(&self, other: &Self) -> bool {
        self.answers == other.answers
    }

    /// What is said of it, with what members say.
    pub fn whole_status(&self) -> ResourceBindingStatus {
        let answers = self.answers.as_deref().map(serde_json::from_str);
        ResourceBindingStatus {
            aggregated_status: answers.and_then(Result::ok).unwrap_or_default(),
            ..self.status.clone()
        }
    }
}

/// A text of an applied placement, shared where it is that of the placement.
fn of_applied(text: String, placement: Option<&Shared>) -> Arc<str> {
    let same = placement.filter(|it| *it.text == *text);
    same.map_or_else(|| text.into(), |it| Arc::clone(&it.text))
}

impl Record for Binding {
    const KIND: &'static str = "binding";

    type Kept = PackedBinding;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let (rest, common) = apart(object)?;
        rest_of(&rest, common).map(Some)
    }
}

/// What a binding has in common with others.
#[derive(Clone, Default)]
struct Common {
    placement: Option<Arc<Shared>>,
    applied: Option<Arc<str>>,
}

/// A binding as it lies in memory.
pub struct PackedBinding {
    rest: Packed,
    common: Common,
}

impl Keep<Binding> for PackedBinding {
    fn read(
        object: &str,
        _: Option<&Gvk>,
        packing: &mut Packing<Binding>,
    ) -> serde_json::Result<Option<(Arc<Binding>, Self)>> {
        let (rest, common) = apart(object)?;
        let record = rest_of(&rest, common.clone())?;
        let rest = Packed::new(&rest, &mut packing.packer);
        Ok(Some((Arc::new(record), Self { rest, common })))
    }

    fn record(&self, name: &ObjectName, packing: &mut Packing<Binding>) -> Option<Arc<Binding>> {
        packing.recent(name, || {
            rest_of(&self.rest.text(), self.common.clone()).ok()
        })
    }
}

/// Takes what a binding has in common with others out of its text, and what says who wrote which field.
fn apart(object: &str) -> serde_json::Result<(String, Common)> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
        #[serde(borrow)]
        spec: Spec<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        annotations: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
        #[serde(borrow, default)]
        managed_fields: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Spec<'a> {
        #[serde(borrow, default)]
        placement: Option<&'a RawValue>,
    }
    let Object { metadata, spec } = serde_json::from_str(object)?;
    let placement = match spec.placement {
        Some(text) => Some(placements::read(text.get())?),
        None => None,
    };
    let annotations = metadata.annotations.unwrap_or_default();
    let applied = annotations.get(APPLIED_PLACEMENT);
    let common = Common {
        applied: match applied {
            Some(text) => {
                let text: String = serde_json::from_str(text.get())?;
                Some(of_applied(text, placement.as_deref()))
            }
            None => None,
        },
        placement,
    };
    let parts = [
        (spec.placement, "null"),
        (metadata.managed_fields, "null"),
        (applied.copied(), "\"\""),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(part, instead)| Some((within(object, part?), instead)));
    let mut parts: Vec<(Range<usize>, &str)> = parts.collect();
    parts.sort_by_key(|(range, _)| range.start);
    let mut rest = String::with_capacity(object.len() / 2);
    let mut from = 0;
    for (range, instead) in parts {
        rest.push_str(object.get(from..range.start).unwrap_or_default());
        rest.push_str(instead);
        from = range.end;
    }
    rest.push_str(object.get(from..).unwrap_or_default());
    Ok((rest, common))
}

/// Where in a text a part of it is.
fn within(text: &str, part: &RawValue) -> Range<usize> {
    let part = part.get();
    let start = part.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    start..start + part.len()
}

/// Reads what is left of a binding.
fn rest_of(rest: &str, common: Common) -> serde_json::Result<Binding> {
    #[derive(Deserialize)]
    struct Object<'a> {
        metadata: Metadata,
        spec: ResourceBindingSpec,
        #[serde(borrow, default)]
        status: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        #[serde(default)]
        namespace: Option<String>,
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        uid: Option<String>,
        #[serde(default)]
        resource_version: Option<String>,
        #[serde(default)]
        generation: Option<i64>,
        #[serde(default)]
        deletion_timestamp: Option<String>,
        #[serde(default)]
        labels: Option<BTreeMap<String, String>>,
        #[serde(default)]
        annotations: Option<BTreeMap<String, String>>,
        #[serde(default)]
        finalizers: Option<Vec<String>>,
        #[serde(default)]
        owner_references: Option<Vec<OwnerReference>>,
    }
    let Object {
        metadata,
        spec,
        status,
    } = serde_json::from_str(rest)?;
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|it| it.controller == Some(true));
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.remove(APPLIED_PLACEMENT);
    let binding = propagation::Binding {
        namespace: metadata.namespace,
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        labels: metadata.labels.unwrap_or_default(),
        annotations,
        finalizers: metadata.finalizers.unwrap_or_default(),
        owner: owner.map(|it| propagation::Owner {
            api_version: it.api_version,
            kind: it.kind,
            name: it.name,
            uid: it.uid,
        }),
        spec,
    };
    let generation = metadata.generation.unwrap_or(0);
    let status = status.map(status_of).unwrap_or_default();
    Ok(Binding::with(binding, common, generation, status))
}

/// Reads a status. What cannot be read of it hides neither the binding nor, where members said that, what the hub says of
/// itself: nobody would know any more where its template is.
fn status_of(text: &RawValue) -> ResourceBindingStatus {
    let read = serde_json::from_str(text.get());
    read.or_else(|_| without_answers(text)).unwrap_or_default()
}

fn without_answers(text: &RawValue) -> serde_json::Result<ResourceBindingStatus> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(text.get())?;
    fields.remove("aggregatedStatus");
    serde_json::from_str(&serde_json::to_string(&fields)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(number: usize) -> Value {
        let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2\u{e9}\""]}});
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "annotations": {"a\"": "\\", APPLIED_PLACEMENT: placement.to_string(), "z": "1"},
                "finalizers": ["f"], "generation": 3, "labels": {"l": "1"}, "name": format!("web-{number}"),
                "managedFields": [{"manager": "towline-hub", "fieldsV1": {"f:spec": {}}}],
                "namespace": "n", "resourceVersion": "7", "uid": number.to_string(),
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "o", "controller": true},
                ],
            },
            "spec": {
                "clusters": [{"name": "m1", "replicas": 1}], "placement": placement, "replicas": 1,
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
            },
            "status": {
                "aggregatedStatus": [{"clusterName": "m1", "applied": true, "health": "Healthy"}],
                "conditions": [{"type": "Scheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": "Success", "message": ""}],
            },
        })
    }

    #[test]
    fn a_binding_is_what_was_sent_however_it_lies() {
        let mut packing = Packing::default();
        for number in 0..600 {
            let object = object(number);
            let text = object.to_string();
            let (read, kept) = PackedBinding::read(&text, None, &mut packing)
                .expect("an object")
                .expect("held");
            let name = ObjectName::new(Some("n"), &number.to_string());
            let again = kept.record(&name, &mut packing).expect("held");
            for held in [&read, &again] {
                let metadata =
                    serde_json::from_value(object["metadata"].clone()).expect("metadata");
                let spec = serde_json::from_value(object["spec"].clone()).expect("a spec");
                let mut wanted = propagation::Binding::of(&metadata, &spec);
                let applied = wanted.annotations.remove(APPLIED_PLACEMENT);
                assert_eq!(held.binding, wanted);
                assert_eq!(held.applied.as_deref(), applied.as_deref());
                assert_eq!(held.generation, 3);
                let status = serde_json::from_value(object["status"].clone()).expect("a status");
                assert_eq!(held.whole_status(), status);
            }
            assert!(Arc::ptr_eq(
                read.placement.as_ref().expect("placed"),
                again.placement.as_ref().expect("placed")
            ));
            assert!(
                number == 0 || kept.rest.len() * 3 < text.len(),
                "{}",
                kept.rest.len()
            );
        }
    }

    #[test]
    fn a_status_that_cannot_be_read_hides_no_binding() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let scheduled = r#"{"type":"Scheduled","status":"True","reason":"","message":"",
            "lastTransitionTime":"2026-01-01T00:00:00Z"}"#;
        let answered = format!(
            r#"{{"aggregatedStatus":[{{"clusterName":"m1","status":{deep}}}],"conditions":[{scheduled}]}}"#
        );
        let spec = &object(1)["spec"];
        // A status, and how many conditions are read of it.
        for (status, conditions) in [
            (answered.as_str(), 1),
            (r#"{"conditions":7}"#, 0),
            (deep.as_str(), 0),
            ("7", 0),
            ("null", 0),
        ] {
            let text = format!(r#"{{"metadata":{{"name":"b"}},"spec":{spec},"status":{status}}}"#);
            let held = Binding::read(&text).expect("an object").expect("held");
            assert_eq!(held.binding.spec.clusters.len(), 1, "{conditions}");
            let status = held.whole_status();
            assert_eq!(status.conditions.len(), conditions);
            assert_eq!(status.aggregated_status, []);
        }
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        let spec = json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}, "placement": null});
        let bare = json!({"metadata": {"name": "a", "annotations": null, "managedFields": null}, "spec": spec});
        let held = Binding::read(&bare.to_string())
            .expect("an object")
            .expect("held");
        assert!(held.placement.is_none() && held.applied.is_none());
        assert_eq!(held.binding.annotations.len(), 0);
        for bad in [
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a"}, "spec": 1}),
            json!({"metadata": {"name": "a"}, "spec": {"resource": spec["resource"], "placement": 1}}),
            json!({"metadata": {"annotations": {APPLIED_PLACEMENT: 1}}, "spec": spec}),
        ] {
            assert!(Binding::read(&bad.to_string()).is_err(), "{bad}");
        }
    }
}
