//! What else a Namespace or a definition holds, before it is deleted.

use crate::execution::brakes::{is_foreign, is_incidental};
use crate::execution::state::Shared;
use crate::member::api::Member;
use common::gvk::Gvk;
use common::labels::WORK_NAME;
use common::mapper::Resource;
use common::rest::{Call, Error, JSON, METADATA_LIST};
use serde_json::Value;

/// Objects of a kind that are looked at; more than that are reason enough to keep what holds them.
const LOOKED_AT: u32 = 500;

/// What in a namespace is not of a Work, if there is anything.
pub(super) async fn in_namespace(
    member: &Member,
    name: &str,
    state: &Shared,
) -> Result<Option<String>, Error> {
    for resource in member.all_kinds().await? {
        if !resource.namespaced || is_incidental(&resource.gvk) {
            continue;
        }
        let uri = resource.collection_in(name);
        if let Some(found) = foreign_in(member, &resource, &uri, state).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Which custom resource of a definition is not of a Work, if there is any.
pub(super) async fn of_definition(
    member: &Member,
    uri: &str,
    state: &Shared,
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
    foreign_in(member, &resource, &resource.collection(), state).await
}

async fn foreign_in(
    member: &Member,
    resource: &Resource,
    uri: &str,
    state: &Shared,
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
        .find(|item| is_foreign(kind, item) || is_preserved(state, item));
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

/// Whether an object stays when its Work goes, and so may not go with anything else.
fn is_preserved(state: &Shared, object: &Value) -> bool {
    let work = object["metadata"]["annotations"][WORK_NAME].as_str();
    let state = state.lock();
    let record = work.and_then(|name| state.works.get(name));
    record.is_some_and(|record| record.preserve)
}
