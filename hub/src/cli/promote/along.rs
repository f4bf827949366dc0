//! What a promoted object refers to, and comes along to the hub with it.

use super::template::{self, Unfit};
use super::{Member, Tried, Writer, unmet};
use crate::cli::error::rest_error;
use crate::cli::{CliError, Kind};
use crate::world::ObjectName;
use common::gvk::Gvk;
use common::interpreter::dependencies::Dependency;
use common::interpreter::layers::Interpreter;
use common::mapper::Resource;
use common::names::ClusterName;
use serde_json::Value;
use std::sync::Arc;

/// One that comes along.
pub(super) struct Along {
    pub(super) resource: Arc<Resource>,
    /// As the member has it.
    pub(super) live: Value,
    pub(super) tried: Tried,
}

/// What comes along, and what does not and why.
#[derive(Default)]
pub(super) struct Found {
    pub(super) along: Vec<Along>,
    pub(super) stays: Vec<String>,
}

/// What a template refers to, as its member has it. What the hub has just so already is left as it is; one that it has
/// otherwise would become another in the member, which nobody asked for. Where no policy says so, templates say themselves
/// that they take over what is there.
pub(super) async fn find(
    hub: &Writer,
    cluster: &ClusterName,
    interpreter: &Interpreter,
    resource: &Resource,
    template: &Value,
    takes_over: bool,
) -> Result<Found, CliError> {
    let mut found = Found::default();
    let all = match interpreter.dependencies(&resource.gvk, template) {
        None => Vec::new(),
        Some(Ok(all)) => all,
        Some(Err(why)) => {
            let message = format!("nobody knows what {} refers to: {why}", template["kind"]);
            return Err(CliError::message(Kind::Unmet, message));
        }
    };
    for one in &all {
        let Some(name) = &one.name else {
            found.stays.push(format!(
                "{} that are selected by labels do not come along",
                one.kind
            ));
            continue;
        };
        let of = of_hub(hub, one).await?;
        let namespace = one.namespace.as_deref().unwrap_or_default();
        let named = ObjectName::new(Some(namespace).filter(|_| of.namespaced), name);
        let shown = format!("{} {named}", one.kind);
        let there = Member {
            client: hub.reader.client(),
            cluster,
            resource: &of,
        };
        let Some(live) = there.read_opt(namespace, name).await? else {
            found
                .stays
                .push(format!("{shown} is not in cluster {cluster}"));
            continue;
        };
        let wanted = template::of(&live, &of);
        let on_hub = hub.reader.object(&of, &named).await.map_err(rest_error)?;
        match (on_hub, wanted) {
            (Some(_), Err(Unfit::Kept { .. })) => {
                found.stays.push(format!("{shown} is the hub's already"));
            }
            (Some(there), Ok(wanted)) if template::of(&there, &of).as_ref() == Ok(&wanted) => {
                found.stays.push(format!("{shown} is on the hub already"));
            }
            (Some(_), Ok(_)) => {
                let message = format!(
                    "{shown} exists on the hub and is another one in cluster {cluster}; nothing was written"
                );
                return Err(CliError::message(Kind::Unmet, message).hint(
                    "Make them the same, or leave --dependencies out: what it refers to then stays as it is in the member.",
                ));
            }
            (_, Err(error)) => return Err(unmet(error)),
            (None, Ok(wanted)) => {
                let wanted = match takes_over {
                    true => template::taking_over(wanted),
                    false => wanted,
                };
                found.along.push(Along {
                    tried: hub.tried(&wanted).await?,
                    resource: of,
                    live,
                });
            }
        }
    }
    Ok(found)
}

/// How the hub serves a kind that something refers to.
async fn of_hub(hub: &Writer, one: &Dependency) -> Result<Arc<Resource>, CliError> {
    let kind = Gvk::new(&one.api_version, &one.kind);
    let served = match &kind {
        Some(kind) => hub.reader.resource(kind).await.map_err(rest_error)?,
        None => None,
    };
    served.ok_or_else(|| {
        let message = format!("the hub serves no {} of {}", one.kind, one.api_version);
        CliError::message(Kind::NotFound, message)
            .hint("Promote its CustomResourceDefinition first, or leave --dependencies out.")
    })
}
