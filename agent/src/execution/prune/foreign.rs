//! What else a Namespace or a definition holds, before it is deleted.

use crate::execution::brakes::{
    is_foreign, is_guarded, is_incidental, is_made_by_a_controller, is_managed,
};
use crate::execution::state::Shared;
use crate::member::api::Member;
use common::gvk::Gvk;
use common::labels::{ADOPTED, DELETION, WORK_NAME, WORK_NAMESPACE};
use common::mapper::Resource;
use common::rest::{Call, Error, JSON, METADATA_LIST};
use serde_json::Value;

/// Objects of a kind that are looked at; more than that are reason enough to keep what holds them.
const LOOKED_AT: u32 = 500;

/// Whose objects may go with what holds them.
pub(super) struct Ours<'a> {
    /// The namespace of our Works on the hub.
    pub(super) execution: &'a str,
    pub(super) state: &'a Shared,
}

/// What in a namespace would not go by its Work, if there is anything.
pub(super) async fn in_namespace(
    member: &Member,
    name: &str,
    ours: &Ours<'_>,
) -> Result<Option<String>, Error> {
    for resource in member.all_kinds().await? {
        if !resource.namespaced || is_incidental(&resource.gvk) {
            continue;
        }
        let uri = resource.collection_in(name);
        if let Some(found) = foreign_in(member, &resource, &uri, ours).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Which custom resource of a definition would not go by its Work, if there is any.
pub(super) async fn of_definition(
    member: &Member,
    uri: &str,
    ours: &Ours<'_>,
) -> Result<Option<String>, Error> {
    let definition: Value = match member.ask(Call::get(uri, JSON)).await {
        Ok(reply) => reply.json()?,
        Err(error) if error.code() == Some(404) => return Ok(None),
        Err(error) => return Err(error),
    };
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let served = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["served"] == true);
    let Some(version) = served else {
        return Ok(None);
    };
    let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
    let Some(gvk) = Gvk::new(&api_version, &text(&spec["names"]["kind"])) else {
        return Ok(None);
    };
    let resource = Resource {
        gvk,
        plural: text(&spec["names"]["plural"]),
        namespaced: spec["scope"] == "Namespaced",
    };
    foreign_in(member, &resource, &resource.collection(), ours).await
}

async fn foreign_in(
    member: &Member,
    resource: &Resource,
    uri: &str,
    ours: &Ours<'_>,
) -> Result<Option<String>, Error> {
    let uri = format!("{uri}?limit={LOOKED_AT}");
    let list: Value = match member.ask(Call::get(&uri, METADATA_LIST)).await {
        Ok(reply) => reply.json()?,
        // What is not served, or cannot be listed, holds nothing.
        Err(error) if matches!(error.code(), Some(404 | 405)) => return Ok(None),
        Err(error) if error.code() == Some(403) => {
            let what = resource.qualified();
            return Ok(Some(format!(
                "the agent may not see whether it holds {what}"
            )));
        }
        Err(error) => return Err(error),
    };
    let more = list["metadata"]["continue"]
        .as_str()
        .is_some_and(|token| !token.is_empty());
    let kind = &resource.gvk;
    let foreign = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|item| is_foreign(kind, item) || ours.lacks(kind, item));
    Ok(match foreign {
        Some(item) => {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            Some(format!("it holds {} {name}", kind.kind))
        }
        None if more => Some(format!(
            "it holds more than {LOOKED_AT} {}",
            resource.plural
        )),
        None => None,
    })
}

impl Ours<'_> {
    /// Whether an object that is marked as a Work's stays when its Work goes, or has none here: an orphan, or another
    /// hub's. What is on its way out already is not held back by that.
    fn lacks(&self, kind: &Gvk, object: &Value) -> bool {
        let meta = &object["metadata"];
        if !is_managed(object) || is_incidental(kind) || meta["deletionTimestamp"].is_string() {
            return false;
        }
        let annotations = &meta["annotations"];
        // Its Work goes without it: its manifest says so, or it was there before.
        if annotations[DELETION] == "keep" || is_guarded(kind) && annotations[ADOPTED] == "true" {
            return true;
        }
        if is_made_by_a_controller(object) {
            return false;
        }
        if annotations[WORK_NAMESPACE] != self.execution {
            return true;
        }
        let state = self.state.lock();
        let work = annotations[WORK_NAME].as_str();
        let record = work.and_then(|name| state.works.get(name));
        record.is_none_or(|record| record.preserve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::wire;
    use common::labels::{MANAGED, MANAGED_VALUE};
    use serde_json::json;

    /// What of a Work that is here stays when it goes, and so must not go with what holds it.
    #[test]
    fn what_stays_when_its_work_goes_holds_what_it_lies_in() {
        let state = Shared::default();
        state.lock().upsert(&wire("w", "1", &[]));
        let ours = Ours {
            execution: "karmada-es-m1",
            state: &state,
        };
        let lacks = |kind: &str, label: &str, value: &str, more: Value| {
            let mut meta = json!({"name": "a", "labels": {MANAGED: MANAGED_VALUE}, "annotations":
                {WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: "w", label: value}});
            for (key, value) in more.as_object().into_iter().flatten() {
                meta[key] = value.clone();
            }
            let kind = Gvk::new("v1", kind).expect("sound");
            ours.lacks(&kind, &json!({"metadata": meta}))
        };
        let owned = json!({"ownerReferences": [{"uid": "x"}]});
        let going = json!({"deletionTimestamp": "2030-01-01T00:00:00Z"});
        for (kind, label, value, more, want) in [
            ("ConfigMap", "note", "x", Value::Null, false),
            ("ConfigMap", DELETION, "keep", Value::Null, true),
            ("ConfigMap", DELETION, "other", Value::Null, false),
            ("ConfigMap", DELETION, "keep", owned, true),
            ("ConfigMap", DELETION, "keep", going, false),
            // Of what was there before, only what holds data or other objects stays.
            ("ConfigMap", ADOPTED, "true", Value::Null, false),
            ("PersistentVolumeClaim", ADOPTED, "true", Value::Null, true),
            ("PersistentVolumeClaim", "note", "x", Value::Null, false),
        ] {
            let told = format!("{kind} {label}={value} {more}");
            assert_eq!(lacks(kind, label, value, more), want, "{told}");
        }
    }
}
